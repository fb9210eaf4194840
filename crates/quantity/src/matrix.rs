//! The matrix between the two vectors: what each primitive of an operating system demands of the hardware,
//! counted in a simulated machine. It is a level of the performance hierarchy (thesis, chapter 3) below the
//! cost of a primitive.

use std::collections::BTreeMap;

use crate::estimate::{Estimate, Interval, Method};
use crate::machine::Unmeasured;
use crate::primitive::PrimitiveId;

/// What a machine executes during one operation of a primitive, with what other processes execute at the same
/// time. A repeated string instruction counts once, and an instruction that faults at each attempt. A count
/// can be below 0: work that is not part of the primitive is subtracted, and can execute more in one mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Executed {
    /// Instructions executed in user mode.
    pub user: Estimate,
    /// Instructions executed in the kernel.
    pub kernel: Estimate,
    /// Page faults taken.
    pub page_faults: Estimate,
}

impl Executed {
    /// All instructions. The counts of both modes are from the same processes, so their intervals are added.
    #[must_use]
    pub fn instructions(&self) -> Estimate {
        let (user, kernel) = (self.user.interval, self.kernel.interval);
        let interval = Interval { low: user.low + kernel.low, high: user.high + kernel.high, ..kernel };
        Estimate {
            point: self.user.point + self.kernel.point,
            interval,
            method: Method::Derived,
            ..self.kernel
        }
    }
}

/// The primitives of an operating system on the hardware.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Matrix {
    /// Release of the kernel.
    pub kernel: String,
    /// Memory of the simulated machine in MiB.
    pub memory_mib: u32,
    /// Origin of its figures: the command and version that counted them.
    pub source: String,
    /// What one operation of each primitive demands, in numbers of things.
    pub rows: BTreeMap<PrimitiveId, Executed>,
    /// Primitives that could not be counted.
    pub uncounted: Vec<Unmeasured>,
}
