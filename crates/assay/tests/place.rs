//! `assay reflect place` from outside: what it finds, that it restores what it changed, and its errors.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use assay_process::slice::{LONGEST, slice, usual_slice};
use assay_reflect::advice::{Advice, Class, Queue};
use assay_reflect::progress::Progress;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;
use tempfile::TempDir;

/// Programs in Python that count units of work; each ends with this process, or when it is dropped.
struct Tasks {
    children: Vec<Child>,
    /// Their counters, which have their numbers as names.
    directory: TempDir,
}

impl Tasks {
    /// Starts as many, and returns when each has begun. Each has a thread that sleeps, which may use the
    /// first processor only.
    fn start(count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/progress");
        let program = "import os, sys, threading, time\n\
            from progress import Progress\n\
            def confined():\n    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n    print(flush=True)\n    time.sleep(600)\n\
            progress = Progress(sys.argv[1])\n\
            threading.Thread(target=confined, daemon=True).start()\n\
            end = time.monotonic() + 600\n\
            while time.monotonic() < end:\n    progress.finished()\n";
        let start = |number: usize| {
            let mut command = Command::new("python3");
            command.args(["-c", program]).arg(directory.path().join(number.to_string()));
            let mut child = command.env("PYTHONPATH", &examples).stdout(Stdio::piped()).spawn().unwrap();
            // The thread has confined itself.
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            child
        };
        Self { children: (0..count).map(start).collect(), directory }
    }

    /// Publishes advice on the units of a task, as its program could in C.
    fn advise(&self, number: usize, class: Class, queue: Queue) {
        let progress = Progress::create(&self.directory.path().join(number.to_string())).unwrap();
        progress.advise(&Advice { unit: "request".to_owned(), class, queue, ..Advice::default() }).unwrap();
    }

    fn pids(&self) -> String {
        self.children.iter().map(|child| child.id().to_string()).collect::<Vec<_>>().join(",")
    }

    /// How each thread is now.
    fn state(&self) -> Vec<State> {
        let threads = self.children.iter().flat_map(|child| {
            let entries = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
            entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap())
        });
        let state = |thread: i32| {
            let allowed = sched_getaffinity(Pid::from_raw(thread)).unwrap();
            let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
            let is_stopped = status.contains("State:\tT");
            State { thread, allowed, slice: slice(thread).unwrap(), is_stopped }
        };
        threads.map(state).collect()
    }
}

/// A thread.
#[derive(Debug, PartialEq, Eq)]
struct State {
    /// Its id.
    thread: i32,
    /// The processors that it may use.
    allowed: CpuSet,
    /// Its time slice, if these can be chosen.
    slice: Option<Duration>,
    is_stopped: bool,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for something that has to happen; a test that fails ends after a minute or two.
fn await_that(mut is: impl FnMut() -> bool) {
    let happened = (0..60_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        is()
    });
    assert!(happened);
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(["reflect", "place"]).args(arguments);
    command
}

fn place(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The report that a command printed.
fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The table of a report that has this title.
fn table<'a>(report: &'a Value, title: &str) -> &'a Vec<Value> {
    let mut tables = report["blocks"].as_array().unwrap().iter().map(|block| &block["table"]);
    tables.find(|table| table["title"] == title).unwrap()["rows"].as_array().unwrap()
}

#[test]
fn a_measurement_has_every_pair_and_leaves_everything_as_it_was() {
    let tasks = Tasks::start(3);
    let before = tasks.state();
    assert!(before.iter().any(|thread| thread.allowed.count() == 1));
    let output = place(&["-p", &tasks.pids(), "--period", "10ms", "--duration", "1s", "--json"]);
    let report = report(&output);
    assert_eq!(table(&report, "Productivity").len(), 3);
    assert_eq!(table(&report, "What is left beside another process").len(), 6);
    assert!(text(&output.stderr).ends_with("all processes run as they were found\n"));
    assert_eq!(tasks.state(), before);
}

