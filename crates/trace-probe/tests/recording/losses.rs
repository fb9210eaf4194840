//! Records are lost on purpose, and every one of them is accounted for.

use assay_trace::{Entry, Reader, Writer, syscall};
use assay_trace_probe::{Held, Options, Recorder, Unavailable, opening};

use crate::support::record_with;

#[test]
fn with_a_ring_that_is_too_small_kept_and_lost_make_up_what_was_made() {
    let options = Options { ring_bytes: 4096, ..Options::default() };
    let recording =
        record_with(&["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000", "status=none"], options);
    let recorded = &recording.recorded;
    assert!(recorded.lost > 1000, "{} of {} lost", recorded.lost, recorded.made);
    assert_eq!(recorded.records + recorded.lost, recorded.made);
    assert!(recorded.made >= 200_000);
    assert_eq!(recording.records.len() as u64, recorded.records);
    assert_eq!(recording.gaps, recorded.lost, "the reader tells of every lost record once");
    assert!(recording.complete);
    let fields: u64 = recording.records.iter().map(|record| u64::from(record.lost_before)).sum();
    assert!(fields <= recorded.lost);
}

#[test]
fn a_ring_that_the_kernel_would_not_take_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [("odd", 5000), ("small", 2048), ("none", 0)] {
        let writer = Writer::create(&directory.path().join(name), opening(Vec::new()).unwrap()).unwrap();
        let options = Options { ring_bytes: bytes, ..Options::default() };
        let error = Recorder::attach(std::process::id(), options, writer).unwrap_err();
        assert!(matches!(error, Unavailable::Ring { .. }));
    }
}

#[test]
fn a_recorder_that_is_dropped_closes_its_container() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dropped.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let held = Held::fork(&["sleep".into(), "5".into()]).unwrap();
    let recorder = Recorder::attach(held.process(), Options::default(), writer).unwrap();
    let sleep = held.release().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(recorder);
    drop(sleep);
    let reader = Reader::open(&path).unwrap();
    assert!(reader.is_complete());
    let nanosleep = syscall::number("clock_nanosleep");
    let in_flight = reader.map(Result::unwrap).any(|entry| match entry {
        Entry::Record(record) => match record.event {
            assay_trace::Event::Unfinished(call) => Some(call.number) == nanosleep && call.blocked_ns > 0,
            _ => false,
        },
        Entry::Lost(_) => false,
    });
    assert!(in_flight, "the sleep that the recorder left behind is an unfinished call");
}
