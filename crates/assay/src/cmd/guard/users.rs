//! The file of the list of users.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use assay_proxy::postgres::users::Users;

/// Reads a list of users, which only its owner and group may do.
pub fn read(path: &Path) -> anyhow::Result<Users> {
    let shown = || assay_report::visible(&path.display().to_string()).into_owned();
    let mut text = String::new();
    let mut file = File::open(path).with_context(|| format!("cannot open the list of users {}", shown()))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {}", shown()))?;
    if metadata.permissions().mode() & 0o007 != 0 {
        bail!("others can read or change the list of users {}; run chmod o= on it", shown());
    }
    file.read_to_string(&mut text).with_context(|| format!("cannot read the list of users {}", shown()))?;
    Users::parse(&text).with_context(|| format!("cannot read the list of users {}", shown()))
}
