//! The order in which the elements of a working set are visited: a lap that visits each of them once.
//!
//! A random order that prefetchers cannot predict is usually a table: a permutation as long as the working
//! set, which takes longer to shuffle than the measured loads. Here it is a function: the element at any
//! position is computed in a few instructions, so that a part of a lap can be linked without the rest, and
//! the destination of n steps is known without taking them.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A lap through the numbers below `length`.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// In ascending order.
    Ascending {
        /// The number of elements.
        length: u64,
    },
    /// In random order.
    Random(Permutation),
    /// Pairs in random order; in each pair the even number precedes the odd one.
    Pairs(Permutation),
}

impl Order {
    /// Returns a random lap through `length` elements.
    pub(crate) fn random(length: u64, rng: &mut Pcg64Mcg) -> Self {
        Self::Random(Permutation::below(length, rng))
    }

    /// Returns a random lap through `number` pairs.
    pub(crate) fn pairs(number: u64, rng: &mut Pcg64Mcg) -> Self {
        Self::Pairs(Permutation::below(number, rng))
    }

    /// Returns the number of elements.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Order::Ascending { length } => *length,
            Order::Random(permutation) => permutation.length,
            Order::Pairs(permutation) => 2 * permutation.length,
        }
    }

    /// Returns the element at this position of the lap.
    pub(crate) fn at(&self, position: u64) -> u64 {
        match self {
            Order::Ascending { .. } => position,
            Order::Random(permutation) => permutation.apply(position),
            Order::Pairs(permutation) => 2 * permutation.apply(position / 2) + position % 2,
        }
    }
}

/// Rounds of mixing. After two rounds the low bits of neighbours are still related, after three they are not
/// (the tests check this).
const ROUNDS: usize = 3;

/// A pseudo-random permutation of the numbers below `length`: rounds of multiplication by an odd number and
/// of adding the upper half to the lower, both of which are invertible, over the next power of two. A result
/// outside the range is permuted again until it is inside (Black and Rogaway, *Ciphers with Arbitrary Finite
/// Domains*, 2002, "cycle walking"). It is fastest immediately below a power of two.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    length: u64,
    mask: u64,
    /// Half of the bits.
    shift: u32,
    key: u64,
    multipliers: [u64; ROUNDS],
}

impl Permutation {
    fn below(length: u64, rng: &mut Pcg64Mcg) -> Self {
        let mask = length.next_power_of_two() - 1;
        Self {
            length,
            mask,
            shift: mask.count_ones() / 2 + 1,
            key: rng.random::<u64>() & mask,
            multipliers: std::array::from_fn(|_| rng.random::<u64>() | 1),
        }
    }

    fn apply(&self, mut number: u64) -> u64 {
        loop {
            number ^= self.key;
            for multiplier in self.multipliers {
                number = number.wrapping_mul(multiplier) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.length {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use std::collections::{BTreeSet, HashMap};

    fn random(length: u64, seed: u64) -> Order {
        Order::random(length, &mut Pcg64Mcg::seed_from_u64(seed))
    }

    proptest! {
        #[test]
        fn a_lap_visits_every_element_once(length in 1u64..3000, seed: u64) {
            let order = random(length, seed);
            let elements: BTreeSet<u64> = (0..length).map(|position| order.at(position)).collect();
            prop_assert_eq!(elements.len() as u64, length);
            prop_assert!(elements.last().is_some_and(|last| *last < length));
        }

        #[test]
        fn no_two_positions_of_a_long_lap_share_an_element(
            length in 2u64..1 << 40,
            seed: u64,
            first: u64,
            distance: u64,
        ) {
            let order = random(length, seed);
            let (one, other) = (first % length, (first % length + 1 + distance % (length - 1)) % length);
            prop_assert_ne!(order.at(one), order.at(other));
            prop_assert!(order.at(one) < length);
        }
    }

    #[test]
    fn of_each_pair_the_odd_one_follows_the_even_one() {
        let order = Order::pairs(101, &mut Pcg64Mcg::seed_from_u64(6));
        assert_eq!(order.length(), 202);
        let elements: BTreeSet<u64> = (0..202).map(|position| order.at(position)).collect();
        assert_eq!(elements.len(), 202);
        for pair in 0..101 {
            let even = order.at(2 * pair);
            assert_eq!((even % 2, order.at(2 * pair + 1)), (0, even + 1));
        }
    }

    /// Patterns that a prefetcher could learn: a recurring distance, or the same page.
    #[test]
    fn distances_do_not_recur_and_neighbours_in_the_lap_are_not_neighbours_in_memory() {
        const LENGTH: u64 = (1 << 15) - 1;
        const LINES_PER_PAGE: u64 = 64;
        for seed in 0..20 {
            let order = random(LENGTH, seed);
            let (mut distances, mut same_page) = (HashMap::<u64, u32>::new(), 0);
            for position in 0..LENGTH - 1 {
                let (from, to) = (order.at(position), order.at(position + 1));
                *distances.entry(to.wrapping_sub(from)).or_default() += 1;
                same_page += u32::from(from / LINES_PER_PAGE == to / LINES_PER_PAGE);
            }
            // In a truly random permutation the most frequent distance would occur about 10 times, the same
            // page 64 times.
            let commonest = distances.values().max().unwrap();
            assert!(*commonest < 330, "seed {seed}: one distance in {} steps of {LENGTH}", commonest);
            assert!(same_page < 330, "seed {seed}: {same_page} steps of {LENGTH} stay in their page");
        }
    }

    #[test]
    fn orders_of_different_seeds_differ() {
        let first = |seed| (0..8).map(|position| random(1 << 20, seed).at(position)).collect::<Vec<_>>();
        assert_eq!(first(3), first(3));
        assert_ne!(first(3), first(4));
    }
}
