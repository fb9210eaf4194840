//! Transfers through a pipe or a pair of Unix stream sockets, by size of the pieces (lmbench, 1996, section
//! 5.2; thesis, section 2.2.3).
//!
//! Without `cpus`, one process writes a piece and reads it: the cost is that of both ends together, as for
//! `tcp.transfer`. With `cpus`, as in lmbench, another process reads: the writer's timing ends when the
//! reader has reported that it has received everything, so that on two processors the slower end determines
//! the cost. In both cases a byte counts once, each end has its own buffers, and each piece contains a mark
//! that differs from the previous one and is compared at the other end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::{Key, PrimitiveId, Size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::partner::Partner;
use crate::primitive::kit::duplex::{End, enlarge_pipe, enlarge_sender, one_pipe};
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["pipe.transfer{size=4KiB|64KiB,buffer=reused}", "pipe.transfer{size=64KiB,buffer=fresh}"],
        full: &[
            "pipe.transfer{size=64B|1KiB|4KiB|16KiB|32KiB|64KiB,buffer=reused}",
            "pipe.transfer{size=4KiB|32KiB|64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` of `size` bytes to a pipe and `read` of these bytes, within one process",
        source: "lmbench 1996, section 5.2; thesis, section 2.2.3",
        prepare: pipe,
    },
    Row {
        quick: &["pipe.transfer{size=64KiB,buffer=reused,cpus=different}"],
        full: &["pipe.transfer{size=4KiB|64KiB,buffer=*,cpus=*}"],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` of `size` bytes to a pipe from which another process reads, until it has read them",
        source: "lmbench 1996, section 5.2; thesis, section 2.2.3",
        prepare: pipe,
    },
    Row {
        quick: &["unix.transfer{size=4KiB|64KiB,buffer=reused}", "unix.transfer{size=64KiB,buffer=fresh}"],
        full: &[
            "unix.transfer{size=64B|1KiB|4KiB|16KiB|32KiB|64KiB,buffer=reused}",
            "unix.transfer{size=4KiB|32KiB|64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` of `size` bytes to a Unix stream socket and `read` of these bytes, within one \
                process",
        source: "lmbench 3, bw_unix",
        prepare: unix,
    },
    Row {
        quick: &["unix.transfer{size=64KiB,buffer=reused,cpus=different}"],
        full: &["unix.transfer{size=4KiB|64KiB,buffer=*,cpus=*}"],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` of `size` bytes to a Unix stream socket from which another process reads, until it \
                has read them",
        source: "lmbench 3, bw_unix",
        prepare: unix,
    },
];

/// Largest piece: beyond this size, memory is measured instead.
const PIECE_MAX: Size = Size::mib(16);

fn pipe(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (input, output) = one_pipe()?;
    transfer(id, setting, Channel { input, output, enlarge: enlarge_pipe })
}

fn unix(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (output, input) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io::Error::from)?;
    transfer(id, setting, Channel { input, output, enlarge: enlarge_sender })
}

fn transfer(id: &PrimitiveId, setting: &mut Setting, channel: Channel) -> Result<Prepared, Refusal> {
    limit::size(id, Size(1)..=PIECE_MAX)?;
    let [out, back] = Pieces::pair(id, setting)?;
    if id.word(Key::Cpus).is_empty() {
        channel.make_room(id, out.size())?;
        let ends = End::new(channel.input, channel.output);
        return Ok(Prepared::alone(Steps::of(Within { ends, out, back, mark: Mark::default() })));
    }
    between(id, setting, channel, out, back)
}

/// A channel in one direction.
struct Channel {
    input: OwnedFd,
    output: OwnedFd,
    /// Enlarges the kernel's buffer.
    enlarge: fn(BorrowedFd<'_>, usize) -> io::Result<()>,
}

impl Channel {
    /// Ensures that a piece fits into the kernel's buffer. Afterwards a write that does not fit is an error
    /// instead of a wait, because this process is also the reader.
    fn make_room(&self, id: &PrimitiveId, size: usize) -> Result<(), Refusal> {
        rustix::io::ioctl_fionbio(&self.output, true).map_err(io::Error::from)?;
        let mut piece = vec![0; size];
        if self.takes(&mut piece)? {
            return Ok(());
        }
        // If this fails, the error below reports the consequence.
        let _ = (self.enlarge)(self.output.as_fd(), size);
        if self.takes(&mut piece)? {
            return Ok(());
        }
        Err(Refusal::Unavailable(format!(
            "a piece of {id} does not fit into the kernel's buffer; raise fs.pipe-max-size or \
             net.core.wmem_max, or specify a smaller size or cpus=same"
        )))
    }

    /// Returns whether a piece fits, and removes it from the buffer.
    fn takes(&self, piece: &mut [u8]) -> io::Result<bool> {
        let taken = match rustix::io::write(&self.output, piece) {
            Ok(taken) => taken,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut left = taken;
        while left > 0 {
            left -= rustix::io::read(&self.input, &mut piece[..left])?;
        }
        Ok(taken == piece.len())
    }
}

/// The mark of a piece: different from the previous one, and never zero.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Mark(u8);

impl Mark {
    #[inline]
    fn next(&mut self) -> u8 {
        self.0 = self.0 % 251 + 1;
        self.0
    }
}

#[cold]
fn wrong_mark(due: u8, came: u8) -> io::Error {
    io::Error::other(format!("received a piece with mark {came} instead of {due}"))
}

/// Writes a piece at one end and reads it at the other, within one process.
struct Within {
    ends: End,
    out: Pieces,
    back: Pieces,
    mark: Mark,
}

impl Step for Within {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let mark = self.mark.next();
        let piece = self.out.next();
        piece[0] = mark;
        self.ends.write(piece)?;
        let piece = self.back.next();
        piece[0] = 0;
        self.ends.read(piece)?;
        if piece[0] == mark { Ok(()) } else { Err(wrong_mark(mark, piece[0])) }
    }

    /// Every piece has been received, otherwise `step` would have failed.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a piece at one end, and reads it at the other in another process.
fn between(
    id: &PrimitiveId,
    setting: &Setting,
    channel: Channel,
    out: Pieces,
    back: Pieces,
) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let due = Shared::new(AtomicU64::new(0))?;
    let (answer, partners_answer) = one_pipe()?;
    let there = End::new(channel.input, partners_answer);
    let partner = Partner::fork(cpu, || read_all(&there, back, &due))?;
    drop(there);
    let sharing = sharing(setting, cpu, &partner);
    let here = End::new(answer, channel.output);
    let between = Between { here, out, mark: Mark::default(), due, arrived: 0, _partner: partner };
    Ok(Prepared { operation: Box::new(between), baseline: None, sharing })
}

/// The main loop of the reader: reports the number of pieces so far whenever all expected pieces have
/// arrived, and ends at the first piece with a wrong mark.
fn read_all(there: &End, mut pieces: Pieces, due: &AtomicU64) -> libc::c_int {
    let mut mark = Mark::default();
    for arrived in 1_u64.. {
        let piece = pieces.next();
        if there.read(piece).is_err() || piece[0] != mark.next() {
            break;
        }
        if arrived == due.load(Ordering::Acquire) && there.write(&arrived.to_ne_bytes()).is_err() {
            break;
        }
    }
    libc::EXIT_FAILURE
}

struct Between {
    here: End,
    out: Pieces,
    mark: Mark,
    /// Pieces of all batches up to this one.
    due: Shared<AtomicU64>,
    /// Number of pieces that the reader has reported.
    arrived: u64,
    _partner: Partner,
}

impl Operation for Between {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.due.fetch_add(operations, Ordering::Release);
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            let mark = self.mark.next();
            let piece = self.out.next();
            piece[0] = mark;
            self.here.write(piece)?;
        }
        let mut arrived = [0; size_of::<u64>()];
        self.here.read(&mut arrived)?;
        self.arrived = u64::from_ne_bytes(arrived);
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        expect_done(self.arrived, self.due.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_channel() -> Channel {
        let (input, output) = one_pipe().unwrap();
        Channel { input, output, enlarge: enlarge_pipe }
    }

    #[test]
    fn the_buffer_is_enlarged_for_pieces_that_do_not_fit_and_the_channel_is_left_empty() {
        let id: PrimitiveId = "pipe.transfer{size=300KiB,buffer=reused}".parse().unwrap();
        let channel = a_channel();
        channel.make_room(&id, 300 << 10).unwrap();
        assert_eq!(rustix::io::ioctl_fionread(&channel.input).unwrap(), 0);
        let narrow = Channel { enlarge: |_, _| Ok(()), ..a_channel() };
        let refusal = narrow.make_room(&id, 300 << 10).unwrap_err().to_string();
        assert!(refusal.contains("does not fit") && refusal.contains("cpus=same"), "{refusal}");
        assert_eq!(rustix::io::ioctl_fionread(&narrow.input).unwrap(), 0);
    }

    #[test]
    fn marks_are_never_zero_and_consecutive_marks_differ() {
        let mut mark = Mark::default();
        let marks: Vec<u8> = (0..1000).map(|_| mark.next()).collect();
        assert!(marks.iter().all(|mark| *mark != 0));
        assert!(marks.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
