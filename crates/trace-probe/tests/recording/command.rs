//! The start of a command, its environment, and its cleanup.

use std::{ffi::OsString, fs, mem, path::Path, ptr, thread, time::Duration};

use assay_process::{Exit, Process};
use assay_trace::Event;
use assay_trace_probe::{Held, Running, SpawnError, Streams};

use crate::support::{record, wait_until};

fn start(script: &str, streams: Streams) -> Running {
    Held::fork(&["sh", "-c", script].map(OsString::from), streams).unwrap().release().unwrap()
}

#[test]
fn a_command_that_cannot_run_is_an_error_and_a_dropped_held_command_does_not_run() {
    assert!(matches!(
        Held::fork(&["no-such-program".into()], Streams::Null),
        Err(SpawnError::NotFound { .. })
    ));
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    fs::write(&text, "not a program").unwrap();
    let error = Held::fork(&[text.clone().into()], Streams::Null).unwrap().release().unwrap_err();
    assert!(matches!(error, SpawnError::Run { .. }), "{error}");
    let mark = directory.path().join("mark");
    drop(Held::fork(&["touch".into(), mark.clone().into()], Streams::Null).unwrap());
    assert!(!mark.exists());
}

/// `yes` exits with status 1 and "Broken pipe" if it inherits the ignored SIGPIPE of this process.
#[test]
fn a_command_whose_reader_ends_is_killed_by_sigpipe() {
    let recording = record(&["sh", "-c", "yes | head -1 >/dev/null"]);
    assert!(recording.exit.is_success());
    let mut codes: Vec<_> = recording
        .records
        .iter()
        .filter_map(|record| match record.event {
            Event::Exit { code, whole_process: true } => Some(code),
            _ => None,
        })
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, i64::from(libc::SIGPIPE)], "the shell, head and yes");
}

#[test]
fn a_signal_that_is_blocked_here_is_not_blocked_in_a_command() {
    let blocking = || {
        // SAFETY: a valid set, and the mask of a thread that ends with this test.
        unsafe {
            let mut signals: libc::sigset_t = mem::zeroed();
            libc::sigaddset(&raw mut signals, libc::SIGUSR1);
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut()), 0);
        }
        start("grep -qx 'SigBlk:.0000000000000000' /proc/self/status", Streams::Null).wait().unwrap()
    };
    assert!(thread::spawn(blocking).join().unwrap().exit.is_success());
}

#[test]
fn a_command_with_null_streams_uses_the_null_device_and_leads_a_process_group() {
    let null = "for stream in 0 1 2; do test $(readlink /proc/$$/fd/$stream) = /dev/null || exit 1; done; \
        read -r _ _ _ _ group _ </proc/$$/stat && test $group = $$";
    assert!(start(null, Streams::Null).wait().unwrap().exit.is_success());
    assert!(!start(null, Streams::Inherit).wait().unwrap().exit.is_success());
}

#[test]
fn the_end_of_a_command_can_be_queried_repeatedly() {
    for (script, exit) in [("exit 3", Exit::Status(3)), ("kill -9 $$", Exit::Signal(libc::SIGKILL))] {
        let mut running = start(script, Streams::Null);
        wait_until("it has ended", || running.wait_for(Duration::from_millis(1)).unwrap().is_some());
        let ended = running.wait_for(Duration::ZERO).unwrap().unwrap();
        assert_eq!(ended.exit, exit);
        assert_eq!(running.wait().unwrap().elapsed_ns, ended.elapsed_ns);
    }
}

/// Returns the process id that a script writes to `path`.
fn written_to(path: &Path) -> u32 {
    let mut process = None;
    wait_until("the script has written a number", || {
        process = fs::read_to_string(path).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
        process.is_some()
    });
    process.unwrap()
}

/// Returns whether the process has ended, reaped or not.
fn has_ended(process: u32) -> bool {
    !Process::read(process.cast_signed()).unwrap().is_some_and(|process| process.is_alive())
}

#[test]
fn no_descendant_of_a_command_outlives_its_handle() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sleep");
    for streams in [Streams::Inherit, Streams::Null] {
        let script = format!("(setsid sleep 1000 & echo $! >{}; wait) & wait", path.display());
        let running = start(&script, streams);
        let sleep = written_to(&path);
        assert!(!has_ended(sleep));
        drop(running);
        wait_until("the grandchild has ended", || has_ended(sleep));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_rest_of_the_process_group_is_killed_when_the_handle_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sleep");
    let script = format!("sleep 1000 & echo $! >{}", path.display());
    let mut running = start(&script, Streams::Null);
    wait_until("the shell has ended", || running.wait_for(Duration::from_millis(1)).unwrap().is_some());
    let sleep = written_to(&path);
    assert!(!has_ended(sleep));
    drop(running);
    wait_until("the rest of the group has ended", || has_ended(sleep));
}

#[test]
fn a_command_is_killed_when_the_thread_that_started_it_ends() {
    let running = thread::spawn(|| start("exec sleep 1000", Streams::Inherit)).join().unwrap();
    assert_eq!(running.wait().unwrap().exit, Exit::Signal(libc::SIGKILL));
}
