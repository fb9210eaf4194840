//! The runnable tasks that do not take part, per processor of the machine.

use std::io;

use assay_process::accounting::{Stat, is_runnable};
use assay_quantity::Evidence;
use assay_quantity::evidence::RUNNABLE_ELSEWHERE;

use super::witness::Witness;
use crate::benchmark::Participants;

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
        Ok(stat.runnable().map(|runnable| elsewhere(runnable, own, stat.cpus())))
    }
}

#[expect(clippy::cast_precision_loss, reason = "tasks and processors are few")]
fn elsewhere(runnable: u64, own: u64, cpus: u64) -> f64 {
    runnable.saturating_sub(own) as f64 / cpus.max(1) as f64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_tasks_are_not_elsewhere() {
        assert_eq!(vec![elsewhere(4, 1, 2), elsewhere(3, 3, 2), elsewhere(1, 2, 0)], [1.5, 0.0, 0.0]);
    }
}
