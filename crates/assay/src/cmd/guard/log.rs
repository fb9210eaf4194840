//! `assay guard --log`: each decision of the law as a line of JSON, and what it was made of.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, bail};
use assay_proxy::Level;
use assay_proxy::control::Moment;
use assay_reflect::law::Law;
use serde::Serialize;

use crate::output::{self, ns};

/// Name and number of the format.
const FORMAT: &str = "assay.guard/1";

/// The first line.
#[derive(Serialize)]
struct Head {
    format: &'static str,
    law: &'static str,
    /// What the limit counts.
    level: &'static str,
    /// The time of day.
    begun_at: String,
}

/// A period.
#[derive(Serialize)]
struct Line {
    /// Since the beginning.
    end_ns: u64,
    length_ns: u64,
    limit: u32,
    finished: u64,
    failed: u64,
    in_flight: f64,
    waiting: f64,
    latency_ns: Option<u64>,
    oldest_ns: Option<u64>,
    cpu_ns: Option<u64>,
    next_limit: u32,
    reason: &'static str,
}

impl Line {
    fn of(Moment { end, limit, signal, decision }: &Moment) -> Self {
        Self {
            end_ns: ns(*end),
            length_ns: ns(signal.period),
            limit: limit.units(),
            finished: signal.finished,
            failed: signal.failed,
            in_flight: signal.in_flight,
            waiting: signal.waiting,
            latency_ns: signal.latency.map(ns),
            oldest_ns: signal.oldest.map(ns),
            cpu_ns: signal.overhead.cpu.map(ns),
            next_limit: decision.limit.units(),
            reason: decision.reason,
        }
    }
}

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
    pub fn open(path: &Path, law: &'static Law, level: Level) -> anyhow::Result<Self> {
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
        let head = json(&Head { format: FORMAT, law: law.name, level: level.name(), begun_at });
        let head = if ends_inside_a_line(path).unwrap_or(false) { format!("\n{head}") } else { head };
        write(&mut file, &head).with_context(|| format!("cannot write to the log {name}"))?;
        let (lines, receiver) = sync_channel(WAITING);
        let writer =
            thread::Builder::new().name("assay-log".to_owned()).spawn(move || write_all(file, &receiver));
        Ok(Self { lines, writer: writer.context("cannot start the thread of the log")?, lost: 0 })
    }

    /// Adds a line, or counts it as lost.
    pub fn add(&mut self, moment: &Moment) {
        self.lost += u64::from(self.lines.try_send(json(&Line::of(moment))).is_err());
    }

    /// Waits until all is written, and returns the number of lines that are lost.
    pub fn close(self) -> u64 {
        drop(self.lines);
        self.lost + self.writer.join().expect("the thread of the log does not panic")
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

/// Whether the last guard was ended in the middle of a line.
fn ends_inside_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Writes a line as a whole, or not at all.
fn write(file: &mut File, line: &str) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(line.as_bytes()).inspect_err(|_| {
        // If that fails, too, the next line is joined to part of this one.
        let _ = file.set_len(before);
    })
}

fn json(record: &impl Serialize) -> String {
    let json = serde_json::to_string(record).expect("numbers and strings have a form in JSON");
    json + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use assay_reflect::law::{Decision, Limit};
    use assay_reflect::{Overhead, Signal};
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_format_is_a_line_for_the_guard_and_one_for_each_period() {
        let ms = Duration::from_millis;
        let signal = Signal {
            period: ms(100),
            finished: 50,
            failed: 1,
            in_flight: 3.5,
            waiting: 12.0,
            latency: Some(ms(7)),
            oldest: None,
            overhead: Overhead { cpu: Some(ms(150)), ..Overhead::default() },
        };
        let decision = Decision { limit: Limit::nearest(8.0), reason: "compares two limits" };
        let moment = Moment { end: ms(300), limit: Limit::nearest(4.0), signal, decision };
        let (level, begun_at) = (Level::Transactions.name(), "2026-01-02T03:04:05Z".to_owned());
        let head = Head { format: FORMAT, law: "knee", level, begun_at };
        expect![[r#"
            {"format":"assay.guard/1","law":"knee","level":"transactions","begun_at":"2026-01-02T03:04:05Z"}
            {"end_ns":300000000,"length_ns":100000000,"limit":4,"finished":50,"failed":1,"in_flight":3.5,"waiting":12.0,"latency_ns":7000000,"oldest_ns":null,"cpu_ns":150000000,"next_limit":8,"reason":"compares two limits"}
        "#]]
        .assert_eq(&(json(&head) + &json(&Line::of(&moment))));
    }
}
