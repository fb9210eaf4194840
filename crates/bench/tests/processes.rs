//! Tests the harness with real processes, the real kernel and real disturbance.
//!
//! This file has its own `main`, because the executable of the test is also the program that the harness
//! starts for every sample. It runs its tests sequentially, because they measure.

#![expect(clippy::unwrap_used, reason = "the whole executable is a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_bench::{
    Benchmark, Finding, Measured, Plan, Sabotage, Spawner, calibrate, catalogue, find, measure, sample_main,
    yields_sample_despite_sabotage,
};
use assay_quantity::evidence::RUNNABLE_ELSEWHERE;
use assay_quantity::{PrimitiveId, Sample, Unmeasured};
use assay_statistics::aspect::value;
use assay_statistics::cost_ns;
use assay_statistics::disturbance::disturbed;
use assay_statistics::slope::NoCost;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const TESTS: &[(&str, fn())] = &[
    ("every_primitive_of_the_catalogue_runs_here_and_takes_time", every_primitive_runs),
    ("no_benchmark_yields_a_sample_when_its_work_is_removed", sabotage_is_noticed),
    ("with_cold_caches_and_with_copies_the_same_operations_are_measured", modifiers_work),
    ("the_kernel_sees_exactly_the_calls_that_were_counted", the_kernel_sees_the_calls),
    ("a_process_that_fails_is_a_rejected_sample_with_its_reason", failures_are_rejected),
    ("a_process_that_hangs_is_killed_when_the_run_is_stopped", stop_kills_the_running_process),
    ("a_competitor_on_every_processor_takes_time_from_batches_of_every_benchmark", competitors_are_seen),
    ("on_one_processor_a_primitive_that_needs_two_is_unavailable", one_processor_is_too_few),
    ("a_seed_reproduces_the_seeds_of_the_samples", seeds_differ_and_are_kept),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("sample") => match sample_main(&arguments[1], &mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Some("sabotaged") => sabotaged(&arguments[1], &arguments[2]),
        Some("hang") => hang(&arguments[1]),
        Some("crash") => std::process::abort(),
        Some("babble") => {
            let _ = io::stdout().write_all(b"{\"sample\":null}\n");
            ExitCode::SUCCESS
        }
        _ => run_tests(arguments.iter().find(|argument| !argument.starts_with('-'))),
    }
}

