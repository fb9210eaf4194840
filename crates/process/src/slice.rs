//! The time slice of a thread: how long it runs while others wait for its processor. Linux 6.12 and later let
//! it be chosen (sched_setattr(2)).

use std::time::Duration;
use std::{io, ptr, thread};

use crate::named;

/// The longest time slice that the kernel grants.
pub const LONGEST: Duration = Duration::from_millis(100);

/// Returns the time slice of a thread, 0 for the calling one. `None` if it cannot be chosen: the policy
/// is neither SCHED_OTHER nor SCHED_BATCH, or the kernel is an earlier one.
///
/// # Errors
/// If there is no such thread.
pub fn slice(thread: i32) -> io::Result<Option<Duration>> {
    let attributes = attributes(thread)?;
    let has_one = has_slices(&attributes) && attributes.sched_runtime > 0;
    Ok(has_one.then(|| Duration::from_nanos(attributes.sched_runtime)))
}

/// Sets the time slice of a thread; zero is the kernel's own choice. A nice value that is changed at the same
/// time by another process may be set back.
///
/// # Errors
/// If there is no such thread, it is another user's, or its slice cannot be chosen.
pub fn set_slice(thread: i32, slice: Duration) -> io::Result<()> {
    let mut attributes = attributes(thread)?;
    if !has_slices(&attributes) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "its policy has no time slice"));
    }
    attributes.sched_flags = u64::try_from(libc::SCHED_FLAG_KEEP_POLICY).expect("a flag");
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads the attributes, whose size they state.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(named("sched_setattr", io::Error::last_os_error())) }
}

/// Returns the time slice of threads for which none was chosen; `None` if the kernel does not let it be
/// chosen.
///
/// # Errors
/// If no thread can be started.
pub fn usual_slice() -> io::Result<Option<Duration>> {
    // A thread of its own, because one may have been chosen for this one, or a policy without slices.
    let read = || {
        if !has_slices(&attributes(0)?) {
            set_policy(libc::SCHED_OTHER)?;
        }
        if slice(0)?.is_some() {
            set_slice(0, Duration::ZERO)?;
        }
        slice(0)
    };
    thread::Builder::new().spawn(read)?.join().expect("it does not panic")
}

/// Whether the policy of a thread has time slices that can be chosen. For SCHED_IDLE, the kernel (6.18)
/// accepts one and ignores it.
fn has_slices(attributes: &libc::sched_attr) -> bool {
    matches!(attributes.sched_policy.cast_signed(), libc::SCHED_OTHER | libc::SCHED_BATCH)
}

/// Sets the policy of the calling thread to one without priorities.
fn set_policy(policy: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(named("sched_setscheduler", io::Error::last_os_error())) }
}

fn attributes(thread: i32) -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = u32::try_from(size_of_val(&attributes)).expect("a small number");
    let to = ptr::from_mut(&mut attributes);
    // SAFETY: the kernel writes no more than this size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, to, size, 0) };
    if result == 0 { Ok(attributes) } else { Err(named("sched_getattr", io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_set_and_reset() {
        let usual = usual_slice().unwrap();
        let changed = thread::spawn(move || {
            [LONGEST, Duration::from_millis(10), Duration::ZERO].map(|slice| {
                if usual.is_some() {
                    set_slice(0, slice).unwrap();
                }
                super::slice(0).unwrap()
            })
        });
        // A kernel before 6.12 has none.
        let expected = [Some(LONGEST), Some(Duration::from_millis(10)), usual];
        assert_eq!(changed.join().unwrap(), expected.map(|slice| usual.and(slice)));
    }

    #[test]
    fn linux_6_12_and_later_have_slices() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>());
        let version = [(); 2].map(|()| numbers.next().unwrap().unwrap());
        // A distribution may have brought them to an earlier one.
        assert!(usual_slice().unwrap().is_some() || version < [6, 12], "{release}");
    }

    #[test]
    fn an_idle_thread_has_no_slice() {
        let idle = thread::spawn(|| {
            set_policy(libc::SCHED_IDLE).unwrap();
            (slice(0).unwrap(), set_slice(0, LONGEST).is_err())
        });
        assert_eq!(idle.join().unwrap(), (None, true));
    }

    #[test]
    fn a_thread_that_does_not_exist_is_an_error() {
        assert!(slice(i32::MAX).is_err());
        assert!(set_slice(i32::MAX, LONGEST).is_err());
    }
}
