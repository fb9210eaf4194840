//! The directory of our data: the store, and the platforms that `scripts/platforms` installs.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the directory, which may not exist yet. `None` without a home directory.
pub fn directory() -> Option<PathBuf> {
    within(env::var_os("XDG_DATA_HOME").as_deref(), env::var_os("HOME").as_deref())
}

/// The rule of the XDG base directory specification: `$XDG_DATA_HOME/assay`, or `~/.local/share/assay` if
/// that variable is unset, empty or relative (the specification requires ignoring a relative path).
fn within(data_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let absolute = |path: Option<&OsStr>| path.map(Path::new).filter(|p| p.is_absolute()).map(Path::to_owned);
    let data = absolute(data_home).or_else(|| absolute(home).map(|home| home.join(".local/share")))?;
    Some(data.join("assay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_follows_the_xdg_specification() {
        for (data_home, home, expected) in [
            (Some("/data"), Some("/home/a"), Some("/data/assay")),
            (None, Some("/home/a"), Some("/home/a/.local/share/assay")),
            (Some(""), Some("/home/a"), Some("/home/a/.local/share/assay")),
            (Some("relative"), Some("/home/a"), Some("/home/a/.local/share/assay")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let found = within(data_home.map(OsStr::new), home.map(OsStr::new));
            assert_eq!(found, expected.map(PathBuf::from), "{data_home:?} {home:?}");
        }
    }
}
