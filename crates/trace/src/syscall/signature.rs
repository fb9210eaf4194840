//! The arguments of each call: how many it takes, and what each of them is.
//!
//! One table serves the probe, which copies paths and addresses, and the views, which show arguments by name.

use std::{collections::HashMap, sync::LazyLock};

use syscalls::Sysno;

use super::{
    CALLS,
    names::{self, Names},
    number,
};

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An `int`: the upper half of its register is undefined.
    Int,
    /// An unsigned 32-bit number.
    Unsigned,
    /// A number of bytes.
    Size,
    /// A position in a file.
    Offset,
    /// A number without a name for its values.
    Hexadecimal,
    /// An address in the memory of the program.
    Pointer,
    /// A descriptor, or `AT_FDCWD`.
    Descriptor,
    /// The permissions of a file.
    Mode,
    /// A path. The probe copies it.
    Path,
    /// The path of a program that replaces the memory of the caller: it can be read only if the call failed.
    Program,
    /// A socket address. The next argument is its length.
    Address,
    /// Where the call stores a socket address, if it succeeds. The next argument points to its length.
    AddressOut,
    /// A constant, or several.
    Named(&'static Names),
}

/// Every word in [`SIGNATURES`].
const KINDS: &[(&str, Kind)] = &[
    ("int", Kind::Int),
    ("uint", Kind::Unsigned),
    ("length", Kind::Unsigned),
    ("length_out", Kind::Pointer),
    ("size", Kind::Size),
    ("offset", Kind::Offset),
    ("hex", Kind::Hexadecimal),
    ("ptr", Kind::Pointer),
    ("fd", Kind::Descriptor),
    ("mode", Kind::Mode),
    ("path", Kind::Path),
    ("program", Kind::Program),
    ("address", Kind::Address),
    ("address_out", Kind::AddressOut),
    ("access", Kind::Named(&names::ACCESS)),
    ("advice", Kind::Named(&names::MADVISE)),
    ("at", Kind::Named(&names::AT)),
    ("clock", Kind::Named(&names::CLOCK)),
    ("clone", Kind::Named(&names::CLONE)),
    ("close_range", Kind::Named(&names::CLOSE_RANGE)),
    ("eaccess", Kind::Named(&names::EACCESS)),
    ("epoll_create", Kind::Named(&names::EPOLL_CREATE)),
    ("epoll_ctl", Kind::Named(&names::EPOLL_CTL)),
    ("eventfd", Kind::Named(&names::EVENTFD)),
    ("fadvise", Kind::Named(&names::FADVISE)),
    ("fallocate", Kind::Named(&names::FALLOCATE)),
    ("fd_flags", Kind::Named(&names::DESCRIPTOR)),
    ("family", Kind::Named(&names::FAMILY)),
    ("fcntl", Kind::Named(&names::FCNTL)),
    ("futex", Kind::Named(&names::FUTEX)),
    ("how", Kind::Named(&names::SHUTDOWN)),
    ("inotify_init", Kind::Named(&names::INOTIFY_INIT)),
    ("ioctl", Kind::Named(&names::IOCTL)),
    ("level", Kind::Named(&names::LEVEL)),
    ("lock", Kind::Named(&names::FLOCK)),
    ("map", Kind::Named(&names::MAP)),
    ("mask_how", Kind::Named(&names::MASK_HOW)),
    ("memfd", Kind::Named(&names::MEMFD)),
    ("message", Kind::Named(&names::MESSAGE)),
    ("mremap", Kind::Named(&names::MREMAP)),
    ("msync", Kind::Named(&names::MSYNC)),
    ("namespace", Kind::Named(&names::NAMESPACE)),
    ("open", Kind::Named(&names::OPEN)),
    ("prctl", Kind::Named(&names::PRCTL)),
    ("prot", Kind::Named(&names::PROTECTION)),
    ("random", Kind::Named(&names::RANDOM)),
    ("rename", Kind::Named(&names::RENAME)),
    ("resource", Kind::Named(&names::RESOURCE)),
    ("signal", Kind::Named(&names::SIGNAL)),
    ("signalfd", Kind::Named(&names::SIGNALFD)),
    ("socket", Kind::Named(&names::SOCKET)),
    ("socket_flags", Kind::Named(&names::SOCKET_FLAGS)),
    ("splice", Kind::Named(&names::SPLICE)),
    ("statx_at", Kind::Named(&names::STATX_AT)),
    ("statx", Kind::Named(&names::STATX)),
    ("timer", Kind::Named(&names::TIMER)),
    ("timerfd", Kind::Named(&names::TIMERFD)),
    ("timerfd_set", Kind::Named(&names::TIMERFD_SET)),
    ("unlink", Kind::Named(&names::UNLINK)),
    ("wait", Kind::Named(&names::WAIT)),
    ("whence", Kind::Named(&names::WHENCE)),
];

