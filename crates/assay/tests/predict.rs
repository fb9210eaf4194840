//! `assay predict` from outside: the prediction of the thesis, and the errors for invalid input.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::{expect, expect_file};

const EXAMPLE: &str = "examples/thesis-1997";
const MACHINES: [&str; 5] = ["prem-100", "endeav-120", "ss20-75", "pro-200", "ss20-75x2"];

fn assay(arguments: &[&str]) -> Output {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_assay")).args(arguments).current_dir(root).output().unwrap()
}

/// Returns the error of a rejected command line, which must be one line on stderr, with nothing on stdout.
fn refusal(arguments: &[&str]) -> String {
    let output = assay(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn damaged(name: &str, from: &str, to: &str) -> PathBuf {
    written(name, |example| {
        let text = fs::read_to_string(example.join(name)).unwrap();
        assert!(text.contains(from), "{name} holds no '{from}'");
        text.replacen(from, to, 1)
    })
}

/// Writes a file for this test, derived from those of the example.
fn written(name: &str, text: impl Fn(&Path) -> String) -> PathBuf {
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(EXAMPLE);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::write(&path, text(&example)).unwrap();
    path
}

#[test]
fn the_thesis_is_predicted_as_printed_with_its_ranking_and_its_errors() {
    let demand = format!("{EXAMPLE}/apache.demand.json");
    let measured = format!("{EXAMPLE}/measured.csv");
    let machines = MACHINES.map(|machine| format!("{EXAMPLE}/{machine}.machine.json"));
    let mut arguments = vec!["predict", &demand];
    arguments.extend(machines.iter().map(String::as_str));
    arguments.extend(["--measured", &measured]);
    let output = assay(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    expect_file!["golden/thesis.txt"].assert_eq(&text);
    for figure in ["31.888", "21.419", "16.261", "9.912", "9.358", "±16 %", "±20 %"] {
        assert!(text.contains(figure), "no {figure} in:\n{text}");
    }
}

#[test]
fn invalid_input_is_rejected_in_one_line_with_a_remedy() {
    let demand = format!("{EXAMPLE}/apache.demand.json");
    let machine = format!("{EXAMPLE}/pro-200.machine.json");
    let refused = |arguments: &[&str]| {
        refusal(arguments)
            .replace(env!("CARGO_TARGET_TMPDIR"), "TMP")
            .replace(&std::process::id().to_string(), "PID")
    };
    let no_epoll = damaged("pro-200.machine.json", "tcp.connect", "epoll.ctl");
    let cut = damaged("prem-100.machine.json", "\"costs\": [", "\"costs\": [[");
    let csv = damaged("measured.csv", "Pro-200", "Pro-400");
    let twice = written("twice.csv", |example| {
        let text = fs::read_to_string(example.join("measured.csv")).unwrap();
        text.replacen("Pro-200", "Prem-100", 1)
    });
    let per_operation = damaged("endeav-120.machine.json", "\"ns/B\"", "\"ns\"");
    let empty = written("empty.demand.json", |example| {
        let text = fs::read_to_string(example.join("apache.demand.json")).unwrap();
        let (before, _) = text.split_once("\"coefficients\": [").unwrap();
        format!("{before}\"coefficients\": []}}]}}")
    });
    let said = [
        refused(&["predict", "missing.demand.json", &machine]),
        refused(&["predict", &machine, &machine]),
        refused(&["predict", &demand, &machine, &machine]),
        refused(&["predict", &demand, no_epoll.to_str().unwrap()]),
        refused(&["predict", &demand, cut.to_str().unwrap()]),
        refused(&["predict", &demand, &machine, "--measured", csv.to_str().unwrap()]),
        refused(&["predict", &demand, &machine, "--measured", &demand]),
        refused(&["predict", &demand, &machine, "--measured", twice.to_str().unwrap()]),
        refused(&["predict", &demand, per_operation.to_str().unwrap()]),
        refused(&["predict", empty.to_str().unwrap(), &machine]),
    ];
    expect![[r#"
        assay: cannot read missing.demand.json: No such file or directory (os error 2)
        assay: examples/thesis-1997/pro-200.machine.json is not a demand: its format is 'assay.machine/1', but 'assay.demand/1' is required; if the file is newer, update assay
        assay: two machines are named 'Pro-200'; rename one
        assay: machine 'Pro-200' cannot predict 'page': tcp.connect was not measured; measure it there with 'assay bench'
        assay: TMP/PID-prem-100.machine.json is not a machine: expected `,` or `]` at line 86 column 15
        assay: workload 'netscape' of the measured file contains fewer than two of these machines: Pro-200; its column 'machine' must contain their names
        assay: examples/thesis-1997/apache.demand.json is not a valid file of measurements: column 'machine' is missing
        assay: TMP/PID-twice.csv is not a valid file of measurements: line 8: 'Prem-100' with workload 'netscape' is already in line 2; keep one
        assay: TMP/PID-endeav-120.machine.json is not a machine: the cost of 'file.read{size=32KiB,buffer=reused}' is in ns, but it is measured in ns/B; correct the file
        assay: the demand of 'page' contains no call, so nothing can be predicted; trace it while it works
    "#]].assert_eq(&said.concat());
}

#[test]
fn doubtful_costs_are_shown_in_a_prediction_in_every_format() {
    let demand = format!("{EXAMPLE}/apache.demand.json");
    let machine = written("doubtful.machine.json", |path| {
        let text = fs::read_to_string(path.join("pro-200.machine.json")).unwrap();
        text.replace("\"estimate\": {", "\"verdict\": {\"disturbed\": 0.97}, \"estimate\": {")
    });
    for format in ["text", "html", "json"] {
        let output = assay(&["predict", &demand, machine.to_str().unwrap(), "--format", format]);
        let text = String::from_utf8(output.stdout).unwrap().replace("<wbr>", "");
        assert!(text.contains("measured, disturbed"), "{format}: {text}");
        assert!(text.contains("lower bound, disturbed"), "{format}: {text}");
        let summary = "Terms worth 100 % of the prediction for Pro-200 are doubtful (disturbed).";
        assert!(text.contains(summary), "{format}: {text}");
    }
}

#[test]
fn a_primitive_that_the_machine_cannot_have_is_named_and_not_covered() {
    let demand = format!("{EXAMPLE}/apache.demand.json");
    let machine = written("without_connect.machine.json", |path| {
        let text = fs::read_to_string(path.join("pro-200.machine.json")).unwrap();
        let missing = r#""unmeasured": [{"primitive": "tcp.connect", "reason": "no network"}]"#;
        text.replace("tcp.connect", "epoll.ctl").replace("\"unmeasured\": []", missing)
    });
    let output = assay(&["predict", &demand, machine.to_str().unwrap(), "--format", "json"]);
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    let note = "tcp.connect counts as not covered, because Pro-200 has no cost of it: no network.";
    assert!(said.contains(note), "{said}");
}

#[test]
fn a_prediction_can_be_printed_in_every_format() {
    let demand = format!("{EXAMPLE}/apache.demand.json");
    let machine = format!("{EXAMPLE}/pro-200.machine.json");
    for format in ["text", "html", "json", "csv"] {
        let output = assay(&["predict", &demand, &machine, "--format", format]);
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("tcp.transfer"), "{format}: {text}");
    }
}

#[test]
fn a_reader_that_closes_stdout_early_is_not_an_error() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = format!(
        "{{ {} predict {EXAMPLE}/apache.demand.json {EXAMPLE}/pro-200.machine.json; echo $? >&2; }} | true",
        env!("CARGO_BIN_EXE_assay")
    );
    // `true` may end before or after the first write; in 20 runs the pipe is closed early at least once.
    for _ in 0..20 {
        let output = Command::new("sh").args(["-c", &script]).current_dir(&root).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "0\n");
    }
}
