//! Negative controls: a benchmark whose work is removed must yield no sample, and a benchmark that is made
//! slower must be measured as slower.
//!
//! A benchmark that does nothing is the fastest of all: lmbench's integer add takes 0.00 ns because the
//! compiler removed it. The test suite therefore sabotages every operation of the catalogue in each of these
//! ways, and none may yield a sample; `cargo bench` adds slowdowns and checks that they are found. Nothing
//! else calls this module.

use std::io;

use crate::benchmark::{Operation, Prepared, Timing};
use crate::platform::clock::{Clock, Source};
use crate::platform::kernel;

/// How the work is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The timed part does nothing.
    Idle,
    /// Its system calls fail with `EPERM`.
    Fail,
    /// Its system calls return 0 and do nothing.
    Pretend,
}

impl Sabotage {
    /// All variants with their names.
    pub const NAMES: [(Sabotage, &'static str); 3] =
        [(Sabotage::Idle, "idle"), (Sabotage::Fail, "fail"), (Sabotage::Pretend, "pretend")];
}

/// Returns the benchmark without its work.
pub(crate) fn sabotaged(prepared: Prepared, how: Sabotage, calls: &'static [&'static str]) -> Prepared {
    let operation = Box::new(Sabotaged { inner: prepared.operation, how, calls, begun: false });
    Prepared { operation, ..prepared }
}

/// Returns the benchmark with every operation `delay_ns` longer.
pub(crate) fn delayed(prepared: Prepared, delay_ns: f64, clock: Source) -> Prepared {
    let operation = Box::new(Delayed { inner: prepared.operation, delay_ns, clock });
    Prepared { operation, ..prepared }
}

struct Delayed {
    inner: Box<dyn Operation>,
    delay_ns: f64,
    clock: Source,
}

impl Operation for Delayed {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.inner.arm(operations)
    }

    #[expect(clippy::cast_precision_loss, reason = "batches hold far fewer than 2^52 operations")]
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.inner.run(operations)?;
        let (begin, wanted_ns) = (self.clock.begin(), self.delay_ns * operations as f64);
        while self.clock.elapsed_ns(begin, self.clock.end()) < wanted_ns {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.inner.disarm(operations)
    }

    fn timing(&self) -> Timing {
        self.inner.timing()
    }

    fn max_batch(&self) -> u64 {
        self.inner.max_batch()
    }

    fn granule(&self) -> u64 {
        self.inner.granule()
    }
}

struct Sabotaged {
    inner: Box<dyn Operation>,
    how: Sabotage,
    calls: &'static [&'static str],
    begun: bool,
}

impl Operation for Sabotaged {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.inner.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            end_soon()?;
        }
        match self.how {
            Sabotage::Idle => return Ok(()),
            Sabotage::Fail if first => replace_calls(self.calls, libc::EPERM)?,
            Sabotage::Pretend if first => replace_calls(self.calls, 0)?,
            Sabotage::Fail | Sabotage::Pretend => {}
        }
        self.inner.run(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.inner.disarm(operations)
    }

    fn timing(&self) -> Timing {
        self.inner.timing()
    }

    fn max_batch(&self) -> u64 {
        self.inner.max_batch()
    }

    fn granule(&self) -> u64 {
        self.inner.granule()
    }
}

/// Starts a timer whose signal ends the process, because a wait for work that is never done does not end. An
/// ended process yields no sample.
fn end_soon() -> io::Result<()> {
    let soon = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: 0, tv_usec: 400_000 },
    };
    // SAFETY: the pointer is to a local that outlives the call.
    kernel::check("setitimer", unsafe {
        libc::setitimer(libc::ITIMER_REAL, &raw const soon, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Makes these system calls of this thread return this error (0 for success) from now on instead of
/// executing.
fn replace_calls(names: &[&str], errno: libc::c_int) -> io::Result<()> {
    let numbers = names.iter().filter_map(|name| name.parse::<syscalls::Sysno>().ok());
    let statement = |code: u32, k: u32| -> io::Result<libc::sock_filter> {
        Ok(libc::sock_filter { code: code16(code)?, jt: 0, jf: 0, k })
    };
    // The first word of `seccomp_data` is the number of the call.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)?];
    let answer = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    for number in numbers {
        let jump = code16(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K)?;
        let k = u32::try_from(number.id()).map_err(io::Error::other)?;
        program.push(libc::sock_filter { code: jump, jt: 0, jf: 1, k });
        program.push(statement(libc::BPF_RET | libc::BPF_K, answer)?);
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)?);
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the filter describes a live vector; both calls only restrict this thread.
    unsafe {
        kernel::check("prctl", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        kernel::check(
            "prctl",
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
        )?;
    }
    Ok(())
}

fn code16(code: u32) -> io::Result<u16> {
    u16::try_from(code).map_err(io::Error::other)
}
