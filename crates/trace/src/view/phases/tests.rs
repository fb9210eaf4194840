//! Tests of the units of work.

use super::*;
use crate::{
    fixture,
    record::{Abi, ExecPath},
};
use proptest::prelude::*;

const CLIENT: u64 = 100;
const OTHER: u64 = 200;

/// Builds a trace of a program.
#[derive(Default)]
struct Trace {
    view: FindPhases,
    now_ns: u64,
}

/// A thread of a process.
#[derive(Debug, Clone, Copy)]
struct On(u32, u32);

const SERVER: On = On(1, 1);

impl Trace {
    /// Adds a call on a TCP connection.
    fn tcp(&mut self, on: On, name: &str, inode: u64, result: i64) -> &mut Self {
        self.call(on, Call { descriptor: Descriptor::Tcp4, inode, result, ..fixture::call(name) })
    }

    fn file(&mut self, on: On, name: &str, result: i64) -> &mut Self {
        self.call(on, Call { descriptor: Descriptor::File, inode: 7, result, ..fixture::call(name) })
    }

    fn plain(&mut self, on: On, name: &str, result: i64) -> &mut Self {
        self.call(on, Call { result, ..fixture::call(name) })
    }

    /// Adds a call of 10 ns, 5 ns after the one before it.
    fn call(&mut self, on: On, call: Call) -> &mut Self {
        self.now_ns += 5;
        self.event(on, Event::Call(Call { elapsed_ns: 10, ..call }));
        self.now_ns += 10;
        self
    }

    fn event(&mut self, On(process, thread): On, event: Event) -> &mut Self {
        let record = fixture::record(event);
        self.view.record(&Record { process, thread, begin_ns: self.now_ns, ..record });
        self
    }

    fn fork(&mut self, on: On, On(child_process, child_thread): On) -> &mut Self {
        self.event(on, Event::Fork { child_process, child_thread, memory: None })
    }

    fn exit(&mut self, on: On) -> &mut Self {
        self.event(on, Event::Exit { code: 0, whole_process: true })
    }

    fn phases(self) -> Phases {
        self.view.finish()
    }

    /// Returns the units of work of the only kind.
    fn units(self) -> UnitsOfWork {
        let mut phases = self.phases();
        assert_eq!(phases.kinds.len(), 1, "{phases:?}");
        phases.kinds.remove(0)
    }
}

/// Returns the steps of a variant, `request read tcp4`, and how many units of work it has.
fn variant(units: &UnitsOfWork, position: usize) -> (u64, Vec<String>) {
    let variant = &units.variants[position];
    let text = |step: &Step| format!("{} {}", step.phase.name(units.side), step.outcome.text());
    (variant.units, variant.steps.iter().map(text).collect())
}

/// Returns the calls in a phase.
fn calls(units: &UnitsOfWork, phase: Phase) -> u64 {
    units.steps.iter().filter(|row| row.step.phase == phase).map(|row| row.tally.calls).sum()
}

/// Adds a request for a file.
fn page(trace: &mut Trace, inode: u64) {
    trace
        .tcp(SERVER, "read", inode, 80)
        .file(SERVER, "openat", 9)
        .tcp(SERVER, "setsockopt", inode, 0)
        .tcp(SERVER, "writev", inode, 8_400)
        .file(SERVER, "write", 90)
        .file(SERVER, "close", 0);
}

