//! What the documentation of the statistics promises, on simulated noise: how often intervals hold the truth, how
//! often alarms are false, how much is found with how many processes. Every test draws from a generator with a
//! fixed seed, so each is either right or wrong for good.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod comparison;
mod modes;
mod noise;
mod sifting;
