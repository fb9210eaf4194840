//! New connections: from clients, and to the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

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

/// A socket at which clients arrive.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
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

impl Listener {
    pub fn bind(address: SocketAddr) -> Result<Self, NoRelay> {
        let bound = || {
            let socket = stream(family(address))?;
            // A listener that was there before may have left connections that are closing.
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &address)?;
            listen(&socket, BACKLOG)?;
            // The port may have been chosen by the kernel.
            let address = getsockname(&socket)?.try_into()?;
            Ok(Self { socket, address, paused: false })
        };
        bound().map_err(|errno: Errno| NoRelay::Listen { address, error: errno.into() })
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether clients wait that could not be accepted.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub fn accept(&mut self) -> Accepted {
        loop {
            return match accept_with(&self.socket, FLAGS) {
                Ok(client) => {
                    // Answers are sent whole: waiting for more to send would only delay them. The client may
                    // be gone already, which its first reading shows.
                    let _ = sockopt::set_tcp_nodelay(&client, true);
                    // A host that has vanished is noticed some time.
                    let _ = sockopt::set_socket_keepalive(&client, true);
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

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let protocol = (family != AddressFamily::UNIX).then_some(ipproto::TCP);
    socket_with(family, SocketType::STREAM, FLAGS, protocol)
}