#[test]
fn a_kept_connection_is_divided_into_requests() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "accept4", CLIENT, 5).plain(SERVER, "epoll_wait", 1);
    for _ in 0..4 {
        page(&mut trace, CLIENT);
        trace.plain(SERVER, "epoll_wait", 1);
    }
    trace.tcp(SERVER, "read", CLIENT, 0).plain(SERVER, "munmap", 0).tcp(SERVER, "close", CLIENT, 0);
    let units = trace.units();
    let request = [
        "request read tcp4",
        "files openat file",
        "answer setsockopt tcp4",
        "answer writev tcp4",
        "logging write file",
        "files close file",
    ];
    assert_eq!(units.units, 4);
    assert_eq!(variant(&units, 0), (2, request.map(str::to_owned).to_vec()));
    let with = |before: &[&str], after: &[&str]| {
        (1, [before, &request, after].concat().into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(variant(&units, 1), with(&["accept accept4 tcp4"], &[]));
    assert_eq!(variant(&units, 2), with(&[], &["close read tcp4 = 0", "close munmap", "close close tcp4"]));
    assert_eq!(calls(&units, Phase::Wait), 5);
    assert_eq!(
        units.variants[0].time_ns,
        Some(45),
        "from the return of the first call to that of the fourth"
    );
}

#[test]
fn the_connections_of_an_event_loop_are_told_apart() {
    let mut trace = Trace::default();
    for _ in 0..3 {
        trace.plain(SERVER, "epoll_wait", 2);
        for name in ["read", "write"] {
            trace.tcp(SERVER, name, CLIENT, 22).tcp(SERVER, name, OTHER, 71);
        }
    }
    let units = trace.units();
    assert_eq!(units.variants.len(), 1);
    assert_eq!(variant(&units, 0), (6, vec!["request read tcp4".to_owned(), "answer write tcp4".to_owned()]));
    assert_eq!(calls(&units, Phase::Wait), 2, "the first one is before every request");
}

#[test]
fn a_loop_and_pipelined_requests_are_one_part() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "read", CLIENT, 800);
    for _ in 0..5 {
        trace.file(SERVER, "openat", 9).file(SERVER, "read", 80).file(SERVER, "read", 80);
        trace.tcp(SERVER, "write", CLIENT, 160);
    }
    trace.tcp(SERVER, "read", CLIENT, 80).file(SERVER, "openat", 9).file(SERVER, "read", 80);
    trace.tcp(SERVER, "write", CLIENT, 80).tcp(SERVER, "write", CLIENT, -11).tcp(SERVER, "write", CLIENT, 80);
    let units = trace.units();
    assert_eq!(variant(&units, 1).1[1..], ["files openat file", "files read file", "answer write tcp4"]);
    assert_eq!(variant(&units, 0).1[4..], ["answer write tcp4 = EAGAIN", "answer write tcp4"]);
    assert_eq!(units.total().calls, 27);
}

#[test]
fn another_socket_belongs_to_the_request_that_used_it_also_after_a_wait() {
    let mut trace = Trace::default();
    for client in [CLIENT, CLIENT + 1] {
        trace.tcp(SERVER, "accept", client, 5).tcp(SERVER, "read", client, 80);
        trace.tcp(SERVER, "connect", client + OTHER, 0).tcp(SERVER, "write", client + OTHER, 80);
    }
    for client in [CLIENT + 1, CLIENT] {
        trace.plain(SERVER, "poll", 1).tcp(SERVER, "read", client + OTHER, 80);
        trace.tcp(SERVER, "write", client, 80);
    }
    let phases = trace.phases();
    assert_eq!((phases.kinds.len(), phases.outside.calls), (1, 0));
    let units = &phases.kinds[0];
    assert_eq!(
        variant(units, 0),
        (
            2,
            [
                "accept accept tcp4",
                "request read tcp4",
                "other sockets connect tcp4",
                "other sockets write tcp4",
                "other sockets read tcp4",
                "answer write tcp4"
            ]
            .map(str::to_owned)
            .to_vec()
        )
    );
}

