//! Sleeps and wake-ups, by the state of the CPU.

use std::{
    fs,
    process::Command,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use assay_process::{Exit, cpus};
use assay_trace::{Call, Descriptor, Wakeups};
use assay_trace_probe::Options;
use rustix::thread::gettid;

use crate::support::{EXERCISE, record, record_with, wait_until_in};

const ROUNDS: usize = 200;

/// Two hundred wake-ups of a sleeper.
struct Woken {
    /// The calls that wake it.
    writes: Vec<Call>,
    /// The calls in which it sleeps.
    reads: Vec<Call>,
    /// Share of that time that the last CPU was idle, in percent.
    idle_percent: u32,
}

/// Held while a sleeper is woken: otherwise one test would keep the CPU busy that is idle in another one.
static CPUS: Mutex<()> = Mutex::new(());

/// Records the wake-ups of a sleeper at this place.
fn wake(place: &str) -> Woken {
    let _alone = CPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("idle");
    let command = format!("exec {EXERCISE} wake {place} > {}", output.display());
    let recording = record(&["sh", "-c", &command]);
    assert_eq!(recording.exit, Exit::Status(0));
    let of_a_byte = |name| {
        let calls = recording.calls(name).into_iter();
        calls
            .filter(|call| call.descriptor == Descriptor::Pipe && call.args[2] == 1 && call.result == 1)
            .collect::<Vec<_>>()
    };
    let (writes, reads) = (of_a_byte("write"), of_a_byte("read"));
    assert_eq!((writes.len(), reads.len()), (ROUNDS, ROUNDS));
    for call in writes.iter().chain(&reads) {
        let wakeups = of(call);
        assert!(wakeups.idle_sleeps <= call.voluntary, "{call:?}");
        assert_eq!(wakeups.idle_sleeps > 0, wakeups.idle_ns > 0, "{call:?}");
    }
    let idle_percent = fs::read_to_string(output).unwrap().trim().parse().unwrap();
    Woken { writes, reads, idle_percent }
}

fn of(call: &Call) -> Wakeups {
    call.wakeups.expect("the probe records the wake-ups of every call")
}

/// Returns how many threads the call woke: on the same, on a busy and on an idle CPU.
fn woken(call: &Call) -> [u32; 3] {
    let wakeups = of(call);
    [wakeups.woken_same, wakeups.woken_busy, wakeups.woken_idle]
}

/// Calls that may also wake a kernel thread: for memory, or in an interrupt that the probe does not see.
const OTHERS: usize = 2;

/// Asserts that each write woke what is expected in its round.
fn assert_woken(writes: &[Call], is_expected: impl Fn(usize, [u32; 3]) -> bool) {
    let rounds = writes.iter().enumerate();
    let wrong: Vec<_> = rounds.filter(|(round, write)| !is_expected(*round, woken(write))).collect();
    assert!(wrong.len() <= OTHERS, "{} of {ROUNDS}: {:?}", wrong.len(), wrong[0]);
}

/// Returns a test for one thread that was woken, on another CPU if this process may use two.
fn is_elsewhere() -> impl Fn([u32; 3]) -> bool {
    let expected = if cpus::allowed().unwrap().len() > 1 { (0, 1) } else { (1, 0) };
    move |[same, busy, idle]| (same, busy + idle) == expected
}

#[test]
fn a_thread_that_sleeps_on_the_cpu_of_its_waker_is_woken_there() {
    let Woken { writes, .. } = wake("same");
    assert_woken(&writes, |_, woken| woken == [1, 0, 0]);
}

#[test]
fn a_thread_that_sleeps_on_a_cpu_where_another_runs_is_woken_on_a_busy_cpu() {
    let Woken { writes, reads, .. } = wake("busy");
    let is_elsewhere = is_elsewhere();
    assert_woken(&writes, |_, woken| is_elsewhere(woken) && woken[2] == 0);
    let idle = reads.iter().filter(|read| of(read).idle_sleeps > 0).count();
    assert!(idle <= OTHERS, "{idle}");
}

#[test]
fn a_thread_that_sleeps_on_another_cpu_is_woken_there_and_both_calls_have_its_idle_time() {
    let Woken { writes, reads, idle_percent } = wake("other");
    let is_elsewhere = is_elsewhere();
    assert_woken(&writes, |_, woken| is_elsewhere(woken));
    for read in &reads {
        // The thread itself ran on this CPU until it slept.
        assert!(of(read).idle_ns <= read.elapsed_ns, "{read:?}");
    }
    let count =
        |calls: &[Call], field: fn(Wakeups) -> u32| calls.iter().map(|call| field(of(call))).sum::<u32>();
    let (woken_idle, idle_sleeps) = (count(&writes, |of| of.woken_idle), count(&reads, |of| of.idle_sleeps));
    // Other programs may keep the CPU busy: then nothing more can be expected.
    if idle_percent > 10 {
        assert!(
            woken_idle > 0 && idle_sleeps > 0,
            "{woken_idle} and {idle_sleeps} of {ROUNDS}, {idle_percent} % idle"
        );
    }
}

/// The kernel moves a sleeping thread to a CPU on which it may run when it wakes it, or, if the thread is
/// still in a run queue, when the CPUs change on which it may run.
#[test]
fn a_thread_that_is_moved_by_its_wake_up_counts_where_it_will_run() {
    let Woken { writes, .. } = wake("moved");
    let (is_elsewhere, is_here) = (is_elsewhere(), |woken| woken == [1, 0, 0]);
    assert_woken(&writes, |round, woken| if round % 2 == 0 { is_elsewhere(woken) } else { is_here(woken) });
}

/// A client of a server is such a thread, also if `assay` runs both.
#[test]
fn a_thread_outside_the_tree_is_woken_even_if_it_is_one_of_the_process_that_records() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (started, starts) = mpsc::channel();
    let reader = {
        let fifo = fifo.clone();
        thread::spawn(move || {
            started.send(gettid()).unwrap();
            fs::read(fifo)
        })
    };
    wait_until_in("openat", starts.recv().unwrap().as_raw_nonzero().get().cast_unsigned());
    let output = format!("of={}", fifo.display());
    let recording = record(&["dd", "if=/dev/null", &output, "status=none"]);
    assert_eq!(reader.join().unwrap().unwrap(), b"");
    let calls = recording.calls("openat");
    let writers: Vec<_> = calls.iter().filter(|call| call.args[2] & 3 == libc::O_WRONLY as u64).collect();
    let [writer] = writers[..] else { panic!("{writers:?}") };
    assert!(woken(writer) != [0; 3], "the open for writing ends the wait of the open for reading");
}

/// The faults of each `read` into new memory, one per page of 4 KiB, fill so much of the ring that it wakes
/// the recorder.
#[test]
fn the_recorder_is_not_counted_when_a_ring_wakes_it() {
    let options = Options { ring_bytes: 256 << 10, ..Options::default() };
    let dd = "dd if=/dev/zero of=/dev/null bs=1M count=1 status=none";
    let recording = record_with(&["sh", "-c", &[dd; 20].join("; ")], options);
    let reads: Vec<_> = recording.calls("read").into_iter().filter(|call| call.result == 1 << 20).collect();
    assert!(!reads.is_empty() && reads.iter().all(|call| call.faults > 0), "{reads:?}");
    let woken: u64 = reads.iter().flat_map(woken).map(u64::from).sum();
    assert!(woken < reads.len() as u64, "{woken} in {} reads", reads.len());
}
