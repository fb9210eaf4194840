//! How the comparison with lmbench reads its figures (`bench/peers`): the measuring itself is `make peers`.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use tempfile::NamedTempFile;

/// The fields of the table's row for `name` behind the name.
fn row(figures: &str, name: &str) -> Vec<String> {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), figures).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/summary.awk");
    let output = Command::new("awk").args(["-F|", "-f"]).args([&script, file.path()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{table}"));
    row.split_whitespace().map(str::to_owned).collect()
}

/// Rounds of one primitive: lmbench's figure, and ours with its verdict.
fn figures(rounds: &[(f64, f64, &str)]) -> String {
    let mut text = String::new();
    for (theirs, ours, verdict) in rounds {
        writeln!(text, "lmbench|pipe|{theirs}\nassay|pipe|{ours} {verdict}\nperf|pipe|").unwrap();
    }
    text
}

#[test]
fn both_columns_are_of_the_same_rounds() {
    let quiet = [(100.0, 50.0, "steady"), (110.0, 50.5, "steady")];
    let disturbed = [(900.0, 70.0, "disturbed: 90 % of batches"); 4];
    let rounds = [&quiet[..], &disturbed[..], &quiet[..], &quiet[..]].concat();
    // lmbench's figures of the four rounds in which ours were disturbed are not in its mean of 105 either.
    assert_eq!(
        row(&figures(&rounds), "pipe"),
        ["105", "5.2", "50.25", "0.5", "none", "6", "2.0%", "yes", "4", "of", "10"]
    );
}

#[test]
fn a_goal_is_neither_met_nor_missed_on_fewer_than_six_rounds() {
    let steady = [(100.0, 50.0, "steady"); 6];
    let is_open =
        |rounds: &[(f64, f64, &str)]| row(&figures(rounds), "pipe").iter().any(|field| field == "open");
    assert!(is_open(&steady[1..]) && !is_open(&steady));
    let wild = [(100.0, 50.0, "steady"), (100.0, 90.0, "steady")].repeat(3);
    assert!(row(&figures(&wild), "pipe").contains(&"no".to_owned()));
}
