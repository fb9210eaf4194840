//! What descriptors refer to, as the options `-y` and `-yy` of strace show it.

use foldhash::HashMap;

use super::{call::digits, notation::find};
use crate::descriptor::Descriptor;

/// Most objects whose kind is remembered. What the log shows of later ones alone does not say it.
const REMEMBERED: usize = 1 << 18;

/// Longest name of a remembered object, in bytes: the longest path.
const PATH_MAX: usize = 4096;

/// An object that a descriptor refers to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub kind: Descriptor,
    /// Its inode, or with `-yy` a number made of the addresses of the socket, or the number of the device; 0
    /// if the log has none of them.
    pub inode: u64,
}

/// The kinds of objects that earlier calls showed: `-y` shows the inode of a socket and the path of a
/// directory, and their kind only in the call that creates or reads them.
#[derive(Debug, Default)]
pub(super) struct Objects {
    kinds: HashMap<Box<[u8]>, Descriptor>,
}

impl Objects {
    /// Returns the object of a descriptor from what strace shows between the angle brackets.
    pub fn object(&self, text: &[u8]) -> Object {
        let (name, inside) = match find(text, b":") {
            Some(colon) => (&text[..colon], text[colon + 1..].trim_ascii()),
            None => (text, &b""[..]),
        };
        let inode = inside.strip_prefix(b"[").and_then(leading_number).unwrap_or_default();
        let learned = || self.kinds.get(text).copied();
        match (name, protocol(name)) {
            (b"pipe", _) => Object { kind: Descriptor::Pipe, inode },
            (b"socket", _) => Object { kind: learned().unwrap_or(Descriptor::Unknown), inode },
            (b"anon_inode", _) => Object { kind: anonymous(inside), inode: 0 },
            (b"signalfd", _) => Object { kind: Descriptor::Signalfd, inode: 0 },
            (_, Some(kind)) => Object { kind, inode: addressed(text, inside) },
            (_, None) => device(text)
                .unwrap_or_else(|| Object { kind: learned().unwrap_or_else(|| of_path(text)), inode: 0 }),
        }
    }

    /// Remembers the kind of an object.
    pub fn learn(&mut self, text: &[u8], kind: Descriptor) {
        if self.object(text).kind == kind {
            return;
        }
        let has_room = self.kinds.len() < REMEMBERED && text.len() <= PATH_MAX;
        if let Some(learned) = self.kinds.get_mut(text) {
            *learned = kind;
        } else if has_room {
            self.kinds.insert(text.into(), kind);
        }
    }
}

/// Returns the kind of what has a path, as far as the path says it.
fn of_path(path: &[u8]) -> Descriptor {
    let is_in = |directory: &[u8]| path.starts_with(directory);
    match path.first() {
        Some(b'/') if is_in(b"/dev/") && !is_in(b"/dev/shm/") => Descriptor::Unknown,
        Some(b'/') => Descriptor::File,
        // A pidfd, `pid:7`, and others.
        _ => Descriptor::Anonymous,
    }
}

/// Returns the kind of the socket that a call creates, by its domain and its type.
pub(super) fn of_domain(domain: u64, socket_type: u64) -> Descriptor {
    const TYPES: u64 = 0xf;
    let domain = libc::c_int::try_from(domain).unwrap_or(-1);
    let socket_type = libc::c_int::try_from(socket_type & TYPES).unwrap_or(-1);
    match (domain, socket_type) {
        (libc::AF_INET, libc::SOCK_STREAM) => Descriptor::Tcp4,
        (libc::AF_INET6, libc::SOCK_STREAM) => Descriptor::Tcp6,
        (libc::AF_INET, libc::SOCK_DGRAM) => Descriptor::Udp4,
        (libc::AF_INET6, libc::SOCK_DGRAM) => Descriptor::Udp6,
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_RAW) => Descriptor::Raw,
        (libc::AF_UNIX, libc::SOCK_DGRAM) => Descriptor::UnixDatagram,
        (libc::AF_UNIX, _) => Descriptor::UnixStream,
        (libc::AF_NETLINK, _) => Descriptor::Netlink,
        _ => Descriptor::Socket,
    }
}

/// Returns the kind of a connection that was accepted, by the family of the address of its peer.
pub(super) fn of_peer(family: u64) -> Descriptor {
    of_domain(family, u64::from(libc::SOCK_STREAM.cast_unsigned()))
}

