//! Files and storage: names in directories, calls on open files, transfers through the page cache and past
//! it, synchronisation.

pub(crate) mod descriptor;
pub(crate) mod directory;
pub(crate) mod disk;
pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod splice;
pub(crate) mod sync;
pub(crate) mod transfer;
pub(crate) mod uring;
