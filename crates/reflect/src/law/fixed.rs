//! A limit that is chosen by hand: what pools and thread pools do, and the yardstick of the other laws.
//!
//! Stability: it does not react, so it cannot oscillate.

use super::{Controller, Decision, Limit, Tuning};
use crate::Signal;

/// The first limit, always.
#[derive(Debug)]
pub struct Fixed(Limit);

impl Fixed {
    /// A law that returns its start.
    pub fn new(tuning: Tuning) -> Self {
        Self(tuning.start)
    }
}

impl Controller for Fixed {
    fn update(&mut self, _signal: &Signal) -> Decision {
        Decision { limit: self.0, reason: "fixed" }
    }
}
