//! Selects records of a trace: the extraction of ktranal (Brown 1997, section 3.2).

use crate::{
    descriptor::Descriptor,
    record::{Abi, Event, Record},
};

/// Conditions that a record must meet, all of them. An absent condition accepts every record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// A call with this number, finished or not.
    pub call: Option<u16>,
    /// A call on this kind of descriptor.
    pub descriptor: Option<Descriptor>,
    /// A record of this process.
    pub process: Option<u32>,
    /// A record of this thread.
    pub thread: Option<u32>,
    /// A call that took at least this long, ns.
    pub elapsed_ns_min: Option<u64>,
}

impl Filter {
    /// Returns whether the record meets every condition.
    #[must_use]
    pub fn accepts(&self, record: &Record) -> bool {
        let call = match &record.event {
            Event::Call(call) | Event::Unfinished(call) => Some(call),
            Event::PageFault { .. }
            | Event::OffCpu { .. }
            | Event::Fork { .. }
            | Event::Exec { .. }
            | Event::Exit { .. } => None,
        };
        let native = call.filter(|call| call.abi == Abi::Native).map(|call| call.number);
        meets(self.call, native)
            && meets(self.descriptor, call.map(|call| call.descriptor))
            && meets(self.process, Some(record.process))
            && meets(self.thread, Some(record.thread))
            && self.elapsed_ns_min.is_none_or(|least| call.is_some_and(|call| call.elapsed_ns >= least))
    }
}

fn meets<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
    wanted.is_none() || wanted == found
}
