//! The requests that `assay view NAME.trace phases` finds in traces of real servers, each found without a
//! mark: kept connections, a connection for each request, event loops, and a process for each connection.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use assay_trace::view::look;
use assay_trace::view::phases::{FindPhases, Side, UnitsOfWork};
use assay_trace::{Descriptor, Reader};
use expect_test::{Expect, expect};

/// Requests of each operation: many more than connections, whose first and last requests have other calls.
const REQUESTS: u64 = 1_000;

/// Compares the most frequent requests of a workload.
fn expect_of(workload: &str, operations: &[&str], expected: &Expect) {
    expected.assert_eq(&requests(workload, operations));
}

/// Runs operations of a workload and returns the most frequent request of each: its phases and their calls.
fn requests(workload: &str, operations: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = fs::read_to_string(repository.join(format!("workloads/{workload}.toml"))).unwrap();
    let line = |line: &str| match line.split_once("requests = ") {
        Some(("", _)) => format!("requests = {REQUESTS}"),
        _ => line.to_owned(),
    };
    fs::write(place.path().join("workload.toml"), file.lines().map(line).collect::<Vec<_>>().join("\n"))
        .unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_assay"));
    run.current_dir(place.path()).args(["run", "workload.toml", "--save-traces", "traces"]);
    run.args(["--store", "store.db", "--report", "report.html"]);
    // No machine is measured, so the run predicts little and ends with a status for that.
    run.arg("--machine").arg(repository.join("examples/thesis-1997/pro-200.machine.json"));
    for operation in operations {
        run.args(["--operation", operation]);
    }
    let ended = run.output().unwrap();
    let mut text = String::new();
    for operation in operations {
        let name = operation.replace([' ', ','], "-");
        let trace = Reader::open(&place.path().join(format!("traces/{name}.trace")));
        let trace = trace.unwrap_or_else(|error| panic!("{operation}: {error}: {ended:?}"));
        let phases = look(trace, FindPhases::default()).unwrap();
        assert_eq!(phases.lost, 0, "{operation}: {ended:?}");
        let served =
            |units: &&UnitsOfWork| (units.side, units.descriptor) == (Side::Answers, Descriptor::Tcp4);
        let units = phases.kinds.iter().find(served).unwrap_or_else(|| panic!("{operation}: {phases:?}"));
        check(operation, units);
        write!(text, "{operation}\n{}", tree(units)).unwrap();
    }
    text
}

fn check(operation: &str, units: &UnitsOfWork) {
    let first = &units.variants[0];
    assert!((REQUESTS..REQUESTS * 11 / 10).contains(&units.units), "{operation}: {}", units.units);
    assert!(first.units * 2 > units.units, "{operation}: {} of {}", first.units, units.units);
    assert!(first.time_ns > Some(0) && first.kernel_ns > 0, "{operation}: {first:?}");
}

/// Returns a line for each call, below its phase.
fn tree(units: &UnitsOfWork) -> String {
    let mut text = String::new();
    let mut phase = None;
    for step in &units.variants[0].steps {
        if phase.replace(step.phase) != Some(step.phase) {
            writeln!(text, "    {}", step.phase.name(units.side)).unwrap();
        }
        writeln!(text, "        {}", step.outcome.text()).unwrap();
    }
    text
}

#[test]
fn of_nginx() {
    expect_of(
        "nginx",
        &["page", "connect and page", "page, 16 at once"],
        &expect![[r#"
        page
            request
                recvfrom tcp4
            files
                openat file
                newfstatat file
            answer
                setsockopt tcp4
                writev tcp4
                sendfile tcp4
            logging
                write file
            files
                close file
            answer
                setsockopt tcp4
        connect and page
            accept
                accept4 tcp4
                epoll_ctl epoll
            request
                recvfrom tcp4
            files
                openat file
                newfstatat file
            answer
                setsockopt tcp4
                writev tcp4
                sendfile tcp4
            logging
                write file
            files
                close file
            close
                close tcp4
        page, 16 at once
            request
                recvfrom tcp4
            files
                openat file
                newfstatat file
            answer
                setsockopt tcp4
                writev tcp4
                sendfile tcp4
            logging
                write file
            files
                close file
            answer
                setsockopt tcp4
    "#]],
    );
}

#[test]
fn of_apache() {
    expect_of(
        "apache",
        &["page", "connect and page"],
        &expect![[r#"
        page
            request
                read tcp4
            files
                newfstatat
                openat = ENOENT
                openat = ENOTDIR
                openat file
                mmap file
            answer
                writev tcp4
            other
                munmap
            logging
                write file
            files
                close file
        connect and page
            accept
                accept4 tcp4
                fcntl tcp4
            request
                read tcp4
            files
                newfstatat
                openat = ENOENT
                openat = ENOTDIR
                openat file
                mmap file
            answer
                writev tcp4
            other
                munmap
            logging
                write file
            files
                close file
            close
                shutdown tcp4
                read tcp4 = 0
                close tcp4
    "#]],
    );
}

#[test]
fn of_lighttpd() {
    expect_of(
        "lighttpd",
        &["page"],
        &expect![[r#"
        page
            request
                read tcp4
            files
                pread64 file
            answer
                writev tcp4
    "#]],
    );
}

#[test]
fn of_redis() {
    expect_of(
        "redis",
        &["get", "get, 16 at once"],
        &expect![[r#"
        get
            request
                read tcp4
            answer
                write tcp4
        get, 16 at once
            request
                read tcp4
            answer
                write tcp4
    "#]],
    );
}

#[test]
fn of_postgres() {
    expect_of(
        "postgres",
        &["point query"],
        &expect![[r#"
        point query
            request
                recvfrom tcp4
            files
                lseek file
            answer
                sendto tcp4
    "#]],
    );
}
