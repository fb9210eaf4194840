//! The program wrk as a client, for results that are reproducible with a known tool. It runs for a fixed
//! time, not for a fixed number of requests, and checks no body. Its output is parsed strictly, and every
//! failure that it reports makes the load an error.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::clock::now;
use assay_process::{Exit, Group, find_program};
use assay_quantity::Latency;

use super::load::{Load, LoadError};
use crate::cpu;
use crate::workload::Reuse;

/// Time after the end of its duration after which wrk is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval of the checks of the stop flag.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum size of a head: a mean response size outside of body to body plus this value is wrong.
const HEAD_BYTES_MAX: u64 = 4096;

/// Parameters of a run of wrk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// Path of the request.
    pub path: String,
    /// Duration.
    pub duration_s: NonZeroU32,
    /// Number of busy connections, in one thread.
    pub connections: NonZeroU32,
    /// Whether a connection serves more than one request.
    pub reuse: Reuse,
    /// Length of the body of a correct response.
    pub expect_bytes: u64,
}

/// The parsed output of wrk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Requests answered.
    pub requests: u64,
    /// Elapsed time, rounded to 10 ms.
    pub elapsed_ns: u64,
    /// Bytes received, rounded to about three digits.
    pub received_bytes: u64,
    /// Latencies, rounded to about three digits.
    pub latency: Latency,
}

/// Runs wrk. Setting `stop` kills it.
pub fn run(plan: &Plan, stop: &AtomicBool) -> Result<Load, LoadError> {
    let program = find_program("wrk").ok_or(LoadError::WrkMissing)?;
    let failed = |action| move |source| LoadError::Io { action, source };
    let output = tempfile::tempfile().map_err(failed("creating a file for the output of wrk"))?;
    let copy = || output.try_clone().map_err(failed("sharing the file for the output of wrk"));
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(copy()?).stderr(copy()?).args(arguments(plan));
    let mut group = Group::new().map_err(failed("starting a watchdog"))?;
    group.spawn(&mut command).map_err(failed("starting wrk"))?;
    let deadline = now() + Duration::from_secs(plan.duration_s.get().into()) + PATIENCE;
    while group.wait(PAUSE).map_err(failed("waiting for wrk"))?.is_none() {
        if stop.load(Ordering::Relaxed) {
            group.kill()?;
            return Err(LoadError::Stopped { completed: 0 });
        }
        if now() >= deadline {
            group.kill()?;
            return Err(wrong("still running 10 s after the end of its duration"));
        }
    }
    let exit = group.exit().map_err(failed("reading the exit status of wrk"))?;
    let used = group.main_process().map_err(failed("reading the process state of wrk"))?;
    let used = cpu::of(used.as_slice()).map_err(|error| wrong(&error.to_string()))?;
    group.kill()?;
    let text = read(output).map_err(failed("reading the output of wrk"))?;
    if exit != Some(Exit::Status(0)) {
        return Err(wrong(&format!("exited with an error: {}", text.trim().replace('\n', " | "))));
    }
    let output = parse(&text).map_err(|problem| wrong(&problem))?;
    let load = Load {
        requests: output.requests,
        elapsed_ns: output.elapsed_ns,
        latency: output.latency,
        received_bytes: output.received_bytes,
        connections: None,
        client_cpu_ns: used.total_ns,
    };
    check_size(&load, plan.expect_bytes)?;
    Ok(load)
}

fn arguments(plan: &Plan) -> Vec<String> {
    let mut arguments = vec![
        "--latency".to_owned(),
        "-t1".to_owned(),
        format!("-c{}", plan.connections),
        format!("-d{}s", plan.duration_s),
    ];
    if plan.reuse == Reuse::NewConnection {
        arguments.push("-HConnection: close".to_owned());
    }
    arguments.push(format!("http://{}{}", plan.address, plan.path));
    arguments
}

fn read(mut output: File) -> std::io::Result<String> {
    use std::io::Seek;
    output.rewind()?;
    let mut text = String::new();
    output.take(64 * 1024).read_to_string(&mut text)?;
    Ok(text)
}

