//! Counters of the processor and of the kernel (`perf_event_open`): of threads, of a control group, or of
//! a processor. [`crate::kernel_event`] finds the tracepoints.
//!
//! Each counter is opened on its own, so that a missing one does not affect the others and has its own
//! reason. The processor has fewer counters than there are events, so the kernel may multiplex them: a count
//! that covers only a part of the time is scaled up and marked.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An event to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name in reports.
    pub name: &'a str,
    kind: u32,
    config: u64,
}

/// Kinds of events (perf_event_open(2)).
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const CACHE: u32 = 3;
const RAW: u32 = 4;

const fn event(name: &str, kind: u32, config: u64) -> Event<'_> {
    Event { name, kind, config }
}

/// Load misses in this part of the memory system.
const fn load_misses(name: &str, of: u64) -> Event<'_> {
    const LOAD: u64 = 0 << 8;
    const MISS: u64 = 1 << 16;
    event(name, CACHE, of | LOAD | MISS)
}

/// Cycles of the processor.
pub const CYCLES: Event<'static> = event("cycles", HARDWARE, 0);
/// Instructions that it retired.
pub const INSTRUCTIONS: Event<'static> = event("instructions", HARDWARE, 1);
/// Accesses that the last-level cache did not have.
pub const CACHE_MISSES: Event<'static> = event("cache misses", HARDWARE, 3);
/// Loads whose translation the data TLB did not have.
pub const TLB_MISSES: Event<'static> = load_misses("data TLB load misses", 3);
/// Page faults, with and without I/O.
pub const PAGE_FAULTS: Event<'static> = event("page faults", SOFTWARE, 2);
/// Context switches away from a task.
pub const CONTEXT_SWITCHES: Event<'static> = event("context switches", SOFTWARE, 3);

/// All events, those of the processor first. Those of the kernel exist even if the processor or the
/// hypervisor provides no counters.
pub const EVENTS: [Event<'static>; 8] = [
    CYCLES,
    INSTRUCTIONS,
    CACHE_MISSES,
    event("branch misses", HARDWARE, 5),
    load_misses("last-level cache load misses", 2),
    TLB_MISSES,
    PAGE_FAULTS,
    CONTEXT_SWITCHES,
];

/// Why an event is not counted.
#[derive(Debug, thiserror::Error)]
pub enum NoCounter {
    /// Neither the processor nor the kernel provides it.
    #[error(
        "neither the processor nor the hypervisor offers a counter of {event} ({error}); measure on hardware, or \
         give the virtual machine a PMU"
    )]
    Missing {
        /// Name of the event.
        event: String,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The kernel's settings do not permit it for this user.
    #[error(
        "{event} may not be counted ({error}); run as root, or set kernel.perf_event_paranoid to {paranoid} or less"
    )]
    Forbidden {
        /// Name of the event.
        event: String,
        /// The setting with which any user may count it (perf_event_open(2)).
        paranoid: u8,
        /// The error of the kernel.
        error: io::Error,
    },
    /// Any other error.
    #[error("cannot open the counter of {event}: {error}")]
    Failed {
        /// Name of the event.
        event: String,
        /// The error of the kernel.
        error: io::Error,
    },
}

/// The processor modes in which a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Both.
    UserAndKernel,
    /// User mode only, because the kernel does not permit more for this user.
    User,
}

/// Whose events are counted.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The calling thread.
    ThisThread,
    /// The thread with this id, and the threads of its process that it starts from now on (Linux 5.13).
    Threads(i32),
    /// One processor, for the tasks of a control group of the unified hierarchy whose directory this is.
    Group(BorrowedFd<'a>, usize),
    /// One processor, for all tasks.
    Processor(usize),
}

/// A counter.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
    /// The modes that it counts in.
    pub scope: Scope,
}

/// A reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    count: u64,
    /// Time since it was enabled, ns.
    enabled_ns: u64,
    /// Time during which it counted, ns.
    running_ns: u64,
}

/// The count between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Count {
    /// The exact count.
    Exact(u64),
    /// An extrapolated count, because the counter was multiplexed.
    Scaled {
        /// The count, scaled up.
        estimate: f64,
        /// Share of the time during which it counted.
        share: f64,
    },
    /// None: the counter was never scheduled.
    NoTurn,
}

/// Opens a counter for every event, with its name. They count the calling thread from now on.
#[must_use]
pub fn open() -> Vec<(&'static str, Result<Counter, NoCounter>)> {
    EVENTS.into_iter().map(|event| (event.name, Counter::open(event, Target::ThisThread))).collect()
}

impl<'a> Event<'a> {
    /// An event that only some models of processors have, by its code in their manuals.
    #[must_use]
    pub const fn raw(name: &'a str, code: u64) -> Self {
        event(name, RAW, code)
    }

