//! Bytes through a TCP connection over the loopback interface, both ends in one process (thesis, sections
//! 2.2.3 and 4.2): the cost to a server of sending, of receiving, and of both together. With `cpus=different`
//! the other end is in another process; see [`peer`].
//!
//! On the loopback interface a `write` does not return before the segments are in the peer's queue, so
//! sending and receiving can be timed separately: send n pieces and drain them untimed, or queue n pieces
//! untimed and read them. A batch must fit into the socket's buffers; the arrival of every byte is checked
//! after each batch.

use std::io;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::scratch::CachedFile;
use crate::primitive::kit::tcp_pair::Wire;
use crate::primitive::net::peer;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &[
            "tcp.send{size=64B|4KiB|64KiB,buffer=reused}",
            "tcp.send{size=4KiB|64KiB,buffer=fresh}",
            "tcp.send{size=64B|4KiB|64KiB,buffer=reused,cpus=different}",
            "tcp.send{size=4KiB|64KiB,buffer=fresh,cpus=different}",
        ],
        full: &[
            "tcp.send{size=64B|4KiB|32KiB|64KiB,buffer=*}",
            "tcp.send{size=64B|4KiB|32KiB|64KiB,buffer=*,cpus=different}",
        ],
        cost: Per::ByteOfSize,
        calls: &["write"],
        about: "`write` to a TCP socket over loopback, with the segments' way into the peer's queue; drained \
                by the peer untimed",
        source: "thesis, sections 2.2.3 and 4.2",
        prepare: send,
    },
    Row {
        quick: &[
            "tcp.receive{size=64B|4KiB|64KiB,buffer=reused}",
            "tcp.receive{size=4KiB|64KiB,buffer=fresh}",
            "tcp.receive{size=64B|4KiB|64KiB,buffer=reused,cpus=different}",
            "tcp.receive{size=4KiB|64KiB,buffer=fresh,cpus=different}",
        ],
        full: &[
            "tcp.receive{size=64B|4KiB|32KiB|64KiB,buffer=*}",
            "tcp.receive{size=64B|4KiB|32KiB|64KiB,buffer=*,cpus=different}",
        ],
        cost: Per::ByteOfSize,
        calls: &["read"],
        about: "`read` from a TCP socket of bytes that are already in its queue",
        source: "thesis, sections 2.2.3 and 4.2",
        prepare: receive,
    },
    Row {
        quick: &["tcp.transfer{size=4KiB|64KiB,buffer=*}"],
        full: &["tcp.transfer{size=4KiB|32KiB|64KiB,buffer=*}"],
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "`write` to a TCP socket over loopback and `read` at the other end, within one process",
        source: "lmbench 1996, section 5.2; thesis, section 2.2.3",
        prepare: transfer,
    },
    Row {
        quick: &["tcp.writev{size=4KiB|64KiB}", "tcp.writev{size=4KiB|64KiB,cpus=different}"],
        full: &["tcp.writev{size=4KiB|32KiB|64KiB}", "tcp.writev{size=4KiB|32KiB|64KiB,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["writev"],
        about: "`writev` to a TCP socket of a 256-byte header and a body, `size` bytes together",
        source: "own: how servers send a response",
        prepare: writev,
    },
    Row {
        quick: &["tcp.sendfile{size=4KiB|64KiB}", "tcp.sendfile{size=4KiB|64KiB,cpus=different}"],
        full: &["tcp.sendfile{size=4KiB|32KiB|64KiB}", "tcp.sendfile{size=4KiB|32KiB|64KiB,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["sendfile"],
        about: "`sendfile` from a cached file to a TCP socket",
        source: "own: how servers send a file",
        prepare: sendfile,
    },
];

/// Prepares `write` of one piece.
fn send(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| wire.write(pieces.next()))
}

/// Prepares `writev` of one piece in two segments: a header and the rest.
fn writev(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| wire.write_segments(pieces.next()))
}

/// Prepares `sendfile` of the next part of a cached file.
fn sendfile(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let mut file = CachedFile::holding(limit::size(id, SIZES)?, setting)?;
    sending(id, setting, move |wire, pieces| wire.send_file(&mut file, pieces.size()))
}

