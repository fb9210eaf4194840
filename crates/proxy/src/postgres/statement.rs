//! Prepared statements of sessions that share connections of the server.
//!
//! A client prepares a statement once and uses it in later transactions, each of which may run on another
//! connection. So a statement has a name of the guard on each connection that has it. A message that uses it
//! gets that name, after a `Parse` of the guard if the connection lacks the statement, or has one that was
//! prepared before the client prepared it: its text may have meant something else then.
//!
//! What was sent is relied on within its messages up to `Sync`, of which an error skips the rest, and after
//! that when it was answered.

use std::collections::HashMap;
use std::sync::Arc;

use super::frame;
use super::text::{Pin, Set, Text, changes_reading, dropped};

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
    /// Statements that were ever prepared.
    parsed: u64,
}

/// What a connection of the server has.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The statements, by the number of their definition.
    places: HashMap<u64, Place>,
    /// Names of statements that the server may have, and that nothing uses any more.
    unneeded: Vec<Name>,
    /// Names that were given so far.
    named: u64,
    /// Uses so far.
    uses: u64,
    /// Parts of what was sent so far. An error skips the rest of its own.
    segment: u64,
    /// Changes of statements before these were prepared.
    changes: u64,
    /// What is sent instead of the last message.
    instead: Vec<u8>,
    /// The answers to that.
    steps: Vec<Step>,
    /// Statements that the guard has prepared for sessions that had prepared them before.
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
pub enum Step {
    /// The client prepares the unnamed statement, of this number.
    Unnamed(u64),
    /// The guard prepares it.
    UnnamedAgain(u64),
    /// The client prepares a statement; `None` if the guard does not keep it.
    Parse(Option<Box<(Added, Renamed)>>),
    /// The guard prepares a statement.
    Again(Added),
    /// The client closes a statement or a portal.
    Close(Option<Box<Renamed>>),
    /// The guard closes a statement.
    Unneeded(Name),
}

/// A statement that the connection has, with the number of its definition.
#[derive(Debug)]
pub struct Added {
    id: u64,
    name: Name,
}

/// A name that means something else for the client, or nothing any more.
#[derive(Debug)]
pub struct Renamed {
    name: Name,
    /// When the statement was prepared that it means now, if there is one.
    parsed: Option<u64>,
    before: Option<Statement>,
}

/// The statements of a session, by the names that its client has given.
#[derive(Debug, Default)]
pub struct Statements {
    /// Those that any connection can have. Others keep their names, on the session's own connection.
    named: HashMap<Name, Statement>,
    /// Memory of the named ones.
    size: usize,
    unnamed: Unnamed,
}

/// A statement of a client.
#[derive(Debug, Clone)]
struct Statement {
    definition: Arc<Definition>,
    /// When the client prepared it, as a number of `Parse`.
    parsed: u64,
    state: State,
}

/// The unnamed statement of a session.
#[derive(Debug, Default)]
struct Unnamed {
    /// If it can be prepared on another connection.
    definition: Option<Arc<Definition>>,
    /// How often there was another one.
    number: u64,
    /// If the connection has it, and not one of another session.
    state: Option<State>,
    /// Whether it can only be used on the connection that has it, and was not bound.
    is_stuck: bool,
}

/// A statement on a connection.
#[derive(Debug)]
struct Place {
    name: Name,
    /// When it was prepared.
    parsed: u64,
    state: State,
    used: u64,
}

