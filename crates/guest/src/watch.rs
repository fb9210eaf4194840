//! Starts a guest, watches it until it has answered, and kills it in every case.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::RunError;
use crate::answer::{self, Finished, Progress};
use crate::program::{last_line, read, read_text, run, unusable};

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
    let messages = File::create(&start.messages).map_err(unusable(&start.messages))?;
    start.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
    let exit = run(start.program, &mut start.command, limit, stop)?;

    let answer = read(&start.answer)?;
    let unanswered = match answer::parse(&answer) {
        // A guest may also hang after it has answered.
        Ok(finished) => return Ok(finished),
        Err(error) => error,
    };
    let console = read_text(&start.console)?;
    if let Some((_, reason)) = console.split_once(PANIC) {
        let reason = reason.lines().next().unwrap_or_default().trim().to_owned();
        return Err(RunError::Panicked { reason });
    }
    Err(match (exit, answer::progress(&answer)) {
        (None, Progress::Booting) => RunError::NotBooted { limit, last: last_line(&console) },
        (None, Progress::Running) => RunError::NotEnded { limit },
        (None, Progress::Ended) => RunError::NotArrived { limit },
        (Some(exit), progress) => {
            if exit.is_success() && (progress != Progress::Booting || unanswered.is_refusal()) {
                return Err(unanswered.into());
            }
            // The first message is the cause, and the others follow from it.
            let messages = read_text(&start.messages)?;
            let last = messages.lines().next().map_or_else(|| last_line(&console), str::to_owned);
            RunError::Ended { program: start.program.to_owned(), exit, last }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(300);

    const ANSWER: &str = "started 1.00\nended 2.00 0\noutput 3\nyeserrors 0\ncomplete\n";

    /// What a guest has written, and what then happens to the shell that stands for QEMU.
    struct Story<'a> {
        console: &'a str,
        answer: &'a str,
        script: &'a str,
    }

    fn watched(story: &Story, limit: Duration, stop: &AtomicBool) -> Result<Finished, String> {
        let directory = tempfile::tempdir().unwrap();
        let written = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", story.script]);
        let start = Start {
            program: "a shell",
            command,
            console: written("console", story.console),
            answer: written("answer", story.answer),
            messages: written("messages", ""),
        };
        watch(start, limit, stop).map_err(|error| error.to_string())
    }

    fn ended(console: &str, answer: &str, script: &str) -> Result<Finished, String> {
        watched(&Story { console, answer, script }, LONG, &AtomicBool::new(false))
    }

    fn hanging(console: &str, answer: &str) -> Result<Finished, String> {
        let script = "trap '' TERM; sleep 1000 & wait";
        watched(&Story { console, answer, script }, SHORT, &AtomicBool::new(false))
    }

    #[test]
    fn a_guest_that_answers_is_done_even_if_it_does_not_end() {
        assert_eq!(ended("", ANSWER, "true").unwrap().output, b"yes");
        assert_eq!(hanging("", ANSWER).unwrap().output, b"yes");
    }

    #[test]
    fn a_guest_that_ends_early_leaves_its_last_words() {
        for (console, answer, script, message) in [
            (
                "[1] Kernel panic - not syncing: no init \n[1] Rebooting",
                "",
                "true",
                "the guest's kernel panicked: no init",
            ),
            (
                "",
                "",
                "echo no such option >&2; echo giving up >&2; exit 1",
                "a shell ended with status 1 before the guest's command ended: no such option",
            ),
            (
                "the last line\n",
                "started 1.00\n",
                "kill -9 $$",
                "a shell was killed by signal 9 before the guest's command ended: the last line",
            ),
            (
                "",
                "",
                "true",
                "a shell ended with status 0 before the guest's command ended: (nothing was printed)",
            ),
            ("", "started 1.00\n", "true", "the guest was shut down before its command had ended"),
            (
                "",
                "incomplete\n",
                "true",
                "the guest's memory is too small for its files; give it more memory",
            ),
            (
                "",
                &ANSWER[..30],
                "true",
                "the guest's results end after 30 bytes; check free space in the temporary directory",
            ),
        ] {
            assert_eq!(ended(console, answer, script).unwrap_err(), message);
        }
    }

    #[test]
    fn a_guest_that_hangs_is_killed_even_if_it_ignores_signals() {
        for (console, answer, message) in [
            (
                "waiting for the root device\n\n",
                "",
                "the guest did not boot within 0.3 s and was killed; the last line on its console: \
                 waiting for the root device",
            ),
            (
                "",
                "started 1.00\n",
                "the guest's command did not end within 0.3 s, and the guest was killed; raise the limit",
            ),
            (
                "",
                &ANSWER[..30],
                "the output of the guest's command did not arrive within 0.3 s; raise the limit or print less",
            ),
            (
                "Kernel panic - not syncing: and it does not reset\n",
                "",
                "the guest's kernel panicked: and it does not reset",
            ),
        ] {
            assert_eq!(hanging(console, answer).unwrap_err(), message);
        }
        let story = Story { console: "", answer: "", script: "exec sleep 1000" };
        assert_eq!(
            watched(&story, LONG, &AtomicBool::new(true)).unwrap_err(),
            "interrupted; the guest was killed"
        );
    }
}
