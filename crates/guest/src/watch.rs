//! Starts a guest, watches it until it has answered, and kills it in every case.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::clock::now;
use assay_process::{Group, StopRequest};
use rustix::process::Signal;

use crate::RunError;
use crate::answer::{self, Finished};

/// How often the limit and `stop` are looked at. The end of the guest is noticed at once.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for the program to end by itself before it is killed. QEMU ends within milliseconds; one whose main
/// loop hangs ignores the signal.
const GRACE: StopRequest = StopRequest { signal: Signal::TERM, grace: Duration::from_secs(2) };

/// What the kernel prints when it panics.
const PANIC: &str = "Kernel panic - not syncing: ";

/// A guest that is ready to start.
#[derive(Debug)]
pub struct Start {
    /// Name of the program that runs it.
    pub program: &'static str,
    /// How to start that program.
    pub command: Command,
    /// File to which the guest's console is written.
    pub console: PathBuf,
    /// File to which the guest's answer is written.
    pub answer: PathBuf,
    /// File for the messages of the program.
    pub messages: PathBuf,
}

/// Runs a guest to its end, for at most `limit`, or until `stop` becomes true.
pub fn watch(mut start: Start, limit: Duration, stop: &AtomicBool) -> Result<Finished, RunError> {
    let program = |source| RunError::Program { program: start.program.to_owned(), source };
    let messages = File::create(&start.messages)
        .map_err(|source| RunError::Write { path: start.messages.clone(), source })?;
    start.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
    let mut group = Group::new().map_err(program)?;
    group.spawn(&mut start.command).map_err(program)?;
    let deadline = now() + limit;
    let exit = loop {
        if stop.load(Ordering::Relaxed) {
            group.stop(GRACE)?;
            return Err(RunError::Interrupted);
        }
        if group.wait(PAUSE).map_err(program)?.is_some() {
            break group.exit().map_err(program)?;
        }
        if now() >= deadline {
            break None;
        }
    };
    group.stop(GRACE)?;

    // A guest may also hang after it has answered.
    let answer = fs::read(&start.answer).map_err(program)?;
    let has_started = answer::has_started(&answer);
    let console = String::from_utf8_lossy(&fs::read(&start.console).map_err(program)?).into_owned();
    match (answer::parse(&answer), exit) {
        (Ok(finished), _) => Ok(finished),
        (Err(_), None) if has_started => Err(RunError::NotEnded { limit }),
        (Err(_), None) => Err(RunError::NotBooted { limit, last: last_line(&console) }),
        (Err(error), Some(exit)) => {
            if let Some((_, reason)) = console.split_once(PANIC) {
                return Err(RunError::Panicked {
                    reason: reason.lines().next().unwrap_or_default().trim().to_owned(),
                });
            }
            if has_started && exit.is_success() {
                return Err(RunError::Answer(error));
            }
            let messages = fs::read_to_string(&start.messages).unwrap_or_default();
            let last = last_line(if messages.trim().is_empty() { &console } else { &messages });
            Err(RunError::Ended { program: start.program.to_owned(), exit, last })
        }
    }
}

fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("(nothing was printed)").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(300);

    /// Watches a shell in place of QEMU, which runs `script` with the variables `$console` and `$answer`.
    fn watched(script: &str, limit: Duration, stop: &AtomicBool) -> Result<Finished, String> {
        let directory = tempfile::tempdir().unwrap();
        let [console, answer, messages] = ["console", "answer", "messages"].map(|name| {
            fs::write(directory.path().join(name), "").unwrap();
            directory.path().join(name)
        });
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("console", &console).env("answer", &answer);
        let start = Start { program: "a shell", command, console, answer, messages };
        watch(start, limit, stop).map_err(|error| error.to_string())
    }

    fn ended(script: &str) -> Result<Finished, String> {
        watched(script, LONG, &AtomicBool::new(false))
    }

    #[test]
    fn a_guest_that_answers_is_done_even_if_it_does_not_end() {
        let answer = "printf 'started 1.00\nended 2.00 0\noutput 3\nyes''errors 0\ncomplete\n' >$answer";
        assert_eq!(ended(answer).unwrap().output, b"yes");
        let hanging = format!("{answer}; exec sleep 1000");
        assert_eq!(watched(&hanging, SHORT, &AtomicBool::new(false)).unwrap().output, b"yes");
    }

    #[test]
    fn a_guest_that_ends_early_leaves_its_last_words() {
        let panic = "echo '[1.0] Kernel panic - not syncing: no init \n[1.1] Rebooting' >$console";
        assert_eq!(ended(panic).unwrap_err(), "the guest's kernel panicked: no init");
        let refused = "echo no such option >&2; exit 1";
        assert_eq!(
            ended(refused).unwrap_err(),
            "a shell ended with status 1 before the guest's command ended: no such option"
        );
        let killed = "echo 'the last line' >$console; kill -9 $$";
        assert_eq!(
            ended(killed).unwrap_err(),
            "a shell was killed by signal 9 before the guest's command ended: the last line"
        );
        let damaged = "echo started 1.00 >$answer; sleep 0.1; echo garbage >>$answer";
        let error = ended(damaged).unwrap_err();
        assert!(
            error.starts_with("the guest's results are damaged (expected 'ended', found 'garbage'); "),
            "{error}"
        );
    }

    #[test]
    fn a_guest_that_hangs_is_killed_even_if_it_ignores_signals() {
        let hang = "trap '' TERM; echo 'waiting for the root device' >$console; sleep 1000 & wait";
        assert_eq!(
            watched(hang, SHORT, &AtomicBool::new(false)).unwrap_err(),
            "the guest did not boot within 0.3 s and was killed; the last line on its console: waiting for the root device"
        );
        assert_eq!(
            watched(&format!("echo started 1.00 >$answer; {hang}"), SHORT, &AtomicBool::new(false))
                .unwrap_err(),
            "the guest's command did not end within 0.3 s, and the guest was killed; raise the limit"
        );
        assert_eq!(
            watched(hang, LONG, &AtomicBool::new(true)).unwrap_err(),
            "interrupted; the guest was killed"
        );
    }
}