fn run_tests(filter: Option<&String>) -> ExitCode {
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| filter.is_none_or(|part| name.contains(part))) {
        let passed = std::panic::catch_unwind(test).is_ok();
        let _ = writeln!(io::stderr(), "test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += i32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a benchmark without its work. Reports the result only by the exit status: the call that writes
/// may be sabotaged.
fn sabotaged(how: &str, request: &str) -> ExitCode {
    let (how, _) = Sabotage::NAMES.into_iter().find(|(_, name)| *name == how).unwrap();
    match yields_sample_despite_sabotage(request, how).unwrap() {
        None => ExitCode::from(NOT_PREPARED),
        Some(true) => ExitCode::from(A_NUMBER),
        Some(false) => ExitCode::from(NOTICED),
    }
}

const A_NUMBER: u8 = 71;
const NOTICED: u8 = 72;
const NOT_PREPARED: u8 = 73;

/// Writes its process id to a file, and then hangs.
fn hang(pid_file: &str) -> ExitCode {
    fs::write(pid_file, std::process::id().to_string()).unwrap();
    loop {
        std::thread::park();
    }
}

fn spawner(arguments: &[&str]) -> Spawner {
    let arguments = arguments.iter().map(Into::into).collect();
    Spawner { program: std::env::current_exe().unwrap(), arguments }
}

fn plan(processes: usize) -> Plan {
    Plan {
        seed: 4711,
        processes_min: processes,
        processes_max: processes,
        budget: Duration::from_secs(3600),
        relative_half_width: 0.0,
        sample_limit: Duration::from_secs(60),
        directory: std::env::temp_dir(),
        peer: None,
        counters: false,
        effective: None,
        clock: calibrate(),
    }
}

fn chosen(ids: &[&str]) -> Vec<Benchmark> {
    let all = catalogue();
    ids.iter().map(|id| all.iter().find(|b| b.primitive.to_string() == *id).unwrap().clone()).collect()
}

fn run(plan: &Plan, benchmarks: &[Benchmark], spawner: &Spawner) -> Vec<Finding> {
    measure(plan, benchmarks, &[], spawner, &AtomicBool::new(false), &mut |_, _| {}).unwrap()
}

/// Part of the reason of a primitive whose processes all failed.
const FAILED: &str = "processes failed, the last one";

/// With a busy loop on every processor, none of 240 processes that wake, interrupt or are interrupted failed.
const PROCESSES_THAT_MAY_FAIL: usize = 20;

fn every_primitive_runs() {
    for (part, ..) in MAY_BE_MISSING {
        assert!(catalogue().iter().any(|known| known.primitive.to_string().contains(part)), "{part}");
    }
    for finding in run(&plan(1), &catalogue(), &spawner(&["sample"])) {
        let missing = match finding {
            Finding::Measured(measured) => {
                assert_takes_time(&measured);
                continue;
            }
            Finding::Unmeasured(missing) => missing,
        };
        // A busy machine may disturb one process, but not all.
        if missing.reason.contains(FAILED) {
            let benchmark = find(&missing.primitive).unwrap();
            let is_measured = |_| {
                let again = run(&plan(1), std::slice::from_ref(&benchmark), &spawner(&["sample"]));
                matches!(&again[0], Finding::Measured(_))
            };
            assert!((0..PROCESSES_THAT_MAY_FAIL).any(is_measured), "{missing:?}");
            continue;
        }
        assert_may_be_missing(&missing);
    }
}

/// Asserts that each process timed batches of operations that determine a cost. The cost is not checked: on a
/// busy machine a difference of batches may be below zero.
fn assert_takes_time(Measured { primitive, samples, rejected, .. }: &Measured) {
    assert!(!samples.is_empty(), "{primitive}: {rejected:?}");
    for sample in samples {
        assert!(matches!(cost_ns(sample), Ok(_) | Err(NoCost::NotPositive(_))), "{primitive}: {sample:?}");
        assert!(sample.observations.iter().all(|batch| batch.elapsed_ns > 0.0), "{primitive}: {sample:?}");
    }
}

/// A feature that a machine may lack: a part of the ids of the primitives that need it, a part of the reason
/// that they report, and whether this machine may lack it as far as the test can determine.
type Lack = (&'static str, &'static str, fn() -> bool);

const MAY_BE_MISSING: &[Lack] = &[
    ("", "this process may use one processor only", || allowed().len() == 1),
    ("from=", "none of the processors that this process may use", || !allowed().contains(&0)),
    ("memory.load_node", "this machine has one memory node", || true),
    ("filesystem=", "is a writable directory on", || true),
    ("peer=remote", "no peer was specified", || true),
    ("level=", "does not report the size of the cache", || true),
    ("stores=", "does not report the size of its second-level cache", || true),
    ("level=dram", "is too large for the largest working set", || true),
    ("level=dram", "does not fit into half of the", || true),
    ("set=", "does not fit into half of the", || true),
    ("pages=huge", "huge page", || true),
    ("disk.", "reaches no storage", || true),
    ("disk.", "cannot be opened with O_DIRECT", || true),
    ("sync{size=", "reaches no storage", || true),
    ("page_fault.major", "reaches no storage", || true),
    ("page_fault.major", "cannot be opened with O_DIRECT", || true),
    ("uring.", "may not use io_uring", || true),
    ("exception.null", "the kernel maps no [vsyscall] page", || true),
    ("interrupt.", "does not count", || true),
];

fn assert_may_be_missing(Unmeasured { primitive, reason }: &Unmeasured) {
    let id = primitive.to_string();
    let fits = |(part, given, may_be): &Lack| id.contains(part) && reason.contains(given) && may_be();
    assert!(
        MAY_BE_MISSING.iter().any(fits),
        "{id}: {reason} (if a machine may lack this, it is a row of MAY_BE_MISSING)"
    );
}

/// Returns one benchmark of each kind: those with the same name and the same keys differ only in numbers and
/// words.
fn kinds() -> Vec<Benchmark> {
    let mut seen = BTreeSet::new();
    let kind = |id: &PrimitiveId| {
        (format!("{}.{}", id.family(), id.operation()), id.keys().keys().copied().collect::<Vec<_>>())
    };
    catalogue().into_iter().filter(|benchmark| seen.insert(kind(&benchmark.primitive))).collect()
}

fn sabotage_is_noticed() {
    let plan = Plan { sample_limit: Duration::from_secs(20), ..plan(1) };
    let (mut noticed, mut unnoticed, mut untried) = (0, Vec::new(), BTreeMap::new());
    for (how, name) in Sabotage::NAMES {
        let makes_calls = |benchmark: &Benchmark| how == Sabotage::Idle || !benchmark.calls.is_empty();
        let benchmarks: Vec<Benchmark> = kinds().into_iter().filter(makes_calls).collect();
        for finding in run(&plan, &benchmarks, &spawner(&["sabotaged", name])) {
            let Finding::Unmeasured(Unmeasured { primitive, reason }) = finding else {
                panic!("{finding:?}")
            };
            let ended_with = |status: u8| reason.ends_with(&format!("ended with status {status}"));
            if ended_with(A_NUMBER) {
                unnoticed.push(undetected(how, &find(&primitive).unwrap()));
            } else if ended_with(NOT_PREPARED) {
                untried.insert(primitive, name);
            } else {
                // Calls that fail or pretend may also kill the process, which then yields no sample.
                let died = ["ended with status ", "killed by signal ", "did not end within "];
                assert!(died.iter().any(|end| reason.contains(end)), "{primitive} ({name}): {reason}");
                noticed += usize::from(ended_with(NOTICED));
            }
        }
    }
    assert!(noticed > kinds().len(), "only {noticed} were sabotaged");
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    // A primitive that could not be prepared must be missing for a known reason.
    for (primitive, name) in untried {
        match &run(&self::plan(1), &[find(&primitive).unwrap()], &spawner(&["sample"]))[0] {
            Finding::Unmeasured(missing) => assert_may_be_missing(missing),
            Finding::Measured(_) => panic!("{primitive} runs, but could not be sabotaged ({name})"),
        }
    }
}

/// Returns the message for a benchmark that yields a sample without its work.
fn undetected(how: Sabotage, Benchmark { primitive, calls, .. }: &Benchmark) -> String {
    match how {
        Sabotage::Idle => format!("{primitive} yields a sample although its batches do nothing"),
        Sabotage::Fail => {
            format!("{primitive} yields a sample although {calls:?} fail: does it make and check them?")
        }
        Sabotage::Pretend => {
            format!("{primitive} yields a sample although {calls:?} do nothing: does it make and check them?")
        }
    }
}

fn modifiers_work() {
    let ids = [
        "call.null{cache=cold}",
        "file.stat{cache=cold}",
        "page_fault.anonymous{cache=cold}",
        "pipe.round_trip{size=1B,cpus=same,cache=cold}",
        "call.null{copies=2}",
        "memory.read{level=l2,copies=3,placement=free}",
        "tcp.send{size=1KiB,buffer=reused}",
    ];
    let wanted: Vec<Benchmark> = ids.iter().map(|id| find(&id.parse().unwrap()).unwrap()).collect();
    for (id, finding) in ids.iter().zip(run(&plan(1), &wanted, &spawner(&["sample"]))) {
        let Finding::Measured(measured) = finding else { panic!("{finding:?}") };
        assert_eq!(measured.primitive.to_string(), **id);
        assert_takes_time(&measured);
        let batches = &measured.samples[0].observations;
        let none = batches.iter().filter(|batch| batch.operations == 0).count();
        assert_eq!(none * 2 == batches.len(), id.contains("cold"), "{id}");
    }
    let crowd = find(&"call.null{copies=9999}".parse().unwrap()).unwrap();
    let together =
        find(&"process.context_switch{processes=2,cpus=same,cache=cold}".parse().unwrap()).unwrap();
    let findings = run(&plan(1), &[together], &spawner(&["sample"]));
    assert!(format!("{findings:?}").contains("a batch has at least 2 operations"), "{findings:?}");
    let findings = run(&plan(1), &[crowd], &spawner(&["sample"]));
    assert!(format!("{findings:?}").contains("copies=9999 is not between 1 and"), "{findings:?}");
}

/// Compares the lines that `strace` writes for a benchmark with the operations that its sample reports.
fn the_kernel_sees_the_calls() {
    let expected: [(&str, &[&str]); 8] = [
        ("call.null", &["getppid()"]),
        ("null.write{size=1B}", &["write(", "\"\\0\", 1)"]),
        ("file.stat", &["stat", "/file-"]),
        ("file.open_close", &["open", "/file-", "O_RDONLY)"]),
        ("file.open_missing", &["open", "/missing\"", "ENOENT"]),
        ("signal.deliver", &["kill(", "SIGUSR1)"]),
        ("tcp.accept", &["accept4(", "SOCK_CLOEXEC) = "]),
        ("page_fault.anonymous", &[]),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (id, line) in expected {
        let trace = directory.path().join("trace");
        let executable = std::env::current_exe().unwrap();
        let words = ["-f", "-o", trace.to_str().unwrap(), executable.to_str().unwrap(), "sample"];
        let strace = Spawner { program: "strace".into(), arguments: words.map(Into::into).to_vec() };
        let findings = run(&plan(1), &chosen(&[id]), &strace);
        let Finding::Measured(measured) = &findings[0] else { panic!("{findings:?}") };
        let operations: Vec<u64> = measured.samples[0].observations.iter().map(|o| o.operations).collect();
        let shortest = operations.iter().max().unwrap() / 2;
        // Doubling up to 2n makes 4n - 1 calls before the batches that were timed.
        let calls = 4 * shortest - 1 + operations.iter().sum::<u64>();
        let text = fs::read_to_string(&trace).unwrap();
        let seen = text.lines().filter(|seen| line.iter().all(|part| seen.contains(part))).count();
        if line.is_empty() {
            // Faults are not calls: `strace` must see one mapping per batch, which checks itself by
            // ru_minflt. One more is the memory that shuffles the kernel's free lists.
            let lengths = u64::from(shortest.ilog2()) + 2 + operations.len() as u64 + 1;
            let advised = text.lines().filter(|line| line.contains("MADV_NOHUGEPAGE")).count();
            assert_eq!(advised as u64, lengths, "{id}");
        } else {
            assert_eq!(seen as u64, calls, "{id}: {shortest}");
        }
    }
}

fn failures_are_rejected() {
    let pid_file = tempfile::NamedTempFile::new().unwrap();
    let pid_file = pid_file.path().to_str().unwrap();
    // Only the process that hangs may exceed its limit, and only after it has written its process id.
    let (ample, short) = (Duration::from_secs(60), Duration::from_secs(5));
    let cases: [(&[&str], Duration, &str); 4] = [
        (&["crash"], ample, "killed by signal 6"),
        (&["babble"], ample, "did not answer with a sample"),
        (&["hang", pid_file], short, "did not end within 5.0 s"),
        (&["sample", "no request"], ample, "ended with status 1"),
    ];
    for (arguments, sample_limit, reason) in cases {
        let plan = Plan { sample_limit, ..plan(1) };
        let findings = run(&plan, &chosen(&["call.null"]), &spawner(arguments));
        let Finding::Unmeasured(unmeasured) = &findings[0] else { panic!("{findings:?}") };
        assert!(unmeasured.reason.contains(reason), "{}", unmeasured.reason);
    }
    assert!(is_gone(pid_file), "a process that took too long still runs");
    let script = ["-c", "exec >/dev/null; exec sleep 1000"].map(Into::into).to_vec();
    let silent = Spawner { program: "/bin/sh".into(), arguments: script };
    let brief = Plan { sample_limit: Duration::from_secs(1), ..plan(1) };
    let findings = run(&brief, &chosen(&["call.null"]), &silent);
    assert!(format!("{findings:?}").contains("did not end within 1.0 s"), "{findings:?}");
    let missing = Spawner { program: PathBuf::from("/no/such/program"), arguments: vec![] };
    let findings = run(&plan(1), &chosen(&["call.null"]), &missing);
    assert!(format!("{findings:?}").contains("cannot start /no/such/program"), "{findings:?}");
}

fn is_gone(pid_file: &str) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    assert!(!pid.is_empty(), "the process never wrote its process id");
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn stop_kills_the_running_process() {
    let pid_file = tempfile::NamedTempFile::new().unwrap();
    let path = pid_file.path().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let setter = {
        let (stop, path) = (stop.clone(), path.clone());
        std::thread::spawn(move || {
            // Stop as soon as the process runs.
            while fs::read_to_string(&path).unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        })
    };
    let hanging = spawner(&["hang", path.to_str().unwrap()]);
    let mut seen = 0;
    let benchmarks = chosen(&["call.null", "file.stat"]);
    let findings = measure(&plan(9), &benchmarks, &[], &hanging, &stop, &mut |_, _| seen += 1).unwrap();
    setter.join().unwrap();
    assert!(is_gone(path.to_str().unwrap()));
    assert_eq!((findings.len(), seen), (2, 0));
}

/// A busy loop on one processor. Dropping it ends the loop.
struct Competitor(Child);

impl Competitor {
    fn on(cpu: usize) -> Self {
        let child = Command::new("yes").stdout(Stdio::null()).spawn().unwrap();
        let mut set = CpuSet::new();
        set.set(cpu);
        let pid = rustix::process::Pid::from_child(&child);
        sched_setaffinity(Some(pid), &set).unwrap();
        Self(child)
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// The batches of a process take a few milliseconds, and the scheduler may interrupt it only between them:
/// with `page_fault.anonymous` it does so in 38 of 40 processes. A primitive that was disturbed once is not
/// run again.
const ROUNDS_BESIDE_COMPETITORS: usize = 400;

fn competitors_are_seen() {
    let ids = [
        "call.null",
        "clock.gettime",
        "signal.deliver",
        "file.open_close",
        "file.read{size=4KiB,buffer=reused}",
        "memory.read{level=l1}",
        "memory.load{level=l2}",
        "epoll.ctl",
        "tcp.transfer{size=4KiB,buffer=reused}",
        "page_fault.anonymous",
        "process.fork_exit",
        "pipe.round_trip{size=1B,cpus=different}",
        "process.wakeup{cpus=different}",
        "tcp.wakeup{cpus=different}",
        "interrupt.timer",
        "interrupt.ipi{cpus=different}",
        "tlb.shootdown{cpus=different}",
    ];
    let competitors: Vec<Competitor> = allowed().into_iter().map(Competitor::on).collect();
    let mut unseen = ids.to_vec();
    if allowed().len() == 1 {
        unseen.retain(|id| !id.contains("cpus=different"));
    }
    for _ in 0..ROUNDS_BESIDE_COMPETITORS {
        let findings = run(&plan(2), &chosen(&unseen), &spawner(&["sample"]));
        for finding in findings {
            let measured = match finding {
                Finding::Measured(measured) => measured,
                Finding::Unmeasured(Unmeasured { reason, .. }) if reason.contains(FAILED) => continue,
                Finding::Unmeasured(missing) => {
                    assert_may_be_missing(&missing);
                    unseen.retain(|id| *id != missing.primitive.to_string());
                    continue;
                }
            };
            let elsewhere = |sample: &Sample| {
                value(&sample.evidence, RUNNABLE_ELSEWHERE).is_some_and(|tasks| tasks > 0.0)
            };
            let lost_time = |sample: &Sample| sample.refused > 0 || disturbed(sample)[0].contains(&true);
            if measured.samples.iter().any(|sample| elsewhere(sample) && lost_time(sample)) {
                unseen.retain(|id| *id != measured.primitive.to_string());
            }
        }
        if unseen.is_empty() {
            break;
        }
    }
    drop(competitors);
    assert_eq!(unseen, [""; 0], "no batch of these was disturbed while other tasks were runnable");
}

fn one_processor_is_too_few() {
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set(allowed()[0]);
    sched_setaffinity(None, &one).unwrap();
    let ids = ["pipe.round_trip{size=1B,cpus=different}", "pipe.round_trip{size=1B,cpus=same}"];
    let findings = run(&plan(1), &chosen(&ids), &spawner(&["sample"]));
    sched_setaffinity(None, &all).unwrap();
    let Finding::Unmeasured(different) = &findings[0] else { panic!("{findings:?}") };
    assert!(different.reason.contains("one processor only"), "{}", different.reason);
    assert!(matches!(findings[1], Finding::Measured(_)));
}

fn seeds_differ_and_are_kept() {
    let seeds = |seed| {
        let findings = run(&Plan { seed, ..plan(4) }, &chosen(&["call.null"]), &spawner(&["sample"]));
        let Finding::Measured(measured) = &findings[0] else { panic!("{findings:?}") };
        measured.samples.iter().map(|sample| sample.seed).collect::<Vec<_>>()
    };
    let first = seeds(1);
    assert_eq!(first, seeds(1));
    assert_ne!(first, seeds(2));
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
}
