//! The aspects of a machine's condition: what each kind of evidence is called, and what its readings say.
//!
//! A kind without a row here is an aspect as well, unless [`crate::disturbance`] judges it. The name of the
//! kind is then the name of the aspect, and the value of a sample is the median of its readings.

use assay_quantity::evidence::{
    CORE_WIDTH, CYCLE_NS, INTERRUPTS, INVOLUNTARY_SWITCHES, LOST, MAJOR_FAULTS, MEMORY_PRESSURE, MPROTECT_NS,
    NOT_RUN, QUEUED, RUNNABLE_ELSEWHERE, STOLEN,
};
use assay_quantity::{Evidence, Fact};

use crate::conditions;
use crate::estimator::real;

/// An aspect of the condition of a machine.
struct Aspect {
    /// The kind of evidence.
    kind: &'static str,
    /// Its name in reports and files.
    name: &'static str,
    /// Which of the readings, in ascending order, is the value of a sample.
    value: fn(&[f64]) -> f64,
    /// What the readings say about a run, in words; `None` if the kind was not observed.
    describe: Describe,
}

type Describe = fn(&str, &[&Evidence]) -> Option<String>;

/// The aspects, in the order of precedence if several explain a cost equally well.
const ASPECTS: [Aspect; 9] = [
    Aspect { kind: CORE_WIDTH, name: "core sharing", value: upper_median, describe: core_sharing },
    Aspect { kind: CYCLE_NS, name: "core clock", value: upper_median, describe: core_clock },
    Aspect {
        kind: MPROTECT_NS,
        name: "page protection change",
        value: upper_median,
        describe: page_protection_change,
    },
    Aspect {
        kind: RUNNABLE_ELSEWHERE,
        name: "tasks elsewhere",
        // A task that ran only at one end need not have run in between.
        value: |readings| readings[0],
        describe: |kind, seen| {
            Some(format!("other tasks were runnable during {}", samples_with(kind, seen)?))
        },
    },
    Aspect {
        kind: MEMORY_PRESSURE,
        name: "memory pressure",
        value: upper_median,
        describe: |kind, seen| {
            Some(format!("a task waited for memory in {} of the time", mean_share(kind, seen)?))
        },
    },
    Aspect {
        kind: INTERRUPTS,
        name: "interrupts",
        value: upper_median,
        describe: |kind, seen| {
            let share = mean_share(kind, seen)?;
            Some(format!("handling them, including those of the operations, took {share} of the time"))
        },
    },
    Aspect {
        kind: STOLEN,
        name: "stolen time",
        value: upper_median,
        describe: |kind, seen| Some(format!("the hypervisor took {} of the time", mean_share(kind, seen)?)),
    },
    Aspect { kind: INVOLUNTARY_SWITCHES, name: "preemption", value: upper_median, describe: in_samples },
    Aspect { kind: MAJOR_FAULTS, name: "major faults", value: upper_median, describe: in_samples },
];

/// Evidence of lost time, which [`crate::disturbance`] judges: it is a disturbance and not a condition.
const DISTURBANCES: [&str; 3] = [NOT_RUN, QUEUED, LOST];

/// The kinds of evidence that are aspects of a condition: those with a row, then others that were observed.
#[must_use]
pub fn kinds<'a>(seen: &[&'a Evidence]) -> Vec<&'a str> {
    let known: Vec<&str> = ASPECTS.iter().map(|aspect| aspect.kind).collect();
    let observed = seen.iter().flat_map(|seen| seen.iter()).map(|(kind, _)| kind);
    let is_other = |kind: &&str| !known.contains(kind) && !DISTURBANCES.contains(kind);
    let mut others: Vec<&str> = observed.filter(is_other).collect();
    others.sort_unstable();
    others.dedup();
    [known, others].concat()
}

/// The name of the aspect of a kind of evidence, in reports and files.
#[must_use]
pub fn name_of(kind: &str) -> &str {
    row(kind).map_or(kind, |aspect| aspect.name)
}

