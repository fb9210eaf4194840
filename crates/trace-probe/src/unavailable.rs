//! Why the probe cannot run here, in one line each.

use std::{fs, path::Path, sync::Mutex};

use libbpf_rs::PrintLevel;

use crate::opening::Unreadable;

/// Oldest kernel whose `sched_switch` says in which state a task leaves the CPU.
const OLDEST: (u32, u32) = (5, 18);
/// What the link of the initial pid namespace says; the number is part of the kernel's interface (linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// What is missing.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The caller is not root.
    #[error("the eBPF recorder needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE); run it with sudo")]
    Root,
    /// The kernel does not describe its types.
    #[error("the eBPF recorder needs {KERNEL_TYPES}; boot a kernel with CONFIG_DEBUG_INFO_BTF=y")]
    KernelTypes,
    /// The kernel is too old.
    #[error("the eBPF recorder needs Linux 5.18, this is {release}; boot a newer kernel")]
    Kernel {
        /// Release of the running kernel.
        release: String,
    },
    /// The caller counts processes otherwise than the probe.
    #[error(
        "the eBPF recorder needs the host's process numbers, this is another pid namespace; run it on the host, or in a container with docker run --pid=host"
    )]
    PidNamespace,
    /// The ring size is not one that the kernel takes.
    #[error("a ring of {bytes} bytes is not possible: give a power of two from 4096 to 1 GiB")]
    Ring {
        /// What was asked for.
        bytes: u32,
    },
    /// The kernel said no.
    #[error(
        "the kernel refused to {step}: {reason}; check that kernel lockdown or a container does not forbid BPF"
    )]
    Refused {
        /// What was tried.
        step: &'static str,
        /// What it said.
        reason: String,
    },
    /// There is nothing to trace.
    #[error("process {process} does not exist; give the number of a running process")]
    Process {
        /// The number that was given.
        process: u32,
    },
    /// The machine does not describe itself.
    #[error(transparent)]
    Machine(#[from] Unreadable),
    /// The container could not take the roots.
    #[error(transparent)]
    Container(#[from] assay_trace::container::WriteError),
    /// No thread could be started.
    #[error("no thread for the recorder: {0}; raise the limit on threads")]
    Thread(std::io::Error),
}

/// What can be known before the kernel is asked.
pub(crate) fn check() -> Result<(), Unavailable> {
    // SAFETY: no arguments, no memory, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Unavailable::Root);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if version(&release).is_some_and(|version| version < OLDEST) {
        return Err(Unavailable::Kernel { release: release.trim_end().to_owned() });
    }
    if !Path::new(KERNEL_TYPES).exists() {
        return Err(Unavailable::KernelTypes);
    }
    // A kernel without pid namespaces has no such link, and no other numbers.
    if fs::read_link("/proc/self/ns/pid").is_ok_and(|link| !is_initial_pid_namespace(&link)) {
        return Err(Unavailable::PidNamespace);
    }
    Ok(())
}

fn is_initial_pid_namespace(link: &Path) -> bool {
    link == Path::new(INITIAL_PID_NAMESPACE)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The last complaint of libbpf: its error codes alone say little. One for the process, as libbpf's printer is.
static COMPLAINT: Mutex<String> = Mutex::new(String::new());

/// Keeps what libbpf would print: a library does not write to the terminal.
pub(crate) fn listen_to_libbpf() {
    fn keep(_: PrintLevel, text: String) {
        let line = text.trim();
        if let Ok(mut complaint) = COMPLAINT.lock()
            && !line.is_empty()
        {
            line.lines().last().unwrap_or_default().clone_into(&mut complaint);
        }
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
}

/// Makes an [`Unavailable::Refused`] of an error of libbpf.
pub(crate) fn refused(step: &'static str) -> impl Fn(libbpf_rs::Error) -> Unavailable {
    move |error| {
        let complaint = COMPLAINT.lock().map(|text| text.clone()).unwrap_or_default();
        let reason = if complaint.is_empty() { error.to_string() } else { format!("{error} ({complaint})") };
        Unavailable::Refused { step, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_compare_by_number() {
        assert_eq!(version("6.1.0-13-amd64\n"), Some((6, 1)));
        assert!(version("5.4.0-150-generic") < Some(OLDEST));
        assert!(version("6.18.44") > Some(OLDEST));
        assert_eq!(version("strange"), None);
    }

    #[test]
    fn only_the_initial_pid_namespace_counts_processes_as_the_probe_does() {
        assert!(is_initial_pid_namespace(Path::new("pid:[4026531836]")));
        assert!(!is_initial_pid_namespace(Path::new("pid:[4026532281]")));
        assert!(!is_initial_pid_namespace(Path::new("mnt:[4026531836]")));
    }
}
