//! The shape of a unit of work: which calls a request causes, in which order, and in which variants.
//!
//! Brown (1997, section 3.3.1) read the phases of a request (accept, request, files, response, logging) from
//! a trace of Apache by hand. This view finds them. It needs no mark in the program: a unit of work begins
//! when a request arrives on a connection that has been answered, so kept connections are divided into
//! requests, and the connections of an event loop are told apart by their socket, that is, by its inode. What
//! a thread does for a connection is what it does from the moment it touches its socket until it waits for
//! many descriptors, touches the socket of another connection, or the unit of work ends. A socket that it
//! uses in that time is used for the same unit of work, also after a wait. A new process or thread goes on
//! with the unit of work of its parent.
//!
//! The memory grows with the number of sockets that no recorded call closed and whose process runs, of
//! threads and of different calls, not with that of records.

mod connection;
mod step;
#[cfg(test)]
mod tests;
mod unit;

use foldhash::{HashMap, HashSet};
pub use step::{Phase, Step};

use self::{
    connection::Connection,
    step::{Class, Role},
    unit::UnitKind,
};
use super::{Tally, View};
use crate::{
    descriptor::Descriptor,
    record::{Call, Event, Lost, Record},
    syscall::Direction,
};

/// The role of the program on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// It answers requests: a server.
    Answers,
    /// It makes them: a client.
    Asks,
}

/// The units of work of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases {
    /// The kinds that occur, those that the program answers first, then by the time that the kernel worked.
    pub kinds: Vec<UnitsOfWork>,
    /// Calls that are in no unit of work.
    pub outside: Tally,
    /// Calls that never returned, in no other number.
    pub unfinished: u64,
    /// Lost records: with losses, a unit of work may lack calls, or be two.
    pub lost: u64,
}

/// Units of work of one kind: requests on one kind of socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitsOfWork {
    /// Whether the program answers or makes the requests.
    pub side: Side,
    /// The kind of socket.
    pub descriptor: Descriptor,
    /// Number of requests.
    pub units: u64,
    /// Their steps and those of `idle`, by phase.
    pub steps: Vec<StepRow>,
    /// The variants, most frequent first.
    pub variants: Vec<Variant>,
    /// The others together, without steps: rare variants, and units of work that would have more than 512.
    pub rest: Option<Variant>,
    /// Connections that were opened and had no request, without their steps; not in `units`.
    pub idle: Option<Variant>,
}

/// A step in all units of work of a kind together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRow {
    /// The step.
    pub step: Step,
    /// Its calls.
    pub tally: Tally,
}

/// Units of work with the same steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The steps in order, without waits and calls for locks. A sequence that repeats itself is there once.
    pub steps: Vec<Step>,
    /// Number of units of work.
    pub units: u64,
    /// Their calls, including waits and calls for locks.
    pub calls: u64,
    /// Time that the kernel worked in these calls, ns.
    pub kernel_ns: u64,
    /// Time from the request to the last bytes before the next one, median in ns within 6.25 %: for a server
    /// from the return of the call that read the first part of the request, for a client from the beginning
    /// of the call that sent it. `None` if no unit of work was answered.
    pub time_ns: Option<u64>,
    /// The same, 99th percentile.
    pub time_p99_ns: Option<u64>,
}

/// Collects [`Phases`].
#[derive(Debug, Default)]
pub struct FindPhases {
    kinds: Vec<UnitKind>,
    /// Open sockets by inode.
    sockets: HashMap<u64, Socket>,
    /// The inodes of the sockets that each process holds.
    held: HashMap<u32, HashSet<u64>>,
    /// What each thread works for.
    work: HashMap<u32, Work>,
    outside: Tally,
    unfinished: u64,
    lost: u64,
}

/// The work of a thread.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// The position of the latest kind of unit of work.
    kind: usize,
    /// The unit of work; `None` since the thread waits.
    unit: Option<UnitName>,
}

