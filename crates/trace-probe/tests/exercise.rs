//! A program with known calls, which the tests of the recorder record.

use std::{
    arch::asm,
    env,
    ffi::CString,
    fs::{self, File},
    io::{self, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::{
            self,
            fs::symlink,
            net::{UnixListener, UnixStream},
            process::parent_id,
        },
    },
    process::Command,
    ptr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use assay_process::{clock::now, cpus};
use rustix::{
    process::Pid,
    thread::{CpuSet, gettid, sched_setaffinity},
};

fn main() -> io::Result<()> {
    match env::args().nth(1).as_deref() {
        Some("threads") => threads(),
        Some("compat") => compat(),
        Some("sockets") => return sockets(),
        Some("send") => return send(),
        Some("areas") => return areas(),
        Some("forks") => return forks(),
        Some("bad-pointers") => return bad_pointers(),
        Some("values") => values(),
        Some("contents") => return contents(&env::args().nth(2).unwrap_or_default()),
        Some("peer") => return peer(),
        Some("wake") => return wake(env::args().nth(2).as_deref()),
        other => return Err(io::Error::other(format!("{other:?} is not an exercise"))),
    }
    Ok(())
}

/// Starts three threads that call `getppid` 100 times each.
fn threads() {
    let calls = || {
        for _ in 0..100 {
            let _ = parent_id();
        }
    };
    let callers = [calls; 3].map(thread::spawn);
    callers.into_iter().for_each(|caller| caller.join().expect("a caller does not panic"));
}

/// Makes ten calls with number 64 of the 32-bit table: `getppid` there, `semget` in the 64-bit table.
fn compat() {
    for _ in 0..10 {
        let mut number = 64_u32;
        // SAFETY: the 32-bit entry for a call without arguments that accesses no memory; it may clobber r8 to
        // r11.
        unsafe {
            asm!("int 0x80", inout("eax") number, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        assert_eq!(number, parent_id());
    }
}

/// Sends 100 bytes through TCP, 1 through UDP and 7 through a Unix socket, reads 8 from an eventfd and polls
/// an epoll set once.
fn sockets() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.write_all(&[b'x'; 100])?;
    far.read_exact(&mut [0; 100])?;
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"y", receiver.local_addr()?)?;
    let (mut left, mut right) = UnixStream::pair()?;
    left.write_all(b"1234567")?;
    right.read_exact(&mut [0; 7])?;
    events(&far)
}

/// Makes calls with paths and socket addresses of every kind in `directory`, which is empty.
fn contents(directory: &str) -> io::Result<()> {
    let refused = |made: io::Result<()>| made.err().map(drop).ok_or(io::Error::other("it succeeded"));
    env::set_current_dir(directory)?;
    for length in [1, 47, 48, 49, 96, 239, 240, 241, 250] {
        let path = "p".repeat(length);
        File::create(&path)?;
        fs::rename(&path, "\t\"renamed\\\u{e9}1")?;
        fs::remove_file("\t\"renamed\\\u{e9}1")?;
    }
    refused(File::open("").map(drop))?;
    symlink("first/of/two", "link")?;
    fs::hard_link("link", "hard")?;
    fs::remove_file("link")?;
    fs::remove_file("hard")?;
    fs::create_dir("made")?;
    fs::remove_dir("made")?;
    refused(Command::new("./missing").status().map(drop))?;
    Command::new("true").status()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let _near = TcpStream::connect(address)?;
    listener.accept()?.0.peer_addr()?;
    // Whether they succeed depends on the machine.
    let _ = TcpStream::connect("127.0.0.1:1");
    let _ = TcpStream::connect("[::1]:1");
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"data", "127.0.0.1:9")?;
    let _listener = UnixListener::bind("socket")?;
    UnixStream::connect("socket")?.peer_addr()?;
    fs::remove_file("socket")?;
    refused(UnixStream::connect_addr(&unix::net::SocketAddr::from_abstract_name(b"assay\0\x01")?).map(drop))
}

/// Passes a path whose memory is not there (at address 8), none, and room for 4 bytes of an address.
fn bad_pointers() -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (mut address, mut room) = ([0_u8; 16], 4_u32);
    // Just written, so that the kernel finds it present.
    let readable = CString::new("readable")?;
    // SAFETY: the kernel rejects a path that it cannot read; the address has room for more than 4 bytes.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_rename, readable.as_ptr(), 8),
            libc::syscall(libc::SYS_utimensat, socket.as_raw_fd(), 0, 0, 0),
            libc::syscall(libc::SYS_getsockname, socket.as_raw_fd(), address.as_mut_ptr(), &raw mut room),
        ]
    };
    assert_eq!((results, room, &address[4..]), ([-1, 0, 0], 16, [0; 12].as_slice()));
    Ok(())
}

