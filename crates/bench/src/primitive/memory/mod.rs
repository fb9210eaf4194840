//! The memory hierarchy: latency by working set, page size, order and neighbours, and bandwidth by level.
//!
//! Each file defines some of the operations; what they share is here: how large the working set of a level is,
//! and whether the machine has the memory for it, which is looked at before it is used (lmbench, 1996,
//! section 3.1).

pub(crate) mod bandwidth;
mod chain;
pub(crate) mod load;
pub(crate) mod loaded;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod once;
pub(crate) mod order;
pub(crate) mod page;
pub(crate) mod steady;
pub(crate) mod stream;
pub(crate) mod translate;
pub(crate) mod update;
mod walk;
pub(crate) mod words;

use std::io;

use assay_quantity::{Key, PrimitiveId, Size};

use crate::benchmark::{Refusal, Setting};
use crate::describe;

/// A working set, and the last cache that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkingSet {
    pub(super) bytes: usize,
    pub(super) last_cache: Size,
    pub(super) residence: Residence,
}

/// Where a working set is when it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Residence {
    /// Wherever the caches keep it, lap after lap.
    Found,
    /// In memory alone: nothing that is come to is in a cache.
    Memory,
}

/// How a working set is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// Part of a lap, in random order: nothing is come to twice.
    Chase,
    /// Lap after lap, in order of address.
    Sweep,
}

/// Last cache that is assumed where the machine tells none.
const CACHE_UNKNOWN: Size = Size::mib(64);

/// A working set of `level=dram` is so large if twice the last cache is less: translation is then what large sets
/// have, and more takes longer to make ready than to measure.
const AMPLE: Size = Size::mib(64);

/// Caches whose replacement resists sweeps keep a part of a set that is a little too large for them. Four times as
/// large is the field's rule (STREAM's run rules), which is kept up to [`AMPLE`].
const SWEPT_TIMES: u64 = 4;

/// Largest working set of `level=dram`: more takes longer to make ready than a sample may.
const DRAM_MAX: Size = Size::mib(512);

impl WorkingSet {
    /// The working set that an id asks for, by its bytes or by its level.
    pub(super) fn of(id: &PrimitiveId, setting: &Setting, course: Course) -> Result<Self, Refusal> {
        match id.number(Key::Set) {
            Some(bytes) => Self::of_bytes(Size(bytes), setting),
            None => Self::of_level(id.word(Key::Level), setting, course),
        }
    }

    /// A working set of so many bytes.
    pub(super) fn of_bytes(set: Size, setting: &Setting) -> Result<Self, Refusal> {
        let last_cache = setting.caches.last().unwrap_or(CACHE_UNKNOWN);
        let outside = set.bytes() >= 2 * last_cache.bytes();
        Self::fitting(set, last_cache, if outside { Residence::Memory } else { Residence::Found })
    }

    /// The working set for a level: within a cache, or more than is claimed of the last one.
    pub(super) fn of_level(level: &str, setting: &Setting, course: Course) -> Result<Self, Refusal> {
        let Setting { caches, effective, .. } = setting;
        let known = |what: &str, cache: Option<Size>| {
            cache.ok_or_else(|| {
                Refusal::Unavailable(format!(
                    "{what} the cache that level={level} is about; ask for a working set in bytes, set=..."
                ))
            })
        };
        let size = |cache| known("the machine does not tell the size of", cache);
        let found = |claimed, before, effective| {
            let claimed = size(claimed)?;
            let effective = known("a sweep over working sets did not find", effective)?;
            Ok::<_, Refusal>((within(claimed, before, effective), Residence::Found))
        };
        let (set, residence) = match level {
            "l1" => found(caches.l1, None, effective.l1)?,
            "l2" => found(caches.l2, caches.l1, effective.l2)?,
            "l3" => found(caches.l3, caches.l2.or(caches.l1), effective.l3)?,
            _ => (in_memory(size(caches.last())?, course)?, Residence::Memory),
        };
        Self::fitting(set, caches.last().unwrap_or(CACHE_UNKNOWN), residence)
    }

