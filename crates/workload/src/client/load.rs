//! What a client reports: a complete, verified load, or why there is none.

use std::fmt;
use std::io;

use assay_process::StopError;
use assay_quantity::Latency;
use hdrhistogram::Histogram;
use thiserror::Error;

use crate::placement::PlacementError;

/// A load that was done in full, every answer right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Requests answered.
    pub requests: u64,
    /// From before the first request to after the last answer.
    pub elapsed_ns: u64,
    /// How long single requests took.
    pub latency: Latency,
    /// Bytes received, heads included; wrk rounds them to three digits or so.
    pub received_bytes: u64,
    /// Connections opened; `None` for wrk, which does not say.
    pub connections: Option<u64>,
    /// CPU time of the client, user and system; for wrk in steps of 10 ms.
    pub client_cpu_ns: u64,
}

/// The percentiles of a histogram of nanoseconds.
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

/// A load that did not come about. No variant carries a rate: what failed has none.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Some requests failed, after which no more were begun.
    #[error("{failures} after {completed} right answers, the first: {first}")]
    Failed {
        /// Right answers.
        completed: u64,
        /// Failed requests by kind.
        failures: Failures,
        /// The first failure in words.
        first: String,
    },
    /// The caller's stop flag was set.
    #[error("stopped after {completed} requests")]
    Stopped {
        /// Right answers.
        completed: u64,
    },
    /// The client itself could not work.
    #[error("cannot load the server: {action}: {source}")]
    Io {
        /// What failed.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The program wrk cannot be found.
    #[error(
        "program 'wrk' is neither in PATH nor in /usr/sbin; install the Debian package wrk or run scripts/setup"
    )]
    WrkMissing,
    /// Wrk failed, or said something that we do not understand.
    #[error("wrk: {problem}")]
    Wrk {
        /// What is wrong with it.
        problem: String,
    },
    /// Wrk could not be stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The client's CPUs cannot be had.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// The ways in which a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// No complete answer in time.
    Timeout,
    /// The connection was closed or reset before the answer was complete.
    EarlyClose,
    /// Not HTTP, or HTTP that we do not understand.
    Malformed,
    /// A status other than the expected one.
    WrongStatus,
    /// A body of another length than the expected one.
    WrongLength,
    /// A body of the right length and other bytes.
    WrongBody,
    /// More bytes than the answer has.
    Surplus,
}

impl Failure {
    const ALL: [(Failure, &str); 8] = [
        (Failure::Connect, "refused"),
        (Failure::Timeout, "timed out"),
        (Failure::EarlyClose, "closed early"),
        (Failure::Malformed, "malformed"),
        (Failure::WrongStatus, "of wrong status"),
        (Failure::WrongLength, "of wrong length"),
        (Failure::WrongBody, "with a wrong body"),
        (Failure::Surplus, "with surplus bytes"),
    ];
}

/// Failed requests, counted by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    counts: [u64; Failure::ALL.len()],
}

impl Failures {
    /// How many failed in this way.
    pub fn count(&self, kind: Failure) -> u64 {
        self.counts[kind as usize]
    }

    /// How many failed at all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
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
    fn every_kind_of_failure_has_its_own_place_and_words() {
        for (place, (kind, words)) in Failure::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place, "{words}");
        }
    }

    #[test]
    fn failures_are_told_by_kind_without_the_kinds_that_did_not_happen() {
        let mut failures = Failures::default();
        for kind in [Failure::Timeout, Failure::WrongStatus, Failure::Timeout] {
            failures.add(kind);
        }
        expect_test::expect!["3 requests failed (2 timed out, 1 of wrong status)"]
            .assert_eq(&failures.to_string());
    }
}
