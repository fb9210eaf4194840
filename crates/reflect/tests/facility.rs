//! The facility on a real process, a real control group and this machine.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use assay_process::Process;
use assay_process::accounting::process_cpu_ns;
use assay_reflect::Cgroup;
use assay_reflect::facility::{
    Ended, Facility, GroupTime, NoFacility, Period, Request, Side, Subject, measures,
};
use assay_reflect::progress::Progress;

/// A shell that works each time a line arrives, answers, and sleeps until the next one.
struct Worker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        // In both modes: each turn opens and closes a file.
        Self::repeating(50_000, ": >/dev/null")
    }

    /// For each line, it does this as often.
    fn repeating(times: u32, what: &str) -> Self {
        let script = format!(
            "while read line; do i=0; while [ $i -lt {times} ]; do {what}; i=$((i+1)); done; echo done; done"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Lets it work once, and waits until it sleeps. Returns the processor time that this took.
    fn work(&mut self) -> u64 {
        let before_ns = process_cpu_ns(self.pid()).unwrap();
        writeln!(self.child.stdin.as_ref().unwrap(), "go").unwrap();
        self.answered(before_ns)
    }

    /// Waits for the answer, and until it sleeps. Returns its processor time since it was `before_ns`.
    fn answered(&mut self, before_ns: u64) -> u64 {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
        while !Process::read(self.pid()).unwrap().unwrap().is_asleep() {
            std::thread::yield_now();
        }
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

/// Removes a control group, if there is one. Processes that have been waited for leave it soon.
fn soon_removed(path: &Path) -> bool {
    (0..1000).any(|_| {
        let removed = !path.exists() || fs::remove_dir(path).is_ok();
        if !removed {
            std::thread::sleep(Duration::from_millis(1));
        }
        removed
    })
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
        // A test that failed may have left processes and a group in it.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let removed = soon_removed(&self.0.join("below")) && soon_removed(&self.0);
        assert!(removed || std::thread::panicking(), "{} is left", self.0.display());
    }
}

/// What a worker used is what was counted of it, but for the rounding of a control group to microseconds.
fn assert_time(counted_ns: Option<u64>, worked_ns: u64) {
    let counted_ns = counted_ns.unwrap();
    assert!(counted_ns.abs_diff(worked_ns) <= worked_ns / 100, "{counted_ns} ns of {worked_ns} ns");
}

/// The worker waits for its next line: it has been switched away from, or is about to be.
fn assert_switches(facility: &mut Facility, period: &Period) {
    let mut switches = count(facility, &period.counts, "context switches").unwrap_or(0);
    for _ in 0..1000 {
        if switches > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
        switches += counted(facility, "context switches").unwrap_or(0);
    }
    panic!("no switch is counted");
}

#[test]
fn a_process_is_observed_until_it_ends() {
    let mut worker = Worker::start();
    worker.work();
    let mut facility = Facility::open(&Subject::Process(worker.pid()), Request::default()).unwrap();
    let worked_ns = worker.work();
    let period = facility.period().unwrap();
    assert_time(count(&facility, &period.counts, "processor time"), worked_ns);
    assert_switches(&mut facility, &period);
    // What is left of the switch.
    assert!(counted(&mut facility, "processor time").unwrap() < worked_ns / 100);
    worker.end();
    assert_eq!(facility.period(), Err(Ended));
}

#[test]
fn a_control_group_is_observed_until_it_is_removed() {
    let group = Group::make("observed");
    let (mut inside, mut outside) = (Worker::start(), Worker::start());
    group.take(&inside);
    inside.work();
    let mut facility =
        Facility::open(&Subject::Group(Cgroup::open(&group.0).unwrap()), Request::default()).unwrap();
    outside.work();
    let worked_ns = inside.work();
    let period = facility.period().unwrap();
    assert_time(count(&facility, &period.counts, "processor time"), worked_ns);
    let modes = ["user time", "system time"].map(|mode| count(&facility, &period.counts, mode).unwrap());
    assert!(modes.iter().all(|mode_ns| *mode_ns > worked_ns / 50), "{modes:?} of {worked_ns}");
    assert_time(Some(modes.iter().sum()), worked_ns);
    assert_switches(&mut facility, &period);
    outside.end();
    inside.end();
    assert!(soon_removed(&group.0));
    assert_eq!(facility.period(), Err(Ended));
}

#[test]
fn the_processor_time_of_a_group_goes_on_when_it_is_made_anew() {
    let group = Group::make("anew");
    let mut time = GroupTime::open(Cgroup::open(&group.0).unwrap()).unwrap();
    let mut worker = Worker::start();
    group.take(&worker);
    time.since_last().unwrap();
    let worked_ns = worker.work();
    let counted = time.since_last().unwrap();
    assert!(u128::from(worked_ns) <= counted.as_nanos() * 101 / 100, "{counted:?} of {worked_ns} ns");
    worker.end();
    assert!(soon_removed(&group.0));
    assert_eq!((time.since_last(), time.since_last()), (None, None));
    fs::create_dir(&group.0).unwrap();
    assert_eq!((time.since_last(), time.since_last()), (None, Some(Duration::ZERO)));
}

#[test]
fn groups_below_a_group_belong_to_it() {
    let group = Group::make("below");
    let below = group.0.join("below");
    fs::create_dir(&below).unwrap();
    let workers = [Worker::start(), Worker::start()];
    group.take(&workers[0]);
    fs::write(below.join("cgroup.procs"), workers[1].pid().to_string()).unwrap();
    let mut listed = Cgroup::open(&group.0).unwrap().threads().unwrap();
    listed.sort_unstable();
    let mut expected = workers.each_ref().map(Worker::pid);
    expected.sort_unstable();
    assert_eq!(listed, expected);
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn two_that_share_a_processor_wait_for_it() {
    let group = Group::make("waiting");
    let cpu = assay_process::cpus::allowed().unwrap()[0];
    let mut workers = [Worker::start(), Worker::start()];
    for worker in &workers {
        group.take(worker);
        let pid = rustix::process::Pid::from_child(&worker.child);
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu);
        rustix::thread::sched_setaffinity(Some(pid), &only).unwrap();
    }
    let mut facility =
        Facility::open(&Subject::Group(Cgroup::open(&group.0).unwrap()), Request::default()).unwrap();
    workers.iter().for_each(|worker| writeln!(worker.child.stdin.as_ref().unwrap(), "go").unwrap());
    let worked_ns: Vec<u64> = workers.iter_mut().map(|worker| worker.answered(0)).collect();
    // The threads may not be read in each period.
    let (mut waited_ns, mut pressed_ns) = (0, 0);
    for _ in 0..1000 {
        if waited_ns > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        let counts = facility.period().unwrap().counts;
        waited_ns += count(&facility, &counts, "run-queue wait").unwrap_or(0);
        pressed_ns += count(&facility, &counts, "processor pressure").unwrap();
    }
    // While both had work, one waited.
    let least_ns = worked_ns.iter().min().unwrap() / 2;
    assert!(waited_ns > least_ns && pressed_ns > least_ns, "{waited_ns} {pressed_ns} {worked_ns:?}");
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn every_measure_is_available_or_has_a_reason() {
    let documented = include_str!("../../../docs/watch.md");
    for measure in measures() {
        assert!(!measure.is_kernel_event(), "{}", measure.name);
        let side = format!("{:?}", measure.side).to_lowercase();
        let row = format!("| {} | {side} | {} |", measure.name, measure.about);
        assert!(documented.contains(&row), "docs/watch.md has no row {row}");
    }
    let all: HashSet<_> = measures().map(|measure| &*measure.name).collect();
    assert_eq!(all.len(), measures().count());
    let own = Subject::Process(i32::try_from(std::process::id()).unwrap());
    let root = Subject::Group(Cgroup::open(Path::new("/")).unwrap());
    for subject in [Subject::Machine, own, root] {
        let facility = Facility::open(&subject, Request::default()).unwrap();
        let available = facility.measures().iter().map(|measure| &*measure.name);
        let unavailable = facility.unavailable().iter().map(|one| &*one.measure.name);
        assert_eq!(available.chain(unavailable).collect::<HashSet<_>>(), all, "{subject:?}");
        assert!(facility.unavailable().iter().all(|one| !one.reason.is_empty()));
        // These need neither hardware nor a controller.
        for name in ["user time", "processor time", "context switches", "page faults"] {
            assert!(facility.measures().iter().any(|measure| measure.name == name), "{subject:?}: {name}");
        }
    }
}

#[test]
fn events_of_the_kernel_are_those_of_the_subject() {
    const FORKS: u32 = 100;
    let group = Group::make("events");
    let mut workers = [(); 2].map(|()| Worker::repeating(FORKS, "(:)"));
    group.take(&workers[0]);
    let events = ["sched:sched_process_fork", "sched:sched_process_exit"];
    let subjects = [
        Subject::Process(workers[0].pid()),
        Subject::Group(Cgroup::open(&group.0).unwrap()),
        Subject::Machine,
    ];
    let mut facilities = subjects.map(|subject| {
        let events = events.map(|event| (event.parse().unwrap(), Side::Overhead)).to_vec();
        Facility::open(&subject, Request { events, ..Request::default() }).unwrap()
    });
    workers.iter_mut().for_each(|worker| {
        worker.work();
    });
    let [of_process, of_group, of_machine] = facilities.each_mut().map(|facility| {
        let counts = facility.whole_period().unwrap().counts;
        events.map(|event| count(facility, &counts, event).unwrap())
    });
    let forks = u64::from(FORKS);
    // The children of a process belong to its group only.
    assert_eq!((of_process, of_group), ([forks, 0], [forks, forks]));
    assert!(of_machine.iter().all(|count| *count >= 2 * forks), "{of_machine:?}");
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn an_event_that_cannot_be_counted_is_an_error() {
    let request = || {
        let events = vec![("unicorns:seen".parse().unwrap(), Side::Productivity)];
        Request { events, ..Request::default() }
    };
    let error = Facility::open(&Subject::Machine, request()).unwrap_err().to_string();
    assert!(error.starts_with("cannot count unicorns:seen: the kernel has no such tracepoint"), "{error}");
    // That the subject has ended is reported first.
    let error = Facility::open(&Subject::Process(i32::MAX), request()).unwrap_err();
    assert!(matches!(error, NoFacility::Ended(_)), "{error}");
}

#[test]
fn progress_counters_are_added_up() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let counters = paths.each_ref().map(|path| Progress::create(path).unwrap());
    counters[0].finished(100);
    let request = Request { progress: paths.to_vec(), ..Request::default() };
    let mut facility = Facility::open(&Subject::Machine, request).unwrap();
    counters[0].finished(3);
    counters[1].finished(4);
    counters[1].failed(5);
    let period = facility.period().unwrap();
    assert_eq!(count(&facility, &period.counts, "progress"), Some(7));
    assert_eq!(count(&facility, &period.counts, "failures"), Some(5));
    fs::write(&paths[0], "").unwrap();
    // The others are read on.
    assert_eq!(counted(&mut facility, "progress"), None);
    let lost = facility.unavailable().iter().find(|one| one.measure.name == "progress").unwrap();
    assert!(lost.reason.ends_with("was truncated or removed"), "{}", lost.reason);
    assert!(counted(&mut facility, "interrupts").is_some());
}
