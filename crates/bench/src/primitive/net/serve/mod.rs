//! The server for measurements between two hosts: it echoes messages and datagrams, receives and sends bytes,
//! and accepts connections for clients that use the protocol of the module `protocol`.
//!
//! `assay bench --serve` calls it; the rows with `peer=remote` are the clients. One process serves many
//! clients at the same time. The number of clients, the memory that they can use on this host and the time
//! that the server waits for them are limited. There is no authentication: use it only in networks where
//! every host may use this host's time. The server reads and writes no file.

pub(crate) mod protocol;
pub(crate) mod session;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::protocol::{LINE_MAX, Line, OK, REFUSED, Request, Session, pattern};
use self::session::{End, Link, datagram_socket, datagrams, echo, sink, source};
use crate::platform::clock::monotonic;
use crate::primitive::kit::pieces::Pieces;

/// The default port: below the range from which kernels choose ports.
pub const PORT: u16 = 7325;

/// Maximum number of connections without a request; more stay in the kernel's queue.
const ASKERS_MAX: usize = 256;

/// Maximum number of sessions; more are refused. Each has a thread and memory for one piece.
const SESSIONS_MAX: usize = 64;

/// Timeout for the request of a connection.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// Interval at which the server checks whether to stop, and for timeouts.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Errors of `accept` that concern only the connection that it would have returned (accept(2)), or none.
const ASKERS_OWN: [libc::c_int; 11] = [
    libc::ECONNABORTED,
    libc::EINTR,
    libc::EPERM,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::EOPNOTSUPP,
    libc::ENETDOWN,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::EHOSTUNREACH,
    libc::ENONET,
];

/// A server that is bound to its address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

/// Statistics of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections whose request was granted.
    pub granted: u64,
    /// Connections whose request was refused, or was not received in time.
    pub refused: u64,
    /// Granted connections that ended with a failure, a timeout or a violation of the protocol.
    pub broken: u64,
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum CannotServe {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}; give another ADDRESS:PORT to --serve")]
    Bind(SocketAddr, io::Error),
    /// The listening socket failed.
    #[error("cannot continue to serve: {0}; start 'assay bench --serve' again")]
    Listen(io::Error),
}

