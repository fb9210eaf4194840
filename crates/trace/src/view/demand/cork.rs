//! Which connections are corked, and how many bytes each holds back.
//!
//! `TCP_CORK` set and cleared are the same call in a trace, so the state is a toggle. A toggle with nothing held
//! back is a cork: a program that uncorks has written something. So a connection that was corked when the recorder
//! attached is read wrongly once, and no longer. Copies of a descriptor (`dup`, `fork`) are other connections here.

use std::collections::HashMap;

use super::rules::{Cork, Rule, When, int};
use crate::record::{Abi, Call};

/// Corked connections that are remembered, 2 MiB: more are descriptors whose `close` was not seen.
const REMEMBERED_CORKS: usize = 1 << 16;

/// Corked connections, by process and descriptor.
#[derive(Debug, Default)]
pub(super) struct Corks {
    held_back: HashMap<(u32, u32), u64>,
    /// How many had to be forgotten.
    pub forgotten: u64,
}

impl Corks {
    pub fn of(&self, process: u32, call: &Call) -> Cork {
        let held_back = self.held_back.get(&(process, int(call.args[0])));
        held_back.map_or(Cork::Out, |&held_back| Cork::In { held_back })
    }

    /// Takes note of what a call of `process` did, of which `rule` is the row.
    pub fn follow(&mut self, process: u32, call: &Call, rule: Option<&Rule>) {
        let connection = (process, int(call.args[0]));
        match rule.map(|rule| rule.when) {
            Some(When::Corks) => {
                if self.held_back.len() == REMEMBERED_CORKS {
                    self.forgotten += REMEMBERED_CORKS as u64;
                    self.held_back.clear();
                }
                self.held_back.insert(connection, 0);
            }
            Some(When::Corked) => {
                let held_back = self.held_back.entry(connection).or_default();
                *held_back = held_back.saturating_add(u64::try_from(call.result).unwrap_or(0));
            }
            Some(When::Uncorks) => {
                self.held_back.remove(&connection);
            }
            // Closed, whatever it was, and even when `close` reports an error.
            _ if call.abi == Abi::Native && call.name() == "close" => {
                self.held_back.remove(&connection);
            }
            _ => {}
        }
    }

    /// The last thread of `process` ended.
    pub fn end(&mut self, process: u32) {
        self.held_back.retain(|(owner, _), _| *owner != process);
    }
}
