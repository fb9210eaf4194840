//! Measures the cost of one operation for the server: rounds of a fixed number of requests against an
//! untraced server. The elapsed time is from the client, the CPU time from the kernel's accounting, both raw.
//! There are no statistics here; the crate `statistics` evaluates the rounds.

use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use assay_process::Exit;
use assay_process::clock::now;
use assay_quantity::{ClientSide, CpuTime, Round};
use thiserror::Error;

use crate::client::{Load, LoadError};
use crate::cpu::CpuError;
use crate::server::{DEATH, Server};
use crate::workload::Operation;

/// After a round, the server may still have work to do (write its log, close connections). It has settled
/// when it uses no CPU time for this long: longer than a clock tick, at which the kernel counts the time of a
/// running thread.
const QUIET: Duration = Duration::from_millis(12);

/// A server that does not settle works independently of the requests; after this timeout, its CPU time is
/// used as it is.
const SETTLE_MAX: Duration = Duration::from_millis(200);

/// The amount of work to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Unmeasured requests before the first round; `None` for the number of requests of a round.
    pub warm_up_requests: Option<NonZeroU64>,
    /// Requests per round; `None` for the number of the operation.
    pub requests: Option<NonZeroU64>,
    /// Number of rounds.
    pub rounds: NonZeroU32,
}

/// The rounds could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A load failed.
    #[error("operation '{operation}': {source}")]
    Load {
        /// The operation.
        operation: String,
        /// The cause.
        source: LoadError,
    },
    /// The server ended during the load.
    #[error("operation '{operation}': the server {exit}; its last output: {last_words}")]
    ServerEnded {
        /// The operation.
        operation: String,
        /// The exit status or signal.
        exit: Exit,
        /// The last lines of its output.
        last_words: String,
    },
    /// The server's CPU time could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The server's CPU time decreased.
    #[error(
        "operation '{operation}': the server's CPU time decreased: a process of the server ended and its CPU time is lost"
    )]
    CpuLost {
        /// The operation.
        operation: String,
    },
    /// The server's state could not be determined.
    #[error("cannot determine whether the server still runs: {0}")]
    Server(#[from] io::Error),
}

/// Warms the server up with `operation`, then measures the rounds. Calls `on_progress` with the number of the
/// round (0 is the warm-up) and the number of requests answered in it.
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
        rounds.push(self::round(operation, load, used, server.usable_cpus()));
    }
    Ok(rounds)
}

/// Combines the measurements of the client and the kernel into a round.
fn round(operation: &Operation, load: Load, cpu: CpuTime, usable_cpus: NonZeroU32) -> Round {
    Round {
        operation: operation.name.clone(),
        units: load.requests,
        elapsed_ns: load.elapsed_ns,
        cpu,
        usable_cpus: usable_cpus.get(),
        client: Some(ClientSide {
            latency: load.latency,
            received_bytes: load.received_bytes,
            connections: load.connections,
            cpu_ns: load.client_cpu_ns,
        }),
    }
}

/// Runs one load. If it fails because the server has ended, returns that as the error instead of its
/// consequences.
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

/// Returns the server's CPU time after it has settled.
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
