//! The scratch directory of one run: created, filled with the workload's files, and removed with all its
//! content when dropped. A killed `assay` leaves it behind, because only the owner of the directory deletes
//! files.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use nix::unistd::User;
use tempfile::TempDir;

use crate::template::{Placeholders, generated};
use crate::workload::{Content, ScratchFile};

/// Creates a scratch directory that any user may enter, because servers started by root drop root privileges.
pub(crate) fn create() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("assay-").permissions(Permissions::from_mode(0o755)).tempdir()
}

/// Writes `files` below `dir`.
pub(crate) fn fill(dir: &Path, files: &[ScratchFile], placeholders: &Placeholders) -> io::Result<()> {
    for file in files {
        let path = dir.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, content(file, placeholders))?;
    }
    Ok(())
}

/// Makes `user` the owner of `path` and of everything below it. A directory comes after its content: while
/// this walks through it, the user cannot replace a part of it by a link to a file of root.
pub(crate) fn give(path: &Path, user: &User) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
}

/// Returns the content of one scratch file.
pub(crate) fn content(file: &ScratchFile, placeholders: &Placeholders) -> Vec<u8> {
    match &file.content {
        Content::Text(text) => placeholders.fill(text).into_bytes(),
        Content::Generated { bytes } => generated(*bytes),
    }
}
