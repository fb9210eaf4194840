//! `assay sim` from outside, on the real QEMU and kernels of `scripts/platforms`.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod guest;
mod image;
mod kernel_event;
mod matrix;
mod native;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use guest::{
    MODES, PROGRAMS, ROUTINES, SERVICES, Said, Tables, assay, compile, copy_program, kernels, run, sim,
};

#[test]
fn a_command_runs_with_its_files_on_each_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("tree")).unwrap();
    fs::write(path("tree/script"), "#!/bin/sh\nuname -r; echo $# $1\n").unwrap();
    fs::set_permissions(path("tree/script"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("script", path("tree/link")).unwrap();
    let bytes: String = (0..2000).map(|number| format!("\t{number}\r\n\u{4}")).collect();
    fs::write(path("bytes"), &bytes).unwrap();
    // The kernel has random numbers from the beginning, 256 bits of entropy.
    let command =
        "tree/link 'a b'; cat /proc/sys/kernel/random/entropy_avail bytes; printf 'no end' >&2; exit 3";
    let mut calls = Vec::new();
    let kernels = kernels();
    for kernel in &kernels {
        let arguments = ["--guest-command", command, "--copy", "tree", "--copy", "bytes"];
        let arguments = [&arguments[..], &["--kernel", kernel, "--output", kernel, "--json"]].concat();
        let said = sim(directory.path(), &arguments);
        let expected = format!(
            "booting Linux {kernel}\nno end\n{kernel}\n1 a b\n256\n{bytes}\n\
             assay: the guest's command ended with status 3\n"
        );
        let (_, messages) = said.messages.rsplit_once("booting ").unwrap();
        assert_eq!(format!("booting {messages}"), expected);
        assert_eq!(said.code, Some(1));
        let tables = Tables::of(&said);
        assert_eq!(tables.count(PROGRAMS, "cat", "processes"), 1, "{}", said.report);
        calls.push(["calls", "instructions"].map(|column| tables.count(SERVICES, "execve", column)));
    }
    let [first, .., last] = &kernels[..] else { panic!("{kernels:?}") };
    let compared = Tables::of(&assay(directory.path(), &["sim", "diff", first, last, "--json"]));
    let [[calls_a, a], .., [calls_b, b]] = calls[..] else { panic!("{calls:?}") };
    let counted = ["calls A", "calls B"].map(|column| compared.count(SERVICES, "execve", column));
    assert_eq!(counted, [calls_a, calls_b]);
    assert_eq!(compared.difference(SERVICES, "execve"), b.cast_signed() - a.cast_signed());
}

#[test]
fn with_the_clock_of_its_instructions_a_guest_does_the_same_in_each_run_observed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    // Random numbers, interrupts, memory and the time in ns, after work with processes and files.
    let command = "for i in $(seq 20); do sh -c 'echo $$' >>pids; done; ls -laR /work | md5sum
        head -c 16 /dev/urandom | xxd; cat /proc/interrupts /proc/vmstat /proc/uptime; adjtimex; date +%s";
    let run = |observe, output: &[&str]| {
        let arguments = ["--guest-command", command, "--deterministic", "--json", "--observe", observe];
        let said = sim(directory.path(), &[&arguments, output].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        let output = said.messages.rsplit_once("booting ").unwrap().1.to_owned();
        assert!(output.contains("nr_free_pages"), "{output}");
        (said.report, output)
    };
    let services = run("services", &["-o", "first"]);
    let again = run("services", &["-o", "second"]);
    let count = run("count", &["-o", "count"]);
    let nothing = run("nothing", &[]);
    assert_eq!(services, again);
    assert_eq!((services.1.as_str(), nothing.0.as_str()), (nothing.1.as_str(), ""));
    let counts = |(report, messages): &(String, String)| {
        let said = Said { report: report.clone(), messages: messages.clone(), code: Some(0) };
        ["user", "all"].map(|mode| Tables::of(&said).count(MODES, mode, "instructions"))
    };
    assert_eq!(counts(&services), counts(&count));
    let read = |name| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("first"), read("second"));
    for (name, shown) in [("first", &services.0), ("count", &count.0)] {
        assert_eq!(assay(directory.path(), &["sim", "show", name, "--json"]).report, *shown);
    }
    let compared = Tables::of(&assay(directory.path(), &["sim", "diff", "first", "second", "--json"]));
    assert_eq!(["all", "user"].map(|mode| compared.difference(MODES, mode)), [0, 0]);
    let refused = assay(directory.path(), &["sim", "diff", "first", "count"]);
    assert_eq!((refused.report.as_str(), refused.code), ("", Some(1)));
    assert!(refused.messages.contains("compare two runs with the same option --observe"), "{refused:?}");
}

