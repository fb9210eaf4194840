//! The rows of the mapping. The first one that matches a call applies.

use super::rules::{Argument, On, Role, Rule, When};

/// All bits of an argument of the C type `int`; the upper half of its register is undefined.
const INT: u64 = 0xffff_ffff;
const AF_UNIX: u64 = 1;
const AT_EMPTY_PATH: u64 = 0x1000;
const AT_REMOVEDIR: u64 = 0x200;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;
/// The operation of `futex`, without its flags.
const FUTEX_OPERATION: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAKE_BITSET: u64 = 10;
const MADV_DONTNEED: u64 = 4;
/// `O_CREAT | O_EXCL`: the file is new.
const O_NEW: u64 = 0o300;
const NO_FLAG: u64 = 0;
const NO_ADDRESS: u64 = 0;
/// All bits of an argument.
const ALL: u64 = u64::MAX;

macro_rules! rules {
    ($($calls:tt $on:ident $when:ident $([$at:literal & $mask:ident == $value:ident])?
        => $primitive:literal $role:ident $(($bytes:literal))?,)+) => {
        &[$(Rule {
            calls: &$calls,
            on: On::$on,
            when: When::$when,
            with: with!($($at & $mask == $value)?),
            primitive: $primitive,
            role: Role::$role$(($bytes))?,
        },)+]
    };
}

macro_rules! with {
    () => {
        None
    };
    ($at:literal & $mask:ident == $value:ident) => {
        Some(Argument { at: $at, mask: $mask, value: $value, name: stringify!($value) })
    };
}

