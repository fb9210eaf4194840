//! Two machines measured in turns, in the same minutes: their difference without what both shared.
//!
//! A drift of the room, the clock or the neighbours moves both values of a round alike and drops out of their
//! ratio. The control that compares a machine with itself is made this way. The estimate is Hodges and
//! Lehmann's (Annals of Mathematical Statistics 34, 1963), its interval and p-value are those of Wilcoxon's
//! signed-rank test (Biometrics Bulletin 1, 1945), exact for any number of rounds whose log ratios are
//! symmetric about their middle, which they are when the two sides are alike.

use super::{NoComparison, Pair, Ratio};
use crate::estimate::{CONFIDENCE, Estimate, Interval, Method, NoEstimate, middle, real};
use crate::unit::Unit;

/// Compares rounds, each with one value of either side: the median of all means of two log ratios (Walsh
/// averages), as a ratio. Below six rounds no interval reaches 95 %: then it spans all of them, and its
/// confidence says what that is worth. Takes time with the cube of the number of rounds (a hundred: some
/// milliseconds).
///
/// The effect is the share of rounds in which b is higher, less the share in which it is lower.
///
/// # Errors
/// [`NoComparison`] for fewer than two rounds, or a value that is not finite and positive.
pub fn paired(rounds: &[Pair<f64>]) -> Result<Ratio, NoComparison> {
    if rounds.len() < 2 {
        return Err(NoEstimate::TooFew(rounds.len()).into());
    }
    let logs: Vec<f64> = rounds.iter().map(log_ratio).collect::<Result<_, _>>()?;
    let mut walsh: Vec<f64> = logs
        .iter()
        .enumerate()
        .flat_map(|(i, a)| logs[i..].iter().map(move |b| f64::midpoint(*a, *b)))
        .collect();
    walsh.sort_by(f64::total_cmp);
    let below = signed_rank_cdf(logs.len());
    let coverage = |k: usize| 1.0 - 2.0 * below[k];
    // The most that can be left out at each end.
    let outside = (0..walsh.len() / 2).take_while(|k| coverage(*k) >= CONFIDENCE).last().unwrap_or(0);
    let interval = Interval {
        low: walsh[outside].exp(),
        high: walsh[walsh.len() - 1 - outside].exp(),
        confidence: coverage(outside),
    };
    let estimate = Estimate {
        point: middle(&walsh).exp(),
        interval,
        unit: Unit::Ratio,
        method: Method::Derived,
        values: rounds.len(),
    };
    let lower = logs.iter().filter(|log| **log < 0.0).count();
    let higher = logs.iter().filter(|log| **log > 0.0).count();
    let effect = (real(higher) - real(lower)) / real(logs.len());
    Ok(Ratio { estimate, p: Some(p_value(&walsh, &below)), effect: Some(effect) })
}

fn log_ratio(round: &Pair<f64>) -> Result<f64, NoComparison> {
    for value in [round.a, round.b] {
        if !value.is_finite() {
            return Err(NoEstimate::NotFinite.into());
        }
        if value <= 0.0 {
            return Err(NoComparison::NotPositive(value));
        }
    }
    Ok((round.b / round.a).ln())
}

/// Both tails beyond the number of Walsh averages on the rarer side of zero. Those that are zero are counted to that
/// side, so that rounds without a difference are never evidence for one.
fn p_value(walsh: &[f64], below: &[f64]) -> f64 {
    let not_above = walsh.partition_point(|average| *average <= 0.0);
    let not_below = walsh.len() - walsh.partition_point(|average| *average < 0.0);
    (2.0 * below[not_above.min(not_below)]).min(1.0)
}

/// Probability, for each number k, that the ranks of the positive differences add up to at most k, which is that at
/// most k Walsh averages are positive, if positive and negative ones are equally likely.
fn signed_rank_cdf(rounds: usize) -> Vec<f64> {
    let sums = rounds * (rounds + 1) / 2;
    let mut probability = vec![0.0; sums + 1];
    probability[0] = 1.0;
    for rank in 1..=rounds {
        for sum in (0..=sums).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    let mut total = 0.0;
    for entry in &mut probability {
        total += *entry;
        *entry = total;
    }
    probability
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(ratios: &[f64]) -> Vec<Pair<f64>> {
        ratios.iter().enumerate().map(|(i, ratio)| Pair { a: real(i + 1), b: real(i + 1) * ratio }).collect()
    }

    #[test]
    fn the_distribution_of_the_signed_ranks_is_that_of_counting_all_signs() {
        let n = 7;
        let counted = |k: usize| {
            let sums = (0..1_usize << n)
                .map(|signs| (1..=n).filter(|rank| signs >> (rank - 1) & 1 == 1).sum::<usize>());
            real(sums.filter(|sum| *sum <= k).count()) / real(1 << n)
        };
        for (k, p) in signed_rank_cdf(n).into_iter().enumerate() {
            assert!((p - counted(k)).abs() < 1e-12, "{k}");
        }
    }

    #[test]
    fn ten_rounds_with_one_against_nine_give_the_p_value_of_the_table() {
        // The differences have the ranks 1 to 10 and the smallest is negative: the sum of 1 has a two-sided
        // probability of 4/1024.
        let ratios: Vec<f64> =
            (1..=10).map(|i| if i == 1 { -0.01f64 } else { 0.01 * f64::from(i) }.exp()).collect();
        let ratio = paired(&rounds(&ratios)).unwrap();
        assert!((ratio.p.unwrap() - 4.0 / 1024.0).abs() < 1e-12);
        assert!((ratio.effect.unwrap() - 0.8).abs() < 1e-12);
        // At 8 of the 55 averages outside on each side the test has 95.1 %, at 9 it would have 93.6 %.
        assert!((ratio.estimate.interval.confidence - (1.0 - 2.0 * 25.0 / 1024.0)).abs() < 1e-12);
        assert!(ratio.estimate.interval.low > 1.0 && ratio.estimate.point < ratio.estimate.interval.high);
    }

    #[test]
    fn five_rounds_admit_that_their_interval_is_worth_94_per_cent_and_prove_nothing() {
        let ratio = paired(&rounds(&[1.1, 1.2, 1.3, 1.4, 1.5])).unwrap();
        assert!((ratio.estimate.interval.confidence - 0.9375).abs() < 1e-12);
        assert!(
            (ratio.estimate.interval.low - 1.1).abs() < 1e-12
                && (ratio.estimate.interval.high - 1.5).abs() < 1e-12
        );
        assert!((ratio.p.unwrap() - 0.0625).abs() < 1e-12);
    }

    #[test]
    fn rounds_without_a_difference_are_no_evidence_for_one() {
        let equal = paired(&rounds(&[1.0; 8])).unwrap();
        assert!((equal.p.unwrap() - 1.0).abs() < 1e-12 && (equal.estimate.point - 1.0).abs() < 1e-12);
        let mostly = paired(&rounds(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.1, 1.1])).unwrap();
        assert!(mostly.p.unwrap() > 0.05 && mostly.estimate.interval.low <= 1.0);
    }

    #[test]
    fn what_is_no_ratio_is_refused() {
        assert_eq!(paired(&[]), Err(NoEstimate::TooFew(0).into()));
        let zero = [Pair { a: 1.0, b: 1.0 }, Pair { a: 0.0, b: 1.0 }];
        assert_eq!(paired(&zero), Err(NoComparison::NotPositive(0.0)));
        let infinite = [Pair { a: 1.0, b: 1.0 }, Pair { a: 1.0, b: f64::INFINITY }];
        assert_eq!(paired(&infinite), Err(NoEstimate::NotFinite.into()));
    }
}