/// The name of a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnitName {
    /// The inode of its connection.
    inode: u64,
    /// The number of units of work of the connection that ended before it.
    units_ended: u64,
}

#[derive(Debug, Default)]
struct Socket {
    connection: Option<Connection>,
    /// The unit of work of a served connection for which the program used the socket last.
    used_for: Option<UnitName>,
    /// The thread that used it for that unit of work.
    used_by: u32,
    /// Number of processes that hold it.
    holders: u32,
}

/// Where a call on a socket belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// To the connection of the socket itself.
    OnConnection,
    /// To the connection with this inode, for which the thread uses the socket, if there is one.
    Beside(Option<u64>),
}

impl View for FindPhases {
    type Shown = Phases;

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Call(call) => self.call(record, call),
            Event::Unfinished(_) => self.unfinished += 1,
            Event::Fork { child_process, child_thread, .. } => {
                let child = Record { process: *child_process, thread: *child_thread, ..*record };
                self.fork(record, &child);
            }
            // A server rarely lets a program that it executes have its sockets; a call on one shows it.
            Event::Exec { .. } => self.release_all(record.process),
            Event::Exit { whole_process, .. } => {
                self.work.remove(&record.thread);
                if *whole_process {
                    self.release_all(record.process);
                }
            }
            Event::PageFault { .. } | Event::OffCpu { .. } => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(mut self) -> Phases {
        // Always in the same order, because the first variants are kept.
        let mut open: Vec<_> = self.sockets.keys().copied().collect();
        open.sort_unstable();
        open.into_iter().for_each(|inode| self.end(inode));
        let mut kinds = Vec::new();
        for kind in self.kinds {
            match kind.into_units() {
                Ok(units) => kinds.push(units),
                Err(unanswered) => self.outside.merge(&unanswered),
            }
        }
        kinds.sort_by_key(|units| (units.side, std::cmp::Reverse(units.total().kernel_ns)));
        Phases { kinds, outside: self.outside, unfinished: self.unfinished, lost: self.lost }
    }
}

impl UnitsOfWork {
    /// Returns all their calls.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.steps.iter().for_each(|row| total.merge(&row.tally));
        total
    }
}

impl FindPhases {
    fn call(&mut self, record: &Record, call: &Call) {
        let class = Class::of(call);
        if class == Class::Waits {
            return self.wait(record, call);
        }
        let works_for = self.works_for(record.thread);
        if !call.descriptor.is_conversation() || call.inode == 0 {
            return self.beside(record, call, works_for);
        }
        self.hold(record.process, call.inode);
        if class == Class::Accepts {
            self.end(call.inode);
            self.begin(call, Side::Answers);
        }
        let is_shared = self.sockets.get(&call.inode).is_some_and(|socket| socket.holders > 1);
        if class == Class::Closes && is_shared {
            return self.hand_over(record, call, works_for);
        }
        let role = Role::of(call);
        match self.place(record, call, role, works_for) {
            Place::OnConnection => self.on_connection(record, call, role),
            Place::Beside(works_for) => {
                let served = works_for.filter(|inode| self.side(*inode) == Some(Side::Answers));
                let unit = served.and_then(|inode| self.unit_of(inode));
                if let (Some(socket), Some(unit)) = (self.sockets.get_mut(&call.inode), unit) {
                    (socket.used_for, socket.used_by) = (Some(unit), record.thread);
                }
                self.beside(record, call, works_for);
            }
        }
        if class == Class::Closes {
            self.let_go(record.process, call.inode);
        }
    }

    /// Adds a call by which a process closes a socket that another process keeps open.
    fn hand_over(&mut self, record: &Record, call: &Call, works_for: Option<u64>) {
        match self.working(works_for) {
            Some((kind, connection)) if works_for == Some(call.inode) => {
                let step = Step::handing_over(call, connection.progress());
                kind.add(&mut connection.unit, record.thread, step, call);
                self.end_work(record.thread);
            }
            _ => self.beside(record, call, works_for),
        }
        self.let_go(record.process, call.inode);
    }