/// Names under which earlier versions stored facts about the condition of a machine.
const EARLIER: [&str; 3] =
    ["preemption while timing", "change of a translation", "change of a page's protection"];

/// Whether facts of this name are about the condition of a machine, in this version or an earlier one.
#[must_use]
pub fn is_condition(fact: &str) -> bool {
    EARLIER.contains(&fact) || ASPECTS.iter().any(|aspect| aspect.name == fact)
}

/// What the readings of one kind say about a sample; `None` if the kind was not observed.
#[must_use]
pub fn value(seen: &Evidence, kind: &str) -> Option<f64> {
    let readings = ascending(seen.of(kind).iter().copied());
    (!readings.is_empty())
        .then(|| row(kind).map_or(upper_median(&readings), |aspect| (aspect.value)(&readings)))
}

/// The values of one kind in the samples that observed it, ascending.
#[must_use]
pub fn values(seen: &[&Evidence], kind: &str) -> Vec<f64> {
    ascending(seen.iter().filter_map(|seen| value(seen, kind)))
}

pub(crate) fn ascending(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The upper median: a reading during which something else happened does not count.
fn upper_median(ascending: &[f64]) -> f64 {
    ascending[ascending.len() / 2]
}

/// What the machine was like during a run, from the evidence of all its samples: a fact for each observed
/// aspect.
#[must_use]
pub fn facts(seen: &[&Evidence]) -> Vec<Fact> {
    let fact = |kind: &str| {
        let describe = row(kind).map_or(in_all as Describe, |aspect| aspect.describe);
        Some(Fact { name: name_of(kind).to_owned(), value: describe(kind, seen)? })
    };
    kinds(seen).into_iter().filter_map(fact).collect()
}

fn row(kind: &str) -> Option<&'static Aspect> {
    ASPECTS.iter().find(|aspect| aspect.kind == kind)
}

fn core_sharing(_: &str, seen: &[&Evidence]) -> Option<String> {
    let shared = conditions::of(seen).shared?;
    if shared == 0.0 {
        return Some("no other hardware thread was active".to_owned());
    }
    Some(format!(
        "another hardware thread was active during {} of samples; typical costs include this, calm costs do not",
        percent(shared)
    ))
}

fn core_clock(kind: &str, seen: &[&Evidence]) -> Option<String> {
    let (shortest, _, longest) = spread(&values(seen, kind))?;
    let usual = conditions::of(seen).cycle_ns?;
    let [least, usual, most] = [longest, usual, shortest].map(|cycle_ns| 1.0 / cycle_ns);
    Some(format!("{usual:.2} GHz in the median sample, {least:.2} to {most:.2} GHz in all"))
}

fn page_protection_change(kind: &str, seen: &[&Evidence]) -> Option<String> {
    let (least, usual, most) = spread(&values(seen, kind))?;
    let [least, usual, most] = [least, usual, most].map(|ns| ns / 1000.0);
    Some(format!("{usual:.2} us before the median sample, {least:.2} to {most:.2} us before all"))
}

/// The samples during which the value of a kind was above zero, as a share of those in which it was observed.
fn samples_with(kind: &str, seen: &[&Evidence]) -> Option<String> {
    let values = values(seen, kind);
    let with = values.iter().filter(|value| **value > 0.0).count();
    (!values.is_empty()).then(|| format!("{} of samples", percent(real(with) / real(values.len()))))
}

fn in_samples(kind: &str, seen: &[&Evidence]) -> Option<String> {
    Some(format!("in {}", samples_with(kind, seen)?))
}

/// The mean of a share.
fn mean_share(kind: &str, seen: &[&Evidence]) -> Option<String> {
    let shares = values(seen, kind);
    (!shares.is_empty()).then(|| percent(shares.iter().sum::<f64>() / real(shares.len())))
}

