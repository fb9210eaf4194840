//! `assay guard --log`: each decision of the law as a line of JSON, and what it was made of.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
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
    writer: JoinHandle<u64>,
    /// Lines that found no place.
    lost: u64,
}

impl Log {
    /// Opens a file, to which the log is appended.
    pub fn open(path: &Path, law: &Law) -> anyhow::Result<Self> {
        let name = path.display();
        // To open a pipe would wait for its reader.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            bail!("the log {name} is no regular file; give another path");
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("cannot open the log {name}"))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                bail!("the log {name} is in use by another guard; give another path")
            }
            // A file system without locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let begun_at = jiff::Timestamp::now().to_string();
        let head = json!({ "format": FORMAT, "law": law.name, "begun_at": begun_at });
        write(&mut file, &format!("{head}\n")).with_context(|| format!("cannot write to the log {name}"))?;
        let (lines, receiver) = sync_channel(WAITING);
        let writer =
            thread::Builder::new().name("assay-log".to_owned()).spawn(move || write_all(file, &receiver));
        Ok(Self { lines, writer: writer.context("cannot start the thread of the log")?, lost: 0 })
    }

    /// Adds a line, or counts it as lost.
    pub fn add(&mut self, moment: &Moment) {
        self.lost += u64::from(self.lines.try_send(format!("{}\n", line(moment))).is_err());
    }

    /// Waits until all is written, and returns the number of lines that are lost; `None` if that is not known.
    pub fn close(self) -> Option<u64> {
        drop(self.lines);
        Some(self.lost + self.writer.join().ok()?)
    }
}

/// Writes lines as they come, and returns how many could not be written. It says so at the first one.
fn write_all(mut file: File, lines: &Receiver<String>) -> u64 {
    let mut lost = 0;
    for line in lines {
        if let Err(error) = write(&mut file, &line) {
            if lost == 0 {
                output::say(&format!(
                    "cannot write to the log: {error}; the report counts the missing lines"
                ));
            }
            lost += 1;
        }
    }
    lost
}

/// Writes a line as a whole, or not at all.
fn write(file: &mut File, line: &str) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(line.as_bytes()).inspect_err(|_| {
        // If that fails, too, the next line is joined to part of this one.
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