    /// Adds a call that waits. It belongs to the unit of work before it. Further waits of a thread belong to
    /// no single unit, but to the kind that the thread serves.
    ///
    /// The work of the thread ends here, unless its process has only this connection, which is not answered:
    /// it may wait for a lock.
    fn wait(&mut self, record: &Record, call: &Call) {
        let step = Step::waiting(call);
        let works_for = self.works_for(record.thread);
        if let Some((kind, connection)) = self.working(works_for) {
            kind.add(&mut connection.unit, record.thread, step, call);
            let is_asked = connection.is_asked();
            if !is_asked || self.held.get(&record.process).is_none_or(|held| held.len() > 1) {
                self.end_work(record.thread);
            }
            return;
        }
        let served = self.work.get(&record.thread).map(|work| &mut self.kinds[work.kind]);
        match served.filter(|kind| kind.side == Side::Answers) {
            Some(kind) => {
                kind.count(step, call);
            }
            None => self.outside.add(call),
        }
    }

    /// Ends the work of a thread for its connection.
    fn end_work(&mut self, thread: u32) {
        if let Some(work) = self.work.get_mut(&thread) {
            work.unit = None;
        }
    }

    /// Returns the inode of the connection for whose unit of work the thread works.
    fn works_for(&self, thread: u32) -> Option<u64> {
        self.current(self.work.get(&thread)?.unit?)
    }

    /// Returns the inode of the connection of a unit of work that has not ended.
    fn current(&self, unit: UnitName) -> Option<u64> {
        (self.unit_of(unit.inode) == Some(unit)).then_some(unit.inode)
    }

    /// Returns the unit of work of the connection with this inode.
    fn unit_of(&self, inode: u64) -> Option<UnitName> {
        Some(UnitName { inode, units_ended: self.connection(inode)?.units_ended })
    }

    /// Returns the connection with this inode.
    fn connection(&self, inode: u64) -> Option<&Connection> {
        self.sockets.get(&inode)?.connection.as_ref()
    }

    /// Returns the connection with this inode, and its kind, to add a call.
    fn working(&mut self, inode: Option<u64>) -> Option<(&mut UnitKind, &mut Connection)> {
        let connection = self.sockets.get_mut(&inode?)?.connection.as_mut()?;
        Some((&mut self.kinds[connection.kind], connection))
    }

    /// Returns the side of the program on the connection with this inode, if there is one.
    fn side(&self, inode: u64) -> Option<Side> {
        self.connection(inode).map(|connection| connection.side)
    }

    /// Returns where a call on a socket belongs. A connection may begin here.
    fn place(&mut self, record: &Record, call: &Call, role: Role, works_for: Option<u64>) -> Place {
        let own = self.side(call.inode);
        if own == Some(Side::Answers) {
            return Place::OnConnection;
        }
        let socket = self.sockets.get(&call.inode);
        let used_for = socket.and_then(|socket| socket.used_for);
        let is_same_thread = socket.is_some_and(|socket| socket.used_by == record.thread);
        // A connection that was open before the recording began.
        if own.is_none() && used_for.is_none() && role == Role::Moves(Direction::In) {
            self.begin(call, Side::Answers);
            return Place::OnConnection;
        }
        let current = used_for.and_then(|unit| self.current(unit));
        let asked = current.filter(|inode| self.connection(*inode).is_some_and(Connection::is_asked));
        // An answer belongs to its request, and what a thread writes to a stream before it belongs there too.
        let goes_on = if role.reads() {
            current
        } else {
            asked.filter(|_| call.descriptor.is_stream() && is_same_thread)
        };
        let is_served = |inode: &u64| *inode != call.inode && self.side(*inode) == Some(Side::Answers);
        let served = goes_on.or(works_for.filter(is_served)).or(asked);
        if served.is_some() {
            return Place::Beside(served);
        }
        if own.is_none() {
            let side = match (role, Class::of(call)) {
                (_, Class::Connects) => Side::Asks,
                // Where the program answers requests, a connection that was open before may begin with an
                // answer.
                (Role::Moves(_), _) if used_for.is_none() && self.answers_on(call.descriptor) => {
                    Side::Answers
                }
                (Role::Moves(_), _) if used_for.is_none() => Side::Asks,
                _ => return Place::Beside(works_for),
            };
            self.begin(call, side);
        }
        Place::OnConnection
    }

