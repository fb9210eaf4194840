//! The mapping rule: which primitive of the operating system represents which call (Brown 1997, section 4.1).
//!
//! [`RULES`] contains the complete mapping: rows of call, kind of descriptor, conditions and primitive. The
//! first matching row applies; a call without a matching row has the null call as its lower bound.
//! [`UNASKED`] lists the primitives that no row can name, with the reasons. The state of earlier calls that a
//! condition requires is in `cork`, the buffers of transfers are in `buffer`, the mapping of page faults is
//! in `fault`, and that of sleeps and wake-ups in `scheduling`. One pass computes the coefficients of an
//! application vector ([`assay_quantity::OperationDemand`]), with a histogram over sizes and whether the
//! buffer of a transfer was used recently. The mapping contains no costs of primitives.

mod buffer;
mod cork;
mod fault;
mod rules;
mod scheduling;
mod table;
mod unasked;

use std::collections::BTreeMap;

use assay_quantity::{
    CallCount, Coefficient, Key, Mapping, NULL_CALL, OperationDemand, PrimitiveId, Use, Value,
};
use foldhash::HashMap;

pub use fault::{FAULTS, FaultRule, Owners};
pub use rules::{Argument, On, Role, Rule, When};
pub use scheduling::{CONTEXT_SWITCH, DEEP_IDLE_NS, SCHEDULING, Scheduling, SchedulingRule};
pub use table::RULES;
pub use unasked::{UNASKED, Unasked};

use self::{
    buffer::{Buffer, Pages},
    cork::Corks,
    fault::Copies,
    rules::{Circumstances, Cork, End, Made},
    scheduling::scheduling,
};
use super::View;
use crate::{
    descriptor::Descriptor,
    histogram::bucket,
    record::{Abi, Call, CallKind, Event, Lost, Memory, Record},
    syscall,
};

const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// The primitives that contain the sleep of the one that waits for the child or the thread, and the wake-up
/// that ends it.
const LIVES: [&str; 3] = ["process.bare_fork_exit", "process.vfork_exit", "thread.create_join"];

/// The primitive that contains the page faults of its call, in which the kernel fills the stack and the data
/// of the new program.
const FILLS_MEMORY: &str = "process.execve{link=dynamic}";

/// Collects the demand of a program.
#[derive(Debug, Default)]
pub struct Demanding {
    terms: Terms,
    threads: HashMap<u32, Thread>,
    corks: Corks,
    copies: Copies,
    unfinished: u64,
    lost: u64,
}

#[derive(Debug, Default)]
struct Terms(BTreeMap<Term, Tally>);

/// The key of one coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    primitive: &'static str,
    bound: Bound,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    Own,
    Lower,
}

/// The contribution of one call to its term.
#[derive(Debug, Clone, Copy)]
struct Contribution {
    operation: Operation,
    kernel_ns: u64,
    call: CallKind,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// No operation: it is part of the operation of another call.
    Within,
    Unsized,
    OfBytes(u64),
}

