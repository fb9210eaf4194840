//! Functions that the experiments share: how to request samples.

use std::process::ExitCode;
use std::time::Duration;

use assay_bench::{Calibration, Plan, Spawner};

/// Returns a spawner that starts this executable for each sample, with these arguments before the request.
pub(crate) fn spawner(arguments: &[&str]) -> Spawner {
    let arguments = arguments.iter().map(Into::into).collect();
    Spawner { program: std::env::current_exe().unwrap(), arguments }
}

/// Returns the exit code of a process that took a sample.
pub(crate) fn end(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a plan with exactly this number of processes for each primitive.
pub(crate) fn plan(seed: u64, processes: usize, clock: &Calibration) -> Plan {
    Plan {
        seed,
        processes_min: processes,
        processes_max: processes,
        budget: Duration::from_secs(3600),
        relative_half_width: 0.0,
        sample_limit: Duration::from_secs(10),
        directory: std::env::temp_dir(),
        peer: None,
        counters: false,
        effective: None,
        clock: clock.clone(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an experiment counts far below 2^52")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}
