//! The rules per call, as rows.

use super::{Argument, Direction, Outcome, Rule};

const IN: Outcome = Outcome::Bytes(Direction::In);
const OUT: Outcome = Outcome::Bytes(Direction::Out);
const FD: Outcome = Outcome::Descriptor;

type Row = (&'static str, Rule);

/// Moves bytes between the descriptor in argument 0 and the memory that argument 1 points to.
const fn moves(name: &'static str, result: Outcome) -> Row {
    (name, Rule { descriptor: Argument::At(0), result, buffer: Some(1) })
}

/// Moves bytes, but argument 1 points to a vector or a message header, not to the bytes.
const fn scatters(name: &'static str, result: Outcome) -> Row {
    (name, Rule { descriptor: Argument::At(0), result, buffer: None })
}

/// Works on the descriptor in argument 0.
const fn on(name: &'static str) -> Row {
    (name, Rule { descriptor: Argument::At(0), result: Outcome::Other, buffer: None })
}

/// Works on the descriptor in argument `index`, if it is a descriptor.
const fn maybe_on(name: &'static str, index: u8) -> Row {
    (name, Rule { descriptor: Argument::Maybe(index), result: Outcome::Other, buffer: None })
}

/// Returns a descriptor.
const fn opens(name: &'static str) -> Row {
    (name, Rule { descriptor: Argument::None, result: FD, buffer: None })
}

/// Creates a descriptor from the one in argument 0.
const fn derives(name: &'static str) -> Row {
    (name, Rule { descriptor: Argument::At(0), result: FD, buffer: None })
}

const fn row(name: &'static str, descriptor: Argument, result: Outcome, buffer: Option<u8>) -> Row {
    (name, Rule { descriptor, result, buffer })
}

/// Every call that has a descriptor or moves bytes.
pub const TABLE: &[Row] = &[
    moves("read", IN),
    moves("pread64", IN),
    moves("recvfrom", IN),
    moves("getdents", IN),
    moves("getdents64", IN),
    moves("write", OUT),
    moves("pwrite64", OUT),
    moves("sendto", OUT),
    scatters("readv", IN),
    scatters("preadv", IN),
    scatters("preadv2", IN),
    scatters("recvmsg", IN),
    scatters("writev", OUT),
    scatters("pwritev", OUT),
    scatters("pwritev2", OUT),
    scatters("sendmsg", OUT),
    scatters("vmsplice", OUT),
    // Between two descriptors: argument 0 is the destination, or argument 2 where the source comes first.
    scatters("sendfile", OUT),
    row("splice", Argument::At(2), OUT, None),
    row("copy_file_range", Argument::At(2), OUT, None),
    scatters("tee", OUT), // argument 0 is the source; both are pipes
    // No descriptor.
    row("getrandom", Argument::None, IN, Some(0)),
    row("process_vm_readv", Argument::None, IN, None),
    row("process_vm_writev", Argument::None, OUT, None),
    opens("open"),
    opens("openat"),
    opens("openat2"),
    opens("creat"),
    opens("open_by_handle_at"),
    opens("memfd_create"),
    opens("memfd_secret"),
    opens("socket"),
    opens("epoll_create"),
    opens("epoll_create1"),
    opens("eventfd"),
    opens("eventfd2"),
    opens("timerfd_create"),
    opens("signalfd"),
    opens("signalfd4"),
    opens("inotify_init"),
    opens("inotify_init1"),
    opens("fanotify_init"),
    opens("io_uring_setup"),
    opens("pidfd_open"),
    opens("pidfd_getfd"),
    opens("perf_event_open"),
    opens("userfaultfd"),
    opens("mq_open"),
    derives("accept"),
    derives("accept4"),
    derives("dup"),
    derives("dup2"),
    derives("dup3"),
    on("close"),
    on("lseek"),
    on("fstat"),
    on("fstatfs"),
    on("fsync"),
    on("fdatasync"),
    on("ftruncate"),
    on("fallocate"),
    on("fadvise64"),
    on("flock"),
    on("fcntl"),
    on("ioctl"),
    on("fchdir"),
    on("fchmod"),
    on("fchown"),
    on("fgetxattr"),
    on("flistxattr"),
    on("fsetxattr"),
    on("fremovexattr"),
    on("readahead"),
    on("sync_file_range"),
    on("syncfs"),
    on("bind"),
    on("listen"),
    on("connect"),
    on("shutdown"),
    on("getsockname"),
    on("getpeername"),
    on("setsockopt"),
    on("getsockopt"),
    on("recvmmsg"),
    on("sendmmsg"),
    on("epoll_ctl"),
    on("epoll_wait"),
    on("epoll_pwait"),
    on("epoll_pwait2"),
    on("timerfd_settime"),
    on("timerfd_gettime"),
    on("inotify_add_watch"),
    on("inotify_rm_watch"),
    on("io_uring_enter"),
    on("io_uring_register"),
    on("pidfd_send_signal"),
    on("finit_module"),
    maybe_on("newfstatat", 0),
    maybe_on("statx", 0),
    maybe_on("utimensat", 0),
    maybe_on("execveat", 0),
    maybe_on("mmap", 4),
];
