//! The sessions: after a request is granted, echoes, receives or sends bytes on its connection.
//!
//! The server runs each session in a thread, and a benchmark's own partner runs the same code in a process,
//! so that the figures of both kinds of partner are comparable.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::protocol::{COUNT_MAX, DATAGRAM_MAX, digest};
use crate::primitive::kit::pieces::Pieces;

/// Interval at which a waiting session checks whether to stop.
const TICK: Duration = Duration::from_millis(200);

/// Number of consecutive ticks without a byte after which a session ends: 10 s.
const TICKS_MAX: u32 = 50;

/// A connection and the flag that stops its session.
pub(crate) struct Link<'a> {
    connection: TcpStream,
    stop: &'a AtomicBool,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The other side closed the connection between messages.
    #[error("the other side closed the connection")]
    Closed,
    /// This side was stopped.
    #[error("this side was stopped")]
    Stopped,
    /// No byte was sent or received for too long.
    #[error("nothing was sent or received for {} s", TICK.as_secs_f32() * TICKS_MAX as f32)]
    Idle,
    /// The other side requested too much, or closed the connection within a message.
    #[error("the other side violated the protocol")]
    Protocol,
    /// The network failed.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl End {
    fn in_the_middle(self) -> Self {
        if matches!(self, End::Closed) { End::Protocol } else { self }
    }
}

impl<'a> Link<'a> {
    /// Creates a link that checks `stop` at least once per tick while it waits.
    pub(crate) fn new(connection: TcpStream, stop: &'a AtomicBool) -> io::Result<Self> {
        connection.set_nonblocking(false)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(TICK))?;
        connection.set_write_timeout(Some(TICK))?;
        Ok(Self { connection, stop })
    }

    /// Reads until the buffer is full. The connection may end only before the first byte.
    fn fill(&self, buffer: &mut [u8]) -> Result<(), End> {
        let mut got = 0;
        while got < buffer.len() {
            match self.persist(|| rustix::io::read(&self.connection, &mut buffer[got..]))? {
                0 if got == 0 => return Err(End::Closed),
                0 => return Err(End::Protocol),
                bytes => got += bytes,
            }
        }
        Ok(())
    }

    /// Writes all of the buffer.
    pub(crate) fn send(&self, buffer: &[u8]) -> Result<(), End> {
        let mut sent = 0;
        while sent < buffer.len() {
            sent += self.persist(|| rustix::io::write(&self.connection, &buffer[sent..]))?;
        }
        Ok(())
    }

    /// Reads the number of pieces that the other side announces.
    fn count(&self) -> Result<u64, End> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        match u64::from_be_bytes(bytes) {
            count if count <= COUNT_MAX => Ok(count),
            _ => Err(End::Protocol),
        }
    }

    /// Repeats a call that timed out after a tick, at most [`TICKS_MAX`] times.
    fn persist(&self, mut call: impl FnMut() -> rustix::io::Result<usize>) -> Result<usize, End> {
        for _ in 0..TICKS_MAX {
            match call() {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::CONNRESET | Errno::PIPE) => return Err(End::Closed),
                Err(error) => return Err(End::Failed(error.into())),
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(End::Stopped);
            }
        }
        Err(End::Idle)
    }

    /// Whether the other side has closed the connection. During a session of datagrams it must send nothing
    /// on the connection; anything that it sends also ends the session.
    fn has_ended(&self) -> bool {
        let (byte, look) = (&mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(recv(&self.connection, byte, look), Err(Errno::AGAIN))
    }
}

/// Returns every message of `size` bytes to the sender.
pub(crate) fn echo(link: &Link<'_>, size: usize) -> End {
    let mut message = vec![0; size];
    let mut turn = || link.fill(&mut message).and_then(|()| link.send(&message));
    loop {
        if let Err(end) = turn() {
            return end;
        }
    }
}

/// Repeatedly receives the announced number of pieces and sends it back with the digest of the last piece.
pub(crate) fn sink(link: &Link<'_>, pieces: &mut Pieces) -> End {
    loop {
        if let Err(end) = take_batch(link, pieces) {
            return end;
        }
    }
}

