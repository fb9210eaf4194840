//! A started program that waits until a recorder is attached to it.
//!
//! The child blocks on a pipe before it executes the program, so that the recorder misses no call of the
//! program. `std::process::Command` cannot do this: its `spawn` returns only after the program runs.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    ptr,
};

use assay_process::{Child, clock::now, find_program};
use rustix::process::Pid;

use crate::running::{Running, number};

/// A command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command is empty, or there is no program with this name.
    #[error("'{program}': program not found; specify a path, or a program in PATH or /usr/sbin")]
    NotFound {
        /// The requested program.
        program: String,
    },
    /// An argument contains a zero byte.
    #[error("argument '{argument}' contains a zero byte, which cannot be passed to a program; remove it")]
    Zero {
        /// The argument.
        argument: String,
    },
    /// A pipe or a process could not be created.
    #[error("cannot create a process for '{program}': {source}; raise the limit on processes or open files")]
    Process {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The kernel cannot execute the program.
    #[error("'{program}' cannot be executed: {source}; check that it is an executable for this machine")]
    Run {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
}

/// Standard streams and process group of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Inherits the caller's streams. The command stays in the caller's process group, so that it can read
    /// the terminal and Ctrl-C reaches it.
    Inherit,
    /// Redirects all three streams to `/dev/null`, like those of a measured command. The command gets its own
    /// process group.
    Null,
}

/// A child that waits for its release. If dropped, it ends without executing the program.
#[derive(Debug)]
pub struct Held {
    program: String,
    child: Child,
    hold: File,
    /// Yields the errno of a failed `execve`, or nothing on success: it closes on exec.
    failure: File,
}

impl Held {
    /// Forks the child for `command`, the program and its arguments. The child inherits the environment, and
    /// the kernel kills it when the calling thread ends, because the recorder ends with that thread.
    pub fn fork(command: &[OsString], streams: Streams) -> Result<Self, SpawnError> {
        let (arguments, environment) = (strings(command)?, environment()?);
        let name = command.first().ok_or(SpawnError::NotFound { program: String::new() })?;
        let program = name.to_string_lossy().into_owned();
        let path = strings(&[find(name)?.into_os_string()])?;
        let failed = |source| SpawnError::Process { program: program.clone(), source };
        let null =
            (streams == Streams::Null).then(|| File::options().read(true).write(true).open("/dev/null"));
        let null = null.transpose().map_err(failed)?;
        let (held, hold) = pipe().map_err(failed)?;
        let (failure, report) = pipe().map_err(failed)?;
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        let start = Start {
            parent: std::process::id().cast_signed(),
            null: null.as_ref().map(AsRawFd::as_raw_fd),
            held: held.as_raw_fd(),
            report: report.as_raw_fd(),
            path: path[0].as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
        };
        // SAFETY: until it executes the program or exits, the child only makes system calls on memory
        // prepared above, so locks held by other threads of this process have no effect.
        match unsafe { libc::fork() } {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                drop(hold);
                // SAFETY: this is the child; the memory that `start` points to lives until the program is
                // executed.
                unsafe { start.run_when_released() }
            }
            process => {
                let pid = Pid::from_raw(process).expect("fork returns -1, 0 or a process id");
                let child = match streams {
                    Streams::Inherit => Child::forked(pid),
                    Streams::Null => Child::forked(pid).with_group(),
                };
                Ok(Self { program, child, hold: hold.into(), failure: failure.into() })
            }
        }
    }

    /// Returns the process id of the child, which stays the same when the program is executed.
    #[must_use]
    pub fn process(&self) -> u32 {
        number(&self.child)
    }

    /// Lets the child execute the program; returns after the `execve`.
    pub fn release(mut self) -> Result<Running, SpawnError> {
        let failed = |program: String, source| SpawnError::Run { program, source };
        let released = now();
        self.hold.write_all(&[1]).map_err(|source| failed(self.program.clone(), source))?;
        let mut errno = Vec::new();
        self.failure.read_to_end(&mut errno).map_err(|source| failed(self.program.clone(), source))?;
        match <[u8; 4]>::try_from(errno) {
            Ok(bytes) => Err(failed(self.program, io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)))),
            Err(_) => Ok(Running::new(self.child, released)),
        }
    }
}

/// Data of the child between `fork` and `execve`: numbers, and pointers to null-terminated arrays.
struct Start {
    parent: libc::pid_t,
    null: Option<RawFd>,
    held: RawFd,
    report: RawFd,
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
}

impl Start {
    /// Runs in the child and never returns. All steps except `execve` precede the release, before the
    /// recording starts.
    ///
    /// # Safety
    /// Must be called in a child created by `fork`, with pointers that are valid for `execve`.
    unsafe fn run_when_released(&self) -> ! {
        let prepared = self.prepare();
        let mut byte = 0_u8;
        // SAFETY: `byte` has room for one byte; the descriptor is open.
        let released = unsafe { libc::read(self.held, (&raw mut byte).cast(), 1) } == 1;
        if released {
            let error = prepared.err().unwrap_or_else(|| {
                // SAFETY: the caller guarantees valid pointers.
                unsafe { libc::execve(self.path, self.argv, self.envp) };
                io::Error::last_os_error()
            });
            let errno = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
            // SAFETY: `errno` is four bytes; the descriptor is open.
            unsafe { libc::write(self.report, errno.as_ptr().cast(), errno.len()) };
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }

    /// Sets the process state that a program expects, and ties the child's lifetime to the parent.
    fn prepare(&self) -> io::Result<()> {
        // SAFETY: a signal set is a plain structure for which all zeros are valid: the empty set.
        let no_signals: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the arguments are numbers, and a valid set that is only read.
        unsafe {
            done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() != self.parent {
                // The parent ended before the line above, so it cannot release this child.
                libc::_exit(127);
            }
            if let Some(null) = self.null {
                done(libc::setpgid(0, 0))?;
                for stream in 0..=2 {
                    done(libc::dup2(null, stream))?;
                }
            }
            // Rust's runtime ignores SIGPIPE, and ignored or blocked signals stay so across `execve`.
            if libc::signal(libc::SIGPIPE, libc::SIG_DFL) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            done(libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, ptr::null_mut()))
        }
    }
}

/// Converts the result -1 of a system call into an error.
fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has space for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn strings(texts: &[OsString]) -> Result<Vec<CString>, SpawnError> {
    let zero = |text: &OsString| SpawnError::Zero { argument: text.to_string_lossy().into_owned() };
    texts.iter().map(|text| CString::new(text.as_bytes()).map_err(|_| zero(text))).collect()
}

fn environment() -> Result<Vec<CString>, SpawnError> {
    let pairs: Vec<_> = env::vars_os()
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })
        .collect();
    strings(&pairs)
}

/// Finds the program. A path is returned as is, because the kernel reports what is wrong with it.
fn find(name: &OsStr) -> Result<PathBuf, SpawnError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    find_program(name).ok_or_else(|| SpawnError::NotFound { program: name.to_string_lossy().into_owned() })
}
