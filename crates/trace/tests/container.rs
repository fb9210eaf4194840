//! The container, written and read back, killed half-way, truncated and mutated.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use assay_trace::{
    Entry, Opening, Reader, Writer,
    container::{Closing, CpuCounters, ReadError, State, WriteError, layout::RECORD_BYTES},
};
use proptest::prelude::*;

fn opening(cpus: u16) -> Opening {
    Opening {
        host: "host".to_owned(),
        kernel: "6.1".to_owned(),
        architecture: "x86_64".to_owned(),
        command: vec!["true".to_owned()],
        roots: vec![7],
        cpus,
        monotonic_ns: 50,
        realtime_ns: 1_700_000_000_000_000_000,
    }
}

fn closing(lost: &[u64]) -> Closing {
    let counters =
        (0..).zip(lost).map(|(cpu, &lost)| CpuCounters { cpu, made: 1_000 + lost, lost }).collect();
    Closing { monotonic_ns: 9_000, drained: true, untracked_threads: 0, counters }
}

/// A `read` of thread `thread` that ended at `end_ns` after 10 ns, `lost` records after the previous one.
fn call(cpu: u16, end_ns: u64, thread: u32, lost: u32) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &(end_ns - 10).to_le_bytes());
    put(8, &10_u64.to_le_bytes());
    put(96, &512_i64.to_le_bytes());
    put(112, &7_u32.to_le_bytes());
    put(116, &thread.to_le_bytes());
    put(120, &lost.to_le_bytes());
    put(138, &[1, 2]);
    put(140, &cpu.to_le_bytes());
    bytes
}

/// End times of the records, and the losses in their places.
fn shown(path: &Path) -> Result<Vec<(u64, u64)>, ReadError> {
    let entries = Reader::open(path)?.map(|entry| {
        Ok(match entry? {
            Entry::Record(record) => (record.end_ns(), 0),
            Entry::Lost(lost) => (lost.time_ns, lost.records),
        })
    });
    entries.collect()
}

struct Container {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

fn container() -> (Container, Writer) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.trace");
    let writer = Writer::create(&path, opening(2)).unwrap();
    (Container { path, _directory: directory }, writer)
}

fn closed() -> Container {
    let (container, mut writer) = container();
    for end_ns in [100, 300, 500] {
        writer.append(0, &call(0, end_ns, 7, 0)).unwrap();
        writer.append(1, &call(1, end_ns + 100, 8, 0)).unwrap();
    }
    writer.close(closing(&[0, 0])).unwrap();
    container
}

#[test]
fn records_of_all_cpus_come_back_in_the_order_of_time() {
    let container = closed();
    let ends: Vec<_> = shown(&container.path).unwrap().into_iter().map(|(end_ns, _)| end_ns).collect();
    assert_eq!(ends, [100, 200, 300, 400, 500, 600]);
    let reader = Reader::open(&container.path).unwrap();
    assert!(reader.is_complete());
    assert_eq!(
        (reader.manifest().host.as_str(), reader.manifest().roots.as_slice()),
        ("host", [7].as_slice())
    );
}

#[test]
fn more_records_than_a_row_group_holds_come_back_as_they_went_in() {
    let (container, mut writer) = container();
    for end_ns in 100..70_100 {
        writer.append(0, &call(0, end_ns, 7, 0)).unwrap();
    }
    let manifest = writer.close(closing(&[0, 0])).unwrap();
    assert_eq!(manifest.segments.iter().map(|segment| segment.rows).sum::<u64>(), 70_000);
    assert!(shown(&container.path).unwrap().into_iter().map(|(end_ns, _)| end_ns).eq(100..70_100));
    let files: Vec<_> =
        fs::read_dir(&container.path).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(files.iter().all(|name| !name.to_string_lossy().ends_with(".spool")), "{files:?}");
}

#[test]
fn a_loss_is_told_once_whether_a_mark_a_field_or_the_last_counter_knew_it_first() {
    let (container, mut writer) = container();
    writer.append(0, &call(0, 100, 7, 0)).unwrap();
    writer.mark(0, 150, 40).unwrap();
    writer.append(0, &call(0, 200, 7, 60)).unwrap();
    writer.append(1, &call(1, 300, 8, 5)).unwrap();
    writer.close(closing(&[75, 5])).unwrap();
    let expected = [(100, 0), (150, 40), (200, 20), (200, 0), (200, 15), (300, 5), (300, 0)];
    assert_eq!(shown(&container.path).unwrap(), expected);
}

#[test]
fn a_recorder_that_was_killed_leaves_what_it_had_flushed() {
    let (container, mut writer) = container();
    writer.append(0, &call(0, 100, 7, 0)).unwrap();
    writer.append(1, &call(1, 90, 8, 0)).unwrap();
    writer.flush().unwrap();
    writer.append(0, &call(0, 200, 7, 0)).unwrap();
    // What a process killed by signal 9 does with its memory.
    std::mem::forget(writer);
    assert_eq!(shown(&container.path).unwrap(), [(90, 0), (100, 0)]);
    let reader = Reader::open(&container.path).unwrap();
    assert_eq!(reader.manifest().state, State::Recording);
    assert!(!reader.is_complete());
}

