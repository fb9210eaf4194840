//! The evidence in samples of formats 1 and 2, which were judged before they were stored: one value for each
//! kind instead of the readings, and the lost time instead of the time that did not run.

use assay_quantity::Evidence;
use assay_quantity::evidence::{
    CORE_WIDTH, CYCLE_NS, INTERRUPTS, INVOLUNTARY_SWITCHES, LOST, MAJOR_FAULTS, MEMORY_PRESSURE, MPROTECT_NS,
    RUNNABLE_ELSEWHERE, STOLEN,
};
use serde::Deserialize;

/// The condition of a sample of format 2. An absent field was not observed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionRow {
    core_width: Option<f64>,
    core_width_max: Option<f64>,
    cycle_ns: Option<f64>,
    mprotect_ns: Option<f64>,
    runnable_elsewhere: Option<f64>,
    memory_pressure: Option<f64>,
    interrupts: Option<f64>,
    stolen: Option<f64>,
    involuntary_switches: f64,
    major_faults: f64,
}

impl ConditionRow {
    /// Returns readings with this condition. `lost` is the share of its time that each batch lost.
    pub fn evidence(self, lost: impl Iterator<Item = f64>) -> Evidence {
        let observed = |value: Option<f64>| value.into_iter().collect();
        Evidence::from_iter([
            // Readings with this median and this maximum.
            (
                CORE_WIDTH,
                [self.core_width, self.core_width, self.core_width_max].into_iter().flatten().collect(),
            ),
            (CYCLE_NS, observed(self.cycle_ns)),
            (MPROTECT_NS, observed(self.mprotect_ns)),
            (RUNNABLE_ELSEWHERE, observed(self.runnable_elsewhere)),
            (MEMORY_PRESSURE, observed(self.memory_pressure)),
            (INTERRUPTS, observed(self.interrupts)),
            (STOLEN, observed(self.stolen)),
            (INVOLUNTARY_SWITCHES, vec![self.involuntary_switches]),
            (MAJOR_FAULTS, vec![self.major_faults]),
            (LOST, lost.collect()),
        ])
    }
}

/// The evidence of a sample of format 1, in which 0 means "not measured". Its other fields (time waited for a
/// quiet core, the pressure on processors, the share of batches on a shared core) are ignored.
#[derive(Debug, Deserialize)]
pub struct ContaminationRow {
    wall_ns: f64,
    stolen_ns: f64,
    involuntary_switches: f64,
    major_faults: f64,
    // Missing in samples of the first version.
    #[serde(default)]
    interrupt_ns: f64,
    neighbours: Option<f64>,
    #[serde(default)]
    core_width: f64,
    #[serde(default)]
    cycle_ns: f64,
    #[serde(default)]
    translation_ns: f64,
}

impl ContaminationRow {
    /// Returns the readings. Each of the batches lost the same share: format 1 contains only that of all
    /// batches together.
    pub fn evidence(self, batches: usize) -> Evidence {
        let measured = |value: f64| (value > 0.0).then_some(value);
        let of_all = |ns: f64| (self.wall_ns > 0.0).then(|| ns / self.wall_ns);
        let condition = ConditionRow {
            core_width: measured(self.core_width),
            core_width_max: None,
            cycle_ns: measured(self.cycle_ns),
            mprotect_ns: measured(self.translation_ns),
            runnable_elsewhere: self.neighbours,
            memory_pressure: None,
            interrupts: of_all(self.interrupt_ns),
            stolen: None,
            involuntary_switches: self.involuntary_switches,
            major_faults: self.major_faults,
        };
        let lost = of_all(self.stolen_ns).unwrap_or(0.0).clamp(0.0, 1.0);
        condition.evidence(std::iter::repeat_n(lost, batches))
    }
}
