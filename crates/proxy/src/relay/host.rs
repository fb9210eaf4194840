//! What a relay runs in.

use std::sync::mpsc::Sender;

use super::Settings;
use super::state::State;
use crate::control::Moment;

/// What a relay runs in: it decides how long, and gets what happens. Everything waits until its methods
/// return.
pub trait Host {
    /// Returns what the relay is to do. Asked whenever something has happened, and ten times a second.
    fn order(&self) -> Order;

    /// Returns what has to change. Asked ten times a second.
    fn change(&mut self) -> Option<Change>;

    /// Takes what the law made of a period.
    fn period(&mut self, moment: &Moment);

    /// Takes the state of the relay, which it can make if it is needed. Called ten times a second.
    fn state(&mut self, state: &dyn Fn() -> State);

    /// Takes a message for who runs the relay.
    fn say(&mut self, text: String);
}

/// What has to change.
#[derive(Debug)]
pub enum Change {
    /// Connections, logins and waits that begin go by these settings. Whether there is a list of users does
    /// not change.
    Settings(Settings),
    /// The sessions of a role end, each one when it is in no transaction, or after
    /// [`super::Options::drain_time`].
    EndSessions {
        /// The name of the role.
        role: Vec<u8>,
        /// Gets the number of these sessions.
        number: Sender<usize>,
    },
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