#[test]
fn the_answer_on_another_socket_belongs_to_its_request_also_between_those_of_others() {
    let mut trace = Trace::default();
    let clients = [CLIENT, CLIENT + 1];
    let database = |client: u64| client + OTHER;
    for client in clients {
        trace.tcp(SERVER, "connect", database(client), 0);
    }
    for round in 0..4 {
        trace.plain(SERVER, "poll", 2);
        for client in clients {
            trace.tcp(SERVER, "read", client, 80).tcp(SERVER, "write", database(client), 40);
            trace.tcp(SERVER, "write", database(client), 40);
        }
        // The answers arrive together, now and then after another request.
        trace.plain(SERVER, "poll", 2);
        if round == 2 {
            trace.tcp(SERVER, "read", CLIENT + 2, 80);
        }
        for client in clients {
            trace.tcp(SERVER, "read", database(client), 80).tcp(SERVER, "write", client, 80);
        }
        if round == 2 {
            trace.tcp(SERVER, "write", CLIENT + 2, 80);
        }
    }
    let phases = trace.phases();
    let [units] = &phases.kinds[..] else { panic!("{phases:?}") };
    let steps = ["request read", "other sockets write", "other sockets read", "answer write"];
    assert_eq!(variant(units, 0), (8, steps.map(|step| format!("{step} tcp4")).to_vec()));
    assert_eq!(variant(units, 1), (1, [steps[0], steps[3]].map(|step| format!("{step} tcp4")).to_vec()));
}

#[test]
fn a_socket_of_a_pool_is_used_for_one_request_after_another() {
    let mut trace = Trace::default();
    let clients = [CLIENT, CLIENT + 1];
    for client in clients {
        trace.tcp(SERVER, "accept", client, 5);
    }
    for round in 0..6 {
        trace.plain(SERVER, "poll", 2);
        for client in clients {
            // Each client has the socket that the other one had before.
            let socket = OTHER + (client + round) % 2;
            trace.tcp(SERVER, "read", client, 80);
            if round < 2 {
                trace.tcp(SERVER, "connect", socket, 0);
            }
            trace.tcp(SERVER, "getsockopt", socket, 0).tcp(SERVER, "write", socket, 80);
        }
        trace.plain(SERVER, "poll", 2);
        for client in clients {
            let socket = OTHER + (client + round) % 2;
            trace.tcp(SERVER, "read", socket, 80).tcp(SERVER, "write", client, 80);
            trace.tcp(SERVER, "read", socket, 80).tcp(SERVER, "write", client, 80);
        }
        // It looks at its sockets between requests.
        trace.plain(SERVER, "poll", 1).tcp(SERVER, "read", OTHER, -11);
    }
    let phases = trace.phases();
    let [units] = &phases.kinds[..] else { panic!("{phases:?}") };
    let steps = [
        "request read",
        "other sockets getsockopt",
        "other sockets write",
        "other sockets read",
        "answer write",
    ];
    assert_eq!(variant(units, 0), (8, steps.map(|step| format!("{step} tcp4")).to_vec()), "{units:#?}");
}

#[test]
fn the_rest_of_an_answer_on_another_socket_belongs_to_its_request() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "read", CLIENT, 80).tcp(SERVER, "write", OTHER, 80).plain(SERVER, "poll", 1);
    trace.tcp(SERVER, "read", OTHER, 80).tcp(SERVER, "write", CLIENT, 80).plain(SERVER, "poll", 2);
    trace.tcp(SERVER, "read", CLIENT + 1, 80).tcp(SERVER, "read", OTHER, 80).tcp(SERVER, "write", CLIENT, 80);
    trace.tcp(SERVER, "write", CLIENT + 1, 80);
    let units = trace.units();
    let shown = [0, 1].map(|position| variant(&units, position).1);
    let steps = ["request read", "other sockets write", "other sockets read", "answer write"];
    let steps = steps.map(|step| format!("{step} tcp4"));
    assert!(
        shown.contains(&steps.to_vec()) && shown.contains(&[&steps[..1], &steps[3..]].concat()),
        "{shown:#?}"
    );
}

