//! Tests of the mapping: a check of the table, and whole traces.

mod processes;
mod scheduling;

use assay_quantity::{Key, NULL_CALL, OperationDemand, PrimitiveId};

use super::{
    Argument, CONTEXT_SWITCH, Demanded, Demanding, FAULTS, LIVES, Named, On, RULES, Role, Rule, SCHEDULING,
    UNASKED, When,
    rules::{NULL_DEVICE, ZERO_DEVICE},
};
use crate::{
    descriptor::Descriptor,
    fixture::{call, record},
    record::{Abi, Call, Event, Peer, Record},
    syscall::{self, Outcome},
    view::View,
};

fn demanded(events: &[Event]) -> Demanded {
    let mut view = Demanding::default();
    events.iter().for_each(|event| view.record(&record(*event)));
    view.finish()
}

fn operation(demanded: Demanded) -> OperationDemand {
    demanded.into_operation(Named { operation: "page".to_owned(), unit_of_work: "request".to_owned() }, 1.0)
}

/// Primitive, mapping, operations and bytes of each coefficient, for one unit of work.
fn terms(events: &[Event]) -> Vec<(String, f64, Option<f64>)> {
    shown(&operation(demanded(events)))
}

fn shown(operation: &OperationDemand) -> Vec<(String, f64, Option<f64>)> {
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
        // The size is that of the uses of a coefficient.
        let id = rule.primitive.parse::<PrimitiveId>().unwrap();
        assert!(!id.keys().contains_key(&Key::Size), "{id}");
        for name in rule.calls {
            let number = syscall::number(name).unwrap_or_else(|| panic!("{name} is not a call"));
            // A cork holds back the bytes of other calls.
            if matches!(rule.role, Role::Sized | Role::Buffered) {
                assert!(matches!(syscall::rule(number).result, Outcome::Bytes(_)), "{name} moves no bytes");
            }
        }
        if rule.role == Role::Within {
            let stands =
                |other: &super::Rule| other.primitive == rule.primitive && other.role != Role::Within;
            assert!(RULES.iter().any(stands), "no row represents {}", rule.primitive);
        }
    }
    let scheduling = SCHEDULING.iter().map(|rule| rule.primitive);
    let faults = FAULTS.iter().map(|rule| rule.primitive);
    for primitive in [NULL_CALL, CONTEXT_SWITCH].into_iter().chain(scheduling).chain(faults) {
        assert!(primitive.parse::<PrimitiveId>().is_ok());
    }
    for primitive in LIVES {
        assert!(RULES.iter().any(|rule| rule.primitive == primitive), "{primitive} has no row");
    }
}

#[test]
fn no_row_is_shadowed_by_an_earlier_one() {
    for (position, rule) in RULES.iter().enumerate() {
        for wide in RULES[..position].iter().filter(|earlier| includes(earlier, rule)) {
            let shadowed = rule.calls.iter().find(|name| wide.calls.contains(name));
            assert_eq!(
                shadowed, None,
                "this call never reaches the row of {}, because the row of {} above it is wider",
                rule.primitive, wide.primitive
            );
        }
    }
}

/// Returns whether every call that meets the descriptor and the condition of `narrow` meets those of `wide`.
fn includes(wide: &Rule, narrow: &Rule) -> bool {
    let fails = matches!(
        narrow.when,
        When::Missing | When::Invalid | When::WouldBlock | When::InProgress | When::Returned
    );
    let includes_condition = match wide.when {
        When::Returned => narrow.when != When::Ended,
        When::Succeeded => !fails && narrow.when != When::Ended,
        When::Corked => matches!(narrow.when, When::Corked | When::Uncorks),
        _ => wide.when == narrow.when,
    };
    let includes_descriptor = wide.on == narrow.on
        || match wide.on {
            On::Any => true,
            On::Device => matches!(narrow.on, On::Null | On::Zero),
            On::Tcp => narrow.on == On::TcpElsewhere,
            _ => false,
        };
    includes_condition && includes_descriptor && (wide.with.is_none() || wide.with == narrow.with)
}

