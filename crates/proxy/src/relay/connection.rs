//! A socket that does not block: what it could not send yet, and whether there may be more to read. With TLS,
//! what is sent and read is encrypted and decrypted here.

use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::{ClientConnection, ServerConnection};

use crate::postgres::channel::{Channel, EndPoint};

/// One side of the relay.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    tls: Option<Box<Tls>>,
    /// Bytes that the kernel did not take.
    unsent: Vec<u8>,
    /// Why it has ended, if it failed.
    failure: Option<io::Error>,
}

/// A socket, and what the kernel reports of it only once.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// Whether there may be something to read: the kernel reports only that something has come.
    readable: bool,
    /// Whether the other end sends nothing more. The kernel reports it maybe with the last bytes.
    hung_up: bool,
}

/// The guard's side of a connection that is encrypted.
#[derive(Debug)]
struct Tls {
    connection: rustls::Connection,
    /// Whose certificate proves which end it is, where the guard does.
    end_point: Option<EndPoint>,
    /// What the next reading returns, as nothing follows: its end, or an error.
    end: Option<io::Result<usize>>,
}

/// What a socket had.
#[derive(Debug)]
pub enum Read {
    /// This many bytes.
    Bytes(usize),
    /// Nothing yet.
    Later,
    /// Its end, or an error, after which there is nothing either.
    End,
}

/// What is read at a time of a connection that is encrypted, which is as much as is encrypted at a time. What
/// there was of it before, and this, are decrypted to less than twice as much.
const ENCRYPTED: usize = 16 << 10;

/// While this much is not sent, the other side is not read.
pub const FULL: usize = 256 << 10;

impl Connection {
    pub fn new(fd: OwnedFd) -> Self {
        let socket = Socket { fd, readable: false, hung_up: false };
        Self { socket, tls: None, unsent: Vec::new(), failure: None }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket.fd
    }

    /// Something has come.
    pub fn set_readable(&mut self) {
        self.socket.readable = true;
    }

    /// The other end sends nothing more than what has come.
    pub fn hang_up(&mut self) {
        self.socket.readable = true;
        self.socket.hung_up = true;
    }

    /// Whether the other end sends nothing more.
    pub fn is_hung_up(&self) -> bool {
        self.socket.hung_up
    }

    /// Whether there may be something to read.
    pub fn is_readable(&self) -> bool {
        self.socket.readable
    }

    /// Returns why it has ended; `None` if the other end has closed it.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Whether all was sent.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether the other side has to wait.
    pub fn is_full(&self) -> bool {
        self.unsent.len() >= FULL
    }

    /// Whether it is encrypted, or about to be.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether both ends still agree on how to encrypt.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// What a login over it can be bound to, and whether others may read along.
    pub fn channel(&self) -> Channel {
        let Some(tls) = &self.tls else { return Channel::Open };
        let certificate = tls.connection.peer_certificates().and_then(|certificates| certificates.first());
        let of_peer = || certificate.and_then(|certificate| EndPoint::of(certificate));
        Channel::Tls(tls.end_point.clone().or_else(of_peer))
    }

