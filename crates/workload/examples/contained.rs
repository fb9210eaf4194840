//! Runs a program with a timeout and leaves none of its processes behind: `scripts/test` runs every test
//! executable in it.
//!
//! contained PROGRAM [ARGUMENT...]
//!
//! It is the subreaper of all processes that the program starts (prctl(2), `PR_SET_CHILD_SUBREAPER`), so that
//! an orphaned process becomes a child of this one and is found, in any process group or session. SIGINT,
//! SIGTERM and SIGHUP end the program and all processes that it started. Appends the name of the program, its
//! duration in seconds and the number of processes that it left behind to the file `$TEST_TIMES`. The exit
//! code is that of the program, 128 plus the signal number if a signal ended it, or 124 after a timeout.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, wait,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Timeout: the slowest test executable takes a tenth of it while busy loops run.
const LIMIT: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some(program) = arguments.first() else {
        complain("usage: contained PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match contain(Command::new(program).args(&arguments[1..])) {
        Ok(ended) => {
            let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
            if let Err(error) = note(&name, &ended) {
                complain(&format!("cannot write to $TEST_TIMES: {error}"));
            }
            if ended.is_late {
                complain(&format!("{name} did not end within {} s and was killed", LIMIT.as_secs()));
            }
            if ended.left > 0 {
                complain(&format!("{name} left {} processes running, which were killed", ended.left));
            }
            ExitCode::from(if ended.is_late { 124 } else { ended.code })
        }
        Err(error) => {
            complain(&format!("cannot run {}: {error}", program.display()));
            ExitCode::from(125)
        }
    }
}

fn complain(what: &str) {
    // If stderr is closed, there is no way to report it.
    let _ = writeln!(io::stderr(), "contained: {what}");
}

/// The end of a program.
struct Ended {
    code: u8,
    elapsed: Duration,
    /// Whether it exceeded its timeout.
    is_late: bool,
    /// Number of processes that it left running.
    left: usize,
}

fn contain(command: &mut Command) -> io::Result<Ended> {
    set_child_subreaper(Some(getpid()))?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let begun = now();
    let child = command.spawn()?;
    let main = Pid::from_child(&child);
    let is_late = Arc::new(AtomicBool::new(false));
    let process = Arc::new(pidfd_open(main, PidfdFlags::empty())?);
    let kill = move || {
        // It may have just ended.
        let _ = pidfd_send_signal(&*process, Signal::KILL);
    };
    let (late, kill_late) = (is_late.clone(), kill.clone());
    thread::spawn(move || {
        thread::sleep(LIMIT);
        late.store(true, Ordering::Relaxed);
        kill_late();
    });
    thread::spawn(move || signals.forever().for_each(|_| kill()));
    let code = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) if process == main => break code(status),
            // An orphan, or a signal.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let elapsed = begun.elapsed();
    Ok(Ended { code, elapsed, is_late: is_late.load(Ordering::Relaxed), left: kill_descendants()? })
}

#[expect(clippy::disallowed_methods, reason = "the duration of a program is only shown to people")]
fn now() -> Instant {
    Instant::now()
}

fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}

/// Kills all descendants, whose children become children of this process, until none is left; returns
/// their number.
fn kill_descendants() -> io::Result<usize> {
    let mut killed = HashSet::new();
    loop {
        for process in children()?.into_iter().filter(|process| !is_zombie(*process)) {
            // The process id is not reused until the process has been waited for below.
            kill_process(process, Signal::KILL)?;
            killed.insert(process);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(killed.len()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the children of this process, which are those of all its threads.
fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let listed = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(listed.split_whitespace().filter_map(|number| Pid::from_raw(number.parse().ok()?)));
    }
    Ok(children)
}

/// Returns whether a child has ended; its state follows its name, which is in parentheses (proc(5)).
fn is_zombie(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

fn note(name: &str, ended: &Ended) -> io::Result<()> {
    let Some(file) = std::env::var_os("TEST_TIMES") else { return Ok(()) };
    let line = format!("{:.1} {name} {}\n", ended.elapsed.as_secs_f64(), ended.left);
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}
