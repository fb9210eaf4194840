//! Demand times machine, and the terms of the product.

use assay_quantity::{
    Basis, Coefficient, Doubt, Estimate, Evaluation, Interval, Machine, Mapping, Method, NULL_CALL, NoCost,
    OperationDemand, PrimitiveId, Unit, Use,
};

/// One component of the product.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The primitive, with its size left free.
    pub primitive: PrimitiveId,
    /// Whether the calls are this primitive or only bounded by it.
    pub mapping: Mapping,
    /// Operations per unit of work.
    pub operations: f64,
    /// Bytes per unit of work, if the primitive moves bytes.
    pub bytes: Option<f64>,
    /// Time per unit of work, ns.
    pub time: Estimate,
    /// The weakest basis of its costs: measured, interpolated or extrapolated.
    pub basis: Basis,
    /// Why a measured cost behind it is doubtful, if one is.
    pub doubt: Option<Doubt>,
    /// Why the machine has no cost of the primitive, if it has none: the time is then that of one null call
    /// for each operation, a lower bound.
    pub refused: Option<String>,
}

impl Term {
    /// Whether the time is only a lower bound.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.mapping == Mapping::LowerBound || self.refused.is_some()
    }
}

/// Predicted time of one unit of work on one machine: the part that the primitives of the operating system
/// explain.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The machine's name.
    pub machine: String,
    /// The operation's name.
    pub operation: String,
    /// Sum of all terms, ns per unit of work.
    pub total: Estimate,
    /// The terms, most expensive first.
    pub terms: Vec<Term>,
}

impl Prediction {
    /// The part of the total that is only a lower bound, because its calls have no primitive of their own, or
    /// the machine has no cost of it; ns per unit of work.
    #[must_use]
    pub fn bounded(&self) -> Estimate {
        self.sum(Term::is_bounded)
    }

    /// The part of the total whose calls have a primitive of their own with a cost; ns per unit of work.
    #[must_use]
    pub fn covered(&self) -> Estimate {
        self.sum(|term| !term.is_bounded())
    }

    /// The unexplained part of a measured time: measured minus predicted, ns per unit of work. Negative if
    /// the prediction is too high.
    #[must_use]
    pub fn unexplained(&self, measured: &Estimate) -> Estimate {
        let negated = self.total.scaled(-1.0, self.total.unit);
        Estimate::sum(&[*measured, negated])
    }

    /// The share of the total that rests on doubtful costs, from 0 to 1.
    #[must_use]
    pub fn doubtful_share(&self) -> f64 {
        self.sum(|term| term.doubt.is_some()).point / self.total.point
    }

    fn sum(&self, is_part: impl Fn(&Term) -> bool) -> Estimate {
        let times: Vec<Estimate> =
            self.terms.iter().filter(|term| is_part(term)).map(|term| term.time).collect();
        Estimate::sum(&times)
    }
}

/// Why a demand has no prediction on a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unpredictable {
    /// The demand is empty.
    #[error("the demand of '{0}' contains no call, so nothing can be predicted; trace it while it works")]
    NoDemand(String),
    /// The machine lacks costs.
    #[error("machine '{machine}' cannot predict '{operation}': {}; measure it there with 'assay bench'", unmeasured.join("; "))]
    Unmeasured {
        /// The machine's name.
        machine: String,
        /// The operation's name.
        operation: String,
        /// Each primitive of the demand without a cost on the machine, with the reason if known.
        unmeasured: Vec<String>,
    },
}

