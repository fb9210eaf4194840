//! Logs of strace become the records that they describe.

use std::{fmt::Write, sync::atomic::AtomicBool};

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::{
    container::Reader,
    descriptor::Descriptor as D,
    record::{Entry, Event as Recorded, Memory, Record},
    view::{Filter, sequence::Sequence},
};

/// A trace of a log.
struct Trace {
    imported: Imported,
    entries: Vec<Entry>,
}

/// Imports a log. Fails if a failed import leaves something.
fn import(log: &[u8]) -> Result<Trace, String> {
    let directory = tempfile::tempdir().unwrap();
    let (path, container) = (directory.path().join("log"), directory.path().join("x.trace"));
    fs::write(&path, log).unwrap();
    match strace(&path, &container, "x86_64", &AtomicBool::new(false)) {
        Ok(imported) => {
            let entries = Reader::open(&container).unwrap().collect::<Result<_, _>>().unwrap();
            Ok(Trace { imported, entries })
        }
        Err(error) => {
            assert!(!container.exists(), "a failed import left a trace");
            Err(error.to_string().replace(path.to_str().unwrap(), "LOG"))
        }
    }
}

fn imported(log: &str) -> Trace {
    import(log.as_bytes()).unwrap()
}

impl Trace {
    fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.iter().map(|entry| match entry {
            Entry::Record(record, _) => record,
            Entry::Lost(lost) => panic!("{lost:?}"),
        })
    }

    /// Returns the descriptors of the calls that returned.
    fn descriptors(&self) -> Vec<(D, u64)> {
        let calls = self.records().filter_map(|record| match &record.event {
            Recorded::Call(call) => Some((call.descriptor, call.inode)),
            _ => None,
        });
        calls.collect()
    }

    /// Checks the rows of the sequence: begin and elapsed time in us since the first line, process/thread,
    /// event.
    fn check(&self, due: &Expect) {
        let start_ns = self.records().map(|record| record.begin_ns).min().unwrap();
        let mut sequence = Sequence::of(Filter::default(), Origin::Strace);
        let mut text = String::new();
        for entry in &self.entries {
            let row = sequence.row(entry).unwrap();
            assert_eq!(row.cpu, None);
            let elapsed_us = row.elapsed_ns.map(|ns| (ns / 1000).to_string()).unwrap_or_default();
            writeln!(
                text,
                "{} +{elapsed_us} {}/{} {}",
                (row.begin_ns - start_ns) / 1000,
                row.process,
                row.thread,
                row.text
            )
            .unwrap();
        }
        due.assert_eq(&text);
    }
}

/// Returns the event of a single line that is a call.
fn shown(line: &str) -> String {
    let trace = imported(&format!("1 100.000000 {line} <0.000001>\n").replace("1 100.", "1 1000000000."));
    let mut sequence = Sequence::of(Filter::default(), Origin::Strace);
    trace.entries.iter().map(|entry| sequence.row(entry).unwrap().text.clone()).last().unwrap()
}

/// The import of one call.
const FINE: Imported = Imported {
    calls: 1,
    processes: 1,
    roots: 1,
    is_numbered: true,
    skipped: 0,
    first_skipped: None,
    unnamed: 0,
    moved_ns: 0,
};

