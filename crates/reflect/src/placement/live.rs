//! Processes as tasks: their processors are set by `sched_setaffinity`, their time slices by `sched_setattr`,
//! SIGSTOP pauses them, and what was found is restored at the end, also if this process is killed.

mod guard;
mod places;
mod scheduling;
mod survey;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_process::clock::now;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::thread::{CpuSet, Timespec, nanosleep};
use thiserror::Error;

use super::{Done, Length, Setting, Slices, Tasks};
pub use assay_process::slice::LONGEST;
use guard::Guard;
pub use places::Place;
use scheduling::{Found, set};
pub use survey::{MOST, Survey, Task};

/// Time after a change before a period begins, in which caches fill and the kernel moves threads.
const SETTLING: Duration = Duration::from_millis(50);

/// Longer than a usual time slice of the kernel.
const TURN: Duration = Duration::from_millis(8);

/// Time between two looks at processes that are placed.
const LOOK: Duration = Duration::from_secs(1);

/// Why processes cannot be placed.
#[derive(Debug, Error)]
pub enum NoPlacement {
    /// A process has ended meanwhile.
    #[error("process {0} has ended")]
    Ended(i32),
    /// There is nothing to choose.
    #[error("{0}")]
    NoChoice(String),
    /// More than [`MOST`].
    #[error("{0} processes are too many to measure each pair of them; give the {MOST} that work the most")]
    TooMany(usize),
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The kernel refused something.
    #[error("cannot {what} process {pid}: {source}")]
    Failed {
        /// What.
        what: &'static str,
        /// Which.
        pid: i32,
        /// Why.
        source: io::Error,
    },
    /// The guard could not be started.
    #[error("cannot start the process that restores what is changed if this one is killed: {0}")]
    NoGuard(io::Error),
}

/// Tasks that are placed. What was found is restored when it is dropped, or when this process is killed.
#[derive(Debug)]
pub struct Live<'a> {
    survey: &'a mut Survey,
    period: Duration,
    interrupt: &'a AtomicBool,
    places: Vec<CpuSet>,
    /// The places, and the processors that threads were found on.
    ours: Vec<CpuSet>,
    settings: Vec<Setting>,
    random: Pcg64Mcg,
    began: Instant,
    /// `None` after the end.
    guard: Option<Guard>,
}

impl<'a> Live<'a> {
    /// Begins to place the tasks of a survey. An interrupt ends the period in which it arrives.
    ///
    /// # Errors
    /// If the guard cannot be started.
    pub fn begin(
        survey: &'a mut Survey,
        period: Duration,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, NoPlacement> {
        let places: Vec<CpuSet> = survey.places.iter().map(|place| set(&place.cpus)).collect();
        let mut ours = places.clone();
        ours.extend(survey.tasks.iter().flat_map(|task| task.found.on()));
        let guard = Guard::start(|| {
            let _ = restore(survey, &ours);
        });
        let guard = Some(guard.map_err(NoPlacement::NoGuard)?);
        let settings = vec![Setting::Found; survey.tasks.len()];
        let random = Pcg64Mcg::seed_from_u64(1);
        Ok(Self { survey, period, interrupt, places, ours, settings, random, began: now(), guard })
    }

    /// The tasks, and the places.
    #[must_use]
    pub fn survey(&self) -> &Survey {
        self.survey
    }

    /// Time since it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Lets some time pass, up to a second.
    ///
    /// # Errors
    /// If a task has ended, or the user interrupts.
    pub fn look(&self, most: Duration) -> Result<(), NoPlacement> {
        sleep(most.min(LOOK), self.interrupt)?;
        self.survey.tasks.iter().try_for_each(Task::must_live)
    }

    /// Restores what was found.
    ///
    /// # Errors
    /// Of the first process that could not be restored; the others are.
    pub fn end(mut self) -> Result<(), NoPlacement> {
        self.restored()
    }

    fn restored(&mut self) -> Result<(), NoPlacement> {
        let Some(guard) = self.guard.take() else { return Ok(()) };
        // After an error, the guard tries it, too.
        restore(self.survey, &self.ours)?;
        guard.dismiss();
        Ok(())
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        // A caller that needs the result calls `end`.
        let _ = self.restored();
    }
}

impl Tasks for Live<'_> {
    type Error = NoPlacement;

    fn count(&self) -> usize {
        self.survey.tasks.len()
    }

    fn places(&self) -> Vec<usize> {
        self.survey.places.iter().map(|place| place.cpus.len()).collect()
    }

    fn may_pause(&self, task: usize) -> bool {
        self.survey.tasks[task].may_pause
    }

