//! The side of the server.

use std::io;
use std::time::Duration;

use rustix::event::epoll;
use slotmap::new_key_type;

use super::client::{Client, ClientKey, Phase};
use super::connection::{Connection, Read, joined};
use super::opening::Opening;
use super::passage::Passage;
use super::pool::PoolKey;
use super::{EDGES, Relay, Side};
use crate::gate::Permit;
use crate::postgres::channel::Channel;
use crate::postgres::frame::{self, Frames, Piece};
use crate::postgres::prepared::{Prepared, Server};
use crate::postgres::refusal::{Refusal, TERMINATE};
use crate::postgres::session::End;
use crate::postgres::startup::{CancelKey, First};

new_key_type! {
    /// The name of a connection of the server.
    pub struct BackendKey;
}

/// A connection of the server.
#[derive(Debug)]
pub struct Backend {
    pub connection: Connection,
    pub frames: Frames,
    /// What the server sent and was not passed on yet: part of a message.
    input: Vec<u8>,
    pub role: Role,
    /// None for one that only asks to cancel.
    pub pool: PoolKey,
    /// Whether all sessions of the pool may use it.
    pub is_shared: bool,
    /// The statements that it has.
    pub prepared: Prepared,
    /// When the server opened it.
    pub opened: Duration,
    /// What cancels it.
    pub cancel_key: CancelKey,
    /// Requests to cancel it that are not done.
    pub cancels: u32,
    /// The right of a transaction that its client does not need any more.
    pub permit: Option<Permit>,
    /// That of the session of such a client.
    pub place: Option<Permit>,
    /// Whether the server has asked for a proof of who the client is.
    pub asked: bool,
    /// Whether a client that logs in has not got the server's offer of channel binding.
    pub hides_binding: bool,
    /// Whether something that the server has sent is done with.
    pub has_answered: bool,
    /// What is sent when the connection is encrypted.
    pub held_back: Option<First>,
    /// The login of the guard, while it opens this connection.
    pub opening: Option<Box<Opening>>,
}

/// What a connection of the server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A client logs in through it.
    Login(ClientKey),
    /// The guard logs in.
    Opening,
    /// The guard has asked for the secret of a role.
    Asked,
    /// The guard has asked which processes wait for locks.
    Observing,
    /// It is in a transaction of a client, or bound to it.
    Serving(ClientKey),
    /// It is ready for any transaction.
    Idle,
    /// Its transaction has ended, and a request to cancel it has not.
    Settling,
    /// It was left by its client in a transaction.
    Ending,
    /// It ends, so that the server has room for one of this pool.
    MakingRoom(PoolKey),
    /// It asks to cancel what another one does, for a client.
    Cancelling(ClientKey, BackendKey),
}

impl Role {
    /// The client that gets what the server sends.
    fn client(self) -> Option<ClientKey> {
        match self {
            Self::Login(client) | Self::Serving(client) => Some(client),
            Self::Opening
            | Self::Asked
            | Self::Observing
            | Self::Idle
            | Self::Settling
            | Self::Ending
            | Self::MakingRoom(_)
            | Self::Cancelling(..) => None,
        }
    }
}

impl Backend {
    /// Whether its client has got part of a message, and not its end.
    pub fn is_inside_for_client(&self) -> bool {
        self.frames.is_inside()
    }

    /// Whether it is encrypted, and its client sees another end than this of the server, to which the
    /// client's login cannot be bound.
    pub fn is_other_end_than(&self, client: &Client) -> bool {
        match self.connection.channel() {
            Channel::Open | Channel::Local => false,
            Channel::Tls(end_point) => {
                end_point.is_none() || end_point != client.connection.channel().end_point()
            }
        }
    }

    /// Ends it in good order.
    pub fn terminate(&mut self) {
        // Before it is encrypted, there is nothing to end. If it is gone, it has ended.
        if self.held_back.is_none() {
            let _ = self.connection.send(&TERMINATE);
        }
    }

    /// Whether all that the server has sent was whole messages.
    pub fn is_between_messages(&self) -> bool {
        self.input.is_empty() && !self.frames.is_inside()
    }
}

impl Relay {
    /// A client cannot log in.
    pub(super) fn no_connection(&mut self, client: ClientKey, reason: &str) {
        self.turn_away(client, Refusal::NO_SERVER, &self.no_connection_text(reason));
    }

    fn no_connection_text(&self, reason: &str) -> String {
        format!("cannot connect to the server at {}: {reason}", self.server)
    }

    /// The message to a client for which there is no connection.
    pub(super) fn no_connection_message(&self, reason: &str) -> Vec<u8> {
        Refusal::NO_SERVER.message(&self.no_connection_text(reason))
    }

