//! Switches a machine between two states with the user's commands, and back.
//!
//! A separate shell runs the commands one after the other. It holds the read end of a pipe from this process.
//! When this process ends for any reason (SIGKILL included), the kernel closes the pipe, and the shell
//! restores state A after its current command. If the shell is killed instead, [`Switch`] restores state A
//! itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use assay_process::clock::{elapsed_ns, now};
use assay_quantity::{Pair, Which};
use thiserror::Error;

/// Runs the command of each state that it reads, writes the exit status, and runs command A at the end of its
/// input. It ignores SIGPIPE, because its output has no reader after this process was killed; the commands
/// get the default signal handling.
const SHELL: &str = r#"
trap '' HUP INT QUIT TERM PIPE
enter() {
    (trap - HUP INT QUIT TERM PIPE; exec timeout -k 1 "$1" /bin/sh -c "$2") </dev/null >&2
    echo $?
}
while read -r state; do
    case $state in
        a) enter "$1" "$2" ;;
        b) enter "$1" "$3" ;;
    esac
done
enter "$1" "$2"
"#;

/// Timeout of a command in seconds. A restart of a service takes a tenth of this.
const LIMIT_S: u32 = 60;

/// Exit statuses of a command that exceeded the timeout and was terminated or killed.
const ENDED: [i32; 2] = [124, 137];

/// A state could not be entered.
#[derive(Debug, Error)]
pub enum SwitchError {
    /// The shell could not be started or its pipes failed.
    #[error("cannot run '{command}': {source}")]
    Io {
        /// The command of the state.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// The command failed.
    #[error("'{command}' ended with status {status}{}", said(last_line))]
    Failed {
        /// The command of the state.
        command: String,
        /// Its exit status.
        status: i32,
        /// Last line of its output.
        last_line: String,
    },
    /// The command exceeded its timeout.
    #[error(
        "'{command}' did not end within {limit_s} s; the command must switch the machine into the state and exit"
    )]
    TookLonger {
        /// The command of the state.
        command: String,
        /// The timeout, s.
        limit_s: u32,
    },
    /// State A could not be restored.
    #[error("cannot restore state A; the machine may be in state B: {0}")]
    NotRestored(Box<SwitchError>),
}

fn said(last_line: &str) -> String {
    if last_line.is_empty() { String::new() } else { format!(": {last_line}") }
}

/// A machine with two states. If dropped, it restores state A.
#[derive(Debug)]
pub struct Switch {
    commands: Pair<String>,
    limit_s: u32,
    /// The output of the commands.
    said: File,
    shell: Child,
    /// `None` after state A was restored.
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Switch {
    /// Switches the machine into state A, to verify that this works before state B is entered. `/bin/sh` runs
    /// the commands in the caller's directory with the caller's environment.
    pub fn new(commands: Pair<String>) -> Result<Self, SwitchError> {
        Self::with_limit(commands, LIMIT_S)
    }

    fn with_limit(commands: Pair<String>, limit_s: u32) -> Result<Self, SwitchError> {
        let failed = |source| SwitchError::Io { command: commands.a.clone(), source };
        let said = tempfile::tempfile().map_err(failed)?;
        let mut shell = shell(&commands, limit_s, &said)
            .and_then(|mut shell| shell.stdin(Stdio::piped()).spawn())
            .map_err(failed)?;
        let pipes = shell.stdin.take().zip(shell.stdout.take().map(BufReader::new));
        let mut switch = Self { commands, limit_s, said, shell, pipes };
        switch.enter(Which::A)?;
        Ok(switch)
    }

    /// Runs the command of a state and waits for its end.
    pub fn enter(&mut self, which: Which) -> Result<(), SwitchError> {
        let begun = self.begin(which)?;
        let status = self.asked(which).map_err(|source| self.io(which, source))?;
        self.judge(which, status, begun)
    }

    /// Switches the machine back into state A.
    pub fn restore(mut self) -> Result<(), SwitchError> {
        self.restore_now()
    }

    fn restore_now(&mut self) -> Result<(), SwitchError> {
        let restored = match self.pipes.take() {
            None => Ok(()),
            Some((requests, answers)) => {
                drop(requests);
                self.restored(answers)
            }
        };
        restored.map_err(|error| SwitchError::NotRestored(Box::new(error)))
    }

    fn restored(&mut self, mut answers: BufReader<ChildStdout>) -> Result<(), SwitchError> {
        let begun = self.begin(Which::A)?;
        let status = answer(&mut answers);
        self.shell.wait().map_err(|source| self.io(Which::A, source))?;
        let status =
            status.or_else(|_| self.by_another_shell()).map_err(|source| self.io(Which::A, source))?;
        self.judge(Which::A, status, begun)
    }

    /// Restores state A with a new shell, after the first one was killed.
    fn by_another_shell(&self) -> io::Result<i32> {
        let output = shell(&self.commands, self.limit_s, &self.said)?.stdin(Stdio::null()).output()?;
        answer(&mut &output.stdout[..])
    }

    fn asked(&mut self, which: Which) -> io::Result<i32> {
        let Some((requests, answers)) = &mut self.pipes else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let state = match which {
            Which::A => "a",
            Which::B => "b",
        };
        writeln!(requests, "{state}")?;
        answer(answers)
    }

    fn judge(&self, which: Which, status: i32, begun: Begun) -> Result<(), SwitchError> {
        let (command, limit_s) = (self.commands.get(which).clone(), self.limit_s);
        let is_over = elapsed_ns(begun.at, now()) >= u64::from(limit_s) * 1_000_000_000;
        match status {
            0 => Ok(()),
            _ if is_over && ENDED.contains(&status) => Err(SwitchError::TookLonger { command, limit_s }),
            _ => Err(SwitchError::Failed { command, status, last_line: self.last_line(begun.said) }),
        }
    }

    fn io(&self, which: Which, source: io::Error) -> SwitchError {
        SwitchError::Io { command: self.commands.get(which).clone(), source }
    }

    fn begin(&self, which: Which) -> Result<Begun, SwitchError> {
        let said = self.said.metadata().map_err(|source| self.io(which, source))?.len();
        Ok(Begun { at: now(), said })
    }

    /// Returns the last line of the output after `start` bytes.
    fn last_line(&self, start: u64) -> String {
        let end = self.said.metadata().map_or(start, |file| file.len());
        let from = start.max(end.saturating_sub(4096));
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        if self.said.read_exact_at(&mut bytes, from).is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
    }
}

/// A command that has just started.
struct Begun {
    at: Instant,
    /// Length of the output of the commands so far, in bytes.
    said: u64,
}

/// Returns the shell, not yet started; it reads the states to enter from its standard input.
fn shell(commands: &Pair<String>, limit_s: u32, said: &File) -> io::Result<Command> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SHELL, "assay", &limit_s.to_string(), &commands.a, &commands.b]);
    shell.process_group(0).stdout(Stdio::piped()).stderr(said.try_clone()?);
    Ok(shell)
}

