//! Invalid input: unknown names, damaged files, words that are not UTF-8.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::place::{OLD, Place, RUN, Said, repository};

#[test]
fn an_unknown_primitive_is_rejected_with_a_hint_at_the_list() {
    let place = Place::new();
    let said = Said::by(&mut place.assay(&["bench", "nonsense", "--store", "store.db"]));
    said.complains_of(&["'nonsense'", "assay bench --list"]);
    assert!(!place.path("store.db").exists(), "a run was begun");
}

#[test]
fn an_unknown_operation_is_rejected_with_the_known_ones() {
    let place = Place::new();
    let said = Said::by(&mut place.assay(&[RUN.as_slice(), &["--operation", "x"]].concat()));
    said.complains_of(&["no operation 'x'", "page", "connect and page"]);
    assert!(!place.path("store.db").exists(), "a run was begun");
}

#[test]
fn a_damaged_machine_file_is_rejected_before_anything_is_started() {
    let place = Place::new();
    let thesis = repository().join("examples/thesis-1997");
    let whole = fs::read_to_string(thesis.join("pro-200.machine.json")).unwrap();
    fs::write(place.path("cut.machine.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(place.path("report.html"), OLD).unwrap();
    let said = Said::by(&mut place.assay(&[RUN.as_slice(), &["--machine", "cut.machine.json"]].concat()));
    said.complains_of(&["cut.machine.json is not a machine", "line"]);
    assert!(!said.stderr.contains("starting") && !place.path("store.db").exists(), "{}", said.stderr);
    assert_eq!(place.read("report.html"), OLD);
    let demand = thesis.join("apache.demand.json").into_os_string().into_string().unwrap();
    let said = Said::by(&mut place.assay(&["predict", &demand, "cut.machine.json"]));
    said.complains_of(&["cut.machine.json is not a machine", "line"]);
}

#[test]
fn a_file_that_is_not_a_store_is_rejected_and_unchanged() {
    for text in [OLD.to_owned(), OLD.repeat(1000)] {
        let place = Place::new();
        fs::write(place.path("store.db"), &text).unwrap();
        for arguments in [RUN.as_slice(), &["history", "--store", "store.db"]] {
            let said = Said::by(&mut place.assay(arguments));
            said.complains_of(&["store store.db", "move it away or specify another file"]);
            assert!(!said.stderr.contains("starting"), "{}", said.stderr);
            assert_eq!(place.read("store.db"), text);
        }
    }
}

#[test]
fn a_damaged_workload_file_is_rejected_with_its_line() {
    let place = Place::new();
    let workload = place.read("workload.toml").replace("requests = 400", "requests = many");
    fs::write(place.path("workload.toml"), workload).unwrap();
    let said = Said::by(&mut place.assay(&RUN));
    said.complains_of(&["workload.toml:", "docs/workload.md"]);
    assert!(!place.path("store.db").exists(), "a run was begun");
}

#[test]
fn a_run_of_a_guest_that_cannot_be_read_or_kept_is_rejected() {
    let place = Place::new();
    let whole = fs::read_to_string(repository().join("crates/sim/tests/golden/run.sim.json")).unwrap();
    fs::write(place.path("whole.sim.json"), &whole).unwrap();
    fs::write(place.path("cut.sim.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(place.path("newer.sim.json"), whole.replace("simulation/", "simulation/9")).unwrap();
    fs::write(place.path("escapes.sim.json"), r#"{"format": "\u001b[31m", "content": {}}"#).unwrap();
    for (name, words) in [
        ("cut.sim.json", ["cut.sim.json is neither a run nor a matrix of 'assay sim'", "line 1"]),
        ("newer.sim.json", ["assay.simulation/9", "update assay"]),
        ("escapes.sim.json", ["its format is '\\u{1b}[31m'", "update assay"]),
        ("none.sim.json", ["cannot read none.sim.json", "No such file"]),
        (".", ["cannot read .", "directory"]),
    ] {
        for arguments in [&["sim", "show", name][..], &["sim", "diff", "whole.sim.json", name]] {
            let said = Said::by(&mut place.assay(arguments));
            said.complains_of(&words);
            assert!(said.stdout.is_empty(), "{said:?}");
        }
    }
    for (arguments, words) in [
        (["--output", "none/run", "--observe", "count"], ["cannot write to none", "another directory"]),
        (["--output", "run", "--observe", "nothing"], ["--output needs --observe", "count"]),
    ] {
        let said = Said::by(&mut place.assay(&[&["sim", "run"], &arguments[..]].concat()));
        said.complains_of(&words);
        assert!(!said.stderr.contains("booting") && !place.path("run").exists(), "{said:?}");
    }
}

#[test]
fn a_matrix_of_primitives_that_cannot_be_read_counted_or_compared_is_rejected() {
    let place = Place::new();
    let copy = |from: &str, to: &str| fs::copy(repository().join(from), place.path(to)).unwrap();
    copy("crates/sim/tests/golden/run.sim.json", "run.json");
    copy("crates/quantity/tests/golden/matrix.json", "matrix.json");
    let matrix = fs::read_to_string(place.path("matrix.json")).unwrap();
    fs::write(place.path("newer.json"), matrix.replace("matrix/1", "matrix/9")).unwrap();
    fs::write(place.path("damaged.json"), matrix.replace("call.null", "null")).unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        let said = Said::by(&mut place.assay(&[&["sim"], arguments].concat()));
        said.complains_of(words);
        assert!(said.stdout.is_empty() && !said.stderr.contains("booting"), "{said:?}");
    };
    refused(&["show", "newer.json"], &["neither a run nor a matrix", "assay.matrix/9", "update assay"]);
    refused(&["show", "damaged.json"], &["damaged.json", "rows: primitive name 'null'"]);
    refused(&["show", "run.json", "--machine", "1997/pro-200"], &["--machine needs a matrix"]);
    refused(&["show", "matrix.json", "--machine", "none.json"], &["cannot read none.json"]);
    refused(&["diff", "run.json", "matrix.json"], &["nothing in common", "compare two runs or two matrices"]);
    refused(&["matrix", "cell.null"], &["no primitive has the name or prefix 'cell.null'"]);
    refused(&["matrix", "call.null", "-o", "none/matrix.json"], &["cannot write to none"]);
    refused(&["matrix", "call.null", "--machine", "none.json"], &["cannot read none.json"]);
    let shown = Said::by(&mut place.assay(&["sim", "show", "matrix.json", "--machine", "1997/pro-200"]));
    assert!(shown.stdout.contains("4.08"), "{shown:?}");
}

#[test]
fn words_that_are_not_utf_8_never_cause_a_panic() {
    let place = Place::new();
    let odd = |text: &'static [u8]| OsStr::from_bytes(text);
    let plain = OsStr::new;
    // A panic is caught in `Said::by`.
    let bench = [plain("bench"), plain("call.null"), plain("--precision"), plain("99%"), plain("--store")];
    let said = Said::by(&mut place.assay(&[bench.as_slice(), &[odd(b"\xff.db")]].concat()));
    assert!(said.status.success(), "{said:?}");
    let trace = [plain("trace"), plain("-o"), odd(b"\xff.trace"), plain("--"), plain("true"), odd(b"\xff")];
    let said = Said::by(&mut place.assay(&trace));
    assert!(said.status.success(), "{said:?}");
    let said = Said::by(&mut place.assay(&[plain("view"), odd(b"\xff.trace")]));
    assert!(said.status.success() && said.stdout.contains("execve"), "{said:?}");
    for refused in [
        [plain("view"), odd(b"\xfe.trace")],
        [plain("bench"), odd(b"\xff")],
        [plain("run"), odd(b"\xff.toml")],
        [odd(b"\xff"), odd(b"\xff")],
    ] {
        let said = Said::by(&mut place.assay(&refused));
        assert!(!said.status.success() && !said.stderr.is_empty(), "{said:?}");
    }
}
