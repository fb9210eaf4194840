//! The life cycle of a connection within this host: connect, accept, close, over TCP and Unix sockets
//! (thesis, section 4.2; lmbench, 1996, section 6.7; lmbench 3, `lat_unix_connect`).
//!
//! lmbench's own connect figure is mostly the timer that retransmits lost SYN segments, because it opens
//! connections faster than they are accepted until the queue overflows. Here a batch never exceeds the queue,
//! every connection is counted in it, and a connection for which the kernel retransmitted a segment is an
//! error.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::endpoint::Endpoint;
use crate::primitive::kit::socket::{Listener, connections_max};
use crate::primitive::kit::unix_socket::UnixListener;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["tcp.connect"],
        full: &[],
        cost: Per::Operation,
        calls: &["socket", "connect"],
        about: "`socket` and `connect` over loopback until established; accepted and closed untimed",
        source: "lmbench 1996, section 6.7; thesis, section 4.2",
        prepare: connect,
    },
    Row {
        quick: &["tcp.accept"],
        full: &[],
        cost: Per::Operation,
        calls: &["accept4"],
        about: "`accept4` of a connection that is ready",
        source: "thesis, section 4.2 (servers)",
        prepare: accept,
    },
    Row {
        quick: &["tcp.close"],
        full: &[],
        cost: Per::Operation,
        calls: &["close"],
        about: "`close` of an established connection without data in flight",
        source: "thesis, section 4.2 (servers)",
        prepare: close,
    },
    Row {
        quick: &["tcp.shutdown"],
        full: &[],
        cost: Per::Operation,
        calls: &["shutdown"],
        about: "`shutdown(SHUT_WR)` of an established connection without data in flight",
        source: "own: how servers end a response without a length",
        prepare: shutdown,
    },
    Row {
        quick: &["unix.connect"],
        full: &[],
        cost: Per::Operation,
        calls: &["socket", "connect"],
        about: "`socket` and `connect` of a Unix stream socket by its name; accepted and closed untimed",
        source: "lmbench 3, lat_unix_connect",
        prepare: connect,
    },
    Row {
        quick: &["unix.accept"],
        full: &[],
        cost: Per::Operation,
        calls: &["accept4"],
        about: "`accept4` of a Unix connection that is ready",
        source: "own: local servers",
        prepare: accept,
    },
    Row {
        quick: &["unix.close"],
        full: &[],
        cost: Per::Operation,
        calls: &["close"],
        about: "`close` of a Unix connection without data in flight",
        source: "own: local servers",
        prepare: close,
    },
];

/// `socket` and `connect`, until the connection is established.
fn connect(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(match id.family() {
        "unix" => Prepared::alone(Connect(unix(setting)?)),
        _ => Prepared::alone(Connect(tcp()?)),
    })
}

/// `accept4` of a connection that is ready.
fn accept(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(match id.family() {
        "unix" => Prepared::alone(Accept(unix(setting)?)),
        _ => Prepared::alone(Accept(tcp()?)),
    })
}

/// `close` of an established connection without data in flight.
fn close(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(match id.family() {
        "unix" => Prepared::alone(Close(unix(setting)?)),
        _ => Prepared::alone(Close(tcp()?)),
    })
}

/// `shutdown(SHUT_WR)` of an established connection without data in flight.
fn shutdown(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(ShutDown(tcp()?)))
}

fn tcp() -> Result<Ends<Listener>, Refusal> {
    Ends::of(|backlog| Ok(Listener::open(backlog)?))
}

fn unix(setting: &Setting) -> Result<Ends<UnixListener>, Refusal> {
    Ends::of(|backlog| UnixListener::open(&setting.directory, backlog))
}

/// A listener with both ends of its connections.
struct Ends<L> {
    listener: L,
    clients: Vec<OwnedFd>,
    servers: Vec<OwnedFd>,
    max: u64,
}

