//! Tests of the modes of calls and of what explains them.

use proptest::prelude::*;

use super::*;
use crate::{
    descriptor::Descriptor,
    fixture,
    record::{Abi, Call, Peer, Wakeups},
    view::View,
};

/// Adds as many calls as make a mode, with times that no call of the other mode has.
fn mode(view: &mut FindModes, call: Call, contents: &[Content]) {
    (0..40).for_each(|_| view.record_with(&fixture::record(Event::Call(call)), contents));
}

const FAST_NS: u64 = 200;
const SLOW_NS: u64 = 5_000;

/// Returns the property and value of each difference of the slow calls.
fn explained(fast: Call, slow: Call) -> Vec<(String, String)> {
    let mut view = FindModes::default();
    mode(&mut view, Call { elapsed_ns: FAST_NS, ..fast }, &[]);
    mode(&mut view, Call { elapsed_ns: SLOW_NS, ..slow }, &[]);
    let modes = view.finish().modes;
    assert_eq!(modes.len(), 2);
    differences(&modes[1])
}

fn differences(mode: &Mode) -> Vec<(String, String)> {
    mode.differences.iter().map(|it| (it.property.name().to_owned(), it.value.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(property, value)| ((*property).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_mode_has_the_calls_around_its_peak_and_where_their_time_went() {
    let mut view = FindModes::default();
    let sleep =
        Call { blocked_ns: 4_000, waiting_ns: 500, irq_ns: 100, voluntary: 1, ..fixture::call("read") };
    mode(&mut view, Call { elapsed_ns: FAST_NS, ..fixture::call("read") }, &[]);
    mode(&mut view, Call { elapsed_ns: SLOW_NS, result: -11, ..sleep }, &[]);
    view.record(&fixture::record(Event::Unfinished(fixture::call("read"))));
    view.record(&fixture::record(Event::Exit { code: 0, whole_process: true }));
    view.lost(&Lost { time_ns: 0, cpu: 0, records: 3 });
    let times = view.finish();
    assert_eq!((times.errors, times.unfinished, times.lost), (40, 1, 3));
    let fast = Tally { calls: 40, elapsed_ns: 8_000, kernel_ns: 8_000, ..Tally::default() };
    let slow = Tally { calls: 40, elapsed_ns: 200_000, kernel_ns: 16_000, off_cpu_ns: 180_000, ..fast };
    let all = Tally { calls: 80, elapsed_ns: 208_000, kernel_ns: 24_000, off_cpu_ns: 180_000, ..fast };
    let modes = [&times.modes[0], &times.modes[1], &times.all];
    assert_eq!(modes.map(|mode| mode.tally), [fast, slow, all]);
    assert_eq!([fast, slow].map(|tally| tally.irq_ns()), [0, 4_000]);
    assert_eq!(modes.map(|mode| mode.elapsed.total()), [40, 40, 80]);
    assert_eq!(modes.map(|mode| (mode.min_ns, mode.max_ns)), [(200, 200), (5_000, 5_000), (200, 5_000)]);
    assert_eq!(differences(&times.modes[0])[0], ("result".to_owned(), "0".to_owned()));
    let shares = &times.modes[1].differences[0];
    assert_eq!((shares.value.as_str(), shares.share, shares.share_of_others), ("EAGAIN", 1.0, 0.0));
}

#[test]
fn a_number_that_explains_a_mode_is_shown_before_its_range() {
    let read = |size, result| Call { args: [3, 0x7f00, size, 0, 0, 0], result, ..fixture::call("read") };
    let shown = explained(read(64, 64), read(4_096, 4_096));
    assert_eq!(shown, pairs(&[("result", "4096"), ("argument 3", "4096")]));
    let mut view = FindModes::default();
    for size in 0..40 {
        let call = |elapsed_ns, size: u64| Call { elapsed_ns, ..read(size, size.cast_signed()) };
        view.record(&fixture::record(Event::Call(call(FAST_NS, 64))));
        view.record(&fixture::record(Event::Call(call(SLOW_NS, 8_192 + size))));
    }
    let shown = differences(&view.finish().modes[1]);
    assert_eq!(shown, pairs(&[("result", "8192 to 16383"), ("argument 3", "8192 to 16383")]));
}

#[test]
fn every_property_explains_a_mode() {
    let plain = fixture::call("recvfrom");
    let wakeups = Wakeups::default();
    let known = Call { wakeups: Some(wakeups), ..plain };
    let tcp = Call { descriptor: Descriptor::Tcp4, inode: 7, ..plain };
    let named = |name| Call { args: [3, 0, 0, 0, 0, 0], ..fixture::call(name) };
    for (fast, slow, expected) in [
        (plain, Call { result: -2, ..plain }, ("result", "ENOENT")),
        (Call { result: -2, ..named("dup") }, named("dup"), ("result", "a descriptor")),
        (Call { result: -12, ..named("mmap") }, named("mmap"), ("result", "an address")),
        (named("lseek"), Call { result: 5 << 20, ..named("lseek") }, ("result", "5242880")),
        (plain, Call { result: -5_000, ..plain }, ("result", "negative")),
        (plain, Call { voluntary: 1, ..plain }, ("sleep", "yes")),
        (
            Call { voluntary: 1, ..known },
            Call { voluntary: 1, wakeups: Some(Wakeups { idle_sleeps: 1, ..wakeups }), ..known },
            ("sleep", "yes, then on an idle CPU"),
        ),
        (plain, Call { faults: 3, ..plain }, ("page faults", "3")),
        (
            known,
            Call { wakeups: Some(Wakeups { woken_idle: 1, woken_same: 1, ..wakeups }), ..known },
            ("wake-ups", "a thread on an idle CPU"),
        ),
        (plain, Call { involuntary: 1, ..plain }, ("preemption", "yes")),
        (tcp, Call { descriptor: Descriptor::Tcp6, ..tcp }, ("descriptor", "tcp6")),
        (plain, Call { args: [0, 1, 0, 0, 0, 0], ..plain }, ("argument 2", "not NULL")),
        (plain, Call { args: [0, 0, 0, 0x40, 0, 0], ..plain }, ("argument 4", "MSG_DONTWAIT")),
        (named("close"), Call { args: [4, 0, 0, 0, 0, 0], ..named("close") }, ("argument 1", "4")),
        (tcp, Call { peer: Some(Peer::OtherCpu), ..tcp }, ("CPU of the peer", "another")),
        (tcp, Call { inode: 8, ..tcp }, ("inode", "8")),
        (plain, Call { softnet_ns: 2_000, ..plain }, ("network softirqs", "yes")),
        (plain, Call { irq_ns: 2_000, ..plain }, ("interrupts", "yes")),
    ] {
        assert_eq!(explained(fast, slow), pairs(&[expected]));
    }
    assert_eq!(explained(plain, Call { irq_ns: 1_000, ..plain }), [], "a short interrupt explains nothing");
}

#[test]
fn what_different_values_have_in_common_explains_a_mode() {
    let plain = fixture::call("recvfrom");
    let slept = |idle_sleeps| Call {
        voluntary: 1,
        wakeups: Some(Wakeups { idle_sleeps, woken_busy: idle_sleeps, woken_same: 1, ..Wakeups::default() }),
        faults: 1 + idle_sleeps,
        result: -11 - i64::from(idle_sleeps),
        ..plain
    };
    let mut view = FindModes::default();
    mode(&mut view, Call { elapsed_ns: FAST_NS, wakeups: Some(Wakeups::default()), ..plain }, &[]);
    mode(&mut view, Call { elapsed_ns: SLOW_NS, ..slept(0) }, &[]);
    mode(&mut view, Call { elapsed_ns: SLOW_NS, ..slept(1) }, &[]);
    let common =
        [("result", "an error"), ("sleep", "yes"), ("page faults", "some"), ("wake-ups", "a thread")];
    assert_eq!(differences(&view.finish().modes[1]), pairs(&common));
}

#[test]
fn the_place_of_a_call_explains_a_mode() {
    let mut view = FindModes::default();
    let fast = fixture::record(Event::Call(Call { elapsed_ns: FAST_NS, ..fixture::call("read") }));
    let slow = Event::Call(Call { elapsed_ns: SLOW_NS, ..fixture::call("read") });
    for _ in 0..40 {
        view.record(&fast);
        view.record(&Record { process: 2, thread: 3, cpu: 1, event: slow, ..fast });
    }
    let shown = differences(&view.finish().modes[1]);
    assert_eq!(shown, pairs(&[("process", "2"), ("thread", "3"), ("CPU", "1")]));
}

#[test]
fn contents_explain_a_mode_and_what_is_in_unused_registers_does_not() {
    let content = |bytes: &[u8], is_cut| [Content { argument: 1, is_cut, bytes: bytes.to_owned() }];
    let open = |elapsed_ns, mode| Call {
        args: [0xffff_ff9c, 0, 0, mode, 0, 0],
        elapsed_ns,
        ..fixture::call("openat")
    };
    let explained = |fast: (Call, &[Content]), slow: (Call, &[Content])| {
        let mut view = FindModes::default();
        mode(&mut view, fast.0, fast.1);
        mode(&mut view, slow.0, slow.1);
        differences(&view.finish().modes[1])
    };
    let (fast, slow) = (open(FAST_NS, 0o600), open(SLOW_NS, 0o644));
    let file = content(b"/srv/f", false);
    let shown = explained((fast, &content(b"/etc/passwd", false)), (slow, &file));
    assert_eq!(shown, pairs(&[("argument 2", "\"/srv/f\"")]));
    let shown = explained((fast, &file), (slow, &content(b"/srv/f", true)));
    assert_eq!(shown, pairs(&[("argument 2", "\"/srv/f\"...")]));
    assert_eq!(explained((fast, &file), (slow, &[])), pairs(&[("argument 2", "not recorded")]));
    let connect = |elapsed_ns| Call { elapsed_ns, ..fixture::call("connect") };
    let [near, far] = [b"\x01\0/near", b"\x01\0/far\0"].map(|address| content(address, false));
    let shown = explained((connect(FAST_NS), &near), (connect(SLOW_NS), &far));
    assert_eq!(shown, pairs(&[("argument 2", "{sa_family=AF_UNIX, sun_path=\"/far\"}")]));
    let padded = |last| content(&[b"\x01\0/near\0", &[last][..]].concat(), false);
    let shown = explained((connect(FAST_NS), &padded(1)), (connect(SLOW_NS), &padded(2)));
    assert_eq!(shown, [], "the same address");
    let foreign = |call: Call, argument| Call { abi: Abi::Compat, args: [argument; 6], ..call };
    let shown = explained((foreign(fast, 1), &[]), (foreign(slow, 2), &[]));
    assert_eq!(shown, [], "the arguments of a 32-bit call have no meaning here");
}

#[test]
fn a_negative_offset_has_no_power_of_two() {
    let seek = |offset: i64| Call { args: [3, offset.cast_unsigned(), 1, 0, 0, 0], ..fixture::call("lseek") };
    let mut view = FindModes::default();
    for offset in 1..=40 {
        view.record(&fixture::record(Event::Call(Call { elapsed_ns: FAST_NS, ..seek(offset) })));
        view.record(&fixture::record(Event::Call(Call { elapsed_ns: SLOW_NS, ..seek(-offset) })));
    }
    assert_eq!(differences(&view.finish().modes[1]), pairs(&[("argument 2", "negative")]));
}

#[test]
fn one_mode_differs_from_nothing_and_without_calls_there_is_none() {
    let mut view = FindModes::default();
    mode(&mut view, Call { elapsed_ns: FAST_NS, ..fixture::call("read") }, &[]);
    let times = view.finish();
    assert_eq!((times.modes.len(), times.modes[0].differences.len()), (1, 0));
    assert_eq!(times.dependences, []);
    assert_eq!(FindModes::default().finish(), CallTimes::default());
}

#[test]
fn a_difference_needs_half_of_the_calls() {
    let read = |elapsed_ns, result| {
        fixture::record(Event::Call(Call { elapsed_ns, result, ..fixture::call("read") }))
    };
    let mut view = FindModes::default();
    for call in 0..100_i64 {
        view.record(&read(FAST_NS, 1));
        view.record(&read(SLOW_NS, if call < 49 { -2 } else { 1 }));
    }
    assert_eq!(differences(&view.finish().modes[1]), []);
}

#[test]
fn a_frequent_value_is_counted_also_after_more_rare_ones_than_there_is_room_for() {
    let mut view = FindModes::default();
    let at = |inode, elapsed_ns| {
        let call = Call { inode, elapsed_ns, descriptor: Descriptor::File, ..fixture::call("fsync") };
        fixture::record(Event::Call(call))
    };
    (0..50_000).for_each(|inode| view.record(&at(inode, FAST_NS)));
    for inode in 50_000..100_000 {
        view.record(&at(7, SLOW_NS));
        view.record(&at(inode, FAST_NS));
    }
    let counted = view.values.all().filter(|(property, _)| *property == Property::Inode).count();
    assert!(counted <= 1_024, "{counted}");
    let times = view.finish();
    assert_eq!(differences(&times.modes[1]), pairs(&[("inode", "7")]));
    let [(Property::Inode, dropped)] = times.dropped[..] else { panic!("{:?}", times.dropped) };
    assert!((98_000..100_000).contains(&dropped), "{dropped}");
}

#[test]
fn the_time_depends_on_a_property_as_far_as_its_values_have_different_times() {
    let read = |elapsed_ns, size: u64, cpu| {
        let call = Call { elapsed_ns, args: [3, 0, size, 0, 0, 0], ..fixture::call("read") };
        Record { cpu, ..fixture::record(Event::Call(call)) }
    };
    let mut view = FindModes::default();
    for call in 0..100 {
        let cpu = u16::from(call % 3 == 0);
        view.record(&read(1_000 + call % 2 * 400, 64, cpu));
        view.record(&read(2_000 + call % 2 * 800, 4_096, cpu));
        view.record(&read(1_000 + call % 2 * 400, 100 + call, cpu));
    }
    let dependences = view.finish().dependences;
    assert_eq!(dependences.len(), 1, "{dependences:?}");
    let size = &dependences[0];
    assert_eq!(size.property, Property::Argument3);
    // Small reads are in buckets 63 and 66, large ones in 71 and 74: of a variance of 16.5, 14.2 is between
    // them.
    assert!((size.share - 14.2 / 16.5).abs() < 0.01, "{}", size.share);
    let values: Vec<_> = size.values.iter().map(|it| (it.value.as_str(), it.elapsed.total())).collect();
    assert_eq!(values, [("64 to 127", 128), ("4096 to 8191", 100), ("128 to 255", 72)]);
    assert_eq!((size.others.total(), size.values[1].elapsed.quantile(50, 100)), (0, Some(1_983)));
}

#[test]
fn calls_without_a_property_are_a_group_and_the_first_three_properties_are_shown() {
    let plain = fixture::call("recvfrom");
    let dependences = |fast: Call, slow: Call| {
        let mut view = FindModes::default();
        mode(&mut view, Call { elapsed_ns: FAST_NS, ..fast }, &[]);
        mode(&mut view, Call { elapsed_ns: SLOW_NS, ..slow }, &[]);
        view.finish().dependences
    };
    let file = Call { descriptor: Descriptor::File, inode: 7, ..plain };
    let shown = dependences(plain, file);
    let properties: Vec<_> = shown.iter().map(|it| (it.property, it.others.total())).collect();
    assert_eq!(properties, [(Property::Descriptor, 0), (Property::Inode, 40)]);
    assert!(shown.iter().all(|it| it.share > 0.99), "{shown:?}");
    let shown = dependences(plain, Call { result: 5, voluntary: 1, faults: 1, involuntary: 1, ..file });
    let properties: Vec<_> = shown.iter().map(|it| it.property).collect();
    assert_eq!(properties, [Property::Result, Property::Sleep, Property::PageFaults]);
    let values: Vec<_> = shown[0].values.iter().map(|it| it.value.as_str()).collect();
    assert_eq!(values, ["0", "5"], "few numbers are shown as they are");
}

#[test]
fn the_undefined_half_of_a_register_explains_nothing() {
    let close = |descriptor| Call { args: [descriptor, 0, 0, 0, 0, 0], ..fixture::call("close") };
    assert_eq!(explained(close(3), close(3 | 7 << 32)), []);
}

#[test]
fn a_property_with_few_or_many_values_explains_nothing_by_chance() {
    let mut state = 1;
    let mut explained = 0;
    for (calls, inodes) in
        [(20, 2), (60, 2), (200, 4), (200, 2_000), (1_000, 30), (1_000, 20_000), (2_000, 500)]
    {
        for _ in 0..50 {
            let mut view = FindModes::default();
            for _ in 0..calls {
                let elapsed_ns = 1_000 + fixture::random(&mut state) % 1_000;
                let (inode, cpu) = (fixture::random(&mut state) % inodes, fixture::random(&mut state) % 2);
                let call = Call { elapsed_ns, inode, descriptor: Descriptor::File, ..fixture::call("fsync") };
                let cpu = u16::try_from(cpu).unwrap();
                view.record(&Record { cpu, ..fixture::record(Event::Call(call)) });
            }
            explained += view.finish().dependences.len();
        }
    }
    assert!(explained <= 2, "{explained} of 700 properties");
}

/// Times around one of three peaks.
fn time_ns() -> impl Strategy<Value = u64> {
    (prop_oneof![Just(200_u64), Just(9_000), Just(1 << 40)], 0_u64..50)
        .prop_map(|(peak, more)| peak + peak * more / 100)
}

proptest! {
    #[test]
    fn every_call_is_in_one_mode(
        calls in proptest::collection::vec((time_ns(), -200_i64..1 << 24, 0_u64..1 << 20), 0..400)
    ) {
        let mut view = FindModes::default();
        for (elapsed_ns, result, argument) in &calls {
            let call = Call { elapsed_ns: *elapsed_ns, result: *result, args: [*argument; 6], ..fixture::call("lseek") };
            view.record(&fixture::record(Event::Call(call)));
        }
        let times = view.finish();
        let mut all = Tally::default();
        times.modes.iter().for_each(|mode| all.merge(&mode.tally));
        prop_assert_eq!((all.calls, times.all.tally), (calls.len() as u64, all));
        prop_assert_eq!(all.elapsed_ns, calls.iter().map(|(elapsed_ns, ..)| elapsed_ns).sum::<u64>());
        prop_assert!(times.modes.iter().all(|mode| mode.tally.calls == mode.elapsed.total() && mode.tally.calls > 0));
        let limits = (calls.iter().map(|it| it.0).min(), calls.iter().map(|it| it.0).max());
        prop_assert_eq!((times.all.min_ns, times.all.max_ns), (limits.0.unwrap_or(0), limits.1.unwrap_or(0)));
        for difference in times.modes.iter().flat_map(|mode| &mode.differences) {
            prop_assert!(difference.share <= 1.0 && difference.share_of_others >= 0.0);
        }
    }
}
