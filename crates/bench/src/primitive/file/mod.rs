//! Files: lookup by name, calls on open files, transfers through the page cache, synchronisation with
//! storage, creation and deletion. One file per kind of operation; shared code is in `scratch` and `place`.

pub(crate) mod descriptor;
pub(crate) mod directory;
pub(crate) mod lookup;
mod place;
mod scratch;
pub(crate) mod sync;
pub(crate) mod transfer;

pub(crate) use place::file_system;
pub(crate) use scratch::{CachedFile, Contents, PAGE, Scratch};
