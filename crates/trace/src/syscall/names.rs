//! The names of constants that calls take, with the values of the architecture on which assay runs.
//!
//! The crate `libc` has the values.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the types of the constants differ, and all their values fit 32 bits"
)]

use std::fmt::Write;

/// The constants of an argument: one of them, flags, or both.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// The bits in which `one_of` are: the rest are flags.
    pub(crate) mask: u64,
    /// Constants that exclude each other.
    pub(crate) one_of: &'static [(u64, &'static str)],
    /// Flags.
    pub(crate) flags: &'static [(u64, &'static str)],
}

impl Names {
    /// Adds the constants that are combined in `value`, as C has them; what has no name is a number.
    pub fn push(&self, text: &mut String, value: u64) {
        let begin = text.len();
        let value = value & u64::from(u32::MAX);
        let mut rest = value;
        if let Some((found, name)) = self.one_of.iter().find(|(one, _)| *one == value & self.mask) {
            text.push_str(name);
            rest &= !found;
        }
        for (flag, name) in self.flags {
            if rest & flag == *flag {
                text.push_str(if text.len() == begin { "" } else { "|" });
                text.push_str(name);
                rest &= !flag;
            }
        }
        // Writing to a string cannot fail.
        let _ = match (text.len() == begin, rest) {
            (false, 0) => Ok(()),
            (false, rest) => write!(text, "|{rest:#x}"),
            (true, 0) => text.write_char('0'),
            (true, rest) => write!(text, "{rest:#x}"),
        };
    }
}

/// Constants of the crate `libc` with their names. All of them fit 32 bits.
macro_rules! named {
    ($($name:ident)*) => { &[$((libc::$name as u32 as u64, stringify!($name))),*] };
}

macro_rules! names {
    ($($id:ident = $mask:expr, [$($one:ident)*], [$($flag:ident)*];)*) => {
        $(pub(crate) const $id: Names =
            Names { mask: $mask, one_of: named!($($one)*), flags: named!($($flag)*) };)*
    };
}

/// The mask of a constant that cannot be combined.
const ALL: u64 = 0xffff_ffff;

names! {
    ACCESS = ALL, [F_OK], [R_OK W_OK X_OK];
    AT = 0, [], [AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH];
    CLOCK = ALL, [
        CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
        CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
        CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
    ], [];
    CLOSE_RANGE = 0, [], [CLOSE_RANGE_UNSHARE CLOSE_RANGE_CLOEXEC];
    DESCRIPTOR = 0, [], [O_CLOEXEC O_NONBLOCK O_DIRECT O_EXCL];
    EACCESS = 0, [], [AT_EACCESS AT_SYMLINK_NOFOLLOW AT_EMPTY_PATH];
    EPOLL_CREATE = 0, [], [EPOLL_CLOEXEC];
    EPOLL_CTL = ALL, [EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD], [];
    EVENTFD = 0, [], [EFD_SEMAPHORE EFD_CLOEXEC EFD_NONBLOCK];
    FADVISE = ALL, [
        POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED POSIX_FADV_DONTNEED
        POSIX_FADV_NOREUSE
    ], [];
    FALLOCATE = 0, [], [
        FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_COLLAPSE_RANGE FALLOC_FL_ZERO_RANGE
        FALLOC_FL_INSERT_RANGE FALLOC_FL_UNSHARE_RANGE
    ];
    FAMILY = ALL, [AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_ALG AF_VSOCK AF_XDP], [];
    FCNTL = ALL, [
        F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_SETLEASE
        F_GETLEASE F_NOTIFY F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_OFD_GETLK
        F_OFD_SETLK F_OFD_SETLKW
    ], [];
    FLOCK = 0xb, [LOCK_SH LOCK_EX LOCK_UN], [LOCK_NB];
    INOTIFY_INIT = 0, [], [IN_CLOEXEC IN_NONBLOCK];
    IOCTL = ALL, [
        TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCGPGRP TIOCSPGRP TIOCSCTTY FIONREAD FIONBIO
        FIOCLEX FIONCLEX FICLONE
    ], [];
    LEVEL = ALL, [SOL_SOCKET SOL_IP SOL_TCP SOL_UDP SOL_IPV6 SOL_NETLINK], [];
    MADVISE = ALL, [
        MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE
        MADV_DONTFORK MADV_DOFORK MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP MADV_COLD
        MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
    ], [];
    MAP = 0xf, [MAP_SHARED MAP_PRIVATE MAP_SHARED_VALIDATE], [
        MAP_FIXED MAP_ANONYMOUS MAP_32BIT MAP_NORESERVE MAP_GROWSDOWN MAP_DENYWRITE MAP_EXECUTABLE
        MAP_POPULATE MAP_NONBLOCK MAP_LOCKED MAP_STACK MAP_HUGETLB MAP_SYNC MAP_FIXED_NOREPLACE
    ];
    MASK_HOW = ALL, [SIG_BLOCK SIG_UNBLOCK SIG_SETMASK], [];
    MEMFD = 0, [], [MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB MFD_NOEXEC_SEAL MFD_EXEC];
    MESSAGE = 0, [], [
        MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL MSG_CONFIRM
        MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_ZEROCOPY MSG_FASTOPEN MSG_CMSG_CLOEXEC
    ];
    MREMAP = 0, [], [MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP];
    MSYNC = 0, [], [MS_ASYNC MS_INVALIDATE MS_SYNC];
    NAMESPACE = 0, [], [
        CLONE_FS CLONE_FILES CLONE_SYSVSEM CLONE_NEWTIME CLONE_NEWNS CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC
        CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET
    ];
    OPEN = 3, [O_RDONLY O_WRONLY O_RDWR], [
        O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT O_NOFOLLOW
        O_NOATIME O_CLOEXEC O_PATH O_TMPFILE O_DIRECTORY
    ];
    PRCTL = ALL, [
        PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_SET_KEEPCAPS PR_SET_NAME
        PR_GET_NAME PR_GET_SECCOMP PR_SET_SECCOMP PR_CAPBSET_READ PR_SET_TIMERSLACK PR_SET_NO_NEW_PRIVS
        PR_SET_CHILD_SUBREAPER PR_SET_MM PR_SET_VMA
    ], [];
    PROTECTION = ALL, [PROT_NONE], [PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP];
    RANDOM = 0, [], [GRND_NONBLOCK GRND_RANDOM GRND_INSECURE];
    RENAME = 0, [], [RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT];
    RESOURCE = ALL, [
        RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_RSS RLIMIT_NPROC RLIMIT_NOFILE
        RLIMIT_MEMLOCK RLIMIT_AS RLIMIT_LOCKS RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO
        RLIMIT_RTTIME
    ], [];
    SHUTDOWN = ALL, [SHUT_RD SHUT_WR SHUT_RDWR], [];
    SIGNAL = ALL, [
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE
        SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ
        SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
    ], [];
    SIGNALFD = 0, [], [SFD_CLOEXEC SFD_NONBLOCK];
    SOCKET = 0xf, [SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_DCCP], [
        SOCK_CLOEXEC SOCK_NONBLOCK
    ];
    SOCKET_FLAGS = 0, [], [SOCK_CLOEXEC SOCK_NONBLOCK];
    SPLICE = 0, [], [SPLICE_F_MOVE SPLICE_F_NONBLOCK SPLICE_F_MORE SPLICE_F_GIFT];
    STATX_AT = 0x6000, [AT_STATX_SYNC_AS_STAT AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC], [
        AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH
    ];
    STATX = ALL, [STATX_ALL STATX_BASIC_STATS], [
        STATX_TYPE STATX_MODE STATX_NLINK STATX_UID STATX_GID STATX_ATIME STATX_MTIME STATX_CTIME
        STATX_INO STATX_SIZE STATX_BLOCKS STATX_BTIME STATX_MNT_ID
    ];
    TIMER = 0, [], [TIMER_ABSTIME];
    TIMERFD = 0, [], [TFD_CLOEXEC TFD_NONBLOCK];
    TIMERFD_SET = 0, [], [TFD_TIMER_ABSTIME TFD_TIMER_CANCEL_ON_SET];
    UNLINK = 0, [], [AT_REMOVEDIR];
    WAIT = 0, [], [WNOHANG WSTOPPED WEXITED WCONTINUED WNOWAIT __WNOTHREAD __WALL __WCLONE];
    WHENCE = ALL, [SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE], [];
}

