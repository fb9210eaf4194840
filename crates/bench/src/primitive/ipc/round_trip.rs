//! A message to another process and back: pipes, named pipes, sockets and event counters (lmbench, 1996,
//! section 6.7).
//!
//! Every message contains a token that differs from the previous one, and the same token must come back.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use assay_quantity::{PrimitiveId, Size};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::layout::Buffer;
use crate::platform::partner::Partner;
use crate::primitive::kit::duplex::{End, one_pipe};
use crate::primitive::kit::limit;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::socket::Listener;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["pipe.round_trip{size=1B,cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "`size` bytes to another process and back, through two pipes",
        source: "lmbench 1996, section 6.7",
        prepare: pipes,
    },
    Row {
        quick: &["fifo.round_trip{size=1B,cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "`size` bytes to another process and back, through two named pipes",
        source: "lmbench 3, lat_fifo, which never ends",
        prepare: fifos,
    },
    Row {
        quick: &["unix.round_trip{size=1B,cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "`size` bytes to another process and back, through Unix stream sockets",
        source: "lmbench 3, lat_unix",
        prepare: unix,
    },
    Row {
        quick: &["tcp.round_trip{size=1B,cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "`size` bytes to another process and back, through TCP over loopback with `TCP_NODELAY`",
        source: "lmbench 1996, section 6.7",
        prepare: tcp,
    },
    Row {
        quick: &["eventfd.round_trip{cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "a count to another process and back, through two event counters",
        source: "own: how event loops wake each other",
        prepare: eventfds,
    },
];

/// The longest message. Longer ones are bulk transfers.
const MESSAGE_MAX: Size = Size::mib(16);

/// Prepares messages through two pipes.
fn pipes(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    messages(id, setting, pipe_ends()?)
}

/// Prepares messages through two named pipes. Only their names are on the file system; the bytes are in the
/// kernel.
fn fifos(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (forth, back) = (fifo(&setting.directory, "forth")?, fifo(&setting.directory, "back")?);
    messages(id, setting, End::of_two_channels(forth, back))
}

/// Prepares messages through a pair of Unix stream sockets.
fn unix(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io::Error::from)?;
    messages(id, setting, (End::of_socket(here)?, End::of_socket(there)?))
}

/// Prepares messages through a TCP connection over the loopback interface.
fn tcp(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (here, there) = Listener::open(1)?.pair()?;
    messages(id, setting, (End::of_socket(here)?, End::of_socket(there)?))
}

/// Prepares messages through two event counters, whose value is the message.
fn eventfds(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let channel = || -> io::Result<(OwnedFd, OwnedFd)> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok((counter.try_clone()?, counter))
    };
    prepare(id, setting, size_of::<u64>(), End::of_two_channels(channel()?, channel()?))
}

fn messages(id: &PrimitiveId, setting: &mut Setting, ends: (End, End)) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=MESSAGE_MAX)?;
    prepare(id, setting, size, ends)
}

fn prepare(
    id: &PrimitiveId,
    setting: &mut Setting,
    size: usize,
    (here, there): (End, End),
) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let message = Buffer::new(size, &mut setting.rng)?;
    let mut copy = Buffer::new(size, &mut setting.rng)?;
    let partner = Partner::fork(cpu, || echo(&there, &mut copy))?;
    // The partner has its own copy. Without ours, the exit of the partner ends the stream.
    drop(there);
    let sharing = sharing(setting, cpu, &partner);
    let round_trip = RoundTrip { here, message, token: 0, _partner: partner };
    Ok(Prepared { operation: Box::new(Steps::of(round_trip)), baseline: None, sharing })
}

/// Runs the partner: returns each message until the stream ends.
fn echo(end: &End, message: &mut [u8]) -> libc::c_int {
    while end.read(message).is_ok() && end.write(message).is_ok() {}
    0
}