    /// Encrypts what follows, as the server of the other end.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn accept_tls(&mut self, (tls, end_point): (ServerConnection, Option<EndPoint>)) -> io::Result<()> {
        self.start_tls(Tls { connection: tls.into(), end_point, end: None })
    }

    /// Encrypts what follows, as a client of the other end.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn connect_tls(&mut self, tls: ClientConnection) -> io::Result<()> {
        self.start_tls(Tls { connection: tls.into(), end_point: None, end: None })
    }

    fn start_tls(&mut self, mut tls: Tls) -> io::Result<()> {
        // What the kernel does not take is kept here, and bounded by the relay.
        tls.connection.set_buffer_limit(None);
        self.tls = Some(Box::new(tls));
        self.send_encrypted()
    }

    /// Reads what there is, if there may be something: once, so that a connection that sends much keeps no
    /// other one waiting.
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        match self.try_read(buffer) {
            Ok(0) => Read::End,
            Ok(length) => Read::Bytes(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Read::Later,
            Err(error) => {
                self.failure = Some(error);
                Read::End
            }
        }
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        if let Some(end) = tls.end.take() {
            return end;
        }
        let (plain, encrypted) = buffer.split_at_mut(buffer.len() - ENCRYPTED);
        let received = self.socket.read(encrypted)?;
        let decrypted = tls.decrypt(&encrypted[..received], plain);
        let is_end = tls.end.is_some();
        // Its part of the handshake, or why it ends. If the other end is gone, the next reading shows it.
        let _ = self.send_encrypted();
        if decrypted > 0 {
            // The end is read next.
            self.socket.readable |= is_end;
            return Ok(decrypted);
        }
        self.tls.as_mut().and_then(|tls| tls.end.take()).unwrap_or(Err(io::ErrorKind::WouldBlock.into()))
    }

    /// Sends, now or later, in order.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.connection.writer().write_all(bytes)?;
            return self.send_encrypted();
        }
        let sent = if self.unsent.is_empty() { self.socket.send(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what has been encrypted. If something is left of earlier sendings, the kernel reports when it
    /// takes that, and those that wait for it go on at that report.
    fn send_encrypted(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let is_first = self.unsent.is_empty();
        while tls.connection.wants_write() {
            tls.connection.write_tls(&mut self.unsent)?;
        }
        if is_first { self.flush() } else { Ok(()) }
    }

    /// Sends what was not sent yet.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let mut unsent = std::mem::take(&mut self.unsent);
        let sent = self.socket.send(&unsent)?;
        if sent < unsent.len() {
            unsent.drain(..sent);
            self.unsent = unsent;
        }
        Ok(())
    }

    /// Sends nothing more.
    pub fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            // If the other end is gone, or does not read, it does without.
            let _ = self.send_encrypted();
        }
        // If it is not connected, it has ended.
        let _ = shutdown(&self.socket.fd, Shutdown::Write);
    }
}

impl Tls {
    /// Decrypts what was received, and returns the number of bytes; nothing received is its end.
    fn decrypt(&mut self, mut received: &[u8], plain: &mut [u8]) -> usize {
        let mut decrypted = 0;
        if received.is_empty() {
            self.end = Some(Ok(0));
        }
        while !received.is_empty() && self.end.is_none() {
            let taken = self
                .connection
                .read_tls(&mut received)
                .and_then(|_| self.connection.process_new_packets().map_err(io::Error::other));
            // What was decrypted before an error comes first.
            decrypted += self.connection.reader().read(&mut plain[decrypted..]).unwrap_or(0);
            match taken {
                Ok(state) if state.peer_has_closed() => self.end = Some(Ok(0)),
                Ok(_) => {}
                Err(error) => self.end = Some(Err(error)),
            }
        }
        decrypted
    }
}

impl Socket {
    /// Returns the number of bytes that the kernel took.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(&self.fd, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(length) => sent += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(sent)
    }
}

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.readable {
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((_, length)) => {
                    // A short read takes all; the kernel reports what comes later (epoll(7)).
                    self.readable = self.hung_up || length == buffer.len();
                    return Ok(length);
                }
                Err(Errno::AGAIN) => self.readable = false,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// What was kept of earlier readings, and the last one.
pub fn joined(kept: Vec<u8>, bytes: &[u8]) -> Cow<'_, [u8]> {
    match (kept.is_empty(), bytes.is_empty()) {
        (true, _) => Cow::Borrowed(bytes),
        (false, true) => Cow::Owned(kept),
        (false, false) => Cow::Owned([&kept, bytes].concat()),
    }
}

/// What is kept of that, without the bytes that are done with.
pub fn left(joined: Cow<'_, [u8]>, used: usize) -> Vec<u8> {
    match joined {
        Cow::Owned(joined) if used == 0 => joined,
        joined => joined[used..].to_vec(),
    }
}