/// A program without a library: 100,000 times a loop of some instructions, 1000 system calls, 64 pages that
/// are written for the first time, and some repeated string instructions.
const PROGRAM: &str = r#"
static char pages[64 * 4096];
static long call(long number, long argument)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(argument) : "rcx", "r11", "memory");
    return result;
}
void _start(void)
{
    volatile unsigned long sum = 0;
    for (int i = 0; i < 100000; i++)
        sum = sum * 31 + i;
    for (int i = 0; i < 1000; i++)
        call(110, 0); /* getppid */
    for (int i = 0; i < 64; i++)
        ((volatile char *)pages)[i * 4096] = 1;
    for (int i = 0; i < EXECUTIONS; i++) {
        void *to = pages;
        unsigned long count = REPETITIONS;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
    }
    call(60, 0); /* exit */
}
"#;

/// How often it executes a repeated string instruction.
const EXECUTIONS: u64 = 10_000;
/// The repetitions of each.
const REPETITIONS: u64 = 100;

#[test]
fn instructions_are_those_of_callgrind_and_calls_and_faults_those_of_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = [format!("-DEXECUTIONS={EXECUTIONS}"), format!("-DREPETITIONS={REPETITIONS}")];
    compile(directory.path(), "known", PROGRAM, &numbers.each_ref().map(String::as_str));
    let counted =
        run(directory.path(), "valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null", "./known"]);
    let counted = counted.lines().find_map(|line| line.split_once("Collected :")).unwrap().1;
    // Callgrind counts the instruction and each repetition.
    let expected = counted.trim().parse::<u64>().unwrap() - EXECUTIONS * REPETITIONS;

    // Many processes get the number and the memory of an earlier one.
    let command = "echo 301 >/proc/sys/kernel/pid_max; for i in $(seq 300); do (:); done; ./known";
    // A function that calls no other one, with which the kernel clears pages on the processor of QEMU.
    let function = "clear_page_rep";
    let annotated = format!("{function}: service");
    let arguments = ["--guest-command", command, "--copy", "known", "--annotate", &annotated, "--json"];
    let modes = [&arguments[..], &[&arguments[..], &["--deterministic"]].concat()];
    let [tables, deterministic] = modes.map(|arguments| Tables::of(&sim(directory.path(), arguments)));
    for tables in [&tables, &deterministic] {
        let user = tables.count(PROGRAMS, "known", "user");
        assert!(user.abs_diff(expected) * 1000 <= expected, "{user} instructions, callgrind: {expected}");
        let [calls, service] =
            ["calls", "instructions"].map(|column| tables.count(SERVICES, function, column));
        assert!(calls > 1000, "{calls} pages were cleared");
        assert_eq!(tables.count(ROUTINES, function, "instructions"), service);
    }
    // Over time, each repetition counts; page faults, whose instruction takes no time, are few.
    let user = deterministic.time("user") - deterministic.count(MODES, "user", "instructions") as f64;
    let repetitions = (EXECUTIONS * REPETITIONS) as f64;
    assert!((user / repetitions - 1.0).abs() < 0.1, "{user} repetitions, {repetitions} in the program");
    assert_eq!(tables.calls("known", "getppid"), 1000);
    assert_eq!(tables.calls("known", "exit"), 1);
    // It also touches its code, its stack, and the table of its own pages.
    let faults = tables.calls("known", "page_fault/anonymous");
    assert!((64..80).contains(&faults), "{faults} page faults");

    // Each new process begins once.
    let made = ["clone", "clone3", "vfork", "fork"].map(|call| tables.count(SERVICES, call, "calls"));
    assert_eq!(tables.count(SERVICES, "start", "calls"), made.iter().sum::<u64>());
    assert!(made[0] > 300);

    // Nothing is lost between the parts and the whole.
    let kernel = tables.sum(SERVICES, "instructions");
    assert_eq!(kernel, tables.sum(PROGRAMS, "kernel"));
    assert_eq!(kernel, tables.sum(ROUTINES, "instructions"));
    let all = tables.count(MODES, "all", "instructions");
    assert_eq!(tables.sum(PROGRAMS, "user") + kernel, all);
    assert_eq!(tables.sum(MODES, "instructions"), 2 * all);
    let passage = tables.count(SERVICES, "passage", "instructions");
    assert!(passage * 100 <= kernel, "{passage} of {kernel} instructions belong to no service");
    let note = tables.table(MODES)["notes"][0].as_str().unwrap();
    assert!(note.ends_with("Every entry into the kernel has its return."), "{note}");
}

