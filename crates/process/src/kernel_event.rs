//! Events of the kernel by name: tracepoints, and calls of its functions. They are found here, and counted as
//! [`crate::counter`] counts all events.
//!
//! In one run, `getppid` took 1.9 times as long with a counter at the entry of each system call, and 1.4
//! times if another process was counted. With a BPF program that counts, it took 1.6 and 1.7 times: less for
//! those that are counted, more for all others, because it runs for them, too.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::counter::Event;
use crate::named;

/// The category of a function.
const FUNCTION: &str = "kprobe";

/// The category of the probes that are placed here.
const CATEGORY: &str = "assay";

/// Where the kernel has its tracepoints.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Whether the scheduler reports more times than those that tasks run.
const SCHEDSTATS: &str = "/proc/sys/kernel/sched_schedstats";

/// An event of the kernel, by name: the passes of a tracepoint, or the calls of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelEvent {
    /// Of the tracepoint, or [`FUNCTION`]. It and the name have only letters, digits and few
    /// other characters, none of which separates the components of a path.
    category: String,
    name: String,
}

/// A text that is no name of an event.
#[derive(Debug, thiserror::Error)]
#[error(
    "give a tracepoint, such as sched:sched_switch, or a function of the kernel, such as {FUNCTION}:vfs_read; \
     `perf list tracepoint` lists the tracepoints"
)]
pub struct NotAName;

impl FromStr for KernelEvent {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let (category, name) = text.split_once(':').ok_or(NotAName)?;
        // The compiler makes copies of functions, such as `f.isra.0`.
        let also = if category == FUNCTION { '.' } else { '-' };
        let is_name = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == also)
        };
        // A number would be an address.
        let are_names =
            is_name(category) && is_name(name) && !name.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        are_names.then(|| Self { category: category.to_owned(), name: name.to_owned() }).ok_or(NotAName)
    }
}

impl fmt::Display for KernelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.category, self.name)
    }
}

/// Why an event of the kernel is not counted.
#[derive(Debug, thiserror::Error)]
pub enum NoEvent {
    /// There is no such tracepoint.
    #[error("the kernel has no such tracepoint; `perf list tracepoint` lists them")]
    NoTracepoint,
    /// There is no such function.
    #[error("the kernel has no such function that can be probed; /proc/kallsyms lists its functions")]
    NoFunction,
    /// Several functions have the name.
    #[error("several functions of the kernel have this name; give another one, or a tracepoint")]
    Ambiguous,
    /// The kernel would never pass the tracepoint.
    #[error("the kernel reports it only if {SCHEDSTATS} is 1")]
    Disabled,
    /// The kernel cannot probe functions.
    #[error("this kernel cannot probe its functions; it must be built with CONFIG_KPROBE_EVENTS")]
    NoFunctions,
    /// Only root may.
    #[error("{0}; run as root, outside of a container, on a kernel without lockdown")]
    Forbidden(io::Error),
    /// Any other error.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// A tracepoint that the running kernel has.
#[derive(Debug)]
pub struct Tracepoint {
    name: String,
    number: u64,
    _probe: Option<Probe>,
}

impl KernelEvent {
    /// Whether it is the calls of a function.
    #[must_use]
    pub fn is_function(&self) -> bool {
        self.category == FUNCTION
    }

    /// Whether a pass adds the time that it reports, in ns, to a counter, instead of one: these tracepoints
    /// of the scheduler do (Linux, `include/trace/events/sched.h`, `__perf_count`).
    #[must_use]
    pub fn is_time(&self) -> bool {
        const TIMES: [&str; 5] = ["runtime", "wait", "sleep", "iowait", "blocked"];
        self.category == "sched"
            && self.name.strip_prefix("sched_stat_").is_some_and(|time| TIMES.contains(&time))
    }

    /// Finds a tracepoint in the running kernel, or places a probe at the entry of a function.
    ///
    /// # Errors
    /// If the kernel does not have it, or does not permit it.
    pub fn find(&self) -> Result<Tracepoint, NoEvent> {
        if self.is_time() && self.name != "sched_stat_runtime" {
            let is_enabled = fs::read_to_string(SCHEDSTATS).is_ok_and(|text| text.trim() == "1");
            is_enabled.then_some(()).ok_or(NoEvent::Disabled)?;
        }
        let tracefs = tracefs()?;
        let (probe, path) = if self.is_function() {
            let probe = Probe::place(tracefs.try_clone()?, &self.name)?;
            let path = ["events", CATEGORY, &probe.name, "id"].iter().collect::<PathBuf>();
            (Some(probe), path)
        } else {
            (None, ["events", &self.category, &self.name, "id"].iter().collect())
        };
        let file = open(&tracefs, &path, OFlags::RDONLY).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => NoEvent::NoTracepoint,
            error => failed(error.into()),
        })?;
        let number = io::read_to_string(file).map_err(failed)?.trim().parse();
        Ok(Tracepoint { name: self.to_string(), number: number.map_err(io::Error::other)?, _probe: probe })
    }
}

impl Tracepoint {
    /// The event for counters, which must be closed before this is dropped.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        Event::tracepoint(&self.name, self.number)
    }
}

