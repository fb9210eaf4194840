//! Placement (Fowler et al., section 3.1): which tasks should share a processor or a cache, and which should
//! not, because they then do less?
//!
//! The productivity of each task is measured alone and beside each other one ([`Interference::measure`]). The
//! assignment of tasks to places that promises the most ([`Interference::best`]) is tried against the state
//! that was found, then longer time slices for batch jobs ([`Trial::run`]). The control is pure; [`live`]
//! acts on processes.

mod interference;
pub mod live;

use std::iter::Sum;

use assay_quantity::{Estimate, Interval, Unit};
use assay_statistics::trimmed_mean;

pub use interference::{Interference, Pair};

/// The place of each task.
pub type Assignment = Vec<usize>;

/// How a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// As it was found.
    Found,
    /// On the processors of this place.
    At(usize),
    /// Not at all.
    Paused,
}

/// The time slices of the tasks that are batch jobs by their [advice](crate::advice): how long each runs
/// while others wait for its processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slices {
    /// As they were found.
    Found,
    /// The longest ones, with which a task fills its caches less often.
    Long,
}

/// How long a period is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As the user wants it.
    Usual,
    /// At least so long that each task has several turns with the longest time slice.
    Turns,
}

/// What a task did in a time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Done {
    /// Units of work.
    pub units: f64,
    /// Length of the time, s.
    pub length_s: f64,
    /// Processor time, s.
    pub busy_s: f64,
}

impl Done {
    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.units / self.length_s
    }
}

impl Sum for Done {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, done| Self {
            units: sum.units + done.units,
            length_s: sum.length_s + done.length_s,
            busy_s: sum.busy_s + done.busy_s,
        })
    }
}

/// Tasks that can be placed, paused and counted.
pub trait Tasks {
    /// Why tasks cannot be arranged or counted.
    type Error;

    /// Number of tasks.
    fn count(&self) -> usize;

    /// Number of processors of each place.
    fn places(&self) -> Vec<usize>;

    /// Whether a task may be paused.
    fn may_pause(&self, task: usize) -> bool;

    /// Whether a task is limited by the bandwidth of the memory, by its advice.
    fn is_bandwidth_bound(&self, task: usize) -> bool;

    /// Whether there are tasks whose time slices may be lengthened.
    fn may_lengthen_slices(&self) -> bool;

    /// Gives the tasks whose time slices may be lengthened these ones.
    ///
    /// # Errors
    /// If the kernel refuses it.
    fn set_slices(&mut self, slices: Slices) -> Result<(), Self::Error>;

    /// Lets the tasks run like this, one setting for each.
    ///
    /// # Errors
    /// If a task cannot run like this.
    fn arrange(&mut self, settings: &[Setting]) -> Result<(), Self::Error>;

    /// Lets a period pass and returns what each task did in it.
    ///
    /// # Errors
    /// If a task has ended, or the user interrupts.
    fn period(&mut self, length: Length) -> Result<Vec<Done>, Self::Error>;
}

/// What was found by measuring tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// What they do to each other.
    pub interference: Interference,
    /// The assignment that promises the most.
    pub assignment: Assignment,
    /// How much it raised their productivity.
    pub trial: Trial,
    /// How much longer time slices raised it then; `None` if there is no task whose slices may be
    /// lengthened.
    pub slices: Option<Trial>,
}

impl Placement {
    /// Measures tasks, tries the assignment that promises the most, then longer time slices, and leaves the
    /// tasks with each of these that raised their productivity, otherwise as found.
    ///
    /// # Errors
    /// Those of the tasks.
    pub fn find<T: Tasks>(tasks: &mut T) -> Result<Self, T::Error> {
        let interference = Interference::measure(tasks)?;
        let assignment = interference.best(&tasks.places());
        let trial = Trial::run(tasks, Change::Assignment(&assignment))?;
        let slices =
            if tasks.may_lengthen_slices() { Some(Trial::run(tasks, Change::Slices)?) } else { None };
        Ok(Self { interference, assignment, trial, slices })
    }

