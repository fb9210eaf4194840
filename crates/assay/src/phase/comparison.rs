//! Two machines side by side: every primitive that both have, compared with all others in mind.

use assay_bench::values_of;
use assay_quantity::comparison::Pair;
use assay_quantity::comparison::family::{Comparison, Side, compare_costs};
use assay_quantity::{Cost, PrimitiveId};

use crate::journal::Known;

/// One primitive on two machines.
#[derive(Debug)]
pub struct Compared {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// What it costs on each.
    pub costs: Pair<Cost>,
    /// What the difference means.
    pub comparison: Comparison,
}

/// The wanted primitives of two machines.
#[derive(Debug)]
pub struct SideBySide {
    /// Those that both have, by their typical costs.
    pub typical: Vec<Compared>,
    /// Those of which both have a calm cost, by these: nothing else is known of such a cost.
    pub calm: Vec<Compared>,
    /// Those that only one of them has.
    pub only: Pair<Vec<PrimitiveId>>,
}

/// Compares the wanted primitives; costs that differ by less than `margin`, a share, are the same.
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
    let values: Vec<Pair<Vec<f64>>> =
        shared.iter().map(|(id, _)| Pair { a: values(before, id), b: values(after, id) }).collect();
    let sides: Vec<Pair<Side<'_>>> = shared
        .iter()
        .zip(&values)
        .map(|((_, costs), values)| Pair { a: side(costs.a, &values.a), b: side(costs.b, &values.b) })
        .collect();
    let comparisons = compare_costs(&sides, margin);
    let typical = shared.iter().zip(comparisons).map(|((primitive, costs), comparison)| Compared {
        primitive: (*primitive).clone(),
        costs: Pair { a: costs.a.clone(), b: costs.b.clone() },
        comparison,
    });
    let only = |known: &Known, other: &Known| {
        let ids = known.machine.costs.keys().filter(|id| wanted(id) && !other.machine.costs.contains_key(id));
        ids.cloned().collect()
    };
    SideBySide {
        typical: typical.collect(),
        calm: calm(&shared, margin),
        only: Pair { a: only(before, after), b: only(after, before) },
    }
}

/// The primitives of which both machines have a calm cost, compared by these.
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

/// The values behind a cost; none where they are not at hand.
fn values(known: &Known, id: &PrimitiveId) -> Vec<f64> {
    let own = known.samples.iter().find(|measured| measured.primitive == *id);
    own.map_or_else(Vec::new, |measured| values_of(id, &measured.samples))
}

fn side<'a>(cost: &'a Cost, values: &'a [f64]) -> Side<'a> {
    Side { cost, values: (!values.is_empty()).then_some(values) }
}