/// Returns the kind of a socket by the name with which `-yy` shows it.
fn protocol(name: &[u8]) -> Option<Descriptor> {
    Some(match name {
        b"TCP" => Descriptor::Tcp4,
        b"TCPv6" => Descriptor::Tcp6,
        b"UDP" => Descriptor::Udp4,
        b"UDPv6" => Descriptor::Udp6,
        b"UNIX" | b"UNIX-STREAM" | b"UNIX-SEQPACKET" => Descriptor::UnixStream,
        b"UNIX-DGRAM" => Descriptor::UnixDatagram,
        b"NETLINK" => Descriptor::Netlink,
        b"RAW" | b"RAWv6" | b"PING" | b"PINGv6" => Descriptor::Raw,
        b"SCTP" | b"SCTPv6" | b"L2TP/IP" | b"L2TP/IPv6" | b"UDPLITE" | b"UDPLITEv6" | b"DCCP" | b"DCCPv6" => {
            Descriptor::Socket
        }
        _ => return None,
    })
}

/// Returns the kind of an anonymous inode.
fn anonymous(name: &[u8]) -> Descriptor {
    match name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name) {
        b"eventfd" => Descriptor::Eventfd,
        b"eventpoll" => Descriptor::Epoll,
        b"timerfd" => Descriptor::Timerfd,
        b"signalfd" => Descriptor::Signalfd,
        b"inotify" => Descriptor::Inotify,
        b"io_uring" => Descriptor::IoUring,
        _ => Descriptor::Anonymous,
    }
}

/// Returns the kind of a file by its mode as `stat` returns it, `{st_mode=S_IFDIR|0755, ...}`.
pub(super) fn of_mode(status: &[u8]) -> Option<Descriptor> {
    let mode = &status[find(status, b"_mode=")? + b"_mode=".len()..];
    match mode.get(..b"S_IFDIR".len())? {
        b"S_IFDIR" => Some(Descriptor::Directory),
        b"S_IFCHR" => Some(Descriptor::CharacterDevice),
        b"S_IFBLK" => Some(Descriptor::BlockDevice),
        b"S_IFIFO" => Some(Descriptor::Pipe),
        b"S_IFREG" => Some(Descriptor::File),
        _ => None,
    }
}

/// Returns the device with a path, after which `-yy` shows its numbers, `/dev/null<char 1:3>`. Those of some
/// paths are always the same.
fn device(path: &[u8]) -> Option<Object> {
    const CHARACTER: Descriptor = Descriptor::CharacterDevice;
    let shown = |name: &[u8], kind| {
        let numbers = path[find(path, name)? + name.len()..].strip_suffix(b">")?;
        let (major, minor) = numbers.split_at_checked(find(numbers, b":")?)?;
        Some((kind, digits(major)?, digits(&minor[1..])?))
    };
    let known = || match path {
        b"/dev/null" => Some((CHARACTER, 1, 3)),
        b"/dev/zero" => Some((CHARACTER, 1, 5)),
        b"/dev/full" => Some((CHARACTER, 1, 7)),
        b"/dev/random" => Some((CHARACTER, 1, 8)),
        b"/dev/urandom" => Some((CHARACTER, 1, 9)),
        b"/dev/tty" => Some((CHARACTER, 5, 0)),
        b"/dev/ptmx" => Some((CHARACTER, 5, 2)),
        _ => None,
    };
    let found =
        shown(b"<char ", CHARACTER).or_else(|| shown(b"<block ", Descriptor::BlockDevice)).or_else(known);
    // The number as the kernel has it.
    let number = |major: u64, minor: u64| (major & 0xfff) << 20 | minor & 0xf_ffff;
    found.map(|(kind, major, minor)| Object { kind, inode: number(major, minor) })
}

/// Returns the inode of a socket without an address, or a number made of its addresses.
fn addressed(text: &[u8], inside: &[u8]) -> u64 {
    let inode = inside.strip_prefix(b"[").and_then(leading_number);
    let is_alone = |number: &u64| inside.len() == number.to_string().len() + 2;
    inode.filter(is_alone).unwrap_or_else(|| {
        // FNV-1a. The highest bit tells it from an inode.
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash | 1 << 63
    })
}

/// Returns the decimal number with which the text begins.
fn leading_number(text: &[u8]) -> Option<u64> {
    digits(&text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()])
}
