//! Processes and threads: creation, programs, switches and wake-ups.

pub(crate) mod address_space;
pub(crate) mod fork;
mod image;
pub(crate) mod program;
pub(crate) mod sleep;
pub(crate) mod switch;
pub(crate) mod thread;
pub(crate) mod wakeup;
pub(crate) mod wakeup_here;
pub(crate) mod yielding;
