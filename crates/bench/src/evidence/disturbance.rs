//! The time that a batch lost to other tasks.
//!
//! Which time counts depends on the tasks that take part ([`Sharing`]): the time that a benchmark's own
//! partner takes is part of the measurement, and so is the sleep of an operation that sleeps. The time that
//! the calmest batch of a sample did not run is therefore attributed to the operation: a wake-up takes some
//! time in the run queue even of an idle processor, and some kernels do not charge a task with the interrupts
//! that it causes.

use std::fs::File;
use std::io;

use assay_process::accounting::{
    OWN_SCHEDSTAT, Schedstat, Who, has_run_queue_delay, own_cpu_ns, process_cpu_ns, usage,
};
use assay_quantity::Observation;

use crate::clock::monotonic;

/// The participants: the tasks that take part in a benchmark, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// This process only, which is never idle.
    Alone,
    /// This process only, which sleeps on purpose.
    Asleep,
    /// This process with its threads, the children that it waits for, and its partners, all on one processor
    /// that is never idle.
    OneCpu {
        /// Process ids of the partners.
        partners: Vec<libc::pid_t>,
    },
    /// This process and a partner on another processor, which wait for each other.
    TwoCpus {
        /// Process or thread id of the partner.
        partner: libc::pid_t,
        /// Its processor.
        cpu: usize,
    },
    /// This process and a partner on another host, whose processors cannot be observed from here.
    OtherHost,
    /// This process and others of the same kind, more than there are processors or placed by the scheduler:
    /// their waiting for each other is part of the measurement.
    Many {
        /// Process or thread ids of the other participants that are not copies of this process.
        others: Vec<libc::pid_t>,
    },
}

impl Sharing {
    /// Whether all participants on this machine run on one processor.
    pub(super) fn is_on_one_cpu(&self) -> bool {
        !matches!(self, Sharing::TwoCpus { .. } | Sharing::Many { .. })
    }

    /// Returns the known ids of the other participants on this machine.
    pub(super) fn partners(&self) -> impl Iterator<Item = libc::pid_t> {
        let (many, one) = match self {
            Sharing::OneCpu { partners } | Sharing::Many { others: partners } => (partners.as_slice(), None),
            Sharing::TwoCpus { partner, .. } => (&[][..], Some(*partner)),
            Sharing::Alone | Sharing::Asleep | Sharing::OtherHost => (&[][..], None),
        };
        many.iter().copied().chain(one)
    }
}

/// The time that counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The time in which no participant ran: waiting in a run queue or for a disk, and the time that the
    /// hypervisor took, which the kernel does not charge to them.
    NotRun,
    /// The time that participants waited in a run queue, because they sleep on purpose. The time that the
    /// hypervisor took is known in ticks only.
    Queued,
    /// The time that the hypervisor took, in ticks: participants wait for each other, or the kernel does not
    /// count run-queue delay.
    Stolen,
}

impl Rule {
    fn of(sharing: &Sharing, has_delay: bool) -> Self {
        match sharing {
            Sharing::Alone | Sharing::OneCpu { .. } => Rule::NotRun,
            Sharing::Asleep | Sharing::TwoCpus { .. } | Sharing::OtherHost if has_delay => Rule::Queued,
            _ => Rule::Stolen,
        }
    }
}

/// Determines the time that the batches of one sample lost.
#[derive(Debug)]
pub(super) struct Losses {
    pub(super) sharing: Sharing,
    rule: Rule,
    /// Files with the run-queue delay, for [`Rule::Queued`].
    queues: Vec<File>,
    before: Reading,
}

/// Counters at one point in time.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    at_ns: u64,
    /// Processor time of the participants, or their run-queue delay, depending on the rule.
    counted_ns: u64,
}

impl Losses {
    pub(super) fn of(sharing: Sharing) -> io::Result<Self> {
        let rule = Rule::of(&sharing, has_run_queue_delay());
        let mut queues = Vec::new();
        if rule == Rule::Queued {
            queues.push(File::open(OWN_SCHEDSTAT)?);
            for partner in sharing.partners() {
                queues.push(File::open(format!("/proc/{partner}/schedstat"))?);
            }
        }
        Ok(Self { sharing, rule, queues, before: Reading::default() })
    }

    pub(super) fn before(&mut self) -> io::Result<()> {
        self.before = self.reading()?;
        Ok(())
    }

    /// Returns the part of a batch in which the participants should have run but did not, ns. This is the
    /// batch's share, by time, of the loss between the readings around it (before a batch with cold caches,
    /// the caches are emptied within this interval).
    #[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ns")]
    pub(super) fn after(&self, elapsed_ns: f64) -> io::Result<f64> {
        let (before, after) = (self.before, self.reading()?);
        let window_ns = (after.at_ns.saturating_sub(before.at_ns) as f64).max(elapsed_ns);
        let counted_ns = after.counted_ns.saturating_sub(before.counted_ns) as f64;
        let idle_ns = match self.rule {
            Rule::NotRun => window_ns - counted_ns,
            Rule::Queued => counted_ns,
            Rule::Stolen => 0.0,
        };
        Ok(if window_ns > 0.0 { idle_ns.clamp(0.0, window_ns) * elapsed_ns / window_ns } else { 0.0 })
    }

