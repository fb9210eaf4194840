//! Progress bars on stderr, and only where somebody watches: elsewhere each phase is one line.

use std::num::NonZeroU32;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// A bar over one phase. It is drawn between measurements, never during one.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// The rounds of one operation, the warm-up counted as one.
    pub fn rounds(operation: &str, rounds: NonZeroU32) -> Self {
        Self::new(&format!("measuring '{operation}'"), u64::from(rounds.get()) + 1, "rounds")
    }

    /// The seconds of a budget.
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

    /// Round `round` has begun.
    pub fn round(&self, round: u32) {
        let done = u64::from(round);
        // Asked often, drawn once per round: drawing takes processor time from what is measured.
        if self.0.position() != done {
            self.0.set_position(done);
        }
    }

    /// Some more of the budget is spent.
    pub fn spent(&self) {
        let spent = self.0.elapsed().as_secs();
        if self.0.position() != spent {
            self.0.set_position(spent);
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