/// A program without a library. It writes to 100 pages of anonymous memory; a new process that shares them
/// writes to 70 of them again. Then it reads 40 pages of a file, each too far from the others to be mapped
/// with one of them, and makes 30 calls that write to a new page each.
const FAULTS: &str = r#"
static char zeros[100 * 4096], more[30 * 4096];
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
void _start(void)
{
    for (int i = 0; i < 100; i++)
        ((volatile char *)zeros)[i * 4096] = 1;
    if (call(57, 0, 0, 0, 0, 0, 0) == 0) { /* fork */
        call(157, 15, (long)"child", 0, 0, 0, 0); /* prctl(PR_SET_NAME) */
        for (int i = 0; i < 70; i++)
            ((volatile char *)zeros)[i * 4096] = 2;
        call(60, 0, 0, 0, 0, 0, 0); /* exit */
    }
    long file = call(2, (long)"file", 0, 0, 0, 0, 0); /* open */
    char *pages = (char *)call(9, 0, 40 << 20, 1, 1, file, 0); /* mmap(PROT_READ, MAP_SHARED) */
    for (int i = 0; i < 40; i++)
        ((volatile char *)pages)[(long)i << 20];
    for (int i = 0; i < 30; i++)
        call(228, 1, (long)&more[i * 4096], 0, 0, 0, 0); /* clock_gettime */
    call(61, -1, 0, 0, 0, 0, 0); /* wait4 */
    call(60, 0, 0, 0, 0, 0, 0);
}
"#;

#[test]
fn page_faults_softirqs_and_functions_are_services_of_their_own_in_each_kernel() {
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), "faults", FAULTS, &[]);
    // With its own clock, the guest does not wait for the answers.
    let command = "truncate -s 40M file && ./faults && ping -c 8 127.0.0.1";
    let arguments = ["--guest-command", command, "--copy", "faults", "--deterministic", "--json", "--kernel"];
    for kernel in kernels() {
        let arguments = [&arguments[..], &[&kernel]].concat();
        let plain = Tables::of(&sim(directory.path(), &arguments));
        for (program, kind, count) in [
            ("faults", "page_fault/anonymous", 130),
            ("child", "page_fault/copy_on_write", 70),
            ("faults", "page_fault/file", 40),
        ] {
            let faults = plain.calls(program, kind);
            assert!(
                (count..count + 16).contains(&faults),
                "{kernel}: {faults} of {count} {kind} by {program}"
            );
        }
        for program in ["faults", "child"] {
            assert_eq!(["page_fault", "page_fault/swap"].map(|kind| plain.calls(program, kind)), [0, 0]);
        }
        let received = plain.count(SERVICES, "softirq/net_rx", "calls");
        assert!(
            (8..=16).contains(&received),
            "{kernel}: {received} softirqs for 8 packets and their answers"
        );
        assert!(plain.count(SERVICES, "softirq", "calls") >= received);

        let function = ["--annotate", "__x64_sys_clock_gettime: service"];
        let split = Tables::of(&sim(directory.path(), &[&arguments[..], &function].concat()));
        assert_eq!(split.calls("faults", "__x64_sys_clock_gettime"), 30);
        // What the function has was the call's before, and nothing else is different.
        let instructions = |tables: &Tables, service| tables.count(SERVICES, service, "instructions");
        let parts = ["clock_gettime", "__x64_sys_clock_gettime"].map(|part| instructions(&split, part));
        assert!(parts.iter().all(|part| *part > 300), "{parts:?}");
        assert_eq!(parts.iter().sum::<u64>(), instructions(&plain, "clock_gettime"));
        for service in ["page_fault/anonymous", "softirq/net_rx", "read", "work"] {
            assert_eq!(instructions(&split, service), instructions(&plain, service), "{service}");
        }
        let note = split.table(MODES)["notes"][0].as_str().unwrap();
        assert!(note.ends_with("Every entry into the kernel has its return."), "{note}");
    }
}

