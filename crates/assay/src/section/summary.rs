//! The figures of lmbench's summary, in its groups: one row per machine, for comparison.

use assay_quantity::{Machine, PrimitiveId, Unit};
use assay_report::{Cell, Column, Table};

/// One table of the summary.
struct Group {
    title: &'static str,
    /// Header and primitive of each column.
    columns: &'static [(&'static str, &'static str)],
}

/// The groups of lmbench's summary, with memory latencies and bandwidths by level instead of by size.
const GROUPS: &[Group] = &[
    Group {
        title: "Calls and processes",
        columns: &[
            ("null call", "call.null"),
            ("null read", "null.read{size=1B}"),
            ("null write", "null.write{size=1B}"),
            ("stat", "file.stat"),
            ("open/close", "file.open_close"),
            ("install signal", "signal.install"),
            ("handle signal", "signal.deliver"),
            ("fork", "process.fork_exit"),
            ("exec", "process.exec{link=dynamic}"),
            ("sh", "process.shell"),
        ],
    },
    Group {
        title: "Arithmetic, latency",
        columns: &[
            ("cycle", "cpu.cycle"),
            ("int64 add", "cpu.add{type=int64}"),
            ("mul", "cpu.mul{type=int64}"),
            ("div", "cpu.div{type=int64}"),
            ("mod", "cpu.mod{type=int64}"),
            ("double add", "cpu.add{type=float64}"),
            ("double mul", "cpu.mul{type=float64}"),
            ("double div", "cpu.div{type=float64}"),
        ],
    },
    Group {
        title: "Context switches (processes and working set of each)",
        columns: &[
            ("2p/0K", "process.context_switch{processes=2,cpus=same}"),
            ("2p/16K", "process.context_switch_refill{set=16KiB,processes=2,cpus=same}"),
            ("2p/64K", "process.context_switch_refill{set=64KiB,processes=2,cpus=same}"),
            ("8p/0K", "process.context_switch{processes=8,cpus=same}"),
            ("8p/16K", "process.context_switch_refill{set=16KiB,processes=8,cpus=same}"),
            ("8p/64K", "process.context_switch_refill{set=64KiB,processes=8,cpus=same}"),
            ("16p/16K", "process.context_switch_refill{set=16KiB,processes=16,cpus=same}"),
            ("16p/64K", "process.context_switch_refill{set=64KiB,processes=16,cpus=same}"),
        ],
    },
    Group {
        title: "Local communication, round trips",
        columns: &[
            ("pipe", "pipe.round_trip{size=1B,cpus=same}"),
            ("unix", "unix.round_trip{size=1B,cpus=same}"),
            ("udp", "udp.round_trip{size=1B,cpus=same}"),
            ("rpc/udp", "rpc.null_call{cpus=different,transport=udp}"),
            ("tcp", "tcp.round_trip{size=1B,cpus=same}"),
            ("tcp, 2 cpus", "tcp.round_trip{size=1B,cpus=different}"),
            ("rpc/tcp", "rpc.null_call{cpus=different,transport=tcp}"),
            ("tcp connect", "tcp.connect"),
        ],
    },
    Group {
        title: "Files and virtual memory",
        columns: &[
            ("create 0K", "file.create{filesystem=ext4}"),
            ("delete 0K", "file.delete{filesystem=ext4}"),
            ("create 10K", "file.create{size=10KiB,filesystem=ext4}"),
            ("delete 10K", "file.delete{size=10KiB,filesystem=ext4}"),
            ("map 1M", "mmap.map_unmap{size=1MiB}"),
            ("protection fault", "signal.protection_fault"),
            ("page fault", "page_fault.anonymous"),
            ("100 fd select", "select.wait{descriptor=tcp,descriptors=100}"),
        ],
    },
    Group {
        title: "Bandwidths",
        columns: &[
            ("pipe 64K", "pipe.transfer{size=64KiB,buffer=reused}"),
            ("unix 64K", "unix.transfer{size=64KiB,buffer=reused}"),
            ("tcp 64K", "tcp.transfer{size=64KiB,buffer=reused}"),
            ("file reread", "file.read{size=64KiB,buffer=reused}"),
            ("mmap reread", "mmap.reread{size=1MiB}"),
            ("memory read", "memory.read{level=dram}"),
            ("memory write", "memory.write{level=dram}"),
            ("memory copy", "memory.copy{level=dram}"),
        ],
    },
    Group {
        title: "Load latencies",
        columns: &[
            ("L1", "memory.load{level=l1}"),
            ("L2", "memory.load{level=l2}"),
            ("L3", "memory.load{level=l3}"),
            ("memory", "memory.load{level=dram}"),
        ],
    },
];

/// Returns the primitives of the summary.
pub fn primitives() -> Vec<PrimitiveId> {
    let ids = GROUPS.iter().flat_map(|group| group.columns).map(|(_, id)| *id);
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// Returns the groups with at least one known figure of one of the machines.
pub fn tables(machines: &[&Machine]) -> Vec<Table> {
    GROUPS.iter().filter_map(|group| table(group, machines)).collect()
}

fn table(group: &Group, machines: &[&Machine]) -> Option<Table> {
    let known: Vec<(&str, PrimitiveId)> =
        group.columns.iter().filter_map(|(name, id)| Some((*name, id.parse().ok()?))).collect();
    let is_known =
        |(_, id): &&(&str, PrimitiveId)| machines.iter().any(|machine| machine.costs.contains_key(id));
    let known: Vec<&(&str, PrimitiveId)> = known.iter().filter(is_known).collect();
    if known.is_empty() {
        return None;
    }
    let header = |(name, _): &&(&str, PrimitiveId)| Column::numbers(name);
    let columns = [Column::words("machine")].into_iter().chain(known.iter().map(header)).collect();
    let row = |machine: &&Machine| {
        let figures = known.iter().map(|(_, id)| figure(machine, id));
        [Cell::text(&machine.name)].into_iter().chain(figures).collect()
    };
    // Each row is built from the columns, so it has the same number of cells.
    Table::new(group.title, columns, machines.iter().map(row).collect()).ok()
}

/// Returns a cost, or the bandwidth if the cost is per byte, as is common.
fn figure(machine: &Machine, id: &PrimitiveId) -> Cell {
    match machine.costs.get(id) {
        None => Cell::Missing("not measured".to_owned()),
        Some(cost) if cost.typical.unit == Unit::NanosecondsPerByte => {
            let rate = cost.typical.bandwidth();
            Cell::Number { value: rate.point, unit: rate.unit }
        }
        Some(cost) => Cell::Number { value: cost.typical.point, unit: cost.typical.unit },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_summary_can_be_measured_and_occurs_once() {
        let ids: Vec<&str> = GROUPS.iter().flat_map(|group| group.columns).map(|(_, id)| *id).collect();
        for id in &ids {
            assert!(assay_bench::find(&id.parse().unwrap()).is_some(), "{id}");
            assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
        }
    }
}
