//! The default path of the store: the rule of the XDG base directory specification, as a function of the
//! environment that the caller has read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::Store;

impl Store {
    /// Returns `$XDG_DATA_HOME/assay/assay.db`, or `~/.local/share/assay/assay.db` if that variable is unset,
    /// empty or relative (the specification requires ignoring a relative path). `None` if there is no home
    /// directory either: the caller must then require a path.
    #[must_use]
    pub fn default_path(data_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
        let absolute =
            |path: Option<&OsStr>| path.map(Path::new).filter(|p| p.is_absolute()).map(Path::to_owned);
        let data = absolute(data_home).or_else(|| absolute(home).map(|home| home.join(".local/share")))?;
        Some(data.join("assay/assay.db"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_follows_the_xdg_specification() {
        for (data_home, home, expected) in [
            (Some("/data"), Some("/home/a"), Some("/data/assay/assay.db")),
            (None, Some("/home/a"), Some("/home/a/.local/share/assay/assay.db")),
            (Some(""), Some("/home/a"), Some("/home/a/.local/share/assay/assay.db")),
            (Some("relative"), Some("/home/a"), Some("/home/a/.local/share/assay/assay.db")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let found = Store::default_path(data_home.map(OsStr::new), home.map(OsStr::new));
            assert_eq!(found, expected.map(PathBuf::from), "{data_home:?} {home:?}");
        }
    }
}
