//! Prepared statements of sessions that share connections of the server.
//!
//! A client prepares a statement once and uses it in later transactions, each of which may run on another
//! connection. So a statement has a name of the guard on each connection that has it. A message that uses it
//! gets that name, after a `Parse` of the guard if the connection lacks the statement, or has one that was
//! prepared before the client prepared it: its text may have meant something else then.
//!
//! An error skips the messages up to `Sync`. Messages after that wait until it is known whether the statement
//! that they use was prepared.

use std::collections::HashMap;
use std::sync::Arc;

use super::prepared::{Added, Definition, Name, OVERHEAD, Prepared, Server, State};
use super::text::{Set, dropped_first};

/// A message that was sent to the server, and that it answers with `ParseComplete` or `CloseComplete`, unless
/// it skips it after an error.
#[derive(Debug)]
pub enum Step {
    /// The client prepares the unnamed statement, of this number. It may drop a named one.
    Unnamed(u64, Option<Box<(Added, Renamed)>>),
    /// The guard prepares it.
    UnnamedAgain(u64),
    /// The client prepares a statement; `None` if the guard does not keep it.
    Parse(Option<Box<(Added, Renamed)>>),
    /// The client prepares this statement, if the guard can keep it, under a name that is taken.
    Taken(Box<(Name, Option<Statement>)>),
    /// The guard prepares a statement.
    Again(Added),
    /// The client closes a statement or a portal.
    Close(Option<Box<Renamed>>),
    /// The guard closes a statement.
    Unneeded(Name),
}

/// A name that means something else for the client, or nothing any more.
#[derive(Debug)]
pub struct Renamed {
    name: Name,
    before: Option<Statement>,
    /// The number of the message, if it means nothing any more.
    closed: Option<u64>,
}

/// The statements of a session, by the names that its client has given.
#[derive(Debug, Default)]
pub struct Statements {
    /// Those that any connection can have. Others keep their names, on the session's own connection.
    named: HashMap<Name, Statement>,
    /// Memory of the named ones.
    size: usize,
    /// Names that messages take from their statements, with the last of these messages. It is not answered.
    closing: HashMap<Name, (u64, State)>,
    /// Messages that have taken a name from its statement, so far.
    closed: u64,
    unnamed: Unnamed,
}

/// A statement of a client.
#[derive(Debug, Clone)]
pub struct Statement {
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

/// A statement that no connection has.
const ABSENT: &[u8] = b"assay_none";

/// Memory for the named statements of a session, after which it keeps its own connection.
const LARGEST: usize = 1 << 20;

impl Step {
    /// The name that it gives or takes.
    fn renamed(&self) -> Option<&Renamed> {
        match self {
            Self::Parse(Some(parsed)) | Self::Unnamed(_, Some(parsed)) => Some(&parsed.1),
            Self::Close(Some(renamed)) => Some(renamed),
            _ => None,
        }
    }

    fn renamed_mut(&mut self) -> Option<&mut Renamed> {
        match self {
            Self::Parse(Some(parsed)) | Self::Unnamed(_, Some(parsed)) => Some(&mut parsed.1),
            Self::Close(Some(renamed)) => Some(renamed),
            _ => None,
        }
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
        let drops = self.drop_in_sql(body, rest, server);
        let definition = (rest == 0).then(|| server.definitions.of(body));
        let number = self.unnamed.number + 1;
        let state = Some(State::Sent(server.prepared.segment));
        self.unnamed = Unnamed { state, number, is_stuck: definition.is_none(), definition };
        server.prepared.expect(Step::Unnamed(number, drops.map(Box::new)));
        self.unnamed.definition.as_deref()
    }

    /// The client drops a statement in SQL, which has another name on the connection.
    fn drop_in_sql(&mut self, body: &[u8], rest: usize, server: &mut Server) -> Option<(Added, Renamed)> {
        let dropped = dropped_first(body).filter(|_| rest == 0)?;
        let types = &body[body.iter().position(|byte| *byte == 0)? + 1..];
        let statement = self.named.get(&*dropped)?;
        let (id, name) = (statement.definition.id, server.provide(&statement.definition, statement.parsed));
        server.prepared.places.remove(&id);
        server.prepared.send(b'P', &[b"\0DEALLOCATE ", &name, b"\0", types], 0);
        Some((Added { id, name }, self.take_name(&dropped, server.prepared)))
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
            let present = to.provide(&present.definition, present.parsed);
            to.prepared.send(b'P', &[&present, b"\0", body], rest);
            let parsed = to.definitions.parsed;
            let other =
                definition.clone().map(|definition| Statement { definition, parsed, state: State::Answered });
            to.prepared.expect(Step::Taken(Box::new((name.into(), other))));
            return definition;
        }
        let Some(definition) = definition else {
            to.prepared.expect(Step::Parse(None));
            return None;
        };
        let added = to.prepare(&definition);
        let (parsed, state) = (to.definitions.parsed, State::Sent(to.prepared.segment));
        let before = self.set(name, Some(Statement { definition: definition.clone(), parsed, state }));
        let renamed = Renamed { name: name.into(), before, closed: None };
        to.prepared.expect(Step::Parse(Some(Box::new((added, renamed)))));
        Some(definition)
    }

