//! A program that is started but waits until a recorder is attached to it.
//!
//! The child blocks on a pipe before it runs the program, so that not one call of the program is missed.
//! `std::process::Command` cannot do this: its `spawn` returns only when the program runs.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    path::PathBuf,
    process::ExitStatus,
    ptr,
};

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no command, or no program of that name.
    #[error("'{program}': no such program; give a path, or a name that is in PATH")]
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

/// A child that waits to be released. Dropped, it ends without having run anything.
#[derive(Debug)]
pub struct Held {
    program: String,
    child: Running,
    hold: File,
    /// Yields the errno of a failed `execve`, or nothing when it worked: it closes on exec.
    failure: File,
}

/// A child that runs its program.
#[derive(Debug)]
pub struct Running {
    process: libc::pid_t,
    reaped: bool,
}

impl Held {
    /// Makes the child for `command`: program and arguments. It inherits the standard streams and the environment.
    pub fn fork(command: &[OsString]) -> Result<Self, SpawnError> {
        let (arguments, environment) = (strings(command)?, environment()?);
        let name = command.first().ok_or(SpawnError::NotFound { program: String::new() })?;
        let program = name.to_string_lossy().into_owned();
        let path = strings(&[find(name)?.into_os_string()])?;
        let failed = |source| SpawnError::Process { program: program.clone(), source };
        let (held, hold) = pipe().map_err(failed)?;
        let (failure, report) = pipe().map_err(failed)?;
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        // SAFETY: until it runs the program or exits, the child makes system calls only, on memory prepared
        // above, so that locks held by other threads of this process do not matter.
        match unsafe { libc::fork() } {
            -1 => Err(failed(io::Error::last_os_error())),
            0 => {
                drop(hold);
                // SAFETY: this is the child; the pointers are of live, terminated arrays of C strings.
                unsafe { run_when_released(&held, &report, path[0].as_ptr(), argv.as_ptr(), envp.as_ptr()) }
            }
            process => Ok(Self {
                program,
                child: Running { process, reaped: false },
                hold: hold.into(),
                failure: failure.into(),
            }),
        }
    }

    /// The child's process number, which stays the same when the program runs.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.process()
    }

    /// Lets the child run its program; returns when it does.
    pub fn release(mut self) -> Result<Running, SpawnError> {
        let failed = |program: String, source| SpawnError::Run { program, source };
        self.hold.write_all(&[1]).map_err(|source| failed(self.program.clone(), source))?;
        let mut errno = Vec::new();
        self.failure.read_to_end(&mut errno).map_err(|source| failed(self.program.clone(), source))?;
        match <[u8; 4]>::try_from(errno) {
            Ok(bytes) => Err(failed(self.program, io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)))),
            Err(_) => Ok(self.child),
        }
    }
}

impl Running {
    /// Its process number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.cast_unsigned()
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.reap()
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut status = 0;
        // SAFETY: `status` is an int of ours that the call fills; the process is a child not yet reaped.
        match unsafe { libc::waitpid(self.process, &raw mut status, libc::WNOHANG) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => {
                self.reaped = true;
                Ok(Some(ExitStatus::from_raw(status)))
            }
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is an int of ours that the call fills; the process is a child not yet reaped.
            if unsafe { libc::waitpid(self.process, &raw mut status, 0) } != -1 {
                self.reaped = true;
                return Ok(ExitStatus::from_raw(status));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Running {
    /// A child whose handle goes is ended: nobody would be left to wait for it.
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: a child of ours that has not been reaped, so the number cannot have been given to another.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            let _ = self.reap();
        }
    }
}

/// The child's side. Never returns.
///
/// # Safety
/// Only in a child made by `fork`, with pointers to terminated arrays as `execve` wants them.
unsafe fn run_when_released(
    held: &OwnedFd,
    report: &OwnedFd,
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> ! {
    let mut byte = 0_u8;
    // SAFETY: one byte of our own; the descriptor is open.
    let released = unsafe { libc::read(held.as_raw_fd(), (&raw mut byte).cast(), 1) } == 1;
    if released {
        // SAFETY: as the caller promises.
        unsafe { libc::execve(path, argv, envp) };
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
        // SAFETY: four bytes of our own; the descriptor is open.
        unsafe { libc::write(report.as_raw_fd(), errno.as_ptr().cast(), errno.len()) };
    }
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened and belong to nobody else.
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

/// Finds the program as a shell would.
fn find(name: &OsStr) -> Result<PathBuf, SpawnError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let missing = || SpawnError::NotFound { program: name.to_string_lossy().into_owned() };
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(missing)
}
