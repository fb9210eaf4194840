//! Noise of several shapes around a cost of 1.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Distribution of the costs of processes.
#[derive(Debug, Clone, Copy)]
pub enum Noise {
    /// With this standard deviation.
    Normal(f64),
    /// The logarithm with this standard deviation; the median is 1.
    LogNormal(f64),
    /// Between 1 and 2.
    Uniform,
    /// 1 and an exponential with a mean of 1 on top.
    Exponential,
    /// Normal, and one process in seven up to ten standard deviations slower.
    Disturbed(f64),
}

/// Draws costs from noise.
pub struct Source(Pcg64);

impl Source {
    pub fn of_seed(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    pub fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// A standard normal number (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    pub fn cost(&mut self, noise: Noise) -> f64 {
        match noise {
            Noise::Normal(deviation) => 1.0 + deviation * self.normal(),
            Noise::LogNormal(deviation) => (deviation * self.normal()).exp(),
            Noise::Uniform => 1.0 + self.uniform(),
            Noise::Exponential => 1.0 - (1.0 - self.uniform()).ln(),
            Noise::Disturbed(deviation) => {
                let slower = if self.uniform() < 1.0 / 7.0 { 10.0 * self.uniform() } else { 0.0 };
                1.0 + deviation * (self.normal() + slower)
            }
        }
    }

    /// The costs of this number of processes.
    pub fn costs(&mut self, noise: Noise, processes: usize) -> Vec<f64> {
        (0..processes).map(|_| self.cost(noise)).collect()
    }
}

/// Share of the trials that return true.
pub fn share(trials: u32, mut trial: impl FnMut() -> bool) -> f64 {
    f64::from((0..trials).map(|_| u32::from(trial())).sum::<u32>()) / f64::from(trials)
}
