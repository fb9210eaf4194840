//! Requests through the rings of io_uring: what a submission costs when there is nothing to do, what a read
//! of the page cache costs that way, alone and eight at a time, and a ring that a thread of the kernel
//! watches.
//!
//! Every request carries a number that its completion must bring back.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;

use assay_quantity::{PrimitiveId, Size};
use io_uring::{IoUring, opcode, squeue, types};

use super::file::CachedFile;
use super::limit;
use super::step::{Step, Steps};
use crate::benchmark::{Operation, Prepared, Refusal, Setting, expect_done};
use crate::evidence::Sharing;
use crate::layout::Buffer;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["uring.nop"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["io_uring_enter"],
        about: "io_uring_enter that submits a request to do nothing and waits for it",
        source: "own: lower bound of every request",
        prepare: nop,
    },
    Row {
        ids: &["uring.nop_polled"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "request to do nothing, taken and completed by a polling thread of the kernel on another processor",
        source: "own: requests without system calls (IORING_SETUP_SQPOLL)",
        prepare: nop_polled,
    },
    Row {
        ids: &["uring.read{size=4KiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "io_uring_enter that submits a read of the next part of a cached file and waits for it",
        source: "own: beside file.read",
        prepare: read,
    },
    Row {
        ids: &["uring.read_batch{size=4KiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "read of the next part of a cached file, eight for each io_uring_enter",
        source: "own: what batching saves",
        prepare: read_batch,
    },
    Row {
        ids: &["uring.read{size=64KiB}"],
        profile: Profile::Full,
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "io_uring_enter that submits a read of the next part of a cached file and waits for it",
        source: "own: beside file.read",
        prepare: read,
    },
    Row {
        ids: &["uring.read_batch{size=64KiB}"],
        profile: Profile::Full,
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "read of the next part of a cached file, eight for each io_uring_enter",
        source: "own: what batching saves",
        prepare: read_batch,
    },
];

/// Requests that are submitted together.
const BATCH: usize = 8;

/// Places in a ring: all of a batch, and as many again.
const ENTRIES: u32 = 16;

/// How long a polling thread looks before it sleeps, ms: longer than the untimed part between two batches.
const IDLE_MS: u32 = 1000;

/// Looks for a completion before its absence is an error: some seconds, in which a polling thread that waits
/// for its processor has had it many times.
const LOOKS_MAX: u32 = 100_000_000;

/// Sizes of a read.
const SIZES: RangeInclusive<Size> = Size(1)..=Size::mib(8);

/// A request to do nothing.
fn nop(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let ring = opened(IoUring::new(ENTRIES))?;
    Ok(Prepared::alone(Steps::of(Nop { ring: Ring { ring, token: 0 }, begun: 0 })))
}

/// The same through a ring that a thread of the kernel polls.
fn nop_polled(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let cpu = setting.other_cpu.ok_or_else(|| {
        Refusal::Unavailable("this process may use one processor only, and it needs two".to_owned())
    })?;
    let number = u32::try_from(cpu).map_err(io::Error::other)?;
    let ring = opened(IoUring::builder().setup_sqpoll(IDLE_MS).setup_sqpoll_cpu(number).build(ENTRIES))?;
    let sharing = Sharing::TwoCpus { partner: polling_thread(&ring)?, cpu };
    let nop = Nop { ring: Ring { ring, token: 0 }, begun: 0 };
    Ok(Prepared { sharing, ..Prepared::alone(Steps::of(nop)) })
}

/// A ring, if the kernel gives any to this process.
fn opened(ring: io::Result<IoUring>) -> Result<IoUring, Refusal> {
    ring.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            Refusal::Unavailable("this kernel has no io_uring; it needs Linux 5.1".to_owned())
        }
        Some(libc::EPERM | libc::EACCES) => Refusal::Unavailable(format!(
            "this process may not use io_uring ({error}); see the sysctl kernel.io_uring_disabled and the \
             container's seccomp profile"
        )),
        _ => Refusal::Failed(error),
    })
}

/// The thread that polls a ring, as the kernel tells it beside the ring's descriptor.
fn polling_thread(ring: &IoUring) -> io::Result<libc::pid_t> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", ring.as_raw_fd()))?;
    sq_thread(&told).ok_or_else(|| io::Error::other("the ring's fdinfo does not tell its SqThread"))
}

fn sq_thread(fdinfo: &str) -> Option<libc::pid_t> {
    let line = fdinfo.lines().find_map(|line| line.strip_prefix("SqThread:"))?;
    line.trim().parse().ok().filter(|pid| *pid > 0)
}

/// A ring whose requests are numbered.
struct Ring {
    ring: IoUring,
    token: u64,
}

impl Ring {
    /// Puts a request into the ring under the next number.
    ///
    /// # Safety
    /// What the request points to must live, and be nobody else's, until it completes.
    #[inline]
    unsafe fn push(&mut self, request: squeue::Entry) -> io::Result<()> {
        self.token = self.token.wrapping_add(1);
        let request = request.user_data(self.token);
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(&request) }.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Waits for the last `count` requests, each of which must return `due`.
    #[inline]
    fn complete(&mut self, count: usize, due: i32) -> io::Result<()> {
        let submitted = self.ring.submit_and_wait(count)?;
        if submitted != count {
            return Err(io::Error::other(format!("io_uring_enter took {submitted} of {count} requests")));
        }
        for _ in 0..count {
            self.take(count as u64, due)?;
        }
        Ok(())
    }