#[test]
fn a_stream_that_threads_share_is_used_for_the_request_of_each() {
    let mut trace = Trace::default();
    let threads = [(On(1, 1), CLIENT), (On(1, 2), CLIENT + 1)];
    for (thread, client) in threads {
        trace.tcp(thread, "accept", client, 5).tcp(thread, "read", client, 80);
        trace.tcp(thread, "sendto", OTHER, 60).file(thread, "openat", 9);
    }
    for (thread, client) in threads {
        trace.tcp(thread, "write", client, 80);
    }
    // Between requests, a thread without one uses it.
    trace.tcp(On(1, 3), "sendto", OTHER, 60).file(On(1, 3), "openat", 9);
    let phases = trace.phases();
    assert_eq!((phases.kinds.len(), phases.kinds[0].variants.len(), phases.outside.calls), (1, 1, 2));
    assert_eq!(variant(&phases.kinds[0], 0).1[2..4], ["other sockets sendto tcp4", "files openat file"]);
}

#[test]
fn a_lock_makes_no_variant_but_counts() {
    let mut trace = Trace::default();
    for lock in [0, 1, 3] {
        trace.tcp(SERVER, "read", CLIENT, 80);
        for _ in 0..lock {
            trace.plain(SERVER, "futex", 0).plain(SERVER, "sched_yield", 0);
        }
        trace.tcp(SERVER, "write", CLIENT, 80);
    }
    let units = trace.units();
    assert_eq!((units.variants.len(), calls(&units, Phase::Other)), (1, 8));
}

#[test]
fn a_client_has_units_of_work_too() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "socket", CLIENT, 3).tcp(SERVER, "connect", CLIENT, -115);
    trace.tcp(SERVER, "setsockopt", CLIENT, 0);
    for _ in 0..2 {
        trace.tcp(SERVER, "sendto", CLIENT, 80).plain(SERVER, "poll", 1).tcp(SERVER, "recvfrom", CLIENT, 90);
    }
    trace.plain(SERVER, "poll", 0).plain(SERVER, "poll", 0);
    let phases = trace.phases();
    let [units] = &phases.kinds[..] else { panic!("{phases:?}") };
    assert_eq!(
        (units.side, units.units, phases.outside.calls),
        (Side::Asks, 2, 2),
        "socket and the last poll"
    );
    assert_eq!(
        variant(units, 0).1,
        [
            "connect connect tcp4 = EINPROGRESS",
            "connect setsockopt tcp4",
            "request sendto tcp4",
            "answer recvfrom tcp4"
        ]
    );
    assert_eq!(
        units.variants[0].time_ns,
        Some(41),
        "40 ns within 6.25 %, from the beginning of the first to the end of the last"
    );
}

#[test]
fn a_process_for_each_connection_goes_on_with_the_work_of_its_parent() {
    let mut trace = Trace::default();
    for (child, parent_is_first) in [(On(10, 10), true), (On(11, 11), false)] {
        let inode = CLIENT + u64::from(child.0);
        trace.tcp(SERVER, "accept", inode, 5).fork(SERVER, child);
        if parent_is_first {
            trace.tcp(SERVER, "close", inode, 0).plain(SERVER, "getpid", 1);
        }
        trace.plain(child, "brk", 0).tcp(child, "read", inode, 80).tcp(child, "write", inode, 80);
        if !parent_is_first {
            trace.tcp(SERVER, "close", inode, 0).plain(SERVER, "getpid", 1);
        }
        trace.plain(SERVER, "poll", 1).exit(child);
    }
    let phases = trace.phases();
    assert_eq!(phases.outside.calls, 2, "the work of the parent ends when it closes the connection");
    let steps = ["accept accept", "accept close", "accept brk", "request read", "answer write"];
    let steps =
        steps.map(|step| if step.ends_with("brk") { step.to_owned() } else { format!("{step} tcp4") });
    assert_eq!(variant(&phases.kinds[0], 0), (2, steps.to_vec()), "whenever the parent closes");
}

