//! Selection of benchmarks: names, a profile, and the keys that apply to all of them.

use assay_bench::{Benchmark, Profile, catalogue_here, find};
use assay_quantity::{Key, NotAPrimitive, PrimitiveId, Value};

/// The selection on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Ids, or prefixes of ids; an empty list selects all.
    pub names: Vec<String>,
    /// Profile of the selected primitives.
    pub profile: Profile,
    /// Runs each with 1, 2, 4, ... copies, up to this number.
    pub copies: u64,
    /// Whether the scheduler places the copies.
    pub free: bool,
    /// Whether caches are emptied before each operation.
    pub cold: bool,
    /// Whether another host serves benchmarks, which adds the primitives between both hosts to every profile.
    pub remote: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            profile: Profile::Quick,
            copies: 1,
            free: false,
            cold: false,
            remote: false,
        }
    }
}

impl Selection {
    /// Returns the selected benchmarks on this machine.
    pub fn benchmarks(&self) -> anyhow::Result<Vec<Benchmark>> {
        let all = catalogue_here();
        let mut selected: Vec<Benchmark> = Vec::new();
        if self.names.is_empty() {
            selected = self.of_profile(&all);
        }
        for name in &self.names {
            for benchmark in self.named(name, &all)? {
                if !selected.iter().any(|other| other.primitive == benchmark.primitive) {
                    selected.push(benchmark);
                }
            }
        }
        Ok(selected.iter().flat_map(|benchmark| self.changed(benchmark)).collect())
    }

    /// Returns the benchmarks with a name: `tcp` selects every `tcp.…`, `file.read` every `file.read{…}` of
    /// the profile, or all of them if the profile contains none. A complete id selects itself, with any
    /// numbers.
    fn named(&self, name: &str, all: &[Benchmark]) -> anyhow::Result<Vec<Benchmark>> {
        if let Some(found) = whole_id(name)?.or_else(|| name.parse().ok()).and_then(|id| find(&id)) {
            // On this machine it may belong to another profile than in the catalogue of all machines.
            let here = all.iter().find(|benchmark| benchmark.primitive == found.primitive);
            return Ok(vec![here.cloned().unwrap_or(found)]);
        }
        let named = all.iter().filter(|benchmark| is_named(&benchmark.primitive, name));
        let named: Vec<Benchmark> = named.cloned().collect();
        anyhow::ensure!(
            !named.is_empty(),
            "no primitive has the name or prefix '{name}'; 'assay bench --list' prints all primitives"
        );
        let chosen = self.of_profile(&named);
        Ok(if chosen.is_empty() { named } else { chosen })
    }

    fn of_profile(&self, all: &[Benchmark]) -> Vec<Benchmark> {
        let wanted = |benchmark: &&Benchmark| {
            let is_remote = self.remote && benchmark.primitive.word(Key::Peer) == "remote";
            is_remote || benchmark.profile <= self.profile
        };
        all.iter().filter(wanted).cloned().collect()
    }

    /// Returns a benchmark with the keys that apply to all, once for each number of copies.
    fn changed(&self, benchmark: &Benchmark) -> Vec<Benchmark> {
        let mut id = benchmark.primitive.clone();
        if self.cold {
            id = id.with(Key::Cache, Value::Word("cold"));
        }
        let copied = |copies: u64| {
            let mut id = id.clone();
            if copies > 1 {
                id = id.with(Key::Copies, Value::Count(copies));
                if self.free {
                    id = id.with(Key::Placement, Value::Word("free"));
                }
            }
            Benchmark { primitive: id, ..benchmark.clone() }
        };
        let doubled = std::iter::successors(Some(1), |copies: &u64| copies.checked_mul(2));
        let below = doubled.take_while(|copies| *copies < self.copies);
        below.chain([self.copies]).map(copied).collect()
    }
}

/// Parses a name with keys, which must be a complete id; `None` for a name without keys, which may be a
/// prefix.
pub fn whole_id(name: &str) -> Result<Option<PrimitiveId>, NotAPrimitive> {
    name.contains('{').then(|| name.parse()).transpose()
}

/// Whether a name is a prefix of an id that ends at the end of a part of the id.
pub fn is_named(id: &PrimitiveId, name: &str) -> bool {
    let id = id.to_string();
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '{']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(selection: &Selection) -> Vec<String> {
        selection.benchmarks().unwrap().iter().map(|benchmark| benchmark.primitive.to_string()).collect()
    }

    fn named(names: &[&str]) -> Selection {
        Selection { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Selection::default() }
    }

    #[test]
    fn a_family_an_operation_and_a_whole_id_select_what_they_name() {
        assert!(names(&named(&["signal"])).iter().all(|id| id.starts_with("signal.")));
        assert_eq!(names(&named(&["call.null"])), ["call.null"]);
        assert!(names(&named(&["file.read"])).iter().all(|id| id.starts_with("file.read{")));
        assert_eq!(
            names(&named(&["tcp.send{size=12345B,buffer=fresh}"])),
            ["tcp.send{size=12345B,buffer=fresh}"]
        );
    }

    #[test]
    fn the_quick_profile_is_a_part_of_the_full_one_and_has_every_family() {
        let quick = names(&Selection::default());
        let full = names(&Selection { profile: Profile::Full, ..Selection::default() });
        assert_eq!(full.len(), catalogue_here().len());
        assert!(quick.len() < full.len() && quick.iter().all(|id| full.contains(id)));
        let family = |id: &String| id.split('.').next().unwrap_or_default().to_owned();
        let families = |ids: &[String]| ids.iter().map(family).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(families(&quick), families(&full));
    }

    #[test]
    fn copies_double_up_to_the_given_number_and_caches_can_be_cold() {
        let selection = Selection { copies: 6, free: true, cold: true, ..named(&["call.null"]) };
        assert_eq!(
            names(&selection),
            [
                "call.null{cache=cold}",
                "call.null{cache=cold,copies=2,placement=free}",
                "call.null{cache=cold,copies=4,placement=free}",
                "call.null{cache=cold,copies=6,placement=free}",
            ]
        );
    }

    #[test]
    fn primitives_between_two_hosts_are_selected_if_there_is_a_peer() {
        let remote = |remote| {
            let all = names(&Selection { remote, ..Selection::default() });
            all.iter().filter(|id| id.contains("peer=remote")).count()
        };
        assert!(remote(true) > 0 && remote(false) == 0);
    }

    #[test]
    fn a_name_that_selects_nothing_is_rejected() {
        let refused = named(&["tc"]).benchmarks().unwrap_err().to_string();
        assert!(refused.contains("'tc'") && refused.contains("--list"), "{refused}");
    }

    #[test]
    fn a_name_with_keys_that_is_not_an_id_is_rejected_with_the_reason() {
        for (name, reason) in [
            ("memory.load{set=banana}", "which is not a value of set (bytes of the working set)"),
            ("memory.load{colour=red}", "unknown key 'colour'"),
            ("memory.load{", "is not family.operation"),
            ("memory.banana{set=4KiB}", "no primitive has the name or prefix"),
        ] {
            let refused = named(&[name]).benchmarks().unwrap_err().to_string();
            assert!(refused.contains(reason) && refused.contains(name), "{refused}");
        }
    }
}
