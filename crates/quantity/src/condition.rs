//! What a machine was like while a sample was taken, what it was like during a run, and which of it a cost depends
//! on.

use std::cmp::Ordering;
use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::comparison::family::SAME_WITHIN;
use crate::estimate::{middle, real};

/// What the machine was like while a sample was taken: raw evidence, never a reason to leave the sample out.
///
/// The machine is described with it, and typical costs include it: an application that runs on this machine runs under the
/// same conditions. A field is `None` if it was not looked at or the kernel does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Condition {
    /// Independent additions in the time of a dependent one: how wide the core was, the median of the looks after its
    /// batches. A core does fewer of them beside another busy hardware thread.
    pub core_width: Option<f64>,
    /// The widest of the same looks.
    pub core_width_max: Option<f64>,
    /// One cycle of the core's clock, the median of the same looks, ns.
    pub cycle_ns: Option<f64>,
    /// Time in which a page was protected from writing, permitted again and written to before the sample began, ns:
    /// how long the processor took to change what it translates.
    pub mprotect_ns: Option<f64>,
    /// Runnable tasks that do not take part, for each processor of the machine; seen at the beginning and at the end
    /// of the sample, the lesser of the two.
    pub runnable_elsewhere: Option<f64>,
    /// Share of the sample's time in which a task of the machine waited for memory (pressure stall information).
    pub memory_pressure: Option<f64>,
    /// Share of the sample's time that its processors spent in interrupts, counted in ticks of 10 ms.
    pub interrupts: Option<f64>,
    /// Share of the sample's time that the hypervisor took from its processors, counted in ticks of 10 ms.
    pub stolen: Option<f64>,
    /// Times that the scheduler took the processor away.
    pub involuntary_switches: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
}

/// A core narrower than this share of what it is alone is shared. On a virtual machine whose cores were shared with
/// other guests, it did 99 to 101 % of the additions that it does alone in 61 % of samples, 50 to 97 % in the others,
/// and 97 to 99 % in none.
const ALONE: f64 = 0.97;

/// Of the widest looks of all samples, the share that is no wider than a core is alone. A look during which the clock
/// changes comes out too wide: this happened to 1 % of the samples there.
const NOT_TOO_WIDE: f64 = 0.9;

/// How wide a core is that no other hardware thread shares, from all conditions of a run; `None` if nothing looked.
#[must_use]
pub fn width_alone(seen: &[Condition]) -> Option<f64> {
    let widest = sorted(seen, |seen| seen.core_width_max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    widest.get((NOT_TOO_WIDE * real(widest.len())) as usize).copied()
}

impl Condition {
    /// Whether another hardware thread was at work on the core, which is this wide alone ([`width_alone`]); `None` if
    /// nothing looked.
    #[must_use]
    pub fn is_shared(&self, alone: f64) -> Option<bool> {
        self.core_width.map(|width| width < ALONE * alone)
    }
}

/// What a machine was like during a whole run, as far as its costs are compared with those of another run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Conditions {
    /// Share of the samples beside which another hardware thread was at work; `None` if nothing looked.
    pub shared: Option<f64>,
    /// Cycle of the core's clock in the median sample, ns; `None` if nothing looked.
    pub cycle_ns: Option<f64>,
}

/// Difference between two shares of samples beside which another hardware thread was at work from which on costs
/// differ with it. In 25 runs of twelve primitives on a virtual machine whose cores were shared, the share was 52 to
/// 90 %, and the trimmed mean of all samples rose by 0.3 % (median primitive) for each per cent of it; so 3 % make
/// the 1 % within which costs count as the same.
const SHARED_APART: f64 = 0.03;

impl Conditions {
    /// Of all samples of a run.
    #[must_use]
    pub fn of(seen: &[Condition]) -> Self {
        let shared = width_alone(seen).and_then(|alone| {
            let looks: Vec<bool> = seen.iter().filter_map(|seen| seen.is_shared(alone)).collect();
            let shared = looks.iter().filter(|shared| **shared).count();
            (!looks.is_empty()).then(|| real(shared) / real(looks.len()))
        });
        let cycles = sorted(seen, |seen| seen.cycle_ns);
        Self { shared, cycle_ns: (!cycles.is_empty()).then(|| middle(&cycles)) }
    }