#[test]
fn an_error_does_not_end_a_connection_and_a_half_closed_one_is_answered() {
    let mut trace = Trace::default();
    let (interrupted, broken) = (-i64::from(libc::EINTR), -i64::from(libc::ECONNRESET));
    for _ in 0..2 {
        trace.tcp(SERVER, "read", CLIENT, interrupted).tcp(SERVER, "read", CLIENT, 80);
        trace.file(SERVER, "openat", 9).tcp(SERVER, "write", CLIENT, 80);
    }
    trace.tcp(SERVER, "read", OTHER, 80).tcp(SERVER, "read", OTHER, 0).file(SERVER, "openat", 9);
    trace.tcp(SERVER, "write", OTHER, 80).tcp(SERVER, "shutdown", OTHER, 0).tcp(SERVER, "read", OTHER, 5);
    trace.tcp(SERVER, "read", OTHER, broken).file(SERVER, "close", 0);
    let units = trace.units();
    assert_eq!(units.units, 3);
    let shown = [0, 1, 2].map(|position| variant(&units, position).1.join(", "));
    let request = "request read tcp4, files openat file, answer write tcp4";
    assert!(shown.contains(&format!("{request}, answer read tcp4 = EINTR")), "{shown:#?}");
    assert!(shown.contains(&request.to_owned()), "{shown:#?}");
    let half_closed = "request read tcp4, request read tcp4 = 0, files openat file, answer write tcp4, \
                       close shutdown tcp4, close read tcp4, close read tcp4 = ECONNRESET, close close file";
    assert!(shown.contains(&half_closed.to_owned()), "{shown:#?}");
    let times: Vec<_> = units.variants.iter().map(|variant| variant.time_ns).collect();
    assert_eq!(times.iter().max(), Some(&Some(45)), "the lingering is not in it: {times:?}");
}

#[test]
fn a_connection_without_a_request_is_no_unit_of_work() {
    let mut trace = Trace::default();
    for inode in [CLIENT, OTHER] {
        trace.tcp(SERVER, "accept", inode, 5);
        if inode == OTHER {
            trace.tcp(SERVER, "read", inode, 80).tcp(SERVER, "write", inode, 80);
        }
        trace.tcp(SERVER, "read", inode, 0).tcp(SERVER, "close", inode, 0);
    }
    let units = trace.units();
    let idle = units.idle.as_ref().unwrap();
    assert_eq!((units.units, units.variants.len(), idle.units, idle.calls), (1, 1, 1, 3));
}

#[test]
fn the_work_of_a_thread_ends_with_its_unit_of_work() {
    let mut trace = Trace::default();
    let pool = On(1, 2);
    trace
        .tcp(SERVER, "read", CLIENT, 80)
        .event(SERVER, Event::Fork { child_process: 1, child_thread: 2, memory: None });
    trace.file(pool, "openat", 9).tcp(SERVER, "write", CLIENT, 80);
    trace.tcp(SERVER, "read", CLIENT, 80).file(pool, "openat", 9).tcp(SERVER, "write", CLIENT, 80);
    let phases = trace.phases();
    assert_eq!((calls(&phases.kinds[0], Phase::Files), phases.outside.calls), (1, 1));
}

#[test]
fn a_process_with_one_connection_goes_on_with_its_request_after_a_wait() {
    let work = |connections: u64| {
        let mut trace = Trace::default();
        for inode in 0..connections {
            trace.tcp(SERVER, "accept", CLIENT + inode, 5);
        }
        trace.tcp(SERVER, "read", CLIENT, 80).plain(SERVER, "epoll_wait", 1).file(SERVER, "fsync", 0);
        trace.tcp(SERVER, "write", CLIENT, 80).plain(SERVER, "epoll_wait", 1).file(SERVER, "fsync", 0);
        let phases = trace.phases();
        (calls(&phases.kinds[0], Phase::Files), phases.outside.calls)
    };
    assert_eq!(work(1), (1, 1), "it waited for a lock, and later for the next request");
    assert_eq!(work(2), (0, 2), "it may work for the other one");
}

