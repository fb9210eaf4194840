//! The modes of a cost: whether its values gather around one figure or around several, and around which.
//!
//! A primitive whose processes cost 100 ns or 150 ns, depending on their pages or processors, does not cost
//! 115 ns. The dip test ([`crate::dip`]) or a wide gap decides whether there are several modes, a
//! segmentation assigns each value to a mode, and each mode has a weight and an estimate of its own. No value
//! is left out.

use assay_quantity::{Mode, Unit};

use crate::dip::Dip;
use crate::estimator::{NoEstimate, middle, real, trimmed_mean};

/// Level of the dip test: at most one in a hundred series with one mode is reported to have several. A
/// profile of 200 primitives tests 200 times, so this happens to two of them if all noise is uniform, which
/// is the worst case. Noise with a centre, such as that of processes, is better: fewer than three in a
/// thousand series of 12 normal, lognormal or exponential values, and fewer than one in a thousand of 30. A
/// level for the whole profile (0.01 / 200) would find nothing in fewer than 40 processes.
pub const LEVEL: f64 = 0.01;

/// An empty gap of this many times the range of the wider side separates two modes as well. The dip test is
/// so conservative that it rejects only every second series of 20 values of which 6 are at 1.5 times the
/// place of the others. With at least [`GAP_VALUES_MIN`] values, such a gap occurs in fewer than one in a
/// thousand series of noise of any shape that was tried (uniform, normal, lognormal, exponential, Student's t
/// of 3 degrees, Cauchy).
const GAP: f64 = 4.0;
const GAP_VALUES_MIN: usize = 10;

/// Maximum number of modes: machines have two or three (a page is in the right place or not, a processor is
/// shared, far or near); more are noise of another shape.
const MODES_MAX: usize = 3;

/// Minimum number of values of a mode, and minimum share of all values: fewer are outliers, which
/// [`crate::outlier`] counts.
const VALUES_MIN: usize = 3;
const SHARE_MIN: f64 = 0.1;

/// Distance between neighbouring modes, relative to the lower one, below which they count as one cost: half
/// of the difference that a comparison of machines is designed to find.
const APART: f64 = 0.01;

/// Lower limit of the spread of a mode in its likelihood, relative to its place: a tenth of [`APART`], so
/// that a few values that are equal by chance do not attract a cut.
const SPREAD_MIN: f64 = 0.001;

/// Finds the modes of values, the lowest first. `None` unless there is evidence of several, and for fewer
/// than six values.
///
/// The number of processes that this requires depends on the weight of the lighter mode, because a dip is at
/// most half of it, and on the distance. Share of series in which two modes of 2 % noise each are found, in
/// per cent:
///
/// | weights | upper / lower | 12 values | 20 | 30 | 40 | 60 | 90 |
/// |---|---|---|---|---|---|---|---|
/// | 50/50 | 1.5 | 94 | 98 | 100 | 100 | 100 | 100 |
/// | 70/30 | 1.5 | 73 | 89 | 93 | 95 | 99 | 100 |
/// | 80/20 | 1.5 | 43 | 72 | 83 | 80 | 81 | 89 |
/// | 90/10 | 1.5 | 11 | 30 | 52 | 47 | 36 | 26 |
/// | 70/30 | 1.2 | 23 | 31 | 44 | 58 | 81 | 96 |
#[must_use]
pub fn several(values: &[f64], unit: Unit) -> Option<Vec<Mode>> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut parts = vec![sorted.as_slice()];
    while parts.len() < MODES_MAX {
        let cuts = parts.iter().enumerate().filter_map(|(position, part)| Some((position, cut(part)?)));
        let Some((position, at)) = cuts.max_by_key(|(position, _)| parts[*position].len()) else { break };
        let (left, right) = parts[position].split_at(at);
        parts.splice(position..=position, [left, right]);
    }
    if parts.len() == 1 {
        return None;
    }
    let mode = |part: &&[f64]| -> Result<Mode, NoEstimate> {
        Ok(Mode { weight: real(part.len()) / real(values.len()), estimate: trimmed_mean(part, unit)? })
    };
    parts.iter().map(mode).collect::<Result<_, _>>().ok()
}

/// Where to divide sorted values, if they have several modes that are far enough apart.
///
/// Each division rests on a test of its own part. A criterion such as BIC would let a heavy tail or a few
/// outliers decide the number of modes.
fn cut(sorted: &[f64]) -> Option<usize> {
    let dip = Dip::of(sorted)?;
    let at = likeliest_cut(sorted)?;
    let (left, right) = sorted.split_at(at);
    let (low, high) = (middle(left), middle(right));
    let several = dip.p < LEVEL || gapes(left, right);
    (several && high - low >= APART * low.abs()).then_some(at)
}

/// Whether the gap between two sides is [`GAP`] times as wide as the wider of them.
fn gapes(left: &[f64], right: &[f64]) -> bool {
    let range = |side: &[f64]| side[side.len() - 1] - side[0];
    left.len() + right.len() >= GAP_VALUES_MIN
        && right[0] - left[left.len() - 1] > GAP * range(left).max(range(right))
}

/// The division of greatest likelihood if each side is a Laplace distribution with its own median, spread and
/// weight. Unlike the largest gap it does not follow the scatter at the edge of a wide mode; unlike 2-means
/// it separates a narrow mode from a wide one; and a far outlier changes a mean absolute deviation less than
/// a variance.
fn likeliest_cut(sorted: &[f64]) -> Option<usize> {
    let sums = Sums::of(sorted);
    let floor = SPREAD_MIN * middle(sorted).abs();
    let cost = |from: usize, to: usize| {
        let values = real(to - from);
        values * ((sums.deviation(from, to) / values).max(floor).ln() - values.ln())
    };
    let n = sorted.len();
    let least = VALUES_MIN.max(share_of(n));
    let places = (least..(n + 1).saturating_sub(least)).filter(|at| sorted[at - 1] < sorted[*at]);
    let total = |at: usize| cost(0, at) + cost(at, n);
    places.min_by(|a, b| total(*a).total_cmp(&total(*b)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length is a length"
)]
fn share_of(n: usize) -> usize {
    (SHARE_MIN * real(n)).ceil() as usize
}

/// Sums of the first values, which give the deviation of any run of them in constant time.
struct Sums(Vec<f64>);

impl Sums {
    fn of(sorted: &[f64]) -> Self {
        let mut sum = 0.0;
        let sums = sorted.iter().map(|value| {
            sum += value;
            sum
        });
        Self(std::iter::once(0.0).chain(sums).collect())
    }

    /// Sum of the absolute deviations of a run from its median: the sum of its upper half less that of its
    /// lower half.
    fn deviation(&self, from: usize, to: usize) -> f64 {
        let sum = |from: usize, to: usize| self.0[to] - self.0[from];
        let (half, length) = ((to - from) / 2, to - from);
        sum(from + length - half, to) - sum(from, from + half)
    }
}