    /// Whether anything was kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.trial.raised() || self.slices.as_ref().is_some_and(Trial::raised)
    }
}

/// What a [`Trial`] changes.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// The places of all tasks.
    Assignment(&'a [usize]),
    /// The time slices of batch jobs.
    Slices,
}

impl Change<'_> {
    fn make<T: Tasks>(self, tasks: &mut T) -> Result<(), T::Error> {
        match self {
            Self::Assignment(assignment) => {
                tasks.arrange(&assignment.iter().map(|place| Setting::At(*place)).collect::<Vec<_>>())
            }
            Self::Slices => tasks.set_slices(Slices::Long),
        }
    }

    fn revert<T: Tasks>(self, tasks: &mut T) -> Result<(), T::Error> {
        match self {
            Self::Assignment(assignment) => tasks.arrange(&vec![Setting::Found; assignment.len()]),
            Self::Slices => tasks.set_slices(Slices::Found),
        }
    }

    /// Length of the periods in which the change is compared.
    fn length(self) -> Length {
        match self {
            Self::Assignment(_) => Length::Usual,
            Self::Slices => Length::Turns,
        }
    }
}

/// Pairs of periods of a [`Trial`].
pub const PAIRS: usize = 24;

/// A smaller gain is not kept: it is not worth that the kernel can no longer balance the load, or that tasks
/// wait longer for their turns.
pub const WORTH: f64 = 1.01;

/// A change that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What each task did without the change, and with it.
    pub done: Vec<[Done; 2]>,
    /// Productivity of each task with the change over that without. Unit: a ratio.
    pub ratios: Vec<Estimate>,
    /// The same of all tasks: the geometric mean, so that one that loses half outweighs one that gains half.
    pub gain: Estimate,
}

impl Trial {
    /// Compares the states without a change and with it in [`PAIRS`] pairs of adjacent periods, in which they
    /// are first and second in turns, and leaves the tasks with the change if it raised their productivity.
    ///
    /// # Errors
    /// Those of the tasks.
    pub fn run<T: Tasks>(tasks: &mut T, change: Change) -> Result<Self, T::Error> {
        let count = tasks.count();
        let (mut before, mut after) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
        for pair in 0..PAIRS {
            for state in [pair % 2, 1 - pair % 2] {
                if state == 0 {
                    change.revert(tasks)?;
                    before.push(tasks.period(change.length())?);
                } else {
                    change.make(tasks)?;
                    after.push(tasks.period(change.length())?);
                }
            }
        }
        let trial = Self::of(&before, &after, count);
        if trial.raised() {
            change.make(tasks)?
        } else {
            change.revert(tasks)?
        }
        Ok(trial)
    }

    /// The trial in which a number of tasks did this in each period without a change, and with it.
    fn of(before: &[Vec<Done>], after: &[Vec<Done>], count: usize) -> Self {
        let logarithm = |pair: usize, task: usize| ratio(before[pair][task], after[pair][task]).ln();
        let of_task = |task| exponential((0..PAIRS).map(|pair| logarithm(pair, task)));
        let of_all = |pair| (0..count).map(|task| logarithm(pair, task)).sum::<f64>() / real(count);
        let sums = |task| [before, after].map(|periods| periods.iter().map(|period| period[task]).sum());
        Self {
            done: (0..count).map(sums).collect(),
            ratios: (0..count).map(of_task).collect(),
            gain: exponential((0..PAIRS).map(of_all)),
        }
    }

    /// Whether the change raised productivity: the whole interval is above [`WORTH`].
    #[must_use]
    pub fn raised(&self) -> bool {
        self.gain.interval.low > WORTH
    }
}

/// The ratio of two rates, with half a unit more in each so that a period without a unit has one, too.
fn ratio(before: Done, after: Done) -> f64 {
    (after.units + 0.5) / after.length_s / ((before.units + 0.5) / before.length_s)
}

