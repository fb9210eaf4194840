//! Tests of the mapping of sleeps and wake-ups.

use super::{
    super::{DEEP_IDLE_NS, SCHEDULING},
    *,
};
use crate::record::Wakeups;

/// The primitives of the sleeps and wake-ups of a call, and how many of each.
fn scheduled(name: &str, descriptor: Descriptor, voluntary: u32, wakeups: Wakeups) -> Vec<(String, f64)> {
    let call = Call { descriptor, voluntary, wakeups: Some(wakeups), result: 1, ..call(name) };
    let named = |(primitive, count, _): &(String, f64, _)| (primitive.replace(" Own", ""), *count);
    let is_scheduling = |(name, _): &(String, f64)| {
        name == CONTEXT_SWITCH || SCHEDULING.iter().any(|rule| rule.primitive == name)
    };
    terms(&[Event::Call(call)]).iter().map(named).filter(is_scheduling).collect()
}

fn counts(due: &[(&str, f64)]) -> Vec<(String, f64)> {
    due.iter().map(|(primitive, count)| ((*primitive).to_owned(), *count)).collect()
}

#[test]
fn a_sleep_counts_by_what_the_cpu_did_in_between() {
    let slept = |idle_sleeps, idle_ns| {
        let wakeups = Wakeups { idle_sleeps, idle_ns, ..Wakeups::default() };
        scheduled("epoll_wait", Descriptor::Epoll, 3, wakeups)
    };
    let (busy, idle) = ("process.sleep{cpus=same}", "process.sleep{cpus=different}");
    let deep = "process.sleep_deep{cpus=different}";
    assert_eq!(slept(0, 0), counts(&[(busy, 3.0)]));
    assert_eq!(slept(2, 2 * DEEP_IDLE_NS - 1), counts(&[(idle, 2.0), (busy, 1.0)]));
    assert_eq!(slept(3, 3 * DEEP_IDLE_NS), counts(&[(deep, 3.0)]));
}

#[test]
fn a_wake_up_counts_by_the_other_cpu_and_by_the_path_to_the_sleeper() {
    let woken = |name, descriptor, woken_idle_ns| {
        let wakeups =
            Wakeups { woken_same: 1, woken_busy: 2, woken_idle: 4, woken_idle_ns, ..Wakeups::default() };
        scheduled(name, descriptor, 0, wakeups)
    };
    let same = ("process.wakeup{cpus=same}", 1.0);
    for (name, descriptor, shallow, deep) in [
        ("write", Descriptor::Tcp4, "tcp.wakeup{cpus=different}", "tcp.wakeup_deep{cpus=different}"),
        ("setsockopt", Descriptor::Tcp6, "tcp.wakeup{cpus=different}", "tcp.wakeup_deep{cpus=different}"),
        ("write", Descriptor::Pipe, "process.wakeup{cpus=different}", "process.wakeup_deep{cpus=different}"),
        ("futex", Descriptor::None, "process.wakeup{cpus=different}", "process.wakeup_deep{cpus=different}"),
    ] {
        let sorted = |mut due: Vec<(String, f64)>| {
            due.sort_by(|a, b| a.0.cmp(&b.0));
            due
        };
        let all = counts(&[same, (shallow, 6.0)]);
        assert_eq!(sorted(woken(name, descriptor, 4 * DEEP_IDLE_NS - 1)), sorted(all));
        let all = counts(&[same, (shallow, 2.0), (deep, 4.0)]);
        assert_eq!(sorted(woken(name, descriptor, 4 * DEEP_IDLE_NS)), sorted(all));
    }
}

#[test]
fn a_switch_without_a_recorded_state_of_the_cpu_is_a_context_switch() {
    let wait = Call { voluntary: 2, descriptor: Descriptor::Epoll, result: 1, ..call("epoll_wait") };
    let shown = terms(&[Event::Call(wait)]);
    assert_eq!(shown[0], ("epoll.wait_ready Own".to_owned(), 1.0, None));
    assert_eq!(shown[1], (format!("{CONTEXT_SWITCH} Own"), 2.0, None));
    assert_eq!(shown.len(), 2);
}

#[test]
fn the_sleeps_and_wake_ups_of_creating_ending_and_awaiting_a_child_are_part_of_its_life() {
    let wakeups = Wakeups { idle_sleeps: 1, woken_same: 1, ..Wakeups::default() };
    let slept = counts(&[("process.sleep{cpus=different}", 1.0), ("process.wakeup{cpus=same}", 1.0)]);
    for name in ["fork", "vfork", "wait4", "waitid"] {
        assert_eq!(scheduled(name, Descriptor::None, 1, wakeups), [], "{name}");
    }
    for name in ["exit", "exit_group"] {
        let exit = Call { wakeups: Some(wakeups), ..call(name) };
        assert_eq!(terms(&[Event::Unfinished(exit)]).len(), 1, "{name}");
    }
    for name in ["read", "execve"] {
        assert_eq!(scheduled(name, Descriptor::Pipe, 1, wakeups), slept, "{name}");
    }
}
