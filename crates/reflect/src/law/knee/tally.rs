//! Samples of a level, and the noise of all levels.

/// The mean of some samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    samples: u32,
    mean: f64,
}

impl Tally {
    /// Takes a sample.
    pub fn add(&mut self, sample: f64) {
        self.samples += 1;
        self.mean += (sample - self.mean) / f64::from(self.samples);
    }

    /// How many samples there are.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The logarithm of the ratio of this mean and another, and its standard error, from the standard
    /// deviation of the samples' logarithms.
    pub fn against(&self, other: &Tally, deviation: f64) -> (f64, f64) {
        let inverse = |tally: &Tally| 1.0 / f64::from(tally.samples.max(1));
        let [own, others] = [self, other].map(|tally| tally.mean.max(f64::MIN_POSITIVE));
        ((own / others).ln(), deviation * (inverse(self) + inverse(other)).sqrt())
    }
}

/// Weight of the assumption about the noise before the first sample, in samples.
const ASSUMED: f64 = 2.0;

/// Memory of the estimate, in samples.
const MEMORY: f64 = 50.0;

/// Standard deviation of samples at one level, from the differences between successive ones: a change of
/// the level is in one difference only.
#[derive(Debug)]
pub(super) struct Noise {
    variance: f64,
    weight: f64,
    last: Option<f64>,
}

impl Default for Noise {
    fn default() -> Self {
        Self { variance: 0.1 * 0.1, weight: ASSUMED, last: None }
    }
}

impl Noise {
    /// Takes a sample.
    pub fn add(&mut self, sample: f64) {
        if let Some(last) = self.last.replace(sample) {
            // A change of the server is no noise.
            let squared = ((sample - last).powi(2) / 2.0).min(9.0 * self.variance);
            self.weight = (self.weight + 1.0).min(MEMORY);
            self.variance += (squared - self.variance) / self.weight;
        }
    }

    /// The next sample is of another level.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// The standard deviation; at least what whole units and a clock add.
    pub fn deviation(&self) -> f64 {
        self.variance.sqrt().max(0.005)
    }
}