    /// Whether an answer is still to come, to messages before the last `Sync`, that decides what a name means
    /// or whether the connection has its statement.
    pub fn is_uncertain(&self, name: &[u8], prepared: &Prepared) -> bool {
        let is_open = |state: State| !state.holds_in(prepared.segment);
        if name.is_empty() {
            return self.unnamed.state.is_some_and(is_open);
        }
        match self.named.get(name) {
            Some(statement) => {
                let place = prepared.places.get(&statement.definition.id);
                is_open(statement.state) || place.is_some_and(|place| is_open(place.state))
            }
            None => self.closing.get(name).is_some_and(|(_, state)| is_open(*state)),
        }
    }

    /// The client uses a statement. The connection has it from now on, under the name that is returned;
    /// `None` if that is the client's own. Also returns what it sets when it is executed.
    pub fn provide(&mut self, name: &[u8], server: &mut Server) -> (Option<Name>, Set) {
        if name.is_empty() {
            return self.provide_unnamed(server.prepared);
        }
        match self.named.get(name) {
            Some(statement) => {
                (Some(server.provide(&statement.definition, statement.parsed)), statement.definition.set)
            }
            None => (None, Set::Brief),
        }
    }

    fn provide_unnamed(&mut self, prepared: &mut Prepared) -> (Option<Name>, Set) {
        let Unnamed { definition, number, state, .. } = &mut self.unnamed;
        let set = definition.as_ref().map_or(Set::Brief, |definition| definition.set);
        if state.is_some() {
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
            let renamed = self.take_name(name, prepared);
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

    /// A name means nothing any more.
    fn take_name(&mut self, name: &[u8], prepared: &Prepared) -> Renamed {
        self.closed += 1;
        self.closing.insert(name.into(), (self.closed, State::Sent(prepared.segment)));
        Renamed { name: name.into(), before: self.set(name, None), closed: Some(self.closed) }
    }

    /// A message that takes a name is answered, or was skipped.
    fn end_closing(&mut self, renamed: &Renamed) {
        let last = self.closing.get(&renamed.name).map(|(number, _)| *number);
        if last.is_some() && last == renamed.closed {
            self.closing.remove(&renamed.name);
        }
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
        let added = match step {
            Step::Taken(taken) => {
                // The connection has lost the one with this name, and maybe others.
                prepared.forget();
                self.set(&taken.0, taken.1.clone());
                None
            }
            Step::Unnamed(number, _) | Step::UnnamedAgain(number) if *number == self.unnamed.number => {
                self.unnamed.state = Some(State::Answered);
                None
            }
            Step::Parse(Some(parsed)) => Some(&parsed.0),
            Step::Again(added) => Some(added),
            _ => None,
        };
        if let Some(place) = added.and_then(|added| prepared.place(added)) {
            place.state = State::Answered;
        }
        if let Step::Unnamed(_, Some(drops)) = step {
            // It may not be executed, and nothing uses the statement any more.
            prepared.unneeded.push(drops.0.name.clone());
        }
        let Some(renamed) = step.renamed() else { return };
        self.end_closing(renamed);
        if let Some(statement) = self.named.get_mut(&renamed.name)
            && renamed.closed.is_none()
        {
            statement.state = State::Answered;
        }
    }

    /// The server has skipped a message. The last one of several is undone first.
    pub fn undo(&mut self, step: Step, prepared: &mut Prepared) {
        if let Some(renamed) = step.renamed() {
            self.end_closing(renamed);
            // Unless its own message was skipped, too, and is undone next.
            let state = State::Answered;
            self.set(&renamed.name, renamed.before.clone().map(|before| Statement { state, ..before }));
        }
        match step {
            Step::Unnamed(number, drops) => {
                if number == self.unnamed.number {
                    self.lose_unnamed();
                }
                prepared.unneeded.extend(drops.map(|drops| drops.0.name));
            }
            Step::UnnamedAgain(number) if number == self.unnamed.number => self.unnamed.state = None,
            Step::Unneeded(name) => prepared.unneeded.push(name),
            Step::Parse(Some(parsed)) => prepared.lack(&parsed.0),
            Step::Again(added) => prepared.lack(&added),
            Step::UnnamedAgain(_) | Step::Parse(None) | Step::Taken(_) | Step::Close(_) => {}
        }
    }

    /// Removes a statement that the client drops. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.set(name, None).is_some()
    }

    /// The server has dropped all statements, but for those that are yet to be prepared.
    pub fn clear<'a>(&mut self, pending: impl Iterator<Item = &'a mut Step>) {
        let (mut kept, mut size) = (HashMap::new(), 0);
        for renamed in pending.filter_map(Step::renamed_mut) {
            renamed.before = None;
            if let Some((name, statement)) = self.named.remove_entry(&renamed.name) {
                size += statement.size(&name);
                kept.insert(name, statement);
            }
        }
        (self.named, self.size) = (kept, size);
    }

    /// Whether the client has given a name to a statement.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.named.contains_key(name)
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
