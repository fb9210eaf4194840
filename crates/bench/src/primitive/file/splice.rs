//! Bytes moved without passing through user memory: from a file into a pipe, and from a pipe into a socket.
//!
//! The bytes that enter a pipe must also leave it. A batch is spread over as many pipes as it fills; they are
//! filled or emptied untimed, and the last part that leaves a pipe is compared with the file.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::{PrimitiveId, Size};
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect;
use crate::primitive::kit::limit;
use crate::primitive::kit::scratch::{CachedFile, PAGE};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["splice.file_to_pipe{size=4KiB|64KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["splice"],
        about: "`splice` of the next part of a cached file into a pipe; emptied untimed",
        source: "own: how bytes are moved without a copy",
        prepare: file_to_pipe,
    },
    Row {
        quick: &["splice.pipe_to_unix{size=4KiB|64KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["splice"],
        about: "`splice` of a part of a cached file out of a pipe into a Unix stream socket; read untimed \
                and compared with the file",
        source: "own: how proxies pass bytes on",
        prepare: pipe_to_unix,
    },
];

/// Number of pipes of a batch.
const PIPES: usize = 16;

/// Requested capacity of a pipe in bytes: the system's default limit for all users.
const PIPE_BYTES: usize = 1 << 20;

/// The largest transfer: it must fit into a pipe twice, regardless of where in a page it begins.
const SIZE_MAX: Size = Size::kib(256);

/// A file, and pipes through which parts of it pass.
struct Conduit {
    file: CachedFile,
    pipes: Vec<(OwnedFd, OwnedFd)>,
    size: usize,
    /// Parts that fit into each of the pipes.
    parts: usize,
    /// The next part, counted from the beginning of the batch.
    next: usize,
    /// The offset in the file of the last part that entered a pipe.
    last: libc::off_t,
}

impl Conduit {
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        let size = limit::size(id, Size(1)..=SIZE_MAX)?;
        let mut pipes = Vec::new();
        let mut bytes = usize::MAX;
        for _ in 0..PIPES {
            let (output, input) =
                pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
            // If the limit does not permit this size, the pipe keeps its current one.
            let _ = fcntl_setpipe_size(&input, PIPE_BYTES);
            bytes = bytes.min(rustix::pipe::fcntl_getpipe_size(&input).map_err(io::Error::from)?);
            pipes.push((output, input));
        }
        // A pipe holds one piece per page of its capacity, and no piece is longer than a page.
        let pieces = size.div_ceil(PAGE) + usize::from(!size.is_multiple_of(PAGE));
        let parts = bytes / rustix::param::page_size() / pieces;
        if parts * PIPES < 2 || parts == 0 {
            return Err(Refusal::Unavailable(format!(
                "a pipe of {} does not hold {}; raise /proc/sys/fs/pipe-user-pages-soft",
                Size(bytes as u64),
                Size(size as u64)
            )));
        }
        Ok(Self { file: CachedFile::holding(size, setting)?, pipes, size, parts, next: 0, last: 0 })
    }

    fn capacity(&self) -> u64 {
        (self.parts * PIPES) as u64
    }

    /// The pipe of the next part.
    #[inline]
    fn pipe(&mut self) -> (libc::c_int, libc::c_int) {
        let (output, input) = &self.pipes[self.next / self.parts];
        self.next += 1;
        (output.as_raw_fd(), input.as_raw_fd())
    }

    /// Splices the next part of the file into its pipe.
    #[inline]
    fn fill(&mut self) -> io::Result<()> {
        let (_, input) = self.pipe();
        let mut at = self.file.advance(self.size);
        self.last = at;
        let file = self.file.descriptor();
        // SAFETY: the pointer is to a local that outlives the call.
        let moved = unsafe { libc::splice(file, &raw mut at, input, std::ptr::null_mut(), self.size, 0) };
        expect("splice", moved, self.size)
    }

    /// Splices the next part out of its pipe into a socket.
    #[inline]
    fn pass_on(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let (output, _) = self.pipe();
        let (none, socket) = (std::ptr::null_mut(), socket.as_raw_fd());
        // SAFETY: the call accesses no memory of this process.
        let moved = unsafe { libc::splice(output, none, socket, none, self.size, 0) };
        expect("splice", moved, self.size)
    }

    /// Reads this many parts. The last of them must be the last part that entered a pipe.
    fn check(&self, parts: u64, mut read: impl FnMut(usize, &mut [u8]) -> io::Result<()>) -> io::Result<()> {
        let mut part = vec![0; self.size];
        for number in 0..usize::try_from(parts).map_err(io::Error::other)? {
            read(number, &mut part)?;
        }
        if self.file.contents().are(&part, self.last.cast_unsigned()) {
            Ok(())
        } else {
            Err(io::Error::other("the spliced bytes differ from the file"))
        }
    }
}

/// Reads until the part is full. Does not wait for missing bytes.
fn read_whole(from: &OwnedFd, part: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < part.len() {
        match rustix::io::read(from, &mut part[done..])? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            bytes => done += bytes,
        }
    }
    Ok(())
}

/// Prepares `splice` of the next part of a file into a pipe.
fn file_to_pipe(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(FileToPipe { conduit: Conduit::of(id, setting)? })))
}

struct FileToPipe {
    conduit: Conduit,
}

impl Step for FileToPipe {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.conduit.next = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.conduit.fill()
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let conduit = &self.conduit;
        conduit.check(operations, |number, part| read_whole(&conduit.pipes[number / conduit.parts].0, part))
    }

    fn max_batch(&self) -> u64 {
        self.conduit.capacity()
    }
}

/// Prepares `splice` of a part out of a pipe into a Unix stream socket.
fn pipe_to_unix(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let conduit = Conduit::of(id, setting)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (sender, receiver) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(io::Error::from)?;
    if set_socket_send_buffer_size_force(&sender, SOCKET_BYTES).is_err() {
        set_socket_send_buffer_size(&sender, SOCKET_BYTES).map_err(io::Error::from)?;
    }
    let buffer = socket_send_buffer_size(&sender).map_err(io::Error::from)?;
    // For small parts, the kernel's own bookkeeping takes about as much memory as the bytes.
    let fits = (buffer / (2 * conduit.size.max(PAGE))) as u64;
    if fits < 2 {
        return Err(Refusal::Unavailable(format!(
            "the buffer of a Unix socket is {}, too small for two parts; raise /proc/sys/net/core/wmem_max",
            Size(buffer as u64)
        )));
    }
    Ok(Prepared::alone(Steps::of(PipeToUnix {
        max: fits.min(conduit.capacity()),
        conduit,
        sender,
        receiver,
    })))
}

/// Requested buffer: the total capacity of all pipes.
const SOCKET_BYTES: usize = PIPES * PIPE_BYTES;

struct PipeToUnix {
    conduit: Conduit,
    sender: OwnedFd,
    receiver: OwnedFd,
    max: u64,
}

impl Step for PipeToUnix {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.conduit.next = 0;
        (0..operations).try_for_each(|_| self.conduit.fill())?;
        self.conduit.next = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.conduit.pass_on(&self.sender)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.conduit.check(operations, |_, part| read_whole(&self.receiver, part))
    }

    fn max_batch(&self) -> u64 {
        self.max
    }
}
