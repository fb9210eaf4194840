//! The processors and memory nodes that the ids of a catalogue name.

use crate::platform::describe::{memory_nodes, usable_cpus};

/// Stands in a pattern for two processors.
const CPUS: &str = "from=cpu,to=cpu";

/// Stands in a pattern for a processor and a node of memory.
const CPU_AND_NODE: &str = "from=cpu,to=node";

/// Number of partners of the first processor that show the distances: its neighbour, and others spread over
/// the machine.
const PARTNERS: usize = 8;

/// The processors and memory nodes of a machine.
pub(super) struct Topology {
    cpus: Vec<usize>,
    nodes: Vec<usize>,
}

/// A pattern in which numbers stand for processors and nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// The text of the pattern.
    pub(super) pattern: String,
    /// Whether it belongs to the small number that shows the distances on any machine. A large machine has
    /// thousands of pairs of processors.
    pub(super) is_typical: bool,
}

impl Topology {
    /// The smallest machine: a pattern has one pair of processors 0 and 1, or of processor 0 and node 0.
    pub(super) fn example() -> Self {
        Self { cpus: vec![0, 1], nodes: vec![0] }
    }

    /// This machine.
    pub(super) fn here() -> Self {
        Self { cpus: usable_cpus(), nodes: memory_nodes() }
    }

    /// Returns a pattern once for each pair of places that it can name; once if it names none, or if the
    /// machine has no two places, so that its reason for being unavailable is reported.
    pub(super) fn placed(&self, pattern: &str) -> Vec<Placed> {
        let placed = |stands: &str, from: usize, to: usize, is_typical| {
            let pattern = pattern.replace(stands, &format!("from={from},to={to}"));
            Placed { pattern, is_typical }
        };
        if pattern.contains(CPUS) {
            if self.cpus.len() < 2 {
                return vec![placed(CPUS, 0, 1, true)];
            }
            let pairs = self.cpus.iter().flat_map(|from| self.cpus.iter().map(move |to| (*from, *to)));
            let pairs = pairs.filter(|(from, to)| from < to);
            return pairs.map(|(from, to)| placed(CPUS, from, to, self.is_typical(from, to))).collect();
        }
        if pattern.contains(CPU_AND_NODE) {
            if self.nodes.len() < 2 {
                return vec![placed(CPU_AND_NODE, 0, 0, true)];
            }
            let pairs = self.cpus.iter().flat_map(|cpu| self.nodes.iter().map(move |node| (*cpu, *node)));
            return pairs.map(|(cpu, node)| placed(CPU_AND_NODE, cpu, node, true)).collect();
        }
        vec![Placed { pattern: pattern.to_owned(), is_typical: true }]
    }

    fn is_typical(&self, from: usize, to: usize) -> bool {
        if self.cpus.first() != Some(&from) {
            return false;
        }
        let apart = self.cpus.len().div_ceil(PARTNERS);
        let position = self.cpus.iter().position(|cpu| *cpu == to).unwrap_or(0);
        position == 1 || position.is_multiple_of(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: usize, nodes: usize) -> Topology {
        Topology { cpus: (0..cpus).collect(), nodes: (0..nodes).collect() }
    }

    fn patterns(topology: &Topology, pattern: &str) -> Vec<String> {
        topology.placed(pattern).into_iter().map(|placed| placed.pattern).collect()
    }

    #[test]
    fn a_pattern_between_places_stands_for_every_pair_of_them() {
        let line = "cache.transfer_line{from=cpu,to=cpu}";
        assert_eq!(
            patterns(&machine(3, 1), line),
            ["from=0,to=1", "from=0,to=2", "from=1,to=2"]
                .map(|pair| format!("cache.transfer_line{{{pair}}}"))
        );
        let load = "memory.load_node{from=cpu,to=node}";
        assert_eq!(
            patterns(&machine(2, 2), load),
            ["from=0,to=0", "from=0,to=1", "from=1,to=0", "from=1,to=1"]
                .map(|pair| format!("memory.load_node{{{pair}}}"))
        );
        assert_eq!(patterns(&machine(2, 2), "call.null"), ["call.null"]);
    }

    #[test]
    fn a_machine_without_two_places_keeps_one_id() {
        assert_eq!(
            patterns(&machine(1, 1), "cache.transfer_line{from=cpu,to=cpu}"),
            ["cache.transfer_line{from=0,to=1}"]
        );
        assert_eq!(
            patterns(&machine(2, 1), "memory.load_node{from=cpu,to=node}"),
            ["memory.load_node{from=0,to=0}"]
        );
    }

    #[test]
    fn of_the_pairs_of_a_large_machine_a_few_are_typical() {
        let large = machine(128, 1);
        let typical: Vec<usize> = (1..128).filter(|to| large.is_typical(0, *to)).collect();
        assert_eq!(typical, [1, 16, 32, 48, 64, 80, 96, 112]);
        assert!(!large.is_typical(1, 2));
        assert!((1..4).all(|to| machine(4, 1).is_typical(0, to)));
    }
}
