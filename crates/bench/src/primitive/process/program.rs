//! Children that execute a program: a static and a dynamic one, by `fork`, `vfork` and `posix_spawn`, and the
//! shell (lmbench, 1996, section 6.5; thesis, section 2.2.3, which adds the statically linked one).

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use assay_quantity::{Key, PrimitiveId};
use rand::RngExt;

use super::fork::{borrowed, family, fork, reap};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::primitive::kit::step::Step;

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

/// The same as [`fork_exec`] with `vfork`.
fn vfork_exec(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let vfork = borrowed::vfork()?;
    Ok(running(Program::of(id, setting)?, move |program| program.vfork(vfork)))
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
    _file: Option<StaticProgram>,
}

/// A list of arguments or of the environment as `execve` takes it, with at most three words.
type List = [*const libc::c_char; 4];

const EMPTY: List = [std::ptr::null(); 4];

impl Program {
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        match id.word(Key::Link) {
            "static" => {
                let file = StaticProgram::write(setting)?;
                let name = CString::new(file.path.as_os_str().as_bytes()).map_err(io::Error::other)?;
                Ok(Self { words: vec![name], exit_status: file.exit_status.into(), _file: Some(file) })
            }
            _ => Self::existing(&[c"/bin/true"]),
        }
    }

    /// A program of the system that exits successfully.
    fn existing(words: &[&CStr]) -> Result<Self, Refusal> {
        let name = words[0].to_string_lossy();
        if !fs::exists(name.as_ref())? {
            return Err(Refusal::Unavailable(format!("{name} does not exist; install it")));
        }
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Self { words, exit_status: libc::EXIT_SUCCESS, _file: None })
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

    #[inline]
    fn vfork(&self, vfork: borrowed::Call) -> io::Result<libc::pid_t> {
        let arguments = self.arguments();
        borrowed::make(vfork, borrowed::execve(&self.words[0], &arguments, &EMPTY))
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

/// A program of one page that exits immediately: no loader, no library, no start-up code.
struct StaticProgram {
    path: PathBuf,
    exit_status: u8,
}

impl StaticProgram {
    fn write(setting: &mut Setting) -> Result<Self, Refusal> {
        // Not 0, so that a run that did not take place cannot pass as successful; below the values that have
        // a meaning in shells.
        let exit_status = setting.rng.random_range(1..100);
        let (machine, code) = exit(exit_status).ok_or_else(|| {
            Refusal::Unavailable(
                "no static program is available for this architecture; use link=dynamic".to_owned(),
            )
        })?;
        let path = setting.directory.join(format!("static-{}", std::process::id()));
        fs::write(&path, elf(machine, &code))?;
        let program = Self { path, exit_status };
        fs::set_permissions(&program.path, fs::Permissions::from_mode(0o700))?;
        let name = CString::new(program.path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        // SAFETY: the name is a C string.
        if unsafe { libc::access(name.as_ptr(), libc::X_OK) } != 0 {
            return Err(Refusal::Unavailable(format!(
                "programs in {} cannot be executed; choose a directory that is not mounted noexec",
                setting.directory.display()
            )));
        }
        Ok(program)
    }
}

impl Drop for StaticProgram {
    fn drop(&mut self) {
        // At the end of the run the directory is removed with its contents.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the ELF number of the machine and the machine code of `exit_group(status)`; `None` for other
/// architectures.
fn exit(status: u8) -> Option<(u16, Vec<u8>)> {
    if cfg!(target_arch = "x86_64") {
        // mov edi, status; mov eax, 231; syscall
        let code = [0xbf, status, 0x00, 0x00, 0x00, 0xb8, 0xe7, 0x00, 0x00, 0x00, 0x0f, 0x05];
        Some((62, code.to_vec()))
    } else if cfg!(target_arch = "aarch64") {
        // mov x0, #status; mov x8, #94; svc #0
        let words = [0xd280_0000 | u32::from(status) << 5, 0xd280_0bc8, 0xd400_0001_u32];
        Some((183, words.iter().flat_map(|word| word.to_le_bytes()).collect()))
    } else {
        None
    }
}

/// The address at which the file is loaded, and the offset of its code, which follows the two headers.
const LOADED_AT: u64 = 0x40_0000;
const CODE_AT: u64 = 64 + 56;

/// Builds an ELF file of one loadable segment (System V ABI, chapters 4 and 5).
fn elf(machine: u16, code: &[u8]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    let length = CODE_AT + code.len() as u64;
    half(&mut file, 2); // an executable
    half(&mut file, machine);
    word(&mut file, 1); // version
    long(&mut file, LOADED_AT + CODE_AT); // entry
    long(&mut file, 64); // offset of the program header
    long(&mut file, 0); // no sections
    word(&mut file, 0); // flags
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut file, value); // sizes and numbers of headers
    }
    word(&mut file, 1); // a segment to load,
    word(&mut file, 5); // readable and executable,
    for value in [0, LOADED_AT, LOADED_AT, length, length, 0x1_0000] {
        long(&mut file, value); // offset, addresses, sizes, alignment (of the largest page in use)
    }
    file.extend(code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A static program in its own directory.
    fn a_static_program(exit_status: u8) -> (tempfile::TempDir, Program) {
        let directory = tempfile::tempdir().unwrap();
        let (code_file, path) = (directory.path().join("code"), directory.path().join("program"));
        let (machine, code) = exit(exit_status).unwrap();
        fs::write(&code_file, elf(machine, &code)).unwrap();
        fs::set_permissions(&code_file, fs::Permissions::from_mode(0o700)).unwrap();
        // A file that is open for writing cannot be executed, and a process that another test forks at this
        // moment inherits every descriptor that is open here. A file that another program copies is never
        // open here.
        let copied = std::process::Command::new("cp").arg(&code_file).arg(&path).status().unwrap();
        assert!(copied.success());
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        (directory, Program { words: vec![name], exit_status: exit_status.into(), _file: None })
    }

    #[test]
    fn the_static_program_exits_with_the_status_in_its_code_however_it_is_started() {
        let vfork = borrowed::vfork().unwrap();
        for exit_status in [1, 42, 99] {
            let (_directory, program) = a_static_program(exit_status);
            let starts: [&dyn Fn() -> io::Result<libc::pid_t>; 3] =
                [&|| program.fork(), &|| program.vfork(vfork), &|| program.spawn()];
            for start in starts {
                reap(start().unwrap(), exit_status.into()).unwrap();
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