/// A program without a library. It sleeps, makes room for a new process that computes, again and again, and
/// waits for its end. It prints how long the first two have taken by the clock of the machine.
const WAITS: &str = r#"
static long call(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
static unsigned long now(void)
{
    unsigned upper, lower;
    __asm__ volatile("rdtsc" : "=d"(upper), "=a"(lower) : : "memory");
    return (unsigned long)upper << 32 | lower;
}
static void print(unsigned long number)
{
    char text[21], *from = text + 20;
    *from = '\n';
    do
        *--from = '0' + number % 10;
    while (number /= 10);
    call(1, 1, (long)from, text + 21 - from, 0); /* write */
}
void _start(void)
{
    long duration[2] = { 0, 50000000 };
    unsigned long begin = now();
    call(230, 1, 0, (long)duration, 0); /* clock_nanosleep */
    print(now() - begin);
    if (call(57, 0, 0, 0, 0) == 0) { /* fork */
        for (volatile long i = 0; i < 5000000; i++)
            ;
        call(60, 0, 0, 0, 0); /* exit */
    }
    begin = now();
    while (now() - begin < 10000000)
        call(24, 0, 0, 0, 0); /* sched_yield */
    print(now() - begin);
    call(247, 0, 0, 0, 4); /* waitid(P_ALL, WEXITED) */
    call(60, 0, 0, 0, 0);
}
"#;

#[test]
fn the_latency_of_a_call_is_what_rdtsc_measures_in_the_guest() {
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), "waits", WAITS, &[]);
    let arguments =
        ["--guest-command", "./waits", "--copy", "waits", "--deterministic", "--json", "--kernel"];
    for kernel in kernels() {
        let said = sim(directory.path(), &[&arguments[..], &[&kernel]].concat());
        let tables = Tables::of(&said);
        let [slept, yielded, waited] =
            ["clock_nanosleep", "sched_yield", "waitid"].map(|call| tables.latency(call));
        let printed: Vec<f64> =
            said.messages.lines().rev().take(2).map(|line| line.parse().unwrap()).collect();
        for (latency, printed) in [(&slept, printed[1]), (&yielded, printed[0])] {
            // Between two readings are some instructions besides the call.
            let more = printed / latency.calls - latency.total;
            assert!((0.0..50.0).contains(&more), "{kernel}: {printed} ns for {latency:?}");
        }
        assert_eq!(tables.calls("waits", "clock_nanosleep"), 1);
        assert!(slept.blocked > 49.9e6 && slept.running < 1e5, "{kernel}: {slept:?}");
        let made_room = yielded.descheduled * yielded.calls;
        assert!(yielded.blocked < 0.5 && made_room > 2e6, "{kernel}: {yielded:?}");
        assert!(waited.blocked > 1e6 && waited.descheduled < 1e6, "{kernel}: {waited:?}");
    }
    let host = Tables::of(&sim(directory.path(), &["--guest-command", "true", "--json"]));
    assert!(host.count("Events", "system calls", "count") > 0);
    assert!(!host.0.to_string().contains("Latency"));
}

