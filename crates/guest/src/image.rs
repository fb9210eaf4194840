//! Root file systems for guests: files with an ext4 file system, opened or built from Debian's packages. A
//! guest never changes one.

mod build;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use build::{BuildError, build};

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file.
    pub file: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Why a file is not an image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// It cannot be read.
    #[error("cannot read image {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is not an image of an ext4 file system; 'mkfs.ext4 -d DIRECTORY FILE 2G' makes one", .0.display())]
    NotExt4(PathBuf),
    /// Its end is missing.
    #[error("{} has {bytes} bytes, but its file system has {expected}; copy or build it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The length of the file system.
        expected: u64,
    },
    /// The kernel of a guest cannot map it.
    #[error("{} has {bytes} bytes, which is not a multiple of 2 MiB; 'truncate --size %2M' extends it", path.display())]
    Unaligned {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

/// The kernel maps an image by pages of this size.
const LARGE_PAGE: u64 = 2 << 20;

impl Image {
    /// Opens an image.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let unreadable = |source| ImageError::Unreadable { path: path.to_owned(), source };
        let mut start = Vec::new();
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(ImageError::NotExt4(path.to_owned()));
        }
        let bytes = metadata.len();
        File::open(path)
            .map_err(unreadable)?
            .take(SUPERBLOCK_END)
            .read_to_end(&mut start)
            .map_err(unreadable)?;
        let expected = length(&start).ok_or_else(|| ImageError::NotExt4(path.to_owned()))?;
        if bytes < expected {
            return Err(ImageError::Truncated { path: path.to_owned(), bytes, expected });
        }
        if bytes % LARGE_PAGE != 0 {
            return Err(ImageError::Unaligned { path: path.to_owned(), bytes });
        }
        Ok(Image { file: path.to_owned(), bytes })
    }
}

/// The superblock is the second KiB of a file system.
const SUPERBLOCK: usize = 1024;
const SUPERBLOCK_END: u64 = 2048;

/// Bits of its features: blocks in extents, which ext2 and ext3 lack, and numbers of blocks with 64 bits.
const HAS_EXTENTS: u32 = 0x40;
const HAS_64_BITS: u32 = 0x80;

/// Returns the length of the ext4 file system that begins like this, in bytes
/// (Documentation/filesystems/ext4/super.rst of Linux).
#[must_use]
pub fn length(start: &[u8]) -> Option<u64> {
    let word = |at: usize| {
        let bytes = start.get(SUPERBLOCK + at..SUPERBLOCK + at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let (magic, features) = (word(0x38)? & 0xffff, word(0x60)?);
    if magic != 0xef53 || features & HAS_EXTENTS == 0 {
        return None;
    }
    let upper = if features & HAS_64_BITS == 0 { 0 } else { word(0x150)? };
    let blocks = u64::from(upper) << 32 | u64::from(word(0x4)?);
    // The largest block has 64 KiB.
    let block = 1024_u64 << word(0x18).filter(|shift| *shift <= 6)?;
    blocks.checked_mul(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a file system of 8 blocks of 4 KiB.
    fn start() -> Vec<u8> {
        let mut start = vec![0; 2048];
        for (at, word) in [(0x4, 8_u32), (0x18, 2), (0x38, 0xef53), (0x60, HAS_EXTENTS)] {
            start[SUPERBLOCK + at..SUPERBLOCK + at + 4].copy_from_slice(&word.to_le_bytes());
        }
        start
    }

    #[test]
    fn the_length_of_a_file_system_is_in_its_superblock() {
        let with = |at: usize, byte: u8| {
            let mut start = start();
            start[SUPERBLOCK + at] = byte;
            length(&start)
        };
        assert_eq!(length(&start()), Some(8 * 4096));
        // Without the feature, the upper half means something else.
        assert_eq!(with(0x150, 1), Some(8 * 4096));
        let mut large = start();
        (large[SUPERBLOCK + 0x60], large[SUPERBLOCK + 0x150]) = (0xc0, 1);
        assert_eq!(length(&large), Some((1 << 32 | 8) * 4096));
        large[SUPERBLOCK + 0x153] = 0xff;
        assert_eq!(length(&large), None);
        // Another magic number, blocks that are too large, ext2.
        assert_eq!([with(0x39, 0), with(0x18, 7), with(0x60, 0)], [None; 3]);
        assert_eq!(length(&start()[..SUPERBLOCK + 0x60]), None);
    }

    #[test]
    fn a_file_that_is_no_whole_image_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let open = || Image::open(&path).map_err(|error| error.to_string());
        let refused = |text: &str| {
            let error = open().unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        refused("cannot read image ");
        // Nothing is read from a device or a pipe.
        assert!(matches!(Image::open(Path::new("/dev/zero")), Err(ImageError::NotExt4(_))));
        fs::write(&path, "text").unwrap();
        refused("is not an image of an ext4 file system; 'mkfs.ext4 -d DIRECTORY FILE 2G' makes one");
        fs::write(&path, start()).unwrap();
        refused("has 2048 bytes, but its file system has 32768; copy or build it again");
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(32768).unwrap();
        refused("which is not a multiple of 2 MiB; 'truncate --size %2M' extends it");
        file.set_len(LARGE_PAGE).unwrap();
        assert_eq!(open().unwrap().bytes, LARGE_PAGE);
    }
}
