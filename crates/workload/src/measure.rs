//! What does one operation cost the server? Rounds of a fixed number of requests against a server that nobody
//! traces: elapsed time from the client, CPU time from the kernel's accounting, both raw. No statistics here:
//! what the rounds mean together is for `statistics` to say.

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
        rounds.push(self::round(operation, load, used, server.usable_cpus()));
    }
    Ok(rounds)
}

/// What the client and the kernel saw of one round.
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