#[test]
fn datagrams_are_requests_and_a_log_socket_belongs_to_no_single_one() {
    let mut trace = Trace::default();
    let on = |name, descriptor, inode, result| Call { descriptor, inode, result, ..fixture::call(name) };
    let log = |name| on(name, Descriptor::UnixDatagram, 8, 60);
    trace.call(SERVER, log("connect"));
    for (thread, inode) in [(1, CLIENT), (2, OTHER), (1, CLIENT), (2, OTHER)] {
        trace.call(On(1, thread), on("recvmmsg", Descriptor::Udp4, inode, 1));
    }
    for thread in [1, 2] {
        trace.call(On(1, thread), log("sendto"));
    }
    for (thread, inode) in [(1, CLIENT), (2, OTHER)] {
        trace.call(On(1, thread), on("sendmmsg", Descriptor::Udp4, inode, 1));
    }
    let empty = |name| on(name, Descriptor::Udp4, 300, 0);
    trace.call(SERVER, empty("recvfrom")).file(SERVER, "openat", 9).call(SERVER, empty("sendto"));
    let phases = trace.phases();
    let [units] = &phases.kinds[..] else { panic!("{phases:?}") };
    assert_eq!((units.side, units.descriptor, phases.outside.calls), (Side::Answers, Descriptor::Udp4, 1));
    let steps = ["request recvmmsg udp4", "other sockets sendto unix-dgram", "answer sendmmsg udp4"];
    assert_eq!(variant(units, 0), (2, steps.map(str::to_owned).to_vec()));
    assert_eq!(variant(units, 1).1, ["request recvfrom udp4 = 0", "files openat file", "answer sendto udp4"]);
}

#[test]
fn a_program_that_a_server_executes_does_not_hold_its_connection() {
    let mut trace = Trace::default();
    let (program, path) = (On(2, 2), ExecPath([0; 48]));
    trace.tcp(SERVER, "accept", CLIENT, 5).tcp(SERVER, "read", CLIENT, 80).fork(SERVER, program);
    trace.event(program, Event::Exec { path }).plain(program, "brk", 0).tcp(SERVER, "write", CLIENT, 80);
    trace.tcp(SERVER, "close", CLIENT, 0).plain(program, "brk", 0);
    let phases = trace.phases();
    let steps =
        ["accept accept tcp4", "request read tcp4", "answer write tcp4", "close close tcp4", "other brk"];
    assert_eq!(variant(&phases.kinds[0], 0).1, steps);
    assert_eq!(phases.outside.calls, 1, "what it does after the connection was closed");
}

#[test]
fn a_server_whose_recording_begins_with_an_answer_answers() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "accept", CLIENT, 5).tcp(SERVER, "read", CLIENT, 80).tcp(SERVER, "write", CLIENT, 80);
    let other = On(1, 2);
    trace.tcp(other, "write", OTHER, 80);
    for _ in 0..2 {
        trace.tcp(other, "read", OTHER, 80).tcp(other, "write", OTHER, 80);
    }
    let units = trace.units();
    assert_eq!((units.side, units.units), (Side::Answers, 3));
}

#[test]
fn a_socket_whose_requests_are_never_answered_is_no_unit_of_work() {
    let mut trace = Trace::default();
    trace.tcp(SERVER, "read", CLIENT, 80).file(SERVER, "openat", 9).tcp(SERVER, "close", CLIENT, 0);
    let phases = trace.phases();
    assert_eq!((phases.kinds.len(), phases.outside.calls), (0, 3));
}

