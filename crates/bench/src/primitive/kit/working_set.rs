//! The working set of a benchmark of the memory hierarchy: its size, which an id specifies by a level or in
//! bytes, and the check that enough memory is available before it is used (lmbench, 1996, section 3.1).

use std::io;

use assay_quantity::{Key, PrimitiveId, Size};

use crate::benchmark::{Refusal, Setting};
use crate::platform::describe;

/// A working set, and the size of the last cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkingSet {
    pub(crate) bytes: usize,
    pub(crate) last_cache: Size,
    pub(crate) residence: Residence,
}

/// The location of a working set during the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    /// Where the caches keep it, lap after lap.
    Found,
    /// Only in memory: no accessed line is in a cache.
    Memory,
}

/// How a working set is traversed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// Part of a lap, in random order: no element is visited twice.
    Chase,
    /// Lap after lap, in order of address.
    Sweep,
}

/// Size of the last cache if the machine does not report one.
const CACHE_UNKNOWN: Size = Size::mib(64);

/// Size of a working set of `level=dram` if twice the last cache is less. Address translation then costs as
/// much as in large sets, and a larger set takes longer to prepare than to measure.
const AMPLE: Size = Size::mib(64);

/// Ratio of a swept working set to the last cache. Caches whose replacement policy resists sweeps keep a part
/// of a set that slightly exceeds them. A factor of four is the usual rule (STREAM's run rules); it is
/// applied up to [`AMPLE`].
const SWEPT_TIMES: u64 = 4;

/// Largest working set of `level=dram`: a larger one takes longer to prepare than a sample may.
const DRAM_MAX: Size = Size::mib(512);

impl WorkingSet {
    /// Returns the working set that an id specifies, by its bytes or by its level.
    pub(crate) fn of(id: &PrimitiveId, setting: &Setting, course: Course) -> Result<Self, Refusal> {
        match id.number(Key::Set) {
            Some(bytes) => Self::of_bytes(Size(bytes), setting),
            None => Self::of_level(id.word(Key::Level), setting, course),
        }
    }

    /// Returns a working set of the given size.
    pub(crate) fn of_bytes(set: Size, setting: &Setting) -> Result<Self, Refusal> {
        let last_cache = setting.caches.last().unwrap_or(CACHE_UNKNOWN);
        let outside = set.bytes() >= 2 * last_cache.bytes();
        Self::fitting(set, last_cache, if outside { Residence::Memory } else { Residence::Found })
    }

