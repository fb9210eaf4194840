//! The primitives of the catalogue that no row of [`RULES`](super::RULES) names, and why. A test of the
//! binary compares both tables with the catalogue.

/// Primitives that no call of a traced program counts as.
#[derive(Debug, Clone, Copy)]
pub struct Unasked {
    /// A family, `cpu`, or an operation, `tcp.transfer`.
    pub primitives: &'static [&'static str],
    /// The reason.
    pub reason: &'static str,
}

/// All of them.
pub const UNASKED: &[Unasked] = &[
    Unasked {
        primitives: &["atomic", "cache", "code", "cpu", "memory", "mutex.lock_unlock", "spinlock", "stream"],
        reason: "executed in user mode, without a call: part of the user time",
    },
    Unasked {
        primitives: &["clock.gettime"],
        reason: "made by the vDSO without a call: part of the user time; a call that the kernel sees is \
                 `clock.gettime_call`",
    },
    Unasked {
        primitives: &["exception.null", "interrupt", "process.address_space_switch", "tlb"],
        reason: "the price of one part of a primitive, as the difference of two: the calls that contain it are \
                 counted as a whole",
    },
    Unasked {
        primitives: &[
            "eventfd.round_trip",
            "fcntl.lock_round_trip",
            "fifo",
            "futex.round_trip",
            "http",
            "mutex.contended",
            "pipe.round_trip",
            "process.yield",
            "rpc",
            "semaphore",
            "tcp.round_trip",
            "udp.round_trip",
            "unix.round_trip",
        ],
        reason: "work of two processes: each call, sleep and wake-up of it is counted by itself",
    },
    Unasked {
        primitives: &["pipe.transfer", "tcp.stream", "tcp.stream_in", "tcp.transfer", "unix.transfer"],
        reason: "both ends of a channel: an application may be at one, so writing and reading are counted \
                 separately",
    },
    Unasked {
        primitives: &[
            "directory.list",
            "mmap.map_unmap",
            "mmap.reread",
            "tcp.socket_close",
            "unix.socketpair_close",
        ],
        reason: "several calls, or calls and page faults, each of which is counted by itself",
    },
    Unasked {
        primitives: &["process.exec", "process.posix_spawn", "process.shell", "process.vfork_exec"],
        reason: "a process that executes a program: counted as the call that created it, as `process.execve`, and as \
                 the calls and page faults of the program",
    },
    Unasked {
        primitives: &["process.fork_exit"],
        reason: "contains the page faults of parent and child, each of which is counted by itself: a fork counts as \
                 `process.bare_fork_exit`",
    },
    Unasked { primitives: &["process.clone3_exit"], reason: "another form of `process.vfork_exit`" },
    Unasked {
        primitives: &["mmap.protect_page", "epoll.wait"],
        reason: "another form of `mmap.protect` and of `epoll.wait_ready`: the record of the call does not \
                 distinguish them",
    },
    Unasked {
        primitives: &["pidfd.send_signal", "signal.protection_fault"],
        reason: "a signal and its handler: counted as `signal.deliver` when the handler returns, whatever sent it",
    },
    Unasked {
        primitives: &["page_fault.major"],
        reason: "mostly the time of a device; the record of a page fault does not contain whether it waited for one",
    },
    Unasked {
        primitives: &["process.context_switch_refill"],
        reason: "a trace does not contain the working set that a switch evicts",
    },
    Unasked {
        primitives: &["uring.nop_polled", "uring.read", "uring.read_batch"],
        reason: "the ring is in memory: only the call `io_uring_enter` is recorded, as `uring.nop`",
    },
    Unasked {
        primitives: &["disk", "file.fdatasync", "file.fsync"],
        reason: "mostly the time of a device: the calls that wait for it are blocked, and use no processor",
    },
    Unasked {
        primitives: &[
            "timer.epoll_lateness",
            "timer.nanosleep_lateness",
            "timer.nanosleep_lateness_without_slack",
            "timer.select_lateness",
            "timer.timerfd_lateness",
        ],
        reason: "how much later than requested a sleeper runs: a delay, which uses no processor",
    },
];