    /// The same, if there is the memory for it.
    fn fitting(set: Size, last_cache: Size, residence: Residence) -> Result<Self, Refusal> {
        let free = describe::meminfo("MemAvailable").unwrap_or(Size(u64::MAX));
        if set.bytes() > free.bytes() / 2 {
            return Err(Refusal::Unavailable(format!(
                "its working set of {set} does not fit into half of the {free} of free memory; ask for a smaller \
                 one or end what uses the memory"
            )));
        }
        let bytes = usize::try_from(set.bytes()).map_err(io::Error::other)?;
        Ok(Self { bytes, last_cache, residence })
    }

    /// How many of its places, so many bytes apart, are visited. It is an odd number, so that no batch, whose
    /// length is a power of two, ends where it began: a chain that nobody followed is then seen to be one.
    pub(super) fn places(self, spacing: usize) -> Result<u64, Refusal> {
        let places = (self.bytes / spacing) as u64;
        if places < 4 {
            return Err(Refusal::Unavailable(format!(
                "a working set of {} B has fewer than four places {spacing} B apart; ask for a larger one",
                self.bytes
            )));
        }
        Ok(odd(places))
    }

    /// The number of chunks in each of `regions` equal parts, `bytes` being the size of a chunk.
    pub(super) fn chunks(self, regions: usize, bytes: usize) -> Result<usize, Refusal> {
        match self.bytes / bytes / regions {
            0 => Err(Refusal::Unavailable(format!(
                "a working set of {} B is less than {regions} times the {bytes} B of one operation; ask for a \
                 larger one",
                self.bytes
            ))),
            chunks => Ok(chunks),
        }
    }
}

/// The next lower odd number, if it is not one.
pub(super) fn odd(number: u64) -> u64 {
    number - u64::from(number.is_multiple_of(2))
}

/// A working set within a cache. A quarter of the claim lies in the middle of most levels, on a logarithmic axis. It
/// is halved until it is at most half of the effective size, so that the rest of the process fits beside it.
/// Most runs choose the same set, because it starts from the claim. It is at least twice the cache before, which
/// would hold most of a smaller one, but never more than is effective.
fn within(claimed: Size, before: Option<Size>, effective: Size) -> Size {
    let mut set = claimed.bytes() / 4;
    while 2 * set > effective.bytes() {
        set /= 2;
    }
    let twice = before.map_or(0, |before| 2 * before.bytes());
    Size(set.max(twice.min(effective.bytes())))
}

