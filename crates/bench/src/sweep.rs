//! How much of each cache a process gets here, found by a short sweep of loads over working sets.
//!
//! What a processor claims is what is built in. A cache that is shared with other guests of the same host holds less
//! for one of them: a third level of 32 MiB held 4 to 8 MiB for one guest, changing from minute to minute. A working
//! set that takes its size from the claim is then measured in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_quantity::knee::{Level, levels};
use assay_quantity::{Estimate, Fact, Key, PrimitiveId, Size, Unit, estimate};

use crate::benchmark::Benchmark;
use crate::describe::{self, CacheSizes, parse::in_words};
use crate::plan::{NoRun, Outcome, Place, Plan, sample_seed};
use crate::process::Spawner;
use crate::seed::{self, Purpose};
use crate::table;

/// Caches as the machine claims them, and as a sweep found them.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    claimed: CacheSizes,
    /// The largest working set that costs what the level costs; `None` where the sweep shows no such level.
    pub effective: CacheSizes,
}

/// Name of the fact that a sweep finds.
pub const EFFECTIVE_CACHES: &str = "effective caches";

/// Processes for each size, in as many passes over all sizes.
const PASSES: usize = 3;

/// The smallest working set: half of a small first level.
const SMALLEST: Size = Size::kib(8);

/// A pass ends after so many sizes that cost as much as memory: they make a level.
const IN_MEMORY: usize = 2;

/// A working set is in memory if a load costs at least this share of one that certainly comes from there. A cache
/// costs half of that at the most.
const ALMOST: f64 = 0.75;

impl Sweep {
    /// What was found, beside what is claimed.
    #[must_use]
    pub fn fact(&self) -> Fact {
        Fact { name: EFFECTIVE_CACHES.to_owned(), value: self.to_string() }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claimed, effective } = self;
        let caches = [
            ("L1d", claimed.l1, effective.l1),
            ("L2", claimed.l2, effective.l2),
            ("L3", claimed.l3, effective.l3),
        ];
        let cache = |(name, claimed, effective): (&str, Option<Size>, Option<Size>)| {
            let effective = effective.map_or_else(|| "none seen".to_owned(), in_words);
            Some(format!("{name} {effective} of {}", in_words(claimed?)))
        };
        let caches: Vec<String> = caches.into_iter().filter_map(cache).collect();
        f.write_str(if caches.is_empty() { "unknown: the machine claims no caches" } else { "" })?;
        f.write_str(&caches.join(", "))
    }
}

/// Whether any of these takes its working set from the size of a cache.
#[must_use]
pub fn is_due(benchmarks: &[Benchmark]) -> bool {
    benchmarks.iter().any(|benchmark| ["l1", "l2", "l3"].contains(&benchmark.primitive.word(Key::Level)))
}

/// Measures loads over working sets up to those that cost as much as memory, in processes that `spawner` starts.
///
/// # Errors
/// [`NoRun`] when nothing can be measured at all.
pub fn sweep(plan: &Plan, spawner: &Spawner, stop: &AtomicBool) -> Result<Sweep, NoRun> {
    let place = Place::find(plan)?;
    let mut seeds = seed::stream(plan.seed, Purpose::Sweep);
    let claimed = describe::caches();
    let curve = curve(claimed, stop, &mut |set| {
        let benchmark = table::find(&format!("memory.load{{set={set}}}").parse::<PrimitiveId>().ok()?)?;
        match place.sample(plan, spawner, &benchmark, sample_seed(&mut seeds), stop) {
            Outcome::Sample(sample) => sample.cost_ns().ok(),
            Outcome::Rejected(_) | Outcome::Unavailable(_) | Outcome::Stopped => None,
        }
    });
    Ok(Sweep { claimed, effective: attributed(claimed, &levels(&curve)) })
}

/// The cost of a load by working set: the median of the passes that came to it.
fn curve(
    claimed: CacheSizes,
    stop: &AtomicBool,
    cost: &mut dyn FnMut(Size) -> Option<f64>,
) -> Vec<(Size, Estimate)> {
    let Some(last) = claimed.last() else { return Vec::new() };
    let in_memory = Size(2 * last.bytes());
    let mut costs: BTreeMap<Size, Vec<f64>> = BTreeMap::new();
    for _ in 0..PASSES {
        let memory = cost(in_memory);
        costs.entry(in_memory).or_default().extend(memory);
        let mut beyond = 0;
        for size in sizes_below(in_memory) {
            if beyond == IN_MEMORY || stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(cost) = cost(size) else { continue };
            costs.entry(size).or_default().push(cost);
            beyond += usize::from(memory.is_some_and(|memory| cost >= ALMOST * memory));
        }
    }
    let median = |costs: Vec<f64>| estimate::median(&costs, Unit::Nanoseconds).ok();
    costs.into_iter().filter_map(|(size, costs)| Some((size, median(costs)?))).collect()
}

