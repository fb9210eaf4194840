//! Evidence that something else had the processor while a sample was timed.
//!
//! The harness calls [`Watch`] around every batch. What counts as disturbance depends on who is meant to
//! run ([`Sharing`]), because the time that a benchmark's own partner takes is part of the measurement.
//! What the evidence of a sample means is `quantity`'s verdict. Nothing here waits for a quiet moment: where other
//! guests keep the hardware threads busy there may be none.

pub(crate) mod core;
mod evidence;
pub(crate) mod translation;

use std::fs::File;
use std::io;

use assay_quantity::Contamination;

use crate::clock::{Source, monotonic};
pub use evidence::delay_is_told;
pub(crate) use evidence::usage;

use self::core::Looks;
use self::evidence::{
    Delay, OWN_DELAY, Ticks, cpu_time_ns, delay, is_runnable, parse_running, parse_ticks, process_ns,
    unsigned, usage_ns,
};

/// Who is meant to run during the timed part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// This process alone: whatever it waited in the run queue was somebody else's.
    Alone,
    /// This process, which sleeps on purpose: what it waited in its run queue beyond what a wake-up of this
    /// sample takes at least was somebody else's.
    Asleep,
    /// This process with its threads, the children that it waits for, and its partners, all on one processor
    /// that is never idle: whatever none of them ran was somebody else's.
    OneCpu {
        /// Process ids of the partners.
        partners: Vec<libc::pid_t>,
    },
    /// This process and a partner on another processor: whatever either waited in its run queue beyond what
    /// a wake-up of this sample takes at least (and at most [`WAKEUP_NS`]) was somebody else's.
    TwoCpus {
        /// Process or thread id of the partner.
        partner: libc::pid_t,
        /// Its processor.
        cpu: usize,
    },
    /// This process and a partner on another host, whose processors nobody here can see: whatever this one
    /// waited in its run queue beyond what a wake-up takes was somebody else's.
    OtherHost,
    /// This process and others of the same kind, more than there are processors or placed by the scheduler:
    /// waiting for each other is what is measured, so only what the hypervisor took was somebody else's.
    Many {
        /// Process or thread ids of those others that are no copies of this one.
        others: Vec<libc::pid_t>,
    },
}

/// Longest run-queue delay of one wake-up that is believed to be nobody's fault: the way from being made
/// runnable to running on an idle processor, which the kernel counts as delay. An idle virtual processor
/// takes a few microseconds. It is only a ceiling: what a wake-up takes is seen in the sample's calmest
/// batch, because a fixed allowance for thousands of wake-ups would hide a competitor.
pub const WAKEUP_NS: u64 = 20_000;

/// Notices disturbance around the batches of one sample.
pub trait Witness {
    /// Called right before a batch.
    ///
    /// # Errors
    /// When the kernel does not give the evidence.
    fn before(&mut self) -> io::Result<()>;

    /// Called right after a batch that took so long.
    ///
    /// # Errors
    /// When the kernel does not give the evidence.
    fn after(&mut self, elapsed_ns: f64) -> io::Result<()>;
}

/// The evidence that Linux keeps.
#[derive(Debug)]
pub struct Watch {
    sharing: Sharing,
    cpu: usize,
    /// Copies of the benchmark beside this one.
    copies: u64,
    own_delay: Option<File>,
    partner_delay: Option<File>,
    opened: Moment,
    before: Reading,
    batches: Vec<Batch>,
    sum: Contamination,
    looks: Option<Looks>,
}

/// What the whole machine did up to a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    ns: u64,
    ticks: Ticks,
    /// Runnable tasks that do not take part, for each processor.
    neighbours: f64,
}

/// What one batch was given and denied.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    delay: Delay,
    ran_ns: u64,
    elapsed_ns: f64,
    /// Time between the two readings: the batch and, with cold caches, the emptying of them before it.
    window_ns: f64,
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    at_ns: u64,
    /// Run-queue delay; `None` where the kernel does not tell it.
    delay: Option<Delay>,
    /// Processor time of everybody who is meant to run; 0 where delay is looked at instead.
    ran_ns: u64,
    involuntary_switches: u64,
    major_faults: u64,
}

