//! Creation of a thread and the wait for its end.

use std::ffi::c_void;
use std::io;

use assay_quantity::PrimitiveId;

use super::fork::family;
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check_pthread;
use crate::primitive::kit::step::Step;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["thread.create_join"],
    full: &[],
    cost: Per::Operation,
    calls: &["clone3", "clone", "futex", "rt_sigprocmask", "set_robust_list", "rseq", "madvise", "exit"],
    about: "`pthread_create` of a thread that returns immediately, `pthread_join`; its stack comes from the \
            library's cache",
    source: "own: the cost of a process without a separate address space",
    prepare: create_join,
}];

/// Prepares `pthread_create` and `pthread_join`.
fn create_join(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(family(CreateJoin { token: 0 }))
}

/// Runs the thread: returns its argument plus one.
extern "C" fn successor(argument: *mut c_void) -> *mut c_void {
    argument.wrapping_byte_add(1)
}

struct CreateJoin {
    token: usize,
}

impl Step for CreateJoin {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let argument = std::ptr::without_provenance_mut(self.token);
        let mut result = std::ptr::null_mut();
        // SAFETY: the thread accesses no memory, and has ended at the end of this block.
        unsafe {
            let mut thread = std::mem::zeroed();
            check_pthread(
                "pthread_create",
                libc::pthread_create(&raw mut thread, std::ptr::null(), successor, argument),
            )?;
            check_pthread("pthread_join", libc::pthread_join(thread, &raw mut result))?;
        }
        self.token += 1;
        if result.addr() == self.token { Ok(()) } else { Err(another_result(self.token, result.addr())) }
    }

    /// `step` has already checked that every thread returned its own number.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cold]
fn another_result(due: usize, result: usize) -> io::Error {
    io::Error::other(format!("the thread returned {result} instead of {due}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_returns_the_number_after_its_own() {
        let mut threads = CreateJoin { token: 5 };
        for _ in 0..20 {
            threads.step().unwrap();
        }
        assert_eq!(threads.token, 25);
    }
}
