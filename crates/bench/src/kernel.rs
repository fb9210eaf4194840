//! Results of raw system calls, and the few calls that set a process up for measuring.
//!
//! The timed calls themselves are made where they are timed, through libc as C programs make them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The result of a call that is negative when it failed.
#[inline]
pub(crate) fn check<T: PartialOrd + Default>(call: &'static str, result: T) -> io::Result<T> {
    if result < T::default() { Err(failed(call)) } else { Ok(result) }
}

/// The same for a call that must have moved so many bytes, or returned so many things.
#[inline]
pub(crate) fn expect(call: &'static str, result: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(result) {
        Ok(result) if result == wanted => Ok(()),
        Ok(result) => Err(short(call, result, wanted)),
        Err(_) => Err(failed(call)),
    }
}

#[cold]
pub(crate) fn failed(call: &'static str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

#[cold]
fn short(call: &'static str, result: usize, wanted: usize) -> io::Error {
    io::Error::other(format!("{call} returned {result} where {wanted} was due"))
}

/// Takes possession of a descriptor that a call has just returned. The standard ones were open before any call
/// of ours, so a call that returns one has made none, and it is not ours to close.
pub(crate) fn own(call: &'static str, fd: libc::c_int) -> io::Result<OwnedFd> {
    check(call, fd)?;
    if fd <= libc::STDERR_FILENO {
        return Err(io::Error::other(format!("{call} returned descriptor {fd}, which was open before")));
    }
    // SAFETY: the kernel has just returned this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks the kernel to kill this process when its parent ends, however that ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// Raises the soft limit of open descriptors to the hard one, and returns it.
pub(crate) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the soft limit, which is then what is returned.
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

/// Size of a type, as socket calls take it.
pub(crate) const fn size_of_u32<T>() -> u32 {
    let size = size_of::<T>();
    assert!(size <= 4096, "structures of the socket interface are small");
    #[expect(clippy::cast_possible_truncation, reason = "asserted in the line above")]
    {
        size as u32
    }
}
