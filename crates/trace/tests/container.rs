//! The container: written and read back, killed during a recording, truncated and mutated.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use assay_trace::{
    Call, Entry, Event, Opening, Reader, Record, Wakeups, Writer,
    container::{Closing, CpuCounters, Origin, ReadError, State, WriteError, layout::RECORD_BYTES},
};
use proptest::prelude::*;

fn opening(cpus: u16) -> Opening {
    Opening {
        origin: Origin::Probe,
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
    Closing { monotonic_ns: 9_000, drained: true, untracked_threads: 0, counters, skipped_lines: 0 }
}

/// Returns a `read` of thread `thread` that ended at `end_ns` after 10 ns, with `lost` records lost before
/// it.
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

/// Returns the end times of the records and the losses, in order.
fn shown(path: &Path) -> Result<Vec<(u64, u64)>, ReadError> {
    let entries = Reader::open(path)?.map(|entry| {
        Ok(match entry? {
            Entry::Record(record, _) => (record.end_ns(), 0),
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
fn records_of_all_cpus_are_read_in_time_order() {
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
fn more_records_than_a_row_group_are_read_as_written() {
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
fn a_loss_is_reported_once_from_a_mark_a_field_or_the_final_counter() {
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
fn every_field_of_a_call_is_read_as_written() {
    let mut bytes = call(0, 100, 7, 0);
    // Wake-ups were recorded.
    bytes[142] = 32;
    for (field, value) in bytes[144..].chunks_exact_mut(4).zip(1_u32..) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    let written = Wakeups {
        idle_ns: (2 << 32) + 1,
        woken_idle_ns: (4 << 32) + 3,
        idle_sleeps: 5,
        woken_same: 6,
        woken_busy: 7,
        woken_idle: 8,
    };
    let (container, mut writer) = container();
    writer.append(0, &bytes).unwrap();
    writer.flush().unwrap();
    assert_eq!(calls(&container.path)[0].wakeups, Some(written), "in a spool");
    writer.close(closing(&[0, 0])).unwrap();
    assert_eq!(calls(&container.path)[0].wakeups, Some(written), "in a segment");
    let manifest = container.path.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let without_origin =
        text.replace("  \"origin\": \"probe\",\n", "").replace("  \"skipped_lines\": 0,\n", "");
    assert!(without_origin.len() + 40 < text.len(), "{text}");
    fs::write(&manifest, without_origin.replace("assay.trace/3", "assay.trace/2")).unwrap();
    assert_eq!(calls(&container.path)[0].wakeups, Some(written), "in version 2");
    assert_eq!(Reader::open(&container.path).unwrap().manifest().origin, Origin::Probe);
    // A call of version 1 has none, even if its flags claim it.
    fs::write(&manifest, without_origin.replace("assay.trace/3", "assay.trace/1")).unwrap();
    assert_eq!(calls(&container.path)[0].wakeups, None);
}

/// Returns the calls of a container without gaps.
fn calls(path: &Path) -> Vec<Call> {
    let entries = Reader::open(path).unwrap().map(Result::unwrap);
    let call = |entry| match entry {
        Entry::Record(Record { event: Event::Call(call), .. }, _) => Some(call),
        Entry::Record(..) => None,
        Entry::Lost(lost) => panic!("{lost:?}"),
    };
    entries.filter_map(call).collect()
}

/// Containers of real programs: `sh -c 'true | cat'` and `sleep 2`, whose recorder was killed (without the
/// empty spool of the second CPU), by the last program that wrote version 1, and `sh -c 'true | cat; sleep
/// 0.01'`.
#[test]
fn containers_of_both_versions_are_read_and_only_the_calls_of_the_second_have_wake_ups() {
    for (name, complete, records, elapsed_ns, count, idle_sleeps) in [
        ("version-1/closed", true, 404, 2_452_685, 192, None),
        ("version-1/killed", false, 182, 677_216, 106, None),
        ("version-2/closed", true, 609, 23_078_381, 319, Some(4)),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.is_complete(), complete, "{name}");
        assert_eq!(reader.count(), records, "{name}");
        let found = calls(&path);
        let total_ns: u64 = found.iter().map(|call| call.elapsed_ns).sum();
        assert_eq!((found.len(), total_ns), (count, elapsed_ns), "{name}");
        let recorded = found.iter().filter_map(|call| call.wakeups);
        let sum = recorded.map(|wakeups| wakeups.idle_sleeps).reduce(|sum, sleeps| sum + sleeps);
        assert_eq!(sum, idle_sleeps, "{name}");
    }
}

/// A container of `sh -c ': < /etc/passwd; : < /lll…'`, with a name of 60 letters.
#[test]
fn calls_of_a_stored_container_have_the_contents_of_their_arguments() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-2/contents");
    let mut found = Vec::new();
    for entry in Reader::open(&path).unwrap() {
        let Entry::Record(record, contents) = entry.unwrap() else { panic!("nothing was lost") };
        let Event::Call(call) = record.event else { continue };
        for content in contents {
            let text = String::from_utf8(content.bytes).unwrap();
            found.push((call.name().into_owned(), content.argument, text, content.is_cut));
        }
    }
    let long = format!("/{}", "l".repeat(60));
    let due = [
        ("access", 0, "/etc/ld.so.preload"),
        ("openat", 1, "/etc/ld.so.cache"),
        ("newfstatat", 1, ""),
        ("openat", 1, "/lib/x86_64-linux-gnu/libc.so.6"),
        ("newfstatat", 1, ""),
        ("openat", 1, "/etc/passwd"),
        ("openat", 1, &long),
    ];
    assert_eq!(found, due.map(|(name, argument, text)| (name.to_owned(), argument, text.to_owned(), false)));
}

#[test]
fn a_killed_recorder_leaves_its_flushed_records() {
    let (container, mut writer) = container();
    writer.append(0, &call(0, 100, 7, 0)).unwrap();
    writer.append(1, &call(1, 90, 8, 0)).unwrap();
    writer.flush().unwrap();
    writer.append(0, &call(0, 200, 7, 0)).unwrap();
    // Like the memory of a process killed by signal 9: no destructor runs.
    std::mem::forget(writer);
    assert_eq!(shown(&container.path).unwrap(), [(90, 0), (100, 0)]);
    let reader = Reader::open(&container.path).unwrap();
    assert_eq!(reader.manifest().state, State::Recording);
    assert!(!reader.is_complete());
}

#[test]
fn an_incomplete_last_block_is_skipped_and_a_damaged_block_is_an_error() {
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
fn entries_before_a_damaged_block_are_returned_and_those_after_it_are_not() {
    let (container, mut writer) = container();
    for end_ns in [100, 200, 300] {
        writer.append(0, &call(0, end_ns, 7, 0)).unwrap();
        writer.append(1, &call(1, end_ns + 1, 8, 0)).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    let spool = container.path.join("cpu0-000000.spool");
    let mut bytes = fs::read(&spool).unwrap();
    let second = bytes.len() - 2 * (16 + RECORD_BYTES);
    bytes[second + 50] ^= 1;
    fs::write(&spool, bytes).unwrap();
    let mut reader = Reader::open(&container.path).unwrap();
    assert!(matches!(reader.next_entry(), Ok(Some(Entry::Record(record, _))) if record.end_ns() == 100));
    assert!(matches!(reader.next_entry(), Err(ReadError::Damaged { .. })));
    assert!(matches!(reader.next_entry(), Ok(None)));
    assert!(reader.next().is_none());
}

#[test]
fn an_existing_path_is_not_overwritten() {
    let (container, _writer) = container();
    assert!(matches!(Writer::create(&container.path, opening(1)), Err(WriteError::Exists(_))));
}

#[test]
fn a_writer_without_records_removes_its_container_and_nothing_else() {
    let (first, writer) = container();
    drop(writer);
    assert!(!first.path.exists());
    let (second, mut writer) = container();
    writer.mark(1, 100, 0).unwrap();
    drop(writer);
    assert!(second.path.exists(), "it contains a record");
    let (third, writer) = container();
    fs::write(third.path.join("notes"), "of another program").unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(&third.path).unwrap().count(), 1);
    let (fourth, writer) = container();
    writer.close(closing(&[0, 0])).unwrap();
    assert!(Reader::open(&fourth.path).unwrap().is_complete(), "a closed recording may be empty");
}

#[test]
fn a_record_of_an_unexpected_cpu_is_rejected() {
    let (_container, mut writer) = container();
    assert!(matches!(writer.append(2, &call(2, 100, 7, 0)), Err(WriteError::Cpu { cpu: 2, cpus: 2 })));
}

#[test]
fn errors_contain_the_file_and_a_remedy() {
    let container = closed();
    let segment = container.path.join("cpu1-000000.parquet");
    let whole = fs::read(&segment).unwrap();
    let message = || shown(&container.path).unwrap_err().to_string();
    fs::write(&segment, &whole[1..]).unwrap();
    assert!(message().contains("cpu1-000000.parquet: damaged: its checksum"), "{}", message());
    fs::remove_file(&segment).unwrap();
    assert!(message().contains("cpu1-000000.parquet: No such file"), "{}", message());
    let manifest = container.path.join("manifest.json");
    fs::write(&manifest, r#"{"version":"assay.trace/4"}"#).unwrap();
    assert!(message().contains("the format is 'assay.trace/4'"), "{}", message());
    fs::write(&manifest, "{").unwrap();
    assert!(message().contains("the manifest is damaged"), "{}", message());
    fs::remove_file(&manifest).unwrap();
    assert!(message().contains("a trace is a directory that contains manifest.json"), "{}", message());
}

/// Reads the whole container without a panic; returns whether it succeeded.
fn survives(path: &Path) -> bool {
    shown(path).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pieces of contents in any order, between calls at any time.
    #[test]
    fn contents_of_any_pieces_are_read_and_are_those_of_a_call(
        pieces in prop::collection::vec((any::<bool>(), 0_u64..3, 0_u8..7, 0_i64..200), 0..30),
    ) {
        let (container, mut writer) = container();
        let is_readable = pieces.iter().all(|(is_call, _, argument, _)| *is_call || *argument < 6);
        for (is_call, end_ns, argument, left) in pieces {
            let mut bytes = call(0, 100 + end_ns, 7, 0);
            if !is_call {
                bytes[0..8].copy_from_slice(&(100 + end_ns).to_le_bytes());
                bytes[8..16].fill(0);
                bytes[48..96].fill(b'a' + u8::try_from(end_ns).unwrap());
                bytes[96..104].copy_from_slice(&left.to_le_bytes());
                bytes[104] = argument;
                bytes[138] = 9;
            }
            writer.append(0, &bytes).unwrap();
        }
        writer.close(closing(&[0, 0])).unwrap();
        let read: Result<Vec<_>, _> = Reader::open(&container.path).and_then(Iterator::collect);
        prop_assert_eq!(read.is_ok(), is_readable);
        for entry in read.unwrap_or_default() {
            let Entry::Record(record, contents) = entry else { panic!("{entry:?}") };
            let letter = b'a' + u8::try_from(record.end_ns() - 100).unwrap();
            for content in &contents {
                prop_assert!(content.bytes.iter().all(|byte| *byte == letter), "{content:?} {record:?}");
            }
            let arguments: std::collections::BTreeSet<u8> = contents.iter().map(|it| it.argument).collect();
            prop_assert_eq!(arguments.len(), contents.len(), "{:?}", contents);
        }
    }

    #[test]
    fn a_mutated_segment_is_rejected(at in any::<prop::sample::Index>(), change in 1_u8..) {
        let container = closed();
        let segment = container.path.join("cpu0-000000.parquet");
        let mut bytes = fs::read(&segment).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        fs::write(&segment, bytes).unwrap();
        prop_assert!(!survives(&container.path));
    }

    #[test]
    fn a_truncated_segment_is_rejected(length in any::<prop::sample::Index>()) {
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