/// Multiplies a demand by a machine.
///
/// Costs are evaluated at the sizes that the application used. The intervals of different primitives are
/// independent and add in quadrature; those of one primitive at several sizes are not independent and add
/// linearly.
///
/// A primitive that could not be measured on the machine at any size, for a reason that the machine states,
/// counts as the null call.
///
/// # Errors
/// [`Unpredictable`] if the demand contains no call, or some of its primitives were not measured on the
/// machine and no reason is stated; the error names all of them.
pub fn predict(demand: &OperationDemand, machine: &Machine) -> Result<Prediction, Unpredictable> {
    if demand.coefficients.iter().all(|coefficient| coefficient.operations() <= 0.0) {
        return Err(Unpredictable::NoDemand(demand.name.clone()));
    }
    let mut terms = Vec::new();
    let mut unmeasured = Vec::new();
    for coefficient in &demand.coefficients {
        match term(coefficient, machine) {
            Ok(term) => terms.push(term),
            Err(missing) => unmeasured.push(missing.to_string()),
        }
    }
    if !unmeasured.is_empty() {
        let (machine, operation) = (machine.name.clone(), demand.name.clone());
        return Err(Unpredictable::Unmeasured { machine, operation, unmeasured });
    }
    terms.sort_by(|a, b| b.time.point.total_cmp(&a.time.point).then_with(|| a.primitive.cmp(&b.primitive)));
    let times: Vec<Estimate> = terms.iter().map(|term| term.time).collect();
    Ok(Prediction {
        machine: machine.name.clone(),
        operation: demand.name.clone(),
        total: Estimate::sum(&times),
        terms,
    })
}

fn term(coefficient: &Coefficient, machine: &Machine) -> Result<Term, Missing> {
    let (mut basis, mut doubts) = (Basis::Measured, Vec::new());
    let (mut parts, mut refused) = (Vec::new(), None);
    for entry in coefficient.uses.iter().filter(|entry| entry.calls > 0.0) {
        let found = cost_of(&coefficient.primitive, entry, machine).or_else(|missing| match missing {
            Missing::Cost(NoCost::Refused(_, reason)) => {
                refused = Some(reason);
                null_call(machine)
            }
            missing => Err(missing),
        })?;
        basis = basis.max(found.basis);
        doubts.extend(found.doubt);
        parts.push(found.cost.scaled(entry.calls, Unit::Nanoseconds));
    }
    Ok(Term {
        primitive: coefficient.primitive.clone(),
        mapping: coefficient.mapping,
        operations: coefficient.operations(),
        bytes: coefficient.bytes(),
        time: dependent_sum(&parts),
        basis,
        doubt: doubts.into_iter().min(),
        refused,
    })
}

