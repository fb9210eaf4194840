//! The modes of a cost: whether its values gather around one figure or around several, and which.
//!
//! A primitive whose processes cost 100 ns or 150 ns, as the pages or processors fall, has no cost of 115 ns.
//! The dip test ([`crate::dip`]) or a wide gap says whether there are several modes, a segmentation says which
//! value belongs to which, and each mode gets a weight and an estimate of its own. Every cost is asked for its
//! modes when it is made. A value is never left out: each belongs to some mode.

use assay_quantity::{Mode, Unit};

use crate::dip::Dip;
use crate::estimator::{NoEstimate, middle, real, trimmed_mean};

/// Level of the dip test: at most one in a hundred series that have one mode is said to have several. A
/// profile of 200 primitives tests 200 times, so two of them are if all noise is uniform, which is the worst
/// case. Noise that gathers in a middle, as that of processes does, fares better: of 12 normal, lognormal or
/// exponential values fewer than three in a thousand series are, of 30 fewer than one. A level for the whole
/// profile (0.01 / 200) would leave nothing to be found in fewer than 40 processes.
pub const LEVEL: f64 = 0.01;

/// Two sides with an empty gap between them of this many times the wider side's range are two modes as well.
/// The dip test is so careful with unimodal distributions of any shape that of 20 values, 6 of them at 1.5
/// times the others' place, it rejects only every second time; a gap like this one is seen in fewer than one
/// in a thousand series of noise of any shape that was tried (uniform, normal, lognormal, exponential,
/// Student's t of 3 degrees, Cauchy) from [`GAP_VALUES_MIN`] values on.
const GAP: f64 = 4.0;
const GAP_VALUES_MIN: usize = 10;

/// Most modes that are told apart: machines have two or three ways (a page is in the right place or not, a
/// processor is shared, far or near); what seems to be more is noise of another shape.
const MODES_MAX: usize = 3;

/// Fewest values of a mode, and the share of all values that it needs as well: fewer are outliers, which
/// are counted by [`crate::outlier`].
const VALUES_MIN: usize = 3;
const SHARE_MIN: f64 = 0.1;

/// Distance between neighbouring modes, relative to the lower one, below which they are one cost to every
/// use of it: half of the difference that a comparison of machines promises to find.
const APART: f64 = 0.01;

/// Spread below which a mode does not become more likely, relative to its place: a tenth of [`APART`], so
/// that a few values that are equal by chance do not attract a cut.
const SPREAD_MIN: f64 = 0.001;

/// The modes of values, the lowest first, if there are several. `None` if the values may as well have one
/// mode, which is also the answer for fewer than six values: nothing can be told of those.
///
/// How many processes it takes depends on the weight of the lighter mode, because a dip is at most half of it, and on
/// the distance. Two modes of 2 % noise each are found in so many per cent of series:
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

/// Where sorted values are divided if they have several modes that matter.
///
/// Each division is backed by a test of its own part, so that the number of modes is not a matter of a
/// criterion that a heavy tail or a few outliers decide, as they decide BIC.
fn cut(sorted: &[f64]) -> Option<usize> {
    let dip = Dip::of(sorted)?;
    let at = likeliest_cut(sorted)?;
    let (left, right) = sorted.split_at(at);
    let (low, high) = (middle(left), middle(right));
    let several = dip.p < LEVEL || gapes(left, right);
    (several && high - low >= APART * low.abs()).then_some(at)
}

/// Whether an empty gap lies between two sides that is [`GAP`] times as wide as the wider of them.
fn gapes(left: &[f64], right: &[f64]) -> bool {
    let range = |side: &[f64]| side[side.len() - 1] - side[0];
    left.len() + right.len() >= GAP_VALUES_MIN
        && right[0] - left[left.len() - 1] > GAP * range(left).max(range(right))
}

/// The division of greatest likelihood when each side is a Laplace distribution with its own median, spread
/// and weight: unlike the largest gap it does not follow the scatter at the edge of a wide mode, unlike
/// 2-means it tells a narrow mode from a wide one, and a far outlier moves a mean absolute deviation less
/// than a variance.
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

/// Sums of the first values, for the deviation of any run of them at once.
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

    /// Sum of the absolute deviations of a run from its median: its upper half less its lower half.
    fn deviation(&self, from: usize, to: usize) -> f64 {
        let sum = |from: usize, to: usize| self.0[to] - self.0[from];
        let (half, length) = ((to - from) / 2, to - from);
        sum(from + length - half, to) - sum(from, from + half)
    }
}
