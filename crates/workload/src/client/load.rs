//! The result of a client: a complete, verified load, or an error.

use std::fmt;
use std::io;

use assay_process::StopError;
use assay_quantity::Latency;
use hdrhistogram::Histogram;
use thiserror::Error;

use crate::placement::PlacementError;

/// A complete load with correct responses only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Requests answered.
    pub requests: u64,
    /// Time from before the first request to after the last response.
    pub elapsed_ns: u64,
    /// Latency of the requests.
    pub latency: Latency,
    /// Bytes received, including heads; wrk rounds them to about three digits.
    pub received_bytes: u64,
    /// Connections opened; `None` for wrk, which does not report it.
    pub connections: Option<u64>,
    /// CPU time of the client, user and system; for wrk with a resolution of 10 ms.
    pub client_cpu_ns: u64,
}

/// Returns the percentiles of a histogram of nanoseconds.
pub(crate) fn percentiles(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile);
    Latency {
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: Some(at(0.999)),
        max_ns: histogram.max(),
    }
}

/// A load failed. No variant contains a rate: a failed load has none.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Some requests failed; no further requests were started after the first failure.
    #[error("{failures} after {completed} correct responses; first failure: {first}")]
    Failed {
        /// Correct responses.
        completed: u64,
        /// Failed requests by kind.
        failures: Failures,
        /// Description of the first failure.
        first: String,
    },
    /// The caller's stop flag was set.
    #[error("stopped after {completed} requests")]
    Stopped {
        /// Correct responses.
        completed: u64,
    },
    /// The client itself failed.
    #[error("cannot load the server: {action}: {source}")]
    Io {
        /// The step that failed.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The program wrk was not found.
    #[error("program 'wrk' is neither in PATH nor in /usr/sbin; install the Debian package wrk")]
    WrkMissing,
    /// Wrk failed, or its output could not be parsed.
    #[error("wrk: {problem}")]
    Wrk {
        /// Description of the problem.
        problem: String,
    },
    /// Wrk could not be stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The client's CPUs are not available.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// Kinds of failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be established.
    Connect,
    /// The response was not complete within the timeout.
    Timeout,
    /// The connection was closed or reset before the response was complete.
    EarlyClose,
    /// Not the protocol of the client, or a part of it that the client does not support.
    Malformed,
    /// The status differs from the expected one.
    WrongStatus,
    /// The length of the content differs from the expected one.
    WrongLength,
    /// The content differs from the expected one.
    WrongContent,
    /// The server reported an error instead of a result.
    Error,
    /// There are bytes after the end of the response.
    Surplus,
}

impl Failure {
    const ALL: [(Failure, &str); 9] = [
        (Failure::Connect, "refused"),
        (Failure::Timeout, "timed out"),
        (Failure::EarlyClose, "closed early"),
        (Failure::Malformed, "malformed"),
        (Failure::WrongStatus, "with a wrong status"),
        (Failure::WrongLength, "with a wrong length"),
        (Failure::WrongContent, "with wrong content"),
        (Failure::Error, "answered with an error"),
        (Failure::Surplus, "with surplus bytes"),
    ];
}

/// Failed requests, counted by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    // At most one per connection.
    counts: [u32; Failure::ALL.len()],
}

impl Failures {
    /// Returns the number of failures of this kind.
    pub fn count(&self, kind: Failure) -> u64 {
        self.counts[kind as usize].into()
    }

    /// Returns the total number of failures.
    pub fn total(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    pub(crate) fn add(&mut self, kind: Failure) {
        self.counts[kind as usize] += 1;
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let total = self.total();
        write!(f, "{total} {} failed (", if total == 1 { "request" } else { "requests" })?;
        let some = Failure::ALL.iter().filter(|(kind, _)| self.count(*kind) > 0);
        for (place, (kind, words)) in some.enumerate() {
            write!(f, "{}{} {words}", if place == 0 { "" } else { ", " }, self.count(*kind))?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Failures};

    #[test]
    fn every_kind_of_failure_is_at_its_index() {
        for (place, (kind, words)) in Failure::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place, "{words}");
        }
    }

    #[test]
    fn only_kinds_with_failures_are_listed() {
        let mut failures = Failures::default();
        for kind in [Failure::Timeout, Failure::WrongStatus, Failure::Timeout] {
            failures.add(kind);
        }
        expect_test::expect!["3 requests failed (2 timed out, 1 with a wrong status)"]
            .assert_eq(&failures.to_string());
    }
}
