//! Progress bars on stderr if it is a terminal; otherwise each phase prints one line.

use std::num::NonZeroU32;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// Progress bar of one phase. It is drawn between measurements, never during one.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar over the rounds of one operation; the warm-up counts as one round.
    pub fn rounds(operation: &str, rounds: NonZeroU32) -> Self {
        Self::new(&format!("measuring '{operation}'"), u64::from(rounds.get()) + 1, "rounds")
    }

    /// Creates a bar over the seconds of a budget.
    pub fn seconds(what: &str, budget: Duration) -> Self {
        Self::new(what, budget.as_secs(), "s")
    }

    fn new(what: &str, length: u64, unit: &str) -> Self {
        if !output::watched() {
            output::say(what);
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template(&format!("{{msg}} {{bar:30}} {{pos}}/{{len}} {unit}"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(length).with_style(style).with_message(what.to_owned());
        bar.tick();
        Self(bar)
    }

    /// Reports that round `round` has begun.
    pub fn round(&self, round: u32) {
        let done = u64::from(round);
        // Called often, drawn once per round: drawing takes processor time from the measured program.
        if self.0.position() != done {
            self.0.set_position(done);
        }
    }

    /// Updates the part of the budget that is spent.
    pub fn spent(&self) {
        let spent = self.0.elapsed().as_secs();
        if self.0.position() != spent {
            self.0.set_position(spent);
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
