//! The traced processes: children, threads and processes that ran before the recorder, and no others.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use assay_process::Exit;
use assay_trace::{Event, Writer, syscall};
use assay_trace_probe::{Options, Recorder, Unavailable, opening};

use crate::support::{EXERCISE, children, kill, read, record, record_while, wait_until_in};

#[test]
fn children_and_grandchildren_are_traced_and_unrelated_processes_are_not() {
    let mut bystander =
        Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]).spawn().unwrap();
    let recording = record(&["sh", "-c", "sh -c '/bin/true; /bin/true; :' & /bin/true; wait; :"]);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    let mut family = BTreeSet::from([recording.process]);
    let mut programs = Vec::new();
    for record in &recording.records {
        match record.event {
            Event::Fork { child_process, .. } => {
                assert!(family.contains(&record.process));
                family.insert(child_process);
            }
            Event::Exec { path } => programs.push(path.to_text()),
            _ => {}
        }
    }
    assert_eq!(family.len(), 5, "the shell, its three children and grandchildren, and the second shell");
    assert!(recording.records.iter().all(|record| family.contains(&record.process)));
    assert_eq!(programs.iter().filter(|path| path.ends_with("/true")).count(), 3);
    let ended = recording
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::Exit { whole_process: true, .. }));
    assert_eq!(ended.count(), 5);
}

#[test]
fn the_first_record_of_a_child_is_its_wait_for_a_cpu_and_its_calls_match() {
    let recording = record(&["sh", "-c", "/bin/true; :"]);
    let child = recording.records.iter().find_map(|record| match record.event {
        Event::Fork { child_process, .. } => Some(child_process),
        _ => None,
    });
    let first = recording.records.iter().find(|record| Some(record.process) == child).unwrap();
    // A wait that is missing although nothing was lost is a fault of the probe: show what else was recorded.
    let waits: Vec<_> = recording
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::Fork { .. } | Event::OffCpu { .. }))
        .collect();
    assert!(
        matches!(first.event, Event::OffCpu { blocked_ns: 0, waiting_ns: 1.. }),
        "{first:?}\n{waits:#?}\n{:?}, {} lost",
        recording.recorded,
        recording.gaps
    );
}

#[test]
fn threads_are_traced() {
    let recording = record(&[EXERCISE, "threads"]);
    assert_eq!(recording.calls("getppid").len(), 300);
    let number = syscall::number("getppid").unwrap();
    let callers: BTreeSet<_> = recording
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::Call(call) if call.number == number))
        .map(|record| (record.process, record.thread))
        .collect();
    assert_eq!(callers.len(), 3);
    assert!(callers.iter().all(|(process, thread)| *process == recording.process && thread != process));
}

/// A signal ends a call before it ends the thread, so a killed sleep is recorded as a return.
#[test]
fn a_killed_sleep_is_cut_short() {
    let recording = record_while(&["sleep", "1000"], Options::default(), |sleep| {
        wait_until_in("clock_nanosleep", sleep);
        kill(sleep, libc::SIGKILL);
    });
    assert_eq!(recording.exit, Exit::Signal(libc::SIGKILL));
    let sleeps = recording.calls("clock_nanosleep");
    assert_eq!(sleeps.len(), 1);
    assert!(sleeps[0].blocked_ns > 0);
    assert_eq!(sleeps[0].errno(), Some(516), "ERESTART_RESTARTBLOCK, which only a tracer sees");
}

#[test]
fn an_exit_is_a_call_that_never_returns() {
    let recording = record(&["sh", "-c", "/bin/true; :"]);
    let exit = syscall::number("exit_group").unwrap();
    let unfinished = recording.records.iter().filter_map(|record| match record.event {
        Event::Unfinished(call) => Some(call.number),
        _ => None,
    });
    let unfinished: Vec<_> = unfinished.collect();
    assert_eq!(unfinished, [exit; 2], "the shell and its child");
}

/// A shell with a child, both started before the recorder; the child starts a program for each line of its
/// input.
#[test]
fn processes_that_ran_before_the_recorder_are_traced_and_still_run_after_it() {
    let mut shell = Command::new("sh")
        .args(["-c", "exec 3<&0; (while read line; do /bin/true; echo done; done) <&3 & wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child_in = shell.stdin.take().unwrap();
    let mut child_out = BufReader::new(shell.stdout.take().unwrap());
    let mut start_a_program = || {
        child_in.write_all(b"go\n").unwrap();
        let mut answer = String::new();
        child_out.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    };
    start_a_program();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("attached.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let recorder = Recorder::attach(shell.id(), Options::default(), writer).unwrap();
    for _ in 0..4 {
        start_a_program();
    }
    let recorded = recorder.stop().unwrap();
    assert!(shell.try_wait().unwrap().is_none(), "the program still runs after the recorder has stopped");
    end_group_of(&mut shell);
    let (records, gaps, complete) = read(&path);
    assert_eq!((gaps, complete, recorded.manifest.roots.as_slice()), (0, true, [shell.id()].as_slice()));
    let execs = records.iter().filter(|record| matches!(record.event, Event::Exec { .. })).count();
    assert_eq!(execs, 4, "the child of the attached process starts the programs");
}

fn end_group_of(shell: &mut std::process::Child) {
    for child in children(shell.id()) {
        kill(child, libc::SIGTERM);
    }
    shell.wait().unwrap();
}

#[test]
fn a_process_that_does_not_exist_cannot_be_attached_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.trace");
    let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
    let error = Recorder::attach(u32::MAX, Options::default(), writer).unwrap_err();
    assert!(matches!(error, Unavailable::Process { process: u32::MAX }));
    assert!(!path.exists(), "an empty container would block the next attempt");
}
