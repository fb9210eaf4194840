//! Whether leaving out disturbed batches biases the estimate.

use assay_quantity::evidence::NOT_RUN;
use assay_quantity::{Evidence, Observation, Sample, Unit};
use assay_statistics::{cost_ns, sift, trimmed_mean};

use crate::noise::{Noise, Source, share};

/// When another task runs, and its effect on the batch that it interrupts.
struct Competitor {
    /// Probability that a batch of cost 1 is interrupted.
    meets: f64,
    /// Whether a longer batch is interrupted more often.
    prefers_long: bool,
    /// Largest share by which it slows the batch down, besides the time that it takes.
    slows: f64,
}

const NOISE: Noise = Noise::LogNormal(0.05);

/// Share of the time of each batch in which its task does not run by itself.
const IDLE: f64 = 0.1;

/// Twenty samples of twelve batches each, with noise of the process and of the batch.
fn samples(source: &mut Source, competitor: &Competitor) -> Vec<Sample> {
    let mut sample = || {
        let process = source.cost(NOISE);
        let mut batch = |operations: u32| {
            let elapsed_ns = 1000.0 * f64::from(operations) * process * source.cost(Noise::LogNormal(0.01));
            let length = if competitor.prefers_long { elapsed_ns / 1500.0 } else { 1.0 };
            let is_met = source.uniform() < competitor.meets * length;
            let lost_ns = if is_met { 200.0 + 9000.0 * source.uniform() } else { 20.0 * source.uniform() };
            let slowed = if is_met { 1.0 + competitor.slows * source.uniform() } else { 1.0 };
            let elapsed_ns = elapsed_ns * slowed + lost_ns;
            (Observation { operations: u64::from(operations), elapsed_ns }, IDLE + lost_ns / elapsed_ns)
        };
        let (observations, not_run) = (0..12).map(|turn| batch(1 + turn % 2)).unzip();
        Sample { observations, evidence: Evidence::from_iter([(NOT_RUN, not_run)]), ..Sample::default() }
    };
    (0..20).map(|_| sample()).collect()
}

/// Share of intervals that contain the true cost of 1000 ns, and the mean of the points over it; first with
/// disturbed batches left out, then with all batches.
fn estimates(seed: u64, competitor: &Competitor) -> [(f64, f64); 2] {
    let mut source = Source::of_seed(seed);
    let trials = 2000;
    let (mut sums, mut with_all, mut disturbed) = ([0.0; 2], 0, 0);
    let covered = share(trials, || {
        let samples = samples(&mut source, competitor);
        let sifted = sift(&samples, |sample| cost_ns(sample).ok());
        disturbed += sifted.disturbed;
        let [kept, all] =
            [&sifted.kept, &sifted.all].map(|values| trimmed_mean(values, Unit::Nanoseconds).unwrap());
        for (sum, estimate) in sums.iter_mut().zip([kept, all]) {
            *sum += estimate.point / 1000.0 / f64::from(trials);
        }
        // The trimmed mean of this noise is its median but for 0.03 %.
        let holds = |estimate: &assay_quantity::Estimate| {
            estimate.interval.low <= 1000.3 && 1000.3 <= estimate.interval.high
        };
        with_all += u32::from(holds(&all));
        holds(&kept)
    });
    assert!(disturbed > 1000, "only {disturbed} batches were left out");
    [(covered, sums[0]), (f64::from(with_all) / f64::from(trials), sums[1])]
}

#[test]
fn leaving_batches_out_keeps_coverage_and_points_unbiased() {
    for (seed, prefers_long, slows) in [(1, false, 0.0), (2, false, 0.5), (3, true, 0.0), (4, true, 0.5)] {
        let [(covered, mean), _] = estimates(seed, &Competitor { meets: 0.3, prefers_long, slows });
        assert!((0.93..=0.97).contains(&covered), "{covered} covered, competitor {seed}");
        // The standard error of this mean is 0.03 %.
        assert!((mean - 1.0003).abs() < 0.0012, "{mean} in the mean, competitor {seed}");
    }
}

#[test]
fn keeping_disturbed_batches_would_bias_the_points() {
    let [_, (_, mean)] = estimates(5, &Competitor { meets: 0.3, prefers_long: true, slows: 0.5 });
    assert!(mean > 1.02, "{mean}: the test above could not have failed");
}
