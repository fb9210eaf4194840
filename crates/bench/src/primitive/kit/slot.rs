//! The descriptor that the next call will return: the lowest free one, as POSIX guarantees. It proves that
//! calls really open and close descriptors.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::step::{Step, Steps};
use crate::benchmark::Prepared;
use crate::platform::kernel::{check, failed};

/// The number of the next descriptor. A call that returns it has created a descriptor, and if a later call
/// returns it again, the previous descriptor was closed. It is not 0, which a call that does nothing returns:
/// standard input is open.
pub(crate) struct Slot(RawFd);

impl Slot {
    /// Finds the number. It changes if another descriptor is created and kept open.
    pub(crate) fn find() -> io::Result<Self> {
        Ok(Self(std::fs::File::open("/dev/null")?.as_raw_fd()))
    }

    /// Checks that a call has created a descriptor with this number.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, descriptor: RawFd) -> io::Result<Opened> {
        if descriptor == self.0 { Ok(Opened(descriptor)) } else { Err(self.not_next(call, descriptor)) }
    }

    #[cold]
    fn not_next(&self, call: &'static str, descriptor: RawFd) -> io::Error {
        if descriptor < 0 {
            return failed(call);
        }
        io::Error::other(format!(
            "{call} returned descriptor {descriptor} instead of {}, the next free one",
            self.0
        ))
    }

    /// Checks that no descriptor has this number.
    pub(crate) fn check_closed(&self) -> io::Result<()> {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::fcntl(self.0, libc::F_GETFD) } < 0 {
            Ok(())
        } else {
            Err(io::Error::other(format!("descriptor {} is still open after close", self.0)))
        }
    }
}

/// A descriptor that a call has just created.
#[must_use]
pub(crate) struct Opened(RawFd);

impl Opened {
    /// Returns its number.
    #[inline]
    pub(crate) fn number(&self) -> RawFd {
        self.0
    }

    /// Closes it.
    #[inline]
    pub(crate) fn close(self) -> io::Result<()> {
        // SAFETY: the benchmark has just created this descriptor, and uses it nowhere else.
        check("close", unsafe { libc::close(self.0) }).map(drop)
    }
}

/// Returns an operation that creates a descriptor with a call and closes it. `open` makes the call and
/// returns the descriptor, which must be the next free one.
pub(crate) fn open_and_close(
    call: &'static str,
    open: impl FnMut() -> io::Result<RawFd> + 'static,
) -> io::Result<Prepared> {
    Ok(Prepared::alone(Steps::of(OpenAndClose { call, open, slot: Slot::find()? })))
}

struct OpenAndClose<F> {
    call: &'static str,
    open: F,
    slot: Slot,
}

impl<F: FnMut() -> io::Result<RawFd>> Step for OpenAndClose<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.slot = Slot::find()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let opened = (self.open)()?;
        self.slot.check(self.call, opened)?.close()
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.slot.check_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_descriptor_and_one_that_stays_open_are_detected() {
        // Other tests of this process open and close files, so this slot is far above theirs.
        let base = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is open.
        let high = unsafe { libc::fcntl(base.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
        let slot = Slot(high);
        let refused = |result| slot.check("dup", result).err().unwrap().to_string();
        assert_eq!(refused(0), format!("dup returned descriptor 0 instead of {high}, the next free one"));
        assert!(refused(-1).starts_with("dup: "));
        let opened = slot.check("dup", high).unwrap();
        assert!(slot.check_closed().unwrap_err().to_string().contains("is still open"));
        opened.close().unwrap();
        slot.check_closed().unwrap();
        assert!(Opened(-1).close().unwrap_err().to_string().starts_with("close: "));
    }
}