    /// Returns the working set for a level: within a cache, or larger than the reported size of the last
    /// cache.
    pub(crate) fn of_level(level: &str, setting: &Setting, course: Course) -> Result<Self, Refusal> {
        let Setting { caches, effective, .. } = setting;
        let known = |what: &str, cache: Option<Size>| {
            cache.ok_or_else(|| {
                Refusal::Unavailable(format!(
                    "{what} the cache that level={level} selects; specify a working set in bytes, set=..."
                ))
            })
        };
        let size = |cache| known("the machine does not report the size of", cache);
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

    /// Returns the set if it fits into half of the available memory.
    fn fitting(set: Size, last_cache: Size, residence: Residence) -> Result<Self, Refusal> {
        let free = describe::meminfo("MemAvailable").unwrap_or(Size(u64::MAX));
        if set.bytes() > free.bytes() / 2 {
            return Err(Refusal::Unavailable(format!(
                "its working set of {set} does not fit into half of the {free} of available memory; specify \
                 a smaller one or free memory"
            )));
        }
        let bytes = usize::try_from(set.bytes()).map_err(io::Error::other)?;
        Ok(Self { bytes, last_cache, residence })
    }

    /// Returns the number of visited places, `spacing` bytes apart. The number is odd, so that no batch,
    /// whose length is a power of two, ends where it began: this detects a chain that was not followed.
    pub(crate) fn places(self, spacing: usize) -> Result<u64, Refusal> {
        let places = (self.bytes / spacing) as u64;
        if places < 4 {
            return Err(Refusal::Unavailable(format!(
                "a working set of {} B has fewer than four places {spacing} B apart; specify a larger one",
                self.bytes
            )));
        }
        Ok(odd(places))
    }

    /// Returns the number of chunks of `bytes` bytes in each of `regions` equal parts.
    pub(crate) fn chunks(self, regions: usize, bytes: usize) -> Result<usize, Refusal> {
        match self.bytes / bytes / regions {
            0 => Err(Refusal::Unavailable(format!(
                "a working set of {} B is less than {regions} times the {bytes} B of one operation; specify \
                 a larger one",
                self.bytes
            ))),
            chunks => Ok(chunks),
        }
    }
}

/// Returns the number itself if it is odd, otherwise the next lower one.
pub(crate) fn odd(number: u64) -> u64 {
    number - u64::from(number.is_multiple_of(2))
}

/// Returns a working set within a cache. A quarter of the reported size is in the middle of most levels on a
/// logarithmic axis. It is halved until it is at most half of the effective size, so that the rest of the
/// process also fits into the cache. Most runs choose the same set, because the choice starts from the
/// reported size. The set is at least twice the previous cache, which would hold most of a smaller set, but
/// never exceeds the effective size.
fn within(claimed: Size, before: Option<Size>, effective: Size) -> Size {
    let mut set = claimed.bytes() / 4;
    while 2 * set > effective.bytes() {
        set /= 2;
    }
    let twice = before.map_or(0, |before| 2 * before.bytes());
    Size(set.max(twice.min(effective.bytes())))
}

/// Returns a working set that does not fit into the last cache.
fn in_memory(last: Size, course: Course) -> Result<Size, Refusal> {
    let twice = last.bytes().saturating_mul(2);
    if twice > DRAM_MAX.bytes() {
        return Err(Refusal::Unavailable(format!(
            "its last cache of {last} is too large for the largest working set of {DRAM_MAX}; specify one in \
             bytes, set=..."
        )));
    }
    Ok(match course {
        // A power of two between the size of the cache and twice that size: its random order is computed
        // fastest.
        Course::Chase => Size((twice / 2 + 1).next_power_of_two()).max(AMPLE),
        Course::Sweep => Size((SWEPT_TIMES * last.bytes()).min(AMPLE.bytes().max(twice))),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::platform::describe::CacheSizes;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    /// A setting for tests of `prepare` functions.
    pub(crate) fn setting(caches: CacheSizes) -> Setting {
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
    fn a_level_is_a_quarter_of_its_cache_and_dram_is_larger_than_the_last_cache() {
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
    fn a_level_is_within_the_effective_size_of_its_cache_and_exceeds_the_previous_cache() {
        let chosen = |effective| within(Size::mib(32), Some(Size::mib(1)), Size::mib(effective));
        let expected = [(48, 8), (32, 8), (16, 8), (12, 4), (8, 4), (6, 2), (4, 2), (3, 2), (2, 2)];
        for (effective, set) in expected {
            assert_eq!(chosen(effective), Size::mib(set), "{effective}");
        }
        // Never larger than the effective size.
        assert_eq!(within(Size::mib(4), Some(Size::mib(2)), Size::mib(3)), Size::mib(3));
        for effective in [24, 32, 48] {
            assert_eq!(within(Size::kib(48), None, Size::kib(effective)), Size::kib(12), "{effective}");
        }
    }

    #[test]
    fn a_level_that_the_sweep_did_not_find_is_rejected() {
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
    fn a_working_set_that_exceeds_the_available_memory_is_rejected_before_it_is_touched() {
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
    fn the_number_of_places_of_a_set_is_odd() {
        let set = |bytes| WorkingSet { bytes, last_cache: Size::mib(36), residence: Residence::Found };
        assert_eq!(set(4096).places(64).unwrap(), 63);
        assert_eq!(set(4096 + 64).places(64).unwrap(), 65);
        assert!(set(192).places(64).unwrap_err().to_string().contains("fewer than four places"));
    }
}
