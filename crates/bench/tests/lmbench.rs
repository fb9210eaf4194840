//! Earlier suites: every program of lmbench 3 and of HBench-OS 1.0 has a row in `docs/lmbench.md`, and every
//! usable figure of the lmbench paper of 1996 is a cost in `examples/lmbench-1996` under an id that this
//! version measures, so that a current machine can be compared with those of 1996.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use assay_bench::{Benchmark, catalogue, find};
use assay_quantity::format::machine_from_json;
use assay_quantity::{Machine, Method, PrimitiveId};

/// Programs of lmbench 3.0-a9 with their modes: the 43 that it builds by default.
const LMBENCH: &[&str] = &[
    "bw_file_rd io_only",
    "bw_file_rd open2close",
    "bw_mem bcopy",
    "bw_mem bzero",
    "bw_mem cp",
    "bw_mem fcp",
    "bw_mem frd",
    "bw_mem fwr",
    "bw_mem rd",
    "bw_mem rdwr",
    "bw_mem wr",
    "bw_mmap_rd mmap_only",
    "bw_mmap_rd open2close",
    "bw_pipe",
    "bw_tcp",
    "bw_unix",
    "disk",
    "enough",
    "flushdisk",
    "hello",
    "lat_connect",
    "lat_ctx",
    "lat_fcntl",
    "lat_fifo",
    "lat_fs",
    "lat_http",
    "lat_mem_rd",
    "lat_mem_rd -t",
    "lat_mmap",
    "lat_ops",
    "lat_pagefault",
    "lat_pipe",
    "lat_proc exec",
    "lat_proc fork",
    "lat_proc procedure",
    "lat_proc shell",
    "lat_rpc -p tcp",
    "lat_rpc -p udp",
    "lat_select file",
    "lat_select tcp",
    "lat_sem",
    "lat_sig catch",
    "lat_sig install",
    "lat_sig prot",
    "lat_syscall fstat",
    "lat_syscall null",
    "lat_syscall open",
    "lat_syscall read",
    "lat_syscall stat",
    "lat_syscall write",
    "lat_tcp",
    "lat_udp",
    "lat_unix",
    "lat_unix_connect",
    "line",
    "lmdd",
    "lmhttp",
    "loop_o",
    "memsize",
    "mhz",
    "msleep",
    "par_mem",
    "par_ops",
    "stream -v 1",
    "stream -v 2",
    "timing_o",
    "tlb",
];

/// The six optional programs of lmbench.
const LMBENCH_OPTIONAL: &[&str] = &[
    "cache",
    "lat_cmd",
    "lat_dram_page",
    "lat_pmake",
    "lat_rand",
    "lat_usleep itimer",
    "lat_usleep nanosleep",
    "lat_usleep pselect",
    "lat_usleep select",
    "lat_usleep usleep",
];

/// Programs that lmbench contains but does not build, and programs that were added in 2026.
const LMBENCH_OTHERS: &[&str] =
    &["bw_mem64", "bw_mem64p", "bw_udp", "clock", "lat_mem_pingpong", "rhttp", "seek"];

/// Programs of HBench-OS 1.0 with their modes, including those that its file `BROKEN` names.
const HBENCH: &[&str] = &[
    "bw_bzero",
    "bw_file_rd",
    "bw_mem_cp libc",
    "bw_mem_cp unrolled",
    "bw_mem_rd",
    "bw_mem_wr",
    "bw_mmap_rd",
    "bw_pipe",
    "bw_tcp",
    "hello",
    "hello-s",
    "lat_connect",
    "lat_ctx",
    "lat_ctx2",
    "lat_fs create",
    "lat_fs delforw",
    "lat_fs delrand",
    "lat_fs delrev",
    "lat_fslayer",
    "lat_mem_rd",
    "lat_mmap",
    "lat_pagefault",
    "lat_pipe",
    "lat_proc null",
    "lat_proc sh",
    "lat_proc simple",
    "lat_rpc tcp",
    "lat_rpc udp",
    "lat_sig handle",
    "lat_sig install",
    "lat_syscall getpid",
    "lat_syscall getrusage",
    "lat_syscall gettimeofday",
    "lat_syscall sbrk",
    "lat_syscall sigaction",
    "lat_syscall write",
    "lat_tcp",
    "lat_udp",
    "lmdd",
    "memsize",
    "mhz",
    "mhz-counter",
];

