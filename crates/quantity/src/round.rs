//! Raw measurements of an application, one per round of an operation.
//!
//! `workload` makes rounds, `store` keeps them as they are, and derived values (rates, shares, estimates over
//! rounds) are computed from them whenever they are needed: a round is to an application what a
//! [`crate::Sample`] is to a primitive.

use std::ops::AddAssign;

/// One round, raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The named operation of the workload, or the command.
    pub operation: String,
    /// Units of work done: requests answered, or runs. Never 0.
    pub units: u64,
    /// Time from before the first unit of work to after the last one, ns; for a command, the sum over the
    /// runs.
    pub elapsed_ns: u64,
    /// Processor time of the application.
    pub cpu: CpuTime,
    /// Number of processors that the application can keep busy.
    pub usable_cpus: u32,
    /// Measurements of the client; `None` for a command, which has none.
    pub client: Option<ClientSide>,
}

/// Measurements of the client of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSide {
    /// Latency of single requests.
    pub latency: Latency,
    /// Bytes received.
    pub received_bytes: u64,
    /// Number of connections opened; `None` if the client does not report it.
    pub connections: Option<u64>,
    /// Processor time of the client itself, ns.
    pub cpu_ns: u64,
}

/// Latencies of single requests, to three significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile; `None` if the client does not report it.
    pub p999_ns: Option<u64>,
    /// Maximum.
    pub max_ns: u64,
}

/// Minimum number of clock ticks for which a total is divided into user and system time: with 20 of them, the
/// tick that either count may lack is 5 % of the whole.
pub const TICKS_MIN: u128 = 20;

/// Processor time of an application as the kernel counts it. Its division into user and system time is in
/// clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// The total, ns.
    pub total_ns: u64,
    /// Time in the run queue while other tasks had the processor, ns.
    pub queued_ns: u64,
    /// Time in user mode, in clock ticks (usually 10 ms).
    pub user_ticks: u64,
    /// Time in the kernel, in clock ticks.
    pub system_ticks: u64,
}

impl CpuTime {
    /// Time in user mode, ns: the total, divided in the proportion of the ticks. `None` for fewer than
    /// [`TICKS_MIN`] ticks, because each count is rounded down to a whole tick.
    #[must_use]
    pub fn user_ns(&self) -> Option<u64> {
        let ticks = u128::from(self.user_ticks) + u128::from(self.system_ticks);
        if ticks < TICKS_MIN {
            return None;
        }
        let product = u128::from(self.total_ns) * u128::from(self.user_ticks);
        u64::try_from(product.checked_div(ticks)?).ok()
    }

    /// Time in the kernel, ns: the rest of the total. `None` if [`CpuTime::user_ns`] is.
    #[must_use]
    pub fn system_ns(&self) -> Option<u64> {
        self.user_ns().map(|user_ns| self.total_ns - user_ns)
    }

    /// The time used since `earlier`. `None` if the total or a count of ticks has decreased, because a
    /// process has ended and its count is lost.
    #[must_use]
    pub fn since(&self, earlier: &CpuTime) -> Option<CpuTime> {
        Some(CpuTime {
            total_ns: self.total_ns.checked_sub(earlier.total_ns)?,
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
            user_ticks: self.user_ticks.checked_sub(earlier.user_ticks)?,
            system_ticks: self.system_ticks.checked_sub(earlier.system_ticks)?,
        })
    }
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: CpuTime) {
        self.total_ns += other.total_ns;
        self.queued_ns += other.queued_ns;
        self.user_ticks += other.user_ticks;
        self.system_ticks += other.system_ticks;
    }
}

impl Round {
    /// Units of work per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        real(self.units) * 1e9 / real(self.elapsed_ns.max(1))
    }

    /// Processor time of one unit of work, ns.
    #[must_use]
    pub fn cpu_ns_per_unit(&self) -> f64 {
        self.per_unit(self.cpu.total_ns)
    }

    /// Its part in user mode; `None` if the round was too short.
    #[must_use]
    pub fn user_ns_per_unit(&self) -> Option<f64> {
        self.cpu.user_ns().map(|ns| self.per_unit(ns))
    }

    /// Its part in the kernel; `None` if the round was too short.
    #[must_use]
    pub fn system_ns_per_unit(&self) -> Option<f64> {
        self.cpu.system_ns().map(|ns| self.per_unit(ns))
    }

    /// Share of the time in which the application did not use the processors that it could use: 0 if it is
    /// the bottleneck, 0.5 if it waits half of the time for its client. It may be slightly negative, because
    /// the last work of a server comes after the last answer to the client. Time in the run queue counts as
    /// idle here; [`Round::displaced_share`] is the share of that.
    #[must_use]
    pub fn idle_share(&self) -> f64 {
        1.0 - real(self.cpu.total_ns) / self.available_ns()
    }

    /// Share of the time in which the application waited in the run queue: nearly 0 on a quiet machine. A
    /// round with a large share was disturbed.
    #[must_use]
    pub fn displaced_share(&self) -> f64 {
        real(self.cpu.queued_ns) / self.available_ns()
    }

    fn per_unit(&self, ns: u64) -> f64 {
        real(ns) / real(self.units.max(1))
    }

    /// Processor time that was available to the application.
    fn available_ns(&self) -> f64 {
        real(self.elapsed_ns.max(1)) * f64::from(self.usable_cpus.max(1))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a round stay far below 2^52")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_divide_the_total_as_the_ticks_do_and_add_up_to_it() {
        let time = CpuTime { total_ns: 1_000_000_001, queued_ns: 0, user_ticks: 30, system_ticks: 70 };
        assert_eq!((time.user_ns(), time.system_ns()), (Some(300_000_000), Some(700_000_001)));
    }

    #[test]
    fn with_few_ticks_the_division_is_unknown_not_zero() {
        for (user_ticks, system_ticks) in [(0, 0), (0, 1), (9, 10)] {
            let time = CpuTime { total_ns: 900_000, queued_ns: 0, user_ticks, system_ticks };
            assert_eq!((time.user_ns(), time.system_ns()), (None, None));
        }
    }

    #[test]
    fn a_count_that_shrinks_has_no_difference() {
        let more = CpuTime { total_ns: 10, queued_ns: 0, user_ticks: 1, system_ticks: 1 };
        let less = CpuTime { total_ns: 9, ..more };
        assert_eq!(less.since(&more), None);
        let difference = CpuTime { total_ns: 1, queued_ns: 0, user_ticks: 0, system_ticks: 0 };
        assert_eq!(more.since(&less), Some(difference));
    }

    #[test]
    fn a_server_on_two_processors_that_used_one_was_half_idle() {
        let round = Round {
            operation: "page".to_owned(),
            units: 1000,
            elapsed_ns: 2_000_000,
            cpu: CpuTime { total_ns: 2_000_000, queued_ns: 400_000, user_ticks: 10, system_ticks: 30 },
            usable_cpus: 2,
            client: None,
        };
        assert!((round.idle_share() - 0.5).abs() < 1e-12);
        assert!((round.displaced_share() - 0.1).abs() < 1e-12);
        assert!((round.per_second() - 500_000.0).abs() < 1e-6);
        assert!((round.cpu_ns_per_unit() - 2000.0).abs() < 1e-9);
        assert!((round.user_ns_per_unit().unwrap() - 500.0).abs() < 1e-9);
        assert!((round.system_ns_per_unit().unwrap() - 1500.0).abs() < 1e-9);
    }
}
