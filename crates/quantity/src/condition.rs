//! What a machine was like while a sample was taken, and which of it a cost depends on.

use std::cmp::Ordering;
use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::estimate::real;

/// What the machine was like while a sample was taken: raw evidence, never a reason to leave the sample out.
///
/// The machine is described with it, and costs include it: an application that runs on this machine runs under the
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

    #[test]
    fn every_aspect_has_a_name_of_its_own() {
        for (aspect, name, _) in ASPECTS {
            assert_eq!((aspect.name(), Aspect::named(name)), (name, Some(aspect)));
        }
        assert_eq!(Aspect::named("weather"), None);
    }
}