impl Server {
    /// Binds to an address; port 0 chooses any free port.
    ///
    /// # Errors
    /// Returns [`CannotServe::Bind`] if the address cannot be bound.
    pub fn bind(address: SocketAddr) -> Result<Self, CannotServe> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind().map_err(|error| CannotServe::Bind(address, error))
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true; running sessions then end within a fraction of a second.
    ///
    /// # Errors
    /// Returns [`CannotServe::Listen`] if the listening socket fails. A failure of one connection ends only
    /// that connection.
    pub fn serve(&self, stop: &AtomicBool) -> Result<Served, CannotServe> {
        let sessions = Sessions { stop, running: AtomicUsize::new(0), broken: AtomicU64::new(0) };
        let mut served = Served::default();
        let outcome = thread::scope(|scope| {
            let mut askers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                self.turn(&mut askers, &mut served, &sessions, scope)?;
            }
            Ok(())
        });
        served.broken = sessions.broken.into_inner();
        outcome.map(|()| served).map_err(CannotServe::Listen)
    }

    /// Waits for an event, for at most [`LOOK`], and then checks all connections.
    fn turn<'scope>(
        &self,
        askers: &mut Vec<Asker>,
        served: &mut Served,
        sessions: &'scope Sessions<'_>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        self.wait(askers)?;
        let now_ns = monotonic::now_ns();
        for mut asker in std::mem::take(askers) {
            match asker.look(now_ns) {
                Look::Waits => askers.push(asker),
                Look::Gone => {}
                Look::Bad(reason) => {
                    served.refused += 1;
                    refuse(&asker.connection, &reason);
                }
                Look::Asks(Request::Connect) => {
                    served.granted += 1;
                    grant(&asker.connection);
                }
                Look::Asks(Request::Session(session)) => match sessions.begin(&asker.connection, session) {
                    Ok(work) => {
                        served.granted += 1;
                        sessions.run(asker.connection, work, scope);
                    }
                    Err(reason) => {
                        served.refused += 1;
                        refuse(&asker.connection, &reason);
                    }
                },
            }
        }
        while askers.len() < ASKERS_MAX {
            match self.listener.accept() {
                Ok((connection, _)) => {
                    served.connections += 1;
                    askers.extend(Asker::new(connection, now_ns));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error().is_some_and(|error| ASKERS_OWN.contains(&error)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self, askers: &[Asker]) -> io::Result<()> {
        let listener = (askers.len() < ASKERS_MAX).then_some(&self.listener);
        let mut all: Vec<PollFd<'_>> = askers
            .iter()
            .map(|asker| PollFd::new(&asker.connection, PollFlags::IN))
            .chain(listener.map(|listener| PollFd::new(listener, PollFlags::IN)))
            .collect();
        match poll(&mut all, Some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A connection whose request is incomplete.
struct Asker {
    connection: TcpStream,
    line: [u8; LINE_MAX],
    come: usize,
    since_ns: u64,
}

/// The state of a connection without a request.
enum Look {
    Waits,
    Gone,
    Asks(Request),
    Bad(String),
}

impl Asker {
    /// Returns `None` for a connection that is already broken.
    fn new(connection: TcpStream, now_ns: u64) -> Option<Self> {
        connection.set_nonblocking(true).ok()?;
        Some(Self { connection, line: [0; LINE_MAX], come: 0, since_ns: now_ns })
    }

    fn look(&mut self, now_ns: u64) -> Look {
        match (&self.connection).read(&mut self.line[self.come..]) {
            Ok(0) => return Look::Gone,
            Ok(bytes) => self.come += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Look::Gone,
        }
        match Line::of(&self.line[..self.come]) {
            Line::Asks(request) => Look::Asks(request),
            Line::Bad(refused) => Look::Bad(refused.to_string()),
            Line::Unfinished if Duration::from_nanos(now_ns.saturating_sub(self.since_ns)) > ASK_WITHIN => {
                Look::Bad(format!("no request was received within {} s", ASK_WITHIN.as_secs()))
            }
            Line::Unfinished => Look::Waits,
        }
    }
}

/// Sends the reason for a refusal, in one line. Errors are ignored. Nothing was sent before, so this never
/// blocks.
fn refuse(mut connection: &TcpStream, reason: &str) {
    let _ = connection.write_all(format!("{REFUSED}{reason}\n").as_bytes());
}

/// Grants a request without a session.
fn grant(mut connection: &TcpStream) {
    let _ = connection.write_all(format!("{OK}\n").as_bytes());
}

/// The state that all sessions share.
struct Sessions<'a> {
    stop: &'a AtomicBool,
    running: AtomicUsize,
    broken: AtomicU64,
}

impl Sessions<'_> {
    /// Prepares a session, or returns the reason for the refusal.
    fn begin(&self, connection: &TcpStream, session: Session) -> Result<Work, String> {
        // Only the thread that calls this increases the number.
        if self.running.load(Ordering::Acquire) >= SESSIONS_MAX {
            return Err(format!(
                "{SESSIONS_MAX} sessions are running here, which is the maximum; try again later"
            ));
        }
        Work::prepare(connection, session).map_err(|error| format!("cannot prepare the session: {error}"))
    }

    /// Runs a session in its own thread.
    fn run<'scope>(&'scope self, connection: TcpStream, work: Work, scope: &'scope Scope<'scope, '_>) {
        self.running.fetch_add(1, Ordering::AcqRel);
        let run = move || {
            let end = Link::new(connection, self.stop).map_or_else(End::Failed, |link| work.run(&link));
            self.ended(&end);
        };
        // Without a thread the connection closes before the request is granted, which the client reports as
        // an error.
        if let Err(error) = thread::Builder::new().spawn_scoped(scope, run) {
            self.ended(&End::Failed(error));
        }
    }

    fn ended(&self, end: &End) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        if !matches!(end, End::Closed | End::Stopped) {
            self.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A prepared session.
enum Work {
    Echo { size: usize },
    Datagrams { socket: UdpSocket, size: usize },
    Sink { pieces: Pieces },
    Source { pieces: Pieces },
}

impl Work {
    fn prepare(connection: &TcpStream, session: Session) -> io::Result<Self> {
        // The layout is random for each session, as for each sample.
        let mut rng = Pcg64Mcg::seed_from_u64(monotonic::now_ns());
        Ok(match session {
            Session::Echo { size } => Work::Echo { size },
            Session::Datagrams { size, port } => {
                Work::Datagrams { socket: datagram_socket(connection, port)?, size }
            }
            Session::Sink { size } => Work::Sink { pieces: Pieces::reused(size, &mut rng)? },
            Session::Source { size } => {
                let mut pieces = Pieces::reused(size, &mut rng)?;
                pieces.next().copy_from_slice(&pattern(size));
                Work::Source { pieces }
            }
        })
    }

    fn run(self, link: &Link<'_>) -> End {
        if let Err(end) = link.send(format!("{OK}\n").as_bytes()) {
            return end;
        }
        match self {
            Work::Echo { size } => echo(link, size),
            Work::Datagrams { socket, size } => datagrams(link, &socket, size),
            Work::Sink { mut pieces } => sink(link, &mut pieces),
            Work::Source { mut pieces } => source(link, &mut pieces),
        }
    }
}

#[cfg(test)]
mod tests;
