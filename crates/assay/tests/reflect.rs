//! `assay reflect simulate` from outside: its tables, its plots, and the errors for invalid input.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::process::{Command, Output};

use assay_reflect::plant::PLANTS;
use assay_reflect::simulation::SCENARIOS;

fn simulate(arguments: &[&str]) -> Output {
    let all = ["reflect", "simulate"].iter().chain(arguments);
    Command::new(env!("CARGO_BIN_EXE_assay")).args(all).output().unwrap()
}

/// The rows of the tables of a report as CSV, without their heads.
fn rows(arguments: &[&str]) -> Vec<Vec<String>> {
    let output = simulate(&[arguments, &["--csv"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&output.stdout[..]);
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[test]
fn laws_are_shown_side_by_side_in_the_order_of_their_table() {
    let selected = ["--law", "knee", "--law", "fixed", "--plant", "cliff", "--scenario", "inside"];
    let [head, row] = &rows(&selected)[..] else { panic!("one table of one row") };
    assert_eq!(head[..], ["plant", "scenario", "fixed", "fixed_unit", "knee", "knee_unit"]);
    assert_eq!(row[..2], ["cliff", "inside"]);
    let [fixed, knee]: [f64; 2] = [2, 4].map(|column: usize| row[column].parse().unwrap());
    // 286 of 2,339 transactions a second.
    assert!((fixed - 0.122).abs() < 0.001, "{fixed}");
    assert!(knee > 0.97, "{knee}");
}

#[test]
fn one_run_has_a_course_with_the_reasons_of_the_law() {
    let selected = ["--law", "knee", "--plant", "deadlock", "--scenario", "inside"];
    let course = rows(&selected);
    let reasons: Vec<&str> = course.iter().filter_map(|row| row.last().map(String::as_str)).collect();
    for reason in ["waits until the units of the last limit have ended", "surveys limits", "holds"] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
}

#[test]
fn the_plots_of_the_documentation_are_those_of_the_command() {
    let documented = include_str!("../../../docs/control-runs.md");
    let output = simulate(&["--plot"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let plots: Vec<&str> = text.split("\n\n").filter(|block| block.contains(": productivity\n")).collect();
    assert_eq!(plots.len(), PLANTS.len() * SCENARIOS.len(), "{text}");
    for plot in plots {
        assert!(documented.contains(plot.trim_end()), "not in docs/control-runs.md:\n{plot}");
    }
}

#[test]
fn the_plot_of_one_run_shows_its_limit_too() {
    let selected = ["--law", "fixed", "--plant", "step", "--scenario", "inside", "--plot", "--json"];
    let report: serde_json::Value = serde_json::from_slice(&simulate(&selected).stdout).unwrap();
    let blocks = report["blocks"].as_array().unwrap();
    let courses: Vec<_> =
        blocks.iter().map(|block| &block["figure"]["course"]).filter(|f| f.is_object()).collect();
    let [productivity, limit] = courses[..] else { panic!("{report:#}") };
    assert_eq!(productivity["title"], "step, inside: productivity");
    assert_eq!(limit["title"], "step, inside: limit");
    // 1,024 clients, a limit as high, and what MariaDB keeps of its peak then.
    let values = |course: &serde_json::Value| course["lines"][0]["values"].as_array().unwrap().clone();
    assert_eq!(values(limit), vec![serde_json::json!(1024.0); 120]);
    let shares: Vec<f64> = values(productivity).iter().map(|share| share.as_f64().unwrap()).collect();
    assert!(shares[1..].iter().all(|share| (share - 0.178).abs() < 0.005), "{shares:?}");
}

#[test]
fn names_that_do_not_exist_are_refused_with_those_that_do() {
    for (option, name, known) in
        [("--law", "pid", "knee"), ("--plant", "x", "deadlock"), ("--scenario", "", "surge")]
    {
        let output = simulate(&[option, name]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(known), "{said}");
    }
}
