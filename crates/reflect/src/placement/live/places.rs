//! The places of this machine: groups of processors that share something which others have for themselves.

use std::collections::BTreeSet;
use std::fs;

use assay_process::cpus::parse_list;

/// Processors that share a node, a cache or a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What they share.
    pub shared: &'static str,
    /// The processors, in order.
    pub cpus: Vec<usize>,
}

/// What processors can share, the largest first, and the file below the directory of a processor that lists
/// those which share it. Of the numbers for `*`, the highest that exists counts.
const LEVELS: [(&str, &str); 3] = [
    ("NUMA node", "node*/cpulist"),
    ("last-level cache", "cache/index*/shared_cpu_list"),
    ("core", "topology/thread_siblings_list"),
];

/// Nodes or caches that are looked for.
const NUMBERS: usize = 64;

/// Divides these processors into places: NUMA nodes if they belong to several, else caches, else cores. The
/// result is one place if they share a core.
#[must_use]
pub fn places(cpus: &[usize]) -> Vec<Place> {
    divided(cpus, |file, cpu| {
        let path = |number: usize| {
            format!("/sys/devices/system/cpu/cpu{cpu}/{}", file.replace('*', &number.to_string()))
        };
        // A processor has the directory of its own node only.
        let text = (0..NUMBERS).rev().find_map(|number| fs::read_to_string(path(number)).ok());
        parse_list(&text?)
    })
}

/// As [`places`], with a function that reads the list of a file of a processor.
fn divided(cpus: &[usize], list: impl Fn(&str, usize) -> Option<Vec<usize>>) -> Vec<Place> {
    let sharing = |file, cpu| -> Option<Vec<usize>> {
        Some(list(file, cpu)?.into_iter().filter(|other| cpus.contains(other)).collect())
    };
    let named = LEVELS.iter().filter_map(|(shared, file)| {
        let groups: Option<BTreeSet<_>> = cpus.iter().map(|cpu| sharing(file, *cpu)).collect();
        Some((*shared, groups?))
    });
    let mut known: Vec<_> = named.collect();
    let level = known.iter().position(|(_, groups)| groups.len() > 1);
    let (shared, groups) = match level.or(known.len().checked_sub(1)) {
        Some(level) => known.swap_remove(level),
        None => ("processor", cpus.iter().map(|cpu| vec![*cpu]).collect()),
    };
    groups.into_iter().map(|cpus| Place { shared, cpus }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two nodes of two caches of two cores of two processors.
    fn list(file: &str, cpu: usize) -> Option<Vec<usize>> {
        let size = [("node", 8), ("cache", 4), ("topology", 2)];
        let (_, size) = size.into_iter().find(|(name, _)| file.starts_with(name))?;
        Some((cpu / size * size..(cpu / size + 1) * size).collect())
    }

    fn shown(places: &[Place]) -> String {
        places.iter().map(|place| format!("{} {:?} ", place.shared, place.cpus)).collect()
    }

    #[test]
    fn the_largest_unit_of_which_there_are_several_is_a_place() {
        let of = |cpus: &[usize]| shown(&divided(cpus, list));
        let all: Vec<usize> = (0..16).collect();
        assert_eq!(of(&all), "NUMA node [0, 1, 2, 3, 4, 5, 6, 7] NUMA node [8, 9, 10, 11, 12, 13, 14, 15] ");
        assert_eq!(of(&all[..8]), "last-level cache [0, 1, 2, 3] last-level cache [4, 5, 6, 7] ");
        assert_eq!(of(&all[..4]), "core [0, 1] core [2, 3] ");
        assert_eq!(of(&[1, 3]), "core [1] core [3] ");
        assert_eq!(of(&[2, 3]), "core [2, 3] ");
    }

    #[test]
    fn what_a_machine_does_not_list_is_not_shared() {
        let cache_only = |file: &str, cpu| list(file, cpu).filter(|_| file.starts_with("cache"));
        assert_eq!(shown(&divided(&[3, 4], cache_only)), "last-level cache [3] last-level cache [4] ");
        assert_eq!(shown(&divided(&[0, 5], |_, _| None)), "processor [0] processor [5] ");
        assert_eq!(places(&[0]).iter().map(|place| place.cpus.clone()).collect::<Vec<_>>(), [[0]]);
    }
}
