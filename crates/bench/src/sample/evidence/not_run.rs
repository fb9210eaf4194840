//! The time in which none of the participants of a batch ran, if one of them always should: waiting in a run
//! queue or for a disk, and the time that the hypervisor took, which the kernel does not charge to them.

use std::io;

use assay_process::accounting::{Who, own_cpu_ns, process_cpu_ns, usage};
use assay_quantity::Evidence;
use assay_quantity::evidence::NOT_RUN;

use super::witness::{Opened, Reading, Witness};
use crate::benchmark::{Participants, Sharing};
use crate::platform::clock::Source;

#[derive(Debug)]
struct NotRun {
    sharing: Sharing,
    before: Reading,
}

pub(super) fn witness(_: Source, participants: &Participants) -> Opened {
    let sharing = participants.sharing.clone();
    let always_runs = matches!(sharing, Sharing::Alone | Sharing::OneCpu { .. });
    Ok(always_runs.then(|| Box::new(NotRun { sharing, before: Reading::default() }) as Box<dyn Witness>))
}

impl NotRun {
    /// Returns the processor time of this process, its children and its partners.
    #[expect(clippy::cast_precision_loss, reason = "a process runs for far less than 2^52 ns")]
    fn ran(&self) -> io::Result<Reading> {
        let mut ran_ns = own_cpu_ns()?;
        if let Sharing::OneCpu { partners } = &self.sharing {
            ran_ns += usage(Who::Children)?.cpu_ns;
            for partner in partners {
                ran_ns += process_cpu_ns(*partner)?;
            }
        }
        Ok(Reading::now(ran_ns as f64))
    }
}

impl Witness for NotRun {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.ran()?;
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        evidence.add(NOT_RUN, 1.0 - self.ran()?.share_since(self.before));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::monotonic;
    use assay_process::accounting::thread_cpu_ns;

    fn reading(witness: &mut impl Witness) -> f64 {
        let mut evidence = Evidence::default();
        witness.after(&mut evidence).unwrap();
        evidence.of(NOT_RUN)[0]
    }

    #[test]
    fn a_process_did_not_run_in_the_time_since_the_first_reading_in_which_it_was_not_charged() {
        let mut alone = NotRun { sharing: Sharing::Alone, before: Reading::default() };
        alone.before().unwrap();
        // A reading long ago with the same processor time.
        alone.before.at_ns = alone.before.at_ns.saturating_sub(1_000_000_000_000);
        let not_run = reading(&mut alone);
        assert!((0.5..=1.0).contains(&not_run), "{not_run}");
    }

    #[test]
    fn time_in_which_the_only_process_runs_is_not_idle() {
        let mut witness =
            NotRun { sharing: Sharing::OneCpu { partners: Vec::new() }, before: Reading::default() };
        let begun_ns = monotonic::now_ns();
        witness.before().unwrap();
        let begun_ran_ns = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() < begun_ran_ns + 2_000_000 {}
        let not_run = reading(&mut witness);
        let window_ns = (monotonic::now_ns() - begun_ns) as f64;
        // Other tasks may have used the processor meanwhile, but not while this thread ran.
        assert!(not_run * window_ns <= window_ns - 2e6, "{not_run} of {window_ns}");
    }
}