/// Arguments of calls, and the names of the calls that take them.
const SIGNATURES: &[(&str, &str)] = &[
    (
        "",
        "sched_yield pause getpid getppid gettid getuid geteuid getgid getegid fork vfork setsid \
         getpgrp sync inotify_init rt_sigreturn munlockall restart_syscall",
    ),
    ("fd", "close fchdir fsync fdatasync syncfs dup"),
    ("int", "exit exit_group epoll_create getsid getpgid setuid setgid"),
    ("uint", "alarm eventfd"),
    ("ptr", "brk uname times sysinfo pipe set_tid_address time"),
    ("path", "chdir chroot rmdir unlink acct swapoff mq_unlink"),
    ("mode", "umask"),
    ("hex", "mlockall memfd_secret"),
    ("epoll_create", "epoll_create1"),
    ("inotify_init", "inotify_init1"),
    ("fd_flags", "userfaultfd"),
    ("namespace", "unshare"),
    ("path ptr", "stat lstat statfs utime utimes removexattr lremovexattr"),
    ("fd ptr", "fstat fstatfs timerfd_gettime"),
    ("ptr size", "munmap getcwd mlock munlock set_robust_list rt_sigpending rt_sigsuspend clone3"),
    ("path access", "access"),
    ("path mode", "creat mkdir chmod"),
    ("fd fd", "dup2"),
    ("ptr ptr", "nanosleep gettimeofday settimeofday capget capset sigaltstack"),
    ("int ptr", "getitimer sched_getparam getrusage getgroups setgroups"),
    ("int signal", "kill tkill"),
    ("fd int", "listen inotify_rm_watch"),
    ("fd how", "shutdown"),
    ("fd lock", "flock"),
    ("path offset", "truncate"),
    ("fd offset", "ftruncate"),
    ("path path", "rename link symlink pivot_root"),
    ("fd mode", "fchmod"),
    ("resource ptr", "getrlimit setrlimit"),
    ("int int", "setpgid getpriority"),
    ("hex ptr", "arch_prctl"),
    ("clock ptr", "clock_gettime clock_getres clock_settime"),
    ("ptr fd_flags", "pipe2"),
    ("uint eventfd", "eventfd2"),
    ("clock timerfd", "timerfd_create"),
    ("path memfd", "memfd_create"),
    ("int hex", "pidfd_open"),
    ("uint ptr", "io_uring_setup"),
    ("fd ptr", "fremovexattr"),
    ("hex open", "fanotify_init"),
    ("fd namespace", "setns"),
    ("path hex", "umount2 swapon"),
    ("fd ptr size", "read write getdents getdents64 signalfd flistxattr"),
    ("path open mode", "open"),
    ("ptr uint int", "poll"),
    ("fd offset whence", "lseek"),
    ("ptr size prot", "mprotect"),
    ("fd ioctl ptr", "ioctl"),
    ("fd ptr int", "readv writev"),
    ("ptr size msync", "msync"),
    ("ptr size ptr", "mincore"),
    ("ptr size advice", "madvise"),
    ("fd fd fd_flags", "dup3"),
    ("family socket int", "socket"),
    ("fd address length", "connect bind"),
    ("fd address_out length_out", "accept getsockname getpeername"),
    ("fd ptr message", "sendmsg recvmsg"),
    ("program ptr ptr", "execve"),
    ("fd fcntl hex", "fcntl"),
    ("path ptr size", "readlink listxattr llistxattr"),
    ("path int int", "chown lchown"),
    ("fd int int", "fchown"),
    ("int ptr ptr", "setitimer getresuid getresgid"),
    ("int int signal", "tgkill"),
    ("ptr size random", "getrandom"),
    ("fd path mode", "mkdirat fchmodat"),
    ("fd path unlink", "unlinkat"),
    ("fd path access", "faccessat"),
    ("int size ptr", "sched_setaffinity sched_getaffinity"),
    ("int int ptr", "sched_setscheduler"),
    ("int int int", "setresuid setresgid setpriority"),
    ("fd offset size", "readahead"),
    ("fd path hex", "inotify_add_watch open_tree"),
    ("fd ptr hex", "finit_module open_by_handle_at"),
    ("int hex int", "membarrier"),
    ("ptr ptr ptr", "getcpu"),
    ("uint uint close_range", "close_range"),
    ("fd fd hex", "pidfd_getfd"),
    ("int ptr size", "bpf"),
    ("int hex ptr", "seccomp"),
    ("int ptr int", "syslog"),
    ("path mode hex", "mknod"),
    ("path fd path", "symlinkat"),
    ("int signal ptr", "rt_sigqueueinfo"),
    ("fd path ptr", "futimesat"),
    ("fd path open mode", "openat"),
    ("fd path ptr size", "openat2 readlinkat"),
    ("fd ptr size offset", "pread64 pwrite64"),
    ("signal ptr ptr size", "rt_sigaction"),
    ("mask_how ptr ptr size", "rt_sigprocmask"),
    ("ptr ptr ptr size", "rt_sigtimedwait"),
    ("int ptr wait ptr", "wait4"),
    ("fd fd ptr size", "sendfile"),
    ("fd path ptr at", "newfstatat utimensat"),
    ("fd address_out length_out socket_flags", "accept4"),
    ("fd epoll_ctl fd ptr", "epoll_ctl"),
    ("fd ptr int int", "epoll_wait"),
    ("family socket int ptr", "socketpair"),
    ("clock timer ptr ptr", "clock_nanosleep"),
    ("int resource ptr ptr", "prlimit64"),
    ("fd fallocate offset offset", "fallocate"),
    ("fd offset size fadvise", "fadvise64"),
    ("fd offset offset hex", "sync_file_range"),
    ("fd fd size splice", "tee"),
    ("fd ptr size splice", "vmsplice"),
    ("fd ptr size signalfd", "signalfd4"),
    ("fd timerfd_set ptr ptr", "timerfd_settime"),
    ("fd path fd path", "renameat"),
    ("fd path access eaccess", "faccessat2"),
    ("hex int ptr ptr", "ptrace"),
    ("fd ptr ptr size", "fgetxattr"),
    ("path ptr ptr size", "getxattr lgetxattr"),
    ("fd ptr uint message", "sendmmsg"),
    ("fd int ptr int", "io_uring_register"),
    ("fd signal ptr hex", "pidfd_send_signal"),
    ("ptr size hex hex", "rseq"),
    ("path open mode ptr", "mq_open"),
    ("hex hex int ptr", "reboot"),
    ("fd path mode hex", "mknodat"),
    ("fd path mode at", "fchmodat2"),
    ("int ptr ptr ptr ptr", "select"),
    ("fd level int ptr int", "setsockopt"),
    ("fd level int ptr ptr", "getsockopt"),
    ("fd ptr int offset", "preadv pwritev"),
    ("clone ptr ptr ptr ptr", "clone"),
    ("ptr uint ptr ptr size", "ppoll"),
    ("prctl hex hex hex hex", "prctl"),
    ("fd path statx_at statx ptr", "statx"),
    ("fd path fd path rename", "renameat2"),
    ("fd path fd path at", "linkat"),
    ("fd path int int at", "fchownat"),
    ("int int ptr wait ptr", "waitid"),
    ("ptr size size mremap ptr", "mremap"),
    ("path path ptr hex ptr", "mount"),
    ("fd ptr uint message ptr", "recvmmsg"),
    ("fd program ptr ptr at", "execveat"),
    ("ptr int int fd hex", "perf_event_open"),
    ("fd ptr ptr size hex", "fsetxattr"),
    ("path ptr ptr size hex", "setxattr lsetxattr"),
    ("fd path ptr ptr at", "name_to_handle_at"),
    ("fd path fd path hex", "move_mount"),
    ("fd hex hex fd path", "fanotify_mark"),
    ("int hex hex hex hex", "keyctl"),
    ("ptr size prot map fd hex", "mmap"),
    ("fd ptr size message address_out length_out", "recvfrom"),
    ("fd ptr size message address length", "sendto"),
    ("ptr futex uint ptr ptr hex", "futex"),
    ("int ptr ptr ptr ptr ptr", "pselect6"),
    ("fd ptr int int ptr size", "epoll_pwait"),
    ("fd ptr int ptr ptr size", "epoll_pwait2"),
    ("fd ptr fd ptr size splice", "splice"),
    ("fd ptr fd ptr size hex", "copy_file_range"),
    ("fd ptr int offset offset hex", "preadv2 pwritev2"),
    ("fd uint uint hex ptr size", "io_uring_enter"),
    ("int ptr uint ptr uint hex", "process_vm_readv process_vm_writev"),
    ("ptr size int ptr uint hex", "mbind"),
];

