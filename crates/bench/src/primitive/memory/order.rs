//! The order in which the elements of a working set are visited: a lap that comes to each of them once.
//!
//! A random order that hides from prefetchers is usually a table: a permutation as long as the working set, which
//! takes longer to shuffle and to follow than the loads that it is for. Here it is a function with an inverse, so
//! that the element at any place of the lap, and the place of any element, are computed in a few instructions:
//! chains can be linked in the order of addresses, and where n steps must lead is known without taking them.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A lap through the numbers below `length`.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// In order of number.
    Ascending {
        /// How many there are.
        length: u64,
    },
    /// In random order.
    Random(Permutation),
}

impl Order {
    /// A random lap through so many elements.
    pub(crate) fn random(length: u64, rng: &mut Pcg64Mcg) -> Self {
        Self::Random(Permutation::below(length, rng))
    }

    /// How many elements there are.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Order::Ascending { length } => *length,
            Order::Random(permutation) => permutation.length,
        }
    }

    /// The element that comes at this position of the lap.
    pub(crate) fn at(&self, position: u64) -> u64 {
        match self {
            Order::Ascending { .. } => position,
            Order::Random(permutation) => permutation.apply(position),
        }
    }

    /// The position of the lap at which this element comes.
    pub(crate) fn position(&self, element: u64) -> u64 {
        match self {
            Order::Ascending { .. } => element,
            Order::Random(permutation) => permutation.invert(element),
        }
    }
}

/// Rounds of mixing. Two leave the low bits of neighbours related, three do not (the tests look).
const ROUNDS: usize = 3;

/// A pseudo-random permutation of the numbers below `length`: rounds of multiplication by an odd number and of
/// adding the upper half to the lower, both of which can be undone, over the next power of two; what falls
/// outside is permuted again until it falls inside (Black and Rogaway, *Ciphers with Arbitrary Finite Domains*,
/// 2002, "cycle walking").
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    length: u64,
    mask: u64,
    /// At least half of the bits, so that the shift undoes itself.
    shift: u32,
    key: u64,
    multipliers: [u64; ROUNDS],
    inverses: [u64; ROUNDS],
}

impl Permutation {
    fn below(length: u64, rng: &mut Pcg64Mcg) -> Self {
        let mask = length.next_power_of_two() - 1;
        let multipliers: [u64; ROUNDS] = std::array::from_fn(|_| rng.random::<u64>() | 1);
        Self {
            length,
            mask,
            shift: mask.count_ones() / 2 + 1,
            key: rng.random::<u64>() & mask,
            multipliers,
            inverses: multipliers.map(inverse),
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

    fn invert(&self, mut number: u64) -> u64 {
        loop {
            for inverse in self.inverses.iter().rev() {
                number ^= number >> self.shift;
                number = number.wrapping_mul(*inverse) & self.mask;
            }
            number ^= self.key;
            if number < self.length {
                return number;
            }
        }
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration, which doubles the right bits: the number
/// itself is right in three.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
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
        fn a_lap_comes_to_every_element_once_and_each_knows_its_position(length in 1u64..3000, seed: u64) {
            let order = random(length, seed);
            let mut seen = BTreeSet::new();
            for position in 0..length {
                let element = order.at(position);
                prop_assert!(element < length);
                prop_assert!(seen.insert(element), "{} comes twice", element);
                prop_assert_eq!(order.position(element), position);
            }
        }

        #[test]
        fn positions_are_found_again_in_laps_of_any_length(length in 1u64..1 << 32, seed: u64, place: u64) {
            let order = random(length, seed);
            let element = order.at(place % length);
            prop_assert!(element < length);
            prop_assert_eq!(order.position(element), place % length);
        }
    }

    /// What a prefetcher could learn: the same distance again and again, or the same page.
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
            // Of a true permutation the commonest distance would come about 10 times, the same page 64 times.
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
