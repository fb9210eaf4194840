//! Prepared statements of sessions that share connections of the server.
//!
//! A client prepares a statement once and uses it in later transactions, each of which may run on another
//! connection. So a statement has a name of the guard on each connection that has it. A message that uses it
//! gets that name, after a `Parse` of the guard if the connection lacks the statement. Sessions that prepare
//! the same text share what a connection has.
//!
//! Every message of a client becomes one that the server answers, in its place: a `Parse` of a statement
//! that the connection has becomes a `Close` of one that does not exist, and the answer to that becomes the
//! answer to a `Parse`. So answers stay in order by themselves, and an error skips what it would skip.

use std::collections::HashMap;
use std::sync::Arc;

use super::frame;
use super::text::{Pin, Set, Text};

/// What a client prepares.
#[derive(Debug)]
pub struct Definition {
    id: u64,
    /// Its text and the types of its parameters: all that follows the name in `Parse`.
    body: Arc<[u8]>,
    /// Why a session needs its own connection that prepares it; `None` if it does not.
    pub pin: Option<Pin>,
    /// What it may set when it is executed.
    set: Set,
}

/// The definitions of all sessions. Equal ones are kept once.
#[derive(Debug)]
pub struct Definitions {
    /// How the names begin that the guard gives.
    prefix: String,
    known: HashMap<Arc<[u8]>, Arc<Definition>>,
    /// Memory of those that are known.
    size: usize,
    /// The size at which those are dropped that no session has.
    full: usize,
    /// Those that were ever added.
    added: u64,
}

/// What a connection of the server has.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The names of statements, by the number of their definition.
    places: HashMap<u64, Place>,
    /// Names of statements that the server may have, and that nothing uses any more.
    unneeded: Vec<Name>,
    /// Names that were given so far.
    named: u64,
    /// Uses so far.
    uses: u64,
    /// Changes of statements before these were prepared.
    changes: u64,
    /// What is sent instead of the last message.
    instead: Vec<u8>,
    /// The answers to that.
    steps: Vec<Step>,
    /// Statements that the guard has prepared for sessions that had prepared them on another connection.
    pub again: u64,
}

/// A connection of the server, and what it has in common with others.
#[derive(Debug)]
pub struct Server<'a> {
    /// What it has.
    pub prepared: &'a mut Prepared,
    /// What all sessions have prepared.
    pub definitions: &'a mut Definitions,
    /// Times that a statement did not return any more what it did when it was prepared, on this connection or
    /// on one that is used by the same sessions.
    pub changes: &'a mut u64,
}

/// How a message, or part of one, is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass<'a> {
    /// As it is.
    AsIs,
    /// Not, but these messages are.
    Instead(&'a [u8]),
}

/// A message that was sent to the server, and that it answers with `ParseComplete` or `CloseComplete`, unless
/// it skips it after an error.
#[derive(Debug)]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// The definition that the connection lacks if the message is skipped.
    lacks: Option<u64>,
    /// The name that the client has given, or has closed, and what it meant before.
    renamed: Option<(Name, Option<Arc<Definition>>)>,
}

/// What a message does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// The client prepares the unnamed statement.
    Unnamed,
    /// The client prepares a statement.
    Parse,
    /// The client prepares a statement that the connection has, and another one is closed instead.
    Known,
    /// The client closes a statement or a portal.
    Close,
    /// The guard prepares a statement.
    Again,
    /// The guard prepares the unnamed statement.
    UnnamedAgain,
    /// The guard closes a statement.
    Unneeded,
}

/// The statements of a session, by the names that its client has given.
#[derive(Debug, Default)]
pub struct Statements {
    /// Those that any connection can have. Others keep their names, on the session's own connection.
    named: HashMap<Name, Arc<Definition>>,
    /// Memory of the named ones.
    size: usize,
    unnamed: Unnamed,
}

/// The unnamed statement of a session.
#[derive(Debug, Default)]
struct Unnamed {
    /// If it can be prepared on another connection.
    definition: Option<Arc<Definition>>,
    /// Whether the connection has it, and not one of another session.
    is_here: bool,
    /// Whether it can only be used on the connection that has it, and was not bound.
    is_stuck: bool,
}

#[derive(Debug)]
struct Place {
    name: Name,
    used: u64,
}

/// The name of a statement.
pub type Name = Box<[u8]>;

/// A statement that no connection has.
const ABSENT: &[u8] = b"assay_none";

/// Statements that a connection has at most. The server keeps some 20 KiB for each.
const MOST: usize = 256;

/// Memory for the named statements of a session, after which it keeps its own connection.
const LARGEST: usize = 1 << 20;

/// Memory for definitions below which it is not searched for those that no session has.
const FULL: usize = 1 << 20;

/// Memory for a statement beside its text, roughly.
const OVERHEAD: usize = 128;

impl Definitions {
    /// Begins with none. The number distinguishes the names of this guard from those of a client, which may
    /// be another guard.
    #[must_use]
    pub fn new(number: u32) -> Self {
        let prefix = format!("assay_{number:08x}_");
        Self { prefix, known: HashMap::new(), size: 0, full: FULL, added: 0 }
    }

