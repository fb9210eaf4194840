//! The processor affinity of the calling thread. A child inherits it before its first instruction.

use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::named;

/// Processors that the calling thread may run on, in order.
///
/// # Errors
/// If the kernel has more processors than the call supports.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(|errno| named("sched_getaffinity", errno.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Restricts the calling thread to these processors.
///
/// # Errors
/// If none of them may be used.
pub fn allow(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::other(format!("processor {cpu} exceeds the limit of sched_setaffinity")));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set)
        .map_err(|errno| named(&format!("sched_setaffinity to processors {cpus:?}"), errno.into()))
}

/// Binds the calling thread to one processor.
///
/// # Errors
/// As [`allow`].
pub fn pin(cpu: usize) -> io::Result<()> {
    allow(&[cpu])
}

/// Keeps the calling thread on other processors until this is restored or dropped.
#[derive(Debug)]
pub struct Pinned {
    /// Empty once restored.
    before: Vec<usize>,
}

impl Pinned {
    /// Moves the calling thread to `cpus`.
    ///
    /// # Errors
    /// As [`allow`].
    pub fn to(cpus: &[usize]) -> io::Result<Self> {
        let before = allowed()?;
        allow(cpus)?;
        Ok(Self { before })
    }

    /// Restores the affinity from before.
    ///
    /// # Errors
    /// As [`allow`].
    pub fn restore(mut self) -> io::Result<()> {
        allow(&std::mem::take(&mut self.before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            // A caller that needs the result calls `restore`.
            let _ = allow(&self.before);
        }
    }
}

/// Processors that are online, in order.
///
/// # Errors
/// If `/sys` cannot be read.
pub fn online() -> io::Result<Vec<usize>> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_list(&list).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("'{}' is no list of processors", list.trim()))
    })
}

/// Parses a list of processors or nodes in the format of the kernel, `0,2-3`.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        match part.split_once('-') {
            None => numbers.push(part.parse().ok()?),
            Some((first, last)) => numbers.extend(first.parse().ok()?..=last.parse::<usize>().ok()?),
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_moves_the_thread_and_its_end_restores_the_processors_before() {
        let before = allowed().unwrap();
        for end in [drop, |pinned: Pinned| pinned.restore().unwrap()] {
            let pinned = Pinned::to(&before[..1]).unwrap();
            assert_eq!(allowed().unwrap(), &before[..1]);
            end(pinned);
            assert_eq!(allowed().unwrap(), before);
        }
    }

    #[test]
    fn a_processor_that_does_not_exist_is_named() {
        let error = pin(CpuSet::MAX_CPU).unwrap_err().to_string();
        assert_eq!(error, "processor 1024 exceeds the limit of sched_setaffinity");
        let error = pin(CpuSet::MAX_CPU - 1).unwrap_err().to_string();
        assert!(error.starts_with("sched_setaffinity to processors [1023]: "), "{error}");
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0,2-3\n"), Some(vec![0, 2, 3]));
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("\n"), None);
        assert_eq!(parse_list("all"), None);
        assert!(online().unwrap().len() >= allowed().unwrap().len());
    }
}