/// A call that is not in the table may use every register.
const UNKNOWN: [Kind; 6] = [Kind::Hexadecimal; 6];

static BY_NUMBER: LazyLock<Vec<Vec<Kind>>> = LazyLock::new(|| {
    let kinds: HashMap<&str, Kind> = KINDS.iter().copied().collect();
    let mut table = vec![UNKNOWN.to_vec(); CALLS];
    for (signature, calls) in SIGNATURES {
        let signature: Vec<Kind> = signature.split(' ').filter_map(|word| kinds.get(word)).copied().collect();
        for number in calls.split(' ').filter_map(number) {
            table[usize::from(number)].clone_from(&signature);
        }
    }
    table
});

/// Returns the arguments of a call of the native table: six numbers for a call whose arguments are unknown.
#[must_use]
pub fn arguments(number: u16) -> &'static [Kind] {
    BY_NUMBER.get(usize::from(number)).map_or(&UNKNOWN, Vec::as_slice)
}

/// Returns the constants that arguments have, with their names.
pub(crate) fn constants() -> impl Iterator<Item = (u64, &'static str)> {
    let named = KINDS.iter().filter_map(|(_, kind)| match kind {
        Kind::Named(names) => Some(names.one_of.iter().chain(names.flags)),
        _ => None,
    });
    named.flatten().chain(names::OTHERS).chain(names::KERNEL).copied()
}

