//! Whether rejecting disturbed samples bends what is left.

use assay_quantity::estimate::trimmed_mean;
use assay_quantity::{Contamination, Sample, Unit, sift};

use crate::noise::{Noise, Source, share};

/// When a competitor comes, and what it does to the sample that it meets.
struct Competitor {
    /// Probability that a sample of cost 1 is met.
    meets: f64,
    /// Whether a longer sample is met more often.
    prefers_long: bool,
    /// By which share, at most, the cost of that sample grows.
    slows: f64,
}

const NOISE: Noise = Noise::LogNormal(0.05);

/// Twenty samples, each with its cost.
fn samples(source: &mut Source, competitor: &Competitor) -> Vec<(Sample, f64)> {
    let one = |_| {
        let cost = source.cost(NOISE);
        let length = if competitor.prefers_long { cost } else { 1.0 };
        let is_met = source.uniform() < competitor.meets * length;
        let stolen_ns = if is_met { 60.0 + 300.0 * source.uniform() } else { 20.0 * source.uniform() };
        let cost = if is_met { cost * (1.0 + competitor.slows * source.uniform()) } else { cost };
        let contamination = Contamination { wall_ns: 1000.0, stolen_ns, ..Contamination::default() };
        (Sample { contamination, ..Sample::default() }, cost)
    };
    (0..20).map(one).collect()
}

/// Share of intervals that hold the true cost, and the mean of the points.
fn estimates(seed: u64, competitor: &Competitor) -> (f64, f64) {
    let mut source = Source::of_seed(seed);
    let trials = 4000;
    let (mut sum, mut rejected) = (0.0, 0);
    let covered = share(trials, || {
        let taken = samples(&mut source, competitor);
        let samples: Vec<Sample> = taken
            .iter()
            .enumerate()
            .map(|(i, (sample, _))| Sample { seed: i as u64, ..sample.clone() })
            .collect();
        let sifted = sift(&samples, |sample| Some(taken[usize::try_from(sample.seed).unwrap()].1));
        rejected += sifted.contaminated;
        let estimate = trimmed_mean(&sifted.kept, Unit::Nanoseconds).unwrap();
        sum += estimate.point / f64::from(trials);
        // The trimmed mean of this noise is its median but for 0.03 %.
        estimate.interval.low <= 1.0003 && 1.0003 <= estimate.interval.high
    });
    assert!(rejected > 1000, "only {rejected} samples were rejected");
    (covered, sum)
}

#[test]
fn rejecting_leaves_intervals_and_points_what_they_are_without_a_competitor() {
    for (seed, prefers_long, slows) in [(1, false, 0.0), (2, false, 0.5), (3, true, 0.0), (4, true, 0.5)] {
        let (covered, mean) = estimates(seed, &Competitor { meets: 0.1, prefers_long, slows });
        assert!((0.93..=0.97).contains(&covered), "{covered} covered, competitor {seed}");
        // The standard error of this mean is 0.02 %. That longer samples are met more often takes 0.03 % off.
        assert!((mean - 1.0003).abs() < 0.0009, "{mean} in the mean, competitor {seed}");
    }
}

#[test]
fn keeping_what_was_disturbed_would_bend_the_points() {
    let mut source = Source::of_seed(5);
    let competitor = Competitor { meets: 0.1, prefers_long: false, slows: 0.5 };
    let mut point = || {
        let values: Vec<f64> = samples(&mut source, &competitor).into_iter().map(|(_, cost)| cost).collect();
        trimmed_mean(&values, Unit::Nanoseconds).unwrap().point
    };
    let mean = (0..1000).map(|_| point()).sum::<f64>() / 1000.0;
    assert!(mean > 1.004, "{mean}: the test above could not have failed");
}