    /// Returns whether the program answers requests on this kind of socket.
    fn answers_on(&self, descriptor: Descriptor) -> bool {
        self.kinds.iter().any(|kind| (kind.side, kind.descriptor) == (Side::Answers, descriptor))
    }

    /// Makes a connection of a socket.
    fn begin(&mut self, call: &Call, side: Side) {
        let same = |kind: &UnitKind| (kind.side, kind.descriptor) == (side, call.descriptor);
        let kind = self.kinds.iter().position(same).unwrap_or_else(|| {
            self.kinds.push(UnitKind::new(side, call.descriptor));
            self.kinds.len() - 1
        });
        if let Some(socket) = self.sockets.get_mut(&call.inode) {
            socket.connection = Some(Connection::new(side, kind));
        }
    }

    /// Adds a call on the connection itself.
    fn on_connection(&mut self, record: &Record, call: &Call, role: Role) {
        let Some((kind, connection)) = self.working(Some(call.inode)) else { return self.outside.add(call) };
        if let Some(unit) = connection.next_unit(role) {
            kind.finish(&unit);
        }
        let step = connection.step(record, call, role);
        kind.add(&mut connection.unit, record.thread, step, call);
        let unit = UnitName { inode: call.inode, units_ended: connection.units_ended };
        let work = Work { kind: connection.kind, unit: Some(unit) };
        self.work.insert(record.thread, work);
    }

    /// Adds another call, to the unit of work of this connection if there is one.
    fn beside(&mut self, record: &Record, call: &Call, works_for: Option<u64>) {
        let Some((kind, connection)) = self.working(works_for) else { return self.outside.add(call) };
        let step = Step::beside(call, connection.progress());
        kind.add(&mut connection.unit, record.thread, step, call);
        let units_ended = connection.units_ended;
        let unit = works_for.map(|inode| UnitName { inode, units_ended });
        let work = Work { kind: connection.kind, unit };
        self.work.insert(record.thread, work);
    }

    fn fork(&mut self, parent: &Record, child: &Record) {
        // The number may be that of an earlier thread.
        self.work.remove(&child.thread);
        let Some(inode) = self.works_for(parent.thread) else { return };
        self.hold(child.process, inode);
        if let Some(work) = self.work.get(&parent.thread) {
            self.work.insert(child.thread, *work);
        }
    }

    /// Notes that the process holds the socket.
    fn hold(&mut self, process: u32, inode: u64) {
        if self.held.entry(process).or_default().insert(inode) {
            self.sockets.entry(inode).or_default().holders += 1;
        }
    }

    /// Notes that the process has closed the socket.
    fn let_go(&mut self, process: u32, inode: u64) {
        if self.held.get_mut(&process).is_some_and(|held| held.remove(&inode)) {
            self.release(inode);
        }
    }

    /// Notes that the process has closed all its sockets.
    fn release_all(&mut self, process: u32) {
        for inode in self.held.remove(&process).unwrap_or_default() {
            self.release(inode);
        }
    }

    /// Ends the socket if no other process holds it.
    fn release(&mut self, inode: u64) {
        let Some(socket) = self.sockets.get_mut(&inode) else { return };
        socket.holders = socket.holders.saturating_sub(1);
        if socket.holders == 0 {
            self.end(inode);
            self.sockets.remove(&inode);
        }
    }

    /// Ends the connection of a socket, if there is one.
    fn end(&mut self, inode: u64) {
        if let Some(connection) = self.sockets.get_mut(&inode).and_then(|socket| socket.connection.take()) {
            self.kinds[connection.kind].finish(&connection.unit);
        }
    }
}
