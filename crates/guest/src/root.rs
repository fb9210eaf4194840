//! The first file system of a guest: busybox, the script that runs the command, the command, and the files
//! copied from the host.

use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::Job;
use crate::archive::Archive;
use crate::mark;

/// The guest's first process.
const INIT: &[u8] = include_bytes!("init");

/// Directories that exist before any file is copied, and their permissions.
const DIRECTORIES: [(&str, u32); 9] = [
    ("assay", 0o755),
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("work", 0o755),
];

/// Directory into which the guest mounts its image; it exists if there is one.
const IMAGE: &str = "image";

/// Directory of the modules, which are loaded in the order of their names.
const DRIVERS: &str = "assay/drivers";

/// Why a file cannot be copied into a guest.
#[derive(Debug, Error)]
pub enum CopyError {
    /// It cannot be read.
    #[error("cannot copy {} into the guest: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a device, a socket or a pipe.
    #[error("cannot copy {} into the guest: it is neither a file, a directory nor a symbolic link", .0.display())]
    Special(PathBuf),
    /// Two of them have the same name.
    #[error("two of the files for the guest are named {}; rename one of them", .0.display())]
    Twice(OsString),
    /// All files together are too large.
    #[error(
        "the files for the guest exceed {} MiB, with 8 KiB for each; give it fewer files, or more memory, of which \
         they may take a quarter, at most 1 GiB",
        limit >> 20
    )]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

/// Largest archive, in bytes: QEMU must load it below 4 GiB, beside the kernel.
const LARGEST: u64 = 1 << 30;

/// What an entry takes in the guest beside its content, in bytes: a part of a page, and its inode.
const ENTRY_BYTES: u64 = 8 << 10;

/// What a guest needs before its command.
#[derive(Debug, Clone, Copy)]
pub struct System<'a> {
    /// A static busybox.
    pub busybox: &'a Path,
    /// Modules to load for an image, in this order; `None` without an image.
    pub drivers: Option<&'a [PathBuf]>,
}

/// Returns the archive from which the kernel unpacks the file system.
///
/// The kernel keeps the archive until it is unpacked, into a file system of at most half of the memory, and
/// the command also needs memory: a quarter of it is the limit of the archive.
pub fn archive(job: &Job, system: &System, memory_bytes: u64) -> Result<Vec<u8>, CopyError> {
    let limit = LARGEST.min(memory_bytes / 4);
    let mut root = Root { archive: Archive::default(), limit, left: limit };
    for (path, permissions) in DIRECTORIES {
        root.archive.directory(Path::new(path), permissions);
    }
    root.copy(system.busybox, Path::new("bin/busybox"))?;
    if let Some(drivers) = system.drivers {
        root.archive.directory(Path::new(IMAGE), 0o755);
        root.archive.directory(Path::new(DRIVERS), 0o755);
        for (position, driver) in drivers.iter().enumerate() {
            let mut name = OsString::from(format!("{position}-"));
            name.push(driver.file_name().unwrap_or_default());
            root.copy(driver, &Path::new(DRIVERS).join(name))?;
        }
    }
    root.archive.file(Path::new("init"), 0o755, INIT);
    for (name, mark) in ["begin", "end"].into_iter().zip(job.marks) {
        root.archive.file(&Path::new("assay").join(name), 0o755, &mark::program(mark));
    }
    let mut names: Vec<OsString> = Vec::new();
    for path in &job.copies {
        // A link stands for what it refers to. `.` and `..` have no name of their own, `/` has none at all.
        let file = fs::canonicalize(path).map_err(unreadable(path))?;
        let name = path.file_name().or(file.file_name()).unwrap_or("root".as_ref()).to_owned();
        if names.contains(&name) {
            return Err(CopyError::Twice(name));
        }
        root.copy(&file, &Path::new("work").join(&name))?;
        names.push(name);
    }
    // The last one: the guest finds it only if all others were unpacked.
    root.archive.file(Path::new("assay/command"), 0o644, job.command.as_bytes());
    Ok(root.archive.finish())
}

