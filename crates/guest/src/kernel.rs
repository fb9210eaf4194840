//! Linux kernels for guests: files in the format bzImage, whose header contains the release
//! (Documentation/arch/x86/boot.rst of the kernel's source).

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The bzImage.
    pub image: PathBuf,
    /// Its release, such as `6.12.95+deb12-cloud-amd64`.
    pub release: String,
}

/// Why there is no such kernel.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The file cannot be read.
    #[error("cannot read kernel {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is not a Linux kernel for x86; give a bzImage, which packages call vmlinuz", .0.display())]
    NotBzImage(PathBuf),
    /// No installed kernel has this version.
    #[error(
        "no kernel {version} in {} (installed: {}); 'scripts/setup simulate' installs kernels",
        directory.display(),
        if installed.is_empty() { "none".to_owned() } else { installed.join(", ") }
    )]
    NotInstalled {
        /// The version.
        version: String,
        /// Where it was searched.
        directory: PathBuf,
        /// The releases that are there.
        installed: Vec<String>,
    },
}

impl Kernel {
    /// Reads the header of a kernel.
    ///
    /// # Errors
    /// [`KernelError`], if the file is not a bzImage.
    pub fn open(image: &Path) -> Result<Kernel, KernelError> {
        let unreadable = |source| KernelError::Unreadable { path: image.to_owned(), source };
        let mut header = Vec::new();
        File::open(image)
            .and_then(|file| file.take(HEADER_BYTES).read_to_end(&mut header))
            .map_err(unreadable)?;
        let release = release(&header).ok_or_else(|| KernelError::NotBzImage(image.to_owned()))?;
        Ok(Kernel { image: image.to_owned(), release })
    }

    /// Finds a module by its path without extension, such as `drivers/nvdimm/nd_pmem`, in `lib/modules` next
    /// to the kernel's directory, where packages have it. `None` if there is none, as for what is built in.
    #[must_use]
    pub fn module(&self, path: &str) -> Option<PathBuf> {
        let image = fs::canonicalize(&self.image).ok()?;
        let modules = image.parent()?.parent()?.join("lib/modules").join(&self.release).join("kernel");
        let files = [".ko", ".ko.xz"].map(|extension| modules.join(format!("{path}{extension}")));
        files.into_iter().find(|file| file.is_file())
    }

    /// Finds the newest installed kernel, or the newest of a version, such as `6.12` or a whole release.
    /// Each kernel has a directory in `directory`, named after its release, with the content of its package.
    ///
    /// # Errors
    /// [`KernelError`], if there is none.
    pub fn installed(directory: &Path, version: Option<&str>) -> Result<Kernel, KernelError> {
        // A directory that does not exist contains no kernel.
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut installed: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        installed.sort_by_key(|release| numbers(release));
        let newest = installed.iter().rfind(|release| version.is_none_or(|version| is_of(release, version)));
        let Some(release) = newest else {
            let version = version.unwrap_or("of any version").to_owned();
            return Err(KernelError::NotInstalled { version, directory: directory.to_owned(), installed });
        };
        Kernel::open(&directory.join(release).join("boot").join(format!("vmlinuz-{release}")))
    }
}

/// The release is at most 64 KiB after the boot sector.
const HEADER_BYTES: u64 = 0x200 + 0x1_0000 + 256;

/// Returns the release that the header of a bzImage contains.
#[must_use]
pub fn release(header: &[u8]) -> Option<String> {
    if header.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = usize::from(u16::from_le_bytes(header.get(0x20e..0x210)?.try_into().ok()?));
    let text = header.get(0x200 + offset..)?;
    let end = text.iter().position(|byte| !byte.is_ascii_graphic())?;
    let release = std::str::from_utf8(&text[..end]).ok()?;
    release.starts_with(|first: char| first.is_ascii_digit()).then(|| release.to_owned())
}

/// The numbers in a release, for sorting: 6.9 precedes 6.12.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// Whether a release is of a version: 6.1.0-50 is of 6.1, and 6.12.95 is not.
fn is_of(release: &str, version: &str) -> bool {
    release.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(release: &str) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
        image
    }

    #[test]
    fn the_release_is_in_the_header() {
        assert_eq!(release(&image("6.12.95-cloud (debian) #1")).as_deref(), Some("6.12.95-cloud"));
        assert_eq!(release(&image("")), None);
        assert_eq!(release(&image("6.12")[..0x302]), None);
        assert_eq!(release(b"\x7fELF"), None);
    }

    #[test]
    fn the_newest_installed_kernel_of_a_version_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let error = Kernel::installed(path, None).unwrap_err().to_string();
        assert!(error.starts_with("no kernel of any version in "), "{error}");
        assert!(error.contains("(installed: none)"), "{error}");
        for release in ["6.1.0-50", "6.12.95", "6.9.3"] {
            let boot = path.join(release).join("boot");
            fs::create_dir_all(&boot).unwrap();
            fs::write(boot.join(format!("vmlinuz-{release}")), image(release)).unwrap();
        }
        let found = |version| Kernel::installed(path, version).map(|kernel| kernel.release);
        assert_eq!(found(None).unwrap(), "6.12.95");
        assert_eq!(found(Some("6.1")).unwrap(), "6.1.0-50");
        assert_eq!(found(Some("6.9.3")).unwrap(), "6.9.3");
        let modules = path.join("6.9.3/lib/modules/6.9.3/kernel/fs");
        fs::create_dir_all(&modules).unwrap();
        fs::write(modules.join("b.ko.xz"), "").unwrap();
        let kernel = Kernel::installed(path, Some("6.9.3")).unwrap();
        assert_eq!(["fs/a", "fs/b"].map(|name| kernel.module(name)), [None, Some(modules.join("b.ko.xz"))]);
        let error = found(Some("5.4")).unwrap_err().to_string();
        assert!(error.contains("(installed: 6.1.0-50, 6.9.3, 6.12.95)"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_kernel_is_refused() {
        let error = Kernel::open(Path::new("/bin/sh")).unwrap_err().to_string();
        assert_eq!(
            error,
            "/bin/sh is not a Linux kernel for x86; give a bzImage, which packages call vmlinuz"
        );
        let error = Kernel::open(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read kernel /no/such/file: "), "{error}");
    }
}
