//! An exception that the kernel handles itself: entry through the processor's exception mechanism and return,
//! without a signal. It is the overhead of every page fault and every emulated instruction in addition to its
//! own work, as `call.null` is for system calls.
//!
//! Few exceptions leave a process unchanged. On x86-64 a jump to the `[vsyscall]` page is one of them: the
//! page cannot be executed, the kernel determines from the address of the fault which of three old calls is
//! requested, executes it, and returns to the caller. The call here is `time`, which takes a few tens of
//! nanoseconds that are included in the figure.

use assay_quantity::PrimitiveId;

#[cfg(target_arch = "x86_64")]
use crate::primitive::kit::step::Steps;
#[cfg(target_arch = "x86_64")]
use vsyscall::{Fault, is_vsyscall};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["exception.null"],
    full: &[],
    cost: Per::Operation,
    calls: &[],
    about: "exception that the kernel handles itself, without a signal: a jump to the `[vsyscall]` page of \
            x86-64, which faults; the kernel then executes `time()`, which takes a few tens of ns of the \
            figure",
    source: "own: the lower bound of every exception",
    prepare: null,
}];

/// One exception and the return from it.
#[cfg(target_arch = "x86_64")]
fn null(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    if !maps.lines().any(is_vsyscall) {
        return Err(Refusal::Unavailable(
            "the kernel maps no [vsyscall] page; boot with vsyscall=xonly on the kernel's command line"
                .to_owned(),
        ));
    }
    Ok(Prepared::alone(Steps::of(Fault { begun: 0, calls: 0, seconds: 0 })))
}

/// One exception and the return from it.
#[cfg(target_arch = "aarch64")]
fn null(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Err(Refusal::Unavailable(
        "the benchmark is not implemented for this architecture; 'page_fault.anonymous' is the most similar"
            .to_owned(),
    ))
}

#[cfg(target_arch = "x86_64")]
mod vsyscall {
    use std::io;

    use crate::primitive::kit::step::Step;

    /// Address of `time` in the page, which is at the same address in every process.
    const TIME: usize = 0xffff_ffff_ff60_0400;

    /// Returns whether a line of `/proc/self/maps` describes the page and the page cannot be read, so that
    /// the jump to it faults. (Kernels before 2012 could map a page that is executed without a fault.)
    pub(super) fn is_vsyscall(line: &str) -> bool {
        line.starts_with("ffffffffff600000-") && line.contains(" --xp ")
    }

    /// The calls of `time` and their results.
    pub(super) struct Fault {
        pub(super) begun: i64,
        pub(super) calls: u64,
        pub(super) seconds: i64,
    }

    impl Step for Fault {
        fn arm(&mut self, _: u64) -> io::Result<()> {
            // SAFETY: with a null pointer, the call stores nothing.
            self.begun = unsafe { libc::time(std::ptr::null_mut()) };
            (self.calls, self.seconds) = (0, self.begun);
            Ok(())
        }

        #[inline]
        fn step(&mut self) -> io::Result<()> {
            let now: i64;
            // SAFETY: the page exists, as `null` has checked; calling it changes the same registers as a
            // system call, and with a null pointer it writes nothing.
            unsafe {
                std::arch::asm!(
                    "call {time}",
                    time = in(reg) TIME,
                    inout("rdi") 0_u64 => _,
                    out("rax") now,
                    out("rcx") _,
                    out("r11") _,
                );
            }
            // The time never decreases, and an error is negative.
            self.calls += u64::from(now >= self.seconds);
            self.seconds = now;
            Ok(())
        }

        fn disarm(&mut self, operations: u64) -> io::Result<()> {
            // SAFETY: with a null pointer, the call stores nothing.
            let ended = unsafe { libc::time(std::ptr::null_mut()) };
            if self.calls == operations && (self.begun..=ended).contains(&self.seconds) {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "of {operations} calls of the [vsyscall] page {} returned the time; the last one returned {}",
                self.calls, self.seconds
            )))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_readable_page_and_another_page_are_not_recognised() {
            let line = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]";
            assert!(is_vsyscall(line));
            assert!(!is_vsyscall(&line.replace("--xp", "r-xp")));
            assert!(!is_vsyscall("7ffd65e41000-7ffd65e62000 rw-p 00000000 00:00 0          [stack]"));
        }

        #[test]
        fn a_result_that_is_not_the_time_is_rejected() {
            let mut fault = Fault { begun: 0, calls: 0, seconds: 0 };
            fault.arm(2).unwrap();
            (fault.calls, fault.seconds) = (2, 0);
            let error = fault.disarm(2).unwrap_err().to_string();
            assert!(error.contains("the last one returned 0"), "{error}");
            fault.arm(2).unwrap();
            assert!(fault.disarm(2).unwrap_err().to_string().contains("of 2 calls"));
        }
    }
}