fn take_batch(link: &Link<'_>, pieces: &mut Pieces) -> Result<(), End> {
    let announced = link.count()?;
    for _ in 1..announced {
        link.fill(pieces.next()).map_err(End::in_the_middle)?;
    }
    let last = pieces.next();
    if announced > 0 {
        link.fill(last).map_err(End::in_the_middle)?;
    }
    // Send the count immediately, because it ends the other side's timing; the digest is not timed.
    link.send(&announced.to_be_bytes())?;
    link.send(&digest(last).to_be_bytes())
}

/// Repeatedly sends the requested number of pieces.
pub(crate) fn source(link: &Link<'_>, pieces: &mut Pieces) -> End {
    loop {
        if let Err(end) = give_batch(link, pieces) {
            return end;
        }
    }
}

fn give_batch(link: &Link<'_>, pieces: &mut Pieces) -> Result<(), End> {
    for _ in 0..link.count()? {
        link.send(pieces.next())?;
    }
    Ok(())
}

/// Opens a socket for datagrams between the connection's local address and a port of the other side. All
/// sessions share one local port, so that a firewall needs to permit only this one; the kernel delivers to
/// each socket the datagrams of its own peer.
pub(crate) fn datagram_socket(connection: &TcpStream, port: u16) -> io::Result<UdpSocket> {
    let (here, mut there) = (connection.local_addr()?, connection.peer_addr()?);
    there.set_port(port);
    let family = if here.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &here)?;
    let socket = UdpSocket::from(socket);
    socket.connect(there)?;
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket)
}

/// Returns every datagram of `size` bytes from the peer while the connection is open. Other datagrams are
/// ignored: a host without a session gets no answer, and no host receives more than it sent.
pub(crate) fn datagrams(link: &Link<'_>, socket: &UdpSocket, size: usize) -> End {
    let mut message = [0; DATAGRAM_MAX + 1];
    let mut quiet_ticks = 0;
    let peer = match socket.peer_addr() {
        Ok(peer) => peer,
        Err(error) => return End::Failed(error),
    };
    while quiet_ticks < TICKS_MAX {
        match socket.recv_from(&mut message) {
            Ok((bytes, from)) if bytes == size && same(from, peer) => {
                quiet_ticks = 0;
                // A datagram that cannot be sent is lost, which the other side detects.
                let _ = socket.send(&message[..size]);
            }
            // An error is not permanent: the peer's socket may not have been open yet.
            Ok(_) | Err(_) => {
                if link.stop.load(Ordering::Relaxed) {
                    return End::Stopped;
                }
                if link.has_ended() {
                    return End::Closed;
                }
                quiet_ticks += 1;
            }
        }
    }
    End::Idle
}

/// Whether two addresses belong to the same socket. The scope of an IPv6 address is local to this host and
/// ignored.
fn same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    /// Returns a link with short ticks.
    fn impatient(connection: TcpStream) -> Link<'static> {
        let link = Link::new(connection, &NEVER).unwrap();
        link.connection.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        link.connection.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
        link
    }

    #[test]
    fn a_session_ends_if_the_other_side_sends_nothing_or_receives_nothing() {
        let (_here, there) = pair();
        let link = impatient(there);
        assert!(matches!(echo(&link, 1), End::Idle));
        assert!(matches!(link.send(&vec![0; 64 << 20]), Err(End::Idle)));
        assert_eq!(End::Idle.to_string(), "nothing was sent or received for 10 s");
    }

    #[test]
    fn a_connection_may_end_between_messages_and_not_within_one() {
        let ended_after = |bytes: &[u8]| {
            let (here, there) = pair();
            rustix::io::write(&here, bytes).unwrap();
            drop(here);
            echo(&impatient(there), 4)
        };
        assert!(matches!(ended_after(b""), End::Closed));
        assert!(matches!(ended_after(b"abc"), End::Protocol));
    }

    #[test]
    fn a_session_ends_when_it_is_stopped() {
        let (_here, there) = pair();
        let stop = AtomicBool::new(true);
        assert!(matches!(echo(&Link::new(there, &stop).unwrap(), 1), End::Stopped));
    }
}
