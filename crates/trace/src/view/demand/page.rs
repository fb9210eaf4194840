//! The tables of `docs/demand.md`, made from the rules and the reasons.

use std::fs;

use super::{
    DEEP_IDLE_NS, FAULTS, FaultRule, On, Owners, RULES, Role, Rule, SCHEDULING, Scheduling, SchedulingRule,
    UNASKED, When,
};
use crate::record::Area;
use assay_quantity::Size;

const RULES_HEAD: [&str; 2] = ["| call | on | if it | counts as |", "|---|---|---|---|"];
const FAULTS_HEAD: [&str; 2] =
    ["| page | access | area | memory | counts as | and |", "|---|---|---|---|---|---|"];
const SCHEDULING_HEAD: [&str; 2] = ["| sleep or wake-up | call on | counts as |", "|---|---|---|"];
const UNASKED_HEAD: [&str; 2] = ["| primitives | reason |", "|---|---|"];

/// Returns a page with new tables: of the rules below the line `<!-- rules -->`, of the page faults below
/// `<!-- faults -->`, of sleeps and wake-ups below `<!-- scheduling -->`, of the reasons below `<!-- unasked
/// -->`.
fn page(old: &str) -> String {
    let mut new = Vec::new();
    let mut lines = old.lines().peekable();
    while let Some(line) = lines.next() {
        new.push(line.to_owned());
        let (head, rows): (_, Vec<String>) = match line {
            "<!-- rules -->" => (RULES_HEAD, RULES.iter().map(row_of_rule).collect()),
            "<!-- faults -->" => (FAULTS_HEAD, FAULTS.iter().map(row_of_fault).collect()),
            "<!-- scheduling -->" => (SCHEDULING_HEAD, SCHEDULING.iter().map(row_of_scheduling).collect()),
            "<!-- unasked -->" => (
                UNASKED_HEAD,
                UNASKED
                    .iter()
                    .map(|unasked| format!("| {} | {} |", code(unasked.primitives), unasked.reason))
                    .collect(),
            ),
            _ => continue,
        };
        while lines.next_if(|line| line.starts_with('|')).is_some() {}
        new.extend(head.map(str::to_owned));
        new.extend(rows);
    }
    new.join("\n") + "\n"
}

fn code(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn row_of_rule(rule: &Rule) -> String {
    let with = rule.with.map_or(String::new(), |with| format!(", with `{}`", with.name));
    let counts = match rule.role {
        Role::Operation => String::new(),
        Role::OfBytes(bytes) => format!(" of {}", Size(bytes)),
        Role::Sized => ", by its bytes".to_owned(),
        Role::Buffered => ", by its bytes and its buffer".to_owned(),
        Role::Copied => ", by the anonymous memory".to_owned(),
        Role::HeldBack => ", by the bytes held back".to_owned(),
        Role::Within => " (a part of it)".to_owned(),
    };
    let (on, when) = (on(rule.on), when(rule.when));
    format!("| {} | {on} | {when}{with} | `{}`{counts} |", code(rule.calls), rule.primitive)
}

fn row_of_fault(rule: &FaultRule) -> String {
    let page = if rule.present { "present" } else { "absent" };
    let access = match rule.write {
        None => "any",
        Some(false) => "read",
        Some(true) => "write",
    };
    let area = match rule.area {
        None => "any",
        Some(Area::Nothing) => "none",
        Some(Area::Anonymous) => "anonymous",
        Some(Area::PrivateFile) => "a private mapping of a file",
        Some(Area::Shared) => "a shared mapping",
    };
    let memory = match rule.owners {
        None => "any",
        Some(Owners::Always) => "never copied",
        Some(Owners::Again) => "no copy is left",
        Some(Owners::Several) => "copies are left",
    };
    let release = rule.release.map_or_else(|| "–".to_owned(), |release| format!("`{release}`"));
    format!("| {page} | {access} | {area} | {memory} | `{}` | {release} |", rule.primitive)
}

fn row_of_scheduling(rule: &SchedulingRule) -> String {
    let deep = format!("idle for {} us or longer", DEEP_IDLE_NS / 1000);
    let event = match rule.event {
        Scheduling::Sleep => "slept; the CPU ran another thread before it continued",
        Scheduling::IdleSleep => "slept; the CPU was idle before it continued",
        Scheduling::DeepSleep => &format!("slept; the CPU was {deep} before it continued"),
        Scheduling::Wakeup => "woke a thread on its own CPU",
        Scheduling::WakeupElsewhere => "woke a thread on another CPU",
        Scheduling::DeepWakeup => &format!("woke a thread on another CPU that had been {deep}"),
    };
    format!("| {event} | {} | `{}` |", on(rule.on), rule.primitive)
}

fn on(on: On) -> &'static str {
    match on {
        On::Any => "anything",
        On::File => "a file",
        On::Directory => "a directory",
        On::Device => "a character device",
        On::Null => "`/dev/null`",
        On::Zero => "`/dev/zero`",
        On::Pipe => "a pipe",
        On::Tcp => "TCP",
        On::TcpElsewhere => "TCP, the peer on another CPU",
        On::Udp => "UDP",
        On::Unix => "a Unix stream",
        On::Eventfd => "an eventfd",
        On::Signalfd => "a signalfd",
        On::Anonymous => "an anonymous inode",
    }
}

fn when(when: When) -> &'static str {
    match when {
        When::Succeeded => "succeeded",
        When::Returned => "returned",
        When::Missing => "failed with `ENOENT` or `ENOTDIR`",
        When::Invalid => "failed with `EINVAL`",
        When::WouldBlock => "failed with `EAGAIN`",
        When::InProgress => "failed with `EINPROGRESS`",
        When::MadeCopy => "created a process with a copy of the memory",
        When::MadeBorrower => "created a process in the memory of its parent",
        When::MadeThread => "created a thread",
        When::Ended => "ended its thread",
        When::Corks => "set `TCP_CORK`",
        When::Uncorks => "cleared `TCP_CORK`",
        When::Corked => "succeeded under `TCP_CORK`",
    }
}

#[test]
fn the_tables_are_those_of_the_rules_and_the_reasons() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demand.md");
    let old = fs::read_to_string(path).unwrap();
    for marker in
        ["\n<!-- rules -->\n", "\n<!-- faults -->\n", "\n<!-- scheduling -->\n", "\n<!-- unasked -->\n"]
    {
        assert_eq!(old.matches(marker).count(), 1, "docs/demand.md must contain {marker:?} once");
    }
    expect_test::expect_file![path].assert_eq(&page(&old));
}