/// Two sizes for each doubling.
fn sizes_below(end: Size) -> impl Iterator<Item = Size> {
    let doubled = std::iter::successors(Some(SMALLEST), |size| Some(Size(2 * size.bytes())));
    doubled.flat_map(|size| [size, Size(size.bytes() / 2 * 3)]).take_while(move |size| *size < end)
}

/// The end of the last level found that lies between the claims of a cache and of the one before it, each of which may
/// be passed by a step of the sweep; the last cache has everything beyond as well.
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

    /// What a load costs where so much of the third level is effective, ns.
    fn cost(set: Size, third: Size) -> f64 {
        match set {
            set if set <= Size::kib(32) => 1.1,
            set if set <= Size::mib(1) => 4.0,
            set if set <= third => 14.0,
            _ => 140.0,
        }
    }

    /// What a sweep over these costs finds, and the sizes that it came to.
    fn swept(claimed: CacheSizes, cost: impl Fn(Size) -> Option<f64>) -> (CacheSizes, Vec<Size>) {
        let mut sizes = Vec::new();
        let curve = curve(claimed, &AtomicBool::new(false), &mut |set| {
            sizes.push(set);
            cost(set)
        });
        (attributed(claimed, &levels(&curve)), sizes)
    }

    #[test]
    fn each_cache_has_what_is_effective_of_it_and_no_more_is_measured_than_shows_it() {
        for (third, largest) in [(3, 6), (4, 8), (6, 12), (16, 32), (32, 64)] {
            let third = Size::mib(third);
            let (effective, sizes) = swept(CLAIMED, |set| Some(cost(set, third)));
            assert_eq!(effective, CacheSizes { l3: Some(third), ..CLAIMED });
            assert!(
                sizes.iter().all(|size| *size <= Size::mib(largest) || *size == Size::mib(64)),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn a_cache_of_which_nothing_is_left_is_not_seen_and_the_one_before_is_not_taken_for_it() {
        let (effective, _) = swept(CLAIMED, |set| Some(cost(set, Size::mib(1))));
        assert_eq!(effective, CacheSizes { l3: None, ..CLAIMED });
        let sweep = Sweep { claimed: CLAIMED, effective };
        assert_eq!(sweep.to_string(), "L1d 32 KiB of 32 KiB, L2 1 MiB of 1 MiB, L3 none seen of 32 MiB");
    }

    #[test]
    fn a_machine_without_a_third_level_has_its_last_one_beyond_the_claim() {
        let two = CacheSizes { l3: None, ..CLAIMED };
        let (effective, _) = swept(two, |set| Some(if set <= Size::mib(1) { cost(set, set) } else { 90.0 }));
        assert_eq!(effective, two);
        let sweep = Sweep { claimed: two, effective };
        assert_eq!(sweep.to_string(), "L1d 32 KiB of 32 KiB, L2 1 MiB of 1 MiB");
    }

    #[test]
    fn processes_that_fail_and_a_slow_pass_change_nothing_and_no_curve_finds_nothing() {
        let fails = |set: Size| (set != Size::kib(24)).then(|| cost(set, Size::mib(4)));
        assert_eq!(swept(CLAIMED, fails).0, CacheSizes { l3: Some(Size::mib(4)), ..CLAIMED });
        let calls = std::cell::Cell::new(0);
        let slow = |set: Size| {
            calls.set(calls.get() + u32::from(set == Size::mib(64)));
            Some(cost(set, Size::mib(4)) * if calls.get() == 2 { 3.0 } else { 1.0 })
        };
        assert_eq!(swept(CLAIMED, slow).0, CacheSizes { l3: Some(Size::mib(4)), ..CLAIMED });
        assert_eq!(swept(CLAIMED, |_| None).0, CacheSizes::default());
        let (effective, sizes) = swept(CacheSizes::default(), |_| Some(1.0));
        assert_eq!((effective, sizes), (CacheSizes::default(), Vec::new()));
        let nothing = Sweep { claimed: effective, effective };
        assert_eq!(nothing.to_string(), "unknown: the machine claims no caches");
    }

    #[test]
    fn a_sweep_is_due_where_a_cache_sets_the_size() {
        let due = |id: &str| is_due(&[table::find(&id.parse().unwrap()).unwrap()]);
        assert!(due("memory.load{level=l3}") && due("code.fetch{level=l1}"));
        assert!(!due("memory.load{level=dram}") && !due("memory.load{set=4MiB}") && !due("call.null"));
    }
}
