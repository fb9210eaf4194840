//! Runs `assay sim`, and reads its reports.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What `assay` has printed.
#[derive(Debug, PartialEq)]
pub struct Said {
    pub report: String,
    pub messages: String,
    pub code: Option<i32>,
}

/// Runs a command in a guest, in this directory of the host.
pub fn sim(directory: &Path, arguments: &[&str]) -> Said {
    assay(directory, &[&["sim", "run"], arguments].concat())
}

pub fn assay(directory: &Path, arguments: &[&str]) -> Said {
    let mut assay = Command::new(env!("CARGO_BIN_EXE_assay"));
    let output = assay.args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { report: text(output.stdout), messages: text(output.stderr), code: output.status.code() }
}

/// Copies a program and the libraries that it needs into a new directory.
pub fn copy_program(program: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    let linked = Command::new("ldd").arg(program).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let libraries = linked.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        fs::copy(file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// The position of a column.
pub fn position(table: &Value, column: &str) -> usize {
    table["columns"].as_array().unwrap().iter().position(|one| one["header"] == column).unwrap()
}

/// The tables of a report in JSON.
pub struct Tables(pub Value);

impl Tables {
    pub fn of(said: &Said) -> Self {
        let report = serde_json::from_str(&said.report);
        Self(report.unwrap_or_else(|error| panic!("{error}: {said:?}")))
    }

    pub fn table(&self, title: &str) -> &Value {
        let tables = self.0["blocks"].as_array().unwrap().iter().map(|block| &block["table"]);
        tables.into_iter().find(|table| table["title"] == title).unwrap()
    }

    /// The count in a column of the row that begins with this word; 0 if there is no such row.
    pub fn count(&self, title: &str, row: &str, column: &str) -> u64 {
        let table = self.table(title);
        let row = table["rows"].as_array().unwrap().iter().find(|one| one[0]["text"] == row);
        row.map_or(0, |row| row[position(table, column)]["count"].as_u64().unwrap())
    }

    /// How much more the second of two runs has in the row that begins with this word.
    pub fn difference(&self, title: &str, row: &str) -> i64 {
        let table = self.table(title);
        let row = table["rows"].as_array().unwrap().iter().find(|one| one[0]["text"] == row).unwrap();
        row[position(table, "B - A")]["difference"].as_i64().unwrap()
    }

    /// The count in a column of the row of a program and a service; 0 if there is no such row.
    pub fn figure(&self, program: &str, service: &str, column: &str) -> u64 {
        let table = self.table("Services of each program");
        let row = |row: &&Value| row[0]["text"] == program && row[1]["text"] == service;
        let row = table["rows"].as_array().unwrap().iter().find(row);
        row.map_or(0, |row| row[position(table, column)]["count"].as_u64().unwrap())
    }

    /// The calls of a service by a program.
    pub fn calls(&self, program: &str, service: &str) -> u64 {
        self.figure(program, service, "calls")
    }

    /// The latency of a service that was called.
    pub fn latency(&self, service: &str) -> Latency {
        let table = self.table("Latency of services");
        let row = table["rows"].as_array().unwrap().iter().find(|one| one[0]["text"] == service).unwrap();
        let [total, running, blocked, descheduled] = ["latency", "running", "blocked", "descheduled"]
            .map(|column| row[position(table, column)]["number"]["value"].as_f64().unwrap());
        let calls = self.count(SERVICES, service, "calls") as f64;
        Latency { calls, total, running, blocked, descheduled }
    }

    /// The time in a mode, in nanoseconds.
    pub fn time(&self, mode: &str) -> f64 {
        let figures = self.0["blocks"].as_array().unwrap().iter().map(|block| &block["figure"]["stack"]);
        let layers = figures.into_iter().find_map(|stack| stack["layers"].as_array()).unwrap();
        let layer = layers.iter().find(|layer| layer["name"] == mode).unwrap();
        layer["amounts"].as_array().unwrap().iter().map(|amount| amount.as_f64().unwrap()).sum()
    }

    /// The sum of a column.
    pub fn sum(&self, title: &str, column: &str) -> u64 {
        let rows = self.table(title)["rows"].as_array().unwrap();
        rows.iter().map(|row| self.count(title, row[0]["text"].as_str().unwrap(), column)).sum()
    }
}

/// Calls of a service, and their mean time in nanoseconds of the guest.
#[derive(Debug)]
pub struct Latency {
    pub calls: f64,
    pub total: f64,
    pub running: f64,
    pub blocked: f64,
    pub descheduled: f64,
}

pub const MODES: &str = "Where the instructions went";
pub const PROGRAMS: &str = "Instructions of each program";
pub const SERVICES: &str = "Services of the kernel";
pub const ROUTINES: &str = "Routines of the kernel";

/// The releases of the installed kernels, from the message for one that is not.
pub fn kernels() -> Vec<String> {
    let messages = sim(Path::new("."), &["--guest-command", "true", "--kernel", "0.1"]).messages;
    let (_, list) = messages.split_once("(installed: ").unwrap_or_else(|| panic!("{messages}"));
    list.split(')').next().unwrap().split(", ").map(str::to_owned).collect()
}

/// Where `scripts/platforms` has installed QEMU, busybox and the kernels.
pub fn platforms() -> PathBuf {
    let data = env::var("XDG_DATA_HOME").unwrap_or_else(|_| env::var("HOME").unwrap() + "/.local/share");
    Path::new(&data).join("assay/platforms")
}

/// Runs a program of the host, and returns its messages.
pub fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{messages}");
    messages
}

/// Compiles a program without a library.
pub fn compile(directory: &Path, name: &str, source: &str, numbers: &[&str]) {
    let file = format!("{name}.c");
    fs::write(directory.join(&file), source).unwrap();
    let options = ["-O1", "-static", "-nostdlib", "-fno-stack-protector", "-o", name, &file];
    run(directory, "gcc", &[numbers, &options].concat());
}
