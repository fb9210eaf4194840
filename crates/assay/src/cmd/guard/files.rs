//! Files that the guard reads.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Reads a file.
pub fn read(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    all_of(&mut open(path, what)?, path, what)
}

/// Reads a file with a secret, to which only its owner and group must have access.
pub fn read_secret(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let mut file = open(path, what)?;
    let metadata = file.metadata().with_context(|| cannot_read(path, what))?;
    if metadata.permissions().mode() & 0o007 != 0 {
        bail!("others can read or change the {what} {}; run chmod o= on it", path.display());
    }
    all_of(&mut file, path, what)
}

/// The beginning of a message.
pub fn cannot_read(path: &Path, what: &str) -> String {
    format!("cannot read the {what} {}", path.display())
}

fn open(path: &Path, what: &str) -> anyhow::Result<File> {
    // Nothing is left in a pipe when the guard reads it again, or it would wait for the writer.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        bail!("the {what} {} is no regular file; give another path", path.display());
    }
    File::open(path).with_context(|| format!("cannot open the {what} {}", path.display()))
}

fn all_of(file: &mut File, path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(|| cannot_read(path, what))?;
    Ok(bytes)
}