impl Watch {
    /// Begins to watch the calling thread, which is bound to `cpu` and has so many copies running beside it.
    ///
    /// # Errors
    /// When `/proc` lacks the evidence. A kernel that does not tell run-queue delay is no error: see
    /// [`delay_is_told`].
    pub fn open(sharing: Sharing, cpu: usize, copies: u64) -> io::Result<Self> {
        let own_delay = delay_is_told().then(|| File::open(OWN_DELAY)).transpose()?;
        let partner_delay = match &sharing {
            Sharing::TwoCpus { partner, .. } if own_delay.is_some() => {
                Some(File::open(format!("/proc/{partner}/schedstat"))?)
            }
            _ => None,
        };
        let mut watch = Self {
            sharing,
            cpu,
            copies,
            own_delay,
            partner_delay,
            opened: Moment::default(),
            before: Reading::default(),
            batches: Vec::new(),
            sum: Contamination::default(),
            looks: None,
        };
        watch.opened = watch.moment()?;
        Ok(watch)
    }

    /// Looks at the core before and after each batch as well. `alone` is the width of a core that no other hardware
    /// thread uses, as far as it is known. Where a partner of the sample's may be that other thread, nothing is looked
    /// at.
    #[must_use]
    pub fn with_core(mut self, clock: Source, alone: f64) -> Self {
        let partners_elsewhere = matches!(self.sharing, Sharing::TwoCpus { .. } | Sharing::Many { .. });
        if !partners_elsewhere && self.copies == 0 {
            self.looks = Some(Looks::new(clock, alone));
        }
        self
    }

    /// How stolen time is found here.
    fn rule(&self) -> Rule {
        Rule::of(&self.sharing, self.own_delay.is_some())
    }

    /// The evidence of all batches together.
    ///
    /// Ticks are 10 ms, too coarse for a batch, so those of the whole watch are charged to the timed part
    /// by its share of the time: right in the mean over many samples, which is what a verdict looks at.
    /// For the same reason the sum of one sample may come out below zero, and is left so.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read.
    #[expect(clippy::cast_precision_loss, reason = "a sample is far shorter than 2^52 ns")]
    pub fn close(mut self) -> io::Result<Contamination> {
        let (opened, now) = (self.opened, self.moment()?);
        let watched_ns = now.ns.saturating_sub(opened.ns).max(1) as f64;
        let timed_share = (self.sum.wall_ns / watched_ns).min(1.0);
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64;
        let ns = |ticks: u64| ticks as f64 * tick_ns * timed_share;
        let hypervisor_ns = ns(now.ticks.stolen.saturating_sub(opened.ticks.stolen));
        self.sum.interrupt_ns = ns(now.ticks.interrupts.saturating_sub(opened.ticks.interrupts));
        self.sum.neighbours = now.neighbours.min(opened.neighbours);
        if let Some(looks) = &self.looks {
            looks.tell(&mut self.sum);
        }
        let rule = self.rule();
        let batches_ns = rule.stolen_ns(&self.batches);
        self.sum.stolen_ns = if rule == Rule::NobodyRan {
            // The wall time that nobody ran already holds what the hypervisor took, unless the kernel
            // charges that to processes; and kernels that time interrupts do not charge those to anybody.
            (batches_ns - self.sum.interrupt_ns).max(hypervisor_ns)
        } else {
            batches_ns + hypervisor_ns
        };
        Ok(self.sum)
    }

    fn reading(&self) -> io::Result<Reading> {
        let usage = usage(libc::RUSAGE_SELF)?;
        let files = [&self.own_delay, &self.partner_delay];
        let delays = files.into_iter().flatten().map(delay).collect::<io::Result<Vec<Delay>>>()?;
        Ok(Reading {
            at_ns: monotonic::now_ns(),
            delay: delays.into_iter().reduce(Delay::plus),
            ran_ns: if self.rule() == Rule::NobodyRan { self.ran_ns()? } else { 0 },
            involuntary_switches: unsigned(usage.ru_nivcsw),
            major_faults: unsigned(usage.ru_majflt),
        })
    }

    /// Processor time of this process, its children and its partners.
    fn ran_ns(&self) -> io::Result<u64> {
        let mut ran_ns = cpu_time_ns(libc::CLOCK_PROCESS_CPUTIME_ID)?;
        ran_ns += usage_ns(&usage(libc::RUSAGE_CHILDREN)?);
        if let Sharing::OneCpu { partners } = &self.sharing {
            for partner in partners {
                ran_ns += process_ns(*partner)?;
            }
        }
        Ok(ran_ns)
    }