/// A working set that the last cache does not hold.
fn in_memory(last: Size, course: Course) -> Result<Size, Refusal> {
    let twice = last.bytes().saturating_mul(2);
    if twice > DRAM_MAX.bytes() {
        return Err(Refusal::Unavailable(format!(
            "its last cache of {last} is too large beside the largest working set of {DRAM_MAX}; ask for one in \
             bytes, set=..."
        )));
    }
    Ok(match course {
        // A power of two between the cache and twice that: its random order is computed fastest.
        Course::Chase => Size((twice / 2 + 1).next_power_of_two()).max(AMPLE),
        Course::Sweep => Size((SWEPT_TIMES * last.bytes()).min(AMPLE.bytes().max(twice))),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::describe::CacheSizes;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    /// A setting for tests of what is prepared in it.
    pub(in super::super) fn setting(caches: CacheSizes) -> Setting {
        Setting {
            rng: Pcg64Mcg::seed_from_u64(1),
            cpu: 0,
            cpus: vec![0],
            other_cpu: None,
            caches,
            effective: caches,
            directory: std::env::temp_dir(),
            shared_directory: std::env::temp_dir(),
            peer: None,
        }
    }

    fn with_last(mib: u64) -> CacheSizes {
        CacheSizes { l1: Some(Size::kib(32)), l2: Some(Size::mib(1)), l3: Some(Size::mib(mib)) }
    }

    fn set(id: &str, caches: CacheSizes, course: Course) -> Result<WorkingSet, String> {
        WorkingSet::of(&id.parse().unwrap(), &setting(caches), course).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_level_is_a_quarter_of_its_cache_and_memory_more_than_the_last() {
        let level = |level: &str, mib, course| {
            let set = set(&format!("memory.load{{level={level}}}"), with_last(mib), course)?;
            assert_eq!(set.residence == Residence::Memory, level == "dram");
            Ok::<_, String>(Size(set.bytes as u64))
        };
        assert_eq!(level("l1", 36, Course::Chase), Ok(Size::kib(8)));
        assert_eq!(level("l3", 36, Course::Sweep), Ok(Size::mib(9)));
        for (last, chased, swept) in
            [(4, 64, 16), (20, 64, 64), (32, 64, 64), (36, 64, 72), (64, 128, 128), (105, 128, 210)]
        {
            assert_eq!(level("dram", last, Course::Chase), Ok(Size::mib(chased)), "{last}");
            assert_eq!(level("dram", last, Course::Sweep), Ok(Size::mib(swept)), "{last}");
        }
        assert!(level("dram", 300, Course::Chase).unwrap_err().contains("300MiB is too large"));
        let unknown = set("memory.load{level=l2}", CacheSizes::default(), Course::Chase).unwrap_err();
        assert!(unknown.contains("level=l2"), "{unknown}");
    }

    #[test]
    fn a_level_is_within_what_is_effective_of_its_cache_and_beyond_the_one_before() {
        let chosen = |effective| within(Size::mib(32), Some(Size::mib(1)), Size::mib(effective));
        let expected = [(48, 8), (32, 8), (16, 8), (12, 4), (8, 4), (6, 2), (4, 2), (3, 2), (2, 2)];
        for (effective, set) in expected {
            assert_eq!(chosen(effective), Size::mib(set), "{effective}");
        }
        // Never more than is effective.
        assert_eq!(within(Size::mib(4), Some(Size::mib(2)), Size::mib(3)), Size::mib(3));
        for effective in [24, 32, 48] {
            assert_eq!(within(Size::kib(48), None, Size::kib(effective)), Size::kib(12), "{effective}");
        }
    }

    #[test]
    fn a_level_that_a_sweep_did_not_find_is_refused() {
        let mut setting = setting(with_last(32));
        setting.effective.l3 = None;
        let of = |level| {
            WorkingSet::of_level(level, &setting, Course::Chase).map_err(|refusal| refusal.to_string())
        };
        assert!(of("l2").is_ok() && of("dram").is_ok());
        let refused = of("l3").unwrap_err();
        assert!(refused.contains("did not find the cache that level=l3"), "{refused}");
    }

    #[test]
    fn a_working_set_that_does_not_fit_into_free_memory_is_refused_before_it_is_touched() {
        let refused = set("memory.load{set=4096GiB}", with_last(36), Course::Chase).unwrap_err();
        assert!(refused.contains("4096GiB does not fit"), "{refused}");
    }

    #[test]
    fn a_set_in_bytes_is_in_memory_from_twice_the_last_cache_on() {
        let residence = |id: &str| set(id, with_last(36), Course::Chase).unwrap().residence;
        assert_eq!(residence("memory.load{set=71MiB}"), Residence::Found);
        assert_eq!(residence("memory.load{set=72MiB}"), Residence::Memory);
    }

    #[test]
    fn the_places_of_a_set_are_odd() {
        let set = |bytes| WorkingSet { bytes, last_cache: Size::mib(36), residence: Residence::Found };
        assert_eq!(set(4096).places(64).unwrap(), 63);
        assert_eq!(set(4096 + 64).places(64).unwrap(), 65);
        assert!(set(192).places(64).unwrap_err().to_string().contains("fewer than four places"));
    }
}