/// A probe at the entry of a function: a tracepoint that exists until it is dropped. One that a killed
/// process leaves has no counter and costs nothing.
///
/// `perf_event_open` could probe a function itself, but then each counter of a processor or thread is a probe
/// of its own, which runs at each call; and the kernel places one for each new thread of a counted process,
/// with the privileges of that process: without them, it could not create threads any more.
#[derive(Debug)]
struct Probe {
    tracefs: OwnedFd,
    /// Of the tracepoint.
    name: String,
}

impl Probe {
    fn place(tracefs: OwnedFd, function: &str) -> Result<Self, NoEvent> {
        // Other processes place theirs in the same category, and in a container they may have the same id.
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let name = format!("probe_{}", random.trim().replace('-', "_"));
        command(&tracefs, &format!("p:{CATEGORY}/{name} {function}"))?;
        Ok(Self { tracefs, name })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let remove = format!("-:{CATEGORY}/{}", self.name);
        // A thread that is ending may have its counter for a moment more. A probe that stays costs nothing.
        for _ in 0..100 {
            match command(&self.tracefs, &remove) {
                Err(NoEvent::Failed(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

/// Adds or removes a probe.
fn command(tracefs: &OwnedFd, command: &str) -> Result<(), NoEvent> {
    let file = open(tracefs, Path::new("kprobe_events"), OFlags::WRONLY | OFlags::APPEND);
    let mut file = file.map_err(|error| match error {
        Errno::NOENT => NoEvent::NoFunctions,
        error => failed(error.into()),
    })?;
    file.write_all(command.as_bytes()).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::INVAL) => NoEvent::NoFunction,
        Some(Errno::ADDRNOTAVAIL) => NoEvent::Ambiguous,
        _ => failed(error),
    })
}

fn failed(error: io::Error) -> NoEvent {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NoEvent::Forbidden(error),
        _ => NoEvent::Failed(error),
    }
}

/// Opens tracefs. If it is not mounted, it is mounted in no directory.
fn tracefs() -> Result<OwnedFd, NoEvent> {
    let call = |name: &'static str| move |error: Errno| failed(named(name, error.into()));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if Path::new(TRACEFS).join("events").exists() {
        return openat(CWD, TRACEFS, flags, Mode::empty()).map_err(call(TRACEFS));
    }
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(call("mounting tracefs"))?;
    fsconfig_create(&context).map_err(call("mounting tracefs"))?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    mount.map_err(call("mounting tracefs"))
}

fn open(tracefs: &OwnedFd, path: &Path, flags: OFlags) -> Result<File, Errno> {
    Ok(openat(tracefs, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{Count, Counter, Target};

    fn event(text: &str) -> KernelEvent {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_a_tracepoint_or_a_function_and_no_path() {
        for text in ["sched:sched_switch", "intel-sst:x", "kprobe:vfs_read", "kprobe:f.isra.0"] {
            assert_eq!(event(text).to_string(), text);
        }
        assert!(event("kprobe:vfs_read").is_function() && !event("sched:sched_switch").is_function());
        for text in [
            "",
            "sched",
            ":",
            "sched:",
            ":x",
            "kprobe:",
            "a:b:c",
            "..:x",
            "a:../b",
            "a/b:c",
            "a:b c",
            "a:b.c",
            "kprobe:..",
            "kprobe:a\0",
            "kprobe:a\nb",
            "kprobe:f+4",
        ] {
            assert!(text.parse::<KernelEvent>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_tracepoint_is_counted_each_time_that_this_thread_passes_it() {
        let tracepoint = event("sched:sched_process_fork").find().unwrap();
        let counter = Counter::open(tracepoint.event(), Target::ThisThread).unwrap();
        for threads in [0, 1, 10] {
            let before = counter.read().unwrap();
            (0..threads).for_each(|_| std::thread::spawn(|| {}).join().unwrap());
            assert_eq!(counter.read().unwrap().since(before), Count::Exact(threads));
        }
    }

    #[test]
    fn tracepoints_that_report_a_time_are_known() {
        assert!(event("sched:sched_stat_runtime").is_time());
        let others =
            ["sched:sched_switch", "x:sched_stat_runtime", "sched:sched_stat_", "kprobe:sched_stat_wait"];
        assert!(others.iter().all(|other| !event(other).is_time()));
        let tracepoint = event("sched:sched_stat_runtime").find().unwrap();
        let counter = Counter::open(tracepoint.event(), Target::ThisThread).unwrap();
        let (before, begin_ns) = (counter.read().unwrap(), crate::accounting::thread_cpu_ns().unwrap());
        // The kernel reports it at each switch and tick, and when another processor wakes a task on this one.
        while crate::accounting::thread_cpu_ns().unwrap() - begin_ns < 100_000_000 {}
        std::thread::sleep(Duration::from_millis(1));
        let Count::Exact(counted_ns) = counter.read().unwrap().since(before) else { panic!("it took turns") };
        // Far more than passes.
        assert!(counted_ns > 1_000_000, "{counted_ns}");
    }

    #[test]
    fn what_no_kernel_has_is_an_error() {
        if !fs::read_to_string(SCHEDSTATS).is_ok_and(|text| text.trim() == "1") {
            assert!(matches!(event("sched:sched_stat_wait").find(), Err(NoEvent::Disabled)));
        }
        for no_tracepoint in ["unicorns:seen", "sched:enable", &format!("sched:{}", "x".repeat(300))] {
            assert!(matches!(event(no_tracepoint).find(), Err(NoEvent::NoTracepoint)), "{no_tracepoint}");
        }
    }
}