struct Root {
    archive: Archive,
    /// Bytes that the files may take.
    limit: u64,
    /// Those of them that are left.
    left: u64,
}

impl Root {
    /// Copies a file, a symbolic link as such, or a directory with its entries, in the order of their names.
    fn copy(&mut self, from: &Path, to: &Path) -> Result<(), CopyError> {
        let metadata = fs::symlink_metadata(from).map_err(unreadable(from))?;
        let permissions = metadata.permissions().mode() & 0o7777;
        self.take(ENTRY_BYTES)?;
        if metadata.is_file() {
            let mut content = Vec::new();
            // The length in the metadata is not reliable, and the file may be larger than the host's memory.
            File::open(from)
                .and_then(|file| file.take(self.left + 1).read_to_end(&mut content))
                .map_err(unreadable(from))?;
            self.take(content.len() as u64)?;
            self.archive.file(to, permissions, &content);
        } else if metadata.is_symlink() {
            let target = fs::read_link(from).map_err(unreadable(from))?;
            self.archive.link(to, target.as_os_str().as_bytes());
        } else if metadata.is_dir() {
            self.archive.directory(to, permissions);
            let entries: io::Result<Vec<_>> = fs::read_dir(from).and_then(Iterator::collect);
            let mut names: Vec<OsString> =
                entries.map_err(unreadable(from))?.iter().map(DirEntry::file_name).collect();
            names.sort();
            for name in names {
                self.copy(&from.join(&name), &to.join(&name))?;
            }
        } else {
            return Err(CopyError::Special(from.to_owned()));
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), CopyError> {
        self.left = self.left.checked_sub(bytes).ok_or(CopyError::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> CopyError {
    |source| CopyError::Unreadable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// Returns the archive of a job with these copies, as text, for a guest with 1 MiB of memory.
    fn archived(copies: &[PathBuf]) -> Result<String, String> {
        let job = Job {
            command: "run this".into(),
            copies: copies.to_vec(),
            marks: [*b"BEGINNOP", *b"THENDNOP"],
            limit: Duration::ZERO,
        };
        let system = System { busybox: Path::new("/etc/passwd"), drivers: None };
        let bytes = archive(&job, &system, 1 << 20).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn files_directories_and_links_are_copied_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("b")).unwrap();
        fs::write(tree.join("b/file"), "content").unwrap();
        symlink("b/file", tree.join("a")).unwrap();
        // A link on the command line stands for what it refers to.
        symlink(&tree, directory.path().join("link")).unwrap();
        let text = archived(&[directory.path().join("link")]).unwrap();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text:?}"));
        assert!(at("content") < at("run this"));
        assert!(at("work/link\0") < at("work/link/a\0"));
        assert!(at("work/link/a\0") < at("work/link/b\0"));
        assert!(at("work/link/b/file\0") < at("content"));
    }

    #[test]
    fn each_mark_is_in_the_program_of_its_name() {
        let text = archived(&[]).unwrap();
        let places =
            ["assay/begin\0", "BEGINNOP", "assay/end\0", "THENDNOP"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn what_cannot_be_copied_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let large = fs::File::create(path("large")).unwrap();
        large.set_len(1 << 40).unwrap();
        fs::create_dir(path("other")).unwrap();
        fs::write(path("same"), "").unwrap();
        fs::write(path("other/same"), "").unwrap();
        for (copies, message) in [
            (vec![path("none")], "none into the guest: No such file or directory (os error 2)"),
            (vec!["/dev/null".into()], "it is neither a file, a directory nor a symbolic link"),
            (
                vec![path("same"), path("other/same")],
                "two of the files for the guest are named same; rename one of them",
            ),
            (vec![path("large")], "of which they may take a quarter, at most 1 GiB"),
        ] {
            let error = archived(&copies).unwrap_err();
            assert!(error.ends_with(message), "{error}");
        }
    }
}