fn in_all(kind: &str, seen: &[&Evidence]) -> Option<String> {
    let (least, usual, most) = spread(&values(seen, kind))?;
    Some(format!("{usual} in the median sample, {least} to {most} in all"))
}

/// The minimum, the median and the maximum.
fn spread(ascending: &[f64]) -> Option<(f64, f64, f64)> {
    Some((*ascending.first()?, upper_median(ascending), *ascending.last()?))
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(seen: &[Evidence]) -> Vec<String> {
        let facts = facts(&seen.iter().collect::<Vec<_>>());
        facts.into_iter().map(|Fact { name, value }| format!("{name}: {value}")).collect()
    }

    #[test]
    fn the_value_of_a_sample_is_the_median_of_its_readings_or_the_least_number_of_tasks() {
        let of = |kind: &'static str, readings: &[f64]| {
            value(&Evidence::from_iter([(kind, readings.to_vec())]), kind)
        };
        for kind in [CORE_WIDTH, "weather"] {
            assert_eq!([of(kind, &[]), of(kind, &[9.0, 1.0, 3.0])], [None, Some(3.0)]);
            assert_eq!(of(kind, &[9.0, 1.0, 3.0, 4.0]), Some(4.0));
        }
        assert_eq!(of(RUNNABLE_ELSEWHERE, &[3.0, 1.0]), Some(1.0));
    }

    #[test]
    fn the_evidence_of_a_run_becomes_facts() {
        let sample = |core: &[f64], cycle_ns: &[f64], switches: f64| {
            Evidence::from_iter([
                (CORE_WIDTH, core.to_vec()),
                (CYCLE_NS, cycle_ns.to_vec()),
                (MPROTECT_NS, cycle_ns.iter().map(|ns| 5000.0 * ns).collect()),
                (RUNNABLE_ELSEWHERE, vec![3.0, if switches > 2.0 { 0.5 } else { 0.0 }]),
                (STOLEN, vec![0.004]),
                (INVOLUNTARY_SWITCHES, vec![switches]),
                (NOT_RUN, vec![0.5]),
                ("weather", vec![switches, switches, 21.5]),
            ])
        };
        let run = [
            sample(&[4.0], &[0.25], 0.0),
            sample(&[2.4], &[0.5], 3.0),
            sample(&[3.95], &[0.25], 0.0),
            sample(&[], &[], 4.0),
        ];
        assert_eq!(
            facts_of(&run),
            [
                "core sharing: another hardware thread was active during 33 % of samples; typical costs include this, calm costs do not",
                "core clock: 4.00 GHz in the median sample, 2.00 to 4.00 GHz in all",
                "page protection change: 1.25 us before the median sample, 1.25 to 2.50 us before all",
                "tasks elsewhere: other tasks were runnable during 50 % of samples",
                "stolen time: the hypervisor took 0.40 % of the time",
                "preemption: in 50 % of samples",
                "weather: 3 in the median sample, 0 to 4 in all",
            ]
        );
        assert_eq!(facts_of(&[]), [""; 0]);
    }

    #[test]
    fn a_core_that_is_never_shared_is_reported_as_such_and_one_outlier_changes_nothing() {
        let alone = Evidence::from_iter([(CORE_WIDTH, vec![3.97, 3.97, 3.99])]);
        let mut seen = vec![alone; 150];
        seen[7].add(CORE_WIDTH, 4.4);
        assert_eq!(facts_of(&seen), ["core sharing: no other hardware thread was active"]);
    }

    #[test]
    fn every_aspect_has_a_name_of_its_own() {
        for (position, Aspect { kind, name, .. }) in ASPECTS.iter().enumerate() {
            assert_eq!((name_of(kind), is_condition(name)), (*name, true));
            assert!(ASPECTS[..position].iter().all(|other| other.kind != *kind && other.name != *name));
        }
        assert_eq!((name_of("weather"), is_condition("weather")), ("weather", false));
    }
}