    /// The passes of the tracepoint with this number.
    pub(crate) const fn tracepoint(name: &'a str, number: u64) -> Self {
        event(name, TRACEPOINT, number)
    }

    /// Whether it occurs in user mode as well. A context switch does not: a counter of user mode only never
    /// counts one.
    fn has_user_part(self) -> bool {
        self != CONTEXT_SWITCHES && self.kind != TRACEPOINT
    }
}

impl Counter {
    /// Opens a counter for the event. It counts from now on.
    ///
    /// # Errors
    /// [`NoCounter`].
    pub fn open(event: Event, target: Target) -> Result<Self, NoCounter> {
        let refused = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        let both = perf_event_open(event, Scope::UserAndKernel, target);
        let (opened, scope) = match both {
            Err(error) if refused(&error) && event.has_user_part() => {
                (perf_event_open(event, Scope::User, target), Scope::User)
            }
            both => (both, Scope::UserAndKernel),
        };
        let paranoid = match target {
            Target::Group(..) | Target::Processor(_) => 0,
            Target::ThisThread | Target::Threads(_) if event.has_user_part() => 2,
            Target::ThisThread | Target::Threads(_) => 1,
        };
        let event = event.name.to_owned();
        opened.map(|fd| Self { fd, scope }).map_err(|error| match error.raw_os_error() {
            _ if refused(&error) => NoCounter::Forbidden { event, paranoid, error },
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENOSYS) => {
                NoCounter::Missing { event, error }
            }
            _ => NoCounter::Failed { event, error },
        })
    }

    /// Reads the counter.
    ///
    /// # Errors
    /// If the kernel returns less than a whole reading.
    pub fn read(&self) -> io::Result<Reading> {
        let mut words = [0_u8; 24];
        let got = rustix::io::read(&self.fd, &mut words)?;
        if got != words.len() {
            return Err(io::Error::other(format!(
                "a counter returned {got} bytes instead of {}",
                words.len()
            )));
        }
        let [count, enabled_ns, running_ns] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&words[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        Ok(Reading { count, enabled_ns, running_ns })
    }
}

impl Reading {
    /// The count since an earlier reading of the same counter.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a scaled count is an estimate of far fewer than 2^52")]
    pub fn since(self, earlier: Self) -> Count {
        let count = self.count.saturating_sub(earlier.count);
        let enabled_ns = self.enabled_ns.saturating_sub(earlier.enabled_ns);
        let running_ns = self.running_ns.saturating_sub(earlier.running_ns);
        if running_ns >= enabled_ns {
            Count::Exact(count)
        } else if running_ns == 0 {
            Count::NoTurn
        } else {
            let share = running_ns as f64 / enabled_ns as f64;
            Count::Scaled { estimate: count as f64 / share, share }
        }
    }
}

/// The first version of `struct perf_event_attr`, which every kernel accepts (perf_event_open(2)).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Size of [`Attributes`] (`PERF_ATTR_SIZE_VER0`).
const SIZE: u32 = 64;
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);

/// Bits of `flags`.
const INHERIT: u64 = 1 << 1;
const INHERIT_THREAD: u64 = 1 << 35;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Bits of `read_format`: the two times after the count.
const TIME_ENABLED: u64 = 1 << 0;
const TIME_RUNNING: u64 = 1 << 1;

/// Bits of the flags of the call.
const CONTROL_GROUP: libc::c_ulong = 1 << 2;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

