//! Checks that the primitives that the documentation and the rules of the trace name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use assay_bench::{catalogue, find};
use assay_quantity::{Key, PrimitiveId, Size, Value};
use assay_trace::view::demand::{CONTEXT_SWITCH, NULL_CALL, PAGE_FAULT, RULES, Role};

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

fn exists(name: &str, all: &[String]) -> bool {
    let id = name.parse::<PrimitiveId>();
    // With keys it is a complete id; without keys it may be a prefix of several ids.
    id.is_ok_and(|id| find(&id).is_some())
        || all.iter().any(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')))
}

#[test]
fn every_primitive_that_the_documentation_names_is_in_the_catalogue() {
    let all: Vec<String> = catalogue().iter().map(|benchmark| benchmark.primitive.to_string()).collect();
    let families = all.iter().map(|id| id.split('.').next().unwrap().to_owned()).collect();
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

/// A traced call enters the kernel; its benchmark stays in the vDSO, so that its cost is a lower bound.
const WITHOUT_A_CALL: &str = "clock.gettime";

#[test]
fn every_rule_of_the_trace_names_benchmarks_that_make_one_of_its_calls() {
    for rule in RULES {
        let plain: PrimitiveId = rule.primitive.parse().unwrap();
        let sized = plain.with(Key::Size, Value::Bytes(Size::kib(4)));
        let ids = match rule.role {
            Role::Operation | Role::Within => vec![plain],
            Role::Sized | Role::HeldBack => vec![sized],
            Role::Buffered => {
                ["reused", "fresh"].map(|word| sized.with(Key::Buffer, Value::Word(word))).to_vec()
            }
        };
        for id in ids {
            let benchmark =
                find(&id).unwrap_or_else(|| panic!("a rule names '{id}', which has no benchmark"));
            if rule.primitive == WITHOUT_A_CALL {
                assert!(benchmark.calls.is_empty(), "{id} makes a call");
            } else if rule.role != Role::Within {
                let is_made = rule.calls.iter().any(|call| benchmark.calls.contains(call));
                assert!(is_made, "{id} makes none of the calls {:?}", rule.calls);
            }
        }
    }
    for name in [NULL_CALL, CONTEXT_SWITCH, PAGE_FAULT] {
        assert!(find(&name.parse().unwrap()).is_some(), "{name} has no benchmark");
    }
}
