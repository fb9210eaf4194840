//! Placement (Fowler et al., section 3.1): which tasks should share a processor or a cache, and which should
//! not, because they then do less?
//!
//! The productivity of each task is measured alone and beside each other one ([`Interference::measure`]). The
//! assignment of tasks to places that promises the most ([`Interference::best`]) is tried against the state
//! that was found ([`Trial::run`]). The control is pure; [`live`] acts on processes.

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

    /// Lets the tasks run like this, one setting for each.
    ///
    /// # Errors
    /// If a task cannot run like this.
    fn arrange(&mut self, settings: &[Setting]) -> Result<(), Self::Error>;

    /// Lets a period pass and returns what each task did in it.
    ///
    /// # Errors
    /// If a task has ended, or the user interrupts.
    fn period(&mut self) -> Result<Vec<Done>, Self::Error>;
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
}

impl Placement {
    /// Measures tasks, tries the assignment that promises the most, and leaves them in it if that raised
    /// their productivity, otherwise as found.
    ///
    /// # Errors
    /// Those of the tasks.
    pub fn find<T: Tasks>(tasks: &mut T) -> Result<Self, T::Error> {
        let interference = Interference::measure(tasks)?;
        let assignment = interference.best(&tasks.places());
        let trial = Trial::run(tasks, &assignment)?;
        let setting = |place: &usize| if trial.raised() { Setting::At(*place) } else { Setting::Found };
        tasks.arrange(&assignment.iter().map(setting).collect::<Vec<_>>())?;
        Ok(Self { interference, assignment, trial })
    }
}

/// Pairs of periods of a [`Trial`].
pub const PAIRS: usize = 24;

/// A smaller gain is not kept: it is not worth that the kernel can no longer balance the load.
pub const WORTH: f64 = 1.01;

/// An assignment that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What each task did as found, and in the assignment.
    pub done: Vec<[Done; 2]>,
    /// Productivity of each task in the assignment over that as found. Unit: a ratio.
    pub ratios: Vec<Estimate>,
    /// The same of all tasks: the geometric mean, so that one that loses half outweighs one that gains half.
    pub gain: Estimate,
}

impl Trial {
    /// Compares an assignment with the state as found, in [`PAIRS`] pairs of adjacent periods; the two states
    /// are first and second in turns.
    ///
    /// # Errors
    /// Those of the tasks.
    pub fn run<T: Tasks>(tasks: &mut T, assignment: &[usize]) -> Result<Self, T::Error> {
        let count = assignment.len();
        let states = [
            vec![Setting::Found; count],
            assignment.iter().map(|place| Setting::At(*place)).collect::<Vec<_>>(),
        ];
        let mut done = [Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS)];
        for pair in 0..PAIRS {
            for state in [pair % 2, 1 - pair % 2] {
                tasks.arrange(&states[state])?;
                done[state].push(tasks.period()?);
            }
        }
        let [found, placed] = &done;
        let logarithm = |pair: usize, task: usize| ratio(found[pair][task], placed[pair][task]).ln();
        let of_task = |task| exponential((0..PAIRS).map(|pair| logarithm(pair, task)));
        let of_all = |pair| (0..count).map(|task| logarithm(pair, task)).sum::<f64>() / real(count);
        let sums = |task| [found, placed].map(|periods| periods.iter().map(|period| period[task]).sum());
        Ok(Self {
            done: (0..count).map(sums).collect(),
            ratios: (0..count).map(of_task).collect(),
            gain: exponential((0..PAIRS).map(of_all)),
        })
    }

    /// Whether the assignment raised productivity: the whole interval is above [`WORTH`].
    #[must_use]
    pub fn raised(&self) -> bool {
        self.gain.interval.low > WORTH
    }
}

/// The ratio of two rates, with half a unit more in each so that a period without a unit has one, too.
fn ratio(found: Done, placed: Done) -> f64 {
    (placed.units + 0.5) / placed.length_s / ((found.units + 0.5) / found.length_s)
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

        fn arrange(&mut self, settings: &[Setting]) -> Result<(), Infallible> {
            self.settings = settings.to_vec();
            for (paused, setting) in self.paused.iter_mut().zip(settings) {
                *paused += u64::from(*setting == Setting::Paused);
            }
            Ok(())
        }

        fn period(&mut self) -> Result<Vec<Done>, Infallible> {
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
                Done { units: 1000.0 * share * kept, length_s: 1.0, busy_s: share }
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
        let Ok(trial) = Trial::run(&mut Simulated::new(&[0.5, 0.5, 0.0, 0.0]), &[0, 0, 0, 0]);
        assert!(!trial.raised(), "{trial:?}");
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