fn perf_event_open(event: Event, scope: Scope, target: Target) -> io::Result<OwnedFd> {
    const ANY: libc::c_int = -1;
    let number = |cpu: usize| libc::c_int::try_from(cpu).map_err(io::Error::other);
    let (pid, cpu, flags, inherit) = match target {
        Target::ThisThread => (0, ANY, 0, 0),
        Target::Threads(thread) => (thread, ANY, 0, INHERIT | INHERIT_THREAD),
        Target::Group(directory, cpu) => (directory.as_raw_fd(), number(cpu)?, CONTROL_GROUP, 0),
        Target::Processor(cpu) => (ANY, number(cpu)?, 0, 0),
    };
    let attributes = Attributes {
        kind: event.kind,
        size: SIZE,
        config: event.config,
        read_format: TIME_ENABLED | TIME_RUNNING,
        flags: inherit | EXCLUDE_HYPERVISOR | if scope == Scope::User { EXCLUDE_KERNEL } else { 0 },
        ..Attributes::default()
    };
    let no_group: libc::c_int = -1;
    // SAFETY: the pointer is to a structure of the size that it names, which outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            pid,
            cpu,
            no_group,
            flags | CLOSE_ON_EXEC,
        )
    };
    let Ok(fd @ 0..) = i32::try_from(fd) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::{Who, usage};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::time::Duration;

    fn counter(name: &str) -> Result<Counter, NoCounter> {
        let event = EVENTS.into_iter().find(|event| event.name == name).unwrap();
        Counter::open(event, Target::ThisThread)
    }

    /// The count during a function.
    fn counted(counter: &Counter, mut what: impl FnMut()) -> Count {
        let before = counter.read().unwrap();
        what();
        counter.read().unwrap().since(before)
    }

    fn touch(pages: usize) {
        let page = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which is used here alone.
        unsafe {
            let mapping =
                mmap_anonymous(std::ptr::null_mut(), pages * page, access, MapFlags::PRIVATE).unwrap();
            let _ = madvise(mapping, pages * page, Advice::LinuxNoHugepage);
            (0..pages).for_each(|number| mapping.cast::<u8>().add(number * page).write_volatile(1));
            munmap(mapping, pages * page).unwrap();
        }
    }

    #[test]
    fn the_kernel_counts_one_fault_for_every_page_that_is_touched() {
        let faults = counter("page faults").unwrap();
        touch(1);
        for pages in [1, 10, 1000] {
            let Count::Exact(count) = counted(&faults, || touch(pages)) else {
                panic!("software events are not multiplexed")
            };
            // The code that touches them may be on a page that the test has not executed yet.
            assert!((pages as u64..pages as u64 + 8).contains(&count), "{pages}: {count}");
        }
    }

    /// Context switches of the calling thread so far, from another source.
    fn switches_so_far() -> u64 {
        let usage = usage(Who::Thread).unwrap();
        usage.voluntary_switches + usage.involuntary_switches
    }

    /// Sleeps until the thread has been switched this often. A sleep whose timer expires early enough does
    /// not switch.
    fn sleep_until_switched(times: u64) {
        let end = switches_so_far() + times;
        while switches_so_far() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_kernel_counts_every_switch_of_this_thread_and_of_no_other() {
        let counter = match counter("context switches") {
            Ok(counter) => counter,
            // Without root privileges.
            Err(error) => return assert!(error.to_string().contains("perf_event_paranoid to 1"), "{error}"),
        };
        let check = |what: &dyn Fn()| {
            let outer = switches_so_far();
            let mut inner = 0;
            let count = counted(&counter, || {
                let start = switches_so_far();
                what();
                inner = switches_so_far() - start;
            });
            let outer = switches_so_far() - outer;
            let Count::Exact(count) = count else { panic!("software events are not multiplexed") };
            assert!((inner..=outer).contains(&count), "{inner} <= {count} <= {outer}");
        };
        check(&|| sleep_until_switched(20));
        check(&|| std::thread::spawn(|| sleep_until_switched(100)).join().unwrap());
    }

    #[test]
    fn the_processor_counts_or_it_is_said_why_it_does_not() {
        for (name, counter) in open().into_iter().filter(|(name, _)| !name.contains(' ')) {
            match counter {
                Ok(counter) => {
                    let count = counted(&counter, || {
                        for turn in 0..100_000 {
                            std::hint::black_box(turn);
                        }
                    });
                    assert!(!matches!(count, Count::Exact(0..100_000)), "{name}: {count:?}");
                }
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.contains(name), "{message}");
                    assert!(message.contains("PMU") || message.contains("perf_event_paranoid"), "{message}");
                }
            }
        }
    }

    #[test]
    fn an_event_that_no_kernel_knows_is_missing_and_takes_no_other_with_it() {
        let unknown = event("unicorns", SOFTWARE, 9999);
        let error = Counter::open(unknown, Target::ThisThread).unwrap_err();
        assert!(matches!(error, NoCounter::Missing { .. }), "{error}");
        assert!(error.to_string().contains("a counter of unicorns"), "{error}");
        assert_eq!(open().len(), EVENTS.len());
        assert!(open().iter().any(|(name, counter)| *name == "page faults" && counter.is_ok()));
    }

    #[test]
    fn a_counter_that_took_turns_is_scaled_by_its_share_and_one_without_a_turn_counts_nothing() {
        let earlier = Reading { count: 100, enabled_ns: 1000, running_ns: 900 };
        let later = |count, enabled_ns, running_ns| Reading { count, enabled_ns, running_ns }.since(earlier);
        assert_eq!(later(160, 3000, 2900), Count::Exact(60));
        assert_eq!(later(160, 3000, 1400), Count::Scaled { estimate: 240.0, share: 0.25 });
        assert_eq!(later(100, 3000, 900), Count::NoTurn);
    }
}
