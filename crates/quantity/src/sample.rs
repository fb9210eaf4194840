//! Raw measurements: what one fresh process saw of one primitive.
//!
//! `bench` makes samples, `store` keeps them as they are, and everything derived (this module's
//! [`Sample::cost_ns`], the estimates of [`crate::estimate`]) is computed again from them whenever it is
//! asked for. Change the statistic, and the history is re-read.

/// One timed batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Operations in the batch.
    pub operations: u64,
    /// Time between the two clock reads around it, in nanoseconds, clock overhead included.
    pub elapsed_ns: f64,
}

/// Evidence of disturbance, read around the timed part of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Contamination {
    /// Wall time of the timed part, ns.
    pub wall_ns: f64,
    /// Time that somebody else had our processor in it: run-queue delay behind other processes plus time
    /// stolen by the hypervisor, ns.
    pub stolen_ns: f64,
    /// Times that the scheduler took the processor away.
    pub involuntary_switches: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
}

impl Contamination {
    /// Share of the wall time that was stolen, between 0 and 1.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        if self.wall_ns > 0.0 { (self.stolen_ns / self.wall_ns).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// What one fresh process measured: the unit of replication (Kalibera and Jones, ISMM 2013).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Seed of the layout and of every other choice that the process made.
    pub seed: u64,
    /// Batches of the primitive, in the order they were timed.
    pub observations: Vec<Observation>,
    /// Batches of the work that comes with the primitive but does not belong to it (the pipe under a
    /// context switch; thesis, section 2.2.4), in order. Empty when there is none.
    pub baseline: Vec<Observation>,
    /// Evidence of disturbance.
    pub contamination: Contamination,
}

/// A sample that gives no cost.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoCost {
    /// Fewer than two different batch lengths: the overhead cannot be told from the work.
    #[error("its batches have fewer than two different lengths")]
    OneLength,
    /// The cost came out as zero or less: disturbance was larger than the work.
    #[error("its cost came out as {0} ns, so disturbance hid it")]
    NotPositive(f64),
}

impl Sample {
    /// Time of one operation, ns: the slope of time over operations, so that whatever every batch costs
    /// once (reading the clock, calling the batch) drops out. The slope is Theil and Sen's, the median
    /// over all pairs of batches of different length, so that one interrupted batch does not move it.
    ///
    /// # Errors
    /// [`NoCost`] when the batches do not determine a positive cost.
    pub fn cost_ns(&self) -> Result<f64, NoCost> {
        let mut cost = slope(&self.observations).ok_or(NoCost::OneLength)?;
        if !self.baseline.is_empty() {
            cost -= slope(&self.baseline).ok_or(NoCost::OneLength)?;
        }
        if cost > 0.0 { Ok(cost) } else { Err(NoCost::NotPositive(cost)) }
    }
}

/// Theil-Sen slope in ns per operation.
#[expect(clippy::cast_precision_loss, reason = "batches hold far fewer than 2^52 operations")]
fn slope(observations: &[Observation]) -> Option<f64> {
    let mut slopes = Vec::new();
    for (position, a) in observations.iter().enumerate() {
        for b in &observations[position + 1..] {
            if a.operations != b.operations {
                let operations = b.operations as f64 - a.operations as f64;
                slopes.push((b.elapsed_ns - a.elapsed_ns) / operations);
            }
        }
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    Some(crate::estimate::middle(&slopes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(cost_ns: f64, overhead_ns: f64) -> Vec<Observation> {
        (0..10)
            .map(|turn| {
                let operations = if turn % 2 == 0 { 100 } else { 200 };
                Observation {
                    operations,
                    elapsed_ns: overhead_ns + cost_ns * f64::from(if turn % 2 == 0 { 100 } else { 200 }),
                }
            })
            .collect()
    }

    #[test]
    fn the_overhead_of_a_batch_drops_out() {
        let sample = Sample { observations: batches(7.5, 3000.0), ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn one_interrupted_batch_does_not_move_the_cost() {
        let mut observations = batches(7.5, 20.0);
        observations[3].elapsed_ns += 1e7;
        let sample = Sample { observations, ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn the_baseline_is_subtracted_and_a_cost_below_it_is_refused() {
        let mut sample =
            Sample { observations: batches(9.0, 20.0), baseline: batches(4.0, 50.0), ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 5.0).abs() < 1e-9);
        sample.baseline = batches(10.0, 50.0);
        assert!(matches!(sample.cost_ns(), Err(NoCost::NotPositive(_))));
    }

    #[test]
    fn batches_of_one_length_give_no_cost() {
        let observations = vec![Observation { operations: 5, elapsed_ns: 10.0 }; 4];
        let sample = Sample { observations, ..Sample::default() };
        assert_eq!(sample.cost_ns(), Err(NoCost::OneLength));
    }
}
