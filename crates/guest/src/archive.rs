//! A cpio archive in the "newc" format, from which the kernel unpacks the guest's first file system
//! (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel's source). The same entries give
//! the same bytes: there are no owners and no times in it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Type bits of a mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory. Paths are relative to the root, without a slash in front; a directory precedes its
    /// entries.
    pub fn directory(&mut self, path: &Path, permissions: u32) {
        self.entry(path, DIRECTORY | permissions, &[]);
    }

    /// Adds a regular file. Its content must be shorter than 4 GiB.
    pub fn file(&mut self, path: &Path, permissions: u32, content: &[u8]) {
        self.entry(path, FILE | permissions, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &Path, target: &[u8]) {
        self.entry(path, LINK | 0o777, target);
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let path = path.as_os_str().as_bytes();
        let size = u32::try_from(content.len()).expect("files for a guest are shorter than 4 GiB");
        let name_size = u32::try_from(path.len() + 1).expect("a path is short");
        self.entries += 1;
        // Inode, mode, owner, group, links, time, size, device (2), device of a special file (2), length of
        // the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.iter().chain([&0]));
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_documented_layout() {
        let mut archive = Archive::default();
        archive.directory(Path::new("work"), 0o755);
        archive.file(Path::new("work/a"), 0o644, b"hello");
        archive.link(Path::new("b"), b"work/a");
        let text = String::from_utf8(archive.finish()).unwrap().replace('\0', ".");
        let zeros = "0".repeat(8);
        let expected = [
            &format!("07070100000001000041ed{zeros}{zeros}00000001{zeros}{}", zeros.repeat(5)),
            &format!("00000005{zeros}work.."),
            &format!("07070100000002000081a4{zeros}{zeros}00000001{zeros}00000005{}", zeros.repeat(4)),
            &format!("00000007{zeros}work/a...."),
            "hello...",
        ];
        assert_eq!(&text[..expected.concat().len()], expected.concat());
        assert!(text.ends_with("TRAILER!!!...."), "{text}");
        assert_eq!(text.len() % 4, 0);
    }
}
