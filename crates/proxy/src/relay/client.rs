//! The side of the clients.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use slotmap::new_key_type;

use super::backend::{Backend, BackendKey, Role};
use super::connection::{Connection, Read, joined, left};
use super::listener::Accepted;
use super::login::Turn;
use super::passage::Passage;
use super::pool::PoolKey;
use super::{EDGES, Relay, Side, random};
use crate::gate::{Permit, Ticket};
use crate::postgres::authentication::Examination;
use crate::postgres::frame::{self, Frames, LONGEST_HEAD};
use crate::postgres::prepared::{Pass, Server};
use crate::postgres::refusal::Refusal;
use crate::postgres::session::{End, Session};
use crate::postgres::startup::{CancelKey, Startup};

new_key_type! {
    /// The name of a client.
    pub struct ClientKey;
}

/// A client.
#[derive(Debug)]
pub struct Client {
    pub connection: Connection,
    pub frames: Frames,
    /// What it sent and was not passed on yet.
    pub input: Vec<u8>,
    pub phase: Phase,
    pub session: Session,
    /// Whether its session ends when it is in no transaction.
    pub is_leaving: bool,
    /// Its connection of the server: during a transaction, or for good.
    pub backend: Option<BackendKey>,
    pub pool: Option<PoolKey>,
    pub permit: Option<Permit>,
    /// Whether its transaction has waited for it since a tick.
    pub keeps_waiting: bool,
    /// That of its session, where sessions need one.
    pub place: Option<Permit>,
    /// Why its transaction is refused, until that is sent.
    pub refusal: Vec<u8>,
    /// The key that it was given to cancel.
    pub cancel_key: CancelKey,
    /// Times that it has asked for encryption.
    pub encryption_requests: u32,
    /// Whether it waits for its turn to go on with its handshake.
    pub waits_for_handshake: bool,
    /// When it has to be logged in, unless its session waits for admission.
    pub login_due: Duration,
    /// Whose turn it is in its login.
    pub turn: Turn,
    /// When the settings were as it knows them.
    pub greeted: Duration,
    /// How its session shall begin, while it waits for admission or logs in at the guard.
    pub startup: Option<Startup>,
    /// What it has to prove.
    pub examination: Option<Box<Examination>>,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It sends its first packet.
    Starting,
    /// Its session waits for admission.
    Waiting(Ticket),
    /// Its session was admitted.
    Entering,
    /// It proves to the guard that it has the password of its role.
    Proving,
    /// It waits until fewer others log in, until its role is looked up, or until the guard has logged in
    /// itself.
    LoginQueued,
    /// It logs in at the server.
    Login,
    /// It is in no transaction.
    Idle,
    /// Its transaction waits for admission.
    Queued(Ticket),
    /// Its transaction was admitted.
    Admitted,
    /// Its transaction waits for a connection of the server that the guard opens.
    Opening,
    /// Its transaction lacks a connection of the server.
    Parked(Ticket),
    /// It is in a transaction.
    Active,
    /// Its transaction was refused: what it sends is dropped up to the end of a message of this kind, which
    /// may have begun.
    Refused { last: u8, has_begun: bool },
    /// It has asked to cancel, and waits until that is done.
    Cancelling,
    /// It gets no further answer.
    Ending,
}

/// Why no more of a client's input is passed on.
enum Stop {
    /// Its transaction has ended.
    Ended(End),
    /// It has left.
    Left,
    /// It does not keep to the protocol.
    Violation(String),
}

/// Time for a client to read its last message.
const ENDING_TIME: Duration = Duration::from_secs(5);

impl Client {
    /// Whether its transaction, on this connection of the server, waits for it: for the next message, or
    /// until it reads. One that copies does not while the server has not taken all that the client has sent.
    pub fn is_waited_for(&self, server: &Connection) -> bool {
        self.connection.is_full() || self.session.waits_for_client() && server.is_flushed()
    }

    /// The role as which it asks for a session, before it has a pool.
    pub fn role(&self) -> &[u8] {
        self.startup.as_ref().map_or(&[], Startup::role)
    }
}