    /// Both shares of samples beside another hardware thread, if those of two runs are so far apart that typical costs
    /// differ with them.
    #[must_use]
    pub fn shared_apart(a: &Self, b: &Self) -> Option<[f64; 2]> {
        let shared = [a.shared?, b.shared?];
        ((shared[0] - shared[1]).abs() > SHARED_APART).then_some(shared)
    }

    /// Both cycles of the clock, ns, if those of two runs are so far apart that costs differ with them: by more than
    /// what counts as the same of costs.
    #[must_use]
    pub fn cycle_apart(a: &Self, b: &Self) -> Option<[f64; 2]> {
        let cycles = [a.cycle_ns?, b.cycle_ns?];
        ((cycles[0] / cycles[1]).ln().abs() > SAME_WITHIN).then_some(cycles)
    }
}

/// What these conditions have of something, ascending.
pub fn sorted(seen: &[Condition], of: impl Fn(&Condition) -> Option<f64>) -> Vec<f64> {
    let mut values: Vec<f64> = seen.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Something that a [`Condition`] tells, by the name that the description of a machine has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// Whether another hardware thread was at work on the core.
    CoreSharing,
    /// Length of a clock cycle.
    CoreClock,
    /// Time of a change of a page's protection.
    Mprotect,
    /// Runnable tasks that do not take part.
    TasksElsewhere,
    /// Tasks that waited for memory.
    MemoryPressure,
    /// Time in interrupts.
    Interrupts,
    /// Time that the hypervisor took.
    StolenTime,
    /// Involuntary context switches.
    Preemption,
    /// Page faults that waited for a disk.
    MajorFaults,
}

