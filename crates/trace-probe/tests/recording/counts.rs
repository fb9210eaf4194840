//! Counts, bytes, results and times of programs with known calls.

use std::{collections::BTreeMap, process::Command};

use assay_process::cpus;
use assay_trace::{Abi, Call, Descriptor, Event, Peer};
use assay_trace_probe::{Collect, DescriptorReads, Options};

use crate::support::{EXERCISE, Recording, record, record_with};

const BLOCKS: usize = 20_000;
const DD: [&str; 6] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=20000", "status=none"];

fn of_512(recording: &Recording, name: &str) -> Vec<Call> {
    recording.calls(name).into_iter().filter(|call| call.args[2] == 512).collect()
}

fn dd_is_counted_exactly(recording: &Recording) {
    assert!(recording.exit.is_success());
    for (name, descriptor, device) in [("read", 0, 0x10_0005), ("write", 1, 0x10_0003)] {
        let calls = of_512(recording, name);
        assert_eq!(calls.len(), BLOCKS, "{name}");
        assert_eq!(calls.iter().filter_map(Call::bytes).sum::<u64>(), 512 * BLOCKS as u64);
        assert!(calls.iter().all(|call| call.result == 512 && call.args[0] == descriptor));
        assert!(
            calls.iter().all(|call| call.descriptor == Descriptor::CharacterDevice && call.inode == device)
        );
    }
    assert_eq!((recording.recorded.lost, recording.gaps, recording.complete), (0, 0, true));
    assert_eq!(recording.recorded.made, recording.recorded.records);
    let read = recording.records.len() + recording.content_records();
    assert_eq!(read as u64, recording.recorded.records);
}

#[test]
fn every_read_and_write_of_dd_is_recorded_with_its_bytes() {
    dd_is_counted_exactly(&record(&DD));
}

#[test]
fn probe_reads_return_the_same_as_typed_loads() {
    let options = Options { descriptor_reads: DescriptorReads::Probe, ..Options::default() };
    dd_is_counted_exactly(&record_with(&DD, options));
}

#[test]
fn records_are_sorted_by_their_end() {
    let recording = record(&["sh", "-c", "for i in 1 2 3 4 5 6; do ls / & done >/dev/null; wait"]);
    let ends: Vec<_> = recording.records.iter().map(assay_trace::Record::end_ns).collect();
    assert!(ends.len() > 100);
    assert!(ends.is_sorted());
}

/// Returns whether the call creates a process. Such a call fails if a signal arrives meanwhile, and is
/// restarted (`ERESTARTNOINTR`).
fn makes_a_process(name: &str) -> bool {
    name.starts_with("clone") || name.ends_with("fork")
}

/// Returns the calls by name as counted by `strace -f -c`; of calls that create a process, only the
/// successful ones.
fn strace_counts(command: &[&str]) -> BTreeMap<String, u64> {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("strace.txt");
    let status = Command::new("strace")
        .args(["-f", "-c", "-U", "name,calls,errors", "-o"])
        .arg(&table)
        .args(command)
        .status();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(table).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut columns = line.split_whitespace();
        let (name, calls) = (columns.next()?, columns.next()?.parse::<u64>().ok()?);
        let errors = columns.next().map_or(0, |errors| errors.parse().unwrap());
        Some((name.to_owned(), if makes_a_process(name) { calls - errors } else { calls }))
    });
    rows.filter(|(name, _)| name != "total").collect()
}

#[test]
fn the_counts_of_all_calls_are_those_of_strace() {
    // The files are static and there is no randomness: two runs make the same calls.
    let command = [
        "sh",
        "-c",
        "cat /etc/passwd /etc/group >/dev/null; true | cat; ls /etc/apt >/dev/null; exec echo -n",
    ];
    let recording = record(&command);
    let mut ours: BTreeMap<String, u64> = BTreeMap::new();
    for record in &recording.records {
        // The table of strace omits exit_group, since it never returns, and includes the execve that starts
        // the command.
        if let Event::Call(call) = record.event
            && !(makes_a_process(&call.name()) && call.result < 0)
        {
            *ours.entry(call.name().into_owned()).or_default() += 1;
        }
    }
    let mut theirs = strace_counts(&command);
    // It is a race how often a shell is interrupted by the end of its children and returns from the signal.
    for racing in ["rt_sigreturn", "wait4"] {
        assert_eq!(ours.remove(racing).is_some(), theirs.remove(racing).is_some(), "{racing}");
    }
    assert_eq!(ours, theirs);
}

#[test]
fn a_sleep_is_blocked_time_and_its_parts_add_up() {
    let recording = record(&["sleep", "0.3"]);
    let calls = recording.calls("clock_nanosleep");
    assert_eq!(calls.len(), 1);
    let sleep = calls[0];
    assert!(sleep.elapsed_ns >= 300_000_000, "a sleep is at least as long as requested");
    assert!(sleep.blocked_ns > 0, "{sleep:?}");
    assert!(sleep.voluntary >= 1);
    assert_eq!(sleep.on_cpu_ns() + sleep.blocked_ns + sleep.waiting_ns, sleep.elapsed_ns);
}