/// Why an operation has no price.
#[derive(Debug, thiserror::Error)]
enum Missing {
    #[error("{0}")]
    Cost(#[from] NoCost),
    #[error("{0} costs {1}, but the demand gives no bytes")]
    Bytes(PrimitiveId, Unit),
}

/// Cost of a null call, ns.
fn null_call(machine: &Machine) -> Result<Evaluation, Missing> {
    let null_call = NULL_CALL.parse().expect("a constant that a test parses");
    unsized_cost(&null_call, machine)
}

/// Cost of one operation at the size of one entry of the histogram, ns.
fn cost_of(primitive: &PrimitiveId, entry: &Use, machine: &Machine) -> Result<Evaluation, Missing> {
    match entry.size() {
        None => unsized_cost(primitive, machine),
        Some(size) => Ok(machine.curve(primitive)?.at(size)),
    }
}

fn unsized_cost(primitive: &PrimitiveId, machine: &Machine) -> Result<Evaluation, Missing> {
    let cost = machine.cost(primitive)?;
    match cost.typical.unit {
        Unit::Nanoseconds => {
            Ok(Evaluation { cost: cost.typical, basis: Basis::Measured, doubt: cost.doubt() })
        }
        unit => Err(Missing::Bytes(primitive.clone(), unit)),
    }
}

/// Sum of quantities from the same measurements: the ends of their intervals add.
fn dependent_sum(parts: &[Estimate]) -> Estimate {
    let total = |side: fn(&Estimate) -> f64| parts.iter().map(side).sum::<f64>();
    Estimate {
        point: total(|part| part.point),
        interval: Interval {
            low: total(|part| part.interval.low),
            high: total(|part| part.interval.high),
            confidence: parts.iter().map(|part| part.interval.confidence).fold(1.0, f64::min),
        },
        unit: Unit::Nanoseconds,
        method: Method::Derived,
        values: parts.iter().map(|part| part.values).min().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Cost, Unmeasured, Verdict};

    fn estimate(point: f64, unit: Unit) -> Estimate {
        let interval = Interval { low: point * 0.9, high: point * 1.1, confidence: 0.95 };
        Estimate { point, interval, unit, method: Method::TrimmedMean, values: 12 }
    }

    fn machine(costs: &[(&str, f64, Unit)]) -> Machine {
        let cost = |point, unit| Cost::from(estimate(point, unit));
        Machine {
            name: "m".to_owned(),
            costs: costs.iter().map(|(id, point, unit)| (id.parse().unwrap(), cost(*point, *unit))).collect(),
            ..Machine::default()
        }
    }

    fn coefficient(primitive: &str, mapping: Mapping, uses: &[(f64, Option<f64>)]) -> Coefficient {
        Coefficient {
            primitive: primitive.parse().unwrap(),
            mapping,
            uses: uses.iter().map(|(calls, bytes)| Use { calls: *calls, bytes: *bytes }).collect(),
            kernel_ns: 0.0,
            calls: Vec::new(),
        }
    }

    fn demand(coefficients: Vec<Coefficient>) -> OperationDemand {
        OperationDemand {
            name: "page".to_owned(),
            unit_of_work: "request".to_owned(),
            units: 1.0,
            user: None,
            system: None,
            lost_records: 0,
            coefficients,
        }
    }

    #[test]
    fn the_total_is_the_sum_of_calls_times_cost_at_the_sizes_used_most_expensive_term_first() {
        let machine = machine(&[
            ("call.null", 100.0, Unit::Nanoseconds),
            ("file.read{size=4KiB}", 0.25, Unit::NanosecondsPerByte),
            ("file.read{size=8KiB}", 0.25, Unit::NanosecondsPerByte),
        ]);
        let demand = demand(vec![
            coefficient("call.null", Mapping::LowerBound, &[(3.0, None)]),
            coefficient("file.read", Mapping::Own, &[(1.0, Some(4096.0)), (2.0, Some(12288.0))]),
        ]);
        let prediction = predict(&demand, &machine).unwrap();
        assert!((prediction.total.point - (300.0 + 1024.0 + 2.0 * 1536.0)).abs() < 1e-9);
        assert_eq!(prediction.terms[0].primitive.to_string(), "file.read");
        assert_eq!(prediction.terms[0].basis, Basis::Interpolated);
        assert!((prediction.bounded().point - 300.0).abs() < 1e-9);
        assert!((prediction.covered().point - 4096.0).abs() < 1e-9);
    }

    #[test]
    fn a_primitive_that_was_not_measured_is_a_refusal_that_names_it() {
        let demand = demand(vec![
            coefficient("epoll.ctl", Mapping::Own, &[(1.0, None)]),
            coefficient("file.read", Mapping::Own, &[(1.0, Some(10.0))]),
        ]);
        assert_eq!(
            predict(&demand, &machine(&[])).unwrap_err().to_string(),
            "machine 'm' cannot predict 'page': epoll.ctl was not measured; file.read was not measured; \
             measure it there with 'assay bench'"
        );
    }

    #[test]
    fn a_primitive_that_the_machine_cannot_have_counts_as_null_calls_if_these_have_a_cost() {
        let lacking = |mut machine: Machine| {
            machine.unmeasured = ["file.fsync{size=4KiB}", "file.copy_range{size=64KiB}"]
                .map(|id| Unmeasured { primitive: id.parse().unwrap(), reason: "no disk here".to_owned() })
                .to_vec();
            machine
        };
        let demand = demand(vec![
            coefficient("file.fsync{size=4KiB}", Mapping::Own, &[(2.0, None)]),
            coefficient("file.copy_range", Mapping::Own, &[(1.0, Some(10.0)), (3.0, Some(30.0))]),
            coefficient("file.stat", Mapping::Own, &[(1.0, None)]),
        ]);
        let costs = [("call.null", 100.0, Unit::Nanoseconds), ("file.stat", 300.0, Unit::Nanoseconds)];
        let prediction = predict(&demand, &lacking(machine(&costs))).unwrap();
        let terms: Vec<_> = prediction
            .terms
            .iter()
            .map(|term| (term.primitive.to_string(), term.time.point, term.refused.as_deref()))
            .collect();
        let reason = Some("no disk here");
        assert_eq!(
            terms,
            [
                ("file.copy_range".to_owned(), 400.0, reason),
                ("file.stat".to_owned(), 300.0, None),
                ("file.fsync{size=4KiB}".to_owned(), 200.0, reason),
            ]
        );
        assert!((prediction.bounded().point - 600.0).abs() < 1e-9);
        assert!((prediction.covered().point - 300.0).abs() < 1e-9);
        let refused = predict(&demand, &lacking(machine(&costs[1..]))).unwrap_err().to_string();
        assert!(refused.contains("call.null was not measured"), "{refused}");
    }

    #[test]
    fn a_cost_per_byte_without_bytes_is_a_refusal() {
        let machine = machine(&[("memory.read{level=l1}", 0.1, Unit::NanosecondsPerByte)]);
        let demand = demand(vec![coefficient("memory.read{level=l1}", Mapping::Own, &[(1.0, None)])]);
        assert!(predict(&demand, &machine).unwrap_err().to_string().contains("gives no bytes"));
    }

    #[test]
    fn a_demand_without_a_call_is_a_refusal() {
        let machine = machine(&[("call.null", 100.0, Unit::Nanoseconds)]);
        for coefficients in [vec![], vec![coefficient("call.null", Mapping::Own, &[(0.0, None)])]] {
            let refused = predict(&demand(coefficients), &machine);
            assert_eq!(refused, Err(Unpredictable::NoDemand("page".to_owned())));
        }
    }

    #[test]
    fn a_doubtful_cost_makes_its_term_doubtful_whether_or_not_it_has_a_size() {
        let mut machine = machine(&[
            ("call.null", 100.0, Unit::Nanoseconds),
            ("file.stat", 300.0, Unit::Nanoseconds),
            ("file.read{size=1KiB}", 1.0, Unit::NanosecondsPerByte),
        ]);
        for (id, verdict) in
            [("call.null", Verdict::Disturbed(0.97)), ("file.read{size=1KiB}", Verdict::Modes(2))]
        {
            machine.costs.get_mut(&id.parse().unwrap()).unwrap().verdict = Some(verdict);
        }
        let demand = demand(vec![
            coefficient("call.null", Mapping::Own, &[(1.0, None)]),
            coefficient("file.stat", Mapping::Own, &[(1.0, None)]),
            coefficient("file.read", Mapping::Own, &[(1.0, Some(600.0))]),
        ]);
        let prediction = predict(&demand, &machine).unwrap();
        let doubts: Vec<_> =
            prediction.terms.iter().map(|term| (term.primitive.to_string(), term.doubt)).collect();
        assert_eq!(
            doubts,
            [
                ("file.read".to_owned(), Some(Doubt::SeveralModes)),
                ("file.stat".to_owned(), None),
                ("call.null".to_owned(), Some(Doubt::Disturbed)),
            ]
        );
        assert!((prediction.doubtful_share() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn independent_terms_widen_the_interval_less_than_sizes_of_one_primitive_do() {
        let one = machine(&[("file.read{size=1KiB}", 1.0, Unit::NanosecondsPerByte)]);
        let sizes =
            demand(vec![coefficient("file.read", Mapping::Own, &[(1.0, Some(1000.0)), (1.0, Some(1000.0))])]);
        let same = predict(&sizes, &one).unwrap().total;
        assert!((same.interval.half_width() - 200.0).abs() < 1e-9);

        let two = machine(&[("a.a", 1000.0, Unit::Nanoseconds), ("b.b", 1000.0, Unit::Nanoseconds)]);
        let terms = demand(vec![
            coefficient("a.a", Mapping::Own, &[(1.0, None)]),
            coefficient("b.b", Mapping::Own, &[(1.0, None)]),
        ]);
        let different = predict(&terms, &two).unwrap().total;
        assert!((different.interval.half_width() - 20_000f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn what_a_measurement_has_beyond_the_product_is_unexplained() {
        let machine = machine(&[("call.null", 100.0, Unit::Nanoseconds)]);
        let demand = demand(vec![coefficient("call.null", Mapping::Own, &[(1.0, None)])]);
        let prediction = predict(&demand, &machine).unwrap();
        let rest = prediction.unexplained(&estimate(160.0, Unit::Nanoseconds));
        assert!((rest.point - 60.0).abs() < 1e-9);
        assert!((rest.interval.half_width() - 10f64.hypot(16.0)).abs() < 1e-9);
    }
}
