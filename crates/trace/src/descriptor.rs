//! The kind of object that a file descriptor refers to, as determined by the kernel during the call.
//!
//! The numbers are those of `enum descriptor_kind` in the probe's `record.h`; a test of the probe's crate
//! compares them.

use std::{fmt, str::FromStr};

/// Kind of a file descriptor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Descriptor {
    /// The call takes and returns no descriptor.
    #[default]
    None = 0,
    /// A descriptor that was not open.
    Bad,
    /// A regular file, also a `memfd`.
    File,
    /// A directory.
    Directory,
    /// A character device: terminals, `/dev/null`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A pipe or a FIFO.
    Pipe,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// A Unix stream or sequenced-packet socket.
    UnixStream,
    /// A Unix datagram socket.
    UnixDatagram,
    /// A netlink socket.
    Netlink,
    /// A raw IP socket.
    Raw,
    /// A socket of another family or protocol.
    Socket,
    /// An event counter.
    Eventfd,
    /// An epoll set.
    Epoll,
    /// A timer.
    Timerfd,
    /// A signal queue.
    Signalfd,
    /// An inotify queue.
    Inotify,
    /// An `io_uring` instance.
    IoUring,
    /// Another anonymous inode: pidfd, userfaultfd, BPF objects and so on.
    Anonymous,
    /// Not recorded: a log without `-y` does not say what a descriptor refers to.
    Unknown,
}

/// Every kind with its user-visible name, sorted by number.
pub const DESCRIPTORS: [(Descriptor, &str); 24] = [
    (Descriptor::None, "none"),
    (Descriptor::Bad, "bad"),
    (Descriptor::File, "file"),
    (Descriptor::Directory, "directory"),
    (Descriptor::CharacterDevice, "chardev"),
    (Descriptor::BlockDevice, "blockdev"),
    (Descriptor::Pipe, "pipe"),
    (Descriptor::Tcp4, "tcp4"),
    (Descriptor::Tcp6, "tcp6"),
    (Descriptor::Udp4, "udp4"),
    (Descriptor::Udp6, "udp6"),
    (Descriptor::UnixStream, "unix-stream"),
    (Descriptor::UnixDatagram, "unix-dgram"),
    (Descriptor::Netlink, "netlink"),
    (Descriptor::Raw, "raw"),
    (Descriptor::Socket, "socket"),
    (Descriptor::Eventfd, "eventfd"),
    (Descriptor::Epoll, "epoll"),
    (Descriptor::Timerfd, "timerfd"),
    (Descriptor::Signalfd, "signalfd"),
    (Descriptor::Inotify, "inotify"),
    (Descriptor::IoUring, "io_uring"),
    (Descriptor::Anonymous, "anonymous"),
    (Descriptor::Unknown, "unknown"),
];

impl Descriptor {
    /// Returns the kind with this number; `None` if there is none.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        DESCRIPTORS.get(usize::from(number)).map(|(kind, _)| *kind)
    }

    /// Returns the number in `record.h`.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the user-visible name.
    #[must_use]
    pub fn name(self) -> &'static str {
        DESCRIPTORS[usize::from(self as u8)].1
    }

    /// Returns true for a socket.
    #[must_use]
    pub fn is_socket(self) -> bool {
        self.is_conversation() || matches!(self, Self::Netlink | Self::Raw | Self::Socket)
    }

    /// Returns true for a socket over which programs exchange messages: TCP, UDP and Unix sockets.
    #[must_use]
    pub fn is_conversation(self) -> bool {
        matches!(self, Self::Udp4 | Self::Udp6 | Self::UnixStream | Self::UnixDatagram) || self.is_tcp()
    }

    /// Returns true for a socket without boundaries between messages, whose end can be read.
    #[must_use]
    pub fn is_stream(self) -> bool {
        self == Self::UnixStream || self.is_tcp()
    }

    /// Returns true for TCP over IPv4 or IPv6.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Tcp6)
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown kind of descriptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a kind of descriptor; use for example file, pipe, tcp4 or epoll")]
pub struct NotADescriptor(String);

impl FromStr for Descriptor {
    type Err = NotADescriptor;

    fn from_str(text: &str) -> Result<Self, NotADescriptor> {
        DESCRIPTORS
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(kind, _)| *kind)
            .ok_or_else(|| NotADescriptor(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_at_its_number_and_its_name_parses() {
        for (position, (kind, name)) in DESCRIPTORS.iter().enumerate() {
            assert_eq!(usize::from(kind.number()), position, "{name}");
            assert_eq!(Descriptor::from_number(kind.number()), Some(*kind));
            assert_eq!(name.parse(), Ok(*kind));
        }
        assert_eq!(Descriptor::from_number(24), None);
        assert!("tcp".parse::<Descriptor>().is_err());
    }
}