#[test]
fn a_primitive_is_asked_for_or_has_a_reason_but_not_both() {
    let of = |rule: &Rule| rule.primitive.split('{').next().unwrap_or_default();
    for name in UNASKED.iter().flat_map(|unasked| unasked.primitives) {
        let is_asked = |rule: &&Rule| of(rule) == *name || of(rule).split('.').next() == Some(*name);
        assert!(!RULES.iter().any(|rule| is_asked(&rule)), "a row counts calls as {name}");
    }
}

#[test]
fn a_wide_row_includes_narrow_ones_and_no_others() {
    let rule = |on, when| Rule { on, when, ..RULES[0] };
    let success = rule(On::Any, When::Succeeded);
    assert!(includes(&success, &rule(On::Tcp, When::Succeeded)));
    assert!(includes(&success, &rule(On::Tcp, When::Corked)));
    assert!(!includes(&success, &rule(On::Tcp, When::WouldBlock)));
    assert!(!includes(&rule(On::File, When::Succeeded), &rule(On::Tcp, When::Succeeded)));
    assert!(!includes(&rule(On::Tcp, When::Succeeded), &success));
    assert!(includes(&rule(On::Tcp, When::Corked), &rule(On::Tcp, When::Uncorks)));
    assert!(!includes(&rule(On::Tcp, When::Corked), &rule(On::Tcp, When::Corks)));
    assert!(includes(&rule(On::Device, When::Returned), &rule(On::Null, When::Missing)));
    let with = Rule { with: Some(Argument { at: 0, mask: 1, value: 1, name: "ONE" }), ..success };
    assert!(includes(&success, &with));
    assert!(!includes(&with, &success));
}

#[test]
fn the_same_call_is_a_different_primitive_on_a_different_descriptor() {
    let shown = terms(&[
        on("read", Descriptor::Tcp4, 100),
        on("read", Descriptor::Tcp6, 50),
        on("read", Descriptor::File, 4096),
        on("read", Descriptor::Pipe, 10),
        on("recvfrom", Descriptor::UnixStream, 20),
    ]);
    assert_eq!(
        shown,
        [
            ("file.read{buffer=fresh} Own".to_owned(), 1.0, Some(4096.0)),
            ("pipe.read{buffer=fresh} Own".to_owned(), 1.0, Some(10.0)),
            ("tcp.receive{buffer=reused} Own".to_owned(), 2.0, Some(150.0)),
            ("unix.receive{buffer=fresh} Own".to_owned(), 1.0, Some(20.0)),
        ]
    );
}

#[test]
fn a_transfer_whose_peer_is_on_another_cpu_is_a_primitive_of_its_own() {
    let calls = |peer| {
        let (four, six, sent) = (Descriptor::Tcp4, Descriptor::Tcp6, 100);
        let calls = [
            on("read", four, sent),
            on("read", Descriptor::UnixStream, sent),
            on("sendto", six, sent),
            on("writev", four, sent),
            on("sendfile", six, sent),
            toggle(3),
            on("write", four, sent),
            toggle(3),
        ];
        calls.map(|event| match event {
            Event::Call(call) => Event::Call(Call { peer, ..call }),
            other => other,
        })
    };
    let sized = |primitive| own(primitive, 1.0, Some(100.0));
    let others = [
        own("socket.setsockopt", 1.0, None),
        sized("tcp.writev_corked"),
        sized("unix.receive{buffer=fresh}"),
    ];
    let same = [
        sized("tcp.receive{buffer=fresh}"),
        sized("tcp.send{buffer=fresh}"),
        sized("tcp.sendfile"),
        sized("tcp.uncork"),
        sized("tcp.writev"),
    ];
    let different = [
        sized("tcp.receive{buffer=fresh,cpus=different}"),
        sized("tcp.send{buffer=fresh,cpus=different}"),
        sized("tcp.sendfile{cpus=different}"),
        sized("tcp.uncork{cpus=different}"),
        sized("tcp.writev{cpus=different}"),
    ];
    for (peer, transfers) in
        [(None, same.clone()), (Some(Peer::SameCpu), same), (Some(Peer::OtherCpu), different)]
    {
        let mut due = [&others[..], &transfers].concat();
        due.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        let mut shown = terms(&calls(peer));
        shown.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        assert_eq!(shown, due);
    }
}

