//! What the relay runs in: signals, files, messages, the log and the pages for Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_proxy::control::Moment;
use assay_proxy::{Host, Order, Settings, State};

use super::endpoint::Endpoint;
use super::log::Log;
use super::messages::Messages;
use super::settings::Files;
use crate::interrupt::Interrupt;

/// A guard at work, but for its relay.
pub struct Operation<'a> {
    /// Has the guard end at once.
    pub interrupt: Interrupt,
    /// Has the guard end with its sessions.
    pub terminated: Arc<AtomicBool>,
    /// What may change.
    pub files: Files<'a>,
    /// Where the decisions of the law go.
    pub log: Option<Log>,
    /// Where messages go.
    pub messages: Messages,
    /// Where the state goes.
    pub endpoint: Option<Endpoint>,
}

impl Host for Operation<'_> {
    fn order(&self) -> Order {
        if self.interrupt.is_raised() {
            Order::End
        } else if self.terminated.load(Ordering::Relaxed) {
            Order::Drain
        } else {
            Order::Relay
        }
    }

    fn changed(&mut self) -> Option<Settings> {
        self.files.read_again(&self.messages)
    }

    fn period(&mut self, moment: &Moment) {
        self.log.iter_mut().for_each(|log| log.add(moment));
    }

    fn state(&mut self, state: &dyn Fn() -> State) {
        self.endpoint.iter().for_each(|endpoint| endpoint.publish(state()));
    }

    fn say(&mut self, text: String) {
        self.messages.say(text);
    }
}
