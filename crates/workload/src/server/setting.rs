//! Where and as which user the programs of a server run: its scratch directory, port, environment, and the
//! file for the output. The server itself and the commands before and after its start run there alike.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_process::clock::now;
use assay_process::{Exit, Group, find_program, search_path};
use nix::unistd::User;
use rustix::process::geteuid;
use tempfile::TempDir;

use super::StartError;
use crate::scratch;
use crate::template::Placeholders;
use crate::workload::{ServerProgram, Workload};

/// Number of output lines of a failed program that are shown.
const LAST_WORDS_LINES: usize = 5;

/// Interval of the checks of the stop flag while a command runs.
const PAUSE: Duration = Duration::from_millis(20);

/// The connections of a dying server close before the process counts as ended; its end follows within this
/// time.
pub(crate) const DEATH: Duration = Duration::from_millis(200);

/// The limits of a start.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// The time at which the start has failed.
    pub(super) deadline: Instant,
    /// The time from the beginning of the start to the deadline.
    pub(super) timeout: Duration,
    /// Set by the caller to give up.
    pub(super) stop: &'a AtomicBool,
}

/// A command of the workload file, with the key that contains it.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) key: &'static str,
    pub(super) command: &'a [String],
}

/// The setting of one run.
#[derive(Debug)]
pub(super) struct Setting {
    /// The program of the server, for messages.
    program: String,
    environment: Vec<(String, String)>,
    packages: Vec<String>,
    pub(super) placeholders: Placeholders,
    pub(super) scratch: TempDir,
    output: File,
    /// The user that the programs run as, if it is not the caller.
    user: Option<User>,
}

impl Setting {
    /// Creates the scratch directory with its files.
    pub(super) fn new(
        workload: &Workload,
        program: &ServerProgram,
        port: u16,
    ) -> Result<Setting, StartError> {
        let name = &program.command[0];
        let failed = |action| move |source| StartError::Io { program: name.clone(), action, source };
        let user = user(program, &workload.packages)?;
        let scratch = scratch::create().map_err(failed("creating its scratch directory"))?;
        let dir = scratch.path().to_str().ok_or_else(|| {
            failed("naming its scratch directory")(io::Error::other("the name is not UTF-8"))
        })?;
        let placeholders = Placeholders { dir: dir.to_owned(), port };
        scratch::fill(scratch.path(), &program.files, &placeholders).map_err(failed("writing its files"))?;
        if let Some(user) = &user {
            scratch::give(scratch.path(), user).map_err(failed("giving its files to its user"))?;
        }
        let output = tempfile::tempfile().map_err(failed("creating a file for its output"))?;
        Ok(Setting {
            program: name.clone(),
            environment: program.environment.clone(),
            packages: workload.packages.clone(),
            placeholders,
            scratch,
            output,
            user,
        })
    }

    /// Returns a command of the workload, with its path resolved and its placeholders replaced.
    pub(super) fn command(&self, words: &[String]) -> Result<Command, StartError> {
        let words: Vec<String> = words.iter().map(|word| self.placeholders.fill(word)).collect();
        let path = find_program(&words[0]).ok_or_else(|| StartError::ProgramMissing {
            program: words[0].clone(),
            packages: self.packages.clone(),
        })?;
        let copy = || {
            self.output
                .try_clone()
                .map_err(|source| self.io(&words, "sharing the file for its output", source))
        };
        let mut command = Command::new(path);
        command.args(&words[1..]).env_clear().env("PATH", search_path()).env("LC_ALL", "C");
        for (name, value) in &self.environment {
            command.env(name, self.placeholders.fill(value));
        }
        command.current_dir(self.scratch.path()).stdin(Stdio::null()).stdout(copy()?).stderr(copy()?);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        Ok(command)
    }

