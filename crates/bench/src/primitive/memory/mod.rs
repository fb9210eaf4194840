//! Memory: latency and bandwidth by level, address translation, page faults, mappings and their management.

pub(crate) mod bandwidth;
pub(crate) mod fault;
pub(crate) mod file_fault;
pub(crate) mod load;
pub(crate) mod loaded;
pub(crate) mod management;
pub(crate) mod mapping;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod page;
pub(crate) mod protection;
pub(crate) mod release;
pub(crate) mod stream;
pub(crate) mod translate;
pub(crate) mod update;