    /// Takes one completion of the last `count` requests out of the ring.
    #[inline]
    fn take(&mut self, count: u64, due: i32) -> io::Result<()> {
        match self.ring.completion().next() {
            None => Err(io::Error::other("io_uring_enter came back without the completion it waited for")),
            Some(done) if self.token.wrapping_sub(done.user_data()) >= count => {
                Err(io::Error::other("the ring completed a request that was not made"))
            }
            Some(done) if done.result() == due => Ok(()),
            Some(done) if done.result() < 0 => Err(io::Error::from_raw_os_error(-done.result())),
            Some(done) => {
                Err(io::Error::other(format!("a request returned {} where {due} was due", done.result())))
            }
        }
    }

    /// Looks for the completion of one request until it is there.
    #[inline]
    fn spin(&mut self) -> io::Result<()> {
        self.ring.submit()?;
        for _ in 0..LOOKS_MAX {
            if !self.ring.completion().is_empty() {
                return self.take(1, 0);
            }
            std::hint::spin_loop();
        }
        Err(io::Error::other("the polling thread does not take what is in the ring"))
    }
}

struct Nop {
    ring: Ring,
    /// Number of the last request before the batch.
    begun: u64,
}

impl Step for Nop {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.begun = self.ring.token;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: the request points to nothing.
        unsafe { self.ring.push(opcode::Nop::new().build())? };
        if self.ring.ring.params().is_setup_sqpoll() { self.ring.spin() } else { self.ring.complete(1, 0) }
    }

    /// Each request was numbered, and the completion of each was taken.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(self.ring.token.wrapping_sub(self.begun), operations)
    }
}

/// A read of the next part of a cached file.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Reads::of(1, id, setting)?))
}

/// The same, eight at a time.
fn read_batch(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Reads::of(BATCH, id, setting)?))
}

struct Reads {
    ring: Ring,
    file: CachedFile,
    /// Where each request of a submission reads to, and where in the file it read from.
    parts: Vec<(Buffer, libc::off_t)>,
    done: u64,
}

impl Reads {
    fn of(together: usize, id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        let size = limit::size(id, SIZES)?;
        let ring = opened(IoUring::new(ENTRIES))?;
        let parts = (0..together)
            .map(|_| Ok((Buffer::new(size, &mut setting.rng)?, 0)))
            .collect::<io::Result<_>>()?;
        let file = CachedFile::holding(size, setting)?;
        Ok(Self { ring: Ring { ring, token: 0 }, file, parts, done: 0 })
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        let file = types::Fd(self.file.descriptor());
        let mut length = 0;
        for (buffer, at) in &mut self.parts {
            *at = self.file.advance(buffer.len());
            length = u32::try_from(buffer.len()).map_err(io::Error::other)?;
            let read = opcode::Read::new(file, buffer.as_mut_ptr(), length).offset(at.cast_unsigned());
            // SAFETY: every request has a buffer of its own, which `self` keeps; it is waited for below, and
            // should that fail, the process makes no more use of the buffers.
            unsafe { self.ring.push(read.build())? };
        }
        self.ring.complete(self.parts.len(), length.cast_signed())
    }
}

impl Operation for Reads {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.parts.iter_mut().for_each(|(buffer, _)| buffer.fill(0));
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations / self.granule() {
            self.submit()?;
        }
        self.done = operations;
        Ok(())
    }

    /// The buffers hold the parts of the file that were asked for last.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let contents = self.file.contents();
        if self.parts.iter().all(|(buffer, at)| contents.are(buffer, at.cast_unsigned())) {
            Ok(())
        } else {
            Err(io::Error::other("a read through the ring returned bytes that are not those of the file"))
        }
    }

    fn granule(&self) -> u64 {
        self.parts.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polling_thread_is_read_from_the_rings_fdinfo() {
        assert_eq!(sq_thread("pos:\t0\nSqThread:\t812\nSqThreadCpu:\t1\n"), Some(812));
        assert_eq!(sq_thread("SqThread:\t-1\n"), None);
        assert_eq!(sq_thread("pos:\t0\n"), None);
    }

    #[test]
    fn a_completion_that_says_something_else_than_was_due_is_an_error() {
        let mut ring = Ring { ring: IoUring::new(ENTRIES).unwrap(), token: 41 };
        // SAFETY: the request points to nothing.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        ring.complete(1, 0).unwrap();
        // SAFETY: as above.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        assert_eq!(ring.complete(1, 7).unwrap_err().to_string(), "a request returned 0 where 7 was due");
        // SAFETY: as above.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        ring.token += 9;
        assert!(ring.complete(1, 0).unwrap_err().to_string().contains("not made"));
        assert!(ring.take(1, 0).unwrap_err().to_string().contains("without the completion"));
    }
}
