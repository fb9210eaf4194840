//! Raw measurements of an application: what one round of one operation took.
//!
//! `workload` makes rounds, `store` keeps them as they are, and whatever is derived (rates, shares, the
//! estimates over rounds) is computed from them whenever it is asked for: a round is to an application
//! what a [`crate::Sample`] is to a primitive.

/// One round, raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The named operation of the workload, or the command.
    pub operation: String,
    /// Units of work done: requests answered, or one run. Never 0.
    pub units: u64,
    /// From before the first unit of work to after the last one, ns.
    pub elapsed_ns: u64,
    /// Processor time of the application.
    pub cpu: CpuTime,
    /// Processors that the application could keep busy at once.
    pub usable_cpus: u32,
    /// What a client saw; `None` for a command, which has none.
    pub client: Option<ClientSide>,
}

/// What the client of a server saw in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSide {
    /// How long single requests took.
    pub latency: Latency,
    /// Bytes received.
    pub received_bytes: u64,
    /// Connections opened; `None` where the client does not say.
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
    /// 99.9th percentile; `None` where the client does not say.
    pub p999_ns: Option<u64>,
    /// The longest of all.
    pub max_ns: u64,
}

/// Clock ticks below which a total is not divided into user and system time: with 20 of them, the tick that
/// either count may lack is 5 % of the whole.
pub const TICKS_MIN: u128 = 20;

/// Processor time of an application as the kernel counts it: to the nanosecond for what still runs, in clock
/// ticks for processes that have ended; divided in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// All of it, in ns.
    pub total_ns: u64,
    /// Time in which the application could have run and something else had its processor, in ns.
    pub queued_ns: u64,
    /// The part in user mode, in clock ticks (usually 10 ms): the base of the division into user and system.
    pub user_ticks: u64,
    /// The part in the kernel, in clock ticks.
    pub system_ticks: u64,
}

impl CpuTime {
    /// Time in user mode, in ns: the total, divided as the ticks are. `None` if there were fewer than
    /// [`TICKS_MIN`]: each of the two counts is rounded down to a whole tick.
    #[must_use]
    pub fn user_ns(&self) -> Option<u64> {
        let ticks = u128::from(self.user_ticks) + u128::from(self.system_ticks);
        if ticks < TICKS_MIN {
            return None;
        }
        let product = u128::from(self.total_ns) * u128::from(self.user_ticks);
        u64::try_from(product.checked_div(ticks)?).ok()
    }

    /// Time in the kernel, in ns: the rest of the total. `None` where [`CpuTime::user_ns`] is.
    #[must_use]
    pub fn system_ns(&self) -> Option<u64> {
        self.user_ns().map(|user_ns| self.total_ns - user_ns)
    }

    /// What was used since `earlier`. `None` if less has been used by now than then: a process has vanished
    /// and taken its count along.
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

    /// The part of it in user mode; `None` where the round was too short to tell.
    #[must_use]
    pub fn user_ns_per_unit(&self) -> Option<f64> {
        self.cpu.user_ns().map(|ns| self.per_unit(ns))
    }

    /// The part of it in the kernel; `None` where the round was too short to tell.
    #[must_use]
    pub fn system_ns_per_unit(&self) -> Option<f64> {
        self.cpu.system_ns().map(|ns| self.per_unit(ns))
    }

    /// Share of the time in which the application did not use the processors that it could use: 0 is one
    /// that is the bottleneck, 0.5 one that waits half of the time for its client. A little below 0 is
    /// possible, because a server's last work comes after the client's last answer. Time in which it could
    /// have run and something else had its processor counts as idle here; [`Round::displaced_share`] tells
    /// it apart.
    #[must_use]
    pub fn idle_share(&self) -> f64 {
        1.0 - real(self.cpu.total_ns) / self.available_ns()
    }

    /// Share of the time in which the application could have run and waited for a processor: on a quiet
    /// machine nearly 0. A round in which it is large was disturbed.
    #[must_use]
    pub fn displaced_share(&self) -> f64 {
        real(self.cpu.queued_ns) / self.available_ns()
    }

    fn per_unit(&self, ns: u64) -> f64 {
        real(ns) / real(self.units.max(1))
    }

    /// Processor time that the application could have had.
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