    /// Connects, and sends the first packet.
    pub(super) fn connect(&mut self, role: Role, pool: PoolKey, first: First) -> io::Result<BackendKey> {
        let (packet, held_back) = self.first_packet(first);
        let key = self.backends.insert(Backend {
            connection: Connection::new(self.server.connect()?),
            frames: Frames::new(frame::Side::Server),
            input: Vec::new(),
            role,
            pool,
            is_shared: false,
            prepared: Prepared::default(),
            opened: Duration::ZERO,
            cancel_key: CancelKey([0; 8]),
            cancels: 0,
            permit: None,
            place: None,
            asked: false,
            hides_binding: false,
            has_answered: false,
            held_back,
            opening: None,
        });
        let connection = &mut self.backends[key].connection;
        let added = epoll::add(&self.epoll, connection.socket(), Side::Backend(key).token(), EDGES);
        if let Err(error) = added.map_err(io::Error::from).and_then(|()| connection.send(&packet)) {
            self.backends.remove(key);
            return Err(error);
        }
        Ok(key)
    }

    /// Reads what the server has sent, unless its client has to take the last first.
    pub(super) fn read_backend(&mut self, key: BackendKey, buffer: &mut [u8]) {
        let Some(backend) = self.backends.get_mut(key) else { return };
        let client = backend.role.client().and_then(|client| self.clients.get(client));
        if client.is_some_and(|client| client.connection.is_full()) {
            return;
        }
        match backend.connection.read(buffer) {
            Read::Bytes(length) => self.take_reply(key, &buffer[..length]),
            Read::End => self.backend_ended(key),
            Read::Later => {}
        }
        if self.backends.get(key).is_some_and(|backend| backend.connection.is_readable()) {
            self.again.push(Side::Backend(key));
        }
    }

    fn take_reply(&mut self, key: BackendKey, bytes: &[u8]) {
        if self.backends[key].held_back.is_some() {
            return self.encryption_reply(key, bytes);
        }
        let joined = joined(std::mem::take(&mut self.backends[key].input), bytes);
        let mut input = &*joined;
        while let Some(backend) = self.backends.get(key) {
            let role = backend.role;
            let used = match role {
                Role::Login(client) => self.login_reply(key, client, input),
                Role::Opening => self.opening_reply(key, input),
                Role::Asked => self.lookup_reply(key, input),
                Role::Observing => self.locks_reply(key, input),
                Role::Serving(client) => self.transaction_reply(key, client, input),
                Role::Idle | Role::Settling => self.stray_reply(key, input),
                Role::Ending | Role::MakingRoom(_) | Role::Cancelling(..) => input.len(),
            };
            input = &input[used..];
            let Some(backend) = self.backends.get_mut(key) else { return };
            backend.has_answered |= used > 0;
            if input.is_empty() || (used == 0 && backend.role == role) {
                backend.input = input.to_vec();
                return;
            }
        }
    }