    /// Returns the definition with this body.
    fn of(&mut self, body: &[u8]) -> Arc<Definition> {
        if let Some(known) = self.known.get(body) {
            return known.clone();
        }
        if self.size > self.full {
            self.known.retain(|_, known| Arc::strong_count(known) > 1);
            self.size = self.known.keys().map(|body| body.len() + OVERHEAD).sum();
            // So that each one is looked at a few times at most.
            self.full = FULL.max(2 * self.size);
        }
        let mut text = Text::default();
        text.read(body);
        let (pin, set) = text.end();
        let body: Arc<[u8]> = body.into();
        self.added += 1;
        self.size += body.len() + OVERHEAD;
        let definition = Arc::new(Definition { id: self.added, body: body.clone(), pin, set });
        self.known.insert(body, definition.clone());
        definition
    }
}

impl Prepared {
    /// The statements may not be what they are taken for: they are prepared anew when they are used next.
    pub fn forget(&mut self) {
        self.unneeded.extend(self.places.drain().map(|(_, place)| place.name));
    }

    /// Whether a text contains the name of a statement.
    pub fn is_named_in(&self, text: &str) -> bool {
        let names = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        names.into_iter().any(|name| self.places.values().any(|place| *place.name == *name.as_bytes()))
    }

    /// Begins with the next message.
    pub fn begin(&mut self) {
        self.instead.clear();
    }

    /// Returns the answers to what was sent since the beginning.
    pub fn steps(&mut self) -> impl Iterator<Item = Step> {
        self.steps.drain(..)
    }

    /// Returns how the message is passed on.
    pub fn pass(&self) -> Pass<'_> {
        if self.instead.is_empty() { Pass::AsIs } else { Pass::Instead(&self.instead) }
    }

    /// Sends a message instead of the last one, of which `rest` bytes follow.
    pub fn send(&mut self, kind: u8, parts: &[&[u8]], rest: usize) {
        frame::begin(&mut self.instead, kind, parts, rest);
    }

    /// The last message gets an answer.
    pub fn expect(&mut self, kind: StepKind) {
        self.steps.push(Step::new(kind));
    }

    /// Closes the statements that nothing uses.
    fn close_unneeded(&mut self) {
        for name in std::mem::take(&mut self.unneeded) {
            self.send(b'C', &[b"S", &name, b"\0"], 0);
            self.expect(StepKind::Unneeded);
        }
    }
}

impl Server<'_> {
    /// Returns the name of a statement; `None` if the connection lacks it.
    fn name_of(&mut self, definition: &Definition) -> Option<Name> {
        if std::mem::replace(&mut self.prepared.changes, *self.changes) != *self.changes {
            self.prepared.forget();
        }
        self.prepared.uses += 1;
        let place = self.prepared.places.get_mut(&definition.id)?;
        place.used = self.prepared.uses;
        Some(place.name.clone())
    }

    /// Prepares a statement that the connection lacks.
    fn prepare(&mut self, definition: &Definition, kind: StepKind) -> Name {
        let prepared = &mut *self.prepared;
        if prepared.places.len() >= MOST {
            let oldest = prepared.places.iter().min_by_key(|(_, place)| place.used).map(|(id, _)| *id);
            let oldest = oldest.and_then(|id| prepared.places.remove(&id));
            prepared.unneeded.extend(oldest.map(|place| place.name));
        }
        prepared.close_unneeded();
        prepared.named += 1;
        let name: Name = format!("{}{}", self.definitions.prefix, prepared.named).into_bytes().into();
        prepared.send(b'P', &[&name, b"\0", &definition.body], 0);
        prepared.steps.push(Step { lacks: Some(definition.id), ..Step::new(kind) });
        prepared.places.insert(definition.id, Place { name: name.clone(), used: prepared.uses });
        name
    }

    /// Returns the name of a statement on this connection, which has it from now on.
    fn provide(&mut self, definition: &Definition) -> Name {
        self.name_of(definition).unwrap_or_else(|| {
            self.prepared.again += 1;
            self.prepare(definition, StepKind::Again)
        })
    }
}

impl Step {
    fn new(kind: StepKind) -> Self {
        Self { kind, lacks: None, renamed: None }
    }
}

impl Definition {
    /// Memory for it under a name.
    fn size(&self, name: &[u8]) -> usize {
        name.len() + self.body.len() + OVERHEAD
    }
}

impl Statements {
    /// The client prepares the unnamed statement, of which `rest` bytes follow. Returns its definition if it
    /// can be prepared on other connections.
    pub fn parse_unnamed(&mut self, body: &[u8], rest: usize, server: &mut Server) -> Option<&Definition> {
        let definition = (rest == 0).then(|| server.definitions.of(body));
        self.unnamed = Unnamed { is_here: true, is_stuck: definition.is_none(), definition };
        self.unnamed.definition.as_deref()
    }