#[test]
fn a_torn_last_block_is_left_out_and_a_damaged_one_is_an_error() {
    let (container, mut writer) = container();
    for end_ns in [100, 200] {
        writer.append(0, &call(0, end_ns, 7, 0)).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    let spool = container.path.join("cpu0-000000.spool");
    let whole = fs::read(&spool).unwrap();
    for length in 0..whole.len() {
        fs::write(&spool, &whole[..length]).unwrap();
        let blocks = usize::from(length >= 8 + 16 + RECORD_BYTES);
        assert_eq!(shown(&container.path).unwrap().len(), blocks, "cut after {length} bytes");
    }
    let mut damaged = whole;
    damaged[50] ^= 1;
    fs::write(&spool, damaged).unwrap();
    let message = shown(&container.path).unwrap_err().to_string();
    assert!(message.contains("cpu0-000000.spool: damaged: block 0 is damaged; restore"), "{message}");
}

#[test]
fn what_is_in_the_way_of_a_container_is_not_overwritten() {
    let (container, _writer) = container();
    assert!(matches!(Writer::create(&container.path, opening(1)), Err(WriteError::Exists(_))));
}

#[test]
fn a_writer_that_was_given_nothing_takes_its_container_away_and_nothing_else() {
    let (first, writer) = container();
    drop(writer);
    assert!(!first.path.exists());
    let (second, mut writer) = container();
    writer.mark(1, 100, 0).unwrap();
    drop(writer);
    assert!(second.path.exists(), "it was given something");
    let (third, writer) = container();
    fs::write(third.path.join("notes"), "of somebody else").unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(&third.path).unwrap().count(), 1);
    let (fourth, writer) = container();
    writer.close(closing(&[0, 0])).unwrap();
    assert!(Reader::open(&fourth.path).unwrap().is_complete(), "a recording may well be empty");
}

#[test]
fn a_record_of_a_cpu_that_was_not_announced_is_refused() {
    let (_container, mut writer) = container();
    assert!(matches!(writer.append(2, &call(2, 100, 7, 0)), Err(WriteError::Cpu { cpu: 2, cpus: 2 })));
}

#[test]
fn errors_name_the_file_and_what_to_do() {
    let container = closed();
    let segment = container.path.join("cpu1-000000.parquet");
    let whole = fs::read(&segment).unwrap();
    let message = || shown(&container.path).unwrap_err().to_string();
    fs::write(&segment, &whole[1..]).unwrap();
    assert!(message().contains("cpu1-000000.parquet: damaged: its checksum"), "{}", message());
    fs::remove_file(&segment).unwrap();
    assert!(message().contains("cpu1-000000.parquet: No such file"), "{}", message());
    let manifest = container.path.join("manifest.json");
    fs::write(&manifest, r#"{"version":"assay.trace/2"}"#).unwrap();
    assert!(message().contains("the format is 'assay.trace/2'"), "{}", message());
    fs::write(&manifest, "{").unwrap();
    assert!(message().contains("the manifest is damaged"), "{}", message());
    fs::remove_file(&manifest).unwrap();
    assert!(message().contains("a trace is a directory with a manifest.json in it"), "{}", message());
}

/// Reads everything; only that it comes back matters.
fn survives(path: &Path) -> bool {
    shown(path).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_mutated_segment_is_refused(at in any::<prop::sample::Index>(), change in 1_u8..) {
        let container = closed();
        let segment = container.path.join("cpu0-000000.parquet");
        let mut bytes = fs::read(&segment).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        fs::write(&segment, bytes).unwrap();
        prop_assert!(!survives(&container.path));
    }

    #[test]
    fn a_truncated_segment_is_refused(length in any::<prop::sample::Index>()) {
        let container = closed();
        let segment = container.path.join("cpu0-000000.parquet");
        let bytes = fs::read(&segment).unwrap();
        fs::write(&segment, &bytes[..length.index(bytes.len())]).unwrap();
        prop_assert!(!survives(&container.path));
    }

    #[test]
    fn a_mutated_spool_or_manifest_never_panics(
        name in prop::sample::select(vec!["cpu0-000000.spool", "manifest.json"]),
        at in any::<prop::sample::Index>(), byte in any::<u8>(), length in any::<prop::sample::Index>(),
    ) {
        let (container, mut writer) = container();
        for end_ns in [100, 200, 300] {
            writer.append(0, &call(0, end_ns, 7, 1)).unwrap();
            writer.flush().unwrap();
        }
        drop(writer);
        let file = container.path.join(name);
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        fs::write(&file, &bytes).unwrap();
        survives(&container.path);
        fs::write(&file, &bytes[..length.index(bytes.len())]).unwrap();
        survives(&container.path);
    }
}