/// Flags and, in the low byte, the signal that the parent receives when the child ends.
pub(super) const CLONE: Names = Names {
    mask: 0xff,
    one_of: SIGNAL.one_of,
    flags: named!(
        CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT
        CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
        CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER
        CLONE_NEWPID CLONE_NEWNET CLONE_IO
    ),
};

/// Bit of a `futex` that only threads of one process use.
const PRIVATE: u64 = 128;

macro_rules! futex {
    ($($name:ident)*) => {
        &[$(
            (libc::$name as u32 as u64, stringify!($name)),
            (libc::$name as u32 as u64 | PRIVATE, concat!(stringify!($name), "_PRIVATE")),
        )*]
    };
}

/// An operation has a second name for its private variant.
pub(super) const FUTEX: Names = Names {
    mask: 0xff,
    one_of: futex!(
        FUTEX_WAIT FUTEX_WAKE FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI FUTEX_UNLOCK_PI
        FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_WAIT_REQUEUE_PI FUTEX_CMP_REQUEUE_PI
    ),
    flags: named!(FUTEX_CLOCK_REALTIME),
};

/// Constants of arguments without [`Names`]: the views show them as numbers, strace shows them by name.
pub(super) const OTHERS: &[(u64, &str)] = named!(
    AT_FDCWD FD_CLOEXEC F_RDLCK F_WRLCK F_UNLCK P_ALL P_PID P_PGID P_PIDFD PRIO_PROCESS PRIO_PGRP PRIO_USER
    RUSAGE_SELF RUSAGE_CHILDREN RUSAGE_THREAD ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF SCHED_OTHER SCHED_FIFO
    SCHED_RR SCHED_BATCH SCHED_IDLE IPPROTO_IP IPPROTO_ICMP IPPROTO_TCP IPPROTO_UDP IPPROTO_IPV6 IPPROTO_RAW
    SO_REUSEADDR SO_REUSEPORT SO_TYPE SO_ERROR SO_BROADCAST SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_LINGER
    SO_PASSCRED SO_PEERCRED SO_RCVTIMEO SO_SNDTIMEO SO_ACCEPTCONN SO_PROTOCOL SO_DOMAIN SO_INCOMING_CPU
    TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_DEFER_ACCEPT TCP_INFO
    TCP_QUICKACK TCP_CONGESTION TCP_USER_TIMEOUT TCP_FASTOPEN IPV6_V6ONLY FUTEX_BITSET_MATCH_ANY
);

/// Constants that the crate `libc` does not have, or has with another value than the kernel.
pub(super) const KERNEL: &[(u64, &str)] =
    &[(0x8000, "O_LARGEFILE"), (32, "SIGRTMIN"), (0x1001, "ARCH_SET_GS"), (0x1002, "ARCH_SET_FS")];