/// Prepares `read` of one piece that is already in the socket's queue.
fn receive(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    if peer::is_elsewhere(id) {
        return peer::receive(id, setting);
    }
    limit::size(id, SIZES)?;
    let pieces = Pieces::of(id, setting)?;
    let (wire, pieces_max) = streaming(pieces.size())?;
    let queued = vec![0; pieces.size()];
    Ok(Prepared::alone(Receive { wire, pieces, queued, pieces_max }))
}

/// Prepares `write` of one piece and `read` of it at the other end.
fn transfer(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    limit::size(id, SIZES)?;
    let [mut out, mut back] = Pieces::pair(id, setting)?;
    let (wire, _) = streaming(out.size())?;
    Ok(Prepared::repeat(move || {
        wire.write(out.next())?;
        wire.read(back.next())
    }))
}

fn sending(
    id: &PrimitiveId,
    setting: &mut Setting,
    send: impl FnMut(&Wire, &mut Pieces) -> io::Result<()> + 'static,
) -> Result<Prepared, Refusal> {
    if peer::is_elsewhere(id) {
        return peer::sending(id, setting, send);
    }
    limit::size(id, SIZES)?;
    let pieces = Pieces::of(id, setting)?;
    let (wire, pieces_max) = streaming(pieces.size())?;
    Ok(Prepared::alone(Send { wire, pieces, send, pieces_max }))
}

/// Requested buffer of each side, if permitted. The kernel grants twice as much, for its own bookkeeping. If
/// the request is not permitted, the kernel's own tuning grants up to a few MiB.
const BUFFER_BYTES: i32 = 16 << 20;

/// Bytes of the longest batch: a millisecond of the fastest transfers, and a quarter of the buffer.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Pieces of the longest batch: a millisecond of the smallest transfers. Longer batches would cost more time
/// in the untimed half of the work than their precision is worth.
const PIECES_MAX: usize = 1024;

/// Sizes of a piece: two of the largest form a batch.
const SIZES: std::ops::RangeInclusive<Size> = Size(1)..=Size::mib(4);

/// Returns a connection whose windows are open for pieces of `size` bytes, and the number of pieces that can
/// be sent in a row and arrive without waiting for a reader. It is created last, because a window closes
/// again if nothing is sent for long.
fn streaming(size: usize) -> Result<(Wire, u64), Refusal> {
    let wire = Wire::open(BUFFER_BYTES)?;
    // Reno, which every kernel provides, keeps doubling its window until a segment is lost. The usual
    // algorithms stop at about twenty segments on a loopback connection, because they interpret its
    // acknowledgements as congestion; a batch would then wait for a reader that only runs after it.
    wire.use_reno()?;
    let longest = (BATCH_BYTES_MAX / size).clamp(2, PIECES_MAX);
    match wire.open_window(size, longest)? {
        Some(pieces_max) => Ok((wire, pieces_max)),
        None => Err(Refusal::Unavailable(format!(
            "batches of two pieces of {} do not fit into the socket buffers that this user may have; choose a \
             smaller size, or run as root",
            Size(size as u64)
        ))),
    }
}

struct Send<F> {
    wire: Wire,
    pieces: Pieces,
    send: F,
    pieces_max: u64,
}

impl<F: FnMut(&Wire, &mut Pieces) -> io::Result<()>> Operation for Send<F> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            (self.send)(&self.wire, &mut self.pieces)?;
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let bytes = operations * self.pieces.size() as u64;
        self.wire.check_arrived(bytes)?;
        self.wire.drain(bytes)
    }

    fn max_batch(&self) -> u64 {
        self.pieces_max
    }
}

struct Receive {
    wire: Wire,
    pieces: Pieces,
    queued: Vec<u8>,
    pieces_max: u64,
}

impl Operation for Receive {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.wire.write(&self.queued)?;
        }
        self.wire.check_arrived(operations * self.queued.len() as u64)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.wire.read(self.pieces.next())?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.wire.check_arrived(0)
    }

    fn max_batch(&self) -> u64 {
        self.pieces_max
    }
}
