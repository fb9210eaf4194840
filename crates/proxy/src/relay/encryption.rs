//! How connections begin that are encrypted: the one that connects asks for TLS, and the other one answers
//! with a byte (PostgreSQL's manual, *Message Flow*, *SSL Session Encryption*).

use std::io;

use super::Relay;
use super::backend::BackendKey;
use super::client::ClientKey;
use crate::postgres::refusal::Refusal;
use crate::postgres::startup::{BadStart, First, Kind};
use crate::tls::MustEncrypt;

/// The answers to a request for encryption.
const ENCRYPTED: u8 = b'S';
const NOT_ENCRYPTED: u8 = b'N';

/// Kinds of encryption that a client can ask for: TLS and GSSAPI.
const KINDS: u32 = 2;

impl Relay {
    /// A client asks for encryption, and has sent this behind its request.
    pub(super) fn asks_for_encryption(&mut self, key: ClientKey, kind: Kind, behind: &[u8]) {
        let client = &mut self.clients[key];
        client.encryption_requests += 1;
        if client.encryption_requests > KINDS || client.connection.is_encrypted() {
            return self.turn_away(key, Refusal::VIOLATION, &BadStart::Malformed.to_string());
        }
        let identity = self.encryption.clients.as_ref().filter(|_| kind == Kind::Tls);
        let Some(identity) = identity else { return self.send_to_client(key, &[NOT_ENCRYPTED]) };
        // Others may have put it there, to be taken for part of what is encrypted.
        if !behind.is_empty() {
            let text = "the client has sent something between its request for TLS and the answer";
            return self.turn_away(key, Refusal::VIOLATION, text);
        }
        let begun = identity.accept().map_err(io::Error::other).and_then(|tls| {
            client.connection.send(&[ENCRYPTED])?;
            client.connection.accept_tls(tls)
        });
        if begun.is_err() {
            self.remove_client(key);
        }
    }

    /// Whether a client has to encrypt its connection, and has not.
    pub(super) fn must_encrypt(&self, key: ClientKey) -> bool {
        self.encryption.clients_must == MustEncrypt::Yes && !self.clients[key].connection.is_encrypted()
    }

    /// What is sent first to the server, and what is held back until the connection is encrypted.
    pub(super) fn first_packet(&self, first: First) -> (Vec<u8>, Option<First>) {
        if self.encryption.server.is_some() {
            (Kind::Tls.packet().to_vec(), Some(first))
        } else {
            (first.packet(), None)
        }
    }

    /// The server answers to the request for TLS, after which it gets what was held back.
    pub(super) fn encryption_reply(&mut self, key: BackendKey, input: &[u8]) {
        match input {
            [ENCRYPTED] => {}
            [NOT_ENCRYPTED] => return self.server_fails(key, "it does not offer TLS"),
            // Others may have written its text.
            [b'E', ..] => {
                return self.server_fails(key, "it refuses a connection before TLS; its log says why");
            }
            _ => return self.server_fails(key, "its answer to the request for TLS cannot be read"),
        }
        let backend = &mut self.backends[key];
        let (Some(trust), Some(first)) = (&self.encryption.server, backend.held_back.take()) else { return };
        let begun = trust.connect().map_err(io::Error::other).and_then(|tls| {
            backend.connection.connect_tls(tls)?;
            backend.connection.send(&first.packet())
        });
        if let Err(error) = begun {
            self.server_fails(key, &error.to_string());
        }
    }

    /// What a client has sent of its handshake has to wait for its turn.
    pub(super) fn queue_handshake(&mut self, key: ClientKey) {
        if !std::mem::replace(&mut self.clients[key].waits_for_handshake, true) {
            self.handshakes.push_back(key);
        }
    }

    /// Lets the client that has waited longest go on with its handshake: one in a turn, as each takes as long
    /// as many messages.
    pub(super) fn go_on_with_handshake(&mut self) {
        while let Some(key) = self.handshakes.pop_front() {
            // It may have given up.
            let Some(client) = self.clients.get_mut(key) else { continue };
            client.waits_for_handshake = false;
            let mut buffer = std::mem::take(&mut self.buffer);
            self.receive(key, &mut buffer);
            self.buffer = buffer;
            return;
        }
    }
}
