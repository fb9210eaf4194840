//! Records a command and reads its trace back.

use std::{ffi::OsString, path::Path, process::ExitStatus};

use assay_trace::{Abi, Call, Entry, Event, Reader, Record, Writer, syscall};
use assay_trace_probe::{Held, Options, Recorded, Recorder, opening};

/// The program in `tests/exercise.rs`.
pub const EXERCISE: &str = env!("CARGO_BIN_EXE_assay-trace-exercise");

/// Everything about one recorded command.
pub struct Recording {
    pub status: ExitStatus,
    pub recorded: Recorded,
    pub process: u32,
    pub records: Vec<Record>,
    /// Gaps that the reader told of, summed.
    pub gaps: u64,
    pub complete: bool,
    _directory: tempfile::TempDir,
}

impl Recording {
    /// Finished calls of this name.
    pub fn calls(&self, name: &str) -> Vec<Call> {
        let number = syscall::number(name).unwrap();
        let call = |record: &Record| match record.event {
            Event::Call(call) if call.abi == Abi::Native && call.number == number => Some(call),
            _ => None,
        };
        self.records.iter().filter_map(call).collect()
    }
}

pub fn record(command: &[&str]) -> Recording {
    record_with(command, Options::default())
}

pub fn record_with(command: &[&str], options: Options) -> Recording {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.trace");
    let writer =
        Writer::create(&path, opening(command.iter().map(|&word| word.into()).collect()).unwrap()).unwrap();
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let held = Held::fork(&command).unwrap();
    let process = held.process();
    let recorder = Recorder::attach(process, options, writer).unwrap();
    let status = held.release().unwrap().wait().unwrap();
    let recorded = recorder.stop().unwrap();
    let (records, gaps, complete) = read(&path);
    Recording { status, recorded, process, records, gaps, complete, _directory: directory }
}

pub fn read(path: &Path) -> (Vec<Record>, u64, bool) {
    let reader = Reader::open(path).unwrap();
    let complete = reader.is_complete();
    let (mut records, mut gaps) = (Vec::new(), 0);
    for entry in reader {
        match entry.unwrap() {
            Entry::Record(record) => records.push(record),
            Entry::Lost(lost) => gaps += lost.records,
        }
    }
    (records, gaps, complete)
}
