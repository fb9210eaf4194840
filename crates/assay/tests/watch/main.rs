//! `assay reflect watch` from outside: its lines, its report, its page for Prometheus, and its errors.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod database;
#[path = "../shared/http.rs"]
mod http;
#[path = "../shared/postgres_server.rs"]
mod postgres_server;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use assay_reflect::advice::{Advice, Bound, Class};
use assay_reflect::progress::Progress;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(["reflect", "watch"]).args(arguments);
    command
}

/// A command that is killed if its test fails.
struct Started(Option<Child>);

impl Started {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn interrupt(&mut self) {
        kill_process(Pid::from_child(self.child()), Signal::INT).unwrap();
    }

    /// Waits for its end.
    fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(arguments: &[&str]) -> Started {
    Started(Some(command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
}

fn watch(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A counter of this process, and its name.
fn counter(directory: &Path) -> (Progress, String) {
    let path = directory.join("counter");
    (Progress::create(&path).unwrap(), path.to_str().unwrap().to_owned())
}

#[test]
fn lines_have_every_unit_once_and_begin_with_what_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (progress, path) = counter(directory.path());
    let advice = Advice { unit: "request".to_owned(), class: Class::Batch, ..Advice::default() };
    progress.advise(&advice).unwrap();
    progress.finished(7);
    let mut child = start(&["--progress", &path, "--lines", "--period", "10ms"]);
    let mut lines = BufReader::new(child.child().stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let head = next();
    assert_eq!((&head["format"], &head["subject"]), (&"assay.watch/1".into(), &"this machine".into()));
    let advice = serde_json::json!([
        { "unit": "request", "class": "batch", "is_bandwidth_bound": false, "may_be_queued": true }
    ]);
    assert_eq!(head["advice"], advice);
    let names = |key: &str| -> Vec<String> {
        head[key].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let available = names("measures");
    assert!(
        available.contains(&"progress".to_owned()) && !names("unavailable").contains(&"progress".to_owned())
    );
    let (mut counted, mut readings) = (0, 0);
    // Two windows and more, so that there is a region.
    while readings < 30 || counted < 300 {
        progress.finished(10);
        let line = next();
        assert_eq!(line["counts"].as_object().unwrap().len(), available.len());
        counted += line["counts"]["progress"].as_u64().unwrap();
        readings += 1;
        assert_eq!(line["region"].is_string(), readings >= 20, "{readings}: {line}");
        assert!(counted <= 10 * readings && readings < 1000, "{counted} in {readings} readings");
    }
    child.interrupt();
    assert!(child.output().status.success());
}

#[test]
fn an_interrupt_ends_it_with_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let (progress, path) = counter(directory.path());
    let mut child = start(&["--progress", &path, "--listen", "127.0.0.1:0", "--period", "10ms", "--json"]);
    let mut said = String::new();
    BufReader::new(child.child().stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("listening at http://").unwrap().strip_suffix("/metrics").unwrap();
    progress.finished(123);
    let get = |path| http::get(address.parse().unwrap(), path);
    // The page shows the last reading, and the first one may have been before the units.
    let mut pages = (0..1000).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        get("/metrics")
    });
    let page = pages.find(|page| page.contains("\nassay_progress_total 123\n"));
    let page = page.unwrap();
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(page.contains("Content-Type: text/plain; version=0.0.4\r\n"), "{page}");
    assert!(get("/").starts_with("HTTP/1.1 404 "), "{page}");
    child.interrupt();
    let output = child.output();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tables: Vec<&Value> = report["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["table"])
        .filter(|t| t.is_object())
        .collect();
    let counted = tables[0]["rows"].as_array().unwrap().iter();
    let progress: Vec<_> = counted.filter(|row| row[0]["text"] == "progress").collect();
    assert_eq!(progress.len(), 1);
    assert_eq!(progress[0][1]["number"]["value"], 123.0);
}

#[test]
fn overheads_are_per_unit_by_the_name_that_the_application_gives() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [(first, one), (second, two)] = directories.each_ref().map(|directory| counter(directory.path()));
    let advice = |unit: &str| Advice { unit: unit.to_owned(), bound: Bound::Bandwidth, ..Advice::default() };
    let report = || text(&watch(&["--progress", &one, "--progress", &two, "--duration", "1s"]).stdout);
    first.advise(&advice("a\u{1b}b")).unwrap();
    let sentence = "a\\u{1b}b, interactive, bound by the bandwidth of the memory.";
    // The other counter has no advice.
    let one_has_advice = report();
    assert!(one_has_advice.contains("  per unit of progress\n"), "{one_has_advice}");
    assert_eq!(one_has_advice.matches(sentence).count(), 1, "{one_has_advice}");
    second.advise(&advice("a\u{1b}b")).unwrap();
    let both_have_the_same = report();
    assert!(both_have_the_same.contains("  per a\\u{1b}b\n"), "{both_have_the_same}");
    assert_eq!(both_have_the_same.matches(sentence).count(), 1, "{both_have_the_same}");
    second.advise(&advice("row")).unwrap();
    let names_differ = report();
    assert!(names_differ.contains("  per unit of progress\n"), "{names_differ}");
}

#[test]
fn events_of_the_kernel_are_measures_of_either_side() {
    let events = [
        "--productivity",
        "sched:sched_process_fork",
        "--overhead",
        "sched:sched_stat_runtime",
        "--event",
        "sched:sched_process_exit",
        "--event",
        "sched:sched_stat_runtime",
    ];
    let output = watch(&[&events[..], &["--lines", "--duration", "1s"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let head: Value = serde_json::from_str(text(&output.stdout).lines().next().unwrap()).unwrap();
    let measures = head["measures"].as_array().unwrap().iter();
    let measures = measures.map(|one| ["name", "side", "unit"].map(|key| one[key].as_str().unwrap()));
    let measures: Vec<_> = measures.filter(|[name, ..]| name.contains(':')).collect();
    let expected = [
        ["sched:sched_process_fork", "productivity", "count"],
        ["sched:sched_stat_runtime", "overhead", "ns"],
        ["sched:sched_process_exit", "overhead", "count"],
    ];
    assert_eq!(measures, expected);
    let report = text(&watch(&[&events[..], &["--duration", "1s"]].concat()).stdout);
    assert!(report.contains("  per unit of sched:sched_process_fork\n"), "{report}");
}

#[test]
fn it_ends_with_the_process_that_it_watches() {
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let mut child = start(&["-p", &pid, "--lines", "--period", "10ms"]);
    let mut stdout = BufReader::new(child.child().stdout.take().unwrap());
    let mut head = String::new();
    stdout.read_line(&mut head).unwrap();
    assert!(head.contains(&format!("process {pid}")), "{head}");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let mut lines = String::new();
    stdout.read_to_string(&mut lines).unwrap();
    let output = child.output();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), format!("process {pid} has ended\n"));
}

#[test]
fn what_cannot_be_watched_is_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let cases: [(&[&str], i32, &str); 16] = [
        (&["-p", "2147483647"], 1, "assay: process 2147483647 does not exist\n"),
        (&["-p", "0"], 2, "0 is not in 1.."),
        (
            &["--cgroup", "/no/such"],
            1,
            "/no/such is no control group of the unified hierarchy; take a directory below ",
        ),
        (&["--progress", "/no/such"], 1, "cannot open the progress counter /no/such: "),
        (&["--progress", "/dev/null"], 1, "/dev/null is no progress counter; "),
        (&["--overhead", "x"], 2, "run-queue wait, "),
        (&["--productivity", "x"], 2, "; of the kernel's events, give a tracepoint, such as "),
        (&["--event", "sched:"], 2, "give a tracepoint, such as "),
        (
            &["--event", "unicorns:seen"],
            1,
            "assay: cannot count unicorns:seen: the kernel has no such tracepoint; `perf list tracepoint` lists",
        ),
        (&["-p", "2147483647", "--event", "unicorns:seen"], 1, "assay: process 2147483647 does not exist\n"),
        (
            &["--productivity", "sched:sched_switch", "--overhead", "sched:sched_switch"],
            1,
            "assay: sched:sched_switch cannot be both productivity and overhead; give another one\n",
        ),
        (
            &["--productivity", "floating-point operations", "-p", "2147483647"],
            1,
            "assay: process 2147483647 does not exist\n",
        ),
        (
            &["--overhead", "run-queue wait"],
            1,
            "assay: run-queue wait is not available: the kernel counts it by thread",
        ),
        (
            &["--productivity", "commits"],
            1,
            "assay: commits is not available: no database was given; give --postgres\n",
        ),
        (&["--period", "1ms"], 2, "give a time between 10ms and 60s"),
        (&["--listen", &address], 1, "give another address\n"),
    ];
    for (arguments, status, expected) in cases {
        let output = watch(&[arguments, &["--duration", "1s"]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(status == 2 || said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
