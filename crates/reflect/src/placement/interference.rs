//! What tasks do to each other: measured in pairs, predicted for all together.

use assay_quantity::{Estimate, Unit};
use assay_statistics::trimmed_mean;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Assignment, Done, Length, Setting, Tasks, WORTH, real};

/// Rounds of the measurement.
const ROUNDS: usize = 5;

/// Random assignments from which the search begins: with as many, it found the best of all assignments, or
/// one within 3 % of it, of ten thousand small sets of tasks.
const BEGINNINGS: usize = 64;

/// Predictions that differ by less are equal but for rounding.
const EQUAL: f64 = 1e-9;

/// The least that a task is predicted to keep, so that its logarithm is finite.
const NEARLY_NOTHING: f64 = 1e-6;

/// What a task keeps of its productivity beside one other task; 1 is all of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// In the same place; there 1 is the task's share of the processors, for which the two may have to wait.
    pub together: Estimate,
    /// In two places.
    pub apart: Estimate,
}

/// The productivity of tasks alone and in pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Interference {
    /// What each task did alone, in all rounds.
    alone: Vec<Done>,
    /// Row after row: what the task of the row keeps beside that of the column. `None` beside itself, and for
    /// a task that did nothing in a round alone, such as one that waits for another.
    pairs: Vec<Option<Pair>>,
    /// Whether each is limited by the bandwidth of the memory, by its advice.
    bandwidth_bound: Vec<bool>,
}

impl Interference {
    /// Number of periods that a measurement takes.
    #[must_use]
    pub fn periods(tasks: usize) -> usize {
        // Each alone, and each of tasks * (tasks - 1) / 2 pairs in one place and in two.
        ROUNDS * tasks * tasks
    }

