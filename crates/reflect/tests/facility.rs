//! The facility on a real process, a real control group and this machine.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use assay_process::accounting::process_cpu_ns;
use assay_reflect::Cgroup;
use assay_reflect::facility::{Facility, Subject, has_ended, measures};
use assay_reflect::progress::Progress;

/// A shell that works each time a line arrives, answers, and sleeps until the next one.
struct Worker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        const SCRIPT: &str =
            "while read line; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; done";
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Lets it work once. Returns the processor time that this took.
    fn work(&mut self) -> u64 {
        let before_ns = process_cpu_ns(self.pid()).unwrap();
        writeln!(self.child.stdin.as_ref().unwrap(), "go").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
        process_cpu_ns(self.pid()).unwrap() - before_ns
    }

    /// Ends it.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// What was counted since the last call, by the name of the measure.
fn counted(facility: &mut Facility, name: &str) -> Option<u64> {
    let period = facility.period().unwrap();
    assert_eq!(period.counts.len(), facility.measures().len());
    count(facility, &period.counts, name)
}

fn count(facility: &Facility, counts: &[Option<u64>], name: &str) -> Option<u64> {
    let place = facility.measures().iter().position(|measure| measure.name == name);
    counts[place.unwrap_or_else(|| panic!("{name} is not available: {:?}", facility.unavailable()))]
}

/// A control group of its own, removed at the end.
struct Group(PathBuf);

impl Group {
    fn make(name: &str) -> Self {
        let root = Cgroup::open(Path::new("/")).unwrap();
        let path = root.path().join(format!("assay-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn take(&self, worker: &Worker) {
        fs::write(self.0.join("cgroup.procs"), worker.pid().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A test that failed may have left a process in it, which ends with its input.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// What a worker used is what was counted of it: the two clocks are those of one scheduler, but the clock of
/// the process also runs between the two readings.
fn assert_time(counted_ns: Option<u64>, worked_ns: u64) {
    let counted_ns = counted_ns.unwrap();
    let share = counted_ns.abs_diff(worked_ns) * 100 / worked_ns;
    assert!(share <= 10, "{counted_ns} ns of {worked_ns} ns");
}

#[test]
fn a_process_is_observed_until_it_ends() {
    let mut worker = Worker::start();
    worker.work();
    let mut facility = Facility::open(&Subject::Process(worker.pid()), &[]).unwrap();
    let worked_ns = worker.work();
    let period = facility.period().unwrap();
    assert_time(count(&facility, &period.counts, "processor time"), worked_ns);
    // It waits for the next line.
    assert!(count(&facility, &period.counts, "context switches") >= Some(1));
    assert_eq!(counted(&mut facility, "processor time"), Some(0));
    worker.end();
    let error = facility.period().unwrap_err();
    assert!(has_ended(&error), "{error}");
}

#[test]
fn a_control_group_is_observed_until_it_is_removed() {
    let group = Group::make("observed");
    let (mut inside, mut outside) = (Worker::start(), Worker::start());
    group.take(&inside);
    inside.work();
    let mut facility = Facility::open(&Subject::Group(Cgroup::open(&group.0).unwrap()), &[]).unwrap();
    outside.work();
    let worked_ns = inside.work();
    let period = facility.period().unwrap();
    assert_time(count(&facility, &period.counts, "processor time"), worked_ns);
    assert!(count(&facility, &period.counts, "context switches") >= Some(1));
    assert_eq!(count(&facility, &period.counts, "page faults").map(|faults| faults < 1000), Some(true));
    outside.end();
    inside.end();
    // The last process may not have left the group yet when it has been waited for.
    let removed = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        fs::remove_dir(&group.0).is_ok()
    });
    assert!(removed);
    let error = facility.period().unwrap_err();
    assert!(has_ended(&error), "{error}");
}

#[test]
fn threads_of_a_group_count_their_waiting_each_once() {
    let group = Group::make("waiting");
    let workers = [Worker::start(), Worker::start()];
    workers.iter().for_each(|worker| group.take(worker));
    let mut listed = Cgroup::open(&group.0).unwrap().threads().unwrap();
    listed.sort_unstable();
    let mut expected = workers.each_ref().map(Worker::pid);
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let below = group.0.join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("cgroup.procs"), expected[0].to_string()).unwrap();
    let mut listed = Cgroup::open(&group.0).unwrap().threads().unwrap();
    listed.sort_unstable();
    assert_eq!(listed, expected);
    workers.into_iter().for_each(Worker::end);
    assert!((0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        fs::remove_dir(&below).is_ok()
    }));
}

#[test]
fn every_measure_is_available_or_has_a_reason() {
    let documented = include_str!("../../../docs/watch.md");
    for measure in measures() {
        let side = format!("{:?}", measure.side).to_lowercase();
        let row = format!("| {} | {side} | {} |", measure.name, measure.about);
        assert!(documented.contains(&row), "docs/watch.md has no row {row}");
    }
    let all: HashSet<&str> = measures().map(|measure| measure.name).collect();
    assert_eq!(all.len(), measures().count());
    let own = Subject::Process(i32::try_from(std::process::id()).unwrap());
    let root = Subject::Group(Cgroup::open(Path::new("/")).unwrap());
    for subject in [Subject::Machine, own, root] {
        let facility = Facility::open(&subject, &[]).unwrap();
        let available = facility.measures().iter().map(|measure| measure.name);
        let unavailable = facility.unavailable().iter().map(|one| one.measure.name);
        assert_eq!(available.chain(unavailable).collect::<HashSet<_>>(), all, "{subject:?}");
        assert!(facility.unavailable().iter().all(|one| !one.reason.is_empty()));
        // These need neither hardware nor a controller.
        for name in ["user time", "processor time", "context switches", "page faults"] {
            assert!(facility.measures().iter().any(|measure| measure.name == name), "{subject:?}: {name}");
        }
    }
}

#[test]
fn progress_counters_are_added_up() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let counters = paths.each_ref().map(|path| Progress::create(path).unwrap());
    counters[0].finished(100);
    let mut facility = Facility::open(&Subject::Machine, &paths).unwrap();
    counters[0].finished(3);
    counters[1].finished(4);
    counters[1].failed(5);
    let period = facility.period().unwrap();
    assert_eq!(count(&facility, &period.counts, "progress"), Some(7));
    assert_eq!(count(&facility, &period.counts, "failures"), Some(5));
    fs::write(&paths[0], "").unwrap();
    let error = facility.period().unwrap_err();
    assert!(!has_ended(&error) && error.to_string().contains("was truncated"), "{error}");
}