/// An aspect, its name, and its value in a condition.
type Row = (Aspect, &'static str, fn(&Condition) -> Option<f64>);

const ASPECTS: [Row; 9] = [
    (Aspect::CoreSharing, "core sharing", |seen| seen.core_width),
    (Aspect::CoreClock, "core clock", |seen| seen.cycle_ns),
    (Aspect::Mprotect, "page protection change", |seen| seen.mprotect_ns),
    (Aspect::TasksElsewhere, "tasks elsewhere", |seen| seen.runnable_elsewhere),
    (Aspect::MemoryPressure, "memory pressure", |seen| seen.memory_pressure),
    (Aspect::Interrupts, "interrupts", |seen| seen.interrupts),
    (Aspect::StolenTime, "stolen time", |seen| seen.stolen),
    (Aspect::Preemption, "preemption", |seen| count(seen.involuntary_switches)),
    (Aspect::MajorFaults, "major faults", |seen| count(seen.major_faults)),
];

#[expect(clippy::unnecessary_wraps, clippy::cast_precision_loss, reason = "a row of the table; few events")]
fn count(events: u64) -> Option<f64> {
    Some(events as f64)
}

impl Aspect {
    /// Its name in reports and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        ASPECTS.iter().find(|(aspect, ..)| *aspect == self).map_or("?", |(_, name, _)| name)
    }

    /// The aspect of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ASPECTS.iter().find(|(_, own, _)| *own == name).map(|(aspect, ..)| *aspect)
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Probability that some aspect is said to go with groups that it has nothing to do with: as usual for intervals, one in
/// twenty. A stricter level would find none in the dozen processes that a quick run has of a primitive.
const LEVEL: f64 = 0.05;

/// Share of the pairs of processes from different groups that an aspect must put in the order of the groups. Less would
/// not say which group the next process is in.
const ORDERED_MIN: f64 = 0.9;

/// The aspect that tells groups of processes apart, the cheaper ones first: it rises or falls with them so clearly that
/// it decides which group a process is in, or goes with what does. The clearest if there are several.
///
/// Kendall's rank correlation of each aspect with the groups, with his variance for ties in both (Rank Correlation
/// Methods, 1970, chapter 4), and Bonferroni's correction for the number of aspects.
#[must_use]
pub fn dependence(groups: &[Vec<Condition>]) -> Option<Aspect> {
    let trends = ASPECTS.iter().filter_map(|(aspect, _, of)| {
        let values: Vec<Vec<f64>> =
            groups.iter().map(|group| group.iter().filter_map(of).collect()).collect();
        Some((*aspect, Trend::of(&values)?))
    });
    let clear =
        trends.filter(|(_, trend)| trend.ordered >= ORDERED_MIN && trend.p < LEVEL / real(ASPECTS.len()));
    // Of equally clear ones the first of the table.
    let clearest = clear.reduce(|best, other| if other.1.ordered > best.1.ordered { other } else { best });
    Some(clearest?.0)
}

/// Whether values rise or fall from group to group.
struct Trend {
    /// Share of the pairs of values from different groups that are in the order of most of them; equal ones count half.
    ordered: f64,
    /// Probability of a trend as clear as this by chance, in either direction.
    p: f64,
}

impl Trend {
    /// `None` without values in two groups, or if all values are equal.
    fn of(groups: &[Vec<f64>]) -> Option<Self> {
        let order = |lower: &f64, upper: &f64| match upper.total_cmp(lower) {
            Ordering::Greater => 1.0,
            Ordering::Equal => 0.0,
            Ordering::Less => -1.0,
        };
        let (mut score, mut pairs) = (0.0_f64, 0.0);
        for (position, group) in groups.iter().enumerate() {
            for upper in groups[position + 1..].iter().flatten() {
                score += group.iter().map(|lower| order(lower, upper)).sum::<f64>();
                pairs += real(group.len());
            }
        }
        let mut all: Vec<f64> = groups.concat();
        all.sort_by(f64::total_cmp);
        let equal: Vec<f64> =
            all.chunk_by(|a, b| a.total_cmp(b).is_eq()).map(|run| real(run.len())).collect();
        let sizes: Vec<f64> = groups.iter().map(|group| real(group.len())).collect();
        let variance = variance(real(all.len()), &equal, &sizes);
        let p = 2.0 * Normal::standard().sf(score.abs() / variance.sqrt());
        (variance > 0.0).then(|| Self { ordered: f64::midpoint(1.0, score.abs() / pairs), p })
    }
}

/// Variance of Kendall's score of `n` pairs, of which these numbers are equal in the one and in the other.
fn variance(n: f64, ties: &[f64], others: &[f64]) -> f64 {
    let all = |ties: &[f64], term: fn(f64) -> f64| ties.iter().copied().map(term).sum::<f64>();
    let of_ties: fn(f64) -> f64 = |t| t * (t - 1.0) * (2.0 * t + 5.0);
    let in_pairs: fn(f64) -> f64 = |t| t * (t - 1.0);
    let in_threes: fn(f64) -> f64 = |t| t * (t - 1.0) * (t - 2.0);
    (of_ties(n) - all(ties, of_ties) - all(others, of_ties)) / 18.0
        + all(ties, in_pairs) * all(others, in_pairs) / (2.0 * in_pairs(n))
        + all(ties, in_threes) * all(others, in_threes) / (9.0 * in_threes(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variance_of_two_groups_is_mann_and_whitneys() {
        // Mann and Whitney's variance for two groups: m n (N + 1 - sum(t^3 - t) / (N (N - 1))) / 12, times 4.
        let variance_of_two = |m: f64, n: f64, ties: f64| {
            m * n * (m + n + 1.0 - (ties.powi(3) - ties) / ((m + n) * (m + n - 1.0))) / 3.0
        };
        let without = variance(9.0, &[1.0; 9], &[4.0, 5.0]);
        assert!((without - variance_of_two(4.0, 5.0, 1.0)).abs() < 1e-9, "{without}");
        let with = variance(11.0, &[6.0, 1.0, 1.0, 1.0, 1.0, 1.0], &[6.0, 5.0]);
        assert!((with - variance_of_two(6.0, 5.0, 6.0)).abs() < 1e-9, "{with}");
    }

    #[test]
    fn equal_values_count_half_and_a_falling_trend_is_one() {
        let falling = Trend::of(&[vec![4.0, 4.0, 4.0], vec![3.0, 4.0]]).unwrap();
        assert!((falling.ordered - 0.75).abs() < 1e-9, "{}", falling.ordered);
        assert!(Trend::of(&[vec![4.0, 4.0], vec![4.0]]).is_none());
        assert!(Trend::of(&[vec![4.0, 5.0], vec![]]).is_none());
        assert!(Trend::of(&[]).is_none());
    }

    #[test]
    fn the_clearest_aspect_is_the_one_and_an_unclear_one_is_none() {
        let group = |widths: [f64; 6], clocks: [f64; 6]| {
            let seen = |(width, clock)| Condition {
                core_width: Some(width),
                cycle_ns: Some(clock),
                ..Condition::default()
            };
            widths.into_iter().zip(clocks).map(seen).collect::<Vec<_>>()
        };
        let (wide, narrow) = ([4.0, 4.0, 4.1, 3.9, 4.0, 4.0], [2.9, 3.0, 2.1, 2.8, 3.4, 3.3]);
        let (fast, slow) = ([0.25, 0.25, 0.25, 0.25, 0.25, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5, 0.25]);
        assert_eq!(dependence(&[group(wide, fast), group(narrow, slow)]), Some(Aspect::CoreSharing));
        assert_eq!(dependence(&[group(narrow, fast), group(wide, fast)]), Some(Aspect::CoreSharing));
        assert_eq!(dependence(&[group(wide, fast), group(wide, slow)]), None);
        assert_eq!(dependence(&[]), None);
    }

    fn seen(width: f64, cycle_ns: f64) -> Condition {
        let widths = (Some(width), Some(width));
        let (core_width, core_width_max) = widths;
        Condition { core_width, core_width_max, cycle_ns: Some(cycle_ns), ..Condition::default() }
    }

    #[test]
    fn a_core_is_shared_if_it_is_narrower_than_alone_and_one_too_wide_look_does_not_say_how_wide_that_is() {
        let mut all: Vec<Condition> =
            [4.0, 2.4, 3.95, 3.8, 4.0, 2.2, 4.0, 3.9, 4.0, 4.0, 2.5].map(|w| seen(w, 0.25)).into();
        all.extend([seen(7.5, 0.5), Condition::default()]);
        assert_eq!(width_alone(&all), Some(4.0));
        let shared: Vec<Option<bool>> = all[..4].iter().map(|seen| seen.is_shared(4.0)).collect();
        assert_eq!(shared, [false, true, false, true].map(Some));
        assert_eq!(Condition::default().is_shared(4.0), None);
        assert_eq!(Conditions::of(&all), Conditions { shared: Some(4.0 / 12.0), cycle_ns: Some(0.25) });
        assert_eq!(Conditions::of(&[Condition::default()]), Conditions::default());
        let widest_alone = Condition { core_width: None, ..seen(4.0, 0.25) };
        assert_eq!(Conditions::of(&[widest_alone]).shared, None);
        assert_eq!(Conditions::of(&[]), Conditions::default());
    }

    #[test]
    fn conditions_differ_from_three_per_cent_of_the_samples_or_one_of_the_clock_on() {
        let base = Conditions { shared: Some(0.5), cycle_ns: Some(0.25) };
        let apart = |shared, cycle_ns| {
            let other = Conditions { shared, cycle_ns };
            (Conditions::shared_apart(&base, &other), Conditions::cycle_apart(&base, &other))
        };
        assert_eq!(apart(Some(0.52), Some(0.252)), (None, None));
        assert_eq!(apart(Some(0.46), Some(0.25)), (Some([0.5, 0.46]), None));
        assert_eq!(apart(Some(0.54), Some(0.247)), (Some([0.5, 0.54]), Some([0.25, 0.247])));
        assert_eq!(apart(None, None), (None, None));
    }

    #[test]
    fn every_aspect_has_a_name_of_its_own() {
        for (aspect, name, _) in ASPECTS {
            assert_eq!((aspect.name(), Aspect::named(name)), (name, Some(aspect)));
        }
        assert_eq!(Aspect::named("weather"), None);
    }
}
