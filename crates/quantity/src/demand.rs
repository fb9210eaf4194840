//! The application vector: what one unit of work demands of the operating system (thesis, section 4.1).
//!
//! `trace` makes it from records; `model` multiplies it with a [`crate::Machine`]. All values are *per unit
//! of work* (one request, one run), so that demands of different length can be compared.

use crate::estimate::Estimate;
use crate::primitive::PrimitiveId;

/// The primitive that is a lower bound of every call (thesis, section 4.2).
pub const NULL_CALL: &str = "call.null";

/// How well the primitive of some calls represents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mapping {
    /// The calls are this primitive.
    Own,
    /// No primitive exists for the calls; the null call is a lower bound of their cost (thesis, section 4.2).
    /// They count as not covered.
    LowerBound,
}

/// Calls of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// Calls per unit of work.
    pub calls: f64,
    /// Bytes per unit of work that these calls move together; `None` for a primitive that moves none.
    pub bytes: Option<f64>,
}

impl Use {
    /// Mean bytes of one call.
    #[must_use]
    pub fn size(&self) -> Option<f64> {
        self.bytes.map(|bytes| if self.calls > 0.0 { bytes / self.calls } else { 0.0 })
    }
}

/// Number of calls of one kind: the origin of a coefficient.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCount {
    /// Name of the call, `recvfrom`.
    pub call: String,
    /// Kind of descriptor, `tcp`; empty for a call without one.
    pub descriptor: String,
    /// Calls per unit of work.
    pub calls: f64,
}

/// One component of the vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficient {
    /// The primitive, with its `size` left free.
    pub primitive: PrimitiveId,
    /// Whether the calls are that primitive or are only bounded by it.
    pub mapping: Mapping,
    /// Histogram over sizes; a single entry without bytes for a primitive that moves none.
    pub uses: Vec<Use>,
    /// Traced time of these calls in the kernel and on a processor, ns per unit of work.
    pub kernel_ns: f64,
    /// The calls behind it, including those without a cost of their own because the primitive contains them
    /// (a `close` within `file.open_close`).
    pub calls: Vec<CallCount>,
}

impl Coefficient {
    /// Operations per unit of work.
    #[must_use]
    pub fn operations(&self) -> f64 {
        // Not `sum`, whose empty result is -0.0.
        self.uses.iter().fold(0.0, |total, entry| total + entry.calls)
    }

    /// Bytes per unit of work; `None` if the primitive moves none.
    #[must_use]
    pub fn bytes(&self) -> Option<f64> {
        self.uses.iter().filter_map(|entry| entry.bytes).reduce(|a, b| a + b)
    }
}

/// The vector of one named operation of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationDemand {
    /// Its name in the workload file, `page`.
    pub name: String,
    /// One unit of work, `request`.
    pub unit_of_work: String,
    /// Number of observed units of work.
    pub units: f64,
    /// Processor time of the application's own code per unit of work on the observed machine, ns; `None` if
    /// not measured.
    pub user: Option<Estimate>,
    /// Processor time of the kernel per unit of work, likewise.
    pub system: Option<Estimate>,
    /// Records that the trace lost: a demand with losses is a lower bound.
    pub lost_records: u64,
    /// The components.
    pub coefficients: Vec<Coefficient>,
}

impl OperationDemand {
    /// Traced kernel time per unit of work, ns.
    #[must_use]
    pub fn kernel_ns(&self) -> f64 {
        self.coefficients.iter().map(|coefficient| coefficient.kernel_ns).sum()
    }

    /// Share of the traced kernel time whose calls have a primitive of their own; `None` if no kernel time
    /// was traced.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        let own: f64 = self
            .coefficients
            .iter()
            .filter(|coefficient| coefficient.mapping == Mapping::Own)
            .map(|coefficient| coefficient.kernel_ns)
            .sum();
        let all = self.kernel_ns();
        (all > 0.0).then(|| own / all)
    }
}

/// An application's demand: one vector for each of its operations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Demand {
    /// Name of the application.
    pub name: String,
    /// Origin of the figures: command, machine and version, or a citation.
    pub source: String,
    /// Its operations.
    pub operations: Vec<OperationDemand>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coefficient(primitive: &str, mapping: Mapping, kernel_ns: f64) -> Coefficient {
        Coefficient {
            primitive: primitive.parse().unwrap(),
            mapping,
            uses: vec![Use { calls: 1.0, bytes: Some(10.0) }, Use { calls: 2.0, bytes: Some(40.0) }],
            kernel_ns,
            calls: Vec::new(),
        }
    }

    #[test]
    fn calls_that_are_only_bounded_count_as_not_covered() {
        let operation = OperationDemand {
            name: "page".to_owned(),
            unit_of_work: "request".to_owned(),
            units: 1.0,
            user: None,
            system: None,
            lost_records: 0,
            coefficients: vec![
                coefficient("tcp.send{buffer=reused}", Mapping::Own, 900.0),
                coefficient("call.null", Mapping::LowerBound, 100.0),
            ],
        };
        assert_eq!(operation.coverage(), Some(0.9));
        assert_eq!(operation.coefficients[0].bytes(), Some(50.0));
        assert_eq!(operation.coefficients[0].uses[1].size(), Some(20.0));
        assert_eq!(OperationDemand { coefficients: vec![], ..operation }.coverage(), None);
    }
}