    fn arrange(&mut self, settings: &[Setting]) -> Result<(), NoPlacement> {
        let changed = (0..settings.len()).filter(|task| self.settings[*task] != settings[*task]);
        let changed: Vec<usize> = changed.collect();
        // Pauses come first, so that no two tasks run that should not run together. As found, a task begins
        // where it was, because the kernel rarely moves threads between processors that are equally busy;
        // none may be elsewhere before all are there, or the kernel makes the processors equal in its own
        // way.
        for &task in &changed {
            self.pause(task, settings[task])?;
        }
        for &task in &changed {
            self.prepare(task, settings[task])?;
            // Tasks that take turns on one processor do so in step with those on another one, for as long as
            // nothing disturbs them: those that interfere run always or never at the same time. Which of
            // these it is must not depend on how they were moved.
            sleep(self.random.random_range(Duration::ZERO..TURN), self.interrupt)?;
        }
        for &task in &changed {
            self.run(task, settings[task])?;
        }
        self.settings = settings.to_vec();
        sleep(SETTLING, self.interrupt)
    }

    fn is_bandwidth_bound(&self, task: usize) -> bool {
        self.survey.tasks[task].is_bandwidth_bound
    }

    fn may_lengthen_slices(&self) -> bool {
        self.survey.may_lengthen() > 0
    }

    fn set_slices(&mut self, slices: Slices) -> Result<(), NoPlacement> {
        let rotation = self.survey.rotation();
        for task in (0..self.count()).filter(|task| self.survey.tasks[*task].may_lengthen()) {
            match slices {
                Slices::Found => self.act(task, "restore", Found::restore_slices)?,
                Slices::Long => self.act(task, "change the time slice of", Found::lengthen_slices)?,
            }
            // As in `arrange`.
            sleep(self.random.random_range(Duration::ZERO..rotation), self.interrupt)?;
        }
        // A task that has a long turn goes on with it.
        sleep(rotation, self.interrupt)
    }

    fn period(&mut self, length: Length) -> Result<Vec<Done>, NoPlacement> {
        let length = match length {
            Length::Usual => self.period,
            Length::Turns => self.survey.turns(self.period),
        };
        self.survey.period(length, self.interrupt)
    }
}

/// The steps of a change.
impl Live<'_> {
    fn pause(&self, task: usize, setting: Setting) -> Result<(), NoPlacement> {
        if setting == Setting::Paused { self.act(task, "pause", Found::pause) } else { Ok(()) }
    }

    fn prepare(&self, task: usize, setting: Setting) -> Result<(), NoPlacement> {
        match setting {
            Setting::Found => self.act(task, "move", Found::move_back),
            Setting::At(place) => self.act(task, "move", |found| found.move_to(self.places[place])),
            Setting::Paused => Ok(()),
        }
    }

    fn run(&self, task: usize, setting: Setting) -> Result<(), NoPlacement> {
        match setting {
            Setting::Found => self.act(task, "restore", |found| found.restore(&self.ours))?,
            Setting::At(_) => {}
            Setting::Paused => return Ok(()),
        }
        if self.settings[task] == Setting::Paused { self.act(task, "resume", Found::resume) } else { Ok(()) }
    }

    fn act(
        &self,
        task: usize,
        what: &'static str,
        act: impl FnOnce(&Found) -> io::Result<()>,
    ) -> Result<(), NoPlacement> {
        let Task { pid, found, .. } = &self.survey.tasks[task];
        act(found).map_err(|source| failed(what, *pid, source))
    }
}

/// Restores all tasks, and returns the first error.
fn restore(survey: &Survey, ours: &[CpuSet]) -> Result<(), NoPlacement> {
    let mut result = Ok(());
    for Task { pid, found, may_pause, .. } in &survey.tasks {
        // It may have been paused, and must not stay so, whatever else fails.
        let resumed = if *may_pause { found.resume() } else { Ok(()) };
        let restored = found.restore(ours).and(resumed);
        result = result.and(restored.map_err(|source| failed("restore", *pid, source)));
    }
    result
}

/// Sleeps, unless the user interrupts.
fn sleep(length: Duration, interrupt: &AtomicBool) -> Result<(), NoPlacement> {
    let end = now() + length;
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(NoPlacement::Interrupted);
        }
        match Timespec::try_from(end.saturating_duration_since(now())) {
            // It returns early if a signal arrives, unlike the function of the standard library.
            Ok(left) if left != Timespec::default() => drop(nanosleep(&left)),
            _ => return Ok(()),
        }
    }
}

fn failed(what: &'static str, pid: i32, source: io::Error) -> NoPlacement {
    NoPlacement::Failed { what, pid, source }
}