#[derive(Debug, Default)]
struct Tally {
    /// By size, in the buckets of a [`crate::histogram::Histogram`]; `None` for an operation without a size.
    bins: BTreeMap<Option<usize>, Bin>,
    kernel_ns: u64,
    calls: BTreeMap<CallKind, u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Bin {
    calls: u64,
    bytes: u64,
}

/// State of a live thread.
#[derive(Debug, Default)]
struct Thread {
    made: Option<Made>,
    /// Page faults in the kernel since the last call that had some, by primitive: the call follows.
    faults: Vec<(&'static str, u64)>,
    pages: HashMap<&'static str, Pages>,
}

/// The demand of a program on the operating system.
#[derive(Debug)]
pub struct Demanded {
    terms: Terms,
    /// Calls that never returned, except those that ended their thread; no coefficient contains them.
    pub unfinished: u64,
    /// Corked connections that were dropped from the bounded state: bytes sent on them may count as not
    /// corked.
    pub forgotten_corks: u64,
    /// Missing records: with losses, the demand is a lower bound.
    pub lost: u64,
}

impl View for Demanding {
    type Shown = Demanded;

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Call(call) => self.call(record, call, End::Returned),
            Event::Unfinished(call) if is_exit(call) => self.call(record, call, End::OfThread),
            Event::Unfinished(_) => self.unfinished += 1,
            Event::PageFault { user, error, area, .. } => {
                let rule = FaultRule::of(*error, *area, self.copies.owners(record.process));
                if *user {
                    self.terms.count(rule.primitive, 1);
                } else {
                    self.threads.entry(record.thread).or_default().add_fault(rule.primitive);
                }
                rule.release.iter().for_each(|release| self.terms.count(release, 1));
            }
            Event::Fork { child_process, memory, .. } => {
                let made = match memory {
                    _ if *child_process == record.process => Some(Made::Thread),
                    Some(Memory::Borrowed) => Some(Made::Borrower),
                    Some(Memory::Copied { anonymous_bytes }) => {
                        Some(Made::Copy { anonymous_bytes: *anonymous_bytes })
                    }
                    None => None,
                };
                if matches!(made, Some(Made::Copy { .. })) {
                    self.copies.fork(record.process, *child_process);
                }
                self.threads.entry(record.thread).or_default().made = made;
            }
            Event::Exit { whole_process, .. } => {
                if let Some(thread) = self.threads.remove(&record.thread) {
                    thread.end(&mut self.terms);
                }
                if *whole_process {
                    self.corks.end(record.process);
                    self.copies.leave(record.process);
                }
            }
            Event::Exec { .. } => self.copies.leave(record.process),
            Event::OffCpu { .. } => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(mut self) -> Demanded {
        self.threads.into_values().for_each(|thread| thread.end(&mut self.terms));
        let forgotten_corks = self.corks.forgotten;
        Demanded { terms: self.terms, unfinished: self.unfinished, forgotten_corks, lost: self.lost }
    }
}

impl Demanding {
    fn call(&mut self, record: &Record, call: &Call, end: End) {
        let cork = self.corks.of(record.process, call);
        let made = self.made(record.thread, call);
        let circumstances = Circumstances { made, end, cork };
        let rule = Rule::of(call, circumstances);
        let (primitive, bound, role) = match rule {
            Some(rule) => (rule.primitive, Bound::Own, rule.role),
            None => (NULL_CALL, Bound::Lower, Role::Operation),
        };
        let contribution = Contribution {
            operation: match (role, cork) {
                (Role::Within, _) => Operation::Within,
                (Role::Operation, _) | (Role::HeldBack, Cork::Out) => Operation::Unsized,
                (Role::Copied, _) => Operation::OfBytes(made.map_or(0, Made::anonymous_bytes)),
                (Role::OfBytes(bytes), _) => Operation::OfBytes(bytes),
                (Role::HeldBack, Cork::In { held_back }) => Operation::OfBytes(held_back),
                (Role::Sized | Role::Buffered, _) => {
                    Operation::OfBytes(u64::try_from(call.result).unwrap_or(0))
                }
            },
            kernel_ns: call.kernel_ns(),
            call: call.kind(),
        };
        if role == Role::Buffered {
            self.transfer(record.thread, primitive, call, contribution);
        } else {
            self.terms.add(Term { primitive, bound, buffer: Buffer::NoKey }, contribution);
        }
        self.corks.follow(record.process, call, rule);
        if call.faults > 0 {
            self.faults(record.thread, primitive);
        }
        if !LIVES.contains(&primitive) {
            scheduling(call, |primitive, times| self.terms.count(primitive, times));
        }
    }

    /// Counts the page faults of a call.
    fn faults(&mut self, thread: u32, primitive: &str) {
        let Some(thread) = self.threads.get_mut(&thread) else { return };
        for (fault, count) in thread.faults.drain(..).filter(|_| primitive != FILLS_MEMORY) {
            self.terms.count(fault, count);
        }
    }

    /// Returns what the call created. The fork event precedes the return of the call. If the event is lost or
    /// does not contain the memory, the flags replace it; `clone3` does not pass them in a register.
    fn made(&mut self, thread: u32, call: &Call) -> Option<Made> {
        let name = call.name();
        if !matches!(&*name, "fork" | "vfork" | "clone" | "clone3") {
            return None;
        }
        let seen = self.threads.get_mut(&thread).and_then(|thread| thread.made.take());
        seen.or(match &*name {
            "fork" => Some(Made::Copy { anonymous_bytes: 0 }),
            "vfork" => Some(Made::Borrower),
            "clone" if call.args[0] & CLONE_THREAD != 0 => Some(Made::Thread),
            "clone" if call.args[0] & CLONE_VM != 0 => Some(Made::Borrower),
            "clone" => Some(Made::Copy { anonymous_bytes: 0 }),
            _ => None,
        })
    }

