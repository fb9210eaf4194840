//! Checks that the primitives that the documentation and the rules of the trace name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use assay_bench::{Benchmark, Profile, catalogue, find};
use assay_quantity::{Key, NULL_CALL, PrimitiveId, Size, Value};
use assay_trace::view::demand::{CONTEXT_SWITCH, FAULTS, RULES, Role, SCHEDULING, UNASKED};

/// File extensions, which look like operations.
const NO_OPERATIONS: [&str; 6] = ["rs", "c", "h", "toml", "json", "md"];

/// Returns all `family.operation` and `family.operation{...}` in a text with one of these families.
fn named<'a>(text: &'a str, families: &BTreeSet<String>) -> Vec<&'a str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = Vec::new();
    for (dot, _) in text.match_indices('.') {
        let begin = text[..dot].trim_end_matches(is_word).len();
        let operation = text.len() - text[dot + 1..].trim_start_matches(is_word).len();
        let before = text[..begin].chars().next_back();
        let is_path = before.is_some_and(|c| ['/', '.', '-'].contains(&c));
        let known =
            families.contains(&text[begin..dot]) && !NO_OPERATIONS.contains(&&text[dot + 1..operation]);
        if known && !is_path && operation > dot + 1 {
            let keys = text[operation..].starts_with('{').then(|| text[operation..].find('}')).flatten();
            names.push(&text[begin..keys.map_or(operation, |length| operation + length + 1)]);
        }
    }
    names
}

/// Returns whether a name is a complete id, or one of several ids with some of their keys left free.
fn exists(name: &str, all: &[PrimitiveId]) -> bool {
    let is_one_of = |known: &PrimitiveId, id: &PrimitiveId| {
        let mut keys = id.keys().iter();
        (known.family(), known.operation()) == (id.family(), id.operation())
            && keys.all(|(key, value)| known.keys().get(key) == Some(value))
    };
    name.parse::<PrimitiveId>()
        .is_ok_and(|id| find(&id).is_some() || all.iter().any(|known| is_one_of(known, &id)))
}

#[test]
fn every_primitive_that_the_documentation_names_is_in_the_catalogue() {
    let all: Vec<PrimitiveId> = catalogue().into_iter().map(|benchmark| benchmark.primitive).collect();
    let families = all.iter().map(|id| id.family().to_owned()).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root.join(page)).to_vec();
    pages.extend(fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let (mut names, mut missing) = (0, BTreeSet::new());
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for name in named(&text, &families) {
            names += 1;
            if !exists(name, &all) {
                missing.insert(format!("{}: {name}", page.file_name().unwrap().to_string_lossy()));
            }
        }
    }
    assert!(names > 300, "only {names} names were found");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Returns the primitives that count without a rule for a call.
fn without_calls() -> impl Iterator<Item = &'static str> {
    [NULL_CALL, CONTEXT_SWITCH]
        .into_iter()
        .chain(SCHEDULING.iter().map(|rule| rule.primitive))
        .chain(FAULTS.iter().flat_map(|rule| [Some(rule.primitive), rule.release]).flatten())
}

/// Calls that count as primitives whose benchmarks make another call, which does the same.
const SIMILAR: [(&str, &str); 4] =
    [("open", "openat"), ("unlink", "unlinkat"), ("fcntl", "dup"), ("brk", "getppid")];

#[test]
fn the_rules_of_the_trace_name_benchmarks_that_make_one_of_their_calls() {
    let all = catalogue();
    for rule in RULES {
        let plain: PrimitiveId = rule.primitive.parse().unwrap();
        let of_bytes = |bytes| plain.with(Key::Size, Value::Bytes(bytes));
        let sized = of_bytes(Size::kib(4));
        let ids = match rule.role {
            Role::Operation => vec![plain],
            Role::Within if find(&plain).is_some() => vec![plain],
            Role::Within => vec![sized],
            Role::OfBytes(bytes) => vec![of_bytes(Size(bytes))],
            Role::Sized | Role::Copied | Role::HeldBack => vec![sized],
            Role::Buffered => {
                ["reused", "fresh"].map(|word| sized.with(Key::Buffer, Value::Word(word))).to_vec()
            }
        };
        for id in ids {
            let benchmark =
                find(&id).unwrap_or_else(|| panic!("a rule names '{id}', which has no benchmark"));
            if rule.role != Role::Within {
                let is_made = |call: &&str| {
                    let alike = SIMILAR.iter().find(|(similar, _)| similar == call);
                    benchmark.calls.contains(call)
                        || alike.is_some_and(|(_, other)| benchmark.calls.contains(other))
                };
                assert!(rule.calls.iter().any(is_made), "{id} makes none of the calls {:?}", rule.calls);
            }
            let is_quick = |known: &Benchmark| {
                known.profile == Profile::Quick && known.primitive.without(Key::Size) == id.without(Key::Size)
            };
            assert!(all.iter().any(is_quick), "a quick run does not measure {id}");
        }
    }
    for name in without_calls() {
        let id = name.parse().unwrap();
        let is_quick = find(&id).is_some_and(|known| known.profile == Profile::Quick);
        assert!(is_quick, "a quick run does not measure {name}");
    }
}

/// Returns whether an entry, a family or an operation, contains an operation.
fn contains(entry: &str, operation: &str) -> bool {
    operation.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn every_operation_of_the_catalogue_is_asked_for_or_has_a_reason_why_not() {
    let operation_of = |id: &str| id.split('{').next().unwrap_or_default().to_owned();
    let all: BTreeSet<String> =
        catalogue().iter().map(|benchmark| operation_of(&benchmark.primitive.to_string())).collect();
    let mut asked: BTreeSet<String> = RULES.iter().map(|rule| operation_of(rule.primitive)).collect();
    asked.extend(without_calls().map(operation_of));
    let unasked: Vec<&str> = UNASKED.iter().flat_map(|unasked| unasked.primitives).copied().collect();
    for operation in &all {
        let reasons = unasked.iter().filter(|entry| contains(entry, operation)).count();
        let due = usize::from(!asked.contains(operation));
        assert_eq!(reasons, due, "{operation} is asked for: {}", asked.contains(operation));
    }
    for entry in unasked {
        assert!(all.iter().any(|operation| contains(entry, operation)), "{entry} is no benchmark");
    }
}
