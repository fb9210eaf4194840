//! Finds the effective size of each cache for a process, by a short sweep of loads over working sets.
//!
//! A processor reports the physical cache sizes. A cache that several guests of a host share holds less for
//! each: a third level of 32 MiB held 4 to 12 MiB for one guest and changed within minutes. A working set of
//! the reported size is then measured in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_quantity::{Estimate, Fact, Key, PrimitiveId, Size, Unit};
use assay_statistics::knee::{Level, levels};
use assay_statistics::{cost_ns, estimator};

use super::plan::{NoRun, Place, Plan, sample_seed};
use crate::benchmark::Benchmark;
use crate::catalogue;
use crate::platform::describe::parse::in_words;
use crate::platform::describe::{self, CacheSizes};
use crate::sample::seed::{self, Purpose};
use crate::sample::{Outcome, Spawner};

/// Cache sizes as the machine reports them, and as a sweep found them.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    claimed: CacheSizes,
    /// The largest working set with the cost of its level, `None` for a level that the curve does not show;
    /// or the reason why there is no curve.
    found: Result<CacheSizes, String>,
}

/// Name of the fact with the result of a sweep.
pub const EFFECTIVE_CACHES: &str = "effective caches";

/// Number of passes over all sizes, with one process for each size.
const PASSES: usize = 3;

/// The smallest working set: half of a small first level.
const SMALLEST: Size = Size::kib(8);

/// Working sets in memory, as multiples of the reported size of the last cache: as many as a level requires.
const IN_MEMORY: [u64; 2] = [2, 3];

/// A working set is assumed to be in memory if its loads cost at least this share of loads that certainly
/// come from memory: the next level costs at least one and a half times as much
/// ([`mod@assay_statistics::knee`]).
const ALMOST: f64 = 2.0 / 3.0;

/// Number of working sets assumed to be in memory after which a pass ends.
const ALMOST_MAX: usize = 2;

impl Sweep {
    /// Returns the largest working set that each cache actually holds. If the sweep failed, these are the
    /// reported sizes. A cache that the sweep did not show also has its reported size, except the last cache,
    /// which may be shared.
    #[must_use]
    pub fn effective(&self) -> CacheSizes {
        let claimed = self.claimed;
        let Ok(found) = &self.found else { return claimed };
        let or_claimed = |found: Option<Size>, claim| {
            if claim == claimed.last() { found } else { found.or(claim) }
        };
        CacheSizes {
            l1: or_claimed(found.l1, claimed.l1),
            l2: or_claimed(found.l2, claimed.l2),
            l3: or_claimed(found.l3, claimed.l3),
        }
    }

    /// Returns the effective and the reported sizes.
    #[must_use]
    pub fn fact(&self) -> Fact {
        Fact { name: EFFECTIVE_CACHES.to_owned(), value: self.to_string() }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claimed = self.claimed;
        let effective = match &self.found {
            Ok(effective) => effective,
            Err(reason) => return write!(f, "not measured, sizes as reported: {reason}"),
        };
        let caches = [
            ("L1d", claimed.l1, effective.l1),
            ("L2", claimed.l2, effective.l2),
            ("L3", claimed.l3, effective.l3),
        ];
        let cache = |(name, claimed, effective): (&str, Option<Size>, Option<Size>)| {
            let effective = effective.map_or_else(|| "none detected".to_owned(), in_words);
            Some(format!("{name} {effective} of {}", in_words(claimed?)))
        };
        f.write_str(&caches.into_iter().filter_map(cache).collect::<Vec<String>>().join(", "))
    }
}

/// Whether the size of a cache determines the working set of any of these benchmarks.
#[must_use]
pub fn is_due(benchmarks: &[Benchmark]) -> bool {
    benchmarks.iter().any(|benchmark| ["l1", "l2", "l3"].contains(&benchmark.primitive.word(Key::Level)))
}

/// Measures loads from increasing working sets until they cost as much as memory, each in a process that
/// `spawner` starts.
///
/// # Errors
/// Returns [`NoRun`] if nothing can be measured.
pub fn sweep(plan: &Plan, spawner: &Spawner, stop: &AtomicBool) -> Result<Sweep, NoRun> {
    let plan = &Plan { counters: false, ..plan.clone() };
    let place = Place::find(plan)?;
    let mut seeds = seed::stream(plan.seed, Purpose::Sweep);
    let claimed = describe::caches();
    let curve = curve(claimed, stop, &mut |set| {
        let id: PrimitiveId =
            format!("memory.load{{set={set}}}").parse().map_err(|error| format!("{error}"))?;
        let load = catalogue::find(&id).ok_or_else(|| format!("{id} is not a benchmark"))?;
        match place.sample(plan, spawner, &load, sample_seed(&mut seeds), stop) {
            Outcome::Sample(sample) => cost_ns(&sample).map_err(|error| error.to_string()),
            Outcome::Rejected(reason) | Outcome::Unavailable(reason) => Err(reason),
            Outcome::Stopped => Err("it was stopped".to_owned()),
        }
    });
    Ok(Sweep { claimed, found: curve.map(|curve| attributed(claimed, &levels(&curve))) })
}