#[test]
fn reading_from_a_connection_without_bytes_is_a_primitive_and_moves_nothing() {
    let shown = terms(&[
        on("read", Descriptor::Tcp4, -11),
        on("recvfrom", Descriptor::Tcp4, -11),
        on("recvmsg", Descriptor::Tcp6, -11),
        on("readv", Descriptor::Tcp6, -11),
    ]);
    assert_eq!(shown, [own("tcp.receive_empty", 4.0, None)]);
    let shown = terms(&[
        on("read", Descriptor::Pipe, -11),
        on("recvfrom", Descriptor::Udp6, -11),
        on("accept4", Descriptor::Tcp6, -11),
    ]);
    assert_eq!(
        shown,
        [
            own("pipe.read_empty", 1.0, None),
            own("tcp.accept_empty", 1.0, None),
            own("udp.receive_empty", 1.0, None),
        ]
    );
}

#[test]
fn any_other_failed_transfer_is_a_null_call_and_moves_nothing() {
    let shown = terms(&[
        on("recvfrom", Descriptor::Tcp4, -104),
        on("read", Descriptor::Timerfd, -11),
        on("sendto", Descriptor::Tcp4, -11),
        on("accept4", Descriptor::UnixStream, -11),
    ]);
    assert_eq!(shown, [("call.null LowerBound".to_owned(), 4.0, None)]);
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
fn a_status_by_descriptor_is_distinguished_from_one_by_path() {
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
    let shown = terms(&[write(NULL_DEVICE), write(ZERO_DEVICE), write(34_816)]);
    assert_eq!(shown[0], ("call.null LowerBound".to_owned(), 2.0, None));
    assert_eq!(shown[1], ("null.write Own".to_owned(), 1.0, Some(512.0)));
}

/// A call with these arguments that succeeded, or failed if `result` is negative.
fn with(name: &str, args: [u64; 3], result: i64) -> Event {
    let [a, b, c] = args;
    Event::Call(Call { args: [a, b, c, 0, 0, 0], result, ..call(name) })
}

/// The only primitive of one event.
fn primitive_of(event: Event) -> String {
    let shown = terms(&[event]);
    assert_eq!(shown.len(), 1, "{event:?}: {shown:?}");
    shown[0].0.clone()
}

#[test]
fn an_argument_distinguishes_what_one_call_does() {
    let above = 0xdead_beef_0000_0000;
    for (event, primitive) in [
        (with("futex", [1, 129, 1], 0), "futex.wake Own"),
        (with("futex", [1, 129, 1], 1), "futex.wake Own"),
        (with("futex", [1, 128, 5], -11), "futex.wait_changed Own"),
        (with("futex", [1, 393, 5], -11), "futex.wait_changed Own"),
        (with("futex", [1, 128, 5], 0), "futex.wait_changed Own"),
        (with("futex", [1, 393, 5], 0), "futex.wait_changed Own"),
        (with("futex", [1, 128, 5], -110), "call.null LowerBound"),
        (with("madvise", [1 << 12, 4096, above | 4], 0), "mmap.discard Own"),
        (with("madvise", [1 << 12, 4096, 14], 0), "call.null LowerBound"),
        (with("brk", [0, 0, 0], 1 << 30), "call.null Own"),
        (with("brk", [1 << 30, 0, 0], 1 << 30), "brk.move Own"),
        (with("socketpair", [1, 1, 0], 0), "unix.socketpair Own"),
        (with("socketpair", [40, 1, 0], 0), "call.null LowerBound"),
        (with("fcntl", [3, 1030, 0], 4), "file.dup_close Own"),
        (with("fcntl", [3, 3, 0], 4), "file.fcntl Own"),
        (with("unlinkat", [3, 1, 0], 0), "file.delete Own"),
        (with("readlink", [1, 2, 3], -22), "file.readlink Own"),
        (with("readlink", [1, 2, 3], -2), "file.readlink_missing Own"),
        (with("openat", [1, 2, 0], -20), "file.open_missing Own"),
    ] {
        assert_eq!(primitive_of(event), primitive, "{event:?}");
    }
    let open = |flags| {
        let args = [0xffff_ff9c, 1, flags, 0, 0, 0];
        Event::Call(Call { descriptor: Descriptor::File, result: 3, args, ..call("openat") })
    };
    assert_eq!(primitive_of(open(0o301)), "file.create Own");
    assert_eq!(primitive_of(open(0o101)), "file.open_close Own", "the file may have existed");
}

#[test]
fn a_signal_counts_when_its_handler_returns_whatever_the_result_looks_like() {
    for result in [0, 7, -4, -514] {
        assert_eq!(primitive_of(with("rt_sigreturn", [0; 3], result)), "signal.deliver Own");
    }
    let shown = terms(&[with("kill", [1, 10, 0], 0), with("rt_sigreturn", [0; 3], -4)]);
    assert_eq!(shown, [own("signal.deliver", 1.0, None)]);
}

#[test]
fn a_connection_that_is_established_later_is_a_connection() {
    let connect = |result| on("connect", Descriptor::Tcp4, result);
    assert_eq!(terms(&[on("socket", Descriptor::Tcp4, 3), connect(-115)]), [own("tcp.connect", 1.0, None)]);
    assert_eq!(terms(&[connect(-111)]), [("call.null LowerBound".to_owned(), 1.0, None)]);
}

#[test]
fn removing_a_directory_is_part_of_making_it_and_reading_it_is_not_of_opening_it() {
    let shown = terms(&[
        with("mkdir", [1, 0o755, 0], 0),
        with("unlinkat", [3, 1, 0x200], 0),
        on("openat", Descriptor::Directory, 3),
        on("getdents64", Descriptor::Directory, 800),
        on("getdents64", Descriptor::Directory, 0),
        on("close", Descriptor::Directory, 0),
    ]);
    assert_eq!(
        shown,
        [
            own("directory.make_remove", 1.0, None),
            own("directory.open_close", 1.0, None),
            own("directory.read", 2.0, Some(800.0)),
        ]
    );
}

#[test]
fn an_operation_of_a_fixed_size_has_this_size() {
    let protect = Event::Call(Call { args: [0, 1 << 20, 0, 0, 0, 0], ..call("mprotect") });
    assert_eq!(terms(&[protect]), [own("mmap.protect", 1.0, Some(4096.0))]);
}

fn read(thread: u32, page: u64, bytes: i64) -> Record {
    let args = [3, page << 12, 4096, 0, 0, 0];
    let read = Call { descriptor: Descriptor::File, result: bytes, args, ..call("read") };
    Record { thread, ..record(Event::Call(read)) }
}

/// Transfers and bytes of `file.read`: from buffers that are reused, and from fresh ones.
fn reads(records: impl IntoIterator<Item = Record>) -> [(f64, f64); 2] {
    let mut view = Demanding::default();
    records.into_iter().for_each(|record| view.record(&record));
    let shown = shown(&operation(view.finish()));
    ["reused", "fresh"].map(|buffer| {
        let name = format!("file.read{{buffer={buffer}}} Own");
        let row = shown.iter().find(|(primitive, ..)| *primitive == name);
        row.map_or((0.0, 0.0), |(_, calls, bytes)| (*calls, bytes.unwrap()))
    })
}

#[test]
fn a_buffer_is_reused_while_it_is_among_the_last_64_pages() {
    let twice = |distinct: u64| reads((0..distinct).chain([0]).map(|page| read(1, page, 1)));
    assert_eq!(twice(64), [(2.0, 2.0), (63.0, 63.0)]);
    assert_eq!(twice(65), [(0.0, 0.0), (66.0, 66.0)]);
}

#[test]
fn the_first_use_of_a_kept_buffer_is_not_fresh() {
    assert_eq!(reads([read(1, 7, 10), read(1, 7, 20), read(1, 7, 40)]), [(3.0, 70.0), (0.0, 0.0)]);
    assert_eq!(reads([read(1, 7, 10)]), [(0.0, 0.0), (1.0, 10.0)], "it was never used again");
    assert_eq!(
        reads([read(1, 7, 10), read(2, 7, 20)]),
        [(0.0, 0.0), (2.0, 30.0)],
        "each thread has its own pages"
    );
}

#[test]
fn a_page_is_fresh_for_a_thread_that_reuses_the_number_of_an_ended_one() {
    let exit = Record { thread: 1, ..record(Event::Exit { code: 0, whole_process: false }) };
    assert_eq!(reads([read(1, 7, 10), exit, read(1, 7, 20)]), [(0.0, 0.0), (2.0, 30.0)]);
}

/// Reference implementation that stores every page ever used.
fn lately_used(uses: &[u64]) -> [(f64, f64); 2] {
    let reused = |(position, page): (usize, &u64)| {
        let mut distinct = std::collections::BTreeSet::new();
        let before = uses[..position].iter().rev().position(|earlier| {
            distinct.insert(*earlier);
            earlier == page
        });
        before.is_some() && distinct.len() <= 64
    };
    let again: Vec<_> = uses.iter().enumerate().map(reused).collect();
    let first_of_kept = |position: usize| {
        let page = uses[position];
        let among: std::collections::BTreeSet<_> = uses[..position].iter().collect();
        let next = uses[position + 1..].iter().position(|later| *later == page);
        among.len() < 64 && !among.contains(&page) && next.is_some_and(|next| again[position + 1 + next])
    };
    let reused = (0..uses.len()).filter(|&position| again[position] || first_of_kept(position)).count();
    let count = |calls: usize| (f64::from(u32::try_from(calls).unwrap()), 0.0);
    [count(reused), count(uses.len() - reused)]
}

proptest::proptest! {
    #[test]
    fn any_order_of_pages_is_classified_like_in_the_reference_implementation(
        uses in proptest::collection::vec(0..90_u64, 0..400)
    ) {
        let shown = reads(uses.iter().map(|page| read(1, *page, 0)));
        proptest::prop_assert_eq!(shown, lately_used(&uses));
    }
}

#[test]
fn coverage_is_the_share_of_kernel_time_with_a_primitive_of_its_own() {
    let timed = |name, elapsed_ns, irq_ns| {
        Event::Call(Call { elapsed_ns, irq_ns, blocked_ns: 500, waiting_ns: 500, ..call(name) })
    };
    let shown = operation(demanded(&[timed("getppid", 1_400, 100), timed("getpid", 1_100, 0)]));
    assert_eq!(shown.coverage(), Some(0.75));
}

#[test]
fn sizes_fall_into_bins_that_keep_their_bytes() {
    let send = |result| on("sendto", Descriptor::Tcp4, result);
    let operation = operation(demanded(&[send(100), send(1000), send(1001), send(1002)]));
    let bins: Vec<_> = operation.coefficients[0].uses.iter().map(|bin| (bin.calls, bin.bytes)).collect();
    assert_eq!(bins, [(1.0, Some(100.0)), (3.0, Some(3003.0))]);
}

#[test]
fn a_compat_call_has_a_lower_bound_for_any_number() {
    let foreign = Call { abi: Abi::Compat, ..call("getppid") };
    let lost = crate::record::Lost { time_ns: 0, cpu: 0, records: 7 };
    let mut view = Demanding::default();
    view.record(&Record { thread: 5, ..record(Event::Call(foreign)) });
    view.lost(&lost);
    let operation = operation(view.finish());
    assert_eq!((operation.coverage(), operation.lost_records), (None, 7));
    assert_eq!(shown(&operation), [("call.null LowerBound".to_owned(), 1.0, None)]);
}

#[test]
fn a_close_without_a_recorded_open_is_a_coefficient_without_operations() {
    let close = Call { elapsed_ns: 300, descriptor: Descriptor::File, ..call("close") };
    let operation = operation(demanded(&[Event::Call(close)]));
    let coefficient = &operation.coefficients[0];
    assert_eq!(coefficient.primitive.to_string(), "file.open_close");
    assert!(coefficient.uses.is_empty());
    assert_eq!((coefficient.kernel_ns, coefficient.calls.len()), (300.0, 1));
    assert_eq!((coefficient.calls[0].call.as_str(), coefficient.calls[0].calls), ("close", 1.0));
}

fn on_connection(name: &str, connection: u64, result: i64) -> Event {
    let args = [connection, 6, 3, 0, 4, 0];
    Event::Call(Call { descriptor: Descriptor::Tcp4, result, args, ..call(name) })
}

/// Sets `TCP_CORK`; the trace does not contain the value.
fn toggle(connection: u64) -> Event {
    on_connection("setsockopt", connection, 0)
}

fn own(primitive: &str, operations: f64, bytes: Option<f64>) -> (String, f64, Option<f64>) {
    (format!("{primitive} Own"), operations, bytes)
}

#[test]
fn the_bytes_that_a_cork_holds_back_belong_to_the_call_that_uncorks() {
    let page = [
        toggle(5),
        on_connection("writev", 5, 240),
        on_connection("sendfile", 5, 8192),
        toggle(5),
        on_connection("writev", 5, 100),
    ];
    assert_eq!(
        terms(&page),
        [
            own("socket.setsockopt", 1.0, None),
            own("tcp.sendfile_corked", 1.0, Some(8192.0)),
            own("tcp.uncork", 1.0, Some(8432.0)),
            own("tcp.writev", 1.0, Some(100.0)),
            own("tcp.writev_corked", 1.0, Some(240.0)),
        ]
    );
}

#[test]
fn other_options_other_connections_and_failed_calls_do_not_cork() {
    let Event::Call(cork) = toggle(5) else { unreachable!() };
    let no_delay = Call { args: [5, 6, 1, 0, 4, 0], ..cork };
    let keepalive = Call { args: [5, 1, 3, 0, 4, 0], ..cork };
    let refused = Call { result: -22, ..cork };
    let of_a_file = Call { descriptor: Descriptor::File, ..cork };
    for other in [no_delay, keepalive, refused, of_a_file] {
        let shown = terms(&[Event::Call(other), on_connection("writev", 5, 240)]);
        assert!(shown.contains(&own("tcp.writev", 1.0, Some(240.0))), "{other:?}");
    }
    let shown = terms(&[toggle(6), on_connection("writev", 5, 240)]);
    assert!(shown.contains(&own("tcp.writev", 1.0, Some(240.0))));
}

#[test]
fn the_upper_half_of_the_register_of_an_int_argument_is_ignored() {
    let Event::Call(cork) = toggle(5) else { unreachable!() };
    let above = 0xdead_beef_0000_0000;
    let cork = Call { args: cork.args.map(|argument| argument | above), ..cork };
    let shown = terms(&[Event::Call(cork), on_connection("writev", 5, 240)]);
    assert!(shown.contains(&own("tcp.writev_corked", 1.0, Some(240.0))));
}

#[test]
fn a_connection_that_was_corked_before_the_trace_is_misread_once() {
    let request = [toggle(5), on_connection("sendfile", 5, 10), toggle(5)];
    let events: Vec<_> = [toggle(5)].into_iter().chain(request).chain(request).collect();
    let shown = terms(&events);
    assert_eq!(
        shown,
        [
            own("socket.setsockopt", 3.0, None),
            own("tcp.sendfile_corked", 2.0, Some(20.0)),
            own("tcp.uncork", 2.0, Some(20.0)),
        ]
    );
}

#[test]
fn a_connection_is_removed_when_it_is_closed_or_its_process_ends() {
    let ends = [on_connection("close", 5, 0), Event::Exit { code: 0, whole_process: true }];
    for end in ends {
        let shown = terms(&[toggle(5), end, on_connection("writev", 5, 240)]);
        assert!(shown.contains(&own("tcp.writev", 1.0, Some(240.0))), "{end:?}");
    }
    let thread_ends = Event::Exit { code: 0, whole_process: false };
    let shown = terms(&[toggle(5), thread_ends, on_connection("writev", 5, 240)]);
    assert!(shown.contains(&own("tcp.writev_corked", 1.0, Some(240.0))));
}

#[test]
fn the_same_descriptor_in_another_process_is_a_different_connection() {
    let mut view = Demanding::default();
    view.record(&record(toggle(5)));
    view.record(&Record { process: 2, ..record(on_connection("writev", 5, 240)) });
    assert!(shown(&operation(view.finish())).contains(&own("tcp.writev", 1.0, Some(240.0))));
}

#[test]
fn corked_connections_beyond_the_limit_are_dropped_and_counted() {
    let corks = |count: u64| demanded(&(0..count).map(toggle).collect::<Vec<_>>()).forgotten_corks;
    assert_eq!((corks(65_536), corks(65_537)), (0, 65_536));
}
