//! Two machines side by side: compares all primitives that both have, corrected for their number.

use assay_bench::{pairs_of, values_of};
use assay_quantity::{Cost, Machine, Pair, PrimitiveId, Sample};
use assay_statistics::comparison::family::{Comparison, Side, compare_costs, compare_in_turns};

use super::turns;
use crate::journal::Known;

/// One primitive on two machines.
#[derive(Debug)]
pub struct Compared {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// Its cost on each machine.
    pub costs: Pair<Cost>,
    /// The comparison of the costs.
    pub comparison: Comparison,
}

/// The selected primitives of two machines.
#[derive(Debug)]
pub struct SideBySide {
    /// Primitives of both machines, compared by their typical costs.
    pub typical: Vec<Compared>,
    /// Primitives with a calm cost on both machines, compared by these estimates alone. Empty if measured
    /// alternately.
    pub calm: Vec<Compared>,
    /// If the machines were measured alternately, so that pairs of processes are compared: the number of
    /// unpaired processes.
    pub in_turns: Option<usize>,
    /// Primitives of only one machine.
    pub only: Pair<Vec<PrimitiveId>>,
    /// Primitives that were measured alternately and that neither machine has.
    pub neither: Vec<PrimitiveId>,
}

/// Compares the selected primitives; costs that differ by less than `margin`, a share, are the same. Machines
/// that were measured alternately are compared pair by pair, also if they come from the store.
pub fn compare(
    before: &Known,
    after: &Known,
    wanted: &dyn Fn(&PrimitiveId) -> bool,
    margin: f64,
) -> SideBySide {
    let shared: Vec<(&PrimitiveId, Pair<&Cost>)> = before
        .machine
        .costs
        .iter()
        .filter(|(id, _)| wanted(id))
        .filter_map(|(id, a)| Some((id, Pair { a, b: after.machine.costs.get(id)? })))
        .collect();
    let pairs = pairs(&shared, before, after);
    let comparisons = match &pairs {
        Some(Pairs { values, .. }) => compare_in_turns(values, margin),
        None => apart(&shared, before, after, margin),
    };
    let typical = shared.iter().zip(comparisons).map(|((primitive, costs), comparison)| Compared {
        primitive: (*primitive).clone(),
        costs: Pair { a: costs.a.clone(), b: costs.b.clone() },
        comparison,
    });
    let only = |known: &Known, other: &Known| {
        let ids = known.machine.costs.keys().filter(|id| wanted(id) && !other.machine.costs.contains_key(id));
        ids.cloned().collect()
    };
    let is_missing = |machine: &Machine, id: &PrimitiveId| {
        machine.unmeasured.iter().any(|missing| missing.primitive == *id)
    };
    let missing = before.machine.unmeasured.iter().map(|missing| &missing.primitive);
    let neither = missing.filter(|id| wanted(id) && pairs.is_some() && is_missing(&after.machine, id));
    SideBySide {
        neither: neither.cloned().collect(),
        typical: typical.collect(),
        calm: if pairs.is_some() { Vec::new() } else { calm(&shared, margin) },
        in_turns: pairs.map(|pairs| pairs.left_out),
        only: Pair { a: only(before, after), b: only(after, before) },
    }
}

/// The values of paired processes.
struct Pairs {
    /// The pairs of each primitive.
    values: Vec<Vec<Pair<f64>>>,
    /// Number of unpaired processes.
    left_out: usize,
}

/// Returns the pairs of two machines; `None` if they were not measured alternately with each other.
fn pairs(shared: &[(&PrimitiveId, Pair<&Cost>)], before: &Known, after: &Known) -> Option<Pairs> {
    turns::states(Pair { a: &before.machine, b: &after.machine })?;
    let samples: Vec<Pair<&[Sample]>> =
        shared.iter().map(|(id, _)| Pair { a: samples(before, id), b: samples(after, id) }).collect();
    let values: Vec<Vec<Pair<f64>>> =
        shared.iter().zip(&samples).map(|((id, _), samples)| pairs_of(id, *samples)).collect();
    let taken: usize = samples.iter().map(|samples| samples.a.len() + samples.b.len()).sum();
    let paired: usize = values.iter().map(|pairs| 2 * pairs.len()).sum();
    Some(Pairs { values, left_out: taken - paired })
}

/// Compares machines that were measured one after the other.
fn apart(
    shared: &[(&PrimitiveId, Pair<&Cost>)],
    before: &Known,
    after: &Known,
    margin: f64,
) -> Vec<Comparison> {
    let values_of = |known: &Known, id: &PrimitiveId| values_of(id, samples(known, id));
    let values: Vec<Pair<Vec<f64>>> =
        shared.iter().map(|(id, _)| Pair { a: values_of(before, id), b: values_of(after, id) }).collect();
    let sides: Vec<Pair<Side<'_>>> = shared
        .iter()
        .zip(&values)
        .map(|((_, costs), values)| Pair { a: side(costs.a, &values.a), b: side(costs.b, &values.b) })
        .collect();
    compare_costs(&sides, margin)
}

/// Compares the primitives that have a calm cost on both machines, by these costs.
fn calm(shared: &[(&PrimitiveId, Pair<&Cost>)], margin: f64) -> Vec<Compared> {
    let both = |(primitive, costs): &(&PrimitiveId, Pair<&Cost>)| {
        let (a, b) = (Cost::from(costs.a.calm?), Cost::from(costs.b.calm?));
        Some(((*primitive).clone(), Pair { a, b }))
    };
    let costs: Vec<(PrimitiveId, Pair<Cost>)> = shared.iter().filter_map(both).collect();
    let sides: Vec<Pair<Side<'_>>> =
        costs.iter().map(|(_, costs)| Pair { a: side(&costs.a, &[]), b: side(&costs.b, &[]) }).collect();
    let comparisons = compare_costs(&sides, margin);
    let compared = |((primitive, costs), comparison)| Compared { primitive, costs, comparison };
    costs.into_iter().zip(comparisons).map(compared).collect()
}

/// Returns the samples of a cost; empty if they are unknown.
fn samples<'a>(known: &'a Known, id: &PrimitiveId) -> &'a [Sample] {
    let own = known.samples.iter().find(|measured| measured.primitive == *id);
    own.map_or(&[], |measured| &measured.samples)
}

fn side<'a>(cost: &'a Cost, values: &'a [f64]) -> Side<'a> {
    Side { cost, values: (!values.is_empty()).then_some(values) }
}
