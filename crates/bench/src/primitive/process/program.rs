//! Children that execute a program: a static and a dynamic one, by `fork`, `vfork` and `posix_spawn`, and the
//! shell (lmbench, 1996, section 6.5; thesis, section 2.2.3, which adds the statically linked one).

use std::ffi::{CStr, CString};
use std::fs;
use std::io;

use assay_quantity::{Key, PrimitiveId};
use rand::RngExt;

use super::fork::{bare, bare_exits, family, fork, reap};
use super::image::{Code, Executable, Kind, elf};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["process.exec{link=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["fork", "clone", "execve", "wait4"],
        about: "`fork`, `execve` of a program that exits immediately, its run, `waitpid`",
        source: "lmbench 1996, section 6.5; thesis, section 2.2.3",
        prepare: fork_exec,
    },
    Row {
        quick: &["process.execve{link=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["fork", "clone", "execve", "wait4"],
        about: "`fork`, `execve` of a program that exits immediately, `waitpid`, less `process.bare_fork_exit`: the \
                call alone. The program of `link=dynamic` has four segments, as linkers make them, and so does \
                its interpreter, which exits instead of loading libraries",
        source: "own: the cost of an exec to an application whose calls and page faults are counted by \
                 themselves",
        prepare: execve,
    },
    Row {
        quick: &["process.vfork_exec{link=static}"],
        full: &["process.vfork_exec{link=*}"],
        cost: Per::Operation,
        calls: &["vfork", "clone", "execve", "wait4"],
        about: "`vfork`, `execve` of a program that exits immediately, its run, `waitpid`",
        source: "own: for comparison with fork",
        prepare: vfork_exec,
    },
    Row {
        quick: &["process.posix_spawn{link=static}"],
        full: &["process.posix_spawn{link=*}"],
        cost: Per::Operation,
        calls: &["vfork", "clone", "clone3", "execve", "wait4", "mmap", "munmap", "rt_sigprocmask"],
        about: "the C library's `posix_spawn` of a program that exits immediately, its run, `waitpid`",
        source: "own: for comparison with fork",
        prepare: posix_spawn,
    },
    Row {
        quick: &["process.shell"],
        full: &[],
        cost: Per::Operation,
        calls: &["fork", "clone", "execve", "wait4"],
        about: "`fork` and `execve` of `/bin/sh -c /bin/true`, `waitpid`",
        source: "lmbench 1996, section 6.5",
        prepare: shell,
    },
];

/// Prepares `fork`, `execve` in the child, the program's run, and `waitpid` in the parent.
fn fork_exec(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(running(Program::of(id, setting)?, Program::fork))
}

/// The same as [`fork_exec`] without the C library, less the same without `execve`.
fn execve(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let make = bare::fork()?;
    let prepared = running(Program::exiting(id.word(Key::Link), setting)?, move |program| program.bare(make));
    Ok(Prepared { baseline: Some(Box::new(Steps::of(bare_exits()?))), ..prepared })
}

/// The same as [`fork_exec`] with `vfork`.
fn vfork_exec(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let vfork = bare::vfork()?;
    Ok(running(Program::of(id, setting)?, move |program| program.bare(vfork)))
}

/// The same as [`fork_exec`] with the C library's `posix_spawn`, without attributes and file actions.
fn posix_spawn(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(running(Program::of(id, setting)?, Program::spawn))
}

/// Prepares `fork`, `/bin/sh -c` of another program in the child, and `waitpid` in the parent.
fn shell(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let program = Program::existing(&[c"/bin/sh", c"-c", c"/bin/true"])?;
    Ok(running(program, Program::fork))
}

fn running(program: Program, start: impl FnMut(&Program) -> io::Result<libc::pid_t> + 'static) -> Prepared {
    family(Running { program, start })
}

/// Runs of a program, one after another.
struct Running<S> {
    program: Program,
    start: S,
}

impl<S: FnMut(&Program) -> io::Result<libc::pid_t>> Step for Running<S> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let child = (self.start)(&self.program)?;
        reap(child, self.program.exit_status)
    }

    /// `step` has already checked the status of every run.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A program with its arguments. Its environment is empty.
struct Program {
    words: Vec<CString>,
    exit_status: libc::c_int,
    _files: Vec<Executable>,
}

/// A list of arguments or of the environment as `execve` takes it, with at most three words.
type List = [*const libc::c_char; 4];

const EMPTY: List = [std::ptr::null(); 4];

