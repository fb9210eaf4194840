//! A program that is started but waits until a recorder is attached to it.
//!
//! The child blocks on a pipe before it runs the program, so that not one call of the program is missed.
//! `std::process::Command` cannot do this: its `spawn` returns only when the program runs.

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

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no command, or no program of that name.
    #[error("'{program}': no such program; give a path, or a name that is in PATH or /usr/sbin")]
    NotFound {
        /// What was asked for.
        program: String,
    },
    /// An argument holds a zero byte.
    #[error("argument '{argument}' holds a zero byte, which no program can be given; remove it")]
    Zero {
        /// The argument.
        argument: String,
    },
    /// No pipe or no process.
    #[error("no process for '{program}': {source}; raise the limit on processes or open files")]
    Process {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not run it.
    #[error("'{program}' cannot be run: {source}; check that it is an executable of this machine")]
    Run {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
}

/// What the standard streams of a command are, and with them its process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// The caller's. It stays in the caller's process group, so that it may read the terminal and Ctrl-C reaches it.
    Inherit,
    /// `/dev/null`, all three, as a command has them that is measured. It gets a process group of its own.
    Null,
}

/// A child that waits to be released. Dropped, it ends without having run anything.
#[derive(Debug)]
pub struct Held {
    program: String,
    child: Child,
    hold: File,
    /// Yields the errno of a failed `execve`, or nothing when it worked: it closes on exec.
    failure: File,
}

impl Held {
    /// Makes the child for `command`: program and arguments. It inherits the environment, and it is killed when the
    /// thread that calls this ends: there is no recorder any more.
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
        // SAFETY: until it runs the program or exits, the child makes system calls only, on memory prepared
        // above, so that locks held by other threads of this process do not matter.
        match unsafe { libc::fork() } {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                drop(hold);
                // SAFETY: this is the child; what `start` points at lives until it runs its program.
                unsafe { start.run_when_released() }
            }
            process => {
                let pid = Pid::from_raw(process).expect("fork returns -1, 0 or an id");
                let child = match streams {
                    Streams::Inherit => Child::forked(pid),
                    Streams::Null => Child::forked(pid).with_group(),
                };
                Ok(Self { program, child, hold: hold.into(), failure: failure.into() })
            }
        }
    }

    /// The child's process number, which stays the same when the program runs.
    #[must_use]
    pub fn process(&self) -> u32 {
        number(&self.child)
    }

    /// Lets the child run its program; returns when it does.
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

/// What the child needs between `fork` and `execve`: numbers, and pointers to terminated arrays.
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
    /// The child's side. Never returns. Everything but `execve` comes before the release, when nothing is recorded yet.
    ///
    /// # Safety
    /// Only in a child made by `fork`, with pointers as `execve` wants them.
    unsafe fn run_when_released(&self) -> ! {
        let prepared = self.prepare();
        let mut byte = 0_u8;
        // SAFETY: one byte of our own; the descriptor is open.
        let released = unsafe { libc::read(self.held, (&raw mut byte).cast(), 1) } == 1;
        if released {
            let error = prepared.err().unwrap_or_else(|| {
                // SAFETY: as the caller promises.
                unsafe { libc::execve(self.path, self.argv, self.envp) };
                io::Error::last_os_error()
            });
            let errno = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
            // SAFETY: four bytes of our own; the descriptor is open.
            unsafe { libc::write(self.report, errno.as_ptr().cast(), errno.len()) };
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }

    /// Gives the child what a program expects to find, and ties its life to the parent's.
    fn prepare(&self) -> io::Result<()> {
        // SAFETY: a set of signals is a plain structure, for which all zeros are a value: the empty set.
        let no_signals: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: numbers, and a set of ours that is only read.
        unsafe {
            done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() != self.parent {
                // It ended before the line above; there is no parent to release this child.
                libc::_exit(127);
            }
            if let Some(null) = self.null {
                done(libc::setpgid(0, 0))?;
                for stream in 0..=2 {
                    done(libc::dup2(null, stream))?;
                }
            }
            // Rust's runtime ignores SIGPIPE, and what is ignored or blocked stays so over `execve`.
            if libc::signal(libc::SIGPIPE, libc::SIG_DFL) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            done(libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, ptr::null_mut()))
        }
    }
}

/// The error that a system call tells by -1.
fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
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

/// Finds the program. A path is left to the kernel, which says what is wrong with it.
fn find(name: &OsStr) -> Result<PathBuf, SpawnError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    find_program(name).ok_or_else(|| SpawnError::NotFound { program: name.to_string_lossy().into_owned() })
}
