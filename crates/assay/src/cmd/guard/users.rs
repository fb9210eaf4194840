//! The file of the list of users.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use assay_proxy::postgres::users::Users;

/// Reads a list of users, which only its owner and group may do.
pub fn read(path: &Path) -> anyhow::Result<Users> {
    let name = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot open the list of users {name}"))?;
    let cannot_read = || format!("cannot read the list of users {name}");
    if file.metadata().with_context(cannot_read)?.permissions().mode() & 0o007 != 0 {
        bail!("others can read or change the list of users {name}; run chmod o= on it");
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot_read)?;
    Users::parse(&text).with_context(cannot_read)
}