/// Reads an exit status that the shell reports.
fn answer(answers: &mut impl BufRead) -> io::Result<i32> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    line.trim().parse().map_err(|_| io::Error::other("the shell that runs it was killed"))
}

impl Drop for Switch {
    fn drop(&mut self) {
        // `restore` returns the error.
        let _ = self.restore_now();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// Commands that log the entered states.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn log(&self) -> PathBuf {
            self.0.path().join("log")
        }

        fn command(&self, letter: &str) -> String {
            format!("echo {letter} >> {}", self.log().display())
        }

        /// Creates a switch whose state B also runs the command `also`.
        fn switch(&self, also: &str) -> Switch {
            let b = format!("{}; {also}", self.command("b"));
            Switch::new(Pair { a: self.command("a"), b }).unwrap()
        }

        fn states(&self) -> String {
            fs::read_to_string(self.log()).unwrap_or_default().replace('\n', "")
        }
    }

    #[test]
    fn states_are_entered_in_the_requested_order_and_state_a_at_both_ends() {
        let machine = Machine::new();
        let mut switch = machine.switch("true");
        switch.enter(Which::B).unwrap();
        switch.enter(Which::A).unwrap();
        switch.enter(Which::B).unwrap();
        assert_eq!(machine.states(), "abab");
        switch.restore().unwrap();
        assert_eq!(machine.states(), "ababa");
        machine.switch("true").enter(Which::B).unwrap();
        assert_eq!(machine.states(), "ababaaba", "dropping it restores state A");
    }

    #[test]
    fn an_error_contains_the_last_line_of_output_and_a_timeout_ends_the_command() {
        let machine = Machine::new();
        let mut switch = machine.switch("echo first; echo 'no such knob' >&2; exit 3");
        let failed = switch.enter(Which::B).unwrap_err().to_string();
        assert!(failed.ends_with("exit 3' ended with status 3: no such knob"), "{failed}");
        drop(switch);
        // The timeout of two seconds applies to both states.
        let mut switch =
            Switch::with_limit(Pair { a: machine.command("a"), b: "trap '' TERM; sleep 1000".into() }, 2)
                .unwrap();
        let failed = switch.enter(Which::B).unwrap_err().to_string();
        assert!(
            failed.ends_with(
                "did not end within 2 s; the command must switch the machine into the state and exit"
            ),
            "{failed}"
        );
        drop(switch);
        assert_eq!(machine.states(), "abaaa");
    }

    #[test]
    fn an_invalid_state_a_is_an_error_before_state_b_is_entered() {
        let machine = Machine::new();
        let states = Pair { a: "exit 1".to_owned(), b: machine.command("b") };
        let failed = Switch::new(states).unwrap_err().to_string();
        assert!(failed.ends_with("'exit 1' ended with status 1"), "{failed}");
        assert_eq!(machine.states(), "");
    }

    #[test]
    fn background_processes_of_a_state_are_not_waited_for() {
        let machine = Machine::new();
        let pid = machine.0.path().join("pid");
        let mut switch = machine.switch(&format!("sleep 1000 & echo $! > {}", pid.display()));
        switch.enter(Which::B).unwrap();
        let left = fs::read_to_string(pid).unwrap();
        assert!(fs::exists(format!("/proc/{}", left.trim())).unwrap());
        Command::new("kill").arg(left.trim()).status().unwrap();
    }

    #[test]
    fn state_a_is_restored_if_the_shell_is_killed() {
        let machine = Machine::new();
        let mut switch = machine.switch("true");
        switch.enter(Which::B).unwrap();
        switch.shell.kill().unwrap();
        switch.shell.wait().unwrap();
        let failed = switch.enter(Which::B).unwrap_err().to_string();
        assert!(failed.starts_with("cannot run 'echo b"), "{failed}");
        switch.restore().unwrap();
        assert_eq!(machine.states(), "aba");
    }

    #[test]
    fn a_failure_to_restore_state_a_is_an_error() {
        let machine = Machine::new();
        let blocked = machine.0.path().join("blocked");
        let a = format!("{}; test ! -e {}", machine.command("a"), blocked.display());
        let mut switch = Switch::new(Pair { a, b: machine.command("b") }).unwrap();
        switch.enter(Which::B).unwrap();
        fs::write(&blocked, "").unwrap();
        let failed = switch.restore().unwrap_err().to_string();
        assert!(failed.starts_with("cannot restore state A; the machine may be in state B: '"), "{failed}");
        assert!(failed.ends_with("ended with status 1"), "{failed}");
    }
}
