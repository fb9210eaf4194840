//! Samples of a level.

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

    /// Whether this mean is lower by more than a part and than some standard errors.
    pub fn is_below(&self, best: &Tally, part: f64, errors: f64, deviation: f64) -> bool {
        let (difference, error) = best.against(self, deviation);
        difference > part.max(errors * error)
    }

    /// The logarithm of the ratio of this mean and another, and its standard error, from the standard
    /// deviation of the samples' logarithms.
    pub fn against(&self, other: &Tally, deviation: f64) -> (f64, f64) {
        let inverse = |tally: &Tally| 1.0 / f64::from(tally.samples.max(1));
        let [own, others] = [self, other].map(|tally| tally.mean.max(f64::MIN_POSITIVE));
        ((own / others).ln(), deviation * (inverse(self) + inverse(other)).sqrt())
    }
}
