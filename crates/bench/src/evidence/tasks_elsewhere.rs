//! The runnable tasks that do not take part, per processor of the machine.

use std::io;

use assay_process::accounting::{Stat, is_runnable};
use assay_quantity::Evidence;
use assay_quantity::evidence::RUNNABLE_ELSEWHERE;

use super::{Participants, Witness};

#[derive(Debug)]
struct TasksElsewhere {
    participants: Participants,
    /// `None` if the kernel does not count them.
    before: Option<f64>,
}

pub(super) fn witness(participants: &Participants) -> Box<dyn Witness> {
    Box::new(TasksElsewhere { participants: participants.clone(), before: None })
}

impl TasksElsewhere {
    fn now(&self) -> io::Result<Option<f64>> {
        let stat = Stat::read()?;
        let partners = self.participants.partners().iter().filter(|pid| is_runnable(**pid)).count() as u64;
        let own = 1 + self.participants.copies + partners;
        #[expect(clippy::cast_precision_loss, reason = "tasks and processors are few")]
        let elsewhere = |running: u64| running.saturating_sub(own) as f64 / stat.cpus().max(1) as f64;
        Ok(stat.runnable().map(elsewhere))
    }
}

impl Witness for TasksElsewhere {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.now()?;
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let (Some(before), Some(after)) = (self.before, self.now()?) {
            evidence.add(RUNNABLE_ELSEWHERE, before);
            evidence.add(RUNNABLE_ELSEWHERE, after);
        }
        Ok(())
    }
}
