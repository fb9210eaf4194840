//! Random streams for the choices of one sample, a separate stream for each purpose, and the choice of its
//! processors.
//!
//! The seed of a sample determines all of its choices, so that the seed reproduces the sample. If all choices
//! were the first draw of the same generator, they would be functions of each other: a short environment
//! would always be combined with the same processor and the same offset, and no number of processes could
//! separate their effects.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The purpose of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The length of the environment.
    Environment,
    /// The processors of the sample and of its partner.
    Placement,
    /// The start of the stack.
    Depth,
    /// The seeds of a primitive's samples.
    Sample,
    /// The placement of the kernel's objects.
    Kernel,
    /// The seeds of the samples of a sweep over caches.
    Sweep,
    /// The choices of the benchmark: the start of its buffers, the order of its loads.
    Setting,
}

impl Purpose {
    /// Random bits, so that the seeds of two purposes do not coincide.
    fn constant(self) -> u64 {
        match self {
            Purpose::Environment => 0x9d1c_5e7b_30f2_a846,
            Purpose::Sample => 0xc7a2_4d1e_6b93_085f,
            Purpose::Kernel => 0x51e8_90c3_7d26_bf4b,
            Purpose::Placement => 0x3b84_f6d9_c217_50ea,
            Purpose::Depth => 0xe46f_0a92_7d5b_831c,
            Purpose::Setting => 0x58a3_b1c4_e690_2fd7,
            Purpose::Sweep => 0x2f7b_c05d_94e1_6a38,
        }
    }
}

/// Returns the stream of one purpose. Discards its first draw, which is still correlated for similar seeds.
pub(crate) fn stream(seed: u64, purpose: Purpose) -> Pcg64Mcg {
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ purpose.constant());
    let _ = rng.next_u64();
    rng
}

/// Returns the processor of a sample and one for its partner. The partner's is on another core if there is
/// one, because two hardware threads of one core are not two processors in the usual sense.
pub(crate) fn placement(seed: u64, cpus: &[usize], siblings: &[Vec<usize>]) -> (usize, Option<usize>) {
    let mut rng = stream(seed, Purpose::Placement);
    let Some(last) = cpus.len().checked_sub(1) else { return (0, None) };
    let chosen = rng.random_range(0..=last);
    let others: Vec<usize> = cpus.iter().copied().filter(|cpu| *cpu != cpus[chosen]).collect();
    let far: Vec<usize> = others.iter().copied().filter(|cpu| !siblings[chosen].contains(cpu)).collect();
    let candidates = if far.is_empty() { others } else { far };
    let other = (!candidates.is_empty()).then(|| candidates[rng.random_range(0..candidates.len())]);
    (cpus[chosen], other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::layout;
    use std::collections::BTreeSet;

    /// Returns environment (in lines), processor, depth and first offset of a sample with this seed.
    fn choices(seed: u64) -> [usize; 4] {
        let environment = layout::environment(&mut stream(seed, Purpose::Environment)).len() / layout::LINE;
        let (cpu, _) = placement(seed, &[0, 1], &[vec![0], vec![1]]);
        let depth = layout::depth(&mut stream(seed, Purpose::Depth));
        let offset = layout::offset(&mut stream(seed, Purpose::Setting)) / layout::LINE;
        [environment, cpu, depth, offset]
    }

    #[test]
    fn no_choice_of_a_sample_is_a_function_of_another() {
        let samples: Vec<[usize; 4]> = (0..4000).map(choices).collect();
        let kinds = |of: &dyn Fn(&[usize; 4]) -> (usize, usize)| {
            samples.iter().map(of).collect::<BTreeSet<_>>().len()
        };
        for one in 0..4 {
            let alone = kinds(&|sample| (sample[one], 0));
            assert!(alone >= if one == 1 { 2 } else { 64 }, "choice {one} took {alone} values");
            for other in 0..one {
                let together = kinds(&|sample| (sample[one], sample[other]));
                // 4000 balls in 4096 or 128 boxes occupy 2550 or all of them; a function would occupy 64.
                let least = if one == 1 || other == 1 { 128 } else { 2400 };
                assert!(together >= least, "choices {one} and {other} took {together} pairs of values");
            }
        }
    }

    #[test]
    fn a_seed_reproduces_every_choice_and_the_next_seed_makes_others() {
        assert_eq!(choices(7), choices(7));
        let same = (0..1000).filter(|seed| choices(*seed)[2] == choices(seed + 1)[2]).count();
        assert!(same < 40, "{same} of 1000 neighbours share their depth, 16 by chance");
    }

    #[test]
    fn partners_run_on_another_core_if_there_is_one() {
        let siblings = [vec![0, 2], vec![1, 3], vec![0, 2], vec![1, 3]];
        for seed in 0..50 {
            let (cpu, other) = placement(seed, &[0, 1, 2, 3], &siblings);
            assert_ne!(cpu % 2, other.unwrap() % 2);
        }
        assert_eq!(placement(7, &[5], &[vec![5]]), (5, None));
        let (cpu, other) = placement(7, &[0, 1], &[vec![0, 1], vec![0, 1]]);
        assert_eq!(cpu + other.unwrap(), 1);
    }
}
