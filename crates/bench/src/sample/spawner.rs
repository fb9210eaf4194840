//! Takes each sample in its own process, the unit of replication (Kalibera and Jones, ISMM 2013).
//!
//! The parent starts a program that the caller chooses, with one additional argument, a `Request` in JSON.
//! The program passes it to [`sample_main`](super::sample_main), which measures and writes one line of JSON.
//! Any failure (a crash, a hang, an invalid line) gives a rejected sample with its reason. The wire types are
//! separate from the types used in computations.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use assay_process::clock::BRIEFLY;
use assay_process::{Child, Exit};
use assay_quantity::{Counted, Observation, Sample};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::seed::{self, Purpose};
use super::wire::{Answer, Request, WireBatch, WireCaches, WireSample};
use crate::benchmark::Benchmark;
use crate::platform::clock::{Calibration, Source, monotonic};
use crate::platform::describe::CacheSizes;
use crate::platform::layout;

/// How a sample ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The process measured a sample.
    Sample(Sample),
    /// The process failed, for this reason.
    Rejected(String),
    /// The primitive is not available on this machine, for this reason.
    Unavailable(String),
    /// The process was stopped.
    Stopped,
}

/// Starts the measuring processes.
#[derive(Debug, Clone)]
pub struct Spawner {
    /// The program to execute.
    pub program: PathBuf,
    /// Its arguments before the request.
    pub arguments: Vec<OsString>,
}

/// The settings of one sample, without the benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    pub(crate) seed: u64,
    pub(crate) cpu: usize,
    pub(crate) other_cpu: Option<usize>,
    /// Directory of this sample only.
    pub(crate) directory: &'a Path,
    /// Directory for all samples of the run.
    pub(crate) shared_directory: &'a Path,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) clock: &'a Calibration,
    pub(crate) limit: Duration,
    /// If set, one batch of this multiple of the fixed length is counted instead of timed.
    pub(crate) counted: Option<u64>,
    /// Whether to read the counters of the processor and the kernel.
    pub(crate) counters: bool,
    /// Effective sizes of the caches; if `None`, the reported sizes are used.
    pub(crate) effective: Option<CacheSizes>,
}

/// Interval at which the parent checks whether to stop. Each check costs a few microseconds on the parent's
/// processor; at most one falls within a sample of 20 ms.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Spawner {
    /// Takes one sample of a benchmark in a new process.
    pub(crate) fn sample(
        &self,
        benchmark: &Benchmark,
        circumstances: Circumstances<'_>,
        stop: &AtomicBool,
    ) -> Outcome {
        let mut running = match self.start(benchmark, circumstances) {
            Ok(running) => running,
            Err(error) => {
                return Outcome::Rejected(format!("cannot start {}: {error}", self.program.display()));
            }
        };
        match running.wait(circumstances.limit, stop) {
            Ok(Ended::Exited(exit)) => answer(&running.said, exit, circumstances.seed),
            Ok(Ended::Stopped) => Outcome::Stopped,
            Ok(Ended::TimedOut) => {
                Outcome::Rejected(format!("it did not end within {:.1} s", circumstances.limit.as_secs_f64()))
            }
            Err(error) => Outcome::Rejected(format!("cannot wait for its process: {error}")),
        }
    }

    fn start(&self, benchmark: &Benchmark, circumstances: Circumstances<'_>) -> io::Result<Running> {
        let request = Request {
            primitive: benchmark.primitive.to_string(),
            seed: circumstances.seed,
            cpu: circumstances.cpu,
            other_cpu: circumstances.other_cpu,
            directory: circumstances.directory.to_owned(),
            shared_directory: circumstances.shared_directory.to_owned(),
            peer: circumstances.peer,
            counted: circumstances.counted,
            snapshots: None,
            counters: circumstances.counters,
            effective: circumstances.effective.map(WireCaches::from),
            ticks_per_ns: match circumstances.clock.source {
                Source::Counter { ticks_per_ns } => Some(ticks_per_ns),
                Source::MonotonicRaw => None,
            },
            resolution_ns: circumstances.clock.resolution_ns,
        };
        let mut environment = seed::stream(circumstances.seed, Purpose::Environment);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(serde_json::to_string(&request)?);
        command.env_clear().env("PATH", "/usr/bin:/bin");
        command.env("ASSAY_LAYOUT", layout::environment(&mut environment));
        // A separate process group, so that partners end with it, and Ctrl-C reaches only the parent.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut started = command.spawn()?;
        let output = started.stdout.take();
        Ok(Running { child: Child::from(started).with_group(), output, said: Vec::new() })
    }
}

