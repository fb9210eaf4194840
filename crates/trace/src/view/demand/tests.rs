//! Which primitive stands for which call: the table walked, and whole traces.

use assay_quantity::PrimitiveId;

use super::{CONTEXT_SWITCH, Demanded, Demanding, NULL_CALL, NULL_DEVICE, Named, PAGE_FAULT, RULES, Role};
use crate::{
    descriptor::Descriptor,
    record::{Abi, Call, Event, Record},
    syscall::{self, Outcome},
    view::{
        View,
        fixture::{call, record},
    },
};

fn demanded(events: &[Event]) -> Demanded {
    let mut view = Demanding::default();
    events.iter().for_each(|event| view.record(&record(*event)));
    view.finish()
}

/// Primitive, mapping, operations and bytes of each coefficient, for one unit of work.
fn terms(events: &[Event]) -> Vec<(String, f64, Option<f64>)> {
    let named = Named { operation: "page".to_owned(), unit_of_work: "request".to_owned() };
    let operation = demanded(events).into_operation(named, 1.0);
    let shown = operation.coefficients.iter().map(|coefficient| {
        (
            format!("{} {:?}", coefficient.primitive, coefficient.mapping),
            coefficient.operations(),
            coefficient.bytes(),
        )
    });
    shown.collect()
}

fn on(name: &str, descriptor: Descriptor, result: i64) -> Event {
    Event::Call(Call { descriptor, result, args: [3, 0x7000_0000, 4096, 0, 0, 0], ..call(name) })
}

#[test]
fn every_row_names_calls_and_a_primitive_and_sizes_only_calls_that_move_bytes() {
    for rule in RULES {
        assert!(rule.primitive.parse::<PrimitiveId>().is_ok(), "{}", rule.primitive);
        for name in rule.calls {
            let number = syscall::number(name).unwrap_or_else(|| panic!("{name} is no call"));
            if matches!(rule.role, Role::Sized | Role::Buffered) {
                assert!(matches!(syscall::rule(number).result, Outcome::Bytes(_)), "{name} moves no bytes");
            }
        }
        if rule.role == Role::Within {
            let stands =
                |other: &super::Rule| other.primitive == rule.primitive && other.role != Role::Within;
            assert!(RULES.iter().any(stands), "{} is within nothing", rule.primitive);
        }
    }
    for primitive in [NULL_CALL, CONTEXT_SWITCH, PAGE_FAULT] {
        assert!(primitive.parse::<PrimitiveId>().is_ok());
    }
}

#[test]
fn no_row_is_hidden_behind_an_earlier_one() {
    for (position, rule) in RULES.iter().enumerate() {
        for earlier in &RULES[..position] {
            let same_call = rule.calls.iter().any(|name| earlier.calls.contains(name));
            let same = earlier.on == rule.on && earlier.when == rule.when;
            assert!(!(same_call && same), "{} after {}", rule.primitive, earlier.primitive);
        }
    }
}

#[test]
fn the_same_call_is_another_primitive_on_another_descriptor() {
    let shown = terms(&[
        on("read", Descriptor::Tcp4, 100),
        on("read", Descriptor::Tcp6, 50),
        on("read", Descriptor::File, 4096),
        on("read", Descriptor::Pipe, 10),
    ]);
    assert_eq!(
        shown,
        [
            ("call.null LowerBound".to_owned(), 1.0, None),
            ("file.read{buffer=fresh} Own".to_owned(), 1.0, Some(4096.0)),
            ("tcp.receive{buffer=reused} Own".to_owned(), 1.0, Some(50.0)),
            ("tcp.receive{buffer=fresh} Own".to_owned(), 1.0, Some(100.0)),
        ]
    );
}

#[test]
fn a_transfer_that_would_block_is_a_null_call_and_moves_nothing() {
    let shown = terms(&[on("recvfrom", Descriptor::Tcp4, -11), on("accept4", Descriptor::Tcp4, -11)]);
    assert_eq!(shown, [("call.null LowerBound".to_owned(), 2.0, None)]);
}

#[test]
fn closing_a_file_is_part_of_opening_it_and_closing_a_connection_is_not() {
    let events = [
        on("openat", Descriptor::File, 3),
        on("close", Descriptor::File, 0),
        on("openat", Descriptor::None, -2),
        on("close", Descriptor::Tcp4, 0),
    ];
    let shown = terms(&events);
    assert_eq!(
        shown,
        [
            ("file.open_close Own".to_owned(), 1.0, None),
            ("file.open_missing Own".to_owned(), 1.0, None),
            ("tcp.close Own".to_owned(), 1.0, None),
        ]
    );
    let named = Named { operation: String::new(), unit_of_work: String::new() };
    let operation = demanded(&events).into_operation(named, 2.0);
    let behind: Vec<_> =
        operation.coefficients[0].calls.iter().map(|count| (count.call.as_str(), count.calls)).collect();
    assert_eq!(behind, [("close", 0.5), ("openat", 0.5)]);
}