    /// Runs a command of the workload to its end. Returns how it ended. The end of `server` ends the command.
    pub(super) fn run(&self, step: Step, limits: Limits, server: Option<&Group>) -> Result<Exit, StartError> {
        let failed = |action| move |source| self.io(step.command, action, source);
        let mut command = self.command(step.command)?;
        let mut group = Group::new().map_err(failed("starting its watchdog"))?;
        group.spawn(&mut command).map_err(failed("starting it"))?;
        while group.wait(PAUSE).map_err(failed("waiting for it"))?.is_none() {
            if let Some(exit) = exit_of(server).map_err(failed("checking whether the server still runs"))? {
                return Err(self.exited(exit));
            }
            if limits.stop.load(Ordering::Relaxed) {
                return Err(StartError::Stopped { program: self.program.clone() });
            }
            if now() >= limits.deadline {
                let problem = format!("did not end within {:?}, the time limit of the start", limits.timeout);
                return Err(self.failed(step, problem));
            }
        }
        let exit = group.exit().map_err(failed("reading its exit status"))?;
        exit.ok_or_else(|| self.failed(step, "ended without a status".to_owned()))
    }

    /// Runs a command that must end with status 0. If it fails because `server` has ended, that is the error.
    pub(super) fn run_successfully(
        &self,
        step: Step,
        limits: Limits,
        server: Option<&Group>,
    ) -> Result<(), StartError> {
        match self.run(step, limits, server)? {
            Exit::Status(0) => Ok(()),
            exit => {
                let failed = |source| self.io(step.command, "checking whether the server still runs", source);
                if let Some(server) = server {
                    server.wait(DEATH).map_err(failed)?;
                }
                Err(match exit_of(server).map_err(failed)? {
                    Some(end) => self.exited(end),
                    None => self.failed(step, exit.to_string()),
                })
            }
        }
    }

    /// The server ended before it was ready.
    pub(super) fn exited(&self, exit: Exit) -> StartError {
        StartError::Exited { program: self.program.clone(), exit, last_words: self.last_words() }
    }

    fn failed(&self, step: Step, problem: String) -> StartError {
        let command = self.placeholders.fill(&step.command.join(" "));
        StartError::Command { key: step.key, command, problem, last_words: self.last_words() }
    }

    /// A system call for a program failed.
    pub(super) fn io(&self, command: &[String], action: &'static str, source: io::Error) -> StartError {
        match &self.user {
            Some(user) if source.kind() == io::ErrorKind::PermissionDenied => {
                StartError::NoEntry { user: user.name.clone(), dir: self.placeholders.dir.clone() }
            }
            _ => StartError::Io { program: command[0].clone(), action, source },
        }
    }

    /// Returns the last lines that the programs wrote to their standard output and error.
    pub(super) fn last_words(&self) -> String {
        last_words(&self.output).unwrap_or_else(|error| format!("(its output cannot be read: {error})"))
    }
}

fn exit_of(server: Option<&Group>) -> io::Result<Option<Exit>> {
    server.map_or(Ok(None), Group::exit)
}

/// Returns the user of a server that root starts.
fn user(program: &ServerProgram, packages: &[String]) -> Result<Option<User>, StartError> {
    let Some(name) = program.user.as_ref().filter(|_| geteuid().is_root()) else { return Ok(None) };
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Some(user)),
        Ok(None) => Err(StartError::NoUser { user: name.clone(), packages: packages.to_vec() }),
        Err(errno) => Err(StartError::Io {
            program: program.command[0].clone(),
            action: "looking up its user",
            source: errno.into(),
        }),
    }
}

/// Returns the last lines of `output`, joined into one line.
fn last_words(output: &File) -> io::Result<String> {
    const TAIL_BYTES: usize = 4096;
    let length = output.metadata()?.len();
    let mut tail = vec![0; TAIL_BYTES.min(usize::try_from(length).unwrap_or(TAIL_BYTES))];
    let start = length - tail.len() as u64;
    output.read_exact_at(&mut tail, start)?;
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(LAST_WORDS_LINES);
    Ok(if lines.is_empty() { "(nothing)".to_owned() } else { lines[first..].join(" | ") })
}
