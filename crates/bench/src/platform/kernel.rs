//! Checks results of raw system calls, and makes the calls that set up a process for measuring.
//!
//! The benchmarks make the timed calls themselves, through libc as in C programs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Returns the result of a call, or an error if it is negative.
#[inline]
pub(crate) fn check<T: PartialOrd + Default>(call: &'static str, result: T) -> io::Result<T> {
    if result < T::default() { Err(failed(call)) } else { Ok(result) }
}

/// Fails unless the result of a call is the number of bytes or items in `wanted`.
#[inline]
pub(crate) fn expect(call: &'static str, result: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(result) {
        Ok(result) if result == wanted => Ok(()),
        Ok(result) => Err(short(call, result, wanted)),
        Err(_) => Err(failed(call)),
    }
}

/// Fails unless a call has failed with this error number, and for no other reason.
#[inline]
pub(crate) fn expect_error<T>(call: &'static str, result: T, number: libc::c_int) -> io::Result<()>
where
    T: PartialOrd + Default + std::fmt::Display,
{
    if result >= T::default() {
        return Err(succeeded(call, &result));
    }
    if io::Error::last_os_error().raw_os_error() == Some(number) { Ok(()) } else { Err(failed(call)) }
}

#[cold]
fn succeeded(call: &'static str, result: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{call} returned {result}, but must fail"))
}

#[cold]
pub(crate) fn failed(call: &'static str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

#[cold]
fn short(call: &'static str, result: usize, wanted: usize) -> io::Error {
    io::Error::other(format!("{call} returned {result} instead of {wanted}"))
}

/// Fails if a call of the threads' library returns an error number.
#[inline]
pub(crate) fn check_pthread(call: &'static str, error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(refused(call, error)) }
}

#[cold]
fn refused(call: &'static str, error: libc::c_int) -> io::Error {
    let error = io::Error::from_raw_os_error(error);
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

/// Takes ownership of a descriptor that a call just returned. The standard descriptors were open before, so a
/// call that returns one of them did not open it, and it must not be closed.
pub(crate) fn own(call: &'static str, fd: libc::c_int) -> io::Result<OwnedFd> {
    check(call, fd)?;
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::other(format!("{call} returned descriptor {fd}, which was already open")));
    }
    // SAFETY: the kernel just returned this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the kernel kill this process when its parent ends for any reason.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// Raises the soft limit of open descriptors to the hard limit, and returns the resulting soft limit.
pub(crate) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the function returns the old soft limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    (level, option): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_u32::<libc::c_int>(),
        )
    };
    check("setsockopt", result).map(drop)
}

/// Returns the size of a type, in the type that socket calls take.
pub(crate) const fn size_of_u32<T>() -> u32 {
    let size = size_of::<T>();
    assert!(size <= 4096, "structures of the socket interface are small");
    #[expect(clippy::cast_possible_truncation, reason = "asserted in the line above")]
    {
        size as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_error_is_accepted() {
        // SAFETY: no process has this descriptor.
        let closed = || unsafe { libc::close(-1) };
        expect_error("close", closed(), libc::EBADF).unwrap();
        let error = expect_error("close", closed(), libc::EAGAIN).unwrap_err().to_string();
        assert!(error.starts_with("close: Bad file descriptor"), "{error}");
        let error = expect_error("close", 0, libc::EBADF).unwrap_err().to_string();
        assert_eq!(error, "close returned 0, but must fail");
    }

    #[test]
    fn an_error_of_the_threads_library_is_reported_with_its_call() {
        check_pthread("pthread_join", 0).unwrap();
        let error = check_pthread("pthread_join", libc::ESRCH).unwrap_err().to_string();
        assert!(error.starts_with("pthread_join: No such process"), "{error}");
    }
}
