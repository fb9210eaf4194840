//! The involuntary context switches and the major page faults of this process.

use std::io;

use assay_process::accounting::{Usage, Who, usage};
use assay_quantity::Evidence;
use assay_quantity::evidence::{INVOLUNTARY_SWITCHES, MAJOR_FAULTS};

use super::witness::Witness;
use crate::benchmark::Participants;

#[derive(Debug)]
struct ProcessUsage {
    before: Usage,
}

pub(super) fn witness(_: &Participants) -> Box<dyn Witness> {
    Box::new(ProcessUsage { before: Usage::default() })
}

impl Witness for ProcessUsage {
    fn before(&mut self) -> io::Result<()> {
        self.before = usage(Who::Process)?;
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "events are far fewer than 2^52")]
    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        let now = usage(Who::Process)?;
        let since_before = |count: fn(&Usage) -> u64| count(&now).saturating_sub(count(&self.before)) as f64;
        evidence.add(INVOLUNTARY_SWITCHES, since_before(|usage| usage.involuntary_switches));
        evidence.add(MAJOR_FAULTS, since_before(|usage| usage.major_faults));
        Ok(())
    }
}
