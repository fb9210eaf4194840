//! `assay sim matrix`: what one operation of a primitive executes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::guest::{Tables, assay, compile, position, sim};

/// A call, a page fault, two processes that wake each other up, and what needs a second processor.
const PRIMITIVES: [&str; 4] = [
    "call.null",
    "page_fault.anonymous",
    "pipe.round_trip{size=1B,cpus=same}",
    "process.wakeup{cpus=different}",
];

const COUNTED: &str = "Instructions and page faults of one operation";

/// A program without a library, which calls what `call.null` does.
const PROGRAM: &str = r#"
static void call(long number)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(0) : "rcx", "r11", "memory");
}
void _start(void)
{
    for (int i = 0; i < CALLS; i++)
        call(110); /* getppid */
    call(60); /* exit */
}
"#;

/// Instructions of the kernel for a call, with its entry and its return, in a program that makes many.
fn of_call(directory: &Path) -> f64 {
    const CALLS: u64 = 20_000;
    compile(directory, "calls", PROGRAM, &[&format!("-DCALLS={CALLS}")]);
    let said =
        sim(directory, &["--deterministic", "--copy", "calls", "--guest-command", "./calls", "--json"]);
    let tables = Tables::of(&said);
    assert_eq!(tables.calls("calls", "getppid"), CALLS);
    let services = ["getppid", "passage"].map(|service| tables.figure("calls", service, "instructions"));
    services.into_iter().sum::<u64>() as f64 / CALLS as f64
}

#[test]
fn an_operation_executes_the_same_in_each_run_and_as_much_as_in_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let matrix = |output: &str| {
        let said = assay(directory, &[&["sim", "matrix", "--json", "-o", output], &PRIMITIVES[..]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said
    };
    let said = matrix("first.json");
    assert_eq!(matrix("second.json").report, said.report);
    let read = |name| fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(read("first.json"), read("second.json"));
    assert_eq!(assay(directory, &["sim", "show", "first.json", "--json"]).report, said.report);

    let tables = Tables::of(&said);
    let [call, fault, round_trip, missing] = PRIMITIVES;
    let count = |primitive, column| count(&tables, primitive, column);
    let [user, in_kernel] = ["user", "kernel"].map(|column| count(call, column));
    assert!(user > 0.0 && user < in_kernel, "{}", said.report);
    let of_call = of_call(directory);
    assert!((in_kernel - of_call).abs() < 2.0, "{in_kernel} {of_call}");
    // Two calls of each process, and two switches between them.
    assert!(count(round_trip, "kernel") > 10.0 * in_kernel, "{}", said.report);
    let faults = [call, fault].map(|primitive| count(primitive, "page faults"));
    assert!(faults[0].abs() < 1e-9 && (faults[1] - 1.0).abs() < 1e-9, "{faults:?}");
    let reasons = tables.table("Not counted")["rows"].as_array().unwrap();
    assert_eq!((reasons.len(), &reasons[0][0]["text"]), (1, &Value::from(missing)));

    let compared = assay(directory, &["sim", "diff", "first.json", "second.json"]);
    assert!(compared.report.contains("instructions differ by less than 1 %"), "{compared:?}");
    let refused = assay(directory, &["sim", "show", "first.json", "--machine", "none"]);
    assert_eq!((refused.report.as_str(), refused.code), ("", Some(1)));
}

/// A count of a primitive, with or without an interval.
fn count(tables: &Tables, primitive: &str, column: &str) -> f64 {
    let table = tables.table(COUNTED);
    let row = table["rows"].as_array().unwrap().iter().find(|row| row[0]["text"] == primitive).unwrap();
    let cell = &row[position(table, column)];
    let values = [&cell["count"], &cell["number"]["value"], &cell["quantity"]["point"]];
    values.into_iter().find_map(Value::as_f64).unwrap()
}