#[test]
fn a_dry_run_shows_each_process_and_does_nothing_to_it() {
    let tasks = Tasks::start(2);
    tasks.advise(0, Class::Batch, Queue::Never);
    let before = tasks.state();
    let mut idle = Command::new("sleep").arg("600").spawn().unwrap();
    let pids = format!("{},{}", tasks.pids(), idle.id());
    let output = place(&["-p", &pids, "--dry-run", "--period", "1s", "--json"]);
    idle.kill().unwrap();
    idle.wait().unwrap();
    let report = report(&output);
    let rows = table(&report, "As found");
    assert!(rows.len() == 2 && rows.iter().all(|row| row[1]["number"]["value"].as_f64().unwrap() > 0.0));
    let units: Vec<_> = rows.iter().map(|row| row[3]["text"].as_str().unwrap()).collect();
    assert_eq!(units, ["request, never paused, batch", ""]);
    assert_eq!(table(&report, "Left alone").len(), 1);
    assert_eq!(tasks.state(), before);
}

#[test]
fn an_interrupt_in_a_measurement_restores_everything() {
    let tasks = Tasks::start(3);
    tasks.advise(2, Class::Interactive, Queue::Never);
    let before = tasks.state();
    let child = begun(&tasks, &before);
    // Each task has two threads. The first is measured, the last may not be paused.
    let expected = [false, false, true, true, false, false];
    await_that(|| tasks.state().iter().map(|thread| thread.is_stopped).eq(expected));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).ends_with("interrupted; all processes run as they were found\n"));
    assert_eq!(tasks.state(), before);
}

#[test]
fn what_was_changed_is_restored_if_it_is_killed() {
    let tasks = Tasks::start(3);
    let before = tasks.state();
    let mut child = begun(&tasks, &before);
    child.kill().unwrap();
    child.wait().unwrap();
    await_that(|| tasks.state() == before);
}

#[test]
fn batch_jobs_get_long_time_slices_until_it_is_killed() {
    let tasks = Tasks::start(2);
    tasks.advise(0, Class::Batch, Queue::Allowed);
    let before = tasks.state();
    let mut command = command(&["-p", &tasks.pids(), "--period", "10ms"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A kernel before 6.12 has none.
    let long = usual_slice().unwrap().and(Some(LONGEST));
    // Each task has two threads. The second task is not known to be a batch job.
    let expected = [long, long, before[2].slice, before[3].slice];
    await_that(|| tasks.state().iter().map(|thread| thread.slice).eq(expected));
    child.kill().unwrap();
    child.wait().unwrap();
    await_that(|| tasks.state() == before);
}

/// Starts a command, and returns it in its first period, for which it has paused tasks and moved one.
fn begun(tasks: &Tasks, before: &[State]) -> Child {
    let mut command = command(&["-p", &tasks.pids(), "--period", "60s"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    await_that(|| {
        let now = tasks.state();
        let is_paused = now.iter().any(|thread| thread.is_stopped);
        is_paused && now.iter().zip(before).any(|(now, before)| now.allowed != before.allowed)
    });
    child
}

#[test]
fn what_cannot_be_placed_is_one_line() {
    let tasks = Tasks::start(1);
    let (one, own) = (tasks.pids(), std::process::id());
    for (pids, expected) in [
        (one.clone(), "assay: give two processes or more\n".to_owned()),
        (
            format!("{one},{}", i32::MAX),
            format!("assay: process {} cannot be placed: it does not exist\n", i32::MAX),
        ),
        (
            format!("{one},{own}"),
            format!("assay: process {own} cannot be placed: it is this command, or one that started it\n"),
        ),
    ] {
        let output = place(&["-p", &pids]);
        assert_eq!(text(&output.stderr), expected);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    }
    for arguments in [&[][..], &["-p", "0"], &["-p", "1,x"], &["-p", "1", "--cgroup", "/"]] {
        assert_eq!(place(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
