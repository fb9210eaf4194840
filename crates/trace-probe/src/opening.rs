//! What a container says of the machine and the moment: the one place that reads the clocks.

use std::{fs, io, path::Path};

use assay_trace::Opening;

/// A file of `/proc` that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}; a recorder needs /proc")]
pub struct Unreadable {
    path: &'static str,
    source: io::Error,
}

/// Describes this machine, now, for a recording of `command`.
pub fn opening(command: Vec<String>) -> Result<Opening, Unreadable> {
    let line = |path: &'static str| {
        let text = fs::read_to_string(path).map_err(|source| Unreadable { path, source })?;
        Ok(text.trim_end().to_owned())
    };
    Ok(Opening {
        host: line("/proc/sys/kernel/hostname")?,
        kernel: format!("{} {}", line("/proc/sys/kernel/osrelease")?, line("/proc/sys/kernel/version")?),
        architecture: std::env::consts::ARCH.to_owned(),
        command,
        roots: Vec::new(),
        cpus: online_cpus()?,
        monotonic_ns: clock_ns(libc::CLOCK_MONOTONIC),
        realtime_ns: clock_ns(libc::CLOCK_REALTIME),
    })
}

/// One more than the highest CPU that is online: rings for the merely possible ones would be memory for nothing.
pub(crate) fn online_cpus() -> Result<u16, Unreadable> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(Path::new(path)).map_err(|source| Unreadable { path, source })?;
    highest_cpu(&text).map(|cpu| cpu + 1).ok_or_else(|| Unreadable {
        path,
        source: io::Error::new(io::ErrorKind::InvalidData, format!("'{}' is no list of CPUs", text.trim())),
    })
}

/// `0-3,8` has the highest CPU 8: the kernel writes such lists in order.
fn highest_cpu(list: &str) -> Option<u16> {
    let last = list.trim_end().rsplit([',', '-']).next()?;
    last.parse().ok().filter(|cpu| *cpu < u16::MAX)
}

/// A clock of the kernel, ns.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours that the call fills.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "the three clocks used here exist on every kernel that has BTF");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_cpu_of_a_list_is_its_last_number() {
        assert_eq!(highest_cpu("0\n"), Some(0));
        assert_eq!(highest_cpu("0-3,8-11\n"), Some(11));
        assert_eq!(highest_cpu("\n"), None);
        assert_eq!(highest_cpu("all"), None);
    }
}