/// A program without a library that installs a filter of system calls, which loads the first argument this
/// number of times, and then makes 1000 calls. A filter that loads nothing would not run: the kernel knows
/// its answer.
const FILTER: &str = r#"
struct instruction { unsigned short code; unsigned char yes, no; unsigned value; };
static struct instruction filter[LOADS + 1];
static struct { unsigned short length; struct instruction *filter; } program = { LOADS + 1, filter };
static long call(long number, long a, long b, long c)
{
    long result;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
void _start(void)
{
    for (int i = 0; i < LOADS; i++)
        filter[i] = (struct instruction){ 0x20, 0, 0, 16 };
    filter[LOADS] = (struct instruction){ 0x06, 0, 0, 0x7fff0000 }; /* allow */
    long failed = call(157, 38, 1, 0); /* prctl(PR_SET_NO_NEW_PRIVS) */
    failed |= call(157, 22, 2, (long)&program); /* prctl(PR_SET_SECCOMP) */
    for (int i = 0; i < 1000; i++)
        call(110, i, 0, 0); /* getppid */
    call(60, failed != 0, 0, 0); /* exit */
}
"#;

#[test]
fn work_that_is_added_to_a_call_is_seen_in_it_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let loads = [100, 200, 300];
    let names = loads.map(|loads| format!("filter{loads}"));
    for (name, loads) in names.iter().zip(loads) {
        compile(directory.path(), name, FILTER, &[&format!("-DLOADS={loads}")]);
    }
    let command = names.each_ref().map(|name| format!("./{name}")).join(" && ");
    let copies = names.iter().flat_map(|name| ["--copy", name]);
    // With the clock of the host, more calls are preempted on a busy machine, and each has a switch more.
    let arguments = ["--guest-command", &command, "--deterministic", "--json"];
    let arguments: Vec<&str> = arguments.into_iter().chain(copies).collect();
    let tables = Tables::of(&sim(directory.path(), &arguments));
    let figure = |name: &String, service, column| tables.figure(name, service, column);
    let [a, b, c] = names.each_ref().map(|name| figure(name, "getppid", "instructions"));
    let (first, second) = (b - a, c - b);
    assert!(first.abs_diff(second) < 5000 && first > 90_000, "{first} and {second} more instructions");
    // The kernel translates the filters into its own instructions, at least one for each load.
    let filters = tables.count(ROUTINES, "modules and generated code", "instructions");
    assert!((600_000..700_000).contains(&filters), "{filters} instructions of filters");
    let [a, _, c] = names.each_ref().map(|name| figure(name, "execve", "instructions"));
    assert!(a.abs_diff(c) < 5000, "{a} and {c} instructions");
}

#[test]
fn system_calls_are_those_that_strace_counts_in_the_guest() {
    let directory = tempfile::tempdir().unwrap();
    copy_program(Path::new("/usr/bin/strace"), &directory.path().join("tools"));
    let command = "mkdir tree; for i in $(seq 25); do echo $i >tree/$i; done
        tools/ld-linux-x86-64.so.2 --library-path tools tools/strace -f -c -o counts \\
            find tree -type f -exec md5sum {} ';' >sums
        cat counts";
    let arguments = ["--guest-command", command, "--copy", "tools", "--json"];
    let said = sim(directory.path(), &arguments);
    let tables = Tables::of(&said);
    let counted: BTreeMap<&str, u64> = said.messages.lines().filter_map(counted_by_strace).collect();
    assert!(counted["clone"] == 25 && counted["read"] > 25, "{counted:?}");
    for (call, count) in counted {
        // The process that becomes the first program is a copy of strace.
        let calls = tables.calls("find", call) + tables.calls("md5sum", call);
        assert_eq!(calls + u64::from(call == "execve"), count, "{call}");
    }
}

/// Reads a line of `strace -c`: share, time, time of each call, calls, perhaps errors, name.
fn counted_by_strace(line: &str) -> Option<(&str, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [share, _, _, calls, .., name] = words[..] else { return None };
    share.parse::<f64>().ok()?;
    (name != "total").then_some((name, calls.parse().ok()?))
}

#[test]
fn without_a_command_a_guest_runs_a_mix_of_system_calls() {
    let said = sim(Path::new("."), &["--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, printed) = said.messages.rsplit_once("booting ").unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let tables = Tables::of(&said);
    for service in [
        "clone",
        "execve",
        "exit_group",
        "wait4",
        "pipe2",
        "rt_sigaction",
        "openat",
        "read",
        "write",
        "close",
        "newfstatat",
        "getdents64",
        "mkdir",
        "rename",
        "symlink",
        "unlink",
        "sendfile",
        "mmap",
        "munmap",
        "brk",
        "socket",
        "connect",
        "accept",
        "poll",
        "sendto",
        "clock_nanosleep",
        "page_fault/anonymous",
        "page_fault/copy_on_write",
        "page_fault/file",
        "softirq/net_rx",
        "softirq/timer",
    ] {
        assert!(tables.count(SERVICES, service, "calls") > 0, "{service}");
    }
}
