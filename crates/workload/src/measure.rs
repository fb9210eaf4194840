//! What does one operation cost the server? Rounds of a fixed number of requests against a server that nobody
//! traces: elapsed time from the client, CPU time from the kernel's accounting, both raw. No statistics here:
//! what the rounds mean together is for `assay-quantity` to say.

use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use thiserror::Error;

use crate::client::{Load, LoadError};
use crate::clock::now;
use crate::cpu::{CpuError, CpuTime};
use crate::group::Exit;
use crate::server::Server;
use crate::workload::Operation;

/// After a round the server may still have something to do (to write its log, to close connections). It has
/// settled when it uses no CPU time for this long.
const QUIET: Duration = Duration::from_millis(3);

/// A server that never settles works on its own account; after this long its time is taken as it is.
const SETTLE_MAX: Duration = Duration::from_millis(200);

/// A dying server's connections close before the process counts as ended; this much later it does.
const DEATH: Duration = Duration::from_millis(200);

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Requests before the first round, not measured; `None` for as many as in a round.
    pub warm_up_requests: Option<NonZeroU64>,
    /// Requests in a round; `None` for as many as the operation says.
    pub requests: Option<NonZeroU64>,
    /// Rounds.
    pub rounds: NonZeroU32,
}

/// One round, raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// What the client saw.
    pub load: Load,
    /// CPU time of the server, all its processes.
    pub server: CpuTime,
    /// How many CPUs the server could keep busy at once.
    pub usable_cpus: NonZeroU32,
}

/// Rounds that could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A load failed.
    #[error("operation '{operation}': {source}")]
    Load {
        /// The operation.
        operation: String,
        /// Why.
        source: LoadError,
    },
    /// The server ended meanwhile.
    #[error("operation '{operation}': the server {exit}; it said: {last_words}")]
    ServerEnded {
        /// The operation.
        operation: String,
        /// How it ended.
        exit: Exit,
        /// The last lines of its output.
        last_words: String,
    },
    /// The server's CPU time is not known.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The server's CPU time went down.
    #[error(
        "operation '{operation}': a process of the server vanished and took the count of its CPU time along"
    )]
    CpuLost {
        /// The operation.
        operation: String,
    },
    /// The server's state is not known.
    #[error("cannot see whether the server still runs: {0}")]
    Server(#[from] io::Error),
}

/// Warms the server up with `operation`, then measures the rounds. `on_progress` is told the number of the round
/// (0 is the warm-up) and of the requests answered in it.
pub fn measure(
    server: &Server,
    operation: &Operation,
    plan: &Plan,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u32, u64),
) -> Result<Vec<Round>, MeasureError> {
    let warm_up = plan.warm_up_requests.or(plan.requests);
    load(server, operation, warm_up, stop, &mut |answered| on_progress(0, answered))?;
    let mut rounds = Vec::new();
    for round in 1..=plan.rounds.get() {
        let before = settled(server)?;
        let load =
            load(server, operation, plan.requests, stop, &mut |answered| on_progress(round, answered))?;
        let used = settled(server)?.since(&before);
        let used = used.ok_or_else(|| MeasureError::CpuLost { operation: operation.name.clone() })?;
        rounds.push(Round { load, server: used, usable_cpus: server.usable_cpus() });
    }
    Ok(rounds)
}

impl Round {
    /// Requests answered in a second.
    pub fn requests_per_second(&self) -> f64 {
        self.load.requests as f64 * 1e9 / self.load.elapsed_ns.max(1) as f64
    }

    /// The server's CPU time for one request, in ns.
    pub fn cpu_ns_per_request(&self) -> f64 {
        self.server.total_ns as f64 / self.load.requests as f64
    }

    /// The part of it in user mode; `None` if the round was shorter than a clock tick.
    pub fn user_ns_per_request(&self) -> Option<f64> {
        Some(self.server.user_ns()? as f64 / self.load.requests as f64)
    }

    /// The part of it in the kernel; `None` if the round was shorter than a clock tick.
    pub fn system_ns_per_request(&self) -> Option<f64> {
        Some(self.server.system_ns()? as f64 / self.load.requests as f64)
    }

    /// The part of the time during which the server did not use the CPUs that it could use: 0 is a server that
    /// is the bottleneck, 0.5 one that waits half of the time for its client. A little below 0 is possible,
    /// because the server's last work comes after the client's last answer. Time in which the server could have run
    /// and something else had its CPU counts as idle here; [`Round::displaced_share`] tells it apart.
    pub fn idle_share(&self) -> f64 {
        1.0 - self.server.total_ns as f64 / self.available_ns()
    }

    /// The part of the time during which the server could have run and waited for a CPU: on a quiet machine nearly 0.
    /// A round in which it is large was disturbed.
    pub fn displaced_share(&self) -> f64 {
        self.server.queued_ns as f64 / self.available_ns()
    }

    /// CPU time that the server could have had.
    fn available_ns(&self) -> f64 {
        self.load.elapsed_ns as f64 * f64::from(self.usable_cpus.get())
    }
}

/// One load; if it fails because the server has ended, that is the error, not its consequences.
fn load(
    server: &Server,
    operation: &Operation,
    requests: Option<NonZeroU64>,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Load, MeasureError> {
    let result = server.load(operation, requests, stop, on_progress);
    let operation = operation.name.clone();
    let ended = match &result {
        Err(LoadError::Failed { .. } | LoadError::Wrk { .. }) => server.exit_within(DEATH)?,
        _ => server.exit()?,
    };
    match ended {
        Some(exit) => Err(MeasureError::ServerEnded { operation, exit, last_words: server.last_words() }),
        None => result.map_err(|source| MeasureError::Load { operation, source }),
    }
}

/// The server's CPU time once it has come to rest.
fn settled(server: &Server) -> Result<CpuTime, CpuError> {
    let deadline = now() + SETTLE_MAX;
    let mut before = server.cpu()?;
    loop {
        thread::sleep(QUIET);
        let after = server.cpu()?;
        if after == before || now() >= deadline {
            return Ok(after);
        }
        before = after;
    }
}
