//! Commands: programs that run until they exit; one unit of work is one run. A command runs in the caller's
//! directory with the caller's environment and in its own process group. Processes that it leaves behind are
//! killed.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::clock::{elapsed_ns, now};
use assay_process::{Exit, Group, StopError, find_program};
use assay_quantity::{CpuTime, Round};
use thiserror::Error;

use crate::cpu::{self, CpuError};
use crate::workload::CommandProgram;

/// Interval of the checks of the stop flag while a command runs; the end of the command is noticed
/// immediately.
const PAUSE: Duration = Duration::from_millis(100);

/// Destination of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutput {
    /// The output of the caller.
    Inherit,
    /// `/dev/null`.
    Discard,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandRun {
    /// Time from before the start to the end.
    pub elapsed_ns: u64,
    /// CPU time of the command and of the children that it waited for.
    pub cpu: CpuTime,
    /// Number of processes still running at the end of the command, which were killed.
    pub left_behind: usize,
}

impl CommandRun {
    /// Returns the run as a round of one unit of work. The idle share of the round is relative to one CPU: a
    /// command may use every CPU, but a command that runs alone on one CPU is never idle.
    pub fn round(&self, operation: &str) -> Round {
        Round {
            operation: operation.to_owned(),
            units: 1,
            elapsed_ns: self.elapsed_ns,
            cpu: self.cpu,
            usable_cpus: 1,
            client: None,
        }
    }
}

/// A run failed and does not count.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The program was not found.
    #[error("program '{program}' is neither in PATH nor in /usr/sbin; check its name or install it")]
    Missing {
        /// The requested program.
        program: String,
    },
    /// A system call for the command failed.
    #[error("cannot run '{program}': {action}: {source}")]
    Io {
        /// The program.
        program: String,
        /// The step that failed.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The command failed.
    #[error("'{program}' {exit}; a run counts only if it ends with status 0")]
    Failed {
        /// The program.
        program: String,
        /// The exit status or signal.
        exit: Exit,
    },
    /// The caller's stop flag was set.
    #[error("stopped while '{program}' was running")]
    Stopped {
        /// The program.
        program: String,
    },
    /// Its CPU time could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A process of the command could not be killed.
    #[error(transparent)]
    Stop(#[from] StopError),
}

impl CommandProgram {
    /// Runs the command once. Calls `on_start` with its process id after its start. Setting `stop` kills it.
    pub fn run(
        &self,
        output: CommandOutput,
        stop: &AtomicBool,
        on_start: &mut dyn FnMut(i32),
    ) -> Result<CommandRun, CommandError> {
        let (program, arguments) = self.command.split_first().expect("a command is never empty");
        let failed = |action| move |source| CommandError::Io { program: program.clone(), action, source };
        let path = find_program(program).ok_or_else(|| CommandError::Missing { program: program.clone() })?;
        let stdio = || match output {
            CommandOutput::Inherit => Stdio::inherit(),
            CommandOutput::Discard => Stdio::null(),
        };
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(stdio()).stderr(stdio());
        let mut group = Group::new().map_err(failed("starting a watchdog"))?;
        let start = now();
        group.spawn(&mut command).map_err(failed("starting it"))?;
        if let Some(main) = group.main() {
            on_start(main.as_raw_nonzero().get());
        }
        let end = loop {
            if let Some(end) = group.wait(PAUSE).map_err(failed("waiting for it"))? {
                break end;
            }
            if stop.load(Ordering::Relaxed) {
                group.kill()?;
                return Err(CommandError::Stopped { program: program.clone() });
            }
        };
        let exit = group.exit().map_err(failed("reading its exit status"))?;
        let main = group.main_process().map_err(failed("reading its process state"))?;
        let cpu = cpu::of(main.as_slice())?;
        let left_behind = group.members().map_err(failed("listing its processes"))?.len();
        group.kill()?;
        match exit {
            Some(Exit::Status(0)) => Ok(CommandRun { elapsed_ns: elapsed_ns(start, end), cpu, left_behind }),
            Some(exit) => Err(CommandError::Failed { program: program.clone(), exit }),
            None => Err(failed("reading its exit status")(std::io::ErrorKind::NotFound.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{CommandError, CommandOutput, CommandRun};
    use crate::workload::{Program, Workload};

    fn run(script: &str) -> Result<CommandRun, CommandError> {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let Program::Command(command) = Workload::command(argv).unwrap().program else { unreachable!() };
        command.run(CommandOutput::Discard, &AtomicBool::new(false), &mut |_| {})
    }

    #[test]
    fn the_cpu_time_of_a_command_includes_its_children() {
        let run = run("head -c 300000000 /dev/zero | md5sum; true").unwrap();
        assert!(run.cpu.total_ns > 0 && run.cpu.user_ticks + run.cpu.system_ticks > 0, "{run:?}");
        assert_eq!(run.left_behind, 0);
    }

    #[test]
    fn a_failed_command_is_an_error() {
        let error = run("exit 3").unwrap_err();
        expect_test::expect!["'sh' ended with status 3; a run counts only if it ends with status 0"]
            .assert_eq(&error.to_string());
        let error = run("kill -SEGV $$").unwrap_err();
        expect_test::expect!["'sh' was killed by signal 11; a run counts only if it ends with status 0"]
            .assert_eq(&error.to_string());
    }

    #[test]
    fn processes_left_behind_are_counted_and_killed() {
        assert_eq!(run("sleep 1000 & sleep 1000 & true").unwrap().left_behind, 2);
    }

    #[test]
    fn a_stopped_command_is_killed() {
        let argv = ["sleep", "1000"].map(str::to_owned).to_vec();
        let Program::Command(command) = Workload::command(argv).unwrap().program else { unreachable!() };
        let mut pid = 0;
        let error = command
            .run(CommandOutput::Discard, &AtomicBool::new(true), &mut |started| pid = started)
            .unwrap_err();
        assert!(matches!(error, CommandError::Stopped { .. }), "{error}");
        assert_eq!(assay_process::Process::read(pid).unwrap(), None);
    }

    #[test]
    fn a_missing_program_is_named() {
        let argv = vec!["no-such-program".to_owned()];
        let Program::Command(command) = Workload::command(argv).unwrap().program else { unreachable!() };
        let error = command.run(CommandOutput::Discard, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        expect_test::expect![
            "program 'no-such-program' is neither in PATH nor in /usr/sbin; check its name or install it"
        ]
        .assert_eq(&error.to_string());
    }
}
