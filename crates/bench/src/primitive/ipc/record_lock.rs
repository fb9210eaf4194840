//! Record locks of a file with which two processes pass a turn (lmbench 3, `lat_fcntl`).
//!
//! A released lock is not handed to the process that waits for it: the next process that requests it gets it.
//! Each side therefore waits for a byte that the other side certainly holds, which requires three bytes that
//! change roles. In turn i the first side releases byte `RELEASED[i]`, for which the second one waits, and
//! waits for `AWAITED[i]`, which the second one holds and then releases. Each side next waits for a byte that
//! the other one holds by then.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::handover::{Side, Sides, between_processes};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["fcntl.lock_round_trip{cpus=*}"],
    full: &[],
    cost: Per::Operation,
    calls: &["fcntl"],
    about: "`F_SETLKW`: release of a record lock that another process waits for, and wait for one that it \
            then releases",
    source: "lmbench 3, lat_fcntl",
    prepare: round_trip,
}];

const RELEASED: [libc::off_t; 3] = [0, 2, 1];
const AWAITED: [libc::off_t; 3] = [1, 0, 2];

fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    // Both sides keep the same file open: a process that closes any descriptor of a file loses all its locks
    // of it.
    let file = Rc::new(tempfile::tempfile_in(&setting.directory)?);
    let here = Locks { file: file.clone(), role: Role::First, turn: 0 };
    let there = Locks { file, role: Role::Second, turn: 0 };
    between_processes(id, setting, Sides { here, there })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    First,
    Second,
}

struct Locks {
    file: Rc<File>,
    role: Role,
    turn: usize,
}

impl Locks {
    #[inline]
    fn change(&self, byte: libc::off_t, how: libc::c_int) -> io::Result<()> {
        // SAFETY: zeroes are a valid `flock`.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::c_short::try_from(how).map_err(io::Error::other)?;
        lock.l_whence = SEEK_SET;
        lock.l_start = byte;
        lock.l_len = 1;
        // SAFETY: the pointer is to a local that outlives the call.
        check("fcntl", unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLKW, &raw const lock) })
            .map(drop)
    }

    #[inline]
    fn lock(&self, byte: libc::off_t) -> io::Result<()> {
        self.change(byte, libc::F_WRLCK)
    }

    #[inline]
    fn unlock(&self, byte: libc::off_t) -> io::Result<()> {
        self.change(byte, libc::F_UNLCK)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "SEEK_SET is 0")]
const SEEK_SET: libc::c_short = libc::SEEK_SET as libc::c_short;

impl Side for Locks {
    fn begin(&mut self) -> io::Result<()> {
        match self.role {
            Role::First => self.lock(0).and_then(|()| self.lock(2)),
            Role::Second => self.lock(1),
        }
    }

    #[inline]
    fn give(&mut self) -> io::Result<()> {
        match self.role {
            Role::First => self.unlock(RELEASED[self.turn]),
            Role::Second => {
                let byte = AWAITED[self.turn];
                self.turn = (self.turn + 1) % RELEASED.len();
                self.unlock(byte)
            }
        }
    }

    #[inline]
    fn take(&mut self) -> io::Result<()> {
        match self.role {
            Role::First => {
                let byte = AWAITED[self.turn];
                self.turn = (self.turn + 1) % RELEASED.len();
                self.lock(byte)
            }
            Role::Second => self.lock(RELEASED[self.turn]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Simulates which side holds which bytes, turn by turn.
    #[test]
    fn each_side_always_waits_for_a_byte_that_the_other_one_holds() {
        let (mut first, mut second) = (BTreeSet::from([0, 2]), BTreeSet::from([1]));
        for turn in 0..30 {
            let (released, awaited) = (RELEASED[turn % 3], AWAITED[turn % 3]);
            assert!(first.contains(&released), "the second waits for {released} in turn {turn}");
            assert!(second.contains(&awaited), "the first waits for {awaited} in turn {turn}");
            first.remove(&released);
            second.insert(released);
            second.remove(&awaited);
            first.insert(awaited);
            let next = RELEASED[(turn + 1) % 3];
            assert!(
                first.contains(&next),
                "the first holds the byte that the second requests next, before turn {}",
                turn + 1
            );
        }
    }
}