fn wrong(problem: &str) -> LoadError {
    LoadError::Wrk { problem: problem.to_owned() }
}

/// Checks that the mean size of the responses matches the expected body within the rounding of wrk, which
/// checks no body.
fn check_size(load: &Load, expect_bytes: u64) -> Result<(), LoadError> {
    let mean = load.received_bytes / load.requests.max(1);
    let slack = expect_bytes / 50;
    if (expect_bytes.saturating_sub(slack)..=expect_bytes + slack + HEAD_BYTES_MAX).contains(&mean) {
        return Ok(());
    }
    Err(wrong(&format!(
        "its responses have {mean} bytes on average, which does not match a body of {expect_bytes} bytes"
    )))
}

/// Parses the output of `wrk --latency` 4.x. Rejects output with reported failures, with a missing line, or
/// with an invalid number.
pub fn parse(text: &str) -> Result<Output, String> {
    // The heading of the percentiles starts like the line of the mean latency.
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| *line != "Latency Distribution").collect();
    if let Some(complaint) =
        lines.iter().find(|line| line.starts_with("Socket errors:") || line.starts_with("Non-2xx or 3xx"))
    {
        return Err(format!("it reported failures: {complaint}"));
    }
    let after = |name: &str| {
        let mut found = lines.iter().filter_map(|line| line.strip_prefix(name));
        match (found.next(), found.next()) {
            (Some(rest), None) => Ok(rest.split_ascii_whitespace().collect::<Vec<_>>()),
            (None, _) => Err(format!("its output has no line '{name}'")),
            (Some(_), Some(_)) => Err(format!("its output has two lines '{name}'")),
        }
    };
    let percentile = |name: &str| match after(name)?.as_slice() {
        [value] => time_ns(value),
        _ => Err(format!("the line '{name}' of its output has an unexpected format")),
    };
    let max_ns = match after("Latency ")?.as_slice() {
        [_, _, max, _] => time_ns(max)?,
        _ => return Err("the line 'Latency' of its output has an unexpected format".to_owned()),
    };
    let latency = Latency {
        p50_ns: percentile("50% ")?,
        p90_ns: percentile("90% ")?,
        p99_ns: percentile("99% ")?,
        p999_ns: None,
        max_ns,
    };
    let (requests, elapsed, received) = summary(&lines)?;
    let requests = requests.parse().map_err(|_| format!("'{requests}' is not a number of requests"))?;
    if requests == 0 {
        return Err("it made no requests".to_owned());
    }
    Ok(Output { requests, elapsed_ns: time_ns(elapsed)?, received_bytes: size_bytes(received)?, latency })
}

/// Returns the parts of `3325 requests in 2.10s, 1.65MB read`.
fn summary<'a>(lines: &[&'a str]) -> Result<(&'a str, &'a str, &'a str), String> {
    lines
        .iter()
        .find_map(|line| {
            let (requests, rest) = line.split_once(" requests in ")?;
            let (elapsed, rest) = rest.split_once(", ")?;
            Some((requests, elapsed, rest.strip_suffix(" read")?))
        })
        .ok_or_else(|| "its output has no line 'N requests in T, S read'".to_owned())
}

fn time_ns(text: &str) -> Result<u64, String> {
    // The order matters: a unit precedes the units that are a suffix of it.
    const UNITS: [(&str, f64); 5] = [("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    scaled(text, &UNITS).ok_or_else(|| format!("'{text}' is not a time"))
}

fn size_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 5] = [
        ("TB", 1_099_511_627_776.0),
        ("GB", 1_073_741_824.0),
        ("MB", 1_048_576.0),
        ("KB", 1024.0),
        ("B", 1.0),
    ];
    scaled(text, &UNITS).ok_or_else(|| format!("'{text}' is not a size"))
}

/// Returns the number before the first matching unit, multiplied by the unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (digits, unit) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let value = digits.parse::<f64>().ok()? * unit;
    // Wrk does not print numbers of twenty or more digits.
    (value < 1e18)
        .then(|| Duration::from_secs_f64(value / 1e9))
        .and_then(|d| u64::try_from(d.as_nanos()).ok())
}

#[cfg(test)]
mod tests;
