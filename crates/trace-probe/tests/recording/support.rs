//! Records a command and reads its trace.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use assay_process::Exit;
use assay_trace::{
    Abi, Call, Content, Entry, Event, Reader, Record, Writer, container::layout::CONTENT_PIECE, syscall,
};
use assay_trace_probe::{Held, Options, Recorded, Recorder, Streams, opening};

/// The program in `tests/exercise.rs`.
pub const EXERCISE: &str = env!("CARGO_BIN_EXE_assay-trace-exercise");

/// Results of one recorded command.
pub struct Recording {
    pub exit: Exit,
    pub recorded: Recorded,
    pub process: u32,
    pub records: Vec<Record>,
    pub contents: Vec<Content>,
    /// Sum of the gaps that the reader reported.
    pub gaps: u64,
    pub complete: bool,
    pub path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Recording {
    /// Returns the number of records that the contents take.
    pub fn content_records(&self) -> usize {
        self.contents.iter().map(|content| content.bytes.len().div_ceil(CONTENT_PIECE).max(1)).sum()
    }

    /// Returns the finished calls with this name.
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
    record_while(command, options, |_| ())
}

/// Calls `act` with the process id of the command while it runs and is recorded.
pub fn record_while(command: &[&str], options: Options, act: impl FnOnce(u32)) -> Recording {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.trace");
    let writer =
        Writer::create(&path, opening(command.iter().map(|&word| word.into()).collect()).unwrap()).unwrap();
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let held = Held::fork(&command, Streams::Inherit).unwrap();
    let process = held.process();
    let recorder = Recorder::attach(process, options, writer).unwrap();
    let running = held.release().unwrap();
    act(process);
    let exit = running.wait().unwrap().exit;
    let recorded = recorder.stop().unwrap();
    let (records, gaps, complete) = read(&path);
    let contents = Reader::open(&path).unwrap().filter_map(|entry| match entry.unwrap() {
        Entry::Record(_, contents) => Some(contents),
        Entry::Lost(_) => None,
    });
    let contents = contents.flatten().collect();
    Recording { exit, recorded, process, records, contents, gaps, complete, path, _directory: directory }
}

/// Polls a condition that becomes true after a short time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("timeout while waiting until {what}");
}

/// Waits until the kernel reports that the process is in this call.
pub fn wait_until_in(call: &str, process: u32) {
    let number = format!("{} ", syscall::number(call).unwrap());
    wait_until(&format!("process {process} is in {call}"), || {
        fs::read_to_string(format!("/proc/{process}/syscall")).is_ok_and(|text| text.starts_with(&number))
    });
}

/// Returns the processes that a single-threaded process forked.
pub fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

pub fn kill(process: u32, signal: i32) {
    // SAFETY: the arguments are numbers.
    assert_eq!(unsafe { libc::kill(process.cast_signed(), signal) }, 0);
}

pub fn read(path: &Path) -> (Vec<Record>, u64, bool) {
    let reader = Reader::open(path).unwrap();
    let complete = reader.is_complete();
    let (mut records, mut gaps) = (Vec::new(), 0);
    for entry in reader {
        match entry.unwrap() {
            Entry::Record(record, _) => records.push(record),
            Entry::Lost(lost) => gaps += lost.records,
        }
    }
    (records, gaps, complete)
}