/// The tables of `docs/lmbench.md`: heading and programs.
const TABLES: &[(&str, &[&str])] = &[
    ("## lmbench 3", LMBENCH),
    ("## lmbench 3: optional programs", LMBENCH_OPTIONAL),
    ("## lmbench 3: not built, or newer", LMBENCH_OTHERS),
    ("## HBench-OS 1.0", HBENCH),
];

/// Number of machines in table 1 of the paper.
const MACHINES: usize = 15;

/// The prefix of the reason in a row without ids.
const NONE: &str = "none: ";

/// What stands before the name of a program in the source of a benchmark.
const SUITES: [&str; 2] = ["lmbench 3, ", "hbench-OS "];

/// Minimum length of a reason.
const REASON_LETTERS: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the cells of the first table below a heading, without the table head and the line below it.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    text.lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns the texts between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn measured(id: &str) -> Option<Benchmark> {
    id.parse::<PrimitiveId>().ok().and_then(|id| find(&id))
}

fn machines() -> BTreeMap<String, Machine> {
    fs::read_dir(root().join("examples/lmbench-1996"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            let stem = name.strip_suffix(".machine.json")?;
            Some((stem.to_owned(), machine_from_json(&fs::read_to_string(entry.path()).unwrap()).unwrap()))
        })
        .collect()
}

/// Returns a cost in its unit, for comparison with the prose of the paper.
fn cost(machine: &str, id: &str) -> f64 {
    machines()[machine].costs[&id.parse().unwrap()].typical.point
}

#[test]
fn every_program_of_the_earlier_suites_has_one_row_and_no_row_has_another_program() {
    let page = read("docs/lmbench.md");
    for (heading, programs) in TABLES {
        let mut found: Vec<String> =
            rows(&page, heading).iter().flat_map(|row| quoted(&row[0])).map(str::to_owned).collect();
        found.sort();
        assert_eq!(found, *programs, "{heading}");
    }
}

#[test]
fn every_id_that_stands_for_a_program_is_measured() {
    let page = read("docs/lmbench.md");
    for row in TABLES.iter().flat_map(|(heading, _)| rows(&page, heading)) {
        for id in quoted(&row[2]).into_iter().filter(|_| !row[2].starts_with(NONE)) {
            assert!(measured(id).is_some(), "{}: no row of the catalogue measures '{id}'", row[0]);
        }
    }
}

