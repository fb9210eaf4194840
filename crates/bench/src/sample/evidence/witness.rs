//! What a kind of evidence implements: readings before and after something.

use std::{fmt, io};

use assay_quantity::Evidence;

use crate::platform::clock::monotonic;

/// Takes readings before and after something: the whole process, its batches, or each of them.
pub trait Witness: fmt::Debug {
    /// Called immediately before it.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    fn before(&mut self) -> io::Result<()>;

    /// Called immediately after it. Adds the readings.
    ///
    /// # Errors
    /// Fails if the kernel does not provide the evidence.
    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()>;
}

/// A new witness; `None` if it could not observe these participants, or this machine.
pub(super) type Opened = io::Result<Option<Box<dyn Witness>>>;

/// A witness that records nothing.
#[derive(Debug)]
pub(crate) struct NoWitness;

impl Witness for NoWitness {
    fn before(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn after(&mut self, _: &mut Evidence) -> io::Result<()> {
        Ok(())
    }
}

/// The state of a counter of time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) counted_ns: f64,
}

impl Reading {
    pub(super) fn now(counted_ns: f64) -> Self {
        Self { at_ns: monotonic::now_ns(), counted_ns }
    }

    /// Returns the counted share of the time since an earlier reading. A counter that went backwards, as
    /// stolen time may if a virtual machine moves to another host, has counted nothing.
    #[expect(clippy::cast_precision_loss, reason = "a sample is far shorter than 2^52 ns")]
    pub(super) fn share_since(self, earlier: Self) -> f64 {
        let passed_ns = self.at_ns.saturating_sub(earlier.at_ns).max(1) as f64;
        (self.counted_ns - earlier.counted_ns).max(0.0) / passed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_counted_part_of_the_time_that_passed() {
        let [earlier, later] =
            [(100, 7.0), (300, 57.0)].map(|(at_ns, counted_ns)| Reading { at_ns, counted_ns });
        let backwards = Reading { counted_ns: 3.0, ..later };
        let shares = [later, backwards, earlier].map(|reading| reading.share_since(earlier));
        assert_eq!(shares.to_vec(), [0.25, 0.0, 0.0]);
    }
}