/// Calls with constants, each on the descriptor -1 or with another argument that the kernel rejects, or
/// without an effect. The upper half of the register of an `int` has no meaning.
const VALUES: &[(i64, &[i64])] = &[
    (libc::SYS_pipe2, &[0, 0x80800]),
    (libc::SYS_dup3, &[-1, -1, UPPER | 0x80000]),
    (libc::SYS_close_range, &[1 << 30, 0xffff_ffff, 4]),
    (libc::SYS_mremap, &[0, 4096, 8192, 1, 0x5a5a]),
    (libc::SYS_futex, &[0, 0x81, 1, 0x5a5a, 0x5a5a, 0x5a5a]),
    (libc::SYS_futex, &[0, 0x89, 0xffff_ffff, 0, 0x5a5a, 7]),
    (libc::SYS_futex, &[0, 0x8a, 1, 0x5a5a, 0x5a5a, 7]),
    (libc::SYS_fcntl, &[-1, UPPER | 1, 0x5a5a]),
    (libc::SYS_fcntl, &[-1, 1030, 10]),
    (libc::SYS_read, &[-1, 0, -1]),
    (libc::SYS_lseek, &[-1, -5, 2]),
    (libc::SYS_openat, &[-1, 0, 0o2_000_102, UPPER | 0o640]),
    (libc::SYS_openat, &[-100, 0, 0o20_200_002, 0o600]),
    (libc::SYS_mmap, &[0, 0, 7, 0x20_022, -1, 0]),
    (libc::SYS_mmap, &[0, 0, 0, 1, -1, 0]),
    (libc::SYS_mprotect, &[1, 1, 5]),
    (libc::SYS_madvise, &[1, 1, 4]),
    (libc::SYS_msync, &[1, 1, 4]),
    (libc::SYS_socket, &[99, 0x80802, 0]),
    (libc::SYS_socketpair, &[99, 5, 0, 0]),
    (libc::SYS_accept4, &[-1, 0, 0, 0x80000]),
    (libc::SYS_sendto, &[-1, 0, 0, 0x4040, 0, 0]),
    (libc::SYS_recvfrom, &[-1, 0, 0, 0x42, 0, 0]),
    (libc::SYS_setsockopt, &[-1, 1, 2, 0, 4]),
    (libc::SYS_shutdown, &[-1, 2]),
    (libc::SYS_epoll_create1, &[3]),
    (libc::SYS_epoll_ctl, &[-1, 3, -1, 0]),
    (libc::SYS_eventfd2, &[7, 0x4000_0000 | 0x80000]),
    (libc::SYS_timerfd_create, &[99, 0x80800]),
    (libc::SYS_timerfd_settime, &[-1, 3, 0, 0]),
    (libc::SYS_signalfd4, &[-1, 0, 99, 0x80800]),
    (libc::SYS_clock_gettime, &[99, 0]),
    (libc::SYS_clock_nanosleep, &[1, 1, 0, 0]),
    (libc::SYS_rt_sigprocmask, &[2, 0, 0, 99]),
    (libc::SYS_kill, &[-1 << 30, 15]),
    (libc::SYS_wait4, &[-1 << 30, 0, 3, 0]),
    (libc::SYS_prlimit64, &[-1, 7, 0, 0]),
    (libc::SYS_flock, &[-1, 6]),
    (libc::SYS_fallocate, &[-1, 3, -1, 5]),
    (libc::SYS_fadvise64, &[-1, 0, 0, 2]),
    (libc::SYS_getrandom, &[0, 0, 3]),
    (libc::SYS_memfd_create, &[0, 3]),
    (libc::SYS_splice, &[-1, 0, -1, 0, 5, 3]),
    (libc::SYS_access, &[0, 5]),
    (libc::SYS_faccessat2, &[-1, 0, 0, 0x200]),
    (libc::SYS_mkdirat, &[-1, 0, 0o1755]),
    (libc::SYS_unlinkat, &[-1, 0, 0x200]),
    (libc::SYS_linkat, &[-1, 0, -100, 0, 0x400]),
    (libc::SYS_renameat2, &[-1, 0, -1, 0, 3]),
    (libc::SYS_newfstatat, &[-1, 0, 0, 0x100]),
    (libc::SYS_statx, &[-1, 0, 0x4100, 0x7ff, 0]),
    (libc::SYS_statx, &[-1, 0, 0, 0x200, 0]),
    (libc::SYS_unshare, &[0]),
    (libc::SYS_umask, &[0o22]),
    (libc::SYS_preadv2, &[-1, 0, 1, -5, 0x5a5a, 0]),
];

