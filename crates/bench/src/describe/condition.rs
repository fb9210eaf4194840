//! Summarises the condition of the machine during a run from the raw evidence stored with its samples. The
//! facts describe the machine as a whole, because typical costs include the condition.

use assay_quantity::{Aspect, Condition, Fact};
use assay_statistics::conditions::{self, sorted};

use crate::cost;
use crate::plan::Finding;

/// Returns the facts about the conditions of a run that its samples contain.
#[must_use]
pub fn conditions(findings: &[Finding]) -> Vec<Fact> {
    let seen = cost::conditions(findings);
    let facts = [
        (Aspect::CoreClock, core_clock(&seen)),
        (Aspect::CoreSharing, core_sharing(&seen)),
        (Aspect::Mprotect, mprotect(&seen)),
        (Aspect::TasksElsewhere, tasks_elsewhere(&seen)),
        (Aspect::MemoryPressure, mean(&seen, |seen| seen.memory_pressure, "a task waited for memory in")),
        (
            Aspect::Interrupts,
            mean(&seen, |seen| seen.interrupts, "handling them, including those of the operations, took"),
        ),
        (Aspect::StolenTime, mean(&seen, |seen| seen.stolen, "the hypervisor took")),
        (Aspect::Preemption, preemption(&seen)),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(aspect, value)| Some(Fact { name: aspect.name().to_owned(), value: value? }));
    facts.collect()
}

fn core_clock(seen: &[Condition]) -> Option<String> {
    let ghz = sorted(seen, |seen| seen.cycle_ns.map(|ns| 1.0 / ns));
    let (least, median, most) = spread(&ghz)?;
    Some(format!("{median:.2} GHz in the median sample, {least:.2} to {most:.2} GHz in all"))
}

fn core_sharing(seen: &[Condition]) -> Option<String> {
    let shared = conditions::of(seen).shared?;
    if shared == 0.0 {
        return Some("no other hardware thread was active".to_owned());
    }
    Some(format!(
        "another hardware thread was active during {} of samples; typical costs include this, calm costs do not",
        percent(shared)
    ))
}

fn mprotect(seen: &[Condition]) -> Option<String> {
    let us = sorted(seen, |seen| seen.mprotect_ns.map(|ns| ns / 1000.0));
    let (least, median, most) = spread(&us)?;
    Some(format!("{median:.2} us before the median sample, {least:.2} to {most:.2} us before all"))
}

fn tasks_elsewhere(seen: &[Condition]) -> Option<String> {
    let running = sorted(seen, |seen| seen.runnable_elsewhere);
    let beside = running.iter().filter(|tasks| **tasks > 0.0).count();
    (!running.is_empty()).then(|| {
        format!("other tasks were runnable during {} of samples", percent(ratio(beside, running.len())))
    })
}

fn mean(seen: &[Condition], share: fn(&Condition) -> Option<f64>, what: &str) -> Option<String> {
    let shares = sorted(seen, share);
    let mean = shares.iter().sum::<f64>() / ratio(shares.len(), 1);
    (!shares.is_empty()).then(|| format!("{what} {} of the time", percent(mean)))
}

fn preemption(seen: &[Condition]) -> Option<String> {
    let preempted = seen.iter().filter(|seen| seen.involuntary_switches > 0).count();
    (!seen.is_empty()).then(|| format!("in {} of samples", percent(ratio(preempted, seen.len()))))
}

/// Returns the minimum, the (upper) median and the maximum.
fn spread(sorted: &[f64]) -> Option<(f64, f64, f64)> {
    Some((*sorted.first()?, sorted[sorted.len() / 2], *sorted.last()?))
}

#[expect(clippy::cast_precision_loss, reason = "samples are far fewer than 2^52")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measured;
    use assay_quantity::{Sample, Unit};

    #[test]
    fn the_conditions_of_a_run_become_facts() {
        let sample = |core_width, cycle_ns: Option<f64>, involuntary_switches| {
            let condition = Condition {
                core_width,
                core_width_max: core_width,
                cycle_ns,
                mprotect_ns: cycle_ns.map(|ns| 5000.0 * ns),
                runnable_elsewhere: Some(if involuntary_switches > 2 { 0.5 } else { 0.0 }),
                stolen: Some(0.004),
                involuntary_switches,
                ..Condition::default()
            };
            Sample { condition, ..Sample::default() }
        };
        let samples = vec![
            sample(Some(4.0), Some(0.25), 0),
            sample(Some(2.4), Some(0.5), 3),
            sample(Some(3.95), Some(0.25), 0),
            sample(None, None, 4),
        ];
        let primitive = "call.null".parse().unwrap();
        let measured = Measured { primitive, unit: Unit::Nanoseconds, samples, rejected: Vec::new() };
        let facts: Vec<String> = conditions(&[Finding::Measured(measured)])
            .into_iter()
            .map(|Fact { name, value }| format!("{name}: {value}"))
            .collect();
        assert_eq!(
            facts,
            [
                "core clock: 4.00 GHz in the median sample, 2.00 to 4.00 GHz in all",
                "core sharing: another hardware thread was active during 33 % of samples; typical costs include this, calm costs do not",
                "page protection change: 1.25 us before the median sample, 1.25 to 2.50 us before all",
                "tasks elsewhere: other tasks were runnable during 50 % of samples",
                "stolen time: the hypervisor took 0.40 % of the time",
                "preemption: in 50 % of samples",
            ]
        );
        assert_eq!(conditions(&[]), []);
    }

    #[test]
    fn a_core_that_is_never_shared_is_reported_as_such_and_one_outlier_changes_nothing() {
        let alone = Condition { core_width: Some(3.97), core_width_max: Some(3.99), ..Condition::default() };
        let mut seen = vec![alone; 150];
        seen[7].core_width_max = Some(4.4);
        assert_eq!(core_sharing(&seen).unwrap(), "no other hardware thread was active");
        assert_eq!(core_sharing(&[Condition::default()]), None);
    }
}
