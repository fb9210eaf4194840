//! What a relay runs in.

use super::Settings;
use super::state::State;
use crate::control::Moment;

/// What a relay runs in: it decides how long, and gets what happens. Everything waits until its methods
/// return.
pub trait Host {
    /// Returns what the relay is to do. Asked whenever something has happened, and ten times a second.
    fn order(&self) -> Order;

    /// Returns settings that have changed. Asked ten times a second.
    fn changed(&mut self) -> Option<Settings>;

    /// Takes what the law made of a period.
    fn period(&mut self, moment: &Moment);

    /// Takes the state of the relay, which it can make if it is needed. Called ten times a second.
    fn state(&mut self, state: &dyn Fn() -> State);

    /// Takes a message for who runs the relay.
    fn say(&mut self, text: String);
}

/// What a relay is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// To relay.
    Relay,
    /// To accept no further client, to end each session when it is in no transaction, and to end with the
    /// last one.
    Drain,
    /// To end at once.
    End,
}
