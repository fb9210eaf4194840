//! A running command: waits for its end, and leaves no processes behind when the handle is dropped.
//!
//! If the handle is dropped, the command and its descendants are killed. If this process is killed, the
//! kernel kills the command, but not its descendants.

use std::{
    io,
    time::{Duration, Instant},
};

use assay_process::{
    Child, Exit,
    clock::{elapsed_ns, now},
};

/// A child that runs its program. If dropped, it is killed like a [`Child`]: with all its descendants, and
/// with the rest of its process group if it has its own ([`Streams::Null`](crate::Streams::Null)).
#[derive(Debug)]
pub struct Running {
    child: Child,
    released: Instant,
    ended: Option<Ended>,
}

/// The end of a command.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Exit status or signal.
    pub exit: Exit,
    /// Wall time from release to end, ns.
    pub elapsed_ns: u64,
}

impl Running {
    pub(crate) fn new(child: Child, released: Instant) -> Self {
        Self { child, released, ended: None }
    }

    /// Returns the process id.
    #[must_use]
    pub fn process(&self) -> u32 {
        number(&self.child)
    }

    /// Waits until the command ends.
    pub fn wait(mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.wait_for(Duration::MAX)? {
                return Ok(ended);
            }
        }
    }

    /// Waits until the command ends, for at most `timeout`; a signal may end the wait earlier. The process id
    /// stays reserved until `self` is dropped.
    pub fn wait_for(&mut self, timeout: Duration) -> io::Result<Option<Ended>> {
        if self.ended.is_none() && self.child.ends_within(timeout)? {
            let elapsed_ns = elapsed_ns(self.released, now());
            self.ended = self.child.exit()?.map(|exit| Ended { exit, elapsed_ns });
        }
        Ok(self.ended)
    }
}

/// Returns the process id in the type used by records.
pub(crate) fn number(child: &Child) -> u32 {
    child.pid().as_raw_nonzero().get().cast_unsigned()
}