    fn moment(&self) -> io::Result<Moment> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let mut ticks = parse_ticks(&stat, self.cpu).unwrap_or_default();
        if let Sharing::TwoCpus { cpu, .. } = self.sharing {
            ticks.stolen += parse_ticks(&stat, cpu).unwrap_or_default().stolen;
        }
        let own = 1 + self.copies + self.partners().iter().filter(|pid| runs(**pid)).count() as u64;
        let (running, cpus) = parse_running(&stat).unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "tasks and processors are few")]
        let neighbours = running.saturating_sub(own) as f64 / cpus.max(1) as f64;
        let ns = monotonic::now_ns();
        Ok(Moment { ns, ticks, neighbours })
    }

    fn partners(&self) -> Vec<libc::pid_t> {
        match &self.sharing {
            Sharing::OneCpu { partners } | Sharing::Many { others: partners } => partners.clone(),
            Sharing::TwoCpus { partner, .. } => vec![*partner],
            _ => Vec::new(),
        }
    }
}

fn runs(pid: libc::pid_t) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_runnable(&stat))
}

impl Witness for Watch {
    fn before(&mut self) -> io::Result<()> {
        if let Some(looks) = &mut self.looks {
            looks.batch_begins();
        }
        self.before = self.reading()?;
        Ok(())
    }

    fn after(&mut self, elapsed_ns: f64) -> io::Result<()> {
        let (before, after) = (self.before, self.reading()?);
        if let Some(looks) = &mut self.looks {
            looks.batch_ended();
        }
        self.batches.push(Batch::between(&before, &after, elapsed_ns));
        self.sum.wall_ns += elapsed_ns;
        self.sum.involuntary_switches +=
            after.involuntary_switches.saturating_sub(before.involuntary_switches);
        self.sum.major_faults += after.major_faults.saturating_sub(before.major_faults);
        Ok(())
    }
}

/// How the stolen time of a batch is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// What was waited in the run queue.
    Delay,
    /// The same, less what every wake-up of the sample waits anyway.
    DelayBeyondWakeups,
    /// What nobody ran of those who are meant to run on the one processor.
    NobodyRan,
    /// Not at all: whoever takes part waits for good reasons, or delay is not told.
    Unknown,
}

impl Rule {
    fn of(sharing: &Sharing, delay_is_told: bool) -> Self {
        match (sharing, delay_is_told) {
            (Sharing::Alone, true) => Rule::Delay,
            (Sharing::OneCpu { .. }, _) | (Sharing::Alone, false) => Rule::NobodyRan,
            (Sharing::Asleep | Sharing::TwoCpus { .. } | Sharing::OtherHost, true) => {
                Rule::DelayBeyondWakeups
            }
            (Sharing::Asleep | Sharing::TwoCpus { .. } | Sharing::OtherHost, false)
            | (Sharing::Many { .. }, _) => Rule::Unknown,
        }
    }

    /// Stolen time of all batches of a sample: of what was stolen between the readings around one, its share by time.
    #[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ns")]
    fn stolen_ns(self, batches: &[Batch]) -> f64 {
        let allowed_ns = if self == Rule::DelayBeyondWakeups { wakeup_ns(batches) } else { 0 };
        let of = |batch: &Batch| match self {
            Rule::Delay | Rule::DelayBeyondWakeups => {
                let allowed_ns = batch.delay.wakeups.saturating_mul(allowed_ns);
                (batch.delay.waited_ns.saturating_sub(allowed_ns) as f64).min(batch.window_ns)
            }
            Rule::NobodyRan => batch.window_ns - batch.ran_ns as f64,
            Rule::Unknown => 0.0,
        };
        batches.iter().map(|batch| of(batch) * batch.elapsed_ns / batch.window_ns).sum()
    }
}

/// What one wake-up waits though nobody is in its way: the delay per wake-up of the calmest batch.
fn wakeup_ns(batches: &[Batch]) -> u64 {
    let per_wakeup = |batch: &Batch| batch.delay.waited_ns.checked_div(batch.delay.wakeups);
    batches.iter().filter_map(per_wakeup).min().unwrap_or(0).min(WAKEUP_NS)
}