/// The mapping. A failed call matches only a row whose condition is its error. `[1 & MASK == VALUE]` is a
/// condition on the argument at position 1, counted from 0.
pub const RULES: &[Rule] = rules! {
    // TCP.
    ["write", "writev", "sendto", "sendmsg"] Tcp Corked => "tcp.writev_corked" Sized,
    ["sendfile"] Tcp Corked => "tcp.sendfile_corked" Sized,
    ["setsockopt"] TcpElsewhere Uncorks => "tcp.uncork{cpus=different}" HeldBack,
    ["setsockopt"] Tcp Uncorks => "tcp.uncork" HeldBack,
    ["setsockopt"] Tcp Corks => "socket.setsockopt" Operation,
    ["read", "recvfrom", "recvmsg", "readv"] TcpElsewhere Succeeded
        => "tcp.receive{cpus=different}" Buffered,
    ["read", "recvfrom", "recvmsg", "readv"] Tcp Succeeded => "tcp.receive" Buffered,
    ["read", "recvfrom", "recvmsg", "readv"] Tcp WouldBlock => "tcp.receive_empty" Operation,
    ["write", "sendto", "sendmsg"] TcpElsewhere Succeeded => "tcp.send{cpus=different}" Buffered,
    ["write", "sendto", "sendmsg"] Tcp Succeeded => "tcp.send" Buffered,
    ["writev"] TcpElsewhere Succeeded => "tcp.writev{cpus=different}" Sized,
    ["writev"] Tcp Succeeded => "tcp.writev" Sized,
    ["sendfile"] TcpElsewhere Succeeded => "tcp.sendfile{cpus=different}" Sized,
    ["sendfile"] Tcp Succeeded => "tcp.sendfile" Sized,
    ["accept", "accept4"] Tcp Succeeded => "tcp.accept" Operation,
    ["accept", "accept4"] Tcp WouldBlock => "tcp.accept_empty" Operation,
    ["socket"] Tcp Succeeded => "tcp.connect" Within,
    ["connect"] Tcp Succeeded => "tcp.connect" Operation,
    ["connect"] Tcp InProgress => "tcp.connect" Operation,
    ["shutdown"] Tcp Succeeded => "tcp.shutdown" Operation,
    ["close"] Tcp Succeeded => "tcp.close" Operation,
    // Other sockets, and pipes.
    ["read", "recvfrom", "recvmsg"] Udp Succeeded => "udp.receive" Sized,
    ["read", "recvfrom", "recvmsg"] Udp WouldBlock => "udp.receive_empty" Operation,
    ["write", "sendto", "sendmsg"] Udp Succeeded => "udp.send" Sized,
    ["read", "recvfrom", "recvmsg", "readv"] Unix Succeeded => "unix.receive" Buffered,
    ["read", "recvfrom", "recvmsg", "readv"] Unix WouldBlock => "unix.receive_empty" Operation,
    ["write", "sendto", "sendmsg", "writev"] Unix Succeeded => "unix.send" Buffered,
    ["socketpair"] Any Succeeded [0 & INT == AF_UNIX] => "unix.socketpair" Operation,
    ["socket"] Unix Succeeded => "unix.connect" Within,
    ["connect"] Unix Succeeded => "unix.connect" Operation,
    ["accept", "accept4"] Unix Succeeded => "unix.accept" Operation,
    ["close"] Unix Succeeded => "unix.close" Operation,
    ["setsockopt"] Any Succeeded => "socket.setsockopt" Operation,
    ["getsockopt"] Any Succeeded => "socket.getsockopt" Operation,
    ["getpeername", "getsockname"] Any Succeeded => "socket.getpeername" Operation,
    ["read", "readv"] Pipe Succeeded => "pipe.read" Buffered,
    ["read", "readv"] Pipe WouldBlock => "pipe.read_empty" Operation,
    ["write", "writev"] Pipe Succeeded => "pipe.write" Buffered,
    ["pipe", "pipe2"] Any Succeeded => "pipe.create_close" Operation,
    ["close"] Pipe Succeeded => "pipe.create_close" Within,
    ["splice"] Pipe Succeeded => "splice.file_to_pipe" Sized,
    ["splice"] Unix Succeeded => "splice.pipe_to_unix" Sized,
    // Files.
    ["read", "pread64", "readv", "preadv", "preadv2"] File Succeeded => "file.read" Buffered,
    ["write", "pwrite64", "writev", "pwritev", "pwritev2"] File Succeeded => "file.write" Buffered,
    ["copy_file_range"] File Succeeded => "file.copy_range" Sized,
    ["read"] Zero Succeeded => "null.read" Sized,
    ["write"] Null Succeeded => "null.write" Sized,
    ["open"] File Succeeded [1 & O_NEW == O_NEW] => "file.create" Operation,
    ["openat"] File Succeeded [2 & O_NEW == O_NEW] => "file.create" Operation,
    ["open", "openat", "openat2", "creat"] File Succeeded => "file.open_close" Operation,
    ["open", "openat", "openat2"] Device Succeeded => "file.open_close" Operation,
    ["close"] File Succeeded => "file.open_close" Within,
    ["close"] Device Succeeded => "file.open_close" Within,
    ["open", "openat", "openat2"] Any Missing => "file.open_missing" Operation,
    ["newfstatat"] Any Succeeded [3 & AT_EMPTY_PATH == AT_EMPTY_PATH] => "file.fstat" Operation,
    ["statx"] Any Succeeded [2 & AT_EMPTY_PATH == AT_EMPTY_PATH] => "file.fstat" Operation,
    ["fstat"] Any Succeeded => "file.fstat" Operation,
    ["stat", "lstat", "newfstatat", "statx"] Any Succeeded => "file.stat" Operation,
    ["stat", "lstat", "newfstatat", "statx"] Any Missing => "file.stat_missing" Operation,
    ["access", "faccessat", "faccessat2"] Any Succeeded => "file.access" Operation,
    ["access", "faccessat", "faccessat2"] Any Missing => "file.access_missing" Operation,
    ["readlink", "readlinkat"] Any Missing => "file.readlink_missing" Operation,
    ["readlink", "readlinkat"] Any Succeeded => "file.readlink" Operation,
    // What is no link has been looked up, too.
    ["readlink", "readlinkat"] Any Invalid => "file.readlink" Operation,
    ["lseek"] Any Succeeded => "file.lseek" Operation,
    ["fcntl"] Any Succeeded [1 & INT == F_DUPFD] => "file.dup_close" Operation,
    ["fcntl"] Any Succeeded [1 & INT == F_DUPFD_CLOEXEC] => "file.dup_close" Operation,
    ["fcntl"] Any Succeeded => "file.fcntl" Operation,
    ["dup", "dup2", "dup3"] Any Succeeded => "file.dup_close" Operation,
    ["rename", "renameat", "renameat2"] Any Succeeded => "file.rename" Operation,
    ["unlink"] Any Succeeded => "file.delete" Operation,
    ["unlinkat"] Any Succeeded [2 & AT_REMOVEDIR == NO_FLAG] => "file.delete" Operation,
    // Directories.
    ["mkdir", "mkdirat"] Any Succeeded => "directory.make_remove" Operation,
    ["rmdir"] Any Succeeded => "directory.make_remove" Within,
    ["unlinkat"] Any Succeeded [2 & AT_REMOVEDIR == AT_REMOVEDIR] => "directory.make_remove" Within,
    ["open", "openat", "openat2"] Directory Succeeded => "directory.open_close" Operation,
    ["getdents", "getdents64"] Directory Succeeded => "directory.read" Sized,
    ["close"] Directory Succeeded => "directory.open_close" Within,
    // Waiting for events.
    ["epoll_wait", "epoll_pwait", "epoll_pwait2"] Any Succeeded => "epoll.wait_ready" Operation,
    ["epoll_ctl"] Any Succeeded => "epoll.ctl" Operation,
    ["poll", "ppoll"] Any Succeeded => "poll.wait{descriptor=tcp,descriptors=10}" Operation,
    ["select", "pselect6"] Any Succeeded => "select.wait{descriptor=tcp,descriptors=10}" Operation,
    ["write"] Eventfd Succeeded => "eventfd.write_read" Operation,
    ["read"] Eventfd Succeeded => "eventfd.write_read" Within,
    ["read"] Signalfd Succeeded => "signalfd.read" Operation,
    ["io_uring_enter"] Any Succeeded => "uring.nop" Operation,
    ["futex"] Any Succeeded [1 & FUTEX_OPERATION == FUTEX_WAKE] => "futex.wake" Operation,
    ["futex"] Any Succeeded [1 & FUTEX_OPERATION == FUTEX_WAKE_BITSET] => "futex.wake" Operation,
    // A wait that slept, without the sleep.
    ["futex"] Any Succeeded [1 & FUTEX_OPERATION == FUTEX_WAIT] => "futex.wait_changed" Operation,
    ["futex"] Any Succeeded [1 & FUTEX_OPERATION == FUTEX_WAIT_BITSET] => "futex.wait_changed" Operation,
    ["futex"] Any WouldBlock [1 & FUTEX_OPERATION == FUTEX_WAIT] => "futex.wait_changed" Operation,
    ["futex"] Any WouldBlock [1 & FUTEX_OPERATION == FUTEX_WAIT_BITSET] => "futex.wait_changed" Operation,
    // Memory.
    ["mmap"] File Succeeded => "mmap.map_file" Operation,
    ["mmap"] Any Succeeded => "mmap.map_anonymous" Operation,
    ["munmap"] Any Succeeded => "mmap.unmap" Operation,
    ["mprotect"] Any Succeeded => "mmap.protect" OfBytes(4096),
    ["madvise"] Any Succeeded [2 & INT == MADV_DONTNEED] => "mmap.discard" OfBytes(65_536),
    ["brk"] Any Succeeded [0 & ALL == NO_ADDRESS] => "call.null" Operation,
    ["brk"] Any Succeeded => "brk.move" OfBytes(131_072),
    // Processes and threads.
    ["fork", "clone", "clone3"] Any MadeCopy => "process.bare_fork_exit" Copied,
    ["vfork", "clone", "clone3"] Any MadeBorrower => "process.vfork_exit" Operation,
    ["clone", "clone3"] Any MadeThread => "thread.create_join" Operation,
    ["exit"] Any Ended => "thread.create_join" Within,
    ["exit_group"] Any Ended => "process.bare_fork_exit" Within,
    ["wait4", "waitid"] Any Succeeded => "process.bare_fork_exit" Within,
    // The trace does not contain how the program is linked; nearly all programs are dynamic.
    ["execve", "execveat"] Any Succeeded => "process.execve{link=dynamic}" Operation,
    ["pidfd_open"] Any Succeeded => "pidfd.open_close" Operation,
    ["close"] Anonymous Succeeded => "pidfd.open_close" Within,
    // Signals, timers, and the rest.
    ["rt_sigaction"] Any Succeeded => "signal.install" Operation,
    // Its result is that of the interrupted code.
    ["rt_sigreturn"] Any Returned => "signal.deliver" Operation,
    ["kill", "tkill", "tgkill", "pidfd_send_signal"] Any Succeeded => "signal.deliver" Within,
    ["setitimer", "alarm"] Any Succeeded => "timer.setitimer" Operation,
    ["timer_settime"] Any Succeeded => "timer.timer_settime" Operation,
    ["timerfd_settime"] Any Succeeded => "timer.timerfd_settime" Operation,
    ["clock_gettime", "gettimeofday", "time"] Any Succeeded => "clock.gettime_call" Operation,
    ["getrandom"] Any Succeeded => "random.getrandom" Sized,
    ["getppid"] Any Succeeded => "call.null" Operation,
};
