//! The content of rows: separate types, so that the working types can change without the format, and a change
//! of the format is an edit of this file. Doubles are written with the shortest digits that parse to the same
//! bits.

use std::num::NonZero;

use assay_quantity::{
    ClientSide, Condition, Counted, CpuTime, Description, Fact, Latency, Observation, Round, Sample,
};
use serde::{Deserialize, Serialize};

/// The body of a sample.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleRow {
    seed: u64,
    observations: Vec<BatchRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    baseline: Vec<BatchRow>,
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<NonZero<usize>>,
    #[serde(default, with = "ConditionRow")]
    condition: Condition,
    /// Format 1 only, instead of the condition and the losses of the batches.
    #[serde(default, skip_serializing)]
    contamination: Option<ContaminationRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counted: Vec<CountedRow>,
}

/// Counts of one event, or the reason why there are none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountedRow {
    event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batches: Option<Vec<(u64, f64)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<&Counted> for CountedRow {
    fn from(counted: &Counted) -> Self {
        let (batches, reason) = match &counted.batches {
            Ok(batches) => (Some(batches.clone()), None),
            Err(reason) => (None, Some(reason.clone())),
        };
        Self { event: counted.event.clone(), batches, reason }
    }
}

impl From<CountedRow> for Counted {
    fn from(row: CountedRow) -> Self {
        let batches = row.batches.ok_or_else(|| row.reason.unwrap_or_default());
        Self { event: row.event, batches }
    }
}

/// A batch: its operations, its time in ns and, if any, the lost part of it in ns.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum BatchRow {
    Disturbed(u64, f64, f64),
    Undisturbed(u64, f64),
}

impl From<&Observation> for BatchRow {
    fn from(&Observation { operations, elapsed_ns, lost_ns }: &Observation) -> Self {
        // Not `lost_ns == 0.0`, which also holds for negative zero.
        if lost_ns.to_bits() == 0 {
            Self::Undisturbed(operations, elapsed_ns)
        } else {
            Self::Disturbed(operations, elapsed_ns, lost_ns)
        }
    }
}

impl From<BatchRow> for Observation {
    fn from(row: BatchRow) -> Self {
        match row {
            BatchRow::Disturbed(operations, elapsed_ns, lost_ns) => Self { operations, elapsed_ns, lost_ns },
            BatchRow::Undisturbed(operations, elapsed_ns) => Self { operations, elapsed_ns, lost_ns: 0.0 },
        }
    }
}

/// [`Condition`] in a row: the compiler checks that both have the same fields. An absent field was not
/// measured.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Condition", deny_unknown_fields)]
struct ConditionRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core_width: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core_width_max: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cycle_ns: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mprotect_ns: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runnable_elsewhere: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_pressure: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupts: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stolen: Option<f64>,
    involuntary_switches: u64,
    major_faults: u64,
}

/// The evidence of a sample of format 1, in which 0 means "not measured". Its other fields (time waited for a
/// quiet core, the pressure on processors, the share of batches on a shared core) are ignored.
#[derive(Debug, Deserialize)]
struct ContaminationRow {
    wall_ns: f64,
    stolen_ns: f64,
    involuntary_switches: u64,
    major_faults: u64,
    // Missing in samples of the first version.
    #[serde(default)]
    interrupt_ns: f64,
    #[serde(default)]
    neighbours: Option<f64>,
    #[serde(default)]
    core_width: f64,
    #[serde(default)]
    cycle_ns: f64,
    #[serde(default)]
    translation_ns: f64,
}

impl ContaminationRow {
    /// Returns the lost share of the time of each batch. Format 1 contains it only for all batches together.
    fn lost(&self) -> f64 {
        if self.wall_ns > 0.0 { (self.stolen_ns / self.wall_ns).clamp(0.0, 1.0) } else { 0.0 }
    }

    fn condition(&self) -> Condition {
        let seen = |value: f64| (value > 0.0).then_some(value);
        Condition {
            core_width: seen(self.core_width),
            core_width_max: seen(self.core_width),
            cycle_ns: seen(self.cycle_ns),
            mprotect_ns: seen(self.translation_ns),
            runnable_elsewhere: self.neighbours,
            interrupts: (self.wall_ns > 0.0).then(|| self.interrupt_ns / self.wall_ns),
            involuntary_switches: self.involuntary_switches,
            major_faults: self.major_faults,
            memory_pressure: None,
            stolen: None,
        }
    }
}