/// Returns the cost of a load by working set: the median over the passes that reached a size. A failed
/// process is omitted, but without the cost of memory there is no curve.
fn curve(
    claimed: CacheSizes,
    stop: &AtomicBool,
    cost: &mut dyn FnMut(Size) -> Result<f64, String>,
) -> Result<Vec<(Size, Estimate)>, String> {
    let last = claimed.last().ok_or("the machine reports no caches")?;
    let in_memory = IN_MEMORY.map(|times| Size(last.bytes().saturating_mul(times)));
    let mut costs: BTreeMap<Size, Vec<f64>> = BTreeMap::new();
    for _ in 0..PASSES {
        let mut memory_ns = 0.0;
        for size in in_memory {
            memory_ns = cost(size).map_err(|reason| format!("no loads from {size} of memory ({reason})"))?;
            costs.entry(size).or_default().push(memory_ns);
        }
        let mut almost = 0;
        for size in sizes_below(in_memory[0]) {
            if stop.load(Ordering::Relaxed) {
                return Err("the sweep over working sets was stopped".to_owned());
            }
            if almost == ALMOST_MAX {
                break;
            }
            let Ok(cost_ns) = cost(size) else { continue };
            costs.entry(size).or_default().push(cost_ns);
            almost += usize::from(cost_ns >= ALMOST * memory_ns);
        }
    }
    let median = |costs: Vec<f64>| estimator::median(&costs, Unit::Nanoseconds).ok();
    Ok(costs.into_iter().filter_map(|(size, costs)| Some((size, median(costs)?))).collect())
}

/// Returns two sizes for each doubling.
fn sizes_below(end: Size) -> impl Iterator<Item = Size> {
    let doubled = std::iter::successors(Some(SMALLEST), |size| Some(Size(2 * size.bytes())));
    doubled.flat_map(|size| [size, Size(size.bytes() / 2 * 3)]).take_while(move |size| *size < end)
}

