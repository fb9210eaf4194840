//! The description of the machine and the start time for a container.

use std::{fs, io};

use assay_trace::{Opening, container::Origin};

/// A file of `/proc` or `/sys` that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}; the recorder requires /proc and /sys")]
pub struct Unreadable {
    path: &'static str,
    source: io::Error,
}

/// Describes this machine and the current time for a recording of `command`.
pub fn opening(command: Vec<String>) -> Result<Opening, Unreadable> {
    let line = |path: &'static str| {
        let text = fs::read_to_string(path).map_err(|source| Unreadable { path, source })?;
        Ok(text.trim_end().to_owned())
    };
    Ok(Opening {
        origin: Origin::Probe,
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

/// Returns the highest online CPU plus one. Rings for CPUs that are only possible would waste memory.
pub(crate) fn online_cpus() -> Result<u16, Unreadable> {
    let unreadable = |source| Unreadable { path: "/sys/devices/system/cpu/online", source };
    let highest = assay_process::cpus::online().map_err(unreadable)?.last().copied();
    let cpus = highest.and_then(|cpu| u16::try_from(cpu + 1).ok());
    cpus.ok_or_else(|| unreadable(io::Error::other("more than 65535 CPUs")))
}

/// Reads a clock of the kernel, ns.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "the three clocks used here exist on every kernel that has BTF");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