/// Returns whether a call with these values uses the argument at `position`: some operations of a call take
/// fewer arguments than others, and what is in their registers has no meaning.
#[must_use]
pub fn uses(number: u16, args: &[u64; 6], position: usize) -> bool {
    let low = |value: u64| libc::c_int::try_from(value & 0x7fff_ffff).unwrap_or_default();
    let unused: &[usize] = match Sysno::new(usize::from(number)) {
        Some(Sysno::open | Sysno::mq_open) if !creates(args[1]) => &[2, 3],
        Some(Sysno::openat) if !creates(args[2]) => &[3],
        Some(Sysno::fcntl) => match low(args[1]) {
            libc::F_GETFD | libc::F_GETFL | libc::F_GETOWN | libc::F_GETLEASE => &[2],
            libc::F_GETPIPE_SZ | libc::F_GET_SEALS => &[2],
            _ => &[],
        },
        Some(Sysno::mremap) if low(args[3]) & !libc::MREMAP_MAYMOVE == 0 => &[4],
        Some(Sysno::preadv2 | Sysno::pwritev2) => &[4],
        Some(Sysno::futex) => match low(args[1]) & FUTEX_OPERATION {
            libc::FUTEX_WAKE => &[3, 4, 5],
            libc::FUTEX_WAIT => &[4, 5],
            libc::FUTEX_LOCK_PI => &[2, 4, 5],
            libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => &[2, 3, 4, 5],
            libc::FUTEX_WAIT_REQUEUE_PI => &[5],
            libc::FUTEX_WAIT_BITSET => &[4],
            libc::FUTEX_WAKE_BITSET => &[3, 4],
            libc::FUTEX_REQUEUE => &[5],
            _ => &[],
        },
        _ => &[],
    };
    !unused.contains(&position)
}

/// Bits of the operation of `futex`, without its flags.
const FUTEX_OPERATION: libc::c_int = 0x7f;

/// Returns whether `open` with these flags creates a file.
fn creates(flags: u64) -> bool {
    // The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
    let made = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    flags & u64::from(made.cast_unsigned()) != 0
}