/// The ratio whose logarithms these are.
fn exponential(logarithms: impl Iterator<Item = f64>) -> Estimate {
    let mean = trimmed_mean(&logarithms.collect::<Vec<_>>(), Unit::Ratio);
    let mean = mean.expect("a trial has pairs, and ratios are positive");
    let interval = Interval { low: mean.interval.low.exp(), high: mean.interval.high.exp(), ..mean.interval };
    Estimate { point: mean.point.exp(), interval, ..mean }
}

#[expect(clippy::cast_precision_loss, reason = "a number of tasks or processors")]
fn real(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Tasks on simulated processors. A task loses a share of its productivity while one runs on another
    /// processor that loses one, too.
    struct Simulated {
        /// What a task of each kind loses beside another one.
        loses: Vec<f64>,
        processors: usize,
        settings: Vec<Setting>,
        may_pause: Vec<bool>,
        /// What all tasks do with long time slices over what they do with the usual ones, if they may have
        /// these.
        gain_of_slices: Option<f64>,
        slices: Slices,
        /// Number of times that each task was paused.
        paused: Vec<u64>,
        periods: u64,
    }

    impl Simulated {
        fn new(loses: &[f64]) -> Self {
            Self {
                loses: loses.to_vec(),
                processors: 2,
                settings: vec![Setting::Found; loses.len()],
                may_pause: vec![true; loses.len()],
                gain_of_slices: None,
                slices: Slices::Found,
                paused: vec![0; loses.len()],
                periods: 0,
            }
        }

        /// As found, the kernel places tasks in turn.
        fn place(&self, task: usize) -> Option<usize> {
            match self.settings[task] {
                Setting::Found => Some(task % self.processors),
                Setting::At(place) => Some(place),
                Setting::Paused => None,
            }
        }
    }

    impl Tasks for Simulated {
        type Error = Infallible;

        fn count(&self) -> usize {
            self.loses.len()
        }

        fn places(&self) -> Vec<usize> {
            vec![1; self.processors]
        }

        fn may_pause(&self, task: usize) -> bool {
            self.may_pause[task]
        }

        fn is_bandwidth_bound(&self, _: usize) -> bool {
            false
        }

        fn may_lengthen_slices(&self) -> bool {
            self.gain_of_slices.is_some()
        }

        fn set_slices(&mut self, slices: Slices) -> Result<(), Infallible> {
            self.slices = slices;
            Ok(())
        }

        fn arrange(&mut self, settings: &[Setting]) -> Result<(), Infallible> {
            self.settings = settings.to_vec();
            for (paused, setting) in self.paused.iter_mut().zip(settings) {
                *paused += u64::from(*setting == Setting::Paused);
            }
            Ok(())
        }

        fn period(&mut self, _: Length) -> Result<Vec<Done>, Infallible> {
            self.periods += 1;
            let load =
                |place| real((0..self.count()).filter(|task| self.place(*task) == Some(place)).count());
            let done = |task: usize| {
                let Some(place) = self.place(task) else { return Done { length_s: 1.0, ..Done::default() } };
                let share = 1.0 / load(place);
                let others = (0..self.count()).filter_map(|other| Some((other, self.place(other)?)));
                let kept: f64 = others
                    .filter(|(_, at)| *at != place)
                    .map(|(other, at)| 1.0 - self.loses[task].min(self.loses[other]) / load(at))
                    .product();
                let gain = if self.slices == Slices::Long { self.gain_of_slices.unwrap() } else { 1.0 };
                Done { units: 1000.0 * share * kept * gain, length_s: 1.0, busy_s: share }
            };
            Ok((0..self.count()).map(done).collect())
        }
    }

    fn measured(tasks: &mut Simulated) -> Interference {
        let Ok(interference) = Interference::measure(tasks);
        interference
    }

    #[test]
    fn interference_is_what_a_pair_loses() {
        // Found: each processor has one of each kind.
        let mut tasks = Simulated::new(&[0.5, 0.5, 0.0, 0.0]);
        let interference = measured(&mut tasks);
        assert!((interference.pair(0, 1).unwrap().apart.point - 0.5).abs() < 1e-9);
        assert!((interference.pair(0, 1).unwrap().together.point - 1.0).abs() < 1e-9);
        assert!((interference.pair(0, 2).unwrap().apart.point - 1.0).abs() < 1e-9);
        assert_eq!(tasks.settings, [Setting::Found; 4]);
    }

    #[test]
    fn what_raised_productivity_is_kept() {
        let mut tasks = Simulated::new(&[0.5, 0.0, 0.0, 0.5]);
        let Ok(Placement { assignment: best, trial, .. }) = Placement::find(&mut tasks);
        assert!(best[0] == best[3] && best[1] == best[2] && best[0] != best[1], "{best:?}");
        // Two tasks of four do 0.5 in place of 0.375.
        let expected = (0.5_f64 / 0.375).sqrt();
        assert!(trial.raised() && (trial.gain.point - expected).abs() < 1e-3, "{:?}", trial.gain);
        assert_eq!(tasks.settings, best.iter().map(|place| Setting::At(*place)).collect::<Vec<_>>());
        assert!(trial.ratios[0].point > 1.2 && trial.done[0][1].units > trial.done[0][0].units, "{trial:?}");
    }

    #[test]
    fn what_did_not_raise_productivity_is_reverted() {
        // Without interference; and with the best placement already.
        for loses in [[0.0; 4], [0.5, 0.0, 0.5, 0.0]] {
            let mut tasks = Simulated::new(&loses);
            let Ok(placement) = Placement::find(&mut tasks);
            assert!(!placement.trial.raised());
            assert_eq!(tasks.settings, [Setting::Found; 4]);
        }
        // Worse.
        let mut tasks = Simulated::new(&[0.5, 0.5, 0.0, 0.0]);
        let Ok(trial) = Trial::run(&mut tasks, Change::Assignment(&[0, 0, 0, 0]));
        assert!(!trial.raised(), "{trial:?}");
        assert_eq!(tasks.settings, [Setting::Found; 4]);
    }

    #[test]
    fn longer_time_slices_are_kept_if_they_raise_productivity() {
        // The places are as good as found.
        for (gain, expected) in [(1.5, Slices::Long), (1.0, Slices::Found), (0.5, Slices::Found)] {
            let mut tasks = Simulated::new(&[0.0; 4]);
            tasks.gain_of_slices = Some(gain);
            let Ok(placement) = Placement::find(&mut tasks);
            assert_eq!(tasks.slices, expected);
            assert_eq!(placement.is_kept(), expected == Slices::Long);
            assert!((placement.slices.unwrap().gain.point - gain).abs() < 1e-3);
            assert_eq!(tasks.settings, [Setting::Found; 4]);
        }
        // Both.
        let mut tasks = Simulated::new(&[0.5, 0.0, 0.0, 0.5]);
        tasks.gain_of_slices = Some(1.5);
        let Ok(Placement { trial, .. }) = Placement::find(&mut tasks);
        assert!(trial.raised() && tasks.slices == Slices::Long);
        assert!(tasks.settings.iter().all(|setting| *setting != Setting::Found));
    }

    #[test]
    fn what_may_not_be_paused_runs_all_the_time() {
        let mut tasks = Simulated::new(&[0.5, 0.0, 0.0, 0.5]);
        tasks.may_pause[2] = false;
        let _ = measured(&mut tasks);
        assert_eq!(tasks.paused[2], 0);
        assert!(tasks.paused[0] > 0);
    }

    #[test]
    fn a_task_that_did_nothing_in_a_period_makes_no_infinite_gain() {
        let nothing = Done { length_s: 1.0, ..Done::default() };
        let something = Done { units: 100.0, ..nothing };
        for (found, placed) in [(nothing, something), (something, nothing), (nothing, nothing)] {
            assert!(ratio(found, placed).ln().is_finite());
        }
    }
}
