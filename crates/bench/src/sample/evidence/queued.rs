//! The time that the participants of a batch waited in a run queue, if they sleep on purpose or wait for each
//! other, so that they need not run all the time. It does not include the time that the hypervisor took.

use std::fs::File;
use std::io;

use assay_process::accounting::{OWN_SCHEDSTAT, Schedstat, has_run_queue_delay};
use assay_quantity::Evidence;
use assay_quantity::evidence::QUEUED;

use super::witness::{Opened, Reading, Witness};
use crate::benchmark::{Participants, Sharing};
use crate::platform::clock::Source;

#[derive(Debug)]
struct Queued {
    /// The `schedstat` of each participant.
    queues: Vec<File>,
    before: Reading,
}

/// There is none if the kernel does not count run-queue delay. The queues of many participants are no
/// evidence: there they wait for each other.
pub(super) fn witness(_: Source, participants: &Participants) -> Opened {
    let sleep =
        matches!(participants.sharing, Sharing::Asleep | Sharing::TwoCpus { .. } | Sharing::OtherHost);
    if !sleep || !has_run_queue_delay() {
        return Ok(None);
    }
    let mut queues = vec![File::open(OWN_SCHEDSTAT)?];
    for partner in participants.partners() {
        queues.push(File::open(format!("/proc/{partner}/schedstat"))?);
    }
    Ok(Some(Box::new(Queued { queues, before: Reading::default() })))
}

impl Queued {
    #[expect(clippy::cast_precision_loss, reason = "a process waits for far less than 2^52 ns")]
    fn waited(&self) -> io::Result<Reading> {
        let waited_ns = self.queues.iter().map(|queue| Ok(Schedstat::read(queue)?.waited_ns));
        Ok(Reading::now(waited_ns.sum::<io::Result<u64>>()? as f64))
    }
}

impl Witness for Queued {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.waited()?;
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        evidence.add(QUEUED, self.waited()?.share_since(self.before));
        Ok(())
    }
}
