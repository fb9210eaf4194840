//! The documented properties of the statistics, on simulated noise: how often intervals contain the truth,
//! how often alarms are false, how much is found with how many processes. Every test uses a generator with a
//! fixed seed, so its result never changes.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod comparison;
mod modes;
mod noise;
mod sifting;