enum Ended {
    Exited(Exit),
    TimedOut,
    Stopped,
}

/// A started process. Dropping it ends the process, its descendants and its process group.
struct Running {
    child: Child,
    /// `None` after end of file.
    output: Option<ChildStdout>,
    said: Vec<u8>,
}

impl Running {
    /// Reads its output until it ends, the time is over or `stop` is set.
    fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> io::Result<Ended> {
        let begun = monotonic::now_ns();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(Ended::Stopped);
            }
            if Duration::from_nanos(monotonic::now_ns() - begun) > limit {
                return Ok(Ended::TimedOut);
            }
            if let Some(output) = &mut self.output {
                if is_ready(output)? && read_part(output, &mut self.said)? == 0 {
                    self.output = None;
                }
            } else if let Some(exit) = self.child.exit()? {
                return Ok(Ended::Exited(exit));
            } else {
                thread::sleep(BRIEFLY);
            }
        }
    }
}

/// Waits for at most [`LOOK`], and returns whether output or end of file can be read.
fn is_ready(output: &ChildStdout) -> io::Result<bool> {
    match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&LOOK)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Appends the available output to `said`, and returns its length, zero at end of file.
fn read_part(output: &mut ChildStdout, said: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 4096];
    let length = output.read(&mut part)?;
    said.extend_from_slice(&part[..length]);
    Ok(length)
}

/// Reads the answer of a measuring process that has ended like this.
pub(crate) fn answer(output: &[u8], exit: Exit, seed: u64) -> Outcome {
    if !exit.is_success() {
        return Outcome::Rejected(format!("its process {exit}"));
    }
    match serde_json::from_slice(output) {
        Ok(Answer::Sample(sample)) => Outcome::Sample(received(sample, seed)),
        Ok(Answer::Unavailable(reason)) => Outcome::Unavailable(reason),
        Ok(Answer::Failed(reason)) => Outcome::Rejected(reason),
        Err(error) => Outcome::Rejected(format!("its process did not answer with a sample: {error}")),
    }
}

fn received(sample: WireSample, seed: u64) -> Sample {
    let batches = |batches: Vec<WireBatch>| batches.into_iter().map(Observation::from).collect();
    Sample {
        seed,
        observations: batches(sample.observations),
        baseline: batches(sample.baseline),
        refused: sample.refused,
        evidence: sample.evidence.into_iter().collect(),
        counted: sample.counted.into_iter().map(|(event, batches)| Counted { event, batches }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_answer_is_rejected_with_its_reason() {
        let reason = |output: &str, exit| match answer(output.as_bytes(), exit, 1) {
            Outcome::Rejected(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason("", Exit::Status(0)).contains("did not answer"));
        assert!(reason("{\"sample\":{}}", Exit::Status(0)).contains("did not answer"));
        assert!(reason("{\"failed\":\"accept4: EMFILE\"}", Exit::Status(0)).contains("EMFILE"));
        assert!(reason("{\"failed\":\"x\"} more", Exit::Status(0)).contains("did not answer"));
        assert!(reason("", Exit::Status(3)).contains("ended with status 3"));
        assert!(reason("", Exit::Signal(11)).contains("signal 11"));
    }
}
