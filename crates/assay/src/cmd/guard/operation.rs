//! What the relay runs in: signals, files, messages, the log and the pages for Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_proxy::control::Moment;
use assay_proxy::{Change, Host, Order, State};
use assay_reflect::curve::Curve;

use super::admin::Admin;
use super::log::Log;
use super::messages::Messages;
use super::published::{Published, Seen};
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
    /// The productivity by load, of a guard that only observes.
    pub curve: Option<Curve>,
    /// Where messages go.
    pub messages: Messages,
    /// Where the state goes, if anything can ask for it.
    pub published: Option<Arc<Published>>,
    /// Where commands come from.
    pub admin: Option<Admin>,
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

    fn change(&mut self) -> Option<Change> {
        let settings = self.files.read_again(&self.messages).map(Change::Settings);
        settings.or_else(|| self.admin.as_ref()?.change())
    }

    fn period(&mut self, moment: &Moment) {
        self.log.iter_mut().for_each(|log| log.add(moment));
        self.curve.iter_mut().for_each(|curve| curve.add(&moment.signal));
    }

    fn state(&mut self, state: &dyn Fn() -> State) {
        if let Some(published) = &self.published {
            published.replace(Seen { state: state(), curve: self.curve.clone() });
        }
    }

    fn say(&mut self, text: String) {
        self.messages.say(text);
    }
}
