//! The other host of a measurement between two: it gives back messages and datagrams, takes and gives bytes, and
//! accepts connections, for whoever asks in the protocol of the module `protocol`.
//!
//! `assay bench --serve` calls it; the rows with `peer=remote` ask. One process answers many at a time. Everything
//! about an asker is bounded: how many there are, what they can make this host hold, and how long it waits for
//! them. There is no authentication: it is for networks whose hosts may all take up this host's time, and it
//! reads and writes no file.

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
use crate::clock::monotonic;
use crate::primitive::pieces::Pieces;

/// The port where nobody names another: below those that kernels give out by themselves.
pub const PORT: u16 = 7325;

/// Connections that have not asked yet; more stay in the kernel's queue.
const ASKERS_MAX: usize = 256;

/// Connections whose request was granted; more are refused. Each has a thread and one piece of memory.
const SESSIONS_MAX: usize = 64;

/// How long a connection may take to ask.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// How often the server looks whether it shall stop, and who has waited too long.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Errors of `accept` that are of the connection which it would have returned (accept(2)), or of nobody.
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

/// What a server has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those of them whose request was granted.
    pub granted: u64,
    /// Those whose request was refused, or did not come in time.
    pub refused: u64,
    /// Granted ones that did not end as the protocol has it: broken off, idle or against the rules.
    pub broken: u64,
}

/// A server that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum CannotServe {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}; give another ADDRESS:PORT to --serve")]
    Bind(SocketAddr, io::Error),
    /// The listening socket failed.
    #[error("cannot go on serving: {0}; start 'assay bench --serve' again")]
    Listen(io::Error),
}

impl Server {
    /// Binds to an address; port 0 takes any that is free.
    ///
    /// # Errors
    /// [`CannotServe::Bind`].
    pub fn bind(address: SocketAddr) -> Result<Self, CannotServe> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind().map_err(|error| CannotServe::Bind(address, error))
    }

    /// Where it can be reached.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true; the sessions that are under way then end within a fraction of a second.
    ///
    /// # Errors
    /// [`CannotServe::Listen`]. What goes wrong with one connection ends that one.
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

    /// Waits until somebody does something, or a moment has passed, and looks at everybody.
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

/// A connection that has not asked yet.
struct Asker {
    connection: TcpStream,
    line: [u8; LINE_MAX],
    come: usize,
    since_ns: u64,
}

/// What a look at an asker shows.
enum Look {
    Waits,
    Gone,
    Asks(Request),
    Bad(String),
}

impl Asker {
    /// `None` for a connection that is broken already.
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
                Look::Bad(format!("no request came within {} s", ASK_WITHIN.as_secs()))
            }
            Line::Unfinished => Look::Waits,
        }
    }
}

/// Says why not, in one line, if anybody still listens. Nothing was sent before, so this never waits.
fn refuse(mut connection: &TcpStream, reason: &str) {
    let _ = connection.write_all(format!("{REFUSED}{reason}\n").as_bytes());
}

/// Grants what ends with being granted.
fn grant(mut connection: &TcpStream) {
    let _ = connection.write_all(format!("{OK}\n").as_bytes());
}

/// What the sessions have in common.
struct Sessions<'a> {
    stop: &'a AtomicBool,
    running: AtomicUsize,
    broken: AtomicU64,
}

impl Sessions<'_> {
    /// Makes a session ready, or says why not.
    fn begin(&self, connection: &TcpStream, session: Session) -> Result<Work, String> {
        // Only the thread that calls this adds to the number.
        if self.running.load(Ordering::Acquire) >= SESSIONS_MAX {
            return Err(format!(
                "{SESSIONS_MAX} sessions are under way here, which is as many as there may be"
            ));
        }
        Work::prepare(connection, session).map_err(|error| format!("this host cannot do it: {error}"))
    }

    /// Runs a session in a thread of its own, to its end.
    fn run<'scope>(&'scope self, connection: TcpStream, work: Work, scope: &'scope Scope<'scope, '_>) {
        self.running.fetch_add(1, Ordering::AcqRel);
        let run = move || {
            let end = Link::new(connection, self.stop).map_or_else(End::Failed, |link| work.run(&link));
            self.ended(&end);
        };
        // Without a thread the connection ends before it was granted, which the asker cannot take for a success.
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

/// A session that has all that it needs.
enum Work {
    Echo { size: usize },
    Datagrams { socket: UdpSocket, size: usize },
    Sink { pieces: Pieces },
    Source { pieces: Pieces },
}

impl Work {
    fn prepare(connection: &TcpStream, session: Session) -> io::Result<Self> {
        // Sessions differ in their layout as samples do.
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
