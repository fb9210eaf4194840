//! The shares of their time that the participants' processors spent in interrupts, and that the hypervisor
//! took from them.

use std::io;

use assay_process::accounting::{Stat, Ticks};
use assay_quantity::Evidence;
use assay_quantity::evidence::{INTERRUPTS, STOLEN};

use super::{Counted, Participants, Witness};

#[derive(Debug)]
struct OfProcessors {
    cpus: Vec<usize>,
    /// Interrupts and stolen time; `None` if the kernel does not count them.
    before: Option<[Counted; 2]>,
}

pub(super) fn witness(participants: &Participants) -> Box<dyn Witness> {
    Box::new(OfProcessors { cpus: participants.cpus().collect(), before: None })
}

impl OfProcessors {
    #[expect(clippy::cast_precision_loss, reason = "ticks are far fewer than 2^52")]
    fn now(&self) -> io::Result<Option<[Counted; 2]>> {
        let stat = Stat::read()?;
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64 / self.cpus.len() as f64;
        let ticks: Option<Ticks> = self.cpus.iter().map(|cpu| stat.ticks(*cpu)).sum();
        Ok(ticks.map(|Ticks { interrupts, stolen }| {
            [interrupts, stolen].map(|ticks| Counted::now(ticks as f64 * tick_ns))
        }))
    }
}

impl Witness for OfProcessors {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.now()?;
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let (Some(before), Some(after)) = (self.before, self.now()?) {
            evidence.add(INTERRUPTS, after[0].share_since(before[0]));
            evidence.add(STOLEN, after[1].share_since(before[1]));
        }
        Ok(())
    }
}
