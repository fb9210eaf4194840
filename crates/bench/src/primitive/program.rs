//! Processes: fork, exec of a static and of a dynamic program, and the shell (lmbench, 1996, section 6.5;
//! thesis, section 2.2.3, which adds the statically linked one).

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Prepared, Refusal, Repeat, Setting};
use crate::contamination::Sharing;
use crate::kernel::check;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["process.fork_exit"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["fork", "clone", "wait4"],
        about: "fork, exit of the child, wait",
        source: "lmbench 1996, section 6.5; thesis, section 2.3",
        prepare: fork_exit,
    },
    Row {
        ids: &["process.exec{link=static}", "process.exec{link=dynamic}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["fork", "clone", "execve", "wait4"],
        about: "fork, exec and run of a program that only ends, wait; static: one page without start-up \
                code; dynamic: /bin/true",
        source: "lmbench 1996, section 6.5; thesis, section 2.2.3",
        prepare: exec,
    },
    Row {
        ids: &["process.shell"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["fork", "clone", "execve", "wait4"],
        about: "fork, /bin/sh -c /bin/true, wait",
        source: "lmbench 1996, section 6.5",
        prepare: shell,
    },
];

/// `fork`, `_exit` in the child, `waitpid` in the parent.
fn fork_exit(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the child leaves at once.
    Ok(children(|| fork_and_wait(|| unsafe { libc::_exit(0) })))
}

/// `fork`, `execve` in the child, the program's run, `waitpid` in the parent.
fn exec(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    match id.word(Key::Link) {
        "static" => {
            let program = StaticProgram::write(setting)?;
            let command = Command::new(&[&program.path.as_os_str().to_string_lossy()])?;
            Ok(children(move || {
                let _written = &program;
                command.run()
            }))
        }
        _ => existing(&["/bin/true"]),
    }
}

/// `fork`, `/bin/sh -c` of another program in the child, `waitpid` in the parent.
fn shell(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    existing(&["/bin/sh", "-c", "/bin/true"])
}

fn existing(words: &[&str]) -> Result<Prepared, Refusal> {
    if !fs::exists(words[0])? {
        return Err(Refusal::Unavailable(format!("there is no {}", words[0])));
    }
    let command = Command::new(words)?;
    Ok(children(move || command.run()))
}

/// Children inherit the processor that this process is bound to.
fn children(closure: impl FnMut() -> io::Result<()> + 'static) -> Prepared {
    Prepared {
        operation: Box::new(Repeat::new(closure)),
        baseline: None,
        sharing: Sharing::OneCpu { partner: None },
    }
}

#[inline]
fn fork_and_wait(child: impl FnOnce()) -> io::Result<()> {
    // SAFETY: `child` makes system calls only, and never returns.
    let pid = check("fork", unsafe { libc::fork() })?;
    if pid == 0 {
        child();
        // SAFETY: reached only when an exec has failed; ends the copy.
        unsafe { libc::_exit(EXEC_FAILED) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; the pointer is to a local.
    check("waitpid", unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("the child ended with wait status {status:#x} instead of success")))
    }
}

/// What shells return for a command that cannot be executed.
const EXEC_FAILED: libc::c_int = 126;

/// A program with its arguments in the form that `execve` takes. The environment is empty.
struct Command {
    words: Vec<CString>,
}

impl Command {
    fn new(words: &[&str]) -> io::Result<Self> {
        let words = words.iter().map(|word| CString::new(*word)).collect::<Result<_, _>>();
        Ok(Self { words: words.map_err(io::Error::other)? })
    }

    #[inline]
    fn run(&self) -> io::Result<()> {
        let mut arguments = [std::ptr::null(); 4];
        for (argument, word) in arguments.iter_mut().zip(&self.words) {
            *argument = word.as_ptr();
        }
        let environment = [std::ptr::null()];
        fork_and_wait(|| {
            // SAFETY: both lists end with a null pointer (there are at most three words), and the strings
            // outlive the call, which returns only when it fails.
            unsafe { libc::execve(arguments[0], arguments.as_ptr(), environment.as_ptr()) };
        })
    }
}

/// A program of one page that only ends: no loader, no library, no start-up code.
struct StaticProgram {
    path: PathBuf,
}

impl StaticProgram {
    fn write(setting: &Setting) -> Result<Self, Refusal> {
        let code = EXIT.ok_or_else(|| {
            Refusal::Unavailable("no static program has been written for this architecture".to_owned())
        })?;
        let path = setting.directory.join(format!("static-{}", std::process::id()));
        fs::write(&path, elf(code))?;
        let program = Self { path };
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
        // The directory is removed with everything in it at the end of the run.
        let _ = fs::remove_file(&self.path);
    }
}

/// Machine code of `exit_group(0)`, with the ELF number of the machine.
const EXIT: Option<(u16, &[u8])> = if cfg!(target_arch = "x86_64") {
    // xor edi, edi; mov eax, 231; syscall
    Some((62, &[0x31, 0xff, 0xb8, 0xe7, 0x00, 0x00, 0x00, 0x0f, 0x05]))
} else if cfg!(target_arch = "aarch64") {
    // mov x0, #0; mov x8, #94; svc #0
    Some((183, &[0x00, 0x00, 0x80, 0xd2, 0xc8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4]))
} else {
    None
};

/// Where the file is loaded, and where its code lies in it: behind the two headers.
const LOADED_AT: u64 = 0x40_0000;
const CODE_AT: u64 = 64 + 56;

/// An ELF file of one loadable segment (System V ABI, chapters 4 and 5).
fn elf((machine, code): (u16, &[u8])) -> Vec<u8> {
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
