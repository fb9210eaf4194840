//! What a connection of the server has prepared, and for which texts. [`super::statement`] is the side of the
//! session.
//!
//! A statement has a name of the guard on each connection that has it. Sessions that prepare the same text
//! share it there.

use std::collections::HashMap;
use std::sync::Arc;

use super::frame;
use super::statement::Step;
use super::text::{Pin, Set, Text, changes_reading};

/// What a client prepares.
#[derive(Debug)]
pub struct Definition {
    pub(super) id: u64,
    /// Its text and the types of its parameters: all that follows the name in `Parse`.
    pub(super) body: Arc<[u8]>,
    /// Why a session needs its own connection that prepares it; `None` if it does not.
    pub pin: Option<Pin>,
    /// What it may set when it is executed.
    pub(super) set: Set,
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
    pub(super) parsed: u64,
}

/// What a connection of the server has.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The statements, by the number of their definition.
    pub(super) places: HashMap<u64, Place>,
    /// Names of statements that the server may have, and that nothing uses any more.
    pub(super) unneeded: Vec<Name>,
    /// Names that were given so far.
    named: u64,
    /// Uses so far.
    uses: u64,
    /// Parts of what was sent so far. An error skips the rest of its own.
    pub(super) segment: u64,
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
    /// Not before the server has answered more.
    Later,
}

/// A statement that the connection has, with the number of its definition.
#[derive(Debug)]
pub struct Added {
    pub(super) id: u64,
    pub(super) name: Name,
}

/// A statement on a connection.
#[derive(Debug)]
pub(super) struct Place {
    name: Name,
    /// When it was prepared.
    parsed: u64,
    pub(super) state: State,
    used: u64,
}

/// Whether something has happened at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It was sent in this segment.
    Sent(u64),
    /// The server has confirmed it.
    Answered,
}

/// The name of a statement.
pub type Name = Box<[u8]>;

/// Statements that a connection has at most. The server keeps some 20 KiB for each.
const MOST: usize = 256;

/// Memory for definitions below which it is not searched for those that no session has.
const FULL: usize = 1 << 20;

/// Memory for a statement beside its text, roughly.
pub(super) const OVERHEAD: usize = 128;

impl Definitions {
    /// Begins with none. The number distinguishes the names of this guard from those of a client, which may
    /// be another guard.
    #[must_use]
    pub fn new(number: u32) -> Self {
        let prefix = format!("assay_{number:08x}_");
        Self { prefix, known: HashMap::new(), size: 0, full: FULL, added: 0, parsed: 0 }
    }

    /// Returns the definition with this body.
    pub(super) fn of(&mut self, body: &[u8]) -> Arc<Definition> {
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

    pub(super) fn place(&mut self, added: &Added) -> Option<&mut Place> {
        self.places.get_mut(&added.id).filter(|place| place.name == added.name)
    }

    /// A statement is not on the connection.
    pub(super) fn lack(&mut self, added: &Added) {
        if self.place(added).is_some() {
            self.places.remove(&added.id);
        }
    }
}

impl Server<'_> {
    /// Returns the name of a statement; `None` if the connection lacks it.
    fn name_of(&mut self, definition: &Definition, parsed: u64) -> Option<Name> {
        let prepared = &mut *self.prepared;
        if std::mem::replace(&mut prepared.changes, *self.changes) != *self.changes {
            prepared.forget();
        }
        prepared.uses += 1;
        let place = prepared.places.get_mut(&definition.id)?;
        place.used = prepared.uses;
        (place.parsed >= parsed).then(|| place.name.clone())
    }

    /// Prepares a statement.
    pub(super) fn prepare(&mut self, definition: &Definition) -> Added {
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

    /// Returns the name of a statement on this connection, which has it from now on, prepared no earlier than
    /// the number of a `Parse` says.
    pub(super) fn provide(&mut self, definition: &Definition, parsed: u64) -> Name {
        self.name_of(definition, parsed).unwrap_or_else(|| {
            let added = self.prepare(definition);
            let name = added.name.clone();
            self.prepared.again += 1;
            self.prepared.expect(Step::Again(added));
            name
        })
    }
}

impl State {
    /// Whether what is sent in this segment can rely on it.
    pub(super) fn holds_in(self, segment: u64) -> bool {
        self == Self::Answered || self == Self::Sent(segment)
    }
}
