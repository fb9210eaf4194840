//! The corked connections and the number of bytes that each holds back.
//!
//! In a trace, setting and clearing `TCP_CORK` are the same call, so the state is a toggle. A toggle while no
//! bytes are held back is a cork, since a program that uncorks has written something. A connection that was
//! corked when the recorder attached is therefore misread once and correct afterwards. Copies of a descriptor
//! (`dup`, `fork`) count as separate connections.

use foldhash::HashMap;

use super::rules::{Cork, Rule, When, int};
use crate::record::{Abi, Call};

/// Maximum number of stored corked connections, 2 MiB. More than this are descriptors whose `close` is not in
/// the trace.
const REMEMBERED_CORKS: usize = 1 << 16;

/// Corked connections, by process and descriptor.
#[derive(Debug, Default)]
pub(super) struct Corks {
    held_back: HashMap<(u32, u32), u64>,
    /// Number of connections dropped at the limit.
    pub forgotten: u64,
}

impl Corks {
    pub fn of(&self, process: u32, call: &Call) -> Cork {
        let held_back = self.held_back.get(&(process, int(call.args[0])));
        held_back.map_or(Cork::Out, |&held_back| Cork::In { held_back })
    }

    /// Updates the state after a call of `process` that matched `rule`.
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
            // The descriptor is closed, even when `close` reports an error.
            _ if call.abi == Abi::Native && call.name() == "close" => {
                self.held_back.remove(&connection);
            }
            _ => {}
        }
    }

    /// Removes the connections of `process`, whose last thread ended.
    pub fn end(&mut self, process: u32) {
        self.held_back.retain(|(owner, _), _| *owner != process);
    }
}
