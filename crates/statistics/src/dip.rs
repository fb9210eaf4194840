//! Whether values have one mode: the dip test of Hartigan and Hartigan (Annals of Statistics 13, 1985).
//!
//! The dip is the smallest distance between the empirical distribution function and a unimodal one (convex up
//! to its mode, concave above it). Its p-value is the share of samples of a uniform distribution with a
//! larger dip, read from a table that the tests of this module draw again. The uniform distribution is the
//! least favourable unimodal one, so values of any other unimodal shape pass more often. `modes` decides what
//! follows from several modes.

use crate::estimator::real;

/// Minimum number of values: three have no dip.
pub const VALUES_MIN: usize = 4;

/// The dip of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dip {
    /// Largest distance between the empirical distribution function and the nearest unimodal one.
    pub statistic: f64,
    /// Probability of a dip at least as large if the values are uniform; 1e-4, the smallest probability of
    /// the table, means "at most".
    pub p: f64,
}

impl Dip {
    /// The dip test. `None` for fewer than [`VALUES_MIN`] values, or one that is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < VALUES_MIN || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let statistic = statistic(&sorted);
        Some(Self { statistic, p: p_value(statistic, sorted.len()) })
    }
}

/// A step of the empirical distribution function.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Its position.
    at: f64,
    /// Share of the values below it.
    below: f64,
    /// Share of the values up to it.
    upto: f64,
}

/// The dip of sorted values.
///
/// The search for the mode narrows an interval from outside. Below the mode the nearest convex function lies
/// half a dip above the greatest convex minorant of the feet of the steps; above the mode the nearest concave
/// one lies half a dip below the least concave majorant of their heads. Where the two are farthest apart
/// within the interval, no straight line passes between them: the mode is there, and the interval shrinks to
/// the knots around that place. The part outside the interval bounds the dip from below. The search ends when
/// a line fits through the rest at a dip no larger than that.
fn statistic(sorted: &[f64]) -> f64 {
    let steps = steps(sorted);
    let (mut first, mut last) = (0, steps.len() - 1);
    // Twice the dip.
    let mut width = 0.0_f64;
    while first < last {
        let rest = &steps[first..=last];
        let feet = minorant(&rest.iter().map(|step| (step.at, step.below)).collect::<Vec<_>>());
        // The majorant of the heads is the minorant of the negated heads.
        let heads = minorant(&rest.iter().map(|step| (step.at, -step.upto)).collect::<Vec<_>>());
        let apart = |i: usize| -heads.height[i] - feet.height[i];
        // The largest distance between two polygons is at a knot of one of them.
        let knots = feet.knots.iter().chain(&heads.knots).copied();
        let Some(widest) = knots.max_by(|a, b| apart(*a).total_cmp(&apart(*b))) else { break };
        if apart(widest) <= width {
            break;
        }
        let low = feet.knots.iter().copied().take_while(|knot| *knot <= widest).last().unwrap_or(0);
        let high = heads.knots.iter().copied().find(|knot| *knot >= widest).unwrap_or(rest.len() - 1);
        let left = (0..low).map(|i| rest[i].upto - feet.height[i]);
        let right = (high + 1..rest.len()).map(|i| -heads.height[i] - rest[i].below);
        width = left.chain(right).fold(width, f64::max);
        (first, last) = (first + low, first + high);
    }
    width / 2.0
}

/// The steps of sorted values; equal values share one.
fn steps(sorted: &[f64]) -> Vec<Step> {
    let total = real(sorted.len());
    let mut steps: Vec<Step> = Vec::with_capacity(sorted.len());
    for (position, at) in sorted.iter().copied().enumerate() {
        let upto = real(position + 1) / total;
        match steps.last_mut() {
            Some(step) if step.at.total_cmp(&at).is_eq() => step.upto = upto,
            _ => steps.push(Step { at, below: real(position) / total, upto }),
        }
    }
    steps
}

/// A greatest convex minorant.
struct Minorant {
    /// Positions of the points at its corners, both ends included.
    knots: Vec<usize>,
    /// Its height at every point.
    height: Vec<f64>,
}