/// On loopback, the receiver's softirq runs on top of the send: it is part of the send's time and not an
/// interrupt.
#[test]
fn a_send_on_loopback_contains_its_softirq_and_no_call_has_parts_longer_than_the_whole() {
    let recording = record(&[EXERCISE, "send"]);
    assert!(recording.exit.is_success());
    let sends: Vec<_> =
        recording.calls("sendto").into_iter().filter(|call| call.bytes() == Some(1000)).collect();
    assert_eq!(sends.len(), 1000);
    let delivering: Vec<_> = sends.iter().filter(|call| call.softnet_ns > 0).collect();
    assert!(!delivering.is_empty(), "the kernel thread for softirqs cannot have processed all 1000");
    assert!(
        delivering.iter().all(|call| call.kernel_ns() >= call.softnet_ns),
        "the softirq is part of the work of the send"
    );
    let calls: Vec<_> = recording
        .records
        .iter()
        .filter_map(|record| match record.event {
            Event::Call(call) | Event::Unfinished(call) => Some(call),
            _ => None,
        })
        .collect();
    for call in &calls {
        let parts = call.irq_ns + call.softnet_ns + call.blocked_ns + call.waiting_ns;
        assert!(parts <= call.elapsed_ns, "{call:?}");
    }
}

#[test]
fn without_interrupts_there_is_neither_irq_nor_softnet_time() {
    let options = Options { interrupts: Collect::No, ..Options::default() };
    let recording = record_with(&[EXERCISE, "send"], options);
    let sends = recording.calls("sendto");
    assert_eq!(sends.len(), 1000);
    assert!(sends.iter().all(|call| (call.irq_ns, call.softnet_ns) == (0, 0)));
}

#[test]
fn descriptors_have_the_correct_kind() {
    let recording =
        record(&["sh", "-c", "echo text | cat >/dev/null; cat </etc/passwd >/dev/null; ls / >/dev/null"]);
    let kinds = |name: &str| recording.calls(name).iter().map(|call| call.descriptor).collect::<Vec<_>>();
    assert!(kinds("read").contains(&Descriptor::Pipe));
    assert!(kinds("read").contains(&Descriptor::File));
    assert!(kinds("write").contains(&Descriptor::Pipe));
    assert!(kinds("getdents64").iter().all(|kind| *kind == Descriptor::Directory));
    assert!(kinds("openat").contains(&Descriptor::Directory), "the kind of a result");
    assert!(kinds("close").contains(&Descriptor::File), "the kind before it was closed");
}

#[test]
fn sockets_and_event_descriptors_have_the_correct_kind() {
    let recording = record(&[EXERCISE, "sockets"]);
    assert!(recording.exit.is_success());
    let moved = |name: &str| -> Vec<_> {
        recording.calls(name).iter().map(|call| (call.descriptor, call.bytes())).collect()
    };
    let sent =
        [(Descriptor::Tcp4, Some(100)), (Descriptor::Udp4, Some(1)), (Descriptor::UnixStream, Some(7))];
    assert_eq!(moved("sendto"), sent);
    assert_eq!(moved("recvfrom"), [sent[0], sent[2]]);
    assert_eq!(moved("accept4"), [(Descriptor::Tcp4, None)]);
    assert_eq!(moved("epoll_wait"), [(Descriptor::Epoll, None)]);
    assert_eq!(moved("epoll_create1"), [(Descriptor::Epoll, None)]);
    assert!(moved("read").contains(&(Descriptor::Eventfd, Some(8))));
    assert!(moved("mmap").contains(&(Descriptor::None, None)), "an anonymous mapping has no descriptor");
}

/// An acknowledgement that the kernel sends late may change where the last packet arrived.
#[test]
fn the_peer_of_a_connection_is_where_its_last_packet_came_from() {
    let elsewhere = if cpus::allowed().unwrap().len() > 1 { Peer::OtherCpu } else { Peer::SameCpu };
    for descriptor_reads in [DescriptorReads::Probe, DescriptorReads::Typed] {
        let recording = record_with(&[EXERCISE, "peer"], Options { descriptor_reads, ..Options::default() });
        assert!(recording.exit.is_success());
        for (name, bytes) in [("recvfrom", 100), ("sendto", 200)] {
            let calls = recording.calls(name).into_iter().filter(|call| call.bytes() == Some(bytes));
            let peers: Vec<_> = calls.map(|call| call.peer).collect();
            let due = (0..100).map(|round| Some(if round % 2 == 0 { Peer::SameCpu } else { elsewhere }));
            let late = due.zip(&peers).filter(|(due, peer)| due != *peer).count();
            assert!(peers.len() == 100 && late <= 2, "{name}: {peers:?}");
        }
    }
}

#[test]
fn a_32_bit_call_is_marked_and_not_mistaken_for_a_native_one() {
    let recording = record(&[EXERCISE, "compat"]);
    assert!(recording.exit.is_success());
    let foreign: Vec<_> = recording
        .records
        .iter()
        .filter_map(|record| match record.event {
            Event::Call(call) if call.abi == Abi::Compat => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(foreign.len(), 10);
    assert!(foreign.iter().all(|call| call.number == 64 && call.name() == "compat call 64"));
    assert!(foreign.iter().all(|call| call.result == i64::from(std::process::id())));
    assert_eq!(recording.calls("getppid").len(), 10, "its native calls");
}