    /// Measures tasks alone, then in pairs, while the others are paused, in places that are taken to be
    /// alike.
    ///
    /// # Errors
    /// Those of the tasks, which are then left as they are.
    pub fn measure<T: Tasks>(tasks: &mut T) -> Result<Self, T::Error> {
        let count = tasks.count();
        let others: Vec<Setting> = (0..count)
            .map(|task| if tasks.may_pause(task) { Setting::Paused } else { Setting::Found })
            .collect();
        let mut alone = vec![Vec::with_capacity(ROUNDS); count];
        let mut together = vec![Vec::with_capacity(ROUNDS); count * count];
        let mut apart = together.clone();
        for _ in 0..ROUNDS {
            for (task, alone) in alone.iter_mut().enumerate() {
                let mut settings = others.clone();
                settings[task] = Setting::At(0);
                tasks.arrange(&settings)?;
                alone.push(tasks.period(Length::Usual)?[task]);
            }
            for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
                for (done, second) in [(&mut together, 0), (&mut apart, 1)] {
                    let mut settings = others.clone();
                    (settings[a], settings[b]) = (Setting::At(0), Setting::At(second));
                    tasks.arrange(&settings)?;
                    let period = tasks.period(Length::Usual)?;
                    done[a * count + b].push(period[a]);
                    done[b * count + a].push(period[b]);
                }
            }
        }
        tasks.arrange(&vec![Setting::Found; count])?;
        let sums: Vec<Done> = alone.iter().map(|rounds| rounds.iter().copied().sum()).collect();
        let processors = real(tasks.places()[0]);
        let pair = |place: usize| {
            let (a, b) = (place / count, place % count);
            let share = granted(&[load(&sums[a]), load(&sums[b])], processors)[0];
            let kept = |beside: &[Done], share: f64| {
                let ratios =
                    beside.iter().zip(&alone[a]).map(|(beside, alone)| beside.rate() / alone.rate() / share);
                // Not finite, if it did nothing in a round alone.
                trimmed_mean(&ratios.collect::<Vec<_>>(), Unit::Ratio).ok()
            };
            Some(Pair { together: kept(&together[place], share)?, apart: kept(&apart[place], 1.0)? })
        };
        let pairs = (0..count * count).map(pair).collect();
        let bandwidth_bound = (0..count).map(|task| tasks.is_bandwidth_bound(task)).collect();
        Ok(Self { alone: sums, pairs, bandwidth_bound })
    }

    /// What each task did alone, in all rounds together.
    #[must_use]
    pub fn alone(&self) -> &[Done] {
        &self.alone
    }

    /// What a task keeps beside another one; `None` if it did nothing in a round alone.
    #[must_use]
    pub fn pair(&self, task: usize, other: usize) -> Option<Pair> {
        self.pairs[task * self.alone.len() + other]
    }

    /// Predicts the productivity of all tasks over that of each alone, as the mean of the logarithms. What a
    /// task loses to several others is taken as the product of what it loses to each, for the share of the
    /// time in which that one runs.
    fn predicted(&self, assignment: &[usize], places: &[usize]) -> f64 {
        let mut shares = vec![1.0; assignment.len()];
        let mut loads = vec![0.0; places.len()];
        for (place, processors) in places.iter().enumerate() {
            let members: Vec<usize> =
                (0..assignment.len()).filter(|task| assignment[*task] == place).collect();
            let of_members: Vec<f64> = members.iter().map(|task| load(&self.alone[*task])).collect();
            loads[place] = of_members.iter().sum();
            for (task, share) in members.into_iter().zip(granted(&of_members, real(*processors))) {
                shares[task] = share;
            }
        }
        let kept = |task: usize| -> f64 {
            let place = assignment[task];
            let others = (0..assignment.len()).filter(|other| *other != task);
            let factor = |other: usize| {
                let Some(Pair { together, apart }) = self.pair(task, other) else { return 1.0 };
                let (is_apart, is_single) = (assignment[other] != place, places[place] == 1);
                let measured = if is_apart { apart.point } else { together.point };
                // Two that are bandwidth-bound by their advice lose something if they run at the same time on
                // processors that share the memory, which noise may hide.
                let both = self.bandwidth_bound[task] && self.bandwidth_bound[other];
                let kept = if both && is_apart == is_single { measured.min(1.0 / WORTH) } else { measured };
                let beside = match (is_apart, is_single) {
                    (true, _) => shares[other],
                    (false, true) => 1.0,
                    // Of several processors, the task has one, and the others in its place share the rest.
                    (false, false) => {
                        ((real(places[place]) - 1.0) / (loads[place] - load(&self.alone[task]))).min(1.0)
                    }
                };
                1.0 - beside * (1.0 - kept)
            };
            others.map(factor).product::<f64>() * shares[task]
        };
        let logarithm = |task| kept(task).max(NEARLY_NOTHING).ln();
        (0..assignment.len()).map(logarithm).sum::<f64>() / real(assignment.len())
    }

    /// Returns the assignment to places with this number of processors that promises the most: from
    /// [`BEGINNINGS`] random ones, single tasks are moved and pairs exchanged for as long as that improves
    /// it.
    #[must_use]
    pub fn best(&self, places: &[usize]) -> Assignment {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut begin = || self.alone.iter().map(|_| random.random_range(0..places.len())).collect();
        let ends = (0..BEGINNINGS).map(|_| self.climbed(begin(), places));
        let best = ends.reduce(|best, end| if end.1 > best.1 + EQUAL { end } else { best });
        best.expect("there are beginnings").0
    }

    /// Improves an assignment until no single step does, and returns it with its prediction.
    fn climbed(&self, mut assignment: Assignment, places: &[usize]) -> (Assignment, f64) {
        let mut now = self.predicted(&assignment, places);
        loop {
            let steps = neighbours(&assignment, places.len()).map(|next| {
                let predicted = self.predicted(&next, places);
                (next, predicted)
            });
            match steps.max_by(|a, b| a.1.total_cmp(&b.1)) {
                Some((next, predicted)) if predicted > now + EQUAL => (assignment, now) = (next, predicted),
                _ => return (assignment, now),
            }
        }
    }
}

/// The share of what each task needs that it gets of some processors: the kernel gives all the same time, and
/// what one does not need to the others.
fn granted(loads: &[f64], processors: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_unstable_by(|a, b| loads[*a].total_cmp(&loads[*b]));
    let mut shares = vec![1.0; loads.len()];
    let mut left = processors;
    for (place, task) in order.into_iter().enumerate() {
        let time = loads[task].min(left / real(loads.len() - place));
        shares[task] = time / loads[task];
        left -= time;
    }
    shares
}

/// Every assignment with one task in another place, or with two exchanged.
fn neighbours(assignment: &[usize], places: usize) -> impl Iterator<Item = Assignment> + '_ {
    let count = assignment.len();
    let moved = (0..count).flat_map(move |task| {
        (0..places).filter(move |place| *place != assignment[task]).map(move |place| {
            let mut next = assignment.to_vec();
            next[task] = place;
            next
        })
    });
    let exchanged = (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)));
    moved.chain(exchanged.filter(|(a, b)| assignment[*a] != assignment[*b]).map(|(a, b)| {
        let mut next = assignment.to_vec();
        next.swap(a, b);
        next
    }))
}

