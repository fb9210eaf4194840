//! The benchmarks, one file per family. Each defines what is timed and how the kernel's work is checked;
//! the harness decides how long and how often. `kit` is a floor below the other directories: they use it, and
//! it uses none of them. The files with rows are listed in [`mod@crate::catalogue`].

pub(crate) mod cpu;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod ipc;
pub(crate) mod kit;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod time;
