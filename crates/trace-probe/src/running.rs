//! A command that runs: how and when it ends, and that nothing of it is left when its handle goes.
//!
//! What ends it, in the order of what can go wrong: the handle is dropped, and the command goes with everything
//! below it; this process is killed, and the kernel kills the command (not what is below it).

use std::{
    io,
    time::{Duration, Instant},
};

use assay_process::{
    Child, Exit,
    clock::{elapsed_ns, now},
};

/// A child that runs its program. Dropped, it is killed as a [`Child`] is: with all its descendants, and with the rest
/// of its process group if it has one of its own ([`Streams::Null`](crate::Streams::Null)).
#[derive(Debug)]
pub struct Running {
    child: Child,
    released: Instant,
    ended: Option<Ended>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// With which status, or by which signal.
    pub exit: Exit,
    /// Wall time from its release to its end, ns.
    pub elapsed_ns: u64,
}

impl Running {
    pub(crate) fn new(child: Child, released: Instant) -> Self {
        Self { child, released, ended: None }
    }

    /// Its process number.
    #[must_use]
    pub fn process(&self) -> u32 {
        number(&self.child)
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.wait_for(Duration::MAX)? {
                return Ok(ended);
            }
        }
    }

    /// Waits until it ends, for `timeout` at most, and less if a signal comes. It keeps its number until `self` is
    /// dropped.
    pub fn wait_for(&mut self, timeout: Duration) -> io::Result<Option<Ended>> {
        if self.ended.is_none() && self.child.ends_within(timeout)? {
            let elapsed_ns = elapsed_ns(self.released, now());
            self.ended = self.child.exit()?.map(|exit| Ended { exit, elapsed_ns });
        }
        Ok(self.ended)
    }
}

/// A process's id as records hold it.
pub(crate) fn number(child: &Child) -> u32 {
    child.pid().as_raw_nonzero().get().cast_unsigned()
}
