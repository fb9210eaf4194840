//! Evidence about a sample: the time that its batches lost, and the condition of the machine during the
//! measurement.
//!
//! The harness calls [`Watch`] around every batch. The *disturbance* of a batch is the time that other tasks
//! took from it ([`disturbance`]); `statistics` omits such batches. The *condition* of the machine is raw
//! evidence stored with the sample: the harness does not wait for a better condition and rejects no sample
//! for it.

pub(crate) mod core_width;
mod disturbance;
pub(crate) mod mprotect;

use std::io;

use assay_process::accounting::{Stat, Ticks, Who, is_runnable, memory_stalled_ns, usage};
use assay_quantity::{Condition, Observation};

use crate::clock::{Source, monotonic};
pub use disturbance::Sharing;

use self::core_width::Looks;
use self::disturbance::Losses;

/// Watches the batches of one sample.
pub trait Witness {
    /// Called immediately before a batch.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    fn before(&mut self) -> io::Result<()>;

    /// Called immediately after a batch, with its time. Returns the part of it in which the participants
    /// should have run but did not, ns.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    fn after(&mut self, elapsed_ns: f64) -> io::Result<f64>;
}

/// Collects the evidence from Linux and from the core.
#[derive(Debug)]
pub struct Watch {
    losses: Losses,
    /// The known processors of the participants.
    cpus: Vec<usize>,
    /// Number of other copies of the benchmark.
    copies: u64,
    opened: Moment,
    looks: Option<Looks>,
}

/// Counters of the whole machine and of this process at one point in time.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    ns: u64,
    /// `None` if the kernel does not count them.
    ticks: Option<Ticks>,
    /// Runnable tasks that do not take part, per processor.
    runnable_elsewhere: Option<f64>,
    /// Time in which a task waited for memory, ns.
    stalled_ns: Option<f64>,
    involuntary_switches: u64,
    major_faults: u64,
}

impl Watch {
    /// Starts to watch the calling thread, which is bound to `cpu`, with this number of other copies running.
    ///
    /// # Errors
    /// Fails if `/proc` lacks the evidence. A kernel that does not count run-queue delay is not an error: see
    /// [`has_run_queue_delay`](assay_process::accounting::has_run_queue_delay).
    pub fn open(sharing: Sharing, cpu: usize, copies: u64) -> io::Result<Self> {
        let mut cpus = vec![cpu];
        if let Sharing::TwoCpus { cpu, .. } = sharing {
            cpus.push(cpu);
        }
        let losses = Losses::of(sharing)?;
        let mut watch = Self { losses, cpus, copies, opened: Moment::default(), looks: None };
        watch.opened = watch.moment()?;
        Ok(watch)
    }

    /// Also measures the core after each batch, unless there are participants on other processors: they may
    /// run on the core's other hardware thread.
    #[must_use]
    pub fn with_core(mut self, clock: Source) -> Self {
        if self.copies == 0 && self.losses.sharing.is_on_one_cpu() {
            self.looks = Some(Looks::new(clock));
        }
        self
    }

    /// Returns the condition of the machine during all batches. Converts the time that the batches did not
    /// run to the time that they lost.
    ///
    /// # Errors
    /// Fails if `/proc/stat` cannot be read.
    #[expect(clippy::cast_precision_loss, reason = "a sample is far shorter than 2^52 ns")]
    pub fn close(self, batches: [&mut [Observation]; 2]) -> io::Result<Condition> {
        let (opened, now) = (self.opened, self.moment()?);
        let watched_ns = now.ns.saturating_sub(opened.ns).max(1) as f64;
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64 / self.cpus.len() as f64;
        let ticks = |of: fn(Ticks) -> u64| {
            let passed = of(now.ticks?).saturating_sub(of(opened.ticks?));
            Some(passed as f64 * tick_ns / watched_ns)
        };
        let stolen = ticks(|ticks| ticks.stolen);
        for batches in batches {
            self.losses.charge(batches, stolen.unwrap_or(0.0));
        }
        let both = |of: fn(&Moment) -> Option<f64>| of(&opened).zip(of(&now));
        let mut condition = Condition {
            runnable_elsewhere: both(|moment| moment.runnable_elsewhere)
                .map(|(before, after)| before.min(after)),
            memory_pressure: both(|moment| moment.stalled_ns)
                .map(|(before, after)| (after - before) / watched_ns),
            interrupts: ticks(|ticks| ticks.interrupts),
            stolen,
            involuntary_switches: now.involuntary_switches.saturating_sub(opened.involuntary_switches),
            major_faults: now.major_faults.saturating_sub(opened.major_faults),
            ..Condition::default()
        };
        if let Some(looks) = &self.looks {
            looks.summarise_in(&mut condition);
        }
        Ok(condition)
    }

    fn moment(&self) -> io::Result<Moment> {
        let stat = Stat::read()?;
        let stalled_ns = memory_stalled_ns();
        let usage = usage(Who::Process)?;
        let partners = self.losses.sharing.partners().filter(|pid| is_runnable(*pid)).count() as u64;
        let own = 1 + self.copies + partners;
        #[expect(clippy::cast_precision_loss, reason = "tasks and processors are few")]
        let beside = |running: u64| running.saturating_sub(own) as f64 / stat.cpus().max(1) as f64;
        Ok(Moment {
            ns: monotonic::now_ns(),
            ticks: self.cpus.iter().map(|cpu| stat.ticks(*cpu)).sum(),
            runnable_elsewhere: stat.runnable().map(beside),
            stalled_ns,
            involuntary_switches: usage.involuntary_switches,
            major_faults: usage.major_faults,
        })
    }
}

impl Witness for Watch {
    fn before(&mut self) -> io::Result<()> {
        self.losses.before()
    }

    fn after(&mut self, elapsed_ns: f64) -> io::Result<f64> {
        let idle_ns = self.losses.after(elapsed_ns)?;
        if let Some(looks) = &mut self.looks {
            looks.look();
        }
        Ok(idle_ns)
    }
}
