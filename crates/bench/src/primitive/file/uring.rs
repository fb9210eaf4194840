//! Requests through the rings of io_uring: the cost of submitting a request that does nothing, of reading
//! from the page cache, alone and eight at a time, and of a ring that a kernel thread polls.
//!
//! Every request contains a number that its completion must return.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;

use assay_quantity::{PrimitiveId, Size};
use io_uring::{IoUring, opcode, squeue, types};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::scratch::CachedFile;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["uring.nop"],
        full: &[],
        cost: Per::Operation,
        calls: &["io_uring_enter"],
        about: "`io_uring_enter` that submits `IORING_OP_NOP` and waits for its completion",
        source: "own: lower bound of every request",
        prepare: nop,
    },
    Row {
        quick: &["uring.nop_polled"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "an `IORING_OP_NOP` without a call: a kernel thread on another processor polls the ring \
                (`IORING_SETUP_SQPOLL`) and this process polls for the completion",
        source: "own: requests without system calls (IORING_SETUP_SQPOLL)",
        prepare: nop_polled,
    },
    Row {
        quick: &["uring.read{size=4KiB}"],
        full: &["uring.read{size=4KiB|64KiB}"],
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "`io_uring_enter` that submits a read of the next part of a cached file and waits for it",
        source: "own: for comparison with file.read",
        prepare: read,
    },
    Row {
        quick: &["uring.read_batch{size=4KiB}"],
        full: &["uring.read_batch{size=4KiB|64KiB}"],
        cost: Per::ByteOfSize,
        calls: &["io_uring_enter"],
        about: "read of the next part of a cached file, eight for each `io_uring_enter`",
        source: "own: what batching saves",
        prepare: read_batch,
    },
];

/// Requests that are submitted together.
const BATCH: usize = 8;

/// Entries of a ring: twice the number of requests that are submitted together.
const ENTRIES: u32 = 16;

/// Time for which the polling thread polls before it sleeps, ms: longer than the untimed part between two
/// batches.
const IDLE_MS: u32 = 1000;

/// Number of checks for a completion before its absence is an error: a few seconds, during which a polling
/// thread that waits for its processor has run many times.
const LOOKS_MAX: u32 = 100_000_000;

/// Sizes of a read.
const SIZES: RangeInclusive<Size> = Size(1)..=Size::mib(8);

/// Prepares a request that does nothing.
fn nop(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let ring = opened(IoUring::new(ENTRIES))?;
    Ok(Prepared::alone(Steps::of(Nop { ring: Ring { ring, token: 0 }, begun: 0 })))
}

/// Prepares a request that does nothing, through a ring that a kernel thread polls.
fn nop_polled(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let cpu = setting.other_cpu.ok_or_else(|| {
        Refusal::Unavailable("this process may use one processor only, but two are required".to_owned())
    })?;
    let number = u32::try_from(cpu).map_err(io::Error::other)?;
    let ring = opened(IoUring::builder().setup_sqpoll(IDLE_MS).setup_sqpoll_cpu(number).build(ENTRIES))?;
    let sharing = Sharing::TwoCpus { partner: polling_thread(&ring)?, cpu };
    let nop = Nop { ring: Ring { ring, token: 0 }, begun: 0 };
    Ok(Prepared { sharing, ..Prepared::alone(Steps::of(nop)) })
}

/// Returns the ring. Converts errors if io_uring is missing or forbidden to "unavailable".
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

/// Returns the thread that polls a ring, according to the information about the ring's descriptor.
fn polling_thread(ring: &IoUring) -> io::Result<libc::pid_t> {
    let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", ring.as_raw_fd()))?;
    sq_thread(&fdinfo).ok_or_else(|| io::Error::other("the ring's fdinfo does not contain its SqThread"))
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
    /// Adds a request with the next number to the ring.
    ///
    /// # Safety
    /// The memory that the request points to must stay valid, and must not be accessed otherwise, until the
    /// request completes.
    #[inline]
    unsafe fn push(&mut self, request: squeue::Entry) -> io::Result<()> {
        self.token = self.token.wrapping_add(1);
        let request = request.user_data(self.token);
        // SAFETY: guaranteed by the caller.
        unsafe { self.ring.submission().push(&request) }.map_err(|_| io::Error::other("the ring is full"))
    }

    /// Waits for the last `count` requests, each of which must return `due`.
    #[inline]
    fn complete(&mut self, count: usize, due: i32) -> io::Result<()> {
        let submitted = self.ring.submit_and_wait(count)?;
        if submitted != count {
            return Err(io::Error::other(format!("io_uring_enter accepted {submitted} of {count} requests")));
        }
        for _ in 0..count {
            self.take(count as u64, due)?;
        }
        Ok(())
    }

    /// Removes one completion of the last `count` requests from the ring, which must return `due`.
    #[inline]
    fn take(&mut self, count: u64, due: i32) -> io::Result<()> {
        match self.ring.completion().next() {
            None => Err(io::Error::other("io_uring_enter returned without the completion")),
            Some(done) if self.token.wrapping_sub(done.user_data()) >= count => {
                Err(io::Error::other("the ring completed a request that was not submitted"))
            }
            Some(done) if done.result() == due => Ok(()),
            Some(done) if done.result() < 0 => Err(io::Error::from_raw_os_error(-done.result())),
            Some(done) => {
                Err(io::Error::other(format!("a request returned {} instead of {due}", done.result())))
            }
        }
    }

    /// Polls until one request has completed.
    #[inline]
    fn spin(&mut self) -> io::Result<()> {
        self.ring.submit()?;
        for _ in 0..LOOKS_MAX {
            if !self.ring.completion().is_empty() {
                return self.take(1, 0);
            }
            std::hint::spin_loop();
        }
        Err(io::Error::other("the polling thread does not process the requests in the ring"))
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

    /// Checks the number of requests. `step` has already checked the completion of each.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(self.ring.token.wrapping_sub(self.begun), operations)
    }
}

/// Prepares a read of the next part of a cached file.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Reads::of(1, id, setting)?))
}

/// Prepares reads of the next parts of a cached file, eight at a time.
fn read_batch(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Reads::of(BATCH, id, setting)?))
}

struct Reads {
    ring: Ring,
    file: CachedFile,
    /// The buffer of each request of a submission, and the offset in the file from which it was read.
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
            // SAFETY: every request has its own buffer, which `self` keeps. The request is awaited below; if
            // that fails, the process no longer uses the buffers.
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

    /// Checks that the buffers contain the parts of the file that were requested last.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let contents = self.file.contents();
        if self.parts.iter().all(|(buffer, at)| contents.are(buffer, at.cast_unsigned())) {
            Ok(())
        } else {
            Err(io::Error::other("a read through the ring returned bytes that differ from the file"))
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
    fn an_unexpected_completion_is_an_error() {
        let mut ring = Ring { ring: IoUring::new(ENTRIES).unwrap(), token: 41 };
        // SAFETY: the request points to nothing.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        ring.complete(1, 0).unwrap();
        // SAFETY: as above.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        assert_eq!(ring.complete(1, 7).unwrap_err().to_string(), "a request returned 0 instead of 7");
        // SAFETY: as above.
        unsafe { ring.push(opcode::Nop::new().build()).unwrap() };
        ring.token += 9;
        assert!(ring.complete(1, 0).unwrap_err().to_string().contains("not submitted"));
        assert!(ring.take(1, 0).unwrap_err().to_string().contains("without the completion"));
    }
}
