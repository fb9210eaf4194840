//! The same program on this machine, recorded by `assay trace`, and in a guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::guest::{Tables, assay, platforms, position, sim};

/// Processes, small files and one of 2 MB, and no pipeline: how often a pipe is read can depend on the order
/// of the processes.
const SCRIPT: &str = "set -e
mkdir tree
for i in $(seq 25); do echo $i >tree/$i; done
find tree -type f -exec md5sum {} ';' >sums
sort sums >sorted
gzip -c busybox >packed
gzip -dc packed >unpacked
cmp busybox unpacked
rm -r tree
";

/// System calls by number, and page faults.
#[derive(Debug)]
struct Demand {
    calls: BTreeMap<u64, f64>,
    page_faults: f64,
}

impl Demand {
    /// Of a program and those that it starts, on this machine.
    fn recorded(directory: &Path, program: &[&str]) -> Demand {
        let mut trace = Command::new(env!("CARGO_BIN_EXE_assay"));
        let trace = trace.args(["trace", "-o", "native.trace", "--"]).args(program);
        let output = trace.env_clear().env("PWD", directory).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let view = |name| assay(directory, &["view", "native.trace", name, "--json"]);
        let cell = |row: &Value, at: usize| row[at]["number"]["value"].as_f64().unwrap();

        let summary = Tables::of(&view("summary"));
        let table = summary.table("System calls per unit of work");
        let column = position(table, "calls");
        let mut calls = BTreeMap::new();
        // The last row is the total.
        for row in table["rows"].as_array().unwrap() {
            if let Some(number) = row[0]["count"].as_u64() {
                *calls.entry(number).or_default() += cell(row, column);
            }
        }
        let processes = Tables::of(&view("processes"));
        let table = processes.table("Processes; calls, elapsed time and page faults per unit of work");
        assert!(table["notes"].as_array().unwrap().contains(&"No record was lost.".into()), "{table}");
        let column = position(table, "page faults");
        let processes = table["rows"].as_array().unwrap();
        // The summary counts calls that returned; this one ends each process.
        calls.insert(EXIT_GROUP, processes.len() as f64);
        let page_faults = processes.iter().map(|row| cell(row, column)).sum();
        Demand { calls, page_faults }
    }

    /// Of what a guest has executed, without these programs.
    fn simulated(run: &Path, without: &[&str]) -> Demand {
        let run: Value = serde_json::from_slice(&fs::read(run).unwrap()).unwrap();
        let images = run["content"]["profile"]["images"].as_array().unwrap().iter();
        let images = images.filter(|image| !without.contains(&image["name"].as_str().unwrap()));
        let mut demand = Demand { calls: BTreeMap::new(), page_faults: 0.0 };
        for row in images.flat_map(|image| image["services"].as_array().unwrap()) {
            let calls = row["calls"].as_f64().unwrap();
            if let Some(number) = row["service"]["call"].as_u64() {
                *demand.calls.entry(number).or_default() += calls;
            }
            if row["service"]["exception"].as_str().is_some_and(|name| name.starts_with("page_fault")) {
                demand.page_faults += calls;
            }
        }
        demand
    }
}

#[test]
fn a_program_asks_a_guest_for_what_it_asks_this_machine_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::copy(platforms().join("busybox/bin/busybox"), path("busybox")).unwrap();
    fs::write(path("script"), SCRIPT).unwrap();
    let command = "./busybox sh script\n";
    fs::write(path("command"), command).unwrap();
    let copies = ["--copy", "busybox", "--copy", "script", "--output", "run"];
    let said = sim(directory.path(), &[&["--guest-command", command], &copies[..]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut simulated = Demand::simulated(&path("run"), &["init", "begin", "end"]);
    // The first `execve` belongs to `init`, and busybox names itself if `init` executes it.
    *simulated.calls.get_mut(&EXECVE).unwrap() += 1.0;
    *simulated.calls.get_mut(&PRCTL).unwrap() -= 1.0;

    let recorded = Demand::recorded(directory.path(), &["./busybox", "sh", "command"]);
    assert_eq!(simulated.calls, recorded.calls);
    // Kernels differ in how many pages of a file they map at once.
    let ratio = simulated.page_faults / recorded.page_faults;
    assert!((0.8..1.25).contains(&ratio), "{simulated:?} {recorded:?}");
}

const EXECVE: u64 = 59;
const PRCTL: u64 = 157;
const EXIT_GROUP: u64 = 231;