/// Whether something has happened at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was sent in this segment.
    Sent(u64),
    /// The server has confirmed it.
    Answered,
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
        Self { prefix, known: HashMap::new(), size: 0, full: FULL, added: 0, parsed: 0 }
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

    /// The server reports a setting: its name and its value.
    pub fn read_setting(&mut self, body: &[u8]) {
        let name = body.split(|byte| *byte == 0).next().unwrap_or_default();
        if changes_reading(&name.to_ascii_lowercase()) {
            self.forget();
        }
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

    /// What follows is executed even if something before has failed.
    pub fn end_segment(&mut self) {
        self.segment += 1;
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
    pub fn expect(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Closes the statements that nothing uses.
    fn close_unneeded(&mut self) {
        for name in std::mem::take(&mut self.unneeded) {
            self.send(b'C', &[b"S", &name, b"\0"], 0);
            self.expect(Step::Unneeded(name));
        }
    }

    fn place(&mut self, added: &Added) -> Option<&mut Place> {
        self.places.get_mut(&added.id).filter(|place| place.name == added.name)
    }
}

impl Server<'_> {
    /// Returns the name of a statement; `None` if the connection lacks it.
    fn name_of(&mut self, statement: &Statement) -> Option<Name> {
        let prepared = &mut *self.prepared;
        if std::mem::replace(&mut prepared.changes, *self.changes) != *self.changes {
            prepared.forget();
        }
        prepared.uses += 1;
        let place = prepared.places.get_mut(&statement.definition.id)?;
        place.used = prepared.uses;
        let is_there = place.state.holds_in(prepared.segment) && place.parsed >= statement.parsed;
        is_there.then(|| place.name.clone())
    }

    /// Prepares a statement.
    fn prepare(&mut self, definition: &Definition) -> Added {
        let prepared = &mut *self.prepared;
        let id = definition.id;
        let mut last = prepared.places.remove(&id);
        if prepared.places.len() >= MOST {
            let oldest = prepared.places.iter().min_by_key(|(_, place)| place.used).map(|(id, _)| *id);
            last = oldest.and_then(|id| prepared.places.remove(&id));
        }
        prepared.unneeded.extend(last.map(|place| place.name));
        prepared.close_unneeded();
        prepared.named += 1;
        self.definitions.parsed += 1;
        let name: Name = format!("{}{}", self.definitions.prefix, prepared.named).into_bytes().into();
        prepared.send(b'P', &[&name, b"\0", &definition.body], 0);
        let state = State::Sent(prepared.segment);
        let place = Place { name: name.clone(), parsed: self.definitions.parsed, state, used: prepared.uses };
        prepared.places.insert(id, place);
        Added { id, name }
    }

    /// Returns the name of a statement on this connection, which has it from now on.
    fn provide(&mut self, statement: &Statement) -> Name {
        self.name_of(statement).unwrap_or_else(|| {
            let added = self.prepare(&statement.definition);
            let name = added.name.clone();
            self.prepared.again += 1;
            self.prepared.expect(Step::Again(added));
            name
        })
    }
}

impl State {
    /// Whether what is sent in this segment can rely on it.
    fn holds_in(self, segment: u64) -> bool {
        self == Self::Answered || self == Self::Sent(segment)
    }
}

impl Statement {
    /// Memory for it under a name.
    fn size(&self, name: &[u8]) -> usize {
        name.len() + self.definition.body.len() + OVERHEAD
    }
}

impl Statements {
    /// The client prepares the unnamed statement, of which `rest` bytes follow. Returns its definition if it
    /// can be prepared on other connections.
    pub fn parse_unnamed(&mut self, body: &[u8], rest: usize, server: &mut Server) -> Option<&Definition> {
        self.drop_in_sql(body, rest, server);
        let definition = (rest == 0).then(|| server.definitions.of(body));
        let number = self.unnamed.number + 1;
        let state = Some(State::Sent(server.prepared.segment));
        self.unnamed = Unnamed { state, number, is_stuck: definition.is_none(), definition };
        server.prepared.expect(Step::Unnamed(number));
        self.unnamed.definition.as_deref()
    }

    /// The client drops a statement in SQL, which has another name on the connection.
    fn drop_in_sql(&mut self, body: &[u8], rest: usize, server: &mut Server) {
        let end = body.iter().position(|byte| *byte == 0).map_or(0, |end| end + 1);
        let (text, types) = body.split_at(end);
        let Some(statement) = dropped(text).filter(|_| rest == 0).and_then(|name| self.set(&name, None))
        else {
            return;
        };
        let name = server.provide(&statement);
        server.prepared.places.remove(&statement.definition.id);
        server.prepared.send(b'P', &[b"\0DEALLOCATE ", &name, b"\0", types], 0);
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
        if rest > 0 || !has_room {
            to.prepared.expect(Step::Parse(None));
            return None;
        }
        let definition = to.definitions.of(body);
        if let Some(present) = self.named.get(name)
            && present.state.holds_in(to.prepared.segment)
        {
            // The server refuses to prepare one under a name that it has.
            let present = to.provide(present);
            to.prepared.send(b'P', &[&present, b"\0", body], 0);
            to.prepared.expect(Step::Parse(None));
            return Some(definition);
        }
        let added = to.prepare(&definition);
        let (parsed, state) = (to.definitions.parsed, State::Sent(to.prepared.segment));
        let renamed = self.rename(name, Some(Statement { definition: definition.clone(), parsed, state }));
        to.prepared.expect(Step::Parse(Some(Box::new((added, renamed)))));
        Some(definition)
    }

    /// The client uses a statement. The connection has it from now on, under the name that is returned;
    /// `None` if that is the client's own. Also returns what it sets when it is executed.
    pub fn provide(&mut self, name: &[u8], server: &mut Server) -> (Option<Name>, Set) {
        if name.is_empty() {
            return self.provide_unnamed(server.prepared);
        }
        match self.named.get(name) {
            Some(statement) => (Some(server.provide(statement)), statement.definition.set),
            None => (None, Set::Brief),
        }
    }

    fn provide_unnamed(&mut self, prepared: &mut Prepared) -> (Option<Name>, Set) {
        let Unnamed { definition, number, state, .. } = &mut self.unnamed;
        let set = definition.as_ref().map_or(Set::Brief, |definition| definition.set);
        if state.is_some_and(|state| state.holds_in(prepared.segment)) {
            return (None, set);
        }
        let Some(definition) = definition else { return (Some(ABSENT.into()), set) };
        *number += 1;
        *state = Some(State::Sent(prepared.segment));
        prepared.again += 1;
        prepared.send(b'P', &[b"\0", &definition.body], 0);
        prepared.expect(Step::UnnamedAgain(*number));
        (Some(Name::default()), set)
    }

    /// The client closes a statement. Returns the name of the one to close instead; `None` if that is the
    /// client's own.
    pub fn close(&mut self, name: &[u8], prepared: &mut Prepared) -> Option<Name> {
        if self.named.contains_key(name) {
            let renamed = self.rename(name, None);
            prepared.expect(Step::Close(Some(Box::new(renamed))));
            // Other sessions may use it.
            return Some(ABSENT.into());
        }
        if name.is_empty() {
            self.lose_unnamed();
        }
        prepared.expect(Step::Close(None));
        None
    }

    /// The client gives a name to another statement, or to none.
    fn rename(&mut self, name: &[u8], to: Option<Statement>) -> Renamed {
        let parsed = to.as_ref().map(|statement| statement.parsed);
        Renamed { name: name.into(), parsed, before: self.set(name, to) }
    }

    fn set(&mut self, name: &[u8], to: Option<Statement>) -> Option<Statement> {
        self.size += to.as_ref().map_or(0, |statement| statement.size(name));
        let before = match to {
            Some(statement) => self.named.insert(name.into(), statement),
            None => self.named.remove(name),
        };
        self.size -= before.as_ref().map_or(0, |statement| statement.size(name));
        before
    }

    /// The server has answered a message.
    pub fn confirm(&mut self, step: &Step, prepared: &mut Prepared) {
        let (added, renamed) = match step {
            Step::Unnamed(number) | Step::UnnamedAgain(number) => {
                if *number == self.unnamed.number {
                    self.unnamed.state = Some(State::Answered);
                }
                return;
            }
            Step::Parse(Some(parsed)) => (&parsed.0, Some(&parsed.1)),
            Step::Again(added) => (added, None),
            Step::Parse(None) | Step::Close(_) | Step::Unneeded(_) => return,
        };
        if let Some(place) = prepared.place(added) {
            place.state = State::Answered;
        }
        let statement = renamed.and_then(|renamed| self.named.get_mut(&renamed.name));
        if let Some(statement) =
            statement.filter(|known| renamed.is_some_and(|by| by.parsed == Some(known.parsed)))
        {
            statement.state = State::Answered;
        }
    }

    /// The server has skipped a message. The last one of several is undone first.
    pub fn undo(&mut self, step: Step, prepared: &mut Prepared) {
        let (added, renamed) = match step {
            Step::Unnamed(number) if number == self.unnamed.number => return self.lose_unnamed(),
            Step::UnnamedAgain(number) if number == self.unnamed.number => {
                self.unnamed.state = None;
                return;
            }
            Step::Unneeded(name) => return prepared.unneeded.push(name),
            Step::Parse(Some(parsed)) => (Some(parsed.0), Some(parsed.1)),
            Step::Again(added) => (Some(added), None),
            Step::Close(renamed) => (None, renamed.map(|renamed| *renamed)),
            Step::Unnamed(_) | Step::UnnamedAgain(_) | Step::Parse(None) => return,
        };
        if let Some(added) = added.filter(|added| prepared.place(added).is_some()) {
            prepared.places.remove(&added.id);
        }
        // Another message may have changed it since.
        if let Some(Renamed { name, parsed, before }) = renamed
            && self.named.get(&name).map(|statement| statement.parsed) == parsed
        {
            // Unless its own message was skipped, too, and is undone next.
            let state = State::Answered;
            self.set(&name, before.map(|before| Statement { state, ..before }));
        }
    }

    /// Removes a statement that the client drops. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.set(name, None).is_some()
    }

    /// The server has dropped all statements, but for those that are yet to be prepared.
    pub fn clear<'a>(&mut self, pending: impl Iterator<Item = &'a Step>) {
        let names = pending.filter_map(|step| match step {
            Step::Parse(Some(parsed)) => Some(&parsed.1.name),
            _ => None,
        });
        let kept: Vec<_> = names.filter_map(|name| self.named.remove_entry(name)).collect();
        self.named.clear();
        self.size = kept.iter().map(|(name, statement)| statement.size(name)).sum();
        self.named.extend(kept);
    }

    /// There is no unnamed statement any more.
    pub fn lose_unnamed(&mut self) {
        self.unnamed = Unnamed { number: self.unnamed.number + 1, ..Unnamed::default() };
    }

    /// The client has bound the unnamed statement.
    pub fn bind_unnamed(&mut self) {
        self.unnamed.is_stuck = false;
    }

    /// Whether the unnamed statement can only be used on the connection that has it, and was not bound.
    pub fn is_stuck(&self) -> bool {
        self.unnamed.is_stuck
    }

    /// The next transaction may run on another connection.
    pub fn leave(&mut self) {
        self.unnamed.state = None;
    }
}