impl<L: Endpoint> Ends<L> {
    fn of(listen: impl FnOnce(i32) -> Result<L, Refusal>) -> Result<Self, Refusal> {
        let max = connections_max();
        let capacity = usize::try_from(max).map_err(io::Error::other)?;
        // One more place than is ever used.
        let listener = listen(i32::try_from(max).map_err(io::Error::other)?.saturating_add(1))?;
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

    /// Connects, until all connections wait to be accepted.
    fn queue(&mut self, connections: u64) -> io::Result<()> {
        self.connect(connections)?;
        self.listener.until_waiting(connections)
    }

    /// Connects and accepts.
    fn establish(&mut self, connections: u64) -> io::Result<()> {
        self.queue(connections)?;
        self.accept(connections)
    }

    fn accept(&mut self, connections: u64) -> io::Result<()> {
        for _ in 0..connections {
            self.servers.push(self.listener.accept()?);
        }
        Ok(())
    }

    /// Checks that the other end of every connection has ended it.
    fn check_ended(&self) -> io::Result<()> {
        for client in &self.clients {
            let mut byte = 0_u8;
            // SAFETY: the pointer is to a local of one byte.
            let got =
                unsafe { libc::recv(client.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
            if check("recv", got)? != 0 {
                return Err(io::Error::other("a closed connection still delivers bytes"));
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clients.drain(..).try_for_each(L::end)?;
        self.servers.clear();
        Ok(())
    }
}

struct Connect<L>(Ends<L>);

impl<L: Endpoint> Operation for Connect<L> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.0.connect(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.0.listener.until_waiting(operations)?;
        self.0.accept(operations)?;
        self.0.listener.check_none_waits()?;
        self.0.clients.iter().try_for_each(L::check_made)?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

struct Accept<L>(Ends<L>);

impl<L: Endpoint> Operation for Accept<L> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.queue(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.0.accept(operations)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.0.listener.check_none_waits()?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

struct Close<L>(Ends<L>);

impl<L: Endpoint> Operation for Close<L> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.establish(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            let Some(server) = self.0.servers.pop() else {
                return Err(io::Error::other("more closes than connections"));
            };
            // SAFETY: the owner has just released the descriptor, so it is closed once.
            check("close", unsafe { libc::close(server.into_raw_fd()) })?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.0.check_ended()?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

struct ShutDown<L>(Ends<L>);

impl<L: Endpoint> Operation for ShutDown<L> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.establish(operations)
    }

    fn run(&mut self, _: u64) -> io::Result<()> {
        for server in &self.0.servers {
            // SAFETY: the call takes numbers only.
            check("shutdown", unsafe { libc::shutdown(server.as_raw_fd(), libc::SHUT_WR) })?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.0.check_ended()?;
        self.0.clear()
    }

    fn max_batch(&self) -> u64 {
        self.0.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_whose_first_segment_was_dropped_is_an_error_not_a_slow_connect() {
        let mut connect = Connect(Ends::of(|_| Ok(Listener::open(0)?)).unwrap());
        // A queue of length 0 takes one connection. The segments of a second one are dropped and
        // retransmitted after a second.
        let listener = &connect.0.listener;
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _first = listener.connect()?;
                wait_until(|| has_a_full_queue(listener.port()));
                listener.connect()
            });
            wait_until(|| has_an_unanswered_connect(listener.port()));
            listener.accept().unwrap();
            second.join().unwrap().unwrap()
        });
        connect.0.clients.push(second);
        let error = connect.disarm(1).unwrap_err().to_string();
        assert!(error.contains("its timer would be measured"), "{error}");
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Returns the text after these columns in the kernel's table of connections (documented in
    /// proc_net_tcp.rst).
    fn behind(columns: &str) -> Option<String> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().find_map(|line| line.split_once(columns).map(|(_, rest)| rest.to_owned()))
    }

    /// Returns whether a connection waits in the queue of the listener at this port, which takes one.
    fn has_a_full_queue(port: u16) -> bool {
        behind(&format!("0100007F:{port:04X} 00000000:0000 0A 00000000:")).unwrap().starts_with("00000001")
    }

    /// Returns whether a connection to this port had to retransmit its first segment: in state 02 it has not
    /// been answered.
    fn has_an_unanswered_connect(port: u16) -> bool {
        let rest = behind(&format!("0100007F:{port:04X} 02 "));
        rest.is_some_and(|rest| rest.split_whitespace().nth(2) != Some("00000000"))
    }

    #[test]
    fn missing_unix_connections_are_detected() {
        let directory = tempfile::tempdir().unwrap();
        let ends = || Ends::of(|backlog| UnixListener::open(directory.path(), backlog)).unwrap();
        let mut connect = Connect(ends());
        connect.run(3).unwrap();
        assert!(connect.disarm(4).is_err());
        let mut accept = Accept(ends());
        accept.arm(3).unwrap();
        accept.run(2).unwrap();
        assert!(accept.disarm(3).is_err());
        let mut close = Close(ends());
        close.arm(3).unwrap();
        close.run(2).unwrap();
        assert!(close.disarm(3).is_err());
    }
}