fn pipe_ends() -> io::Result<(End, End)> {
    Ok(End::of_two_channels(one_pipe()?, one_pipe()?))
}

/// Creates a named pipe, removes its name, and returns its input and output.
fn fifo(directory: &Path, direction: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let path = directory.join(format!("fifo-{direction}-{}", std::process::id()));
    let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the name is a C string.
    check("mkfifo", unsafe { libc::mkfifo(name.as_ptr(), 0o600) })?;
    let both = open_fifo(&path);
    std::fs::remove_file(&path)?;
    both
}

fn open_fifo(path: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    // Opening one end blocks until the other one is open, so the input is opened without blocking.
    let input = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let output = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::ioctl_fionbio(&input, false)?;
    Ok((input, output))
}

/// A message to the partner and back.
struct RoundTrip {
    here: End,
    message: Buffer,
    token: u8,
    _partner: Partner,
}

/// Tokens cycle from 1 to this value: none is zero, and each yields a number that is valid for an event
/// counter.
const TOKENS: u8 = 127;

impl RoundTrip {
    /// Writes the token to the first and the last byte of the message.
    #[inline]
    fn mark(&mut self, token: u8) {
        let last = self.message.len() - 1;
        self.message[0] = token;
        self.message[last] = token;
    }

    #[inline]
    fn check(&self) -> io::Result<()> {
        let came = (self.message[0], self.message[self.message.len() - 1]);
        if came == (self.token, self.token) { Ok(()) } else { Err(another_token(self.token, came)) }
    }
}

#[cold]
fn another_token(token: u8, came: (u8, u8)) -> io::Error {
    io::Error::other(format!("token {token} was sent, but {came:?} came back"))
}

impl Step for RoundTrip {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.token = self.token % TOKENS + 1;
        self.mark(self.token);
        self.here.write(&self.message)?;
        self.mark(0);
        self.here.read(&mut self.message)?;
        self.check()
    }

    /// `step` has already checked that every token came back.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Operation;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn round_trip(
        size: usize,
        (here, there): (End, End),
        partner: fn(&End, &mut [u8]) -> libc::c_int,
    ) -> Steps<RoundTrip> {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let message = Buffer::new(size, &mut rng).unwrap();
        let mut copy = Buffer::new(size, &mut rng).unwrap();
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let partner = Partner::fork(cpu, || partner(&there, &mut copy)).unwrap();
        drop(there);
        Steps::of(RoundTrip { here, message, token: 0, _partner: partner })
    }

    #[test]
    fn messages_of_any_length_come_back_even_if_no_pipe_holds_them() {
        for size in [1, 2, 4096, 300_000] {
            let mut round_trip = round_trip(size, pipe_ends().unwrap(), echo);
            round_trip.run(300).unwrap();
            round_trip.disarm(300).unwrap();
        }
    }

    #[test]
    fn a_token_that_differs_from_the_one_sent_is_an_error() {
        fn change(end: &End, message: &mut [u8]) -> libc::c_int {
            while end.read(message).is_ok() {
                message[0] = 5;
                let _ = end.write(message);
            }
            0
        }
        let mut round_trip = round_trip(1, pipe_ends().unwrap(), change);
        let error = round_trip.run(10).unwrap_err().to_string();
        assert!(error.contains("token 1 was sent, but (5, 5) came back"), "{error}");
    }

    #[test]
    fn the_exit_of_the_partner_also_ends_a_named_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let ends = End::of_two_channels(
            fifo(directory.path(), "forth").unwrap(),
            fifo(directory.path(), "back").unwrap(),
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no name is left");
        fn once(end: &End, message: &mut [u8]) -> libc::c_int {
            let _ = end.read(message).and_then(|()| end.write(message));
            0
        }
        let mut round_trip = round_trip(1, ends, once);
        // SIGPIPE is ignored in Rust programs, so either call may report it.
        assert!(round_trip.run(2).is_err());
    }
}