/// Assigns levels to caches: a cache has the last level that ends within its reported size and not within
/// that of the previous cache, with a tolerance of one step of the sweep. The last cache has all levels
/// beyond.
fn attributed(claimed: CacheSizes, levels: &[Level]) -> CacheSizes {
    let within = |lower: Option<Size>, own: Option<Size>| {
        let end = |claim: Size| Size(claim.bytes() / 2 * 3);
        let from = lower.map_or(Size(0), end);
        let to = if own == claimed.last() { Size(u64::MAX) } else { end(own?) };
        levels.iter().filter_map(|level| level.capacity).rfind(|capacity| *capacity > from && *capacity <= to)
    };
    CacheSizes {
        l1: within(None, claimed.l1),
        l2: within(claimed.l1, claimed.l2),
        l3: within(claimed.l2.or(claimed.l1), claimed.l3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIMED: CacheSizes =
        CacheSizes { l1: Some(Size::kib(32)), l2: Some(Size::mib(1)), l3: Some(Size::mib(32)) };

    /// Returns the cost of a load if `third` is the effective size of the third level, ns.
    fn cost(set: Size, third: Size) -> f64 {
        match set {
            set if set <= Size::kib(32) => 1.1,
            set if set <= Size::mib(1) => 4.0,
            set if set <= third => 14.0,
            _ => 140.0,
        }
    }

    /// Returns the result of a sweep over these costs, and the sizes that it measured.
    fn swept(claimed: CacheSizes, cost: impl Fn(Size) -> Result<f64, String>) -> (Sweep, Vec<Size>) {
        let mut sizes = Vec::new();
        let curve = curve(claimed, &AtomicBool::new(false), &mut |set| {
            sizes.push(set);
            cost(set)
        });
        (Sweep { claimed, found: curve.map(|curve| attributed(claimed, &levels(&curve))) }, sizes)
    }

    #[test]
    fn each_cache_has_its_effective_size_and_a_pass_ends_in_memory() {
        for (third, largest) in [(3, 6), (4, 8), (6, 12), (16, 32), (24, 48), (32, 48)] {
            let third = Size::mib(third);
            let (sweep, sizes) = swept(CLAIMED, |set| Ok(cost(set, third)));
            assert_eq!(sweep.found, Ok(CacheSizes { l3: Some(third), ..CLAIMED }));
            let below = sizes.into_iter().filter(|size| *size < Size::mib(64)).max();
            assert_eq!(below, Some(Size::mib(largest)));
        }
    }

    #[test]
    fn a_cache_that_holds_a_part_of_larger_sets_ends_where_its_cost_does() {
        let soft = |set: Size| if set == Size::mib(48) { 90.0 } else { cost(set, Size::mib(32)) };
        assert_eq!(swept(CLAIMED, |set| Ok(soft(set))).0.effective(), CLAIMED);
    }

    #[test]
    fn a_cache_without_an_effective_part_is_not_detected_and_not_confused_with_the_previous_one() {
        let (sweep, _) = swept(CLAIMED, |set| Ok(cost(set, Size::mib(1))));
        assert_eq!(sweep.effective(), CacheSizes { l3: None, ..CLAIMED });
        assert_eq!(sweep.to_string(), "L1d 32 KiB of 32 KiB, L2 1 MiB of 1 MiB, L3 none detected of 32 MiB");
    }

    #[test]
    fn an_undetected_cache_of_one_core_has_its_reported_size() {
        let (sweep, _) = swept(CLAIMED, |set| Ok(cost(set.max(Size::mib(1)), Size::mib(4))));
        let seen = CacheSizes { l1: None, l2: Some(Size::mib(1)), l3: Some(Size::mib(4)) };
        assert_eq!(sweep.found, Ok(seen));
        assert_eq!(sweep.effective(), CacheSizes { l1: CLAIMED.l1, ..seen });
        assert_eq!(sweep.to_string(), "L1d none detected of 32 KiB, L2 1 MiB of 1 MiB, L3 4 MiB of 32 MiB");
    }

    #[test]
    fn a_machine_without_a_third_level_ends_with_its_second() {
        let two = CacheSizes { l3: None, ..CLAIMED };
        let (sweep, _) = swept(two, |set| Ok(cost(set, Size::mib(1))));
        assert_eq!(sweep.effective(), two);
        assert_eq!(sweep.to_string(), "L1d 32 KiB of 32 KiB, L2 1 MiB of 1 MiB");
    }

    #[test]
    fn one_process_that_fails_and_one_slow_pass_change_nothing() {
        let four = CacheSizes { l3: Some(Size::mib(4)), ..CLAIMED };
        let fails = |set: Size| match set {
            set if set == Size::kib(24) => Err("killed".to_owned()),
            set => Ok(cost(set, Size::mib(4))),
        };
        assert_eq!(swept(CLAIMED, fails).0.found, Ok(four));
        let passes = std::cell::Cell::new(0);
        let slow = |set: Size| {
            passes.set(passes.get() + u32::from(set == Size::mib(64)));
            Ok(cost(set, Size::mib(4)) * if passes.get() == 2 { 3.0 } else { 1.0 })
        };
        assert_eq!(swept(CLAIMED, slow).0.found, Ok(four));
    }

    #[test]
    fn a_failed_or_stopped_sweep_gives_the_reported_sizes_and_the_reason() {
        let (sweep, _) = swept(CLAIMED, |set| match set {
            set if set > Size::mib(64) => Err("too little is free".to_owned()),
            set => Ok(cost(set, Size::mib(4))),
        });
        assert_eq!(sweep.effective(), CLAIMED);
        let reason = "not measured, sizes as reported: no loads from 96MiB of memory (too little is free)";
        assert_eq!(sweep.to_string(), reason);
        let (sweep, sizes) = swept(CacheSizes::default(), |_| Ok(1.0));
        assert_eq!(sweep.to_string(), "not measured, sizes as reported: the machine reports no caches");
        assert_eq!((sweep.effective(), sizes), (CacheSizes::default(), Vec::new()));
        let stopped = curve(CLAIMED, &AtomicBool::new(true), &mut |_| Ok(140.0)).unwrap_err();
        assert_eq!(stopped, "the sweep over working sets was stopped");
    }

    #[test]
    fn a_sweep_is_due_if_a_cache_determines_the_size() {
        let due = |id: &str| is_due(&[catalogue::find(&id.parse().unwrap()).unwrap()]);
        assert!(due("memory.load{level=l3}") && due("code.fetch{level=l1}"));
        assert!(!due("memory.load{level=dram}") && !due("memory.load{set=4MiB}") && !due("call.null"));
    }
}
