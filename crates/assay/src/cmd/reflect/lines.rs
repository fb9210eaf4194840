//! `assay reflect watch --lines`: an observation as lines of JSON.

use assay_reflect::advice::{Advice, Bound, Queue};
use assay_reflect::facility::{Facility, Measure, Period, Side};
use assay_reflect::observation::Observation;
use serde_json::{Map, Value, json};

use crate::output::{self, ns};

/// Name and number of the format.
const FORMAT: &str = "assay.watch/1";

/// Prints a line.
pub fn print(value: &Value) -> anyhow::Result<()> {
    output::print(&format!("{value}\n"))
}

/// The first line: what is counted, and what is not.
pub fn head(name: &str, facility: &Facility) -> Value {
    let measure = |measure: &Measure| {
        let side = match measure.side {
            Side::Productivity => "productivity",
            Side::Overhead => "overhead",
        };
        json!({ "name": measure.name, "unit": measure.unit.symbol(), "side": side, "about": measure.about })
    };
    let available: Vec<Value> = facility.measures().iter().map(measure).collect();
    let unavailable = facility.unavailable().iter();
    let unavailable = unavailable.map(|one| json!({ "name": one.measure.name, "reason": one.reason }));
    json!({
        "format": FORMAT,
        "subject": name,
        "measures": available,
        "unavailable": unavailable.collect::<Vec<_>>(),
        "advice": facility.advice().iter().map(|given| given.as_ref().map(advice)).collect::<Vec<_>>(),
    })
}

fn advice(Advice { unit, class, bound, queue }: &Advice) -> Value {
    json!({
        "unit": unit,
        "class": class.name(),
        "is_bandwidth_bound": *bound == Bound::Bandwidth,
        "may_be_queued": *queue == Queue::Allowed,
    })
}

/// A line for a period; a count is `null` if it was not read and a later one includes it.
pub fn line(facility: &Facility, observation: &Observation, period: &Period) -> Value {
    let counts = facility.measures().iter().zip(&period.counts);
    let counts: Map<String, Value> =
        counts.map(|(measure, count)| (measure.name.to_string(), json!(count))).collect();
    json!({
        "end_ns": ns(observation.length()),
        "length_ns": ns(period.length),
        "counts": counts,
        "fallen": period.fallen,
        "region": observation.region().map(|region| region.name()),
    })
}