const UPPER: i64 = 0x5a5a_5a5a << 32;

/// Makes the calls of [`VALUES`].
fn values() {
    for (number, args) in VALUES {
        let argument = |position: usize| args.get(position).copied().unwrap_or(0x5a5a);
        let args = [0, 1, 2, 3, 4, 5].map(argument);
        // SAFETY: no argument is the address of memory of this program, and no call changes its state, except
        // for the permissions of files that it creates.
        unsafe { libc::syscall(*number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    }
}

/// Makes 1000 sends of 1000 bytes to a connection that is read after each send.
fn send() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    for _ in 0..1000 {
        near.write_all(&[b'x'; 1000])?;
        far.read_exact(&mut [0; 1000])?;
    }
    Ok(())
}

/// Answers 100 requests of 100 bytes with 200 bytes each, on the first processor. The client sends them in
/// turn from the first and from the last processor. Every other pair of requests is sent when the server
/// sleeps in its receive; the server receives the others when they have arrived.
fn peer() -> io::Result<()> {
    let processors = cpus::allowed()?;
    let places = [processors[0], processors[processors.len() - 1]];
    let waits = |round: usize| round % 4 < 2;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    cpus::pin(places[0])?;
    let server = gettid();
    let client = thread::spawn(move || {
        for round in 0..100 {
            if waits(round) {
                until_asleep(server)?;
            }
            cpus::pin(places[round % 2])?;
            near.write_all(&[b'x'; 100])?;
            near.read_exact(&mut [0; 200])?;
        }
        Ok(())
    });
    for round in 0..100 {
        if !waits(round) {
            far.peek(&mut [0])?;
        }
        far.read_exact(&mut [0; 100])?;
        far.write_all(&[b'y'; 200])?;
    }
    client.join().expect("the client does not panic")
}

/// Maps 3,000 pages, each an area of its own, at every second page from 0x2000_0000_0000 on: in turn
/// anonymous memory, a private and a shared mapping of a file. Reads every page. Unmaps every second one,
/// and the first 500. Then replaces every fifth page by one of the next kind, and reads those. Finally a
/// child reads the last page of user memory, where nothing is mapped.
fn areas() -> io::Result<()> {
    let file = File::open("/proc/self/exe")?;
    let page = |number: usize| ptr::with_exposed_provenance_mut::<u8>(0x2000_0000_0000 + number * 0x2000);
    let touch = |number: usize, kind: usize| {
        let start = page(number);
        let (flags, descriptor) = match kind {
            0 => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            1 => (libc::MAP_PRIVATE, file.as_raw_fd()),
            _ => (libc::MAP_SHARED, file.as_raw_fd()),
        };
        // SAFETY: a new mapping in a range that nothing else uses, or in place of one of these.
        unsafe {
            let flags = flags | libc::MAP_FIXED;
            if libc::mmap(start.cast(), 0x1000, libc::PROT_READ, flags, descriptor, 0) == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            start.read_volatile();
        }
        Ok(())
    };
    (0..3000).try_for_each(|number| touch(number, number % 3))?;
    for number in (0..3000).step_by(2).chain(1..500) {
        // SAFETY: one of the pages above, or nothing.
        unsafe { libc::munmap(page(number).cast(), 0x1000) };
    }
    (0..3000).step_by(5).try_for_each(|number| touch(number, (number + 1) % 3))?;
    let status = child(|| {
        // Rust's handler of the signal would return once, and the read would be repeated.
        // SAFETY: the signal ends this process at the read.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        // SAFETY: see above.
        unsafe { ptr::with_exposed_provenance::<u8>(0x7fff_ffff_e000).read_volatile() };
        0
    });
    if libc::WTERMSIG(status) == libc::SIGSEGV {
        Ok(())
    } else {
        Err(io::Error::other("something is mapped"))
    }
}

/// Forks a child, which exits with the status that `life` returns, and returns its wait status.
fn child(life: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child ends here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = life();
        // SAFETY: ends the copy.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: waits for a child of this process; the pointer is to a local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// Forks with 32 MiB of anonymous memory, and starts a program in borrowed memory.
fn forks() -> io::Result<()> {
    let memory = vec![1_u8; 32 << 20];
    let status = child(|| i32::from(memory[0] != 1));
    let started = Command::new("/bin/true").status()?;
    if status == 0 && started.success() { Ok(()) } else { Err(io::Error::other("a child failed")) }
}

/// Wakes a thread 200 times, each time by a `write` of one byte to a pipe in whose `read` it sleeps. The
/// `write` is on the first processor. The `read` is
/// - on the `same` one,
/// - on the last one, which is otherwise idle (`other`), or on which another thread spins (`busy`),
/// - in turn on the last and on the first one: the sleeping thread is `moved` before it is woken.
///
/// Prints the share of this time that the last processor was idle, in percent.
fn wake(sleeper: Option<&str>) -> io::Result<()> {
    let processors = cpus::allowed()?;
    let (first, last) = (processors[0], processors[processors.len() - 1]);
    let (start, spins) = match sleeper {
        Some("same" | "moved") => (first, false),
        Some("other") => (last, false),
        Some("busy") => (last, true),
        _ => return Err(io::Error::other("give one of: same, other, busy, moved")),
    };
    let spinning = AtomicBool::new(spins);
    let (on_last, is_on_last) = mpsc::channel();
    let (started, starts) = mpsc::channel();
    let (mut receiver, mut sender) = io::pipe()?;
    cpus::pin(first)?;
    thread::scope(|scope| {
        let spinner = scope.spawn(|| {
            let on_last = on_last;
            cpus::pin(last)?;
            let _ = on_last.send(());
            while spinning.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        });
        let reader = scope.spawn(move || {
            cpus::pin(start)?;
            let _ = started.send(gettid());
            (0..200).try_for_each(|_| receiver.read_exact(&mut [0]))
        });
        let ready = is_on_last.recv().and_then(|()| starts.recv()).map_err(io::Error::other);
        let written = ready.and_then(|thread| {
            let (start, idle_before) = (now(), idle(last)?);
            for round in 0..200 {
                until_asleep(thread)?;
                if sleeper == Some("moved") {
                    let mut processor = CpuSet::new();
                    processor.set(if round % 2 == 0 { last } else { first });
                    sched_setaffinity(Some(thread), &processor)?;
                }
                sender.write_all(b"x")?;
            }
            let (idle, elapsed) = (idle(last)?.saturating_sub(idle_before), now() - start);
            writeln!(io::stdout(), "{}", 100 * idle.as_micros() / elapsed.as_micros())
        });
        spinning.store(false, Ordering::Relaxed);
        drop(sender);
        let joined = [spinner.join(), reader.join()].map(|thread| thread.expect("no thread panics"));
        joined.into_iter().fold(written, |ended, joined| ended.and(joined))
    })
}

/// Returns how long a processor has been idle since the machine started, in steps of 10 ms.
fn idle(processor: usize) -> io::Result<Duration> {
    let table = fs::read_to_string("/proc/stat")?;
    let row = table.lines().find_map(|line| line.strip_prefix(&format!("cpu{processor} ")));
    let ticks = row.and_then(|row| row.split(' ').nth(3)).and_then(|ticks| ticks.parse().ok());
    ticks
        .map(|ticks: u64| Duration::from_millis(10 * ticks))
        .ok_or_else(|| io::Error::other("/proc/stat has no idle time"))
}

/// Waits until a thread of this process sleeps.
fn until_asleep(thread: Pid) -> io::Result<()> {
    for _ in 0..60_000 {
        let status = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()))?;
        if status.rsplit(") ").next().is_some_and(|fields| fields.starts_with('S')) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other("the thread does not sleep"))
}

fn events(watched: &TcpStream) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
    let mut count = [0_u8; 8];
    // SAFETY: every pointer is to a local value that outlives the call; the descriptors stay open until the
    // process ends.
    unsafe {
        let set = libc::epoll_create1(0);
        libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, watched.as_raw_fd(), &raw mut event);
        libc::epoll_wait(set, &raw mut event, 1, 0);
        let counter = libc::eventfd(1, 0);
        libc::read(counter, count.as_mut_ptr().cast(), count.len());
        libc::syscall(
            libc::SYS_mmap,
            ptr::null::<u8>(),
            4096,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
    }
    if count[0] == 1 { Ok(()) } else { Err(io::Error::other("the eventfd did not contain 1")) }
}