    /// What the server sends in a transaction, and to a session that it is bound to.
    fn transaction_reply(&mut self, key: BackendKey, client: ClientKey, input: &[u8]) -> usize {
        self.go_on(client);
        let Client { session, frames: of_client, .. } = &mut self.clients[client];
        let Backend { frames, prepared, pool, .. } = &mut self.backends[key];
        let changes = &mut self.pools[*pool].changes;
        let definitions = &mut self.definitions;
        let (mut passage, mut end, waits) = (Passage::new(input), None, session.waits());
        while end.is_none() {
            let next = match frames.next(passage.rest()) {
                Ok(None) => break,
                Ok(Some((piece, length))) => {
                    let passed = session.server(piece, Server { prepared, definitions, changes });
                    passed.map(|pass| passage.add(length, pass)).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = next {
                self.send_to_client(client, &passage.end());
                self.server_fails(key, &error);
                return input.len();
            }
            if !of_client.is_inside() {
                end = session.end(prepared);
            }
        }
        let used = passage.used();
        if waits && !session.waits() {
            self.resumed.push_back(client);
        }
        self.send_to_client(client, &passage.end());
        self.send_refusal(client);
        // After a COPY that failed, the server may still answer while the next transaction waits.
        if let Some(end) = end
            && self.clients.get(client).is_some_and(|client| client.phase == Phase::Active)
        {
            self.end_transaction(key, client, end);
        }
        used
    }

    /// A transaction has ended: its connection is free for another one, unless the session needs it.
    pub(super) fn end_transaction(&mut self, key: BackendKey, client: ClientKey, end: End) {
        match end {
            End::Committed => self.counts.committed += 1,
            End::RolledBack => self.counts.rolled_back += 1,
            End::Failed => self.counts.failed += 1,
        }
        let session = &mut self.clients[client];
        session.phase = Phase::Idle;
        let mut permit = session.permit.take();
        // It is no failure if the client has it rolled back.
        if end != End::Failed {
            permit.iter_mut().for_each(Permit::finish);
        }
        // It may have sent the next transaction.
        self.resumed.push_back(client);
        let backend = &mut self.backends[key];
        if let Some(pin) = session.session.pin() {
            if backend.is_shared {
                *self.counts.pinned.entry(pin).or_default() += 1;
                self.unshare(key);
            }
        } else {
            session.backend = None;
            if backend.cancels > 0 {
                // A request that comes late must not hit the next transaction.
                backend.role = Role::Settling;
                backend.permit = permit;
                return;
            }
            self.release(key);
        }
        permit.into_iter().for_each(|permit| self.leave_gate(permit));
    }

    /// What the server sends without being asked. Notices and changed settings of the server are for
    /// sessions, of which there is none.
    fn stray_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let Backend { frames, prepared, .. } = &mut self.backends[key];
        let mut used = 0;
        loop {
            match frames.next(&input[used..]) {
                Ok(None) => return used,
                Ok(Some((Piece::First { kind: b'S', body, .. }, taken))) => {
                    prepared.read_setting(body);
                    used += taken;
                }
                Ok(Some((Piece::Rest(_) | Piece::First { kind: b'N', .. }, taken))) => used += taken,
                // It says why it ends, or does not keep to the protocol.
                Ok(Some(_)) | Err(_) => {
                    self.backend_ended(key);
                    return input.len();
                }
            }
        }
    }

    /// Sends to the server.
    pub(super) fn send_to_backend(&mut self, key: BackendKey, bytes: &[u8]) {
        let Some(backend) = self.backends.get_mut(key) else { return };
        if backend.connection.send(bytes).is_err() {
            // It may have said why, which is read first.
            backend.connection.hang_up();
            self.again.push(Side::Backend(key));
        }
    }

    /// The server has taken what was kept for it.
    pub(super) fn backend_flushed(&mut self, key: BackendKey, flushed: io::Result<()>) {
        let backend = &mut self.backends[key];
        if flushed.is_err() {
            backend.connection.hang_up();
        } else if backend.role == Role::Ending && backend.connection.is_flushed() {
            backend.connection.end();
        } else if let Some(client) = backend.role.client() {
            self.resumed.push_back(client);
        }
    }

    /// The client of a connection has ended.
    pub(super) fn abandon(&mut self, key: BackendKey, mut permit: Option<Permit>) {
        let backend = &mut self.backends[key];
        // The server goes on if it has waited for the client.
        if let Role::Serving(client) = backend.role
            && let (Some(permit), Some(client)) = (&mut permit, self.clients.get(client))
            && client.is_waited_for(&backend.connection)
        {
            self.gate.take_back(permit, self.at);
        }
        match (backend.role, permit) {
            // The server ends a transaction of which it reads the end of the connection, after what it is
            // doing. Until then the transaction is in flight.
            (Role::Serving(_), Some(permit)) => {
                backend.role = Role::Ending;
                backend.permit = Some(permit);
                if backend.connection.is_flushed() {
                    backend.connection.end();
                }
                self.unshare(key);
                self.again.push(Side::Backend(key));
            }
            (_, permit) => {
                self.terminate(key);
                permit.into_iter().for_each(|permit| self.leave_gate(permit));
            }
        }
    }

    /// The server does something that cannot be relayed.
    pub(super) fn server_fails(&mut self, key: BackendKey, text: &str) {
        // It may have ended with its client.
        let Some(backend) = self.backends.get(key) else { return };
        if backend.role == Role::Opening {
            let pool = self.drop_opening(key);
            self.not_opened(pool, &self.no_connection_message(text));
            return;
        }
        if backend.role == Role::Asked {
            self.lookup_fails(text);
        } else if let Some(client) = backend.role.client() {
            let text = format!("the server at {} fails: {text}", self.server);
            self.turn_away(client, Refusal::NO_SERVER, &text);
        }
        // It is in a state that is not known.
        if self.backends.contains_key(key) {
            self.backend_ended(key);
        }
    }

    /// The server has closed a connection.
    pub(super) fn backend_ended(&mut self, key: BackendKey) {
        let reason = |backend: &Backend| {
            let failure = backend.connection.failure();
            failure.map_or_else(|| "it has closed the connection".to_owned(), ToString::to_string)
        };
        if self.backends[key].role == Role::Opening {
            return self.server_fails(key, &reason(&self.backends[key]));
        }
        if self.backends[key].role == Role::Asked {
            self.lose_lookup(key, &reason(&self.backends[key]));
        }
        self.lose_greeting(key);
        self.unshare(key);
        let Some(backend) = self.backends.remove(key) else { return };
        if let Some(client) = backend.role.client() {
            // Its transaction ends with it.
            self.clients[client].backend = None;
            if backend.has_answered {
                self.end_client(client);
            } else {
                self.no_connection(client, &reason(&backend));
            }
        }
        backend.permit.into_iter().for_each(|permit| self.leave_gate(permit));
        backend.place.into_iter().for_each(|place| self.give_up_place(place));
        let pool = if let Role::MakingRoom(pool) = backend.role { pool } else { backend.pool };
        if self.pools.get(pool).is_some_and(|pool| pool.full_until.is_some()) {
            self.ask_again(pool);
        }
        if let Role::Cancelling(client, target) = backend.role {
            self.end_client(client);
            self.cancelled(target);
        }
    }
}
