//! Files: finding them by name, asking about open ones, moving bytes through the page cache, making them
//! durable, and making and deleting them. One file per kind of work; what they share is in `scratch` and
//! `place`.

pub(crate) mod descriptor;
pub(crate) mod directory;
pub(crate) mod lookup;
mod place;
mod scratch;
pub(crate) mod sync;
pub(crate) mod transfer;

pub(crate) use place::file_system;
pub(crate) use scratch::{CachedFile, Contents, PAGE, Scratch};
