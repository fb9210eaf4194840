//! The least that a proxy does: passes bytes between each client and a connection of its own to the server,
//! in one thread, with one `epoll_wait`, one read and one write for each message. What another proxy adds
//! beyond that is its own.
//!
//!     bare 127.0.0.1:6432 /run/postgresql/.s.PGSQL.5432

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Parser;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// Passes bytes between clients and a server.
#[derive(Debug, Parser)]
struct Args {
    /// Where it listens.
    listen: SocketAddr,
    /// Unix socket of the server.
    to: PathBuf,
}

/// The token of the listener. Those of the sockets are their numbers.
const LISTENER: u64 = u64::MAX;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let listener = TcpListener::bind(args.listen)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    // Each client is followed by its connection to the server.
    let mut sockets: Vec<Option<File>> = Vec::new();
    let mut events = Vec::with_capacity(256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            if event.data.u64() == LISTENER {
                let (client, _) = listener.accept()?;
                client.set_nodelay(true)?;
                let server = UnixStream::connect(&args.to)?;
                for socket in [OwnedFd::from(client), server.into()] {
                    epoll::add(&epoll, &socket, EventData::new_u64(sockets.len() as u64), EventFlags::IN)?;
                    sockets.push(Some(socket.into()));
                }
                continue;
            }
            let number = usize::try_from(event.data.u64())?;
            let other = number ^ 1;
            let Some(from) = &mut sockets[number] else { continue };
            let length = from.read(&mut buffer).unwrap_or(0);
            let is_passed = sockets[other].as_mut().is_some_and(|to| to.write_all(&buffer[..length]).is_ok());
            if length == 0 || !is_passed {
                // The end of either one ends both.
                (sockets[number], sockets[other]) = (None, None);
            }
        }
    }
}
