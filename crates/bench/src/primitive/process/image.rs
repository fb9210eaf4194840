//! Executable files of a few bytes, which exit immediately: no loader, no library, no start-up code.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::benchmark::{Refusal, Setting};

/// An executable file, which is removed when it is dropped.
pub(super) struct Executable {
    pub(super) name: CString,
    path: PathBuf,
}

impl Executable {
    /// Writes a file with this name, made unique by the number of the process, to the directory of the run.
    pub(super) fn write(setting: &Setting, name: &str, contents: &[u8]) -> Result<Self, Refusal> {
        let path = setting.directory.join(format!("{name}-{}", std::process::id()));
        fs::write(&path, contents)?;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let executable = Self { name, path };
        fs::set_permissions(&executable.path, fs::Permissions::from_mode(0o700))?;
        // SAFETY: the name is a C string.
        if unsafe { libc::access(executable.name.as_ptr(), libc::X_OK) } != 0 {
            return Err(Refusal::Unavailable(format!(
                "programs in {} cannot be executed; choose a directory that is not mounted noexec",
                setting.directory.display()
            )));
        }
        Ok(executable)
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // At the end of the run the directory is removed with its contents.
        let _ = fs::remove_file(&self.path);
    }
}

/// Code for a processor: its ELF number, and `exit_group(status)` in its machine code.
pub(super) struct Code {
    machine: u16,
    bytes: Vec<u8>,
}

impl Code {
    /// Fails for architectures without such code.
    pub(super) fn exit(status: u8) -> Result<Self, Refusal> {
        if cfg!(target_arch = "x86_64") {
            // mov edi, status; mov eax, 231; syscall
            let code = [0xbf, status, 0x00, 0x00, 0x00, 0xb8, 0xe7, 0x00, 0x00, 0x00, 0x0f, 0x05];
            Ok(Self { machine: 62, bytes: code.to_vec() })
        } else if cfg!(target_arch = "aarch64") {
            // mov x0, #status; mov x8, #94; svc #0
            let words = [0xd280_0000 | u32::from(status) << 5, 0xd280_0bc8, 0xd400_0001_u32];
            Ok(Self { machine: 183, bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect() })
        } else {
            Err(Refusal::Unavailable("no program is written for this architecture".to_owned()))
        }
    }
}

/// The kind of an executable file.
pub(super) enum Kind<'a> {
    /// A program at a fixed address.
    Fixed,
    /// A program at a random address, which the interpreter of this name loads.
    Interpreted(&'a CString),
    /// An interpreter.
    Interpreter,
}

/// A loadable segment: its access rights (1 execute, 2 write, 4 read) and the zeroes that follow its contents
/// in memory.
type Segment = (u32, u64);

/// Everything in one segment.
const ONE: &[Segment] = &[(5, 0)];

/// As linkers make them: constants, code, constants, and variables, of which some are initially zero.
const FOUR: &[Segment] = &[(4, 0), (5, 0), (4, 0), (6, 0x1000)];

/// The address of a program that is not loaded at a random one.
const LOADED_AT: u64 = 0x40_0000;

/// Distance between segments, and their alignment (the size of the largest page in use).
const APART: u64 = 0x1_0000;

const HEADER_BYTES: u64 = 64;
const ENTRY_BYTES: u64 = 56;

/// Builds an ELF file (System V ABI, chapters 4 and 5). Each of its segments contains the whole file.
pub(super) fn elf(code: &Code, kind: &Kind) -> Vec<u8> {
    let (object, base, segments) = match kind {
        Kind::Fixed => (2, LOADED_AT, ONE),
        Kind::Interpreted(_) | Kind::Interpreter => (3, 0, FOUR),
    };
    let interpreter = match kind {
        Kind::Interpreted(name) => name.as_bytes_with_nul(),
        Kind::Fixed | Kind::Interpreter => &[],
    };
    let entries = segments.len() as u64 + u64::from(!interpreter.is_empty());
    let name_at = HEADER_BYTES + ENTRY_BYTES * entries;
    let code_at = name_at + interpreter.len() as u64;
    let length = code_at + code.bytes.len() as u64;
    let executable = segments.iter().position(|(access, _)| access & 1 != 0).unwrap_or_default() as u64;

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |file: &mut Vec<u8>, value: u64| file.extend(&value.to_le_bytes()[..2]);
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    half(&mut file, object);
    half(&mut file, code.machine.into());
    word(&mut file, 1); // version
    long(&mut file, base + APART * executable + code_at); // entry
    long(&mut file, HEADER_BYTES); // offset of the program header
    long(&mut file, 0); // no sections
    word(&mut file, 0); // flags
    for value in [HEADER_BYTES, ENTRY_BYTES, entries, 0, 0, 0] {
        half(&mut file, value); // sizes and numbers of headers
    }
    let mut segment = |kind, access, values: [u64; 6]| {
        word(&mut file, kind);
        word(&mut file, access);
        values.iter().for_each(|value| long(&mut file, *value));
    };
    if !interpreter.is_empty() {
        let bytes = interpreter.len() as u64;
        segment(3, 4, [name_at, name_at, name_at, bytes, bytes, 1]); // the interpreter's name
    }
    for (position, (access, zeroes)) in segments.iter().enumerate() {
        let at = base + APART * position as u64;
        segment(1, *access, [0, at, at, length, length + zeroes, APART]); // a segment to load
    }
    file.extend(interpreter);
    file.extend(&code.bytes);
    file
}
