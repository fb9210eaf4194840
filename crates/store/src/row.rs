//! The content of rows: separate types, so that the working types can change without the format, and a change
//! of the format is an edit of this file. Doubles are written with the shortest digits that parse to the same
//! bits.

use std::collections::BTreeMap;
use std::num::NonZero;

use assay_quantity::{ClientSide, Counted, CpuTime, Description, Fact, Latency, Observation, Round, Sample};
use serde::{Deserialize, Serialize};

use crate::earlier::{ConditionRow, ContaminationRow};

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
    /// The readings of each kind. Empty in formats 1 and 2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    evidence: BTreeMap<String, Vec<f64>>,
    /// Format 2 only, with the lost time of each batch.
    #[serde(default, skip_serializing)]
    condition: Option<ConditionRow>,
    /// Format 1 only.
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

/// A batch: its operations and its time in ns. In format 2, the lost part of it follows, in ns, if there is
/// any.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum BatchRow {
    Judged(u64, f64, f64),
    Raw(u64, f64),
}

impl BatchRow {
    /// The share of its time that it lost, in format 2.
    fn lost(&self) -> f64 {
        match *self {
            Self::Judged(_, elapsed_ns, lost_ns) if elapsed_ns > 0.0 => lost_ns / elapsed_ns,
            Self::Judged(..) | Self::Raw(..) => 0.0,
        }
    }
}

impl From<&Observation> for BatchRow {
    fn from(&Observation { operations, elapsed_ns }: &Observation) -> Self {
        Self::Raw(operations, elapsed_ns)
    }
}

impl From<BatchRow> for Observation {
    fn from(row: BatchRow) -> Self {
        let (BatchRow::Judged(operations, elapsed_ns, _) | BatchRow::Raw(operations, elapsed_ns)) = row;
        Self { operations, elapsed_ns }
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
            evidence: sample
                .evidence
                .iter()
                .map(|(kind, readings)| (kind.to_owned(), readings.to_vec()))
                .collect(),
            condition: None,
            contamination: None,
            counted: sample.counted.iter().map(CountedRow::from).collect(),
        }
    }
}

impl From<SampleRow> for Sample {
    fn from(row: SampleRow) -> Self {
        let lost = row.observations.iter().chain(&row.baseline).map(BatchRow::lost);
        let evidence = match (row.condition, row.contamination) {
            (Some(condition), _) => condition.evidence(lost),
            (None, Some(contamination)) => contamination.evidence(lost.count()),
            (None, None) => row.evidence.into_iter().collect(),
        };
        let batches = |rows: Vec<BatchRow>| rows.into_iter().map(Observation::from).collect();
        Self {
            seed: row.seed,
            observations: batches(row.observations),
            baseline: batches(row.baseline),
            refused: row.refused.map_or(0, NonZero::get),
            evidence,
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
