//! Commands: programs that run until they exit; one unit of work is one run. A command runs in the caller's
//! directory with the caller's environment and in its own process group. Processes that it leaves behind are
//! killed.

use std::num::NonZeroU64;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::clock::elapsed_ns;
use assay_process::{Exit, Group, StopError, find_program};
use assay_quantity::{CpuTime, Round};
use thiserror::Error;

use crate::cpu::{self, Counter, CpuError};
use crate::workload::CommandProgram;

/// Interval of the checks of the stop flag while a command runs; the end of the command is noticed
/// immediately.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs of a command, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRuns {
    /// Their number.
    pub runs: NonZeroU64,
    /// Sum of the times from before a start to its end.
    pub elapsed_ns: u64,
    /// CPU time of all processes of the runs; the time in the run queue is that of their main processes.
    pub cpu: CpuTime,
    /// Number of processes still running at the ends of the command, which were killed.
    pub left_behind: usize,
    /// Why the CPU time is read from `/proc`; `None` if a control group counts it.
    pub not_counted: Option<String>,
}

impl CommandRuns {
    /// Returns the runs as a round whose units of work are the runs. The idle share of the round is relative
    /// to one CPU: a command may use every CPU, but a command that runs alone on one CPU is never idle.
    pub fn round(&self, operation: &str) -> Round {
        Round {
            operation: operation.to_owned(),
            units: self.runs.get(),
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
    /// Runs the command `runs` times; its output is discarded. Setting `stop` kills it.
    pub fn run(&self, runs: NonZeroU64, stop: &AtomicBool) -> Result<CommandRuns, CommandError> {
        self.run_counted(&Counter::open(), runs, stop)
    }

    fn run_counted(
        &self,
        counter: &Counter,
        runs: NonZeroU64,
        stop: &AtomicBool,
    ) -> Result<CommandRuns, CommandError> {
        let not_counted = counter.not_counted().map(ToString::to_string);
        let mut sum =
            CommandRuns { runs, elapsed_ns: 0, cpu: CpuTime::default(), left_behind: 0, not_counted };
        for _ in 0..runs.get() {
            self.add_run(counter, &mut sum, stop)?;
        }
        sum.cpu = counter.counted(sum.cpu).map_err(self.failed("reading its CPU time"))?;
        Ok(sum)
    }

    fn add_run(
        &self,
        counter: &Counter,
        sum: &mut CommandRuns,
        stop: &AtomicBool,
    ) -> Result<(), CommandError> {
        let (program, arguments) = self.command.split_first().expect("a command is never empty");
        let path = find_program(program).ok_or_else(|| CommandError::Missing { program: program.clone() })?;
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut group = Group::new().map_err(self.failed("starting a watchdog"))?;
        let start = counter.spawn(&mut group, &mut command).map_err(self.failed("starting it"))?;
        let end = loop {
            if stop.load(Ordering::Relaxed) {
                group.kill()?;
                return Err(CommandError::Stopped { program: program.clone() });
            }
            if let Some(end) = group.wait(PAUSE).map_err(self.failed("waiting for it"))? {
                break end;
            }
        };
        let exit = group.exit().map_err(self.failed("reading its exit status"))?;
        let main = group.main_process().map_err(self.failed("reading its process state"))?;
        sum.cpu += cpu::of(main.as_slice())?;
        sum.elapsed_ns += elapsed_ns(start, end);
        sum.left_behind += group.members().map_err(self.failed("listing its processes"))?.len();
        group.kill()?;
        match exit {
            Some(Exit::Status(0)) => Ok(()),
            Some(exit) => Err(CommandError::Failed { program: program.clone(), exit }),
            None => Err(self.failed("reading its exit status")(std::io::ErrorKind::NotFound.into())),
        }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> CommandError {
        let program = self.command[0].clone();
        move |source| CommandError::Io { program, action, source }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use assay_process::{NoCpuAccount, Process};

    use super::{CommandError, CommandRuns, Counter};
    use crate::workload::{CommandProgram, Program, Workload};

    fn command(argv: &[&str]) -> CommandProgram {
        let argv = argv.iter().map(|&argument| argument.to_owned()).collect();
        let Program::Command(command) = Workload::command(argv).unwrap().program else { unreachable!() };
        command
    }

    fn run(script: &str) -> Result<CommandRuns, CommandError> {
        runs(script, 1)
    }

    fn runs(script: &str, number: u64) -> Result<CommandRuns, CommandError> {
        command(&["sh", "-c", script]).run(number.try_into().unwrap(), &AtomicBool::new(false))
    }

    #[test]
    fn the_cpu_time_of_a_command_includes_its_children() {
        let run = run("head -c 300000000 /dev/zero | md5sum; true").unwrap();
        assert!(run.cpu.total_ns > 0 && run.cpu.user_ticks + run.cpu.system_ticks > 0, "{run:?}");
        assert_eq!((run.left_behind, run.not_counted), (0, None));
    }

    #[test]
    fn the_kernel_time_of_processes_shorter_than_a_clock_tick_is_counted() {
        // To start a process and to end it is work of the kernel for the most part.
        let runs = runs("for i in $(seq 100); do /bin/true; done", 20).unwrap();
        assert!(runs.cpu.system_ticks > runs.cpu.user_ticks / 2, "{runs:?}");
        assert_eq!(runs.round("true").units, 20);
    }

    #[test]
    fn without_a_control_group_the_processes_count_and_the_reason_is_given() {
        let counter = Counter::without_account(NoCpuAccount::NotMounted);
        let command = command(&["sh", "-c", "head -c 300000000 /dev/zero | md5sum"]);
        let run = command.run_counted(&counter, NonZeroU64::MIN, &AtomicBool::new(false)).unwrap();
        assert!(run.cpu.total_ns > 0, "{run:?}");
        expect_test::expect![
            "no unified hierarchy of control groups is mounted; mount one: mount -t cgroup2 none DIRECTORY"
        ]
        .assert_eq(&run.not_counted.unwrap());
    }

    #[test]
    fn a_command_runs_as_often_as_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo one >> {}", file.path().display());
        let runs = runs(&script, 3).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "one\none\none\n");
        assert_eq!(runs.runs.get(), 3);
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo $$ > {}; exec sleep 1000", file.path().display());
        let pid = || std::fs::read_to_string(file.path()).unwrap().trim().parse::<i32>().ok();
        let stop = AtomicBool::new(false);
        let run = thread::scope(|scope| {
            scope.spawn(|| {
                let _ = (0..60_000).find(|_| {
                    thread::sleep(Duration::from_millis(1));
                    pid().is_some()
                });
                stop.store(true, Ordering::Relaxed);
            });
            command(&["sh", "-c", &script]).run(NonZeroU64::MIN, &stop)
        });
        assert!(matches!(run, Err(CommandError::Stopped { .. })), "{run:?}");
        assert_eq!(Process::read(pid().unwrap()).unwrap(), None);
    }

    #[test]
    fn no_further_run_begins_after_a_stop() {
        let run = command(&["true"]).run(10.try_into().unwrap(), &AtomicBool::new(true));
        assert!(matches!(run, Err(CommandError::Stopped { .. })), "{run:?}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = command(&["no-such-program"]).run(NonZeroU64::MIN, &AtomicBool::new(false)).unwrap_err();
        expect_test::expect![
            "program 'no-such-program' is neither in PATH nor in /usr/sbin; check its name or install it"
        ]
        .assert_eq(&error.to_string());
    }
}
