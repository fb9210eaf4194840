//! A token that goes round between processes: round trips through pipes and sockets, and the context
//! switch in between (lmbench, 1996, sections 6.6 and 6.7; thesis, section 2.2.4).
//!
//! The context switch is what is left of a pass of the token when the same pass within one process is
//! taken off: the same pipes, the same byte, no switch. There is no working set, as in the thesis: cache
//! refill is a matter of memory costs, not of the switch.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::{Key, PrimitiveId};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::socket::Listener;
use crate::benchmark::{Operation, Prepared, Refusal, Repeat, Setting, expect_done};
use crate::contamination::Sharing;
use crate::kernel::expect;
use crate::partner::Partner;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["pipe.round_trip{size=1B,cpus=same}", "pipe.round_trip{size=1B,cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one byte to another process and one back, through two pipes",
        source: "lmbench 1996, section 6.7",
        prepare: pipes,
    },
    Row {
        ids: &["process.context_switch{processes=2,cpus=same}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one switch between two processes: a token's pass between them less its pass within one",
        source: "lmbench 1996, section 6.6; thesis, section 2.2.4",
        prepare: context_switch,
    },
    Row {
        ids: &["unix.round_trip{size=1B,cpus=same}", "unix.round_trip{size=1B,cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one byte to another process and one back, through Unix stream sockets",
        source: "lmbench 3, lat_unix",
        prepare: unix,
    },
    Row {
        ids: &["tcp.round_trip{size=1B,cpus=same}", "tcp.round_trip{size=1B,cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one byte to another process and one back, through TCP over loopback",
        source: "lmbench 1996, section 6.7",
        prepare: tcp,
    },
];

/// One byte to the partner and one back, through two pipes.
fn pipes(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    round_trip(id, setting, &pipe_ends)
}

/// One byte to the partner and one back, through a pair of Unix stream sockets.
fn unix(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    round_trip(id, setting, &|| {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((End::of_socket(here)?, End::of_socket(there)?))
    })
}

/// One byte to the partner and one back, through a TCP connection over the loopback interface.
fn tcp(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    round_trip(id, setting, &|| {
        let (here, there) = Listener::open(1)?.pair()?;
        Ok((End::of_socket(here)?, End::of_socket(there)?))
    })
}

/// One switch between two processes on one processor.
fn context_switch(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (here, there) = pipe_ends()?;
    let partner = Partner::fork(setting.cpu, || echo(&there))?;
    drop(there);
    let sharing = Sharing::OneCpu { partner: Some(partner.pid()) };
    let (output, input) = one_pipe()?;
    let pass = End { input, output };
    Ok(Prepared {
        operation: Box::new(Switch { lap: RoundTrip { here, _partner: partner, done: 0 } }),
        baseline: Some(Box::new(Repeat::new(move || pass.write().and_then(|()| pass.read())))),
        sharing,
    })
}

/// One process's end of a connection in both directions.
struct End {
    input: OwnedFd,
    output: OwnedFd,
}

impl End {
    fn of_socket(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: socket.try_clone()?, output: socket })
    }

    #[inline]
    fn write(&self) -> io::Result<()> {
        let token = 1_u8;
        // SAFETY: the pointer is to a local of one byte.
        let written = unsafe { libc::write(self.output.as_raw_fd(), (&raw const token).cast(), 1) };
        expect("write", written, 1)
    }

    #[inline]
    fn read(&self) -> io::Result<()> {
        let mut token = 0_u8;
        // SAFETY: the pointer is to a local of one byte.
        let got = unsafe { libc::read(self.input.as_raw_fd(), (&raw mut token).cast(), 1) };
        expect("read", got, 1)
    }
}

fn one_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (input, output) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((output, input))
}

fn pipe_ends() -> io::Result<(End, End)> {
    let ((there_output, here_input), (here_output, there_input)) = (one_pipe()?, one_pipe()?);
    let here = End { input: here_input, output: here_output };
    Ok((here, End { input: there_input, output: there_output }))
}

fn round_trip(
    id: &PrimitiveId,
    setting: &Setting,
    ends: &dyn Fn() -> io::Result<(End, End)>,
) -> Result<Prepared, Refusal> {
    let (here, there) = ends()?;
    let cpu = match id.word(Key::Cpus) {
        "different" => setting.other_cpu.ok_or_else(|| {
            Refusal::Unavailable("this process may use one processor only, and it needs two".to_owned())
        })?,
        _ => setting.cpu,
    };
    let partner = Partner::fork(cpu, || echo(&there))?;
    // The partner has its own copy; without ours, its end shows as the end of the file.
    drop(there);
    let sharing = if cpu == setting.cpu {
        Sharing::OneCpu { partner: Some(partner.pid()) }
    } else {
        Sharing::TwoCpus { partner: partner.pid(), cpu }
    };
    let operation = Box::new(RoundTrip { here, _partner: partner, done: 0 });
    Ok(Prepared { operation, baseline: None, sharing })
}

/// The partner's whole life: a byte in, a byte out, until there is none.
fn echo(end: &End) -> libc::c_int {
    while end.read().is_ok() && end.write().is_ok() {}
    0
}

struct RoundTrip {
    here: End,
    _partner: Partner,
    done: u64,
}

impl Operation for RoundTrip {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.here.write()?;
            self.here.read()?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }
}

/// Two passes of the token are one round trip.
struct Switch {
    lap: RoundTrip,
}

impl Operation for Switch {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.lap.run(operations / 2)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.lap.disarm(operations / 2)
    }

    fn granule(&self) -> u64 {
        2
    }
}
