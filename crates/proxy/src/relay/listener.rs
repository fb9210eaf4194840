//! New connections: from clients, and to the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::AttachReusePortCbpf;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, getsockname, ipproto,
    listen, socket_with, sockopt,
};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// At an address of the network.
    Tcp(SocketAddr),
    /// At a socket in the file system.
    Unix(PathBuf),
}

/// A relay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum NoRelay {
    /// It cannot listen.
    #[error("cannot listen at {address}: {error}; give another address")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// It cannot make keys that others cannot guess.
    #[error("the kernel gives no random bytes: {0}")]
    Random(io::Error),
    /// It cannot wait for events.
    #[error("cannot wait for clients: {0}")]
    Events(io::Error),
}

/// Whether a process listens at an address instead of another one, which goes on with the connections that it
/// has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// All new connections come to this one, if no third one listens. If it ends, they come to the other one
    /// again.
    Yes,
    /// Only one process listens there.
    No,
}

/// A socket at which clients arrive.
#[derive(Debug)]
pub struct Listener {
    /// `None` after it was closed.
    socket: Option<OwnedFd>,
    address: SocketAddr,
    paused: bool,
}

/// What came.
pub enum Accepted {
    Client(OwnedFd),
    /// No further client.
    None,
    /// There is one, and no room for it. It is tried again later.
    NoRoom {
        for_the_first_time: bool,
    },
}

/// Sockets never block, and end with this process.
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Clients that the kernel may accept before the relay does. The kernel has a limit of its own
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Time without a message after which the kernel asks whether the other end is still there, unless something
/// that was sent is not confirmed. Its session may hold locks; the default is two hours.
const SILENCE: Duration = Duration::from_secs(60);

/// Questions without an answer after which it is not, and the time between them: a minute in all.
const PROBES: u32 = 6;
const BETWEEN_PROBES: Duration = Duration::from_secs(10);

impl Listener {
    pub fn bind(address: SocketAddr, take_over: TakeOver) -> Result<Self, NoRelay> {
        let bound = || {
            let socket = listen_at(address, take_over)?;
            // The port may have been chosen by the kernel.
            let address = getsockname(&socket)?.try_into()?;
            Ok(Self { socket: Some(socket), address, paused: false })
        };
        bound().map_err(|errno: Errno| NoRelay::Listen { address, error: errno.into() })
    }

    /// Reports clients that come as events.
    pub fn register(&self, epoll: &OwnedFd, token: EventData) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        epoll::add(epoll, socket, token, EventFlags::IN | EventFlags::ET)
    }

    /// Accepts no further client.
    pub fn close(&mut self) {
        self.socket = None;
        self.paused = false;
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether clients wait that could not be accepted.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub fn accept(&mut self) -> Accepted {
        let Some(socket) = &self.socket else { return Accepted::None };
        loop {
            return match accept_with(socket, FLAGS) {
                Ok(client) => {
                    // Answers are sent whole: waiting for more to send would only delay them. The client may
                    // be gone already, which its first reading shows.
                    let _ = sockopt::set_tcp_nodelay(&client, true);
                    let _ = keep_alive(&client);
                    Accepted::Client(client)
                }
                Err(Errno::AGAIN) => {
                    self.paused = false;
                    Accepted::None
                }
                // The client has given up.
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => {
                    let for_the_first_time = !std::mem::replace(&mut self.paused, true);
                    Accepted::NoRoom { for_the_first_time }
                }
            };
        }
    }
}

/// Listens at an address.
///
/// # Errors
/// If that is not possible; without [`TakeOver::Yes`], also if another process listens there.
pub fn listen_at(address: SocketAddr, take_over: TakeOver) -> Result<OwnedFd, Errno> {
    let socket = stream(family(address))?;
    // A listener that was there before may have left connections that are closing.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if take_over == TakeOver::Yes {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    match take_over {
        // Only now, so that two processes can not share an address by mistake.
        TakeOver::No => sockopt::set_socket_reuseport(&socket, true)?,
        TakeOver::Yes => select(&socket, 1)?,
    }
    Ok(socket)
}

/// Has the kernel give all new connections to one of the sockets that listen at the address of this one, by
/// the order in which they began: the first one is number 0. If there is none with this number, it spreads
/// them over all.
fn select(socket: &OwnedFd, number: u32) -> Result<(), Errno> {
    let code = (libc::BPF_RET | libc::BPF_K).try_into().expect("the code of an instruction is short");
    let mut program = [libc::sock_filter { code, jt: 0, jf: 0, k: number }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    setsockopt(socket, AttachReusePortCbpf, &program).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

impl Server {
    /// Whether it is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Begins to connect. What is sent before it is connected is sent then.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let (socket, connected) = match self {
            Self::Tcp(address) => {
                let socket = stream(family(*address))?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                keep_alive(&socket)?;
                let connected = connect(&socket, address);
                (socket, connected)
            }
            Self::Unix(path) => {
                let socket = stream(AddressFamily::UNIX)?;
                let connected = connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Has the kernel ask an end that is silent whether it is still there.
fn keep_alive(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, BETWEEN_PROBES)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let protocol = (family != AddressFamily::UNIX).then_some(ipproto::TCP);
    socket_with(family, SocketType::STREAM, FLAGS, protocol)
}
