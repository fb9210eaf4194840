//! Between two hosts: round trips, connections and bulk transfers with a host that runs `assay bench --serve`
//! (lmbench 3, `lat_tcp`, `lat_udp`, `lat_connect` and `bw_tcp` with the name of a host).
//!
//! Disturbance of that host is not visible here; waiting in the network is part of the figures. A lost
//! datagram, a retransmitted segment and a silent peer end the sample.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use assay_quantity::{PrimitiveId, Size};

use super::bulk::{Outgoing, SIZES};
use super::serve::protocol::{COUNT_MAX, LINE_MAX, OK, REFUSED, Request, Session, pattern};
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::primitive::kit::echo::{Echo, PATIENCE};
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::socket::{check_sent_once, read_all, reset, write};
use crate::primitive::kit::step::Steps;
use crate::primitive::kit::udp_pair::BYTES_MAX;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &[],
        full: &["tcp.round_trip{size=1B,peer=remote}"],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "`size` bytes to another host and back over a connection with `TCP_NODELAY`",
        source: "lmbench 3, lat_tcp",
        prepare: round_trip,
    },
    Row {
        quick: &[],
        full: &["udp.round_trip{size=1B,peer=remote}"],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "a datagram of `size` bytes to another host and one back",
        source: "lmbench 3, lat_udp",
        prepare: datagram_round_trip,
    },
    Row {
        quick: &[],
        full: &["tcp.connect{peer=remote}"],
        cost: Per::Operation,
        calls: &["socket", "connect"],
        about: "`socket` and `connect` to another host until established",
        source: "lmbench 3, lat_connect",
        prepare: connect,
    },
    Row {
        quick: &[],
        full: &["tcp.stream{size=64KiB,peer=remote}"],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` of `size` bytes to a TCP socket while another host reads all of it",
        source: "lmbench 3, bw_tcp",
        prepare: stream,
    },
    Row {
        quick: &[],
        full: &["tcp.stream_in{size=64KiB,peer=remote}"],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`read` of `size` bytes from a TCP socket that another host writes",
        source: "lmbench 3, bw_tcp",
        prepare: stream_in,
    },
];

/// Minimum bytes of a batch, and the limits of the minimum number of pieces: segments arrive in bursts, and a
/// few of them do not show the rate.
const BATCH_BYTES_MIN: u64 = 1 << 20;
const BATCH_PIECES: [u64; 2] = [4, 16];

/// Maximum connections of a batch: far fewer than a listening queue holds.
const CONNECTIONS_MAX: u64 = 64;

/// Prepares a message to the peer and back.
fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, SIZES)?;
    let connection = ask(peer(setting)?, Request::Session(Session::Echo { size }))?;
    let echo = Echo::new(connection.into(), size, &mut setting.rng, ())?;
    Ok(between_hosts(Steps::of(echo)))
}

/// Prepares a datagram to the peer and one back.
fn datagram_round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size(BYTES_MAX.into()))?;
    let peer = peer(setting)?;
    // The local address of the datagrams to the peer, which the peer checks.
    let way = UdpSocket::bind(unspecified(peer))?;
    way.connect(peer)?;
    let port = way.local_addr()?.port();
    let connection = ask(peer, Request::Session(Session::Datagrams { size, port }))?;
    let echo = Echo::new(way.into(), size, &mut setting.rng, connection)?;
    Ok(between_hosts(Steps::of(echo)))
}

/// Prepares `socket` and `connect` to the peer.
fn connect(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let peer = peer(setting)?;
    // Reports an unreachable peer immediately, instead of in a batch that waits.
    ask(peer, Request::Connect)?;
    Ok(between_hosts(Connect {
        peer,
        made: Vec::with_capacity(usize::try_from(CONNECTIONS_MAX).map_err(io::Error::other)?),
    }))
}

/// Prepares `write` of a piece, including its path into the peer's buffer.
fn stream(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, SIZES)?;
    let connection = ask(peer(setting)?, Request::Session(Session::Sink { size }))?;
    let pieces = Pieces::reused(size, &mut setting.rng)?;
    let outgoing = Outgoing::new(connection.into(), pieces, size, ())?;
    Ok(between_hosts(outgoing.in_batches_of(pieces_min(size))))
}

/// Prepares `read` of a piece that the peer writes.
fn stream_in(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, SIZES)?;
    let connection = ask(peer(setting)?, Request::Session(Session::Source { size }))?;
    let pieces = Pieces::reused(size, &mut setting.rng)?;
    Ok(between_hosts(Incoming { socket: connection.into(), pieces, pattern: pattern(size), came: 0 }))
}

fn between_hosts(operation: impl Operation + 'static) -> Prepared {
    Prepared { operation: Box::new(operation), baseline: None, sharing: Sharing::OtherHost }
}

fn pieces_min(size: usize) -> u64 {
    let [fewest, most] = BATCH_PIECES;
    (BATCH_BYTES_MIN / size as u64).clamp(fewest, most)
}

/// Returns the address of the peer that the user specified.
fn peer(setting: &Setting) -> Result<SocketAddr, Refusal> {
    setting.peer.ok_or_else(|| {
        Refusal::Unavailable(
            "no peer was specified; start 'assay bench --serve' there and use --peer ADDRESS".to_owned(),
        )
    })
}

/// Returns the unspecified address and port of the peer's address family.
fn unspecified(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Connects to the peer and sends a request. Fails unless the peer grants it.
fn ask(peer: SocketAddr, request: Request) -> io::Result<TcpStream> {
    let connection = TcpStream::connect_timeout(&peer, PATIENCE).map_err(|error| {
        io::Error::other(format!(
            "cannot connect to the peer {peer}: {error}; start 'assay bench --serve' there"
        ))
    })?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    (&connection).write_all(format!("{request}\n").as_bytes())?;
    expect_granted(&connection, peer)?;
    Ok(connection)
}

/// Reads the answer to a request. Fails unless the request was granted.
fn expect_granted(mut connection: &TcpStream, peer: SocketAddr) -> io::Result<()> {
    let mut line = [0; LINE_MAX];
    let mut come = 0;
    while come < line.len() && !line[..come].contains(&b'\n') {
        match connection.read(&mut line[come..]) {
            Ok(0) => break,
            Ok(bytes) => come += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io::Error::other(format!("the peer {peer} does not answer: {error}"))),
        }
    }
    let answer = String::from_utf8_lossy(&line[..come]);
    let answer = answer.trim_end_matches('\n');
    match answer.strip_prefix(REFUSED) {
        _ if answer == OK => Ok(()),
        Some(reason) => Err(io::Error::other(format!("the peer {peer} refused: {reason}"))),
        None => Err(io::Error::other(format!(
            "{peer} answers '{}', so it is not 'assay bench --serve'; check the port in --peer",
            answer.escape_debug()
        ))),
    }
}

/// Connections to the peer.
struct Connect {
    peer: SocketAddr,
    made: Vec<TcpStream>,
}

impl Operation for Connect {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.made.push(TcpStream::connect(self.peer)?);
        }
        Ok(())
    }

    /// Checks that each was established without a retransmission and that the peer answers over it.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        crate::benchmark::expect_done(self.made.len() as u64, operations)?;
        self.made.iter().try_for_each(|made| check_sent_once(made.as_fd()))?;
        let request = format!("{}\n", Request::Connect);
        for mut made in &self.made {
            made.set_read_timeout(Some(PATIENCE))?;
            made.write_all(request.as_bytes())?;
        }
        for made in self.made.drain(..) {
            expect_granted(&made, self.peer)?;
            reset(made.into())?;
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        CONNECTIONS_MAX
    }
}

/// Pieces from a source.
struct Incoming {
    socket: OwnedFd,
    pieces: Pieces,
    pattern: Vec<u8>,
    came: u64,
}

impl Operation for Incoming {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        write(&self.socket, &operations.to_be_bytes())?;
        for _ in 0..operations {
            read_all(&self.socket, self.pieces.next())?;
        }
        self.came = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        crate::benchmark::expect_done(std::mem::take(&mut self.came), operations)?;
        let last = self.pieces.next();
        if last != self.pattern {
            return Err(io::Error::other(
                "the last piece received differs from the pieces that the peer sends",
            ));
        }
        // Otherwise the piece of this batch would pass as the piece of the next one.
        last.fill(0);
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        COUNT_MAX
    }

    fn granule(&self) -> u64 {
        pieces_min(self.pattern.len())
    }
}