impl From<&Sample> for SampleRow {
    fn from(sample: &Sample) -> Self {
        let batches = |observations: &[Observation]| observations.iter().map(BatchRow::from).collect();
        Self {
            seed: sample.seed,
            observations: batches(&sample.observations),
            baseline: batches(&sample.baseline),
            refused: NonZero::new(sample.refused),
            condition: sample.condition,
            contamination: None,
            counted: sample.counted.iter().map(CountedRow::from).collect(),
        }
    }
}

impl From<SampleRow> for Sample {
    fn from(row: SampleRow) -> Self {
        let lost = row.contamination.as_ref().map_or(0.0, ContaminationRow::lost);
        let observations = |rows: Vec<BatchRow>| {
            let mut batches: Vec<Observation> = rows.into_iter().map(Observation::from).collect();
            if row.contamination.is_some() {
                batches.iter_mut().for_each(|batch| batch.lost_ns = lost * batch.elapsed_ns);
            }
            batches
        };
        Self {
            seed: row.seed,
            observations: observations(row.observations),
            baseline: observations(row.baseline),
            refused: row.refused.map_or(0, NonZero::get),
            condition: row.contamination.as_ref().map_or(row.condition, ContaminationRow::condition),
            counted: row.counted.into_iter().map(Counted::from).collect(),
        }
    }
}

/// The description of a machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescriptionRow {
    /// Pairs of name and value, in display order.
    facts: Vec<(String, String)>,
    uncontrolled: Vec<String>,
}

impl From<&Description> for DescriptionRow {
    fn from(description: &Description) -> Self {
        Self {
            facts: description.facts.iter().map(|fact| (fact.name.clone(), fact.value.clone())).collect(),
            uncontrolled: description.uncontrolled.clone(),
        }
    }
}

impl From<DescriptionRow> for Description {
    fn from(row: DescriptionRow) -> Self {
        Self {
            facts: row.facts.into_iter().map(|(name, value)| Fact { name, value }).collect(),
            uncontrolled: row.uncontrolled,
        }
    }
}

/// The body of a round; its operation is a column.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRow {
    units: u64,
    elapsed_ns: u64,
    cpu: CpuRow,
    usable_cpus: u32,
    client: Option<ClientRow>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientRow {
    latency: LatencyRow,
    received_bytes: u64,
    connections: Option<u64>,
    cpu_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyRow {
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: Option<u64>,
    max_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuRow {
    total_ns: u64,
    queued_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl From<&Round> for RoundRow {
    fn from(round: &Round) -> Self {
        let CpuTime { total_ns, queued_ns, user_ticks, system_ticks } = round.cpu;
        Self {
            units: round.units,
            elapsed_ns: round.elapsed_ns,
            cpu: CpuRow { total_ns, queued_ns, user_ticks, system_ticks },
            usable_cpus: round.usable_cpus,
            client: round.client.as_ref().map(ClientRow::from),
        }
    }
}

impl From<&ClientSide> for ClientRow {
    fn from(client: &ClientSide) -> Self {
        let Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = client.latency;
        Self {
            latency: LatencyRow { p50_ns, p90_ns, p99_ns, p999_ns, max_ns },
            received_bytes: client.received_bytes,
            connections: client.connections,
            cpu_ns: client.cpu_ns,
        }
    }
}

impl From<ClientRow> for ClientSide {
    fn from(row: ClientRow) -> Self {
        let LatencyRow { p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = row.latency;
        Self {
            latency: Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns },
            received_bytes: row.received_bytes,
            connections: row.connections,
            cpu_ns: row.cpu_ns,
        }
    }
}

impl RoundRow {
    /// Returns the round of this operation.
    pub fn of(self, operation: String) -> Round {
        let CpuRow { total_ns, queued_ns, user_ticks, system_ticks } = self.cpu;
        Round {
            operation,
            units: self.units,
            elapsed_ns: self.elapsed_ns,
            cpu: CpuTime { total_ns, queued_ns, user_ticks, system_ticks },
            usable_cpus: self.usable_cpus,
            client: self.client.map(ClientSide::from),
        }
    }
}
