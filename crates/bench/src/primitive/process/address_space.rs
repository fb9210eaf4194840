//! The cost of a switch from one address space to another (own): a switch between two processes less a switch
//! between two threads of one process, on one processor, with the same token through the same counters.
//!
//! Both switches save and load the registers, and go through the scheduler in the same way. The remainder is
//! the change of the page tables, including the processor's work for its translation buffer and against leaks
//! from one process into another. It is a small difference of two large times; a sample with a negative
//! difference has no cost, and reports this.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;
use rustix::event::{EventfdFlags, eventfd};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::kernel::expect;
use crate::platform::partner::{Partner, PartnerThread};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["process.address_space_switch"],
    full: &[],
    cost: Per::Operation,
    calls: &["read", "write"],
    about: "one switch between two processes, less one between two threads of one process, on one processor, \
            with a token through `eventfd`",
    source: "own: the additional cost of processes over threads",
    prepare,
}];

/// One switch between address spaces.
fn prepare(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    // Create the process first, while this process, which it copies, still has one thread.
    let (here, there) = ends()?;
    let process = Partner::fork(setting.cpu, || {
        // It ends when it or its parent is killed.
        i32::from(there.answer().is_err())
    })?;
    let sharing = Sharing::OneCpu { partners: vec![process.pid()] };
    let operation = Box::new(Switches::between(here, process));
    let (here, there) = ends()?;
    // If it ends, the token does not come back.
    let thread = PartnerThread::spawn(setting.cpu, move || drop(there.answer()))?;
    let baseline = Box::new(Switches::between(here, thread));
    Ok(Prepared { operation, baseline: Some(baseline), sharing })
}

/// One end of two counters, one for each direction.
struct End {
    input: OwnedFd,
    output: OwnedFd,
}

fn ends() -> io::Result<(End, End)> {
    let counter = || eventfd(0, EventfdFlags::CLOEXEC);
    let (there, back) = (counter()?, counter()?);
    let far = End { input: there.try_clone()?, output: back.try_clone()? };
    Ok((End { input: back, output: there }, far))
}

impl End {
    #[inline]
    fn write(&self, token: u64) -> io::Result<()> {
        // SAFETY: the pointer is to a parameter of eight bytes.
        let written = unsafe { libc::write(self.output.as_raw_fd(), (&raw const token).cast(), 8) };
        expect("write", written, 8)
    }

    #[inline]
    fn read(&self) -> io::Result<u64> {
        let mut token = 0_u64;
        // SAFETY: the pointer is to a local of eight bytes.
        let got = unsafe { libc::read(self.input.as_raw_fd(), (&raw mut token).cast(), 8) };
        expect("read", got, 8).map(|()| token)
    }

    /// Returns every token incremented by one.
    fn answer(&self) -> io::Result<()> {
        loop {
            self.write(self.read()? + 1)?;
        }
    }
}

/// Passes of a token to a partner and back. Each is two switches.
struct Switches<K> {
    here: End,
    /// The partner that returns the token.
    _partner: K,
    token: u64,
    done: u64,
}

impl<K> Switches<K> {
    fn between(here: End, partner: K) -> Self {
        Self { here, _partner: partner, token: 0, done: 0 }
    }
}

impl<K> Operation for Switches<K> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations / 2 {
            self.token += 1;
            self.here.write(self.token)?;
            let back = self.here.read()?;
            if back != self.token + 1 {
                return Err(wrong_token(self.token, back));
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }

    fn granule(&self) -> u64 {
        2
    }
}

#[cold]
fn wrong_token(token: u64, back: u64) -> io::Error {
    io::Error::other(format!("token {token} came back as {back}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_thread(life: impl FnOnce(End) + Send + 'static) -> Switches<()> {
        let (here, there) = ends().unwrap();
        std::thread::spawn(move || life(there));
        Switches::between(here, ())
    }

    #[test]
    fn the_token_goes_to_the_partner_and_back_and_an_altered_token_is_an_error() {
        let mut switches = with_thread(|there| drop(there.answer()));
        for operations in [2, 20] {
            switches.run(operations).unwrap();
            switches.disarm(operations).unwrap();
        }
        let mut altered = with_thread(|there| there.write(there.read().unwrap() + 2).unwrap());
        assert_eq!(altered.run(2).unwrap_err().to_string(), "token 1 came back as 3");
    }

    #[test]
    fn a_batch_that_was_not_run_is_rejected() {
        let mut switches = with_thread(drop);
        assert!(switches.disarm(2).unwrap_err().to_string().contains("0 of 2 operations were done"));
    }
}