impl Batch {
    #[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ns")]
    fn between(before: &Reading, after: &Reading, elapsed_ns: f64) -> Self {
        let (from, to) = (before.delay.unwrap_or_default(), after.delay.unwrap_or_default());
        let delay = Delay {
            waited_ns: to.waited_ns.saturating_sub(from.waited_ns),
            wakeups: to.wakeups.saturating_sub(from.wakeups),
        };
        let window_ns = (after.at_ns.saturating_sub(before.at_ns) as f64).max(elapsed_ns);
        Self { delay, ran_ns: after.ran_ns.saturating_sub(before.ran_ns), elapsed_ns, window_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ran_ns: u64, waited_ns: u64, wakeups: u64) -> Reading {
        Reading { delay: Some(Delay { waited_ns, wakeups }), ran_ns, ..Reading::default() }
    }

    #[test]
    fn without_run_queue_delay_a_process_alone_has_lost_what_it_did_not_run() {
        let (alone, one) = (&Sharing::Alone, &Sharing::OneCpu { partners: vec![] });
        let two = &Sharing::TwoCpus { partner: 1, cpu: 1 };
        let (before, after) = (reading(1_000, 50_000, 3), reading(61_000, 150_000, 5));
        let batch = Batch::between(&before, &after, 200_000.0);
        let stolen = |sharing, told| format!("{:.0}", Rule::of(sharing, told).stolen_ns(&[batch]));
        assert_eq!([stolen(alone, true), stolen(alone, false)], ["100000", "140000"]);
        assert_eq!([stolen(one, true), stolen(one, false)], ["140000", "140000"]);
        assert_eq!([stolen(two, true), stolen(two, false)], ["60000", "0"]);
        for awaited in [&Sharing::Asleep, &Sharing::OtherHost] {
            assert_eq!([stolen(awaited, true), stolen(awaited, false)], ["60000", "0"]);
        }
    }

    #[test]
    fn delay_outside_of_a_batch_is_not_charged_to_it() {
        let batch = Batch::between(&reading(0, 0, 0), &reading(0, 9_000, 1), 4_000.0);
        let stolen = Rule::Delay.stolen_ns(&[batch]);
        assert!((stolen - 4_000.0).abs() < 0.5, "{stolen}");
    }

    #[test]
    fn a_batch_is_charged_with_its_share_of_what_was_stolen_while_caches_were_emptied_before_it() {
        let at = |at_ns, ran_ns, waited_ns| Reading { at_ns, ..reading(ran_ns, waited_ns, 1) };
        // 2 us of 2 ms, in which 400 us were waited.
        let batch = Batch::between(&at(0, 0, 0), &at(2_000_000, 1_600_000, 400_000), 2_000.0);
        for rule in [Rule::Delay, Rule::NobodyRan] {
            let stolen = rule.stolen_ns(&[batch]);
            assert!((stolen - 400.0).abs() < 0.5, "{rule:?}: {stolen}");
        }
    }

    #[test]
    fn wake_ups_are_allowed_what_they_wait_in_the_calmest_batch_and_no_more_than_the_ceiling() {
        let batch = |waited_ns, wakeups, elapsed_ns| Batch {
            delay: Delay { waited_ns, wakeups },
            ran_ns: 0,
            elapsed_ns,
            window_ns: elapsed_ns,
        };
        let stolen = |batches: &[Batch]| format!("{:.0}", Rule::DelayBeyondWakeups.stolen_ns(batches));
        let calm = batch(30_000, 10, 500_000.0);
        // 3 us per wake-up, and 15 us where something else runs: a fixed 20 us would have hidden it.
        assert_eq!(stolen(&[calm, batch(150_000, 10, 500_000.0)]), "120000");
        assert_eq!(stolen(&[calm, batch(9_000_000, 10, 500_000.0)]), "500000");
        // Never calm: 50 us per wake-up are somebody's fault.
        assert_eq!(stolen(&[batch(500_000, 10, 1e6), batch(500_000, 10, 1e6)]), "600000");
        // Whoever never slept has nothing to be allowed.
        assert_eq!(stolen(&[batch(70_000, 0, 500_000.0)]), "70000");
    }

    #[test]
    fn time_that_a_process_alone_spends_running_is_not_stolen() {
        let mut watch = Watch::open(Sharing::OneCpu { partners: vec![] }, 0, 0).unwrap();
        let begun = monotonic::now_ns();
        watch.before().unwrap();
        let ran = cpu_time_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap();
        while cpu_time_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap() < ran + 2_000_000 {}
        watch.after(2_000_000.0).unwrap();
        let window_ns = monotonic::now_ns() - begun;
        let stolen_ns = watch.rule().stolen_ns(&watch.batches);
        // Others may have had the processor meanwhile, but not for the time that this thread had it.
        assert!(stolen_ns <= (window_ns - 2_000_000) as f64, "{stolen_ns} of {window_ns}");
        assert!(stolen_ns > -100_000_000.0, "{stolen_ns}");
    }
}
