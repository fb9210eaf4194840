//! Arguments as another tracer shows them: their contents, which are paths and socket addresses, and values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use assay_trace::{
    Event, Reader, Record,
    syscall::{self, Kind},
    view::sequence::Sequence,
};

use crate::support::{EXERCISE, Recording, record};

/// Bytes of a path that are kept.
const KEPT: usize = 240;

/// The contents of the calls by name, sorted.
type Contents = BTreeMap<String, Vec<Vec<String>>>;

/// Returns the calls of a command as strace shows them.
fn strace(command: &[&str]) -> Vec<String> {
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut tracer = Command::new("strace");
    tracer.args(["-f", "-qq", "-s", "400", "-o"]).arg(output.path()).args(command);
    assert!(tracer.status().unwrap().success());
    // A call during which another process made one has two lines.
    let mut unfinished = BTreeMap::new();
    let mut lines = Vec::new();
    for line in fs::read_to_string(output.path()).unwrap().lines() {
        let (process, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(call) = call.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process.to_owned(), call.to_owned());
        } else if let Some((_, rest)) = call.split_once(" resumed>") {
            lines.push(format!("{}{rest}", unfinished.remove(process).unwrap()));
        } else {
            lines.push(call.to_owned());
        }
    }
    lines
}

/// Returns the events of a recording as `assay view` shows them.
fn sequence(recording: &Recording) -> Vec<String> {
    let mut sequence = Sequence::default();
    let entries = Reader::open(&recording.path).unwrap().map(Result::unwrap);
    entries.filter_map(|entry| sequence.row(&entry).map(|row| row.text.clone())).collect()
}

/// Reads calls, one per line, in the notation of strace.
fn contents(lines: &[String]) -> Contents {
    let mut found = Contents::new();
    for line in lines {
        let Some((name, arguments)) = line.split_once('(') else { continue };
        let Some(number) = syscall::number(name) else { continue };
        let kinds = syscall::arguments(number);
        let paths = kinds.iter().filter(|kind| matches!(kind, Kind::Path | Kind::Program)).count();
        let contents: Vec<String> =
            if kinds.iter().any(|kind| matches!(kind, Kind::Address | Kind::AddressOut)) {
                addresses(arguments).collect()
            } else if paths == 0 || kinds.contains(&Kind::Program) && arguments.ends_with("= 0") {
                // The memory of a program that replaced the caller cannot be read.
                continue;
            } else {
                strings(arguments).take(paths).collect()
            };
        found.entry(name.to_owned()).or_default().push(contents);
    }
    found.values_mut().for_each(|calls| calls.sort());
    found
}

/// Returns the strings among the arguments, cut like the probe cuts them.
fn strings(arguments: &str) -> impl Iterator<Item = String> {
    // No path in these calls contains `", ` or ends with a backslash.
    let parts = arguments.split(", ").filter_map(|part| part.trim_end_matches("...").strip_prefix('"'));
    parts.map(|part| {
        let string = part.split_once("\")").map_or(part, |(string, _)| string);
        string.strip_suffix('"').unwrap_or(string).chars().take(KEPT).collect()
    })
}

/// Returns the socket addresses among the arguments, without the ports that the kernel chooses.
fn addresses(arguments: &str) -> impl Iterator<Item = String> {
    let parts = arguments.split("{sa_family=").skip(1).filter_map(|rest| rest.split_once('}'));
    parts.map(|(fields, _)| {
        let fields = fields.split(", ").map(|field| match field.strip_prefix("sin_port=htons(") {
            Some(port) if port.len() > "99)".len() => "a port",
            _ => field,
        });
        fields.collect::<Vec<_>>().join(", ")
    })
}