#[test]
fn rare_variants_and_long_units_are_the_rest() {
    let mut trace = Trace::default();
    let mut request = |before: &[u16], times: u64| {
        for _ in 0..times {
            trace.tcp(SERVER, "read", CLIENT, 80);
            for number in before {
                trace.call(SERVER, Call { number: *number, ..fixture::call("getpid") });
            }
            trace.tcp(SERVER, "write", CLIENT, 80);
        }
    };
    let names: Vec<u16> = (24..130)
        .filter(|number| Class::of(&Call { number: *number, ..fixture::call("getpid") }) != Class::Waits)
        .collect();
    for (position, first) in names.iter().enumerate() {
        for second in &names[position + 1..] {
            request(&[*first, *second], 2);
        }
    }
    // After a table that is full of variants that occur twice.
    for first in 0..60 {
        request(&[], 1);
        request(&names[first..first + 3], 1);
    }
    let long: Vec<u16> = (0..5)
        .flat_map(|shift| names.iter().cycle().skip(shift * 7).take(names.len() + shift))
        .copied()
        .collect();
    request(&long, 1);
    let units = trace.units();
    // Each pair of names occurs twice.
    let pairs = u64::try_from(names.len() * (names.len() - 1)).unwrap();
    assert!(pairs > 6_000 && long.len() > 512);
    assert_eq!(units.units, pairs + 121);
    assert_eq!(units.variants.len(), 10);
    assert!(units.variants[0].units >= 58, "a new frequent variant stays: {:?}", units.variants[0].units);
    let rest = units.rest.as_ref().unwrap();
    assert_eq!(rest.units + units.variants.iter().map(|variant| variant.units).sum::<u64>(), units.units);
    let calls = units.variants.iter().chain([rest]).map(|variant| variant.calls).sum::<u64>();
    assert_eq!(calls, units.total().calls, "every call is in one variant");
    assert!(rest.time_ns.is_some());
}

/// A call, with few processes, threads and sockets, so that they meet.
fn any_event() -> impl Strategy<Value = (On, Event)> {
    let names = vec![
        "read",
        "write",
        "close",
        "accept4",
        "connect",
        "socket",
        "shutdown",
        "poll",
        "openat",
        "fsync",
        "brk",
        "sendto",
        "recvfrom",
        "setsockopt",
        "dup",
    ];
    let kinds =
        vec![Descriptor::Tcp4, Descriptor::UnixStream, Descriptor::Udp4, Descriptor::File, Descriptor::None];
    let call =
        (prop::sample::select(names), prop::sample::select(kinds), 0..4_u64, -12..3_i64, any::<bool>());
    let call = call.prop_map(|(name, descriptor, inode, result, native)| {
        let abi = if native { Abi::Native } else { Abi::Compat };
        Event::Call(Call { descriptor, inode, result, abi, elapsed_ns: 7, ..fixture::call(name) })
    });
    let event = prop_oneof![
        12 => call,
        1 => (1..4_u32, 1..4_u32).prop_map(|(child_process, child_thread)| Event::Fork { child_process, child_thread, memory: None }),
        1 => Just(Event::Exec { path: ExecPath([0; 48]) }),
        1 => any::<bool>().prop_map(|whole_process| Event::Exit { code: 0, whole_process }),
        1 => Just(Event::Unfinished(fixture::call("read"))),
    ];
    ((1..4_u32, 1..4_u32).prop_map(|(process, thread)| On(process, thread)), event)
}

proptest! {
    #[test]
    fn every_call_is_in_one_unit_of_work_or_outside(events in prop::collection::vec(any_event(), 0..200)) {
        let mut trace = Trace::default();
        let (mut finished, mut unfinished) = (0, 0);
        for (on, event) in events {
            finished += u64::from(matches!(event, Event::Call(_)));
            unfinished += u64::from(matches!(event, Event::Unfinished(_)));
            trace.event(on, event);
        }
        let phases = trace.phases();
        let mut total = phases.outside;
        phases.kinds.iter().for_each(|units| total.merge(&units.total()));
        prop_assert_eq!((total.calls, total.kernel_ns, phases.unfinished), (finished, 7 * finished, unfinished));
        for units in &phases.kinds {
            let variants = units.variants.iter().chain(&units.rest);
            let in_variants: u64 = variants.clone().chain(&units.idle).map(|variant| variant.calls).sum();
            let waits = calls(units, Phase::Wait);
            prop_assert!(in_variants <= units.total().calls && in_variants + waits >= units.total().calls);
            prop_assert_eq!(variants.map(|variant| variant.units).sum::<u64>(), units.units);
        }
    }
}
