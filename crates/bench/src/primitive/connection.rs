//! The life of a TCP connection over the loopback interface: connect, accept, close (thesis, section 4.2;
//! lmbench, 1996, section 6.7).
//!
//! lmbench's own connect figure is mostly the timer that sends lost SYN segments again, because it makes
//! connections faster than they are accepted until the queue overflows. Here a batch never exceeds the
//! queue, and every connection that was made is counted in it.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use assay_quantity::PrimitiveId;

use super::socket::{Listener, connections_max, reset};
use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::kernel::check;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["tcp.connect"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["socket", "connect"],
        about: "socket and connect over loopback until established",
        source: "lmbench 1996, section 6.7; thesis, section 4.2",
        prepare: connect,
    },
    Row {
        ids: &["tcp.accept"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["accept4"],
        about: "accept4 of a connection that is ready",
        source: "thesis, section 4.2 (servers)",
        prepare: accept,
    },
    Row {
        ids: &["tcp.close"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["close"],
        about: "close of an established connection on which nothing is under way",
        source: "thesis, section 4.2 (servers)",
        prepare: close,
    },
];

/// `socket` and `connect`, until the connection is established.
fn connect(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Connect(Ends::new()?)))
}

/// `accept4` of a connection that is ready.
fn accept(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Accept(Ends::new()?)))
}

/// `close` of an established connection on which nothing is under way.
fn close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Close(Ends::new()?)))
}

/// A listener with the ends of the connections made to it.
struct Ends {
    listener: Listener,
    clients: Vec<OwnedFd>,
    servers: Vec<OwnedFd>,
    max: u64,
}

impl Ends {
    fn new() -> io::Result<Self> {
        let max = connections_max();
        let capacity = usize::try_from(max).map_err(io::Error::other)?;
        // One place more than is ever used.
        let listener = Listener::open(i32::try_from(max).map_err(io::Error::other)?.saturating_add(1))?;
        // Allocated here, so that no batch allocates.
        Ok(Self {
            listener,
            clients: Vec::with_capacity(capacity),
            servers: Vec::with_capacity(capacity),
            max,
        })
    }

    fn connect(&mut self, connections: u64) -> io::Result<()> {
        for _ in 0..connections {
            self.clients.push(self.listener.connect()?);
        }
        Ok(())
    }

    fn accept(&mut self, connections: u64) -> io::Result<()> {
        for _ in 0..connections {
            self.servers.push(self.listener.accept()?);
        }
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clients.drain(..).try_for_each(reset)?;
        self.servers.clear();
        Ok(())
    }
}

struct Connect(Ends);

impl Operation for Connect {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.0.connect(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.0.listener.until_waiting(operations)?;
        self.0.accept(operations)?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

struct Accept(Ends);

impl Operation for Accept {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.connect(operations)?;
        self.0.listener.until_waiting(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.0.accept(operations)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.0.listener.until_waiting(0)?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

struct Close(Ends);

impl Operation for Close {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.connect(operations)?;
        self.0.listener.until_waiting(operations)?;
        self.0.accept(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            let Some(server) = self.0.servers.pop() else {
                return Err(io::Error::other("more closes than connections"));
            };
            // SAFETY: the descriptor has just been given up by its owner, so it is closed once.
            check("close", unsafe { libc::close(server.into_raw_fd()) })?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        for client in &self.0.clients {
            let mut byte = 0_u8;
            // SAFETY: the pointer is to a local of one byte.
            let got =
                unsafe { libc::recv(client.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
            if check("recv", got)? != 0 {
                return Err(io::Error::other("a closed connection still delivers bytes"));
            }
        }
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}
