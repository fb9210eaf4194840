//! The times of a log.

use super::line::Stamp;

/// Seconds since 1970 below this are seconds since the line before: no log is from 1973.
pub(super) const ABSOLUTE_NS: u64 = 100_000_000 * 1_000_000_000;

/// The times of the log as one clock, ns.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Earliest time of a line.
    pub start_ns: Option<u64>,
    /// Latest time of a line.
    pub now_ns: u64,
    /// Midnights that passed, in ns.
    days_ns: u64,
}

impl Clock {
    /// Returns the time of the next line. With `-z`, the times of lines are not in order.
    pub fn at(&mut self, stamp: Stamp) -> u64 {
        const DAY_NS: u64 = 86_400 * 1_000_000_000;
        let time_ns = match stamp {
            Stamp::Since(relative_ns) if relative_ns < ABSOLUTE_NS => self.now_ns.saturating_add(relative_ns),
            Stamp::Since(time_ns) => time_ns,
            Stamp::OfDay(of_day_ns) => {
                if self.days_ns.saturating_add(of_day_ns).saturating_add(DAY_NS / 2) < self.now_ns {
                    self.days_ns = self.days_ns.saturating_add(DAY_NS);
                }
                self.days_ns.saturating_add(of_day_ns)
            }
        };
        self.now_ns = self.now_ns.max(time_ns);
        self.start_ns = Some(self.start_ns.map_or(time_ns, |start_ns| start_ns.min(time_ns)));
        time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_with_its_earliest_line() {
        let mut clock = Clock::default();
        let times = [7, 5, 9].map(|later_ns| clock.at(Stamp::Since(ABSOLUTE_NS + later_ns)));
        assert_eq!(times, [7, 5, 9].map(|later_ns| ABSOLUTE_NS + later_ns));
        assert_eq!((clock.start_ns, clock.now_ns), (Some(ABSOLUTE_NS + 5), ABSOLUTE_NS + 9));
    }
}
