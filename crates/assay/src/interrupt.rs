//! Ctrl-C as a value: every phase looks at one flag, stops what it started, and says so.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The user asked to stop. Ends with exit code 130, as shells expect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Interrupted {
    /// While something was measured.
    #[error("interrupted; servers are stopped, what was measured so far is in the store")]
    Measuring,
    /// While a command was recorded.
    #[error("interrupted; the command is ended, its trace so far is in {}", .0.display())]
    Recording(PathBuf),
}

/// The flag that a signal raises.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP. A second SIGINT ends the process at once: servers and
    /// samples then die with it, because each is bound to its parent; of a traced command, only the command
    /// itself does.
    pub fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&flag))
            .context("cannot listen for signals")?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot listen for signals")?;
        }
        Ok(Self(flag))
    }

    /// The flag itself, for parts that poll it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Raises the flag from within: the phase that polls it is to end, because its results cannot be kept.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error once the user has asked to stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted::Measuring) } else { Ok(()) }
    }
}
