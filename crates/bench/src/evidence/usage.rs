//! The involuntary context switches and the major page faults of this process.

use std::io;

use assay_process::accounting::{Usage, Who, usage};
use assay_quantity::Evidence;
use assay_quantity::evidence::{INVOLUNTARY_SWITCHES, MAJOR_FAULTS};

use super::{Participants, Witness};

#[derive(Debug)]
struct OfProcess {
    before: Usage,
}

pub(super) fn witness(_: &Participants) -> Box<dyn Witness> {
    Box::new(OfProcess { before: Usage::default() })
}

impl Witness for OfProcess {
    fn before(&mut self) -> io::Result<()> {
        self.before = usage(Who::Process)?;
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "events are far fewer than 2^52")]
    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        let now = usage(Who::Process)?;
        let switches = now.involuntary_switches.saturating_sub(self.before.involuntary_switches);
        evidence.add(INVOLUNTARY_SWITCHES, switches as f64);
        let faults = now.major_faults.saturating_sub(self.before.major_faults);
        evidence.add(MAJOR_FAULTS, faults as f64);
        Ok(())
    }
}