/// Returns the arguments of a call that the probe copies, in its format: bits 5 to 7 are the position of the
/// first path or of the address plus one (0: none), bits 8 to 10 that of the second path or of the length,
/// bit 11 is set for an address, bit 12 if it is there only after a success, bit 13 if only after a failure.
pub(super) fn probe_pointers(number: u16) -> u16 {
    let (mut bits, mut shift) = (0, 5);
    for (position, kind) in (1..).zip(arguments(number)) {
        let (places, flags) = match kind {
            Kind::Path => (position, 0),
            Kind::Program => (position, 1 << 13),
            Kind::Address => (position | (position + 1) << 3, 1 << 11),
            Kind::AddressOut => (position | (position + 1) << 3, 1 << 11 | 1 << 12),
            _ => continue,
        };
        bits |= places << shift | flags;
        shift = 8;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_exists_and_is_listed_once_and_every_word_is_a_kind() {
        let mut listed = Vec::new();
        for (signature, calls) in SIGNATURES {
            let words: Vec<&str> = signature.split(' ').filter(|word| !word.is_empty()).collect();
            assert!(words.len() <= 6, "{signature}");
            for word in &words {
                assert!(KINDS.iter().any(|(name, _)| name == word), "{word} is not a kind");
            }
            for call in calls.split(' ') {
                let number = number(call).unwrap_or_else(|| panic!("{call} is not a call"));
                assert!(!listed.contains(&number), "{call} is listed twice");
                listed.push(number);
                assert_eq!(arguments(number).len(), words.len(), "{call}");
            }
        }
        for (position, (name, _)) in KINDS.iter().enumerate() {
            assert!(KINDS[..position].iter().all(|(other, _)| other != name), "{name} is listed twice");
            let is_used =
                SIGNATURES.iter().any(|(signature, _)| signature.split(' ').any(|word| word == *name));
            assert!(is_used, "no call takes {name}");
        }
        assert_eq!(arguments(511), UNKNOWN);
    }

    #[test]
    fn some_arguments_count_only_for_some_operations() {
        let used = |name: &str, args: [u64; 4]| {
            let ([first, second, third, fourth], number) = (args, number(name).unwrap());
            let args = [first, second, third, fourth, 0, 0];
            (0..arguments(number).len()).filter(|position| uses(number, &args, *position)).collect::<Vec<_>>()
        };
        assert_eq!([used("openat", [0, 0, 0, 0]).len(), used("openat", [0, 0, 0o100, 0]).len()], [3, 4]);
        assert_eq!([used("open", [0; 4]).len(), used("open", [0, 0o20_200_000, 0, 0]).len()], [2, 3]);
        assert_eq!(used("open", [0, 0o200_000, 0, 0]).len(), 2, "O_DIRECTORY");
        let dirty = 0xffff_ffff_0000_0001;
        assert_eq!([used("fcntl", [0, dirty, 0, 0]).len(), used("fcntl", [0, 2, 0, 0]).len()], [2, 3]);
        assert_eq!([0x80, 0x81, 0x89].map(|operation| used("futex", [0, operation, 0, 0]).len()), [4, 3, 5]);
        assert_eq!(used("futex", [0, 0x89, 0, 0]), [0, 1, 2, 3, 5]);
        assert_eq!(
            [used("futex", [0, 0x86, 0, 0]), used("futex", [0, 0x87, 0, 0])],
            [vec![0, 1, 3], vec![0, 1]]
        );
        assert_eq!([used("mremap", [0, 0, 0, 1]).len(), used("mremap", [0, 0, 0, 3]).len()], [4, 5]);
        assert_eq!(used("read", [0; 4]).len(), 3);
    }

    #[test]
    fn a_call_has_at_most_two_contents_and_an_address_is_the_only_one() {
        for number in 0..u16::try_from(CALLS).unwrap() {
            let kinds = arguments(number);
            let count = |sought: &[Kind]| kinds.iter().filter(|kind| sought.contains(kind)).count();
            let addresses = count(&[Kind::Address, Kind::AddressOut]);
            let paths = count(&[Kind::Path, Kind::Program]);
            assert!(paths <= 2 && addresses <= 1 && (addresses == 0 || paths == 0), "{number}");
            assert!(count(&[Kind::Program]) == 0 || paths == 1, "{number}");
            assert!(
                !matches!(kinds.last(), Some(Kind::Address | Kind::AddressOut)),
                "{number} lacks a length"
            );
        }
    }
}