/// The greatest convex function on or below the points, which are given from left to right (the lower hull).
fn minorant(points: &[(f64, f64)]) -> Minorant {
    let slope = |a: usize, b: usize| (points[b].1 - points[a].1) / (points[b].0 - points[a].0);
    let mut knots: Vec<usize> = Vec::with_capacity(points.len());
    for next in 0..points.len() {
        while let [.., before, last] = knots[..]
            && slope(before, last) >= slope(last, next)
        {
            knots.pop();
        }
        knots.push(next);
    }
    let mut height: Vec<f64> = points.iter().map(|point| point.1).collect();
    for ends in knots.windows(2) {
        let rise = slope(ends[0], ends[1]);
        for between in ends[0] + 1..ends[1] {
            height[between] = points[ends[0]].1 + rise * (points[between].0 - points[ends[0]].0);
        }
    }
    Minorant { knots, height }
}

/// Probability of a larger dip of this number of uniform values: its logarithm is interpolated over the dip.
fn p_value(statistic: f64, values: usize) -> f64 {
    let (mut from, mut p_from) = (0.0, 1.0_f64);
    for (to, p_to) in quantiles(values).into_iter().zip(PROBABILITIES) {
        if statistic < to {
            let share = (statistic - from) / (to - from);
            return p_from * (p_to / p_from).powf(share);
        }
        (from, p_from) = (to, p_to);
    }
    p_from
}

/// A row of [`QUANTILES`], or an interpolation between two. The dip times the root of the number of values
/// converges, so this product is interpolated, and extrapolated beyond the last row.
fn quantiles(values: usize) -> [f64; 9] {
    let right = QUANTILES.partition_point(|(n, _)| *n < values).min(QUANTILES.len() - 1);
    let (n_right, row_right) = QUANTILES[right];
    let (n_left, row_left) =
        if n_right > values { QUANTILES[right.saturating_sub(1)] } else { QUANTILES[right] };
    let width = real(n_right) - real(n_left);
    let share = if width > 0.0 { (real(values) - real(n_left)) / width } else { 0.0 };
    let (left, right, root) = (real(n_left).sqrt(), real(n_right).sqrt(), real(values).sqrt());
    std::array::from_fn(|i| ((1.0 - share) * left * row_left[i] + share * right * row_right[i]) / root)
}

/// Probabilities of the columns of [`QUANTILES`].
const PROBABILITIES: [f64; 9] = [0.5, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0001];