    /// Adds a transfer. The buffers of vectors and message headers are not in the trace; programs that use
    /// them keep them, so they count as reused.
    fn transfer(&mut self, thread: u32, primitive: &'static str, call: &Call, transfer: Contribution) {
        let terms = &mut self.terms;
        let Some(argument) = syscall::rule(call.number).buffer else {
            return terms.transferred(primitive, Buffer::Reused, transfer);
        };
        let pages = self.threads.entry(thread).or_default().pages.entry(primitive).or_default();
        let address = call.args[usize::from(argument)];
        pages.transfer(address, transfer, |buffer, transfer| terms.transferred(primitive, buffer, transfer));
    }
}

impl Thread {
    fn add_fault(&mut self, primitive: &'static str) {
        match self.faults.iter_mut().find(|(other, _)| *other == primitive) {
            Some((_, count)) => *count += 1,
            None => self.faults.push((primitive, 1)),
        }
    }

    fn end(self, terms: &mut Terms) {
        self.faults.into_iter().for_each(|(primitive, count)| terms.count(primitive, count));
        for (primitive, pages) in self.pages {
            pages.end(|buffer, transfer| terms.transferred(primitive, buffer, transfer));
        }
    }
}

fn is_exit(call: &Call) -> bool {
    call.abi == Abi::Native && matches!(&*call.name(), "exit" | "exit_group")
}

impl Terms {
    fn add(&mut self, term: Term, contribution: Contribution) {
        let tally = self.0.entry(term).or_default();
        match contribution.operation {
            Operation::Within => {}
            Operation::Unsized => tally.bin(None, 1, 0),
            Operation::OfBytes(bytes) => tally.bin(Some(bucket(bytes)), 1, bytes),
        }
        tally.kernel_ns = tally.kernel_ns.saturating_add(contribution.kernel_ns);
        *tally.calls.entry(contribution.call).or_default() += 1;
    }

    fn transferred(&mut self, primitive: &'static str, buffer: Buffer, transfer: Contribution) {
        self.add(Term { primitive, bound: Bound::Own, buffer }, transfer);
    }

    /// Counts a primitive without kernel time of its own: the time belongs to the call around it.
    fn count(&mut self, primitive: &'static str, times: u64) {
        let term = Term { primitive, bound: Bound::Own, buffer: Buffer::NoKey };
        self.0.entry(term).or_default().bin(None, times, 0);
    }
}

impl Tally {
    fn bin(&mut self, size: Option<usize>, calls: u64, bytes: u64) {
        let bin = self.bins.entry(size).or_default();
        bin.calls += calls;
        bin.bytes = bin.bytes.saturating_add(bytes);
    }
}

impl Demanded {
    /// Returns the vector of the operation `name` for a trace with `units` units of work. A trace contains no
    /// processor times; the caller adds them.
    #[must_use]
    pub fn into_operation(self, name: Named, units: f64) -> OperationDemand {
        let coefficients =
            self.terms.0.iter().map(|(term, tally)| coefficient(*term, tally, units)).collect();
        OperationDemand {
            name: name.operation,
            unit_of_work: name.unit_of_work,
            units,
            user: None,
            system: None,
            lost_records: self.lost,
            coefficients,
        }
    }
}

/// Names of an operation and of its unit of work.
#[derive(Debug, Clone)]
pub struct Named {
    /// Name of the operation, `page`.
    pub operation: String,
    /// One unit of work, `request`.
    pub unit_of_work: String,
}

fn coefficient(term: Term, tally: &Tally, units: f64) -> Coefficient {
    let per_unit = |count: u64| count as f64 / units;
    let uses = tally
        .bins
        .iter()
        .map(|(size, bin)| Use { calls: per_unit(bin.calls), bytes: size.map(|_| per_unit(bin.bytes)) });
    let calls = tally.calls.iter().map(|(call, count)| CallCount {
        call: call.name().into_owned(),
        descriptor: if call.descriptor == Descriptor::None {
            String::new()
        } else {
            call.descriptor.name().to_owned()
        },
        calls: per_unit(*count),
    });
    let primitive: PrimitiveId =
        term.primitive.parse().expect("a test checks that every name in the table is a valid primitive id");
    Coefficient {
        primitive: match term.buffer {
            Buffer::NoKey => primitive,
            Buffer::Reused => primitive.with(Key::Buffer, Value::Word("reused")),
            Buffer::Fresh => primitive.with(Key::Buffer, Value::Word("fresh")),
        },
        mapping: match term.bound {
            Bound::Own => Mapping::Own,
            Bound::Lower => Mapping::LowerBound,
        },
        uses: uses.collect(),
        kernel_ns: per_unit(tally.kernel_ns),
        calls: calls.collect(),
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