const FAMILY: &str = r#"10 1000000000.000000 execve("/bin/sh", ["sh"], 0x7ffe /* 39 vars */) = 0 <0.000200>
10 1000000000.000300 openat(AT_FDCWD</tmp>, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3</etc/passwd> <0.000036>
10 1000000000.000400 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD <unfinished ...>
11 1000000000.000500 read(3</etc/passwd>,  <unfinished ...>
10 1000000000.000600 <... clone resumed>, child_tidptr=0x7f10) = 11 <0.000190>
11 1000000000.000700 <... read resumed>"root:x\n"..., 4096) = 7 <0.000150>
10 1000000000.000800 clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x7f00} => {parent_tid=[12]}, 88) = 12 <0.000050>
12 1000000000.000900 futex(0x7f20, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>
11 1000000000.001000 exit_group(3) = ?
11 1000000000.001100 +++ exited with 3 +++
10 1000000000.001200 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=11} ---
10 1000000000.001300 wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 11 <0.000010>
10 1000000000.001400 vfork() = 11 <0.000100>
11 1000000000.001600 +++ killed by SIGKILL (core dumped) +++
12 1000000000.001700 +++ exited with 0 +++
10 1000000000.001800 pause( <unfinished ...>
"#;

#[test]
fn processes_threads_and_interrupted_lines_become_events_in_the_order_of_their_ends() {
    let trace = imported(FAMILY);
    trace.check(&expect![[r#"
        200 + 10/10 runs /bin/sh
        0 +200 10/10 execve("/bin/sh", ..., ...) = 0
        300 +36 10/10 openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3
        500 + 10/10 new process 11
        400 +190 10/10 clone(SIGCHLD|CLONE_CHILD_CLEARTID, NULL, NULL, 0x7f10, NULL) = 11
        500 +150 11/11 read(3, ..., 4096) = 7
        800 + 10/10 new thread 12
        800 +50 10/10 clone3(..., 88) = 12
        1000 +100 11/11 exit_group(3) = ?
        1100 + 11/11 process exits with 768
        1300 +10 10/10 wait4(-1, ..., 0, NULL) = 11
        1400 + 10/10 new process 11 in the memory of its parent
        1400 +100 10/10 vfork() = 11
        1600 + 11/11 process exits with 137
        900 +800 10/12 futex(0x7f20, FUTEX_WAIT_PRIVATE, 2, NULL) = ?
        1700 + 10/12 thread exits with 0
        1800 +0 10/10 pause() = ?
    "#]]);
    let due = Imported { calls: 7, processes: 3, roots: 1, is_numbered: true, ..FINE };
    assert_eq!(trace.imported, due);
    let forks = trace.records().filter_map(|record| match record.event {
        Recorded::Fork { memory, .. } => Some(memory),
        _ => None,
    });
    assert_eq!(forks.collect::<Vec<_>>(), [None, Some(Memory::Borrowed), Some(Memory::Borrowed)]);
    let exits = trace.records().filter_map(|record| match record.event {
        Recorded::Exit { code, whole_process } => Some((code, whole_process)),
        _ => None,
    });
    assert_eq!(exits.collect::<Vec<_>>(), [(3 << 8, true), (9 | 0x80, true), (0, false)]);
}

#[test]
fn a_thread_that_executes_a_program_becomes_the_process() {
    let log = "\
10 1000000000.000000 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 11 <0.000010>
10 1000000000.000100 read(0</a>,  <unfinished ...>
11 1000000000.000200 execve(\"/bin/true\", [\"true\"], NULL <unfinished ...>
10 1000000000.000300 +++ superseded by execve in pid 11 +++
10 1000000000.000400 <... execve resumed>) = 0 <0.000200>
10 1000000000.000500 +++ exited with 0 +++
";
    imported(log).check(&expect![[r#"
        0 + 10/10 new thread 11
        0 +10 10/10 clone3(..., 88) = 11
        100 +200 10/10 read(0, ..., ...) = ?
        400 + 10/10 runs /bin/true
        200 +200 10/10 execve("/bin/true", ..., NULL) = 0
        500 + 10/10 process exits with 0
    "#]]);
}

#[test]
fn arguments_have_the_values_of_their_notation() {
    for same in [
        r#"openat(AT_FDCWD, "a\tb\33[2J\"", O_WRONLY|O_CREAT, 0644) = 3"#,
        "mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7fc5c6e98000",
        "lseek(3, -10, SEEK_END) = 90",
        "close(99) = -1 EBADF",
        "futex(0x7f20, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 2, NULL, 0xffffffff) = 0",
        "read(3, NULL, 0) = -1 errno 516",
        "rename(\"a\", \"b\") = 0",
    ] {
        let strace = same.replace("errno 516", "ERESTART_RESTARTBLOCK (Interrupted by signal)");
        assert_eq!(shown(&strace), same.replace("errno 516", "ERESTART_RESTARTBLOCK"));
    }
    for (strace, due) in [
        (r#"open("\x61\142", O_RDONLY) = 3</ab>"#, r#"open("ab", O_RDONLY) = 3"#),
        (r#"write(1</a, (b>, "x, y)"..., 5) = 5"#, "write(1, ..., 5) = 5"),
        (r#"stat("/a"..., {st_mode=S_IFREG|0644, st_size=5, ...}) = 0"#, r#"stat("/a"..., ...) = 0"#),
        (
            "poll([{fd=3</a>, events=POLLIN}], 1, -1) = 1 ([{fd=3</a>, revents=POLLIN}])",
            "poll(..., 1, -1) = 1",
        ),
        ("fcntl(1<pipe:[5]>, F_GETFL) = 0x1 (flags O_WRONLY)", "fcntl(1, F_GETFL) = 1"),
        ("fcntl(1<pipe:[5]>, F_SETFD, FD_CLOEXEC) = 0", "fcntl(1, F_SETFD, 0x1) = 0"),
        ("kill(12<sh>, SIGTERM) = 0", "kill(12, SIGTERM) = 0"),
        ("getdents64(3</>, 0x55 /* 4 entries */, 32768) = 104", "getdents64(3, ..., 32768) = 104"),
        ("capset({version=1, pid=0}, {effective=1<<CAP_CHOWN}) = 0", "capset(..., ...) = 0"),
        (
            "read(3</a>, 0x7f10, 100) = ? ERESTARTSYS (To be restarted)",
            "read(3, 0x7f10, 100) = -1 ERESTARTSYS",
        ),
        ("restart_syscall(<... resuming interrupted poll ...>) = 0", "restart_syscall() = 0"),
        (
            "syscall_0x1f5(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = -1 ENOSYS (Function not implemented)",
            "call 501(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = -1 ENOSYS",
        ),
        (
            "clone(child_stack=0x7f0, flags=CLONE_VM|SIGCHLD, child_tidptr=0x7f1) = 2",
            "clone(SIGCHLD|CLONE_VM, 0x7f0, NULL, 0x7f1, NULL) = 2",
        ),
        ("brk(NULL)       = 0x555a504d0000", "brk(NULL) = 0x555a504d0000"),
        ("fcntl(3, F_SETLK, {l_type=F_WRLCK}) = 0", "fcntl(3, F_SETLK, ...) = 0"),
        ("prctl(PR_SET_NAME, \"abc\") = 0", "prctl(PR_SET_NAME, ..., ..., ..., ...) = 0"),
        ("futex(0x7f20, FUTEX_LOCK_PI_PRIVATE, NULL) = 0", "futex(0x7f20, FUTEX_LOCK_PI_PRIVATE, NULL) = 0"),
        (
            "futex(0x7f20, FUTEX_WAKE_OP, 5, 6, 0x7f24, FUTEX_OP_SET<<28|0x6) = 0",
            "futex(0x7f20, FUTEX_WAKE_OP, 5, 0x6, 0x7f24, 0x6) = 0",
        ),
        ("ioctl(3, 0x12) = -1 (errno 999)", "ioctl(3, 0x12, ...) = -1 errno 999"),
        (r#"connect(3<TCP:[1]>, {sa_family=AF_VSOCK, svm_cid=2}, 16) = 0"#, "connect(3, ..., 16) = 0"),
    ] {
        assert_eq!(shown(strace), due);
    }
}

#[test]
fn socket_addresses_have_the_bytes_of_their_notation() {
    for address in [
        r#"{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("127.0.0.1")}"#,
        r#"{sa_family=AF_INET6, sin6_port=htons(9), sin6_flowinfo=htonl(3), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=2}"#,
        r#"{sa_family=AF_INET6, sin6_port=htons(9), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "fe80::1", &sin6_addr)}"#,
        r#"{sa_family=AF_UNIX, sun_path="/run/x"}"#,
        r#"{sa_family=AF_UNIX, sun_path=@"abs\0x"}"#,
        "{sa_family=AF_UNIX}",
        "{sa_family=AF_NETLINK, nl_pid=30974, nl_groups=0x000011}",
        "{sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}",
    ] {
        let call = format!("connect(3, {address}, 28) = 0");
        assert_eq!(shown(&call), call);
        let call = format!("accept(3, {address}, [28]) = 4");
        assert_eq!(shown(&call), call.replace("[28]", "..."));
    }
    assert_eq!(shown("bind(3, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0"), "bind(3, ..., 16) = 0");
}

#[test]
fn a_constant_without_a_value_is_counted() {
    let log = "1 1000000000.000000 madvise(0x7f10, 8, MADV_OF_THE_FUTURE|0x1) = 0 <0.000001>\n";
    let trace = imported(log);
    assert_eq!(trace.imported.unnamed, 1);
    trace.check(&expect![[r#"
        0 +1 1/1 madvise(0x7f10, 8, MADV_RANDOM) = 0
    "#]]);
}

#[test]
fn every_constant_has_one_value() {
    let mut constants: Vec<(u64, &str)> = crate::syscall::constants().collect();
    constants.sort_by_key(|(value, name)| (*name, *value));
    constants.dedup();
    for pair in constants.windows(2) {
        assert_ne!(pair[0].1, pair[1].1);
    }
}

/// Returns the descriptors of these calls.
fn of(calls: &[&str]) -> Vec<(D, u64)> {
    let line = |call: &&str| format!("1 1000000000.000000 {call} <0.000001>\n");
    imported(&calls.iter().map(line).collect::<String>()).descriptors()
}

#[test]
fn descriptors_have_the_kinds_that_strace_shows() {
    for (object, due) in [
        ("/etc/passwd", (D::File, 0)),
        ("/tmp/x>(deleted)", (D::File, 0)),
        ("pipe:[77]", (D::Pipe, 77)),
        ("socket:[78]", (D::Unknown, 78)),
        ("TCP:[79]", (D::Tcp4, 79)),
        ("TCPv6:[79]", (D::Tcp6, 79)),
        ("UDP:[79]", (D::Udp4, 79)),
        ("UDPv6:[79]", (D::Udp6, 79)),
        ("UNIX-STREAM:[79]", (D::UnixStream, 79)),
        ("UNIX-DGRAM:[79]", (D::UnixDatagram, 79)),
        ("NETLINK:[79]", (D::Netlink, 79)),
        ("RAW:[79]", (D::Raw, 79)),
        ("anon_inode:[eventfd]", (D::Eventfd, 0)),
        ("anon_inode:[eventpoll]", (D::Epoll, 0)),
        ("anon_inode:[timerfd]", (D::Timerfd, 0)),
        ("anon_inode:[signalfd]", (D::Signalfd, 0)),
        ("anon_inode:inotify", (D::Inotify, 0)),
        ("anon_inode:[io_uring]", (D::IoUring, 0)),
        ("anon_inode:[pidfd]", (D::Anonymous, 0)),
        ("pid:7", (D::Anonymous, 0)),
        ("signalfd:[USR1]", (D::Signalfd, 0)),
        (r"\x70\x69\x70\x65:[77]", (D::Pipe, 77)),
        ("/dev/urandom", (D::CharacterDevice, 1 << 20 | 9)),
        ("/dev/of/the/future", (D::Unknown, 0)),
        ("/dev/shm/x", (D::File, 0)),
        ("/dev/null", (D::CharacterDevice, 1 << 20 | 3)),
        ("/dev/pts/1<char 136:1>", (D::CharacterDevice, 136 << 20 | 1)),
        ("/dev/vda<block 254:0>", (D::BlockDevice, 254 << 20)),
    ] {
        assert_eq!(of(&[&format!("close(3<{object}>) = 0")]), [due], "{object}");
    }
    assert_eq!(
        of(&["close(3) = 0", "close(3) = -1 EBADF (Bad)", "close(-1) = -1 EBADF (Bad)"]),
        [(D::Unknown, 0), (D::Bad, 0), (D::Bad, 0)]
    );
    let [(kind, number)] = of(&["read(4<TCP:[127.0.0.1:80->127.0.0.1:5000]>, \"\", 1) = 0"])[..] else {
        panic!()
    };
    assert!(kind == D::Tcp4 && number >> 63 == 1);
}

#[test]
fn descriptors_have_the_kinds_that_calls_showed_before() {
    let kinds = |calls: &[&str]| of(calls).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    let accepted = [
        "accept4(3<socket:[5]>, {sa_family=AF_INET6, sin6_port=htons(1)}, [28], 0) = 4<socket:[6]>",
        "read(4<socket:[6]>, \"\", 9) = 0",
        "accept(3<socket:[5]>, NULL, NULL) = 4<socket:[7]>",
    ];
    assert_eq!(kinds(&accepted), [D::Tcp6; 3]);
    let created = [
        "socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0) = 3<socket:[5]>",
        "close(3<socket:[5]>) = 0",
        "socketpair(AF_UNIX, SOCK_STREAM, 0, [4<socket:[6]>, 5<socket:[7]>]) = 0",
        "close(5<socket:[7]>) = 0",
    ];
    assert_eq!(kinds(&created), [D::UnixDatagram, D::UnixDatagram, D::None, D::UnixStream]);
    let numbers = ["socket(0x1 /* AF_UNIX */, 0x2 /* SOCK_DGRAM */, 0) = 3<socket:[5]>"];
    assert_eq!(kinds(&numbers), [D::UnixDatagram]);
    let not_directories = [
        "mkdirat(5</f>, \"x\", 0777) = -1 ENOTDIR (Not a directory)",
        "newfstatat(5</f>, \"/x\", {st_mode=S_IFREG|0644}, 0) = 0",
        "getdents64(5</f>, 0x7f, 9) = -1 ENOTDIR (Not a directory)",
        "read(5</f>, \"\", 1) = 0",
        "fchdir(5</g>) = 0",
        "fstat(5</g>, {st_mode=S_IFREG|0644}) = 0",
    ];
    let (file, directory) = (D::File, D::Directory);
    assert_eq!(kinds(&not_directories), [D::None, file, file, file, directory, file]);
    let directories = [
        "fstat(3</a>, {st_mode=S_IFDIR|0755, ...}) = 0",
        "openat(AT_FDCWD</b>, \"/c\", O_RDONLY|O_DIRECTORY) = 3</c>",
        "close(3</c>) = 0",
        "newfstatat(4</d>, \"x\", {st_mode=S_IFREG|0644}, 0) = 0",
        "openat(AT_FDCWD</b>, \"/e\", O_RDONLY) = -1 ENOENT (No such file)",
    ];
    assert_eq!(kinds(&directories), [directory, directory, directory, directory, D::None]);
}

#[test]
fn the_times_of_every_option_are_one_clock() {
    let begins = |log: &str| {
        let begins: Vec<u64> = imported(log).records().map(|record| record.begin_ns).collect();
        begins.iter().map(|begin| (begin - begins[0]) / 1000).collect::<Vec<_>>()
    };
    let call = "sync() = 0 <0.000001>";
    let of = |times: [&str; 3]| begins(&times.map(|time| format!("7 {time} {call}\n")).concat());
    assert_eq!(of(["1000000000.5", "1000000000.500002", "1000000001.000000000"]), [0, 2, 500_000]);
    assert_eq!(of(["23:59:59.000000", "23:59:59.999999", "00:00:00.000001"]), [0, 999_999, 1_000_001]);
    assert_eq!(of(["    0.000000", "    0.000010", "    1.000000"]), [0, 10, 1_000_010]);
    assert_eq!(
        of(["1000000000.1 (+  0.0)", "1000000000.2 (+ 0.1)", "1000000000.3 (+ 0.1)"]),
        [0, 100_000, 200_000]
    );
    let columns = ["1000000000.1 [  59]", "1000000000.2 [00007f10]", "1000000000.3 [  0] [00007f]"];
    assert_eq!(of(columns), [0, 100_000, 200_000]);
    assert_eq!(of(["1000000000.2", "1000000000.1", "1000000000.3"]), [0, 100_000, 200_000]);
    let backward = ["1000000000.2", "1000000000.5", "1000000000.1"].map(|time| format!("7 {time} {call}\n"));
    assert_eq!(imported(&backward.concat()).imported.moved_ns, 100_000_000);
}

#[test]
fn lines_without_threads_are_one_process_and_names_of_threads_are_skipped() {
    for (thread, due) in [("", 1), ("7<a b> ", 7), ("7     ", 7)] {
        let trace = imported(&format!("{thread}1000000000.000001 sync() = 0 <0.000001>\n"));
        let processes: Vec<u32> = trace.records().map(|record| record.process).collect();
        assert_eq!(processes, [due], "{thread}");
    }
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let log = "\
100 1000000000.000001 getpid() = 100 <0.000001>
100 1000000000.000003 +++ exited with 0 +++
200 1000000000.000004 fork() = 100 <0.000001>
100 1000000000.000006 getpid() = 100 <0.000001>
";
    let trace = imported(log);
    trace.check(&expect![[r#"
        0 +1 100/100 getpid() = 100
        2 + 100/100 process exits with 0
        3 + 200/200 new process 100
        3 +1 200/200 fork() = 100
        5 +1 100/100 getpid() = 100
    "#]]);
    assert_eq!((trace.imported.processes, trace.imported.roots), (3, 2));
}

#[test]
fn a_child_may_end_before_the_call_that_creates_it_returns() {
    let log = "\
10 1000000000.000001 vfork( <unfinished ...>
11 1000000000.000002 +++ exited with 0 +++
10 1000000000.000003 <... vfork resumed>) = 11 <0.000002>
10 1000000000.000005 fork() = 11 <0.000001>
11 1000000000.000007 getpid() = 11 <0.000001>
";
    let trace = imported(log);
    let forks = trace.records().filter(|record| matches!(record.event, Recorded::Fork { .. }));
    let times_us: Vec<u64> = forks.map(|record| record.begin_ns / 1000 % 1000).collect();
    assert_eq!(times_us, [2, 5]);
    assert_eq!((trace.imported.processes, trace.imported.roots), (3, 1));
}

#[test]
fn a_thread_has_the_number_that_strace_sees() {
    let log = "\
10 1000000000.000001 clone(child_stack=0x7f00, flags=0x10100) = 8 /* 11 in strace's PID NS */ <0.000001>
11 1000000000.000003 getpid() = 7 <0.000001>
";
    let trace = imported(log);
    let processes: Vec<(u32, u32)> = trace.records().map(|record| (record.process, record.thread)).collect();
    assert_eq!(processes, [(10, 10), (10, 10), (10, 11)]);
    assert_eq!((trace.imported.processes, trace.imported.roots), (1, 1));
}

#[test]
fn a_call_that_never_returned_has_its_path() {
    let log = "\
1 1000000000.000001 openat(AT_FDCWD, \"/fifo\", O_RDONLY <unfinished ...>) = ?
1 1000000000.000005 +++ killed by SIGRTMIN +++
";
    imported(log).check(&expect![[r#"
        0 +4 1/1 openat(AT_FDCWD, "/fifo", O_RDONLY) = ?
        4 + 1/1 process exits with 32
    "#]]);
}

#[test]
fn a_call_that_did_not_return_is_not_resumed() {
    let mut log = "1 1000000000.000001 pause() = ?\n".to_owned();
    log.push_str(&"1 1000000000.000002 <... pause resumed>) = 0 <0.000001>\n".repeat(3));
    assert_eq!(imported(&log).imported, Imported { calls: 0, skipped: 3, first_skipped: Some(2), ..FINE });
}

#[test]
fn a_call_from_which_strace_was_detached_never_returned() {
    let log = "\
1 1000000000.000001 ppoll([{fd=3</a>}],  <unfinished ...>
2 1000000000.000002 epoll_wait(5</b>,  <unfinished ...>
1 1000000000.000003 <... ppoll resumed>1, NULL,  <detached ...>
2 1000000000.000004 <... epoll_wait resumed> <unfinished ...>) = ?
";
    let trace = imported(log);
    trace.check(&expect![[r#"
        0 +3 1/1 ppoll(..., 1, NULL, ..., ...) = ?
        1 +2 2/2 epoll_wait(5, ..., ..., ...) = ?
    "#]]);
    assert_eq!(trace.imported.skipped, 0);
}

#[test]
fn a_call_whose_rest_is_missing_is_counted() {
    let log = "1 1000000000.000001 pause( <unfinished ...>\n1 1000000000.000002 sync() = 0 <0.000001>\n";
    let trace = imported(log);
    assert_eq!(trace.imported, Imported { skipped: 1, first_skipped: Some(1), ..FINE });
    assert_eq!(trace.records().count(), 1);
}

#[test]
fn a_last_line_that_is_not_whole_is_counted() {
    let log = "1 1000000000.000001 sync() = 0 <0.000001>\n1 1000000000.000003 read(3, \"\", 12) = 1";
    assert_eq!(imported(log).imported, Imported { skipped: 1, first_skipped: Some(2), ..FINE });
}

#[test]
fn an_interrupted_import_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let (log, container) = (directory.path().join("log"), directory.path().join("x.trace"));
    fs::write(&log, FAMILY).unwrap();
    let error = strace(&log, &container, "x86_64", &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, ImportError::Interrupted) && !container.exists(), "{error}");
}

#[test]
fn only_a_time_with_a_date_is_a_time_of_the_machine() {
    let realtime_ns = |time: &str| {
        let directory = tempfile::tempdir().unwrap();
        let (log, container) = (directory.path().join("log"), directory.path().join("x.trace"));
        fs::write(&log, format!("1 {time} sync() = 0 <0.000001>\n")).unwrap();
        strace(&log, &container, "x86_64", &AtomicBool::new(false)).unwrap();
        Reader::open(&container).unwrap().manifest().start_realtime_ns
    };
    assert_eq!(realtime_ns("1000000000.000001"), 1_000_000_000_000_001_000);
    assert_eq!([realtime_ns("13:00:00.000000"), realtime_ns("0.000000")], [0, 0]);
}

#[test]
fn logs_that_were_merged_are_sorted_by_the_end_of_their_calls() {
    let log = "\
1 1000000000.000000 pause() = -1 EINTR (Interrupted) <1.000000>
2 1000000000.000100 sync() = 0 <0.000100>
2 1000000000.000300 sync() = 0 <0.000100>
";
    imported(log).check(&expect![[r#"
        100 +100 2/2 sync() = 0
        300 +100 2/2 sync() = 0
        0 +1000000 1/1 pause() = -1 EINTR
    "#]]);
}

#[test]
fn lines_that_strace_does_not_write_are_counted() {
    let log = "\
garbage
1 1000000000.000000 sync() = 0 <0.000001>
 > /lib/libc.so.6(sync+0x5) [0x10]
1 1000000000.000001 close(3) = -1 EOFTHEFUTURE (Error) <0.000001>
1 1000000000.000001 <... read resumed>) = 0 <0.000001>
1 1000000000.000002 nothing_like_a_call(1) = 0 <0.000001>
1 1000000000.000003 read(3</a>, \"unclosed, 5) = 0 <0.000001>
1 1000000000.000004 pause( <unfinished ...>
1 1000000000.000004 sync() = 0 <0.000001>
1 1000000000.000005 ???( <unfinished ...>
";
    let due = Imported { calls: 2, skipped: 7, first_skipped: Some(1), ..FINE };
    assert_eq!(imported(log).imported, due);
}

#[test]
fn a_log_that_lacks_something_says_which_option_writes_it() {
    let refused = |log: &str| import(log.as_bytes()).err().unwrap();
    let fine = "1 1000000000.000000 sync() = 0 <0.000001>\n";
    for (line, due) in [
        ("[pid 7] 1000000000.000000 sync() = 0 <0.000001>", "let strace write the log with its option -o"),
        ("1 sync() = 0 <0.000001>", "record with the option -ttt"),
        ("sync() = 0 <0.000001>", "record with the option -ttt"),
        ("1 12:00:00 sync() = 0 <0.000001>", "record with the option -ttt"),
        ("1 1000000000.000000 sync() = 0", "record with the option -T"),
    ] {
        let text = refused(&format!("{fine}{line}\n"));
        assert!(text.starts_with("LOG, line 2: ") && text.contains(due) && !text.contains('\n'), "{text}");
    }
    assert!(refused("").starts_with("LOG: contains no system call; record it with 'strace -f -ttt -T -y"));
    assert!(refused("x\n").contains("contains no system call"));
    let long = format!("{fine}1 1000000000.000000 write(3, \"{}", "x".repeat(line::LINE_MAX));
    assert!(refused(&long).starts_with("LOG, line 2: it is longer than 1 MiB"));
}

#[test]
fn a_path_that_is_no_file_and_a_trace_that_exists_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (log, container) = (directory.path().join("log"), directory.path().join("x.trace"));
    let refused =
        |log: &Path| strace(log, &container, "x86_64", &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(refused(&log).contains("No such file"));
    assert!(refused(directory.path()).contains("is not a file"));
    assert!(!container.exists());
    fs::write(&log, FAMILY).unwrap();
    fs::create_dir(&container).unwrap();
    assert!(refused(&log).contains("already exists"));
    assert!(container.exists(), "the trace of somebody else was removed");
}

proptest! {
    #[test]
    fn a_damaged_log_is_imported_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..8)
    ) {
        let mut log = FAMILY.as_bytes().to_vec();
        for (place, byte, change) in changes {
            let at = place.index(log.len().max(1)).min(log.len().saturating_sub(1));
            match change {
                _ if log.is_empty() => log.push(byte),
                0 => log[at] = byte,
                1 => drop(log.remove(at)),
                2 => log.insert(at, b" \"<>[](){},=|0\\"[usize::from(byte % 15)]),
                _ => log.truncate(at),
            }
        }
        if let Ok(trace) = import(&log) {
            let ends: Vec<u64> = trace.records().map(Record::end_ns).collect();
            prop_assert!(ends.is_sorted());
        }
    }
}