#[test]
fn a_program_that_a_benchmark_succeeds_names_it() {
    let page = read("docs/lmbench.md");
    let rows: Vec<_> = TABLES.iter().flat_map(|(heading, _)| rows(&page, heading)).collect();
    let names_it = |program: &str, benchmark: &Benchmark| {
        rows.iter().filter(|row| quoted(&row[0])[0].split(' ').next() == Some(program)).any(|row| {
            let mut named = quoted(&row[2]).into_iter().filter_map(measured);
            named.any(|named| named.about == benchmark.about)
        })
    };
    let (mut programs, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for benchmark in catalogue() {
        for origin in benchmark.source.split("; ") {
            let Some(named) = SUITES.iter().find_map(|suite| origin.strip_prefix(suite)) else { continue };
            let program = named.split([' ', ',']).next().unwrap();
            if !names_it(program, &benchmark) {
                missing.insert(format!("{program}: {}", benchmark.primitive));
            }
            programs.insert(program);
        }
    }
    assert!(programs.len() > 20, "only {programs:?} were found");
    assert!(missing.is_empty(), "docs/lmbench.md does not name these successors: {missing:#?}");
}

#[test]
fn a_program_without_an_id_has_a_reason_and_one_with_ids_describes_the_differences() {
    let page = read("docs/lmbench.md");
    for row in TABLES.iter().flat_map(|(heading, _)| rows(&page, heading)) {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(!row[1].is_empty(), "{}: no description", row[0]);
        match row[2].strip_prefix(NONE) {
            Some(reason) => assert!(reason.len() >= REASON_LETTERS, "{}: no reason", row[0]),
            None => {
                assert!(!quoted(&row[2]).is_empty(), "{}: neither an id nor a reason", row[0]);
                assert!(!row[3].is_empty(), "{}: no description of the differences", row[0]);
            }
        }
    }
}

#[test]
fn each_machine_of_1996_can_be_compared_with_a_current_one() {
    let machines = machines();
    assert_eq!(machines.len(), MACHINES);
    for (stem, machine) in &machines {
        assert_eq!(machine.name, format!("1996/{stem}"));
        for (id, cost) in &machine.costs {
            let benchmark = find(id).unwrap_or_else(|| panic!("{stem}: nothing measures '{id}'"));
            assert_eq!(cost.typical.unit, benchmark.unit, "{stem}: {id}");
            assert_eq!(cost.typical.method, Method::Printed, "{stem}: {id}");
            let interval = &cost.typical.interval;
            assert!(interval.low < interval.high, "{stem}: {id} was printed with finitely many digits");
        }
    }
}

#[test]
fn every_machine_of_1996_has_each_cost_or_a_reason_why_not() {
    let machines = machines();
    let all: BTreeSet<&PrimitiveId> = machines.values().flat_map(|machine| machine.costs.keys()).collect();
    for (stem, machine) in &machines {
        let missing: Vec<&PrimitiveId> =
            machine.unmeasured.iter().map(|missing| &missing.primitive).collect();
        let present = machine.costs.keys();
        let mut both: Vec<&PrimitiveId> = present.chain(missing).collect();
        both.sort();
        assert_eq!(both, all.iter().copied().collect::<Vec<_>>(), "{stem}");
    }
}

#[test]
fn every_id_of_1996_is_traced_to_a_table_of_the_paper() {
    let traced = rows(&read("examples/lmbench-1996/README.md"), "## Which figure is from which table");
    let ids: BTreeSet<String> = traced
        .iter()
        .flat_map(|row| quoted(&row[2]))
        .map(|id| id.parse::<PrimitiveId>().unwrap().to_string())
        .collect();
    let used: BTreeSet<String> =
        machines().values().flat_map(|machine| machine.costs.keys()).map(ToString::to_string).collect();
    assert_eq!(ids, used);
    for row in &traced {
        assert!(row[0].parse::<u32>().is_ok_and(|table| (1..=17).contains(&table)), "{row:?}");
    }
}

#[test]
fn the_figures_of_1996_agree_with_the_prose_of_the_paper() {
    // Section 6.1: "the load itself takes 400ns on a 300 MHz DEC 8400"; 6.2: 22 clocks to its second cache.
    assert!((cost("dec-alpha-300", "memory.load{level=dram}") - 400.0).abs() < 0.5);
    let clock_ns = 3.0;
    assert!((cost("dec-alpha-300", "memory.load{level=l2}") / clock_ns - 22.0).abs() < 0.5);
    // Section 6.3: "Linux is the clear winner in the system call time".
    let null = |machine: &str| cost(machine, "null.write{size=1B}");
    let linux = ["linux-alpha", "linux-i586", "linux-i686"].map(null);
    let others = machines().into_keys().filter(|name| !name.starts_with("linux")).map(|name| null(&name));
    let fastest_other = others.fold(f64::INFINITY, f64::min);
    assert!(linux.iter().all(|ns| *ns < fastest_other), "{linux:?} against {fastest_other}");
    // Section 5.2: the SGI Indigo2 does better than the SGI multiprocessor on pipe bandwidth.
    let pipe = "pipe.transfer{size=64KiB,buffer=reused,cpus=same}";
    assert!(cost("sgi-indigo2", pipe) < cost("sgi-challenge", pipe));
    // Section 5.3: Unixware's mmap reread is better than that of systems of substantially higher cost.
    let mmap = "mmap.reread{size=8MiB}";
    for slower in ["ibm-power2", "sun-ultra1", "sgi-challenge", "hp-k210"] {
        assert!(cost("unixware-i686", mmap) < cost(slower, mmap), "{slower}");
    }
    // Section 6.5: a shell is frequently ten times as expensive as just creating a new process.
    let ratio = cost("sgi-indigo2", "process.shell") / cost("sgi-indigo2", "process.fork_exit");
    assert!((5.0..15.0).contains(&ratio), "{ratio}");
}