#[test]
fn paths_and_addresses_are_those_of_strace() {
    let directory = tempfile::tempdir().unwrap();
    let command = [EXERCISE, "contents", directory.path().to_str().unwrap()];
    let theirs = contents(&strace(&command));
    let recording = record(&command);
    assert!(recording.exit.is_success());
    let ours = contents(&sequence(&recording));
    for (name, calls) in &theirs {
        assert_eq!(ours.get(name), Some(calls), "{name}");
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(theirs["rename"].len() == 9 && theirs["connect"].len() >= 4, "{theirs:?}");
    let created =
        recording.contents.iter().filter(|content| content.bytes.starts_with(b"p") && content.argument == 1);
    let created: Vec<_> = created.map(|content| (content.bytes.len(), content.is_cut)).collect();
    let due = [1, 47, 48, 49, 96, 239, 240, 241, 250].map(|length: usize| (length.min(KEPT), length > KEPT));
    assert_eq!(created, due);
}

/// The probe reads what it can, adds no page fault of its own, and no byte that the call did not store.
#[test]
fn of_bad_pointers_only_what_the_kernel_could_use_is_recorded() {
    let recording = record(&[EXERCISE, "bad-pointers"]);
    assert!(recording.exit.is_success());
    let faults = |sought: u64| {
        let is_sought = |record: &&Record| match record.event {
            Event::PageFault { address, .. } => address == sought,
            _ => false,
        };
        recording.records.iter().filter(is_sought).count()
    };
    // Those during the call are the kernel's.
    assert_eq!((faults(8), faults(0)), (recording.calls("rename")[0].faults as usize, 0));
    let shown = sequence(&recording);
    let shown = |name: &str| shown.iter().find(|line| line.starts_with(name)).unwrap().clone();
    assert_eq!(shown("rename("), r#"rename("readable", 0x8) = -1 EFAULT"#);
    assert!(shown("utimensat(").ends_with(", NULL, NULL, 0) = 0"), "{}", shown("utimensat("));
    let name = shown("getsockname(");
    assert!(name.contains(", {sa_family=AF_INET, sa_data=") && name.contains("}..., "), "{name}");
    assert!(recording.contents.iter().any(|content| content.bytes.len() == 4 && content.is_cut));
}

/// Arguments that strace shows as names and the view as numbers.
const NUMBERS: [(&str, usize); 4] = [("arch_prctl", 0), ("fcntl", 2), ("setsockopt", 2), ("socket", 2)];

/// Returns the name and the arguments of a call; neither strings nor structures are split.
fn split(line: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = line.split_once('(')?;
    syscall::number(name)?;
    let (mut arguments, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    let mut previous = ' ';
    for (position, letter) in rest.char_indices() {
        match letter {
            '"' if previous != '\\' => quoted = !quoted,
            _ if quoted => {}
            ')' if depth == 0 => {
                arguments.push(&rest[start..position]);
                break;
            }
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(&rest[start..position]);
                start = position + 2;
            }
            _ => {}
        }
        previous = letter;
    }
    Some((name, arguments))
}

/// Names in the order of the alphabet, numbers as numbers; `None` for an address and for the content of
/// memory.
fn comparable(argument: &str) -> Option<String> {
    // Some constants have several names, and what has none is marked.
    let argument = argument.rsplit(" or ").next()?.split(" /*").next()?;
    let number = argument.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (argument.chars().next()?, number) {
        ('[' | '{' | '"' | '&' | '~', _) => None,
        (_, Some(address)) if address > 0xffff_ffff => None,
        (_, Some(number)) => Some(number.to_string()),
        _ => {
            let mut names: Vec<&str> = argument.split('|').collect();
            names.sort_unstable();
            Some(names.join("|"))
        }
    }
}

#[test]
fn values_of_arguments_are_those_of_strace() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    fs::write(&copy, "").unwrap();
    let copy = copy.to_str().unwrap();
    let mut numbers = BTreeSet::new();
    let (mut names, mut wrong) = (0, Vec::new());
    for command in [
        &["sh", "-c", "exec ls -lR /etc/apt >/dev/null"][..],
        &["sh", "-c", "exec find /etc/apt -newer /etc/passwd >/dev/null"],
        &["sh", "-c", "exec wc /etc/passwd >/dev/null"],
        &["tar", "cf", "/dev/null", "/etc/apt"],
        &["cp", "-p", "/etc/passwd", copy],
        &["dd", "if=/etc/passwd", "of=/dev/null", "status=none"],
        &[EXERCISE, "sockets"],
        &[EXERCISE, "values"],
    ] {
        let theirs = strace(command);
        let ours = sequence(&record(command));
        let theirs: Vec<_> = theirs.iter().filter_map(|line| split(line)).collect();
        let ours: Vec<_> = ours.iter().filter_map(|line| split(line)).collect();
        assert_eq!(ours.len(), theirs.len(), "{command:?}");
        for ((our_name, our_arguments), (name, arguments)) in ours.iter().zip(&theirs) {
            assert_eq!(our_name, name, "{command:?}");
            if *name != "execve" {
                assert_eq!(our_arguments.len(), arguments.len(), "{name}: {our_arguments:?} {arguments:?}");
            }
            for (position, (our, their)) in our_arguments.iter().zip(arguments).enumerate() {
                let (Some(our), Some(their)) = (comparable(our), comparable(their)) else { continue };
                if (*name, position) == ("sched_getaffinity", 0) {
                    continue; // its own process
                }
                let is_name = |text: &str| text.starts_with(char::is_uppercase);
                if is_name(&their) && !is_name(&our) {
                    numbers.insert((name.to_string(), position));
                    continue;
                }
                names += usize::from(is_name(&our));
                if our != their {
                    wrong.push(format!("{name}: {our_arguments:?}, but {arguments:?}"));
                }
            }
        }
    }
    assert!(names > 100 && wrong.is_empty(), "{names} names; {wrong:#?}");
    let others = numbers.iter().find(|(name, position)| !NUMBERS.contains(&(name.as_str(), *position)));
    assert_eq!(others, None);
}
