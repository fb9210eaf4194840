//! The programs with which a guest marks the beginning and the end of its command, for an observer of its
//! instructions: each executes the instruction that is the mark, and exits.

/// Address at which the program is loaded.
const LOADED_AT: u64 = 0x40_0000;

/// Size of the ELF header and of the one program header.
const HEADERS: u16 = 64 + 56;

/// Returns the program: a static ELF executable of one segment (the ELF-64 object file format, 1998).
pub fn program(mark: [u8; 8]) -> Vec<u8> {
    let code = [
        &mark[..],
        // xor %edi,%edi; mov $60,%eax (exit); syscall
        &[0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05],
    ]
    .concat();
    let size = u64::from(HEADERS) + code.len() as u64;
    let mut program = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let word = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let long = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    // Executable, x86-64, version; entry, program headers, section headers; flags; sizes and numbers.
    program.extend(half(&[2, 62]));
    program.extend(word(&[1]));
    program.extend(long(&[LOADED_AT + u64::from(HEADERS), 64, 0]));
    program.extend(word(&[0]));
    program.extend(half(&[64, 56, 1, 0, 0, 0]));
    // A segment to load, to read and execute: offset, addresses, sizes, alignment.
    program.extend(word(&[1, 5]));
    program.extend(long(&[0, LOADED_AT, LOADED_AT, size, size, 0x1000]));
    program.extend(code);
    program
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_mark_is_a_program_that_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mark");
        fs::write(&path, program([0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0])).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // Another process starts it: one that another test forks at this moment inherits the file open for
        // writing.
        let status = Command::new("/bin/sh").args(["-c", "\"$0\""]).arg(&path).status().unwrap();
        assert!(status.success(), "{status}");
    }
}
