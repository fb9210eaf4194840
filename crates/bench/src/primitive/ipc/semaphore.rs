//! Semaphores with which two processes pass a turn: System V and POSIX (lmbench 3, `lat_sem`).

use std::cell::UnsafeCell;
use std::io;
use std::rc::Rc;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::handover::{Side, Sides, between_processes};
use crate::primitive::kit::shared::Shared;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["semaphore.sysv_round_trip{cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["semop", "semtimedop"],
        about: "`semop` of a System V semaphore that wakes another process, and `semop` that waits until \
                that process does the same",
        source: "lmbench 3, lat_sem",
        prepare: sysv,
    },
    Row {
        quick: &[],
        full: &["semaphore.posix_round_trip{cpus=*}"],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`sem_post` of an unnamed semaphore that wakes another process, and `sem_wait` until that \
                process does the same",
        source: "own: for comparison with System V",
        prepare: posix,
    },
];

/// Prepares two semaphores of a System V set.
fn sysv(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = Rc::new(SysvSet::new()?);
    let here = Sysv { set: set.clone(), own: 0, other: 1 };
    let there = Sysv { set, own: 1, other: 0 };
    between_processes(id, setting, Sides { here, there })
}

/// A set of two semaphores, both zero.
struct SysvSet {
    id: libc::c_int,
}

impl SysvSet {
    fn new() -> io::Result<Self> {
        // A set outlives its processes unless one of them removes it, which a killed process does not. With
        // the privilege, an IPC namespace is created for it, which ends with the processes; otherwise only
        // `drop` removes it. SAFETY: the call takes a number only; it changes the sets that are visible to
        // this process.
        let _ = unsafe { libc::unshare(libc::CLONE_NEWIPC) };
        // SAFETY: the call takes numbers only.
        let id = check("semget", unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) })?;
        // The kernel sets new semaphores to zero (semget(2)).
        Ok(Self { id })
    }
}

impl Drop for SysvSet {
    fn drop(&mut self) {
        // SAFETY: the call takes numbers only, and the set is no longer in use.
        unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
    }
}

struct Sysv {
    set: Rc<SysvSet>,
    own: libc::c_ushort,
    other: libc::c_ushort,
}

impl Sysv {
    #[inline]
    fn add(&self, semaphore: libc::c_ushort, number: libc::c_short) -> io::Result<()> {
        let mut operation = libc::sembuf { sem_num: semaphore, sem_op: number, sem_flg: 0 };
        // SAFETY: the pointer is to one operation, a local that outlives the call.
        check("semop", unsafe { libc::semop(self.set.id, &raw mut operation, 1) }).map(drop)
    }
}

impl Side for Sysv {
    #[inline]
    fn give(&mut self) -> io::Result<()> {
        self.add(self.other, 1)
    }

    #[inline]
    fn take(&mut self) -> io::Result<()> {
        self.add(self.own, -1)
    }
}

/// Prepares two unnamed semaphores in shared memory.
fn posix(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let pair = Rc::new(Shared::new([Semaphore::zero()?, Semaphore::zero()?])?);
    let here = Posix { pair: pair.clone(), own: 0 };
    let there = Posix { pair, own: 1 };
    between_processes(id, setting, Sides { here, there })
}

/// A POSIX semaphore that processes may share, on its own cache line.
#[repr(align(128))]
struct Semaphore(UnsafeCell<libc::sem_t>);

// SAFETY: a semaphore is designed for concurrent use, and only the library's functions access its contents.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    /// A semaphore whose value is zero. It may be moved until its first use: it consists of a few numbers,
    /// none of which is its address.
    fn zero() -> io::Result<Self> {
        const SHARED: libc::c_int = 1;
        // SAFETY: zeroes are valid numbers, which the call overwrites; the pointer is to a local.
        unsafe {
            let mut semaphore: libc::sem_t = std::mem::zeroed();
            check("sem_init", libc::sem_init(&raw mut semaphore, SHARED, 0))?;
            Ok(Self(UnsafeCell::new(semaphore)))
        }
    }
}

struct Posix {
    pair: Rc<Shared<[Semaphore; 2]>>,
    own: usize,
}

impl Side for Posix {
    #[inline]
    fn give(&mut self) -> io::Result<()> {
        // SAFETY: the semaphore was initialised and lives as long as `self`.
        check("sem_post", unsafe { libc::sem_post(self.pair[1 - self.own].0.get()) }).map(drop)
    }

    #[inline]
    fn take(&mut self) -> io::Result<()> {
        // SAFETY: as above.
        check("sem_wait", unsafe { libc::sem_wait(self.pair[self.own].0.get()) }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_one_side_gives_can_be_taken_by_the_other() {
        let set = Rc::new(SysvSet::new().unwrap());
        let mut here = Sysv { set: set.clone(), own: 0, other: 1 };
        let mut there = Sysv { set, own: 1, other: 0 };
        let pair = Rc::new(Shared::new([Semaphore::zero().unwrap(), Semaphore::zero().unwrap()]).unwrap());
        let mut posix = [Posix { pair: pair.clone(), own: 0 }, Posix { pair, own: 1 }];
        for _ in 0..3 {
            here.give().unwrap();
            there.take().unwrap();
            there.give().unwrap();
            here.take().unwrap();
            posix[0].give().unwrap();
            posix[1].take().unwrap();
        }
    }

    #[test]
    fn no_set_is_left_behind() {
        let set = SysvSet::new().unwrap();
        let id = set.id;
        drop(set);
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::semctl(id, 0, libc::GETVAL) }, -1);
    }
}
