//! `assay guard --log`: each decision of the law as a line of JSON, and what it was made of.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use assay_proxy::control::Moment;
use assay_reflect::law::Law;
use serde_json::{Value, json};

use crate::output;

/// Name and number of the format.
const FORMAT: &str = "assay.guard/1";

/// Lines that may wait to be written: a hundred seconds of a law with a period of 100 ms.
const WAITING: usize = 1000;

/// A log, which a thread writes: no session waits for a disk.
pub struct Log {
    lines: SyncSender<String>,
    writer: JoinHandle<Written>,
    /// Lines that found no place.
    lost: u64,
}

/// What the thread did.
#[derive(Default)]
struct Written {
    /// Lines that could not be written.
    lost: u64,
    first_error: Option<io::Error>,
}

impl Log {
    /// Opens a file, to which the log is appended.
    pub fn open(path: &Path, law: &Law) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("cannot open the log {}", path.display()))?;
        let begun_at = jiff::Timestamp::now().to_string();
        let head = json!({ "format": FORMAT, "law": law.name, "begun_at": begun_at });
        write(&mut file, &format!("{head}\n"))
            .with_context(|| format!("cannot write to the log {}", path.display()))?;
        let (lines, receiver) = sync_channel(WAITING);
        let writer =
            thread::Builder::new().name("assay-log".to_owned()).spawn(move || write_all(file, &receiver));
        Ok(Self { lines, writer: writer.context("cannot start the thread of the log")?, lost: 0 })
    }

    /// Adds a line, or counts it as lost.
    pub fn add(&mut self, moment: &Moment) {
        self.lost += u64::from(self.lines.try_send(format!("{}\n", line(moment))).is_err());
    }

    /// Waits until all is written, and returns the number of lines that are lost.
    pub fn close(self) -> u64 {
        drop(self.lines);
        let written = self.writer.join().unwrap_or_default();
        if let Some(error) = written.first_error {
            output::say(&format!("cannot write to the log: {error}"));
        }
        self.lost + written.lost
    }
}

fn write_all(mut file: File, lines: &Receiver<String>) -> Written {
    let mut written = Written::default();
    for line in lines {
        if let Err(error) = write(&mut file, &line) {
            written.lost += 1;
            written.first_error.get_or_insert(error);
        }
    }
    written
}

/// Writes a line as a whole, or not at all.
fn write(file: &mut File, line: &str) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(line.as_bytes()).inspect_err(|_| {
        // What is not a file, as a pipe, cannot be cut.
        let _ = file.set_len(before);
    })
}

fn line(moment: &Moment) -> Value {
    let signal = &moment.signal;
    json!({
        "end_ns": ns(moment.end),
        "length_ns": ns(signal.period),
        "limit": moment.limit.units(),
        "finished": signal.finished,
        "failed": signal.failed,
        "in_flight": signal.in_flight,
        "waiting": signal.waiting,
        "latency_ns": signal.latency.map(ns),
        "oldest_ns": signal.oldest.map(ns),
        "cpu_ns": signal.overhead.cpu.map(ns),
        "next_limit": moment.decision.limit.units(),
        "reason": moment.decision.reason,
    })
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
