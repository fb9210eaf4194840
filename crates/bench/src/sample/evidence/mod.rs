//! Evidence about a sample: what the machine was like while its batches were timed.
//!
//! A [`Witness`] takes the readings of one kind of evidence, or of several from one source. It has a file of
//! its own and a row in [`WITNESSES`]. The raw readings are stored with the sample under the names of their
//! kinds; `statistics` judges them. The harness does not wait for a better condition and rejects no sample
//! for it.

mod core_width;
mod memory_pressure;
mod mprotect;
mod not_run;
mod queued;
mod tasks_elsewhere;
mod ticks;
mod usage;
mod witness;

use std::io;

use assay_quantity::Evidence;

use self::witness::Opened;
use crate::benchmark::Participants;
use crate::platform::clock::Source;

pub(crate) use self::witness::NoWitness;
pub use self::witness::Witness;

/// What a witness reads before and after, and how it is created.
enum Span {
    /// The preparation of the benchmark and all its batches.
    Process(fn(Source) -> Box<dyn Witness>),
    /// All batches.
    Sample(fn(&Participants) -> Box<dyn Witness>),
    /// Each batch.
    Batch(fn(Source, &Participants) -> Opened),
}

/// The witnesses, the outermost first: the last one reads immediately before and after a batch.
const WITNESSES: &[Span] = &[
    Span::Process(mprotect::witness),
    Span::Sample(tasks_elsewhere::witness),
    Span::Sample(memory_pressure::witness),
    Span::Sample(usage::witness),
    Span::Sample(ticks::witness),
    Span::Batch(core_width::witness),
    Span::Batch(queued::witness),
    Span::Batch(not_run::witness),
];

/// The witnesses of one sample. Its methods of [`Witness`] are called around each batch.
#[derive(Debug)]
pub struct Watch {
    clock: Source,
    process: Vec<Box<dyn Witness>>,
    sample: Vec<Box<dyn Witness>>,
    batch: Vec<Box<dyn Witness>>,
}

impl Watch {
    /// Starts to watch this process, before the benchmark is prepared.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    pub fn begin(clock: Source) -> io::Result<Self> {
        let witness =
            |span: &Span| if let Span::Process(witness) = span { Some(witness(clock)) } else { None };
        let mut process: Vec<Box<dyn Witness>> = WITNESSES.iter().filter_map(witness).collect();
        before_all(&mut process)?;
        Ok(Self { clock, process, sample: Vec::new(), batch: Vec::new() })
    }

    /// Starts to watch the calling thread and the other participants, before the first batch.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence. A kernel that does not count run-queue delay is not
    /// an error: see [`has_run_queue_delay`](assay_process::accounting::has_run_queue_delay).
    pub fn open(&mut self, participants: &Participants) -> io::Result<()> {
        for span in WITNESSES {
            match span {
                Span::Process(_) => {}
                Span::Sample(witness) => self.sample.push(witness(participants)),
                Span::Batch(witness) => self.batch.extend(witness(self.clock, participants)?),
            }
        }
        before_all(&mut self.sample)
    }

    /// Adds the readings around all batches, and around the preparation.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    pub fn close(mut self, evidence: &mut Evidence) -> io::Result<()> {
        after_all(&mut self.sample, evidence)?;
        after_all(&mut self.process, evidence)
    }
}

impl Witness for Watch {
    fn before(&mut self) -> io::Result<()> {
        before_all(&mut self.batch)
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        after_all(&mut self.batch, evidence)
    }
}

fn before_all(witnesses: &mut [Box<dyn Witness>]) -> io::Result<()> {
    witnesses.iter_mut().try_for_each(|witness| witness.before())
}

fn after_all(witnesses: &mut [Box<dyn Witness>], evidence: &mut Evidence) -> io::Result<()> {
    witnesses.iter_mut().rev().try_for_each(|witness| witness.after(evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Sharing;
    use crate::platform::clock::{Calibration, calibrate};
    use assay_process::accounting::{Stat, has_run_queue_delay, memory_stalled_ns};
    use assay_quantity::evidence::{
        CORE_WIDTH, CYCLE_NS, INTERRUPTS, INVOLUNTARY_SWITCHES, MAJOR_FAULTS, MEMORY_PRESSURE, MPROTECT_NS,
        NOT_RUN, QUEUED, RUNNABLE_ELSEWHERE, STOLEN,
    };

    /// Returns the numbers of readings around three batches, by kind.
    fn readings(clock: Source, sharing: Sharing, copies: u64) -> Vec<(String, usize)> {
        let mut watch = Watch::begin(clock).unwrap();
        watch.open(&Participants { sharing, cpu: 0, copies }).unwrap();
        let mut evidence = Evidence::default();
        for _ in 0..3 {
            watch.before().unwrap();
            watch.after(&mut evidence).unwrap();
        }
        watch.close(&mut evidence).unwrap();
        evidence.iter().map(|(kind, readings)| (kind.to_owned(), readings.len())).collect()
    }

    #[test]
    fn every_kind_that_the_machine_offers_is_read_and_no_other() {
        let Calibration { source, resolution_ns, .. } = calibrate();
        let readings = |sharing, copies| readings(source, sharing, copies);
        let stat = Stat::read().unwrap();
        let has_ticks = stat.ticks(0).is_some();
        // A clock of coarser steps may measure no time for the additions.
        let has_additions =
            cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) && resolution_ns < 100.0;
        let kinds = |core: bool, not_run: bool, queued: bool| {
            let kinds = [
                (CORE_WIDTH, 3, core && has_additions),
                (CYCLE_NS, 3, core && has_additions),
                (INTERRUPTS, 1, has_ticks),
                (INVOLUNTARY_SWITCHES, 1, true),
                (MAJOR_FAULTS, 1, true),
                (MEMORY_PRESSURE, 1, memory_stalled_ns().is_some()),
                (MPROTECT_NS, 1, true),
                (NOT_RUN, 3, not_run),
                (QUEUED, 3, queued && has_run_queue_delay()),
                (RUNNABLE_ELSEWHERE, 2, stat.runnable().is_some()),
                (STOLEN, 1, has_ticks),
            ];
            let offered = kinds.into_iter().filter(|(.., is_offered)| *is_offered);
            offered.map(|(kind, number, _)| (kind.to_owned(), number)).collect::<Vec<_>>()
        };
        let own = std::process::id().cast_signed();
        assert_eq!(readings(Sharing::Alone, 0), kinds(true, true, false));
        assert_eq!(readings(Sharing::Alone, 1), kinds(false, true, false));
        assert_eq!(readings(Sharing::OneCpu { partners: vec![own] }, 0), kinds(true, true, false));
        assert_eq!(readings(Sharing::Asleep, 0), kinds(true, false, true));
        assert_eq!(readings(Sharing::TwoCpus { partner: own, cpu: 0 }, 0), kinds(false, false, true));
        assert_eq!(readings(Sharing::OtherHost, 0), kinds(true, false, true));
        assert_eq!(readings(Sharing::Many { others: vec![own] }, 0), kinds(false, false, false));
    }
}
