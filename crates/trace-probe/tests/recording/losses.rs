//! Deliberate losses of records, every one of them accounted for.

use assay_trace::{Entry, Event, Reader, Record, Writer, syscall};
use assay_trace_probe::{Held, Options, RecordError, Recorder, Streams, Unavailable, opening};

use crate::support::{children, read, record, record_with, wait_until, wait_until_in};

// Numbers of linux/capability.h.
const CAP_SYS_ADMIN: usize = 21;
const CAP_PERFMON: usize = 38;
const CAP_BPF: usize = 39;

#[test]
fn with_a_small_ring_kept_and_lost_records_add_up() {
    let options = Options { ring_bytes: 4096, ..Options::default() };
    let recording =
        record_with(&["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"], options);
    let recorded = &recording.recorded;
    assert!(recorded.lost > 0, "{} of {} lost", recorded.lost, recorded.made);
    assert_eq!(recorded.records + recorded.lost, recorded.made);
    assert!(recorded.made >= 200_000);
    // The rest are contents of calls whose own record was lost. Each run has the same ones: those of the
    // loader.
    let contents =
        record(&["dd", "if=/dev/zero", "of=/dev/null", "count=1", "status=none"]).content_records();
    let read = recording.records.len();
    assert!((read + recording.content_records()) as u64 <= recorded.records);
    assert!((read + contents) as u64 >= recorded.records);
    assert_eq!(recording.gaps, recorded.lost, "the reader reports every lost record once");
    assert!(recording.complete);
    let fields: u64 = recording.records.iter().map(|record| u64::from(record.lost_before)).sum();
    assert!(fields <= recorded.lost);
}

#[test]
fn an_unsupported_ring_size_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [("odd", 5000), ("small", 2048), ("none", 0)] {
        let path = directory.path().join(name);
        let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
        let options = Options { ring_bytes: bytes, ..Options::default() };
        let error = Recorder::attach(std::process::id(), options, writer).unwrap_err();
        assert!(matches!(error, Unavailable::Ring { .. }));
        assert!(!path.exists());
    }
}

/// Removes the capability to load a BPF program from the calling thread and the threads that it starts.
fn give_up_bpf() {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: a valid header and two valid sets in the layout of version 3, which the kernel fills and reads;
    // only the capabilities of the calling thread change.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        for capability in [CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF] {
            let bit = !(1 << (capability % 32));
            sets[capability / 32][0] &= bit;
            sets[capability / 32][1] &= bit;
        }
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
fn no_container_is_left_if_the_kernel_refuses_the_probe() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("refused.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    assert!(path.exists());
    let attempt = move || {
        give_up_bpf();
        Recorder::attach(std::process::id(), Options::default(), writer).map(drop).unwrap_err()
    };
    let error = std::thread::spawn(attempt).join().unwrap();
    assert!(matches!(error, Unavailable::Refused { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_recorder_that_is_dropped_closes_its_container() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dropped.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let held = Held::fork(&["sleep".into(), "60".into()], Streams::Inherit).unwrap();
    let recorder = Recorder::attach(held.process(), Options::default(), writer).unwrap();
    assert!(recorder.is_recording());
    let sleep = held.release().unwrap();
    let nanosleep = syscall::number("clock_nanosleep");
    wait_until_in("clock_nanosleep", sleep.process());
    drop(recorder);
    drop(sleep);
    let reader = Reader::open(&path).unwrap();
    assert!(reader.is_complete());
    let in_flight = reader.map(Result::unwrap).any(|entry| match entry {
        Entry::Record(record, _) => match record.event {
            Event::Unfinished(call) => Some(call.number) == nanosleep && call.blocked_ns > 0,
            _ => false,
        },
        Entry::Lost(_) => false,
    });
    assert!(in_flight, "the sleep in flight at the end of the recording is an unfinished call");
}

/// Events during the detachment of the probe are not in the trace, so no call appears to last until then.
#[test]
fn all_calls_in_flight_end_at_the_time_when_the_recorder_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stopped.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let script = "sleep 60 & sleep 60 & exec sleep 60";
    let held = Held::fork(&["sh", "-c", script].map(Into::into), Streams::Inherit).unwrap();
    let recorder = Recorder::attach(held.process(), Options::default(), writer).unwrap();
    let first = held.release().unwrap();
    wait_until_in("clock_nanosleep", first.process());
    for sleep in children(first.process()) {
        wait_until_in("clock_nanosleep", sleep);
    }
    recorder.stop().unwrap();
    let (records, ..) = read(&path);
    let in_flight = records.iter().filter(|record| matches!(record.event, Event::Unfinished(_)));
    let ends: Vec<_> = in_flight.map(Record::end_ns).collect();
    assert_eq!(ends, [ends[0]; 3]);
    let last = records.last().unwrap().end_ns();
    assert_eq!(last, ends[0], "there are no records after the end");
}

#[test]
fn an_aborted_recorder_reports_it_before_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broken.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let held = Held::fork(
        &["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "status=none"].map(Into::into),
        Streams::Null,
    )
    .unwrap();
    let recorder = Recorder::attach(held.process(), Options::default(), writer).unwrap();
    // Remove the directory in which the next spool would be created.
    std::fs::remove_dir_all(&path).unwrap();
    let endless = held.release().unwrap();
    wait_until("the recorder aborts", || !recorder.is_recording());
    drop(endless);
    assert!(matches!(recorder.stop(), Err(RecordError::Write(_))));
}
