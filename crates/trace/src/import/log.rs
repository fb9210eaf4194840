//! The lines of a log.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    ImportError,
    line::{Defect, LINE_MAX},
};

/// A file that is read twice.
#[derive(Debug)]
pub(super) struct Log<'a> {
    pub path: &'a Path,
    /// Bytes to read: what a running strace adds after the first reading is in none.
    length: u64,
    is_interrupted: &'a AtomicBool,
}

impl<'a> Log<'a> {
    pub fn of(path: &'a Path, is_interrupted: &'a AtomicBool) -> Result<Self, ImportError> {
        let failed = |source| ImportError::Io { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(ImportError::NotAFile(path.to_owned()));
        }
        Ok(Self { path, length: metadata.len(), is_interrupted })
    }

    /// Calls `each` with the number and the text of every line, except those with which `-k` shows the stack.
    /// A last line that is not whole has no text.
    pub fn for_each_line(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let failed = |source| ImportError::Io { path: self.path.to_owned(), source };
        let file = File::open(self.path).map_err(failed)?.take(self.length);
        let mut source = BufReader::with_capacity(1 << 18, file);
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            let limit = LINE_MAX as u64 + 1;
            if source.by_ref().take(limit).read_until(b'\n', &mut text).map_err(failed)? == 0 {
                break;
            }
            if text.len() > LINE_MAX {
                return Err(self.defect(number, Defect::TooLong));
            }
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(ImportError::Interrupted);
            }
            match text.strip_suffix(b"\n") {
                Some(stack) if stack.starts_with(b" > ") => {}
                Some(whole) => each(number, whole.trim_ascii_end())?,
                None => each(number, &[])?,
            }
        }
        Ok(())
    }

    /// Returns the error of a line.
    pub fn defect(&self, line: u64, defect: Defect) -> ImportError {
        ImportError::Line { path: self.path.to_owned(), line, defect }
    }
}