    /// Converts the time that the batches did not run to the time that they lost: subtracts the share that
    /// the calmest of them did not run, and adds the stolen share if the rule does not include it.
    pub(super) fn charge(&self, batches: &mut [Observation], stolen: f64) {
        let share = |batch: &Observation| batch.lost_ns / batch.elapsed_ns;
        let own = batches.iter().filter(|batch| batch.elapsed_ns > 0.0).map(share).reduce(f64::min);
        let stolen = if self.rule == Rule::NotRun { 0.0 } else { stolen };
        for batch in batches {
            let lost_ns = batch.lost_ns + (stolen - own.unwrap_or(0.0)) * batch.elapsed_ns;
            batch.lost_ns = lost_ns.clamp(0.0, batch.elapsed_ns);
        }
    }

    fn reading(&self) -> io::Result<Reading> {
        let at_ns = monotonic::now_ns();
        let counted_ns = match self.rule {
            Rule::NotRun => self.ran_ns()?,
            Rule::Queued => self.waited_ns()?,
            Rule::Stolen => 0,
        };
        Ok(Reading { at_ns, counted_ns })
    }

    /// Returns the time that the participants waited in their run queues.
    fn waited_ns(&self) -> io::Result<u64> {
        self.queues.iter().map(|queue| Ok(Schedstat::read(queue)?.waited_ns)).sum()
    }

    /// Returns the processor time of this process, its children and its partners.
    fn ran_ns(&self) -> io::Result<u64> {
        let mut ran_ns = own_cpu_ns()?;
        if let Sharing::OneCpu { partners } = &self.sharing {
            ran_ns += usage(Who::Children)?.cpu_ns;
            for partner in partners {
                ran_ns += process_cpu_ns(*partner)?;
            }
        }
        Ok(ran_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_process::accounting::thread_cpu_ns;

    #[test]
    fn a_task_that_never_sleeps_loses_the_time_it_does_not_run_and_one_that_sleeps_the_time_it_is_queued() {
        let one = Sharing::OneCpu { partners: vec![7] };
        let two = Sharing::TwoCpus { partner: 7, cpu: 1 };
        let many = Sharing::Many { others: vec![7, 8] };
        for has_delay in [true, false] {
            assert_eq!([Rule::of(&Sharing::Alone, has_delay), Rule::of(&one, has_delay)], [Rule::NotRun; 2]);
            let queued = if has_delay { Rule::Queued } else { Rule::Stolen };
            for sleeping in [&Sharing::Asleep, &two, &Sharing::OtherHost] {
                assert_eq!(Rule::of(sleeping, has_delay), queued);
            }
            assert_eq!(Rule::of(&many, has_delay), Rule::Stolen);
        }
        assert_eq!(two.partners().chain(many.partners()).collect::<Vec<_>>(), [7, 7, 8]);
    }

    /// Returns the lost time, in us, of batches that took 100 us each and did not run for `idle_us`.
    fn charged(sharing: Sharing, idle_us: &[f64], stolen: f64) -> Vec<f64> {
        let batch = |us: &f64| Observation { operations: 1, elapsed_ns: 1e5, lost_ns: us * 1e3 };
        let mut batches: Vec<Observation> = idle_us.iter().map(batch).collect();
        Losses::of(sharing).unwrap().charge(&mut batches, stolen);
        batches.iter().map(|batch| (batch.lost_ns / 1e3).round()).collect()
    }

    #[test]
    fn the_idle_time_of_the_calmest_batch_is_not_lost() {
        assert_eq!(charged(Sharing::Alone, &[0.0, 7.0, 0.0], 0.0), [0.0, 7.0, 0.0]);
        assert_eq!(charged(Sharing::Asleep, &[30.0, 33.0, 90.0], 0.0), [0.0, 3.0, 60.0]);
        assert_eq!(charged(Sharing::Alone, &[], 0.0), [0.0; 0]);
    }

    #[test]
    fn stolen_ticks_count_only_if_the_idle_time_does_not_include_stolen_time() {
        assert_eq!(charged(Sharing::Alone, &[0.0, 7.0], 0.5), [0.0, 7.0]);
        assert_eq!(charged(Sharing::Asleep, &[10.0, 17.0], 0.5), [50.0, 57.0]);
        assert_eq!(charged(Sharing::Many { others: vec![] }, &[0.0, 0.0], 2.0), [100.0, 100.0]);
    }

    #[test]
    fn a_batch_is_charged_with_its_share_of_the_time_between_the_readings_around_it() {
        let losses = Losses::of(Sharing::Alone).unwrap();
        let reading = losses.reading().unwrap();
        // A reading long ago with the same processor time: this process did not run since.
        let before = Reading { at_ns: reading.at_ns.saturating_sub(1_000_000_000_000), ..reading };
        let idle_ns = Losses { before, ..losses }.after(2_000.0).unwrap();
        assert!((1_000.0..=2_000.0).contains(&idle_ns), "{idle_ns}");
    }

    #[test]
    fn time_in_which_the_only_process_runs_is_not_lost() {
        let mut losses = Losses::of(Sharing::OneCpu { partners: vec![] }).unwrap();
        let begun_ns = monotonic::now_ns();
        losses.before().unwrap();
        let begun_ran_ns = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() < begun_ran_ns + 2_000_000 {}
        let idle_ns = losses.after(2_000_000.0).unwrap();
        let window_ns = monotonic::now_ns() - begun_ns;
        // Other tasks may have used the processor meanwhile, but not while this thread ran.
        assert!(idle_ns <= (window_ns - 2_000_000) as f64, "{idle_ns} of {window_ns}");
    }
}
