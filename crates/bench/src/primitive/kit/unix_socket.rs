//! Unix stream sockets with a name in the file system: a listener and connections to it (lmbench 3,
//! `lat_unix_connect`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net;
use std::path::Path;

use tempfile::NamedTempFile;

use super::endpoint::Endpoint;
use crate::benchmark::Refusal;
use crate::platform::kernel::{check, own, size_of_u32};

/// A listening socket, whose name is removed on drop.
#[derive(Debug)]
pub(crate) struct UnixListener {
    listener: NamedTempFile<net::UnixListener>,
    address: libc::sockaddr_un,
}

const ADDRESS_BYTES: u32 = size_of_u32::<libc::sockaddr_un>();

impl UnixListener {
    /// Listens under a new name in this directory, with a queue for `backlog` waiting connections.
    pub(crate) fn open(directory: &Path, backlog: i32) -> Result<Self, Refusal> {
        let named = tempfile::Builder::new()
            .prefix("socket-")
            .make_in(directory, |path| net::UnixListener::bind(path));
        let listener = named.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Refusal::Unavailable(format!(
                "the name of a Unix socket must have fewer than 108 bytes, and one in {} is longer; choose a \
                 shorter TMPDIR",
                directory.display()
            )),
            _ => Refusal::Failed(error),
        })?;
        // Calling listen again only changes the length of the queue.
        rustix::net::listen(listener.as_file(), backlog).map_err(io::Error::from)?;
        listener.as_file().set_nonblocking(true)?;
        let address = address(listener.path())?;
        Ok(Self { listener, address })
    }
}

/// Returns the address of a path, as the socket calls take it.
fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: zeroes are a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = FAMILY;
    let name = path.as_os_str().as_bytes();
    // The last byte is reserved for the terminating zero.
    if name.len() >= address.sun_path.len() {
        return Err(io::Error::other(format!("{} is too long for a Unix socket", path.display())));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    Ok(address)
}

#[expect(clippy::cast_possible_truncation, reason = "AF_UNIX is 1")]
const FAMILY: libc::sa_family_t = libc::AF_UNIX as libc::sa_family_t;

impl Endpoint for UnixListener {
    #[inline]
    fn connect(&self) -> io::Result<OwnedFd> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        let socket = own("socket", fd)?;
        // SAFETY: the pointer is to an address of the length given.
        let result =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const self.address).cast(), ADDRESS_BYTES) };
        check("connect", result)?;
        Ok(socket)
    }

    #[inline]
    fn accept(&self) -> io::Result<OwnedFd> {
        let listener = self.listener.as_file().as_raw_fd();
        let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: without a pointer to an address, the call takes numbers only.
        own("accept4", unsafe { libc::accept4(listener, address, length, libc::SOCK_CLOEXEC) })
    }

    /// A Unix connection waits as soon as `connect` has returned. The kernel does not report the number of
    /// waiting connections; it is checked when they are accepted.
    fn until_waiting(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn check_none_waits(&self) -> io::Result<()> {
        match self.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other("a connection is still waiting that should have been accepted")),
        }
    }

    /// A Unix connection uses no segments that could be lost; accepting it shows that it was established.
    fn check_made(_: &OwnedFd) -> io::Result<()> {
        Ok(())
    }

    fn end(client: OwnedFd) -> io::Result<()> {
        drop(client);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_rejected_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("x".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let Err(Refusal::Unavailable(reason)) = UnixListener::open(&deep, 1) else {
            panic!("a name of more than 108 bytes was accepted")
        };
        assert!(reason.contains("fewer than 108 bytes") && reason.contains("shorter TMPDIR"), "{reason}");
    }

    #[test]
    fn the_name_is_removed_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::open(directory.path(), 1).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        drop(listener);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_connection_that_still_waits_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::open(directory.path(), 1).unwrap();
        listener.check_none_waits().unwrap();
        let _client = listener.connect().unwrap();
        assert!(listener.check_none_waits().unwrap_err().to_string().contains("should have been accepted"));
    }
}