impl Program {
    /// A program of this linking: a static one of ours, or a dynamic one of the system.
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        match id.word(Key::Link) {
            "static" => Self::exiting("static", setting),
            _ => Self::existing(&[c"/bin/true"]),
        }
    }

    /// A program of this linking that exits immediately. The interpreter of a dynamic one does so instead of
    /// loading it.
    fn exiting(link: &str, setting: &mut Setting) -> Result<Self, Refusal> {
        // Not 0, so that a run that did not take place cannot pass as successful; below the values that have
        // a meaning in shells.
        let exit_status = setting.rng.random_range(1..100);
        let code = Code::exit(exit_status)?;
        let files = if link == "static" {
            vec![Executable::write(setting, "static", &elf(&code, &Kind::Fixed))?]
        } else {
            let interpreter = Executable::write(setting, "interpreter", &elf(&code, &Kind::Interpreter))?;
            let program = elf(&code, &Kind::Interpreted(&interpreter.name));
            vec![Executable::write(setting, "dynamic", &program)?, interpreter]
        };
        Ok(Self { words: vec![files[0].name.clone()], exit_status: exit_status.into(), _files: files })
    }

    /// A program of the system that exits successfully.
    fn existing(words: &[&CStr]) -> Result<Self, Refusal> {
        let name = words[0].to_string_lossy();
        if !fs::exists(name.as_ref())? {
            return Err(Refusal::Unavailable(format!("{name} does not exist; install it")));
        }
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self { words, exit_status: libc::EXIT_SUCCESS, _files: Vec::new() })
    }

    fn arguments(&self) -> List {
        let mut arguments = EMPTY;
        for (argument, word) in arguments.iter_mut().zip(&self.words) {
            *argument = word.as_ptr();
        }
        arguments
    }

    #[inline]
    fn fork(&self) -> io::Result<libc::pid_t> {
        let arguments = self.arguments();
        fork(|| {
            // SAFETY: both lists end with a null pointer, and the strings outlive the call, which returns
            // only if it fails.
            unsafe { libc::execve(arguments[0], arguments.as_ptr(), EMPTY.as_ptr()) };
        })
    }

    /// Executes the program in a child that the call `child` creates.
    #[inline]
    fn bare(&self, child: bare::Call) -> io::Result<libc::pid_t> {
        let arguments = self.arguments();
        bare::make(child, bare::execve(&self.words[0], &arguments, &EMPTY))
    }

    #[inline]
    fn spawn(&self) -> io::Result<libc::pid_t> {
        let arguments = self.arguments();
        let mut child = 0;
        // SAFETY: both lists end with a null pointer, and the strings outlive the call, which modifies
        // neither; the pointer is to a local.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut child,
                arguments[0],
                std::ptr::null(),
                std::ptr::null(),
                arguments.as_ptr().cast::<*mut libc::c_char>(),
                EMPTY.as_ptr().cast::<*mut libc::c_char>(),
            )
        };
        if error == 0 { Ok(child) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// A copy of an executable file. A file that is open for writing cannot be executed, and a process that
    /// another test forks at this moment inherits every descriptor that is open here. A file that another
    /// program copies is never open here.
    fn copied(directory: &Path, name: &str, contents: &[u8]) -> CString {
        let (original, path) = (directory.join("original"), directory.join(name));
        fs::write(&original, contents).unwrap();
        fs::set_permissions(&original, fs::Permissions::from_mode(0o700)).unwrap();
        let copied = std::process::Command::new("cp").arg(&original).arg(&path).status().unwrap();
        assert!(copied.success());
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    #[test]
    fn a_program_of_either_linking_exits_with_the_status_in_its_code_however_it_is_started() {
        let (fork, vfork) = (bare::fork().unwrap(), bare::vfork().unwrap());
        for exit_status in [1, 42, 99] {
            let directory = tempfile::tempdir().unwrap();
            let code = |status| Code::exit(status).unwrap();
            let fixed = copied(directory.path(), "fixed", &elf(&code(exit_status), &Kind::Fixed));
            let interpreter =
                copied(directory.path(), "interpreter", &elf(&code(exit_status), &Kind::Interpreter));
            // The program's own code must not run.
            let interpreted =
                copied(directory.path(), "program", &elf(&code(100), &Kind::Interpreted(&interpreter)));
            for name in [fixed, interpreted] {
                let program =
                    Program { words: vec![name], exit_status: exit_status.into(), _files: Vec::new() };
                let starts: [&dyn Fn() -> io::Result<libc::pid_t>; 4] =
                    [&|| program.fork(), &|| program.bare(fork), &|| program.bare(vfork), &|| {
                        program.spawn()
                    }];
                for start in starts {
                    reap(start().unwrap(), exit_status.into()).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_reported() {
        let Err(Refusal::Unavailable(reason)) = Program::existing(&[c"/no/such/program"]) else {
            panic!("found a program that does not exist")
        };
        assert_eq!(reason, "/no/such/program does not exist; install it");
    }
}
