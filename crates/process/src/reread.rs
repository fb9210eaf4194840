//! A file of the kernel whose content is made anew when it is read: opened once, read at every moment of
//! interest, without an allocation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A text file of `/proc` or of a control group.
#[derive(Debug)]
pub struct Reread {
    file: File,
    buffer: Vec<u8>,
}

impl Reread {
    /// Opens a file.
    ///
    /// # Errors
    /// If it does not exist or may not be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; 1024] })
    }

    /// Reads the file from its beginning.
    ///
    /// # Errors
    /// If it cannot be read, for example because its process has ended, or is no text.
    pub fn text(&mut self) -> io::Result<&str> {
        let mut length = 0;
        loop {
            // The kernel keeps a reading at an offset consistent with the one before only while the file is
            // read without a pause, as here.
            match self.file.read_at(&mut self.buffer[length..], length as u64)? {
                0 => break,
                read => length += read,
            }
            if length == self.buffer.len() {
                self.buffer.resize(2 * length, 0);
            }
        }
        std::str::from_utf8(&self.buffer[..length])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time_and_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = None;
        for length in [3, 1024, 5000, 0, 7] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            let file = file.get_or_insert_with(|| Reread::open(&path).unwrap());
            assert_eq!(file.text().unwrap().len(), length);
        }
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(file.unwrap().text().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