    /// The client prepares a named statement, of which `rest` bytes follow. Returns its definition likewise.
    pub fn parse(
        &mut self,
        name: &[u8],
        body: &[u8],
        rest: usize,
        to: &mut Server,
    ) -> Option<Arc<Definition>> {
        let has_room = self.size + name.len() + body.len() <= LARGEST;
        let definition = (rest == 0 && has_room).then(|| to.definitions.of(body));
        if let Some(present) = self.named.get(name) {
            // The server refuses to prepare one under a name that it has.
            let present = to.provide(present);
            to.prepared.send(b'P', &[&present, b"\0", body], rest);
            to.prepared.expect(StepKind::Parse);
        } else if let Some(definition) = &definition {
            if to.name_of(definition).is_some() {
                to.prepared.send(b'C', &[b"S", ABSENT, b"\0"], 0);
                to.prepared.expect(StepKind::Known);
            } else {
                to.prepare(definition, StepKind::Parse);
            }
            self.rename(name, Some(definition.clone()), to.prepared);
        } else {
            to.prepared.expect(StepKind::Parse);
        }
        definition
    }

    /// The client uses a statement. The connection has it from now on, under the name that is returned; `None`
    /// if that is the client's own. Also returns what it sets when it is executed.
    pub fn provide(&mut self, name: &[u8], server: &mut Server) -> (Option<Name>, Set) {
        if name.is_empty() {
            return self.provide_unnamed(server);
        }
        match self.named.get(name) {
            Some(definition) => (Some(server.provide(definition)), definition.set),
            None => (None, Set::Brief),
        }
    }

    fn provide_unnamed(&mut self, Server { prepared, .. }: &mut Server) -> (Option<Name>, Set) {
        let Unnamed { definition, is_here, .. } = &mut self.unnamed;
        let set = definition.as_ref().map_or(Set::Brief, |definition| definition.set);
        if std::mem::replace(is_here, true) {
            return (None, set);
        }
        let Some(definition) = definition else {
            *is_here = false;
            return (Some(ABSENT.into()), set);
        };
        prepared.again += 1;
        prepared.send(b'P', &[b"\0", &definition.body], 0);
        prepared.expect(StepKind::UnnamedAgain);
        (Some(Name::default()), set)
    }

    /// The client closes a statement. Returns the name of the one to close instead; `None` if that is the
    /// client's own.
    pub fn close(&mut self, name: &[u8], prepared: &mut Prepared) -> Option<Name> {
        prepared.expect(StepKind::Close);
        if name.is_empty() {
            self.lose_unnamed();
            return None;
        }
        // Other sessions may use it.
        self.rename(name, None, prepared).map(|_| ABSENT.into())
    }

    /// The client gives a name to another statement, or to none, with the last message. Returns the one that
    /// had it.
    fn rename(
        &mut self,
        name: &[u8],
        to: Option<Arc<Definition>>,
        prepared: &mut Prepared,
    ) -> Option<Arc<Definition>> {
        let before = self.set(name, to);
        if let Some(step) = prepared.steps.last_mut() {
            step.renamed = Some((name.into(), before.clone()));
        }
        before
    }

    fn set(&mut self, name: &[u8], to: Option<Arc<Definition>>) -> Option<Arc<Definition>> {
        self.size += to.as_ref().map_or(0, |definition| definition.size(name));
        let before = match to {
            Some(definition) => self.named.insert(name.into(), definition),
            None => self.named.remove(name),
        };
        self.size -= before.as_ref().map_or(0, |definition| definition.size(name));
        before
    }

    /// The server has skipped a message. The last one of several is undone first.
    pub fn undo(&mut self, step: Step, prepared: &mut Prepared) {
        if let Some(place) = step.lacks.and_then(|id| prepared.places.remove(&id)) {
            prepared.unneeded.push(place.name);
        }
        if let Some((name, before)) = step.renamed {
            self.set(&name, before);
        }
        if step.kind == StepKind::UnnamedAgain {
            self.unnamed.is_here = false;
        }
    }

    /// Removes a statement that the client drops. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.set(name, None).is_some()
    }

    /// The server has dropped all statements, but for those that are yet to be prepared by these messages.
    pub fn clear<'a>(&mut self, pending: impl Iterator<Item = &'a Step>) {
        let renamed = pending.filter_map(|step| step.renamed.as_ref());
        let kept: Vec<_> = renamed.filter_map(|(name, _)| self.named.remove_entry(name)).collect();
        self.named.clear();
        self.size = kept.iter().map(|(name, definition)| definition.size(name)).sum();
        self.named.extend(kept);
    }

    /// There is no unnamed statement any more.
    pub fn lose_unnamed(&mut self) {
        self.unnamed = Unnamed::default();
    }

    /// The client has bound the unnamed statement.
    pub fn bind_unnamed(&mut self) {
        self.unnamed.is_stuck = false;
    }

    /// Whether the unnamed statement can only be used on the connection that has it, and was not.
    pub fn is_stuck(&self) -> bool {
        self.unnamed.is_stuck
    }

    /// The next transaction may run on another connection.
    pub fn leave(&mut self) {
        self.unnamed.is_here = false;
    }
}
