//! Finds programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directories of servers on Debian, which the `PATH` of ordinary users lacks.
const SERVER_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Debian installs the programs of each version of PostgreSQL below this directory, in `VERSION/bin`.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// The directories to search for programs: the caller's `PATH`, then the directories of servers on Debian.
#[must_use]
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
    let directories =
        directories.chain(SERVER_DIRECTORIES.map(PathBuf::from)).chain(newest(POSTGRESQL.as_ref()));
    env::join_paths(directories).expect("parts of a path and names without a colon")
}

/// Returns the `bin` of the newest version that has programs below `versions`.
fn newest(versions: &Path) -> Option<PathBuf> {
    let numbered = fs::read_dir(versions).ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    });
    numbered.filter(|(_, programs)| programs.is_dir()).max().map(|(_, programs)| programs)
}

/// Finds a program like a shell, in the [`search_path`]; a name with a slash is a path. `None` if no
/// executable file has that name.
#[must_use]
pub fn find_program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let name = name.as_ref();
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_executable(path));
    }
    first(name, &search_path())
}

/// The first executable file of that name in the directories of `path`. Relative directories are skipped,
/// because programs must not be started from them.
fn first(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_may_not_be_executed_hides_no_program_behind_it() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = env::join_paths(directories.each_ref().map(tempfile::TempDir::path)).unwrap();
        let programs = directories.each_ref().map(|directory| directory.path().join("program"));
        for program in &programs {
            fs::write(program, "").unwrap();
        }
        let found = || first(OsStr::new("program"), &path);
        assert_eq!(found(), None);
        fs::set_permissions(&programs[1], fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found().as_ref(), Some(&programs[1]));
    }

    #[test]
    fn the_newest_version_with_programs_is_the_one_with_the_highest_number() {
        let versions = tempfile::tempdir().unwrap();
        assert_eq!(newest(versions.path()), None);
        for name in ["9/bin", "15/bin", "17/lib", "common/bin"] {
            fs::create_dir_all(versions.path().join(name)).unwrap();
        }
        assert_eq!(newest(versions.path()), Some(versions.path().join("15/bin")));
        assert_eq!(newest(&versions.path().join("none")), None);
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(find_program("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find_program("/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(find_program("/etc/passwd"), None);
        assert_eq!(find_program("no-such-program"), None);
    }
}