/// Processors that a task keeps busy.
fn load(done: &Done) -> f64 {
    // A task that sleeps all the time has a load, too: a sum of loads is a divisor.
    (done.busy_s / done.length_s).max(1e-3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(together: f64, apart: f64) -> Option<Pair> {
        let exactly = |kept| trimmed_mean(&[kept, kept], Unit::Ratio).unwrap();
        Some(Pair { together: exactly(together), apart: exactly(apart) })
    }

    /// All assignments of tasks to places.
    fn all(tasks: usize, places: usize) -> impl Iterator<Item = Assignment> {
        let number = places.pow(u32::try_from(tasks).unwrap());
        (0..number).map(move |code| {
            (0..tasks).map(|task| code / places.pow(u32::try_from(task).unwrap()) % places).collect()
        })
    }

    fn interferences() -> impl Strategy<Value = Interference> {
        (2_usize..7).prop_flat_map(|count| {
            let loads = prop::collection::vec(0.05_f64..1.0, count);
            let pairs = prop::collection::vec((0.3_f64..1.0, 0.3_f64..1.0), count * count);
            (loads, pairs).prop_map(move |(loads, pairs)| Interference {
                alone: loads
                    .into_iter()
                    .map(|busy_s| Done { units: 1000.0, length_s: 1.0, busy_s })
                    .collect(),
                pairs: pairs.into_iter().map(|(together, apart)| pair(together, apart)).collect(),
                bandwidth_bound: vec![false; count],
            })
        })
    }

    proptest! {
        #[test]
        fn the_search_finds_the_best_of_all_assignments(
            interference in interferences(),
            places in prop::collection::vec(1_usize..4, 2..4),
        ) {
            let found = interference.predicted(&interference.best(&places), &places);
            let best = all(interference.alone.len(), places.len())
                .map(|assignment| interference.predicted(&assignment, &places))
                .fold(f64::NEG_INFINITY, f64::max);
            // 3 % of productivity.
            prop_assert!(found >= best - 0.03, "{found} {best}");
        }
    }

    #[test]
    fn processors_are_shared_evenly_but_for_what_a_task_does_not_need() {
        let shown = |loads: &[f64], processors| format!("{:.2?}", granted(loads, processors));
        assert_eq!(shown(&[0.1, 1.0], 1.0), "[1.00, 0.90]");
        assert_eq!(shown(&[1.0, 0.5, 1.0], 1.0), "[0.33, 0.67, 0.33]");
        assert_eq!(shown(&[1.0, 1.0], 2.0), "[1.00, 1.00]");
        assert_eq!(shown(&[3.0, 0.5], 2.0), "[0.50, 1.00]");
    }

    #[test]
    fn without_interference_busy_tasks_are_spread_evenly_over_processors() {
        let busy = Done { units: 1000.0, length_s: 1.0, busy_s: 1.0 };
        let pairs = vec![pair(1.0, 1.0); 36];
        let interference = Interference { alone: vec![busy; 6], pairs, bandwidth_bound: vec![false; 6] };
        for places in [[1, 2], [2, 1]] {
            let best = interference.best(&places);
            let first = best.iter().filter(|place| **place == 0).count();
            assert_eq!(first, 2 * places[0], "{best:?}");
        }
    }

    #[test]
    fn tasks_that_interfere_in_a_shared_cache_get_caches_of_their_own() {
        // Two caches with two processors each; tasks 0 and 1 need a whole one.
        let busy = Done { units: 1000.0, length_s: 1.0, busy_s: 1.0 };
        let mut pairs = vec![pair(1.0, 1.0); 16];
        for place in [1, 4] {
            pairs[place] = pair(0.5, 1.0);
        }
        let interference = Interference { alone: vec![busy; 4], pairs, bandwidth_bound: vec![false; 4] };
        let best = interference.best(&[2, 2]);
        assert_ne!(best[0], best[1]);
        assert_ne!(best[2], best[3]);
    }

    #[test]
    fn tasks_that_are_bandwidth_bound_by_their_advice_do_not_share_a_memory_at_the_same_time() {
        let busy = Done { units: 1000.0, length_s: 1.0, busy_s: 1.0 };
        for advised in [[0, 3], [1, 2], [0, 1]] {
            // As measured, the memory is fast enough.
            let pairs = vec![pair(1.0, 1.0); 16];
            let bandwidth_bound = (0..4).map(|task| advised.contains(&task)).collect();
            let interference = Interference { alone: vec![busy; 4], pairs, bandwidth_bound };
            for (processors, expected) in [(1, true), (2, false)] {
                let best = interference.best(&[processors; 2]);
                assert_eq!(best[advised[0]] == best[advised[1]], expected, "{best:?}");
                assert_eq!(best.iter().filter(|place| **place == 0).count(), 2, "{best:?}");
            }
        }
    }
}
