//! Puts a machine into one of two states by the user's commands, and back.
//!
//! A shell of our own runs the commands, one after the other. It holds the reading end of a pipe from us: when we end,
//! however we end (SIGKILL included), the kernel closes the pipe, and the shell restores state A after whatever it was
//! just running. If the shell is killed instead, [`Switch`] restores state A itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use assay_process::clock::{elapsed_ns, now};
use assay_quantity::{Pair, Which};
use thiserror::Error;

/// Runs the command of each state that it reads, answers with the exit status, and runs command A at the end of its input.
/// It ignores SIGPIPE because its answers have no reader once we were killed; the commands get the default signals.
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

/// Seconds that a command may take. Even one that restarts a service takes a tenth of this.
const LIMIT_S: u32 = 60;

/// Exit statuses of a command that took longer and ended when it was asked to, or was killed.
const ENDED: [i32; 2] = [124, 137];

/// A state that could not be entered.
#[derive(Debug, Error)]
pub enum SwitchError {
    /// The shell could not be started or spoken to.
    #[error("cannot run '{command}': {source}")]
    Io {
        /// The command of the state.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// The command failed.
    #[error("'{command}' ended with status {status}{}", said(last_line))]
    Failed {
        /// The command of the state.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it said last.
        last_line: String,
    },
    /// The command did not end.
    #[error("'{command}' did not end within {limit_s} s; it must put the machine into its state and end")]
    TookLonger {
        /// The command of the state.
        command: String,
        /// The time that it had, s.
        limit_s: u32,
    },
    /// State A could not be restored.
    #[error("cannot restore state A, the machine may be in state B: {0}")]
    NotRestored(Box<SwitchError>),
}

fn said(last_line: &str) -> String {
    if last_line.is_empty() { String::new() } else { format!(": {last_line}") }
}

/// A machine with two states. Dropping it restores state A.
#[derive(Debug)]
pub struct Switch {
    commands: Pair<String>,
    limit_s: u32,
    /// The output of the commands.
    said: File,
    shell: Child,
    /// None once state A is restored for good.
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Switch {
    /// Puts the machine into state A: whether that works must be known before it enters state B. The commands are run by `/bin/sh` where the caller is and with the caller's environment.
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

    /// Puts the machine back into state A.
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

    /// Restores state A by another shell; for when the first was killed.
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

    /// The last line of the output after `start` bytes.
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

/// A command that was just begun.
struct Begun {
    at: Instant,
    /// Bytes that the commands had said.
    said: u64,
}

/// The shell, not started yet; it reads the states to enter from its standard input.
fn shell(commands: &Pair<String>, limit_s: u32, said: &File) -> io::Result<Command> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SHELL, "assay", &limit_s.to_string(), &commands.a, &commands.b]);
    shell.process_group(0).stdout(Stdio::piped()).stderr(said.try_clone()?);
    Ok(shell)
}

/// A status that the shell tells.
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

    /// States that write their names down.
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

        /// State B does this as well.
        fn switch(&self, also: &str) -> Switch {
            let b = format!("{}; {also}", self.command("b"));
            Switch::new(Pair { a: self.command("a"), b }).unwrap()
        }

        fn states(&self) -> String {
            fs::read_to_string(self.log()).unwrap_or_default().replace('\n', "")
        }
    }

    #[test]
    fn states_are_entered_in_the_order_asked_for_and_a_is_entered_at_both_ends() {
        let machine = Machine::new();
        let mut switch = machine.switch("true");
        switch.enter(Which::B).unwrap();
        switch.enter(Which::A).unwrap();
        switch.enter(Which::B).unwrap();
        assert_eq!(machine.states(), "abab");
        switch.restore().unwrap();
        assert_eq!(machine.states(), "ababa");
        machine.switch("true").enter(Which::B).unwrap();
        assert_eq!(machine.states(), "ababaaba", "dropped, it restores as well");
    }

    #[test]
    fn a_command_that_fails_says_what_it_said_last_and_one_that_does_not_end_is_ended() {
        let machine = Machine::new();
        let mut switch = machine.switch("echo first; echo 'no such knob' >&2; exit 3");
        let failed = switch.enter(Which::B).unwrap_err().to_string();
        assert!(failed.ends_with("exit 3' ended with status 3: no such knob"), "{failed}");
        drop(switch);
        // Both its first state and this one have two seconds.
        let mut switch =
            Switch::with_limit(Pair { a: machine.command("a"), b: "trap '' TERM; sleep 1000".into() }, 2)
                .unwrap();
        let failed = switch.enter(Which::B).unwrap_err().to_string();
        assert!(
            failed.ends_with("did not end within 2 s; it must put the machine into its state and end"),
            "{failed}"
        );
        drop(switch);
        assert_eq!(machine.states(), "abaaa");
    }

    #[test]
    fn a_state_a_that_cannot_be_entered_is_known_before_state_b_is() {
        let machine = Machine::new();
        let states = Pair { a: "exit 1".to_owned(), b: machine.command("b") };
        let failed = Switch::new(states).unwrap_err().to_string();
        assert!(failed.ends_with("'exit 1' ended with status 1"), "{failed}");
        assert_eq!(machine.states(), "");
    }

    #[test]
    fn what_a_state_leaves_running_is_not_waited_for() {
        let machine = Machine::new();
        let pid = machine.0.path().join("pid");
        let mut switch = machine.switch(&format!("sleep 1000 & echo $! > {}", pid.display()));
        switch.enter(Which::B).unwrap();
        let left = fs::read_to_string(pid).unwrap();
        assert!(fs::exists(format!("/proc/{}", left.trim())).unwrap());
        Command::new("kill").arg(left.trim()).status().unwrap();
    }

    #[test]
    fn if_the_shell_is_killed_state_a_is_restored_all_the_same() {
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
    fn a_state_a_that_cannot_be_restored_is_told() {
        let machine = Machine::new();
        let blocked = machine.0.path().join("blocked");
        let a = format!("{}; test ! -e {}", machine.command("a"), blocked.display());
        let mut switch = Switch::new(Pair { a, b: machine.command("b") }).unwrap();
        switch.enter(Which::B).unwrap();
        fs::write(&blocked, "").unwrap();
        let failed = switch.restore().unwrap_err().to_string();
        assert!(failed.starts_with("cannot restore state A, the machine may be in state B: '"), "{failed}");
        assert!(failed.ends_with("ended with status 1"), "{failed}");
    }
}
