//! TCP over the loopback interface: a listener, connections to it, and their ends; also reading from and
//! writing to any socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::platform::kernel::{self, check, expect, failed, own, set_option, size_of_u32};

/// A listening socket on the loopback address with a port of the kernel's choice.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: libc::sockaddr_in,
}

const ADDRESS_BYTES: u32 = size_of_u32::<libc::sockaddr_in>();

impl Listener {
    /// Listens with a queue for `backlog` connections that wait to be accepted.
    pub(crate) fn open(backlog: i32) -> io::Result<Self> {
        Self::with_buffers(backlog, None)
    }

    /// The same as [`open`](Self::open), but requests `bytes` of buffer for accepted sockets before the
    /// window scale is fixed.
    pub(crate) fn with_buffers(backlog: i32, bytes: Option<i32>) -> io::Result<Self> {
        let socket = stream_socket()?;
        if let Some(bytes) = bytes {
            enlarge(socket.as_fd(), bytes)?;
        }
        // SAFETY: zeroes are a valid `sockaddr_in`.
        let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = ADDRESS_FAMILY;
        address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
        let mut length = ADDRESS_BYTES;
        let fd = socket.as_raw_fd();
        // SAFETY: the pointers are to locals of the lengths given, which outlive the calls.
        unsafe {
            check("bind", libc::bind(fd, (&raw const address).cast(), length))?;
            check("listen", libc::listen(fd, backlog))?;
            check("getsockname", libc::getsockname(fd, (&raw mut address).cast(), &raw mut length))?;
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, address })
    }

    #[cfg(test)]
    pub(crate) fn port(&self) -> u16 {
        u16::from_be(self.address.sin_port)
    }

    /// Connects a new socket.
    #[inline]
    pub(crate) fn connect(&self) -> io::Result<OwnedFd> {
        let socket = stream_socket()?;
        self.connect_from(&socket)?;
        Ok(socket)
    }

    #[inline]
    fn connect_from(&self, socket: &OwnedFd) -> io::Result<()> {
        // SAFETY: the pointer is to an address of the length given.
        let result =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const self.address).cast(), ADDRESS_BYTES) };
        check("connect", result).map(drop)
    }

    /// Accepts a waiting connection. Fails immediately if there is none.
    #[inline]
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        own("accept4", self.accepted())
    }

    /// Calls `accept4` and returns its result.
    #[inline]
    pub(crate) fn accepted(&self) -> RawFd {
        let mut address = MaybeUninit::<libc::sockaddr_in>::uninit();
        let mut length = ADDRESS_BYTES;
        // SAFETY: the pointers are to locals of the length given, which outlive the call.
        unsafe {
            libc::accept4(
                self.socket.as_raw_fd(),
                address.as_mut_ptr().cast(),
                &raw mut length,
                libc::SOCK_CLOEXEC,
            )
        }
    }

    /// Returns both ends of a new connection that sends small pieces immediately.
    pub(crate) fn pair(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        self.pair_from(stream_socket()?)
    }

    /// The same as [`pair`](Self::pair), but requests `bytes` of buffer for the connecting socket.
    pub(crate) fn pair_with_buffers(&self, bytes: i32) -> io::Result<(OwnedFd, OwnedFd)> {
        let socket = stream_socket()?;
        enlarge(socket.as_fd(), bytes)?;
        self.pair_from(socket)
    }

    fn pair_from(&self, here: OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
        self.connect_from(&here)?;
        self.until_waiting(1)?;
        let there = self.accept()?;
        for end in [&here, &there] {
            set_option(end.as_fd(), NO_DELAY, 1)?;
        }
        Ok((here, there))
    }

    /// Waits until this many connections wait to be accepted, which takes almost no time on the loopback
    /// interface.
    pub(crate) fn until_waiting(&self, connections: u64) -> io::Result<()> {
        let mut waiting = 0;
        for _ in 0..ATTEMPTS {
            waiting = self.waiting()?;
            if waiting == connections {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(io::Error::other(format!("{connections} connections should wait for accept, but {waiting} do")))
    }

    /// Returns the number of connections that wait to be accepted: for a listening socket, the kernel reports
    /// it in the field of unacknowledged segments.
    fn waiting(&self) -> io::Result<u64> {
        Ok(tcp_info(self.socket.as_fd())?.tcpi_unacked.into())
    }
}

/// Writes all the bytes with one `write`.
#[inline]
pub(crate) fn write(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of a slice.
    let sent = unsafe { libc::write(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    expect("write", sent, bytes.len())
}

/// Reads the available bytes with one `read`, which waits until there are any. Fails at the end of the
/// connection.
#[inline]
pub(crate) fn read(socket: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
    let got = unsafe { libc::read(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
    match usize::try_from(got) {
        Ok(0) => Err(ended()),
        Ok(got) => Ok(got),
        Err(_) => Err(failed("read")),
    }
}

/// Calls `read` until the buffer is full.
#[inline]
pub(crate) fn read_all(socket: &OwnedFd, into: &mut [u8]) -> io::Result<()> {
    let mut got = 0;
    while got < into.len() {
        got += read(socket, &mut into[got..])?;
    }
    Ok(())
}

#[cold]
fn ended() -> io::Error {
    io::Error::other("read: the other side has closed the connection")
}

/// Returns the bytes of the longest segment that a connection sends.
pub(crate) fn segment_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    usize::try_from(tcp_info(socket)?.tcpi_snd_mss).map_err(io::Error::other)
}

/// Checks that a connection is established and no segment of it was retransmitted. Otherwise the measured
/// time is that of the kernel's timer for lost segments, which is what lmbench's connect figure consists of.
pub(crate) fn check_sent_once(socket: BorrowedFd<'_>) -> io::Result<()> {
    let info = tcp_info(socket)?;
    if info.tcpi_state != ESTABLISHED {
        let state = info.tcpi_state;
        return Err(io::Error::other(format!("a connection is in TCP state {state}, not established")));
    }
    match info.tcpi_total_retrans {
        0 => Ok(()),
        times => Err(io::Error::other(format!(
            "the kernel retransmitted {times} segments of a connection, so its timer would be measured"
        ))),
    }
}

/// `TCP_ESTABLISHED` of the kernel's `net/tcp_states.h`.
const ESTABLISHED: u8 = 1;

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: zeroes are a valid `tcp_info`, which contains only numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_u32::<libc::tcp_info>();
    // SAFETY: the kernel writes at most `length` bytes into the local; an older kernel writes fewer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    check("getsockopt TCP_INFO", result)?;
    Ok(info)
}

/// Number of checks of [`Listener::until_waiting`], a millisecond apart.
const ATTEMPTS: u32 = 200;

#[expect(clippy::cast_possible_truncation, reason = "AF_INET is 2")]
const ADDRESS_FAMILY: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;

/// The option that sends small pieces immediately.
pub(crate) const NO_DELAY: (libc::c_int, libc::c_int) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);

#[inline]
fn stream_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    own("socket", unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
}

/// A buffer that holds several of the largest transfers, including the kernel's overhead.
const ENOUGH: i32 = 1 << 20;

/// Requests buffers beyond the system's limit. Without the privilege, requests what the limit grants if that
/// is enough; otherwise requests nothing, because the kernel's own tuning exceeds the limit.
fn enlarge(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    let both = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "/proc/sys/net/core/rmem_max"),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "/proc/sys/net/core/wmem_max"),
    ];
    for (force, ask, limit) in both {
        match set_option(socket, (libc::SOL_SOCKET, force), bytes) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let limit =
                    std::fs::read_to_string(limit).ok().and_then(|text| text.trim().parse::<i32>().ok());
                if let Some(granted) =
                    limit.map(|limit| limit.min(bytes)).filter(|granted| *granted >= ENOUGH)
                {
                    set_option(socket, (libc::SOL_SOCKET, ask), granted)?;
                }
            }
            result => result?,
        }
    }
    Ok(())
}

/// Closes a connection with a reset, so that neither side waits for old segments afterwards. A run creates
/// more connections than there are ports that could be left waiting.
pub(crate) fn reset(socket: OwnedFd) -> io::Result<()> {
    reset_on_close(socket.as_fd())
}

/// Makes a later `close` send a reset.
pub(crate) fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the pointer and the length describe a local that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_u32::<libc::linger>(),
        )
    };
    check("setsockopt SO_LINGER", result).map(drop)
}

/// Returns the number of connections that the listening queue and this process's descriptor limit allow.
pub(crate) fn connections_max() -> u64 {
    /// Enough for batches of a few hundred microseconds; each further one takes 25 us to create and to
    /// remove.
    const WANTED: u64 = 128;
    /// Descriptors that the process uses for other purposes.
    const OTHERS: u64 = 64;
    let queue = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(128);
    let descriptors = kernel::raise_descriptor_limit().saturating_sub(OTHERS) / 2;
    WANTED.min(queue).min(descriptors)
}
