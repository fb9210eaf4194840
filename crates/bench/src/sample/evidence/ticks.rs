//! The shares of their time that the participants' processors spent in interrupts, and that the hypervisor
//! took from them.

use std::io;

use assay_process::accounting::{Stat, Ticks};
use assay_quantity::Evidence;
use assay_quantity::evidence::{INTERRUPTS, STOLEN};

use super::witness::{Reading, Witness};
use crate::benchmark::Participants;

/// The times of the processors, averaged over them.
#[derive(Debug, Clone, Copy)]
struct Times {
    interrupts: Reading,
    stolen: Reading,
}

#[derive(Debug)]
struct ProcessorTicks {
    cpus: Vec<usize>,
    /// `None` if the kernel does not count them.
    before: Option<Times>,
}

pub(super) fn witness(participants: &Participants) -> Box<dyn Witness> {
    Box::new(ProcessorTicks { cpus: participants.cpus().collect(), before: None })
}

impl ProcessorTicks {
    fn now(&self) -> io::Result<Option<Times>> {
        let stat = Stat::read()?;
        let ticks: Option<Ticks> = self.cpus.iter().map(|cpu| stat.ticks(*cpu)).sum();
        Ok(ticks.map(|ticks| Times::of(ticks, self.cpus.len())))
    }
}

impl Times {
    #[expect(clippy::cast_precision_loss, reason = "ticks are far fewer than 2^52")]
    fn of(Ticks { interrupts, stolen }: Ticks, cpus: usize) -> Self {
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64 / cpus as f64;
        let reading = |ticks: u64| Reading::now(ticks as f64 * tick_ns);
        Self { interrupts: reading(interrupts), stolen: reading(stolen) }
    }
}

impl Witness for ProcessorTicks {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.now()?;
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let (Some(before), Some(after)) = (self.before, self.now()?) {
            evidence.add(INTERRUPTS, after.interrupts.share_since(before.interrupts));
            evidence.add(STOLEN, after.stolen.share_since(before.stolen));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_times_of_one_processor() {
        let Times { interrupts, stolen } = Times::of(Ticks { interrupts: 200, stolen: 50 }, 2);
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let ticks = |time: Reading| (2.0 * time.counted_ns / 1e9 * per_second).round();
        assert_eq!(vec![ticks(interrupts), ticks(stolen)], [200.0, 50.0]);
    }
}