impl Relay {
    /// Accepts all clients that have come.
    pub(super) fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Accepted::Client(socket) => self.add_client(socket),
                Accepted::None => return,
                Accepted::NoRoom { for_the_first_time } => {
                    self.counts.not_accepted += u64::from(for_the_first_time);
                    return;
                }
            }
        }
    }

    fn add_client(&mut self, socket: OwnedFd) {
        let mut cancel_key: [u8; 8] = random();
        // Numbers of processes are positive.
        cancel_key[0] &= 0x7f;
        let key = self.clients.insert(Client {
            connection: Connection::new(socket),
            frames: Frames::new(frame::Side::Client),
            input: Vec::new(),
            phase: Phase::Starting,
            session: Session::default(),
            is_leaving: false,
            backend: None,
            pool: None,
            permit: None,
            keeps_waiting: false,
            place: None,
            refusal: Vec::new(),
            cancel_key: CancelKey(cancel_key),
            encryption_requests: 0,
            waits_for_handshake: false,
            login_due: Duration::ZERO,
            turn: Turn::Client,
            greeted: Duration::ZERO,
            startup: None,
            examination: None,
        });
        let socket = self.clients[key].connection.socket();
        if epoll::add(&self.epoll, socket, Side::Client(key).token(), EDGES).is_err() {
            self.clients.remove(key);
            self.counts.not_accepted += 1;
            return;
        }
        self.expect_login(key);
    }

    /// Reads what a client has sent, unless it has to wait.
    pub(super) fn read_client(&mut self, key: ClientKey, buffer: &mut [u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        match client.phase {
            Phase::Waiting(_)
            | Phase::Entering
            | Phase::LoginQueued
            | Phase::Queued(_)
            | Phase::Admitted
            | Phase::Opening
            | Phase::Parked(_) => {
                // It would not see the result.
                if client.connection.is_hung_up() {
                    self.remove_client(key);
                }
                return;
            }
            // What it has sent early is kept until it is logged in.
            Phase::Login if client.input.len() >= LONGEST_HEAD => return,
            Phase::Login | Phase::Active => {
                let backend = client.backend.and_then(|backend| self.backends.get(backend));
                if client.session.waits() || backend.is_some_and(|backend| backend.connection.is_full()) {
                    return;
                }
            }
            // It has to read first what it was answered, or there is part of an answer on its way.
            Phase::Idle | Phase::Refused { .. }
                if client.connection.is_full() || !client.refusal.is_empty() =>
            {
                return;
            }
            Phase::Starting
            | Phase::Proving
            | Phase::Idle
            | Phase::Refused { .. }
            | Phase::Cancelling
            | Phase::Ending => {}
        }
        if client.connection.is_handshaking() {
            if client.connection.is_readable() {
                self.queue_handshake(key);
            }
        } else {
            self.receive(key, buffer);
        }
    }

    /// Receives from a client, and acts on it.
    pub(super) fn receive(&mut self, key: ClientKey, buffer: &mut [u8]) {
        let client = &mut self.clients[key];
        match client.connection.read(buffer) {
            Read::Bytes(length) => self.take_input(key, &buffer[..length]),
            Read::End => {
                let connection = &client.connection;
                let has_failed = connection.is_handshaking() && connection.failure().is_some();
                self.counts.not_encrypted += u64::from(has_failed);
                self.remove_client(key);
            }
            Read::Later => {}
        }
        if self.clients.get(key).is_some_and(|client| client.connection.is_readable()) {
            self.again.push(Side::Client(key));
        }
    }

    /// Lets a client go on.
    pub(super) fn resume_client(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        match client.phase {
            Phase::Entering => self.enter(key),
            Phase::Admitted => self.begin_transaction(key),
            _ => {}
        }
        self.take_input(key, &[]);
        if self.clients.get(key).is_some_and(|client| client.connection.is_readable()) {
            self.again.push(Side::Client(key));
        }
    }

    /// Takes what a client has sent, and keeps what cannot be passed on yet.
    fn take_input(&mut self, key: ClientKey, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let input = joined(std::mem::take(&mut client.input), bytes);
        let used = self.pass_on(key, &input);
        if let Some(client) = self.clients.get_mut(key) {
            client.input = left(input, used);
        }
    }

    /// Acts on what a client has sent, and returns the number of bytes that are done with.
    fn pass_on(&mut self, key: ClientKey, input: &[u8]) -> usize {
        let mut used = 0;
        while let Some(client) = self.clients.get_mut(key) {
            let rest = &input[used..];
            let taken = match client.phase {
                Phase::Starting => self.take_first(key, rest),
                Phase::Proving => self.take_proof(key, rest),
                Phase::Login => self.take_login(key, rest),
                Phase::Idle => self.take_idle(key, rest),
                Phase::Active => self.take_transaction(key, rest),
                Phase::Refused { last, .. } => self.take_refused(key, rest, last),
                Phase::Waiting(_)
                | Phase::Entering
                | Phase::LoginQueued
                | Phase::Queued(_)
                | Phase::Admitted
                | Phase::Opening
                | Phase::Parked(_) => None,
                Phase::Cancelling | Phase::Ending => return input.len(),
            };
            match taken {
                Some(bytes) => used += bytes,
                None => return used,
            }
        }
        input.len()
    }

    /// Outside of a transaction. `None`, here and below, if there has to come more before something is done.
    fn take_idle(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        let client = &mut self.clients[key];
        match client.frames.kind(input) {
            // It has to get the end of its last answer before it ends.
            _ if client.connection.is_full() || (client.is_leaving && !client.connection.is_flushed()) => {
                return None;
            }
            kind if client.is_leaving && kind != Some(b'X') => {
                self.dismiss(key);
                return Some(input.len());
            }
            None if input.is_empty() => return None,
            Some(b'X') => {
                self.remove_client(key);
                return Some(input.len());
            }
            // Data for a COPY that has failed, or Flush: the server would do nothing.
            None | Some(b'd' | b'c' | b'f' | b'H') => return self.skip(key, input),
            Some(first) => self.arrive(key, first),
        }
        Some(0)
    }

    /// A transaction that was admitted begins, if there is a connection of the server for it.
    pub(super) fn begin_transaction(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if client.backend.is_none() {
            let pool = client.pool.expect("a session that has logged in has a pool");
            let Some(backend) = self.take_idle_backend(pool) else { return self.lacks_connection(key, pool) };
            self.backends[backend].role = Role::Serving(key);
            self.clients[key].backend = Some(backend);
        }
        self.repeat_greeting(key);
        let Some(client) = self.clients.get_mut(key) else { return };
        client.phase = Phase::Active;
        if self.entrance.is_none()
            && let Some(permit) = &client.permit
            && !permit.age(self.at).is_zero()
        {
            let (class, age) = (permit.class(), permit.age(self.at));
            self.of_class(class).waits.add(age);
        }
    }

    /// In a transaction: everything goes to the server.
    fn take_transaction(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        if !input.is_empty() && self.clients[key].session.waits_for_client() {
            self.go_on(key);
        }
        let client = &mut self.clients[key];
        let backend = client.backend?;
        let Backend { prepared, pool, connection, .. } = &mut self.backends[backend];
        if connection.is_full() {
            return None;
        }
        let changes = &mut self.pools[*pool].changes;
        let definitions = &mut self.definitions;
        let mut passage = Passage::new(input);
        let stop = loop {
            let rest = passage.rest();
            if client.frames.kind(rest) == Some(b'X') {
                break Some(Stop::Left);
            }
            match client.frames.next(rest) {
                Ok(None) => break None,
                Ok(Some((piece, length))) => {
                    match client.session.client(piece, Server { prepared, definitions, changes }) {
                        Ok(Pass::Later) => {
                            // It is taken from its beginning again.
                            client.frames = Frames::new(frame::Side::Client);
                            break None;
                        }
                        Ok(pass) => passage.add(length, pass),
                        Err(error) => break Some(Stop::Violation(error.to_string())),
                    }
                    // The server had answered in the middle of this message.
                    if !client.frames.is_inside()
                        && let Some(end) = client.session.end(prepared)
                    {
                        break Some(Stop::Ended(end));
                    }
                    if passage.is_large() {
                        break None;
                    }
                }
                Err(error) => break Some(Stop::Violation(error.to_string())),
            }
        };
        self.counts.prepared_again += std::mem::take(&mut prepared.again);
        let used = passage.used();
        self.send_to_backend(backend, &passage.end());
        match stop {
            None => return (used > 0).then_some(used),
            Some(Stop::Ended(end)) => {
                self.end_transaction(backend, key, end);
                return Some(used);
            }
            Some(Stop::Left) => self.remove_client(key),
            Some(Stop::Violation(text)) => self.turn_away(key, Refusal::VIOLATION, &text),
        }
        Some(input.len())
    }

    /// Drops one piece, and returns its length.
    pub(super) fn skip(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        match self.clients[key].frames.next(input) {
            Ok(None) => None,
            Ok(Some((_, taken))) => Some(taken),
            Err(error) => {
                self.turn_away(key, Refusal::VIOLATION, &error.to_string());
                Some(input.len())
            }
        }
    }

    /// Sends to a client, which ends if it is gone.
    pub(super) fn send_to_client(&mut self, key: ClientKey, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.connection.send(bytes).is_err() {
            self.remove_client(key);
        }
    }

    /// A client has taken what was kept for it.
    pub(super) fn client_flushed(&mut self, key: ClientKey, flushed: io::Result<()>) {
        let client = &mut self.clients[key];
        if flushed.is_err() {
            self.remove_client(key);
        } else if client.connection.is_flushed() && client.phase == Phase::Ending {
            client.connection.end();
        } else {
            self.again.extend(client.backend.map(Side::Backend));
            self.resumed.push_back(key);
        }
    }

    /// Ends a session with an error that is counted as one of the guard.
    pub(super) fn turn_away(&mut self, key: ClientKey, refusal: Refusal, text: &str) {
        self.counts.turned_away += 1;
        self.end_with(key, refusal, text);
    }

    /// Ends a session with an error.
    pub(super) fn end_with(&mut self, key: ClientKey, refusal: Refusal, text: &str) {
        let backend = self.clients.get(key).and_then(|client| self.backends.get(client.backend?));
        // In the middle of a message of the server, the client could not read it.
        if !backend.is_some_and(Backend::is_inside_for_client) {
            self.send_to_client(key, &refusal.message(text));
        }
        self.end_client(key);
    }

    /// Ends a session after what was sent to it has arrived. If the socket was closed at once, what the
    /// client has sent meanwhile would make the kernel drop that.
    pub(super) fn end_client(&mut self, key: ClientKey) {
        if !self.clients.contains_key(key) {
            return;
        }
        self.let_go(key);
        let client = &mut self.clients[key];
        client.phase = Phase::Ending;
        if client.connection.is_hung_up() {
            self.remove_client(key);
            return;
        }
        if client.connection.is_flushed() {
            client.connection.end();
        }
        self.endings.push_back((self.at + ENDING_TIME, key));
        self.again.push(Side::Client(key));
    }

    /// Ends a session at once.
    pub(super) fn remove_client(&mut self, key: ClientKey) {
        self.let_go(key);
        self.clients.remove(key);
    }

    /// The transaction of a client, or its login, does not wait any more, if it does.
    pub(super) fn withdraw(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        if let (Phase::Waiting(ticket), Some(entrance)) = (client.phase, &mut self.entrance) {
            entrance.withdraw(ticket, self.at);
        }
        let Some(pool) = client.pool.and_then(|pool| self.pools.get_mut(pool)) else { return };
        match client.phase {
            Phase::Queued(ticket) | Phase::Parked(ticket) => {
                self.gate.withdraw(ticket, self.at);
                pool.parked.remove(&ticket);
            }
            Phase::Opening => pool.expecting.retain(|expecting| *expecting != key),
            Phase::LoginQueued => pool.logins.retain(|login| *login != key),
            _ => {}
        }
    }

    /// Takes from a client all that it has of the guard.
    fn let_go(&mut self, key: ClientKey) {
        self.set_turn(key, Turn::Client);
        self.withdraw(key);
        let Some(client) = self.clients.get_mut(key) else { return };
        self.client_of.remove(&client.cancel_key);
        let (pool, backend, permit) = (client.pool.take(), client.backend.take(), client.permit.take());
        let place = client.place.take();
        self.counts.abandoned += u64::from(permit.is_some());
        match backend {
            Some(backend) => self.abandon(backend, permit),
            None => permit.into_iter().for_each(|permit| self.leave_gate(permit)),
        }
        if let Some(pool) = pool {
            self.leave_pool(pool);
        }
        if let Some(place) = place {
            // The server may still be at work on its transaction.
            match backend.and_then(|backend| self.backends.get_mut(backend)) {
                Some(backend) => backend.place = Some(place),
                None => self.give_up_place(place),
            }
        }
    }
}