#[test]
fn a_status_by_descriptor_is_told_from_one_by_path() {
    let by_path = Call { args: [0xffff_ff9c, 1, 2, 0x100, 0, 0], ..call("newfstatat") };
    let by_descriptor = Call { args: [3, 1, 2, 0x1000, 0, 0], ..call("newfstatat") };
    let shown = terms(&[Event::Call(by_path), Event::Call(by_descriptor)]);
    assert_eq!(shown[0].0, "file.fstat Own");
    assert_eq!(shown[1].0, "file.stat Own");
}

#[test]
fn writing_to_dev_null_is_not_writing_to_a_terminal() {
    let write = |inode| {
        Event::Call(Call { inode, descriptor: Descriptor::CharacterDevice, result: 512, ..call("write") })
    };
    let shown = terms(&[write(NULL_DEVICE), write(34_816)]);
    assert_eq!(shown[0], ("call.null LowerBound".to_owned(), 1.0, None));
    assert_eq!(shown[1], ("null.write Own".to_owned(), 1.0, Some(512.0)));
}

#[test]
fn every_voluntary_switch_is_a_context_switch_beside_the_call() {
    let wait = Call { voluntary: 2, descriptor: Descriptor::Epoll, result: 1, ..call("epoll_wait") };
    let shown = terms(&[Event::Call(wait)]);
    assert_eq!(shown[0], ("epoll.wait_ready Own".to_owned(), 1.0, None));
    assert_eq!(shown[1], ("process.context_switch{processes=2,cpus=same} Own".to_owned(), 2.0, None));
}

#[test]
fn a_thread_is_no_process() {
    let fork = |child_process| Event::Fork { child_process, child_thread: 9 };
    let shown = terms(&[
        fork(9),
        Event::Call(Call { result: 9, ..call("clone3") }),
        fork(1),
        Event::Call(Call { result: 9, ..call("clone3") }),
        Event::Unfinished(call("exit_group")),
    ]);
    assert_eq!(
        shown,
        [("call.null LowerBound".to_owned(), 1.0, None), ("process.fork_exit Own".to_owned(), 1.0, None),]
    );
}

#[test]
fn a_buffer_is_reused_while_it_is_among_the_last_64_pages() {
    let read = |page: u64| {
        let args = [3, page << 12, 4096, 0, 0, 0];
        Event::Call(Call { descriptor: Descriptor::File, result: 1, args, ..call("read") })
    };
    let reuse = |distinct: u64| {
        let events: Vec<_> = (0..distinct).chain([0]).map(read).collect();
        terms(&events).iter().any(|(name, ..)| name == "file.read{buffer=reused} Own")
    };
    assert!(reuse(64));
    assert!(!reuse(65));
}

#[test]
fn coverage_is_the_share_of_kernel_time_with_a_primitive_of_its_own() {
    let timed = |name, elapsed_ns, irq_ns| {
        Event::Call(Call { elapsed_ns, irq_ns, blocked_ns: 500, waiting_ns: 500, ..call(name) })
    };
    let shown = demanded(&[timed("getppid", 1_400, 100), timed("getpid", 1_100, 0)]);
    assert_eq!(shown.coverage(), Some(0.75));
    assert_eq!(demanded(&[]).coverage(), None);
}

#[test]
fn sizes_fall_into_bins_that_keep_their_bytes() {
    let send = |result| on("sendto", Descriptor::Tcp4, result);
    let named = Named { operation: String::new(), unit_of_work: String::new() };
    let demanded = demanded(&[send(100), send(1000), send(1001), send(1002)]);
    let operation = demanded.into_operation(named, 1.0);
    let reused = &operation.coefficients[0];
    let bins: Vec<_> = reused.uses.iter().map(|bin| (bin.calls, bin.bytes)).collect();
    assert_eq!(bins, [(3.0, Some(3003.0))]);
    assert_eq!(operation.coefficients[1].uses.len(), 1);
}

#[test]
fn a_compat_call_is_bounded_whatever_its_number() {
    let foreign = Call { abi: Abi::Compat, ..call("getppid") };
    let lost = crate::record::Lost { time_ns: 0, cpu: 0, records: 7 };
    let mut view = Demanding::default();
    view.record(&Record { thread: 5, ..record(Event::Call(foreign)) });
    view.lost(&lost);
    let shown = view.finish();
    assert_eq!((shown.coverage(), shown.lost), (None, 7));
    assert!(shown.terms.keys().all(|term| term.primitive == NULL_CALL && term.bound == super::Bound::Lower));
}
