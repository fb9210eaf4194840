//! Missing prerequisites: root, the kernel's types, the server's program, its port.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::process::Command;

use crate::place::{OLD, Place, RUN, Said};

/// The user and group of Debian that own no files.
const UNPRIVILEGED: u32 = 65534;

const AS_UNPRIVILEGED: [&str; 5] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "./assay-unprivileged"];

/// Returns a place that belongs to an unprivileged user, with a program that this user may read.
fn unprivileged() -> Place {
    let place = Place::new();
    // Another process copies it: a child that another test forks in the meantime would inherit the file open
    // for writing, and such a file cannot be executed.
    let copy =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_assay")).arg(place.path("assay-unprivileged")).status();
    assert!(copy.unwrap().success());
    for name in ["", "tmp"] {
        chown(place.path(name), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
    place
}

#[test]
fn without_root_a_run_measures_machine_and_application_and_reports_what_is_missing() {
    let place = unprivileged();
    let run = ["run", "workload.toml", "--report", "report.html", "--store", "store.db", "--budget", "3"];
    let arguments = [run.as_slice(), &["--save-demand", "nginx.demand.json"]].concat();
    let said = Said::by(&mut place.command(&AS_UNPRIVILEGED, &arguments));
    said.complains_of(&["the report is incomplete", "needs root", "sudo"]);
    assert!(said.stdout.contains("Missing: demand") && said.stdout.contains("needs root"), "{}", said.stdout);
    let report = place.read("report.html");
    assert!(report.starts_with("<!DOCTYPE html>") && report.trim_end().ends_with("</html>"), "{report}");
    for shown in ["nginx", "What its primitives cost", "needs root"] {
        assert!(report.contains(shown), "no {shown} in the report: {said:?}");
    }
    let predicted = [&said.stdout, &report].iter().any(|text| text.to_lowercase().contains("predicted"));
    assert!(!predicted && !place.path("nginx.demand.json").exists(), "a prediction without a demand");
    let found =
        Said::by(&mut place.command(&AS_UNPRIVILEGED, &["history", "1", "--store", "store.db", "--csv"]));
    // The processes of a cost, or a single process, which gives none: at least one has measured something.
    let rows = found.stdout.split("What its primitives cost").nth(1).unwrap_or_default();
    let (costs, others) = rows.split_once("What was not measured").unwrap_or((rows, ""));
    let is_measured = costs.contains(",count,") || others.contains("1 of 1 samples gave a cost");
    assert!(found.status.success() && is_measured, "{found:?}");
    place.assert_nothing_runs("without root");
    place.assert_no_litter("without root");
}

#[test]
fn without_root_a_trace_is_rejected_and_leaves_nothing_behind() {
    let place = unprivileged();
    let said =
        Said::by(&mut place.command(&AS_UNPRIVILEGED, &["trace", "-o", "x.trace", "--", "touch", "ran"]));
    said.complains_of(&["needs root", "sudo"]);
    assert!(!place.path("x.trace").exists(), "a container without a trace");
    assert!(!place.path("ran").exists(), "the command ran untraced");
    place.assert_nothing_runs("without root");
}

#[test]
fn without_the_kernels_types_a_trace_is_rejected_and_leaves_nothing_behind() {
    let place = Place::new();
    let said = place
        .unshared("mount -t tmpfs none /sys/kernel/btf", &["trace", "-o", "x.trace", "--", "touch", "ran"]);
    said.complains_of(&["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"]);
    assert!(!place.path("x.trace").exists() && !place.path("ran").exists());
}

#[test]
fn a_missing_server_is_named_with_its_package_before_anything_is_measured() {
    let place = Place::new();
    fs::write(place.path("report.html"), OLD).unwrap();
    let said = place.unshared("mount --bind /dev/null /usr/sbin/nginx", &RUN);
    said.complains_of(&["nginx", "Debian package nginx-light"]);
    assert!(!said.stderr.contains("measuring"), "{}", said.stderr);
    assert_eq!(place.read("report.html"), OLD);
    assert!(place.history().contains("failed: program 'nginx'"), "{}", place.history());
}

#[test]
fn a_port_in_use_is_named_before_anything_is_measured() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let said = Said::by(&mut place.assay(&[RUN.as_slice(), &["--port", &port]].concat()));
    said.complains_of(&[&format!("port {port} "), "in use", "pass another"]);
    assert!(!said.stderr.contains("measuring"), "{}", said.stderr);
    place.assert_nothing_runs("a port in use");
}