/// The dips that a number of uniform values exceed with [`PROBABILITIES`]. Computed with [`statistic`] from a
/// million samples per row, generated by `Pcg64` with the number of values as its seed; the tests repeat this
/// with fewer samples.
const QUANTILES: [(usize, [f64; 9]); 32] = [
    (4, [0.12500, 0.18766, 0.20741, 0.22380, 0.23176, 0.23727, 0.24210, 0.24435, 0.24821]),
    (5, [0.12159, 0.17687, 0.18648, 0.19365, 0.19656, 0.19822, 0.19926, 0.19962, 0.19996]),
    (6, [0.12310, 0.15918, 0.16480, 0.17931, 0.19220, 0.20239, 0.21308, 0.21943, 0.23293]),
    (7, [0.11784, 0.14434, 0.16005, 0.17549, 0.18420, 0.19099, 0.19808, 0.20203, 0.20944]),
    (8, [0.11101, 0.14183, 0.15392, 0.16593, 0.17293, 0.17898, 0.18635, 0.19384, 0.21308]),
    (9, [0.10414, 0.13637, 0.14660, 0.15706, 0.16416, 0.17269, 0.18227, 0.18812, 0.20240]),
    (10, [0.09777, 0.13049, 0.13961, 0.15081, 0.15979, 0.16725, 0.17545, 0.18100, 0.19586]),
    (11, [0.09332, 0.12485, 0.13387, 0.14629, 0.15406, 0.16064, 0.16832, 0.17394, 0.19120]),
    (12, [0.09107, 0.12012, 0.13007, 0.14126, 0.14841, 0.15478, 0.16303, 0.16933, 0.18542]),
    (13, [0.08859, 0.11638, 0.12599, 0.13661, 0.14350, 0.15025, 0.15862, 0.16417, 0.17965]),
    (14, [0.08605, 0.11318, 0.12218, 0.13237, 0.13945, 0.14606, 0.15402, 0.15918, 0.17457]),
    (15, [0.08361, 0.11003, 0.11871, 0.12894, 0.13598, 0.14237, 0.14990, 0.15508, 0.17103]),
    (16, [0.08121, 0.10701, 0.11540, 0.12552, 0.13236, 0.13857, 0.14620, 0.15189, 0.16781]),
    (17, [0.07900, 0.10426, 0.11249, 0.12243, 0.12899, 0.13519, 0.14283, 0.14776, 0.16295]),
    (18, [0.07693, 0.10167, 0.10986, 0.11955, 0.12601, 0.13191, 0.13934, 0.14466, 0.16010]),
    (19, [0.07507, 0.09933, 0.10741, 0.11669, 0.12315, 0.12904, 0.13638, 0.14177, 0.15673]),
    (20, [0.07330, 0.09724, 0.10512, 0.11434, 0.12061, 0.12639, 0.13334, 0.13821, 0.15287]),
    (22, [0.07052, 0.09337, 0.10087, 0.10970, 0.11586, 0.12152, 0.12839, 0.13334, 0.14718]),
    (25, [0.06670, 0.08833, 0.09552, 0.10405, 0.10983, 0.11524, 0.12167, 0.12641, 0.13969]),
    (30, [0.06148, 0.08154, 0.08821, 0.09614, 0.10152, 0.10656, 0.11284, 0.11738, 0.13069]),
    (40, [0.05407, 0.07171, 0.07758, 0.08460, 0.08938, 0.09395, 0.09951, 0.10367, 0.11606]),
    (50, [0.04885, 0.06486, 0.07025, 0.07665, 0.08107, 0.08531, 0.09039, 0.09409, 0.10543]),
    (60, [0.04495, 0.05969, 0.06463, 0.07055, 0.07461, 0.07842, 0.08305, 0.08658, 0.09703]),
    (70, [0.04189, 0.05562, 0.06024, 0.06575, 0.06955, 0.07315, 0.07764, 0.08082, 0.08988]),
    (80, [0.03935, 0.05227, 0.05664, 0.06179, 0.06540, 0.06877, 0.07310, 0.07613, 0.08546]),
    (90, [0.03727, 0.04953, 0.05364, 0.05860, 0.06202, 0.06525, 0.06928, 0.07201, 0.07987]),
    (100, [0.03547, 0.04713, 0.05108, 0.05580, 0.05910, 0.06218, 0.06601, 0.06882, 0.07696]),
    (150, [0.02931, 0.03898, 0.04225, 0.04613, 0.04889, 0.05144, 0.05462, 0.05694, 0.06349]),
    (200, [0.02557, 0.03400, 0.03684, 0.04027, 0.04265, 0.04490, 0.04769, 0.04961, 0.05550]),
    (300, [0.02106, 0.02799, 0.03033, 0.03317, 0.03510, 0.03696, 0.03930, 0.04098, 0.04584]),
    (500, [0.01645, 0.02188, 0.02372, 0.02593, 0.02748, 0.02893, 0.03077, 0.03202, 0.03569]),
    (1000, [0.01174, 0.01560, 0.01690, 0.01847, 0.01959, 0.02060, 0.02187, 0.02279, 0.02538]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// The dip by definition, in steps^5: the smallest distance d such that for some step k a convex
    /// function left of it and a concave one right of it stay within d of both ends of every step. Every
    /// condition is linear in d. A convex function fits if no foot is too low for two others to carry the
    /// head between them; and the two must meet: the lowest end of the left one, extrapolated from a foot
    /// over a head, must not be above the highest beginning of the right one.
    fn by_definition(sorted: &[f64]) -> f64 {
        let steps = steps(sorted);
        (0..steps.len()).map(|mode| with_mode(&steps, mode)).fold(f64::INFINITY, f64::min)
    }

    fn with_mode(steps: &[Step], mode: usize) -> f64 {
        // Seen from the other end, what is right of the mode is a left side.
        let turned: Vec<Step> = steps
            .iter()
            .rev()
            .map(|step| Step { at: -step.at, below: 1.0 - step.upto, upto: 1.0 - step.below })
            .collect();
        let (left, right) = (&steps[..=mode], &turned[..steps.len() - mode]);
        let mut d = alone(left).max(alone(right));
        for (a, slope_a) in meeting(left) {
            for (b, slope_b) in meeting(right) {
                // a - slope_a d <= 1 - (b - slope_b d)
                d = d.max((a + b - 1.0) / (slope_a + slope_b));
            }
        }
        d
    }

    fn alone(side: &[Step]) -> f64 {
        let mode = side.len() - 1;
        let mut d = 0.0_f64;
        for i in 0..mode {
            d = d.max((side[i].upto - side[i].below) / 2.0);
            for j in 0..i {
                for l in i + 1..=mode {
                    let share = (side[i].at - side[j].at) / (side[l].at - side[j].at);
                    let line = side[j].below + share * (side[l].below - side[j].below);
                    d = d.max((side[i].upto - line) / 2.0);
                }
            }
        }
        d
    }

    /// Lower bounds of the function at the mode, each as (a, s) for a - s d.
    fn meeting(side: &[Step]) -> Vec<(f64, f64)> {
        let mode = side.len() - 1;
        let mut bounds = vec![(side[mode].below, 1.0)];
        for i in 0..mode {
            for j in 0..i {
                let far = (side[mode].at - side[i].at) / (side[i].at - side[j].at);
                bounds.push((side[i].upto + (side[i].upto - side[j].below) * far, 1.0 + 2.0 * far));
            }
        }
        bounds
    }

    fn sorted(mut values: Vec<f64>) -> Vec<f64> {
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn dips_of_simple_values_are_those_found_by_hand() {
        let even: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((statistic(&even) - 0.05).abs() < 1e-12, "evenly spread values need half a step");
        let halves = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        assert!((statistic(&halves) - 0.25).abs() < 1e-12, "the largest dip that there is");
        assert!(statistic(&[5.0; 8]).abs() < 1e-12, "an atom is a mode");
        let minority = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        assert!((statistic(&minority) - 0.15).abs() < 1e-12, "half the weight of the lighter mode");
    }

    #[test]
    fn uniform_values_exceed_the_tabulated_dips_as_often_as_the_table_says() {
        for (values, row) in QUANTILES.iter().filter(|(values, _)| *values <= 100) {
            let mut rng = Pcg64::seed_from_u64(1_000_000 + *values as u64);
            let trials = 1500;
            let dips: Vec<f64> = (0..trials)
                .map(|_| statistic(&sorted((0..*values).map(|_| rng.random()).collect())))
                .collect();
            for (quantile, p) in row.iter().zip(PROBABILITIES).filter(|(_, p)| *p >= 0.005) {
                let error = 4.0 * (p * (1.0 - p) / real(trials)).sqrt();
                let share = |least: f64| real(dips.iter().filter(|dip| **dip > least).count()) / real(trials);
                // Four values often have exactly the smallest dip that there is.
                let (above, from) = (share(quantile + 1e-5), share(quantile - 1e-5));
                assert!(above < p + error && from > p - error, "{values} values: {above}..{from} for {p}");
            }
        }
    }

    #[test]
    fn the_table_has_no_slip_of_the_pen() {
        for ((n, row), (more, next)) in QUANTILES.iter().zip(&QUANTILES[1..]) {
            assert!(n < more && row.is_sorted() && next.is_sorted(), "{n}, {more}");
            for (a, b) in row.iter().zip(next).filter(|_| *n >= 12) {
                let growth = (b * real(*more).sqrt()) / (a * real(*n).sqrt());
                assert!((0.96..1.04).contains(&growth), "{growth} from {n} to {more}");
            }
        }
    }

    #[test]
    fn p_values_run_through_the_table_and_stay_within_it() {
        assert!((p_value(0.13961, 10) - 0.05).abs() < 1e-12);
        assert!((p_value(0.0, 10) - 1.0).abs() < 1e-12);
        assert!((p_value(0.25, 10) - 1e-4).abs() < 1e-12);
        let between = p_value(0.14, 10);
        assert!((0.02..0.05).contains(&between), "{between}");
        // 45 values stand between two rows, 4000 behind the last one.
        assert!((quantiles(45)[4] - 0.0850).abs() < 2e-4, "{}", quantiles(45)[4]);
        assert!((quantiles(4000)[4] - 0.019_59 / 2.0).abs() < 1e-5);
    }

    #[test]
    fn too_few_values_or_infinite_ones_have_no_dip() {
        assert_eq!(Dip::of(&[1.0, 2.0, 3.0]), None);
        assert_eq!(Dip::of(&[1.0, 2.0, 3.0, f64::INFINITY]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_dip_is_that_of_the_definition(values in prop::collection::vec(0.0..1.0f64, 1..12)) {
            let sorted = sorted(values);
            prop_assert!((statistic(&sorted) - by_definition(&sorted)).abs() < 1e-9);
        }

        #[test]
        fn equal_and_evenly_spaced_values_have_the_dip_of_the_definition(
            values in prop::collection::vec(0u8..9, 1..12),
        ) {
            let sorted = sorted(values.into_iter().map(f64::from).collect());
            prop_assert!((statistic(&sorted) - by_definition(&sorted)).abs() < 1e-9);
        }
    }
}
