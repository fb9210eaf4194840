//! Reasons why the probe cannot run on this machine, one line each.

use std::{fs, path::Path, sync::Mutex};

use libbpf_rs::PrintLevel;

use crate::opening::Unreadable;

/// Oldest kernel whose `sched_switch` reports the state in which a task leaves the CPU.
const OLDEST: (u32, u32) = (5, 18);
/// Link text of the initial pid namespace; the number is part of the kernel's interface (linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The recorder is not available.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The caller is not root.
    #[error("the eBPF recorder needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE); run it with sudo")]
    Root,
    /// The kernel provides no type information.
    #[error("the eBPF recorder needs {KERNEL_TYPES}; boot a kernel with CONFIG_DEBUG_INFO_BTF=y")]
    KernelTypes,
    /// The kernel is too old.
    #[error("the eBPF recorder needs Linux 5.18 or later, but this is {release}; boot a newer kernel")]
    Kernel {
        /// Release of the running kernel.
        release: String,
    },
    /// The process ids of the caller differ from those of the probe.
    #[error(
        "the eBPF recorder needs the host's pid namespace, but this is another one; run it on the host, or in a container started with docker run --pid=host"
    )]
    PidNamespace,
    /// The ring size is not supported by the kernel.
    #[error("invalid ring size of {bytes} bytes; specify a power of two from 4096 to 1 GiB")]
    Ring {
        /// The requested size.
        bytes: u32,
    },
    /// The kernel returned an error.
    #[error(
        "the kernel refused to {step}: {reason}; check whether kernel lockdown or a container forbids BPF"
    )]
    Refused {
        /// The step that failed.
        step: &'static str,
        /// The error.
        reason: String,
    },
    /// The process to trace does not exist.
    #[error("process {process} does not exist; specify the pid of a running process")]
    Process {
        /// The requested process id.
        process: u32,
    },
    /// The description of the machine could not be read.
    #[error(transparent)]
    Machine(#[from] Unreadable),
    /// The root processes could not be written to the container.
    #[error(transparent)]
    Container(#[from] assay_trace::container::WriteError),
    /// The recorder thread could not be started.
    #[error("cannot start the recorder thread: {0}; raise the limit on threads")]
    Thread(std::io::Error),
}

/// Checks the requirements that can be checked without loading the probe.
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
    // A kernel without pid namespaces has no such link, and its process ids are unique.
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

/// The last message of libbpf, because its error codes alone are not specific. One per process, like libbpf's
/// printer.
static COMPLAINT: Mutex<String> = Mutex::new(String::new());

/// Stores the messages of libbpf instead of printing them: a library does not write to the terminal.
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

/// Converts an error of libbpf into an [`Unavailable::Refused`].
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
    fn only_the_initial_pid_namespace_is_accepted() {
        assert!(is_initial_pid_namespace(Path::new("pid:[4026531836]")));
        assert!(!is_initial_pid_namespace(Path::new("pid:[4026532281]")));
        assert!(!is_initial_pid_namespace(Path::new("mnt:[4026531836]")));
    }
}
