//! Ctrl-C as a flag: every phase polls it, stops the processes that it started, and returns an error.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// An interrupt by the user. Exits with code 130, as shells expect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Interrupted {
    /// Interrupted during a measurement.
    #[error("interrupted; servers are stopped, measurements so far are in the store")]
    Measuring,
    /// Interrupted while a command was recorded.
    #[error("interrupted; the command was terminated, its trace so far is in {}", .0.display())]
    Recording(PathBuf),
    /// Interrupted while a log was imported.
    #[error("interrupted; no trace was written")]
    Importing,
    /// Interrupted while an image was built.
    #[error("interrupted; no image was built")]
    Building,
    /// Interrupted while a guest ran.
    #[error("interrupted; the guest was killed")]
    Simulating,
    /// Interrupted while processes were placed.
    #[error("interrupted; all processes run as they were found")]
    Placing,
}

/// The flag that a signal sets.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP. A second SIGINT ends the process immediately: servers and
    /// samples end with it, because each is bound to its parent. Of a traced command, only the command itself
    /// ends, not its children.
    pub fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::listen_to_sigint()?;
        [SIGTERM, SIGHUP].iter().try_for_each(|signal| interrupt.at(*signal))?;
        Ok(interrupt)
    }

    /// Listens for SIGINT alone.
    pub fn listen_to_sigint() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag))
            .context("cannot install a signal handler")?;
        let interrupt = Self(flag);
        interrupt.at(SIGINT)?;
        Ok(interrupt)
    }

    /// Listens for another signal.
    pub fn at(&self, signal: i32) -> anyhow::Result<()> {
        register(signal, &self.0)
    }

    /// Returns the flag, for code that polls it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Sets the flag to end the phase that polls it, because its results cannot be stored.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the flag is set.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted::Measuring) } else { Ok(()) }
    }
}

/// Has a signal set a flag.
pub fn register(signal: i32, flag: &Arc<AtomicBool>) -> anyhow::Result<()> {
    signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot install a signal handler")?;
    Ok(())
}
