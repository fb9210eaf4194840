//! Measures with another host: a real network between two network namespaces, with a server in one of them.
//!
//! This file has its own `main`: the executable is also the program that takes each sample, and the server on
//! the other host. It restarts itself in a new network namespace. The other host is a second namespace, which
//! ends with its process; the link between them is a pair of virtual Ethernet devices, which end with either
//! namespace.

#![expect(clippy::unwrap_used, reason = "the whole executable is a test")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_bench::serve::{Served, Server};
use assay_bench::{
    Benchmark, Finding, Measured, Outcome, Plan, Sabotage, Spawner, calibrate, catalogue, find, measure,
    sample_main, yields_sample_despite_sabotage,
};
use assay_statistics::cost_ns;
use assay_statistics::slope::NoCost;

const TESTS: &[(&str, fn())] = &[
    ("every_remote_primitive_is_measured_over_both_protocols", every_remote_primitive_is_measured),
    ("other_sizes_are_measured_and_impossible_sizes_are_refused", other_sizes),
    ("no_remote_benchmark_yields_a_sample_when_its_work_is_removed", sabotage_is_noticed),
    ("without_a_peer_the_reason_explains_how_to_give_one", no_peer),
    ("without_an_assay_server_there_is_no_sample", no_server),
    ("a_peer_that_vanishes_gives_rejected_samples_and_no_endless_wait", the_peer_vanishes),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("sample") => match sample_main(&arguments[1], &mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Some("sabotaged") => sabotaged(&arguments[1], &arguments[2]),
        Some("serve") => serve(),
        Some("inside") => run_tests(arguments[1..].iter().find(|argument| !argument.starts_with('-'))),
        _ => {
            let error = Command::new("unshare")
                .arg("--net")
                .arg(std::env::current_exe().unwrap())
                .arg("inside")
                .args(&arguments)
                .exec();
            let _ = writeln!(io::stderr(), "cannot run unshare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_tests(filter: Option<&String>) -> ExitCode {
    ip(&["link", "set", "lo", "up"]);
    let mut failed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| filter.is_none_or(|part| name.contains(part))) {
        let passed = std::panic::catch_unwind(test).is_ok();
        let _ = writeln!(io::stderr(), "test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += i32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a benchmark without its work; the exit status reports whether this was detected.
fn sabotaged(how: &str, request: &str) -> ExitCode {
    let (how, _) = Sabotage::NAMES.into_iter().find(|(_, name)| *name == how).unwrap();
    match yields_sample_despite_sabotage(request, how).unwrap() {
        Some(false) => ExitCode::from(NOTICED),
        _ => ExitCode::FAILURE,
    }
}

const NOTICED: u8 = 72;

/// Serves any address until the input ends; prints its port first and its statistics last.
fn serve() -> ExitCode {
    let server = Server::bind((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
    let mut out = io::stdout();
    writeln!(out, "{}", server.address().port()).unwrap();
    let stop = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&stop));
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap()
    });
    let Served { granted, refused, broken, .. } = served;
    writeln!(out, "{granted} granted, {refused} refused, {broken} broken").unwrap();
    ExitCode::SUCCESS
}

/// The other host, reached through the device `near`.
struct OtherHost {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    port: u16,
}

const HERE: [&str; 2] = ["192.0.2.1/24", "fd00::1/64"];
const THERE: [&str; 2] = ["192.0.2.2/24", "fd00::2/64"];

impl OtherHost {
    fn start() -> Self {
        let mut process = Command::new("unshare")
            .arg("--net")
            .arg(std::env::current_exe().unwrap())
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        output.read_line(&mut port).unwrap();
        let port = port.trim().parse().unwrap();
        let pid = process.id().to_string();
        let input = process.stdin.take();
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &pid]);
        // No other host on the link can have the same address, so duplicate address detection is turned off.
        ip(&["address", "add", HERE[0], "dev", "near"]);
        ip(&["address", "add", HERE[1], "dev", "near", "nodad"]);
        ip(&["link", "set", "near", "up"]);
        ip_in(&pid, &["address", "add", THERE[0], "dev", "far"]);
        ip_in(&pid, &["address", "add", THERE[1], "dev", "far", "nodad"]);
        ip_in(&pid, &["link", "set", "far", "up"]);
        Self { process, input, output, port }
    }

    /// Returns its addresses, one of each protocol.
    fn addresses(&self) -> [SocketAddr; 2] {
        THERE.map(|address| {
            let (address, _) = address.split_once('/').unwrap();
            SocketAddr::new(address.parse::<IpAddr>().unwrap(), self.port)
        })
    }

    /// Stops it, and returns its statistics.
    fn stop(mut self) -> String {
        self.input.take();
        let mut did = String::new();
        self.output.read_line(&mut did).unwrap();
        assert!(self.process.wait().unwrap().success());
        did.trim().to_owned()
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        // It may have ended already. The device is deleted now, because the kernel may delete it later.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("ip").args(["link", "delete", "near"]).stderr(Stdio::null()).status();
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

fn ip_in(pid: &str, arguments: &[&str]) {
    let status = Command::new("nsenter").args(["--target", pid, "--net", "ip"]).args(arguments).status();
    assert!(status.unwrap().success(), "nsenter ip {arguments:?}");
}

fn plan(peer: Option<SocketAddr>, processes: usize) -> Plan {
    Plan {
        seed: 4711,
        processes_min: processes,
        processes_max: processes,
        budget: Duration::from_secs(3600),
        relative_half_width: 0.0,
        sample_limit: Duration::from_secs(60),
        directory: std::env::temp_dir(),
        peer,
        counters: false,
        effective: None,
        clock: calibrate(),
    }
}

fn run(plan: &Plan, benchmarks: &[Benchmark], on_sample: impl FnMut(&Outcome)) -> Vec<Finding> {
    run_as(&["sample"], plan, benchmarks, on_sample)
}

fn run_as(
    arguments: &[&str],
    plan: &Plan,
    benchmarks: &[Benchmark],
    mut on_sample: impl FnMut(&Outcome),
) -> Vec<Finding> {
    let arguments = arguments.iter().map(Into::into).collect();
    let spawner = Spawner { program: std::env::current_exe().unwrap(), arguments };
    measure(plan, benchmarks, &[], &spawner, &AtomicBool::new(false), &mut |_, outcome| on_sample(outcome))
        .unwrap()
}

fn remote() -> Vec<Benchmark> {
    let all = catalogue();
    let remote: Vec<_> =
        all.into_iter().filter(|benchmark| benchmark.primitive.to_string().contains("peer=remote")).collect();
    assert!(remote.len() >= 5, "{remote:?}");
    remote
}

fn chosen(ids: &[&str]) -> Vec<Benchmark> {
    ids.iter().map(|id| find(&id.parse().unwrap()).unwrap()).collect()
}

/// Asserts that each was measured. The cost is not checked: on a busy machine it may be below zero.
fn assert_measured(findings: Vec<Finding>) {
    for finding in findings {
        let Finding::Measured(Measured { primitive, samples, .. }) = finding else { panic!("{finding:?}") };
        for sample in samples {
            assert!(
                matches!(cost_ns(&sample), Ok(_) | Err(NoCost::NotPositive(_))),
                "{primitive}: {sample:?}"
            );
        }
    }
}

fn reasons(findings: Vec<Finding>) -> Vec<String> {
    findings
        .into_iter()
        .map(|finding| match finding {
            Finding::Unmeasured(unmeasured) => unmeasured.reason,
            Finding::Measured(measured) => panic!("{measured:?}"),
        })
        .collect()
}

fn every_remote_primitive_is_measured() {
    let host = OtherHost::start();
    for address in host.addresses() {
        assert_measured(run(&plan(Some(address), 1), &remote(), |_| {}));
    }
    let did = host.stop();
    assert!(did.ends_with("granted, 0 refused, 0 broken"), "{did}");
}

fn other_sizes() {
    let host = OtherHost::start();
    let [address, _] = host.addresses();
    let ids = [
        "tcp.round_trip{size=10000B,peer=remote}",
        // Longer than a packet of the link, so sent in fragments.
        "udp.round_trip{size=65507B,peer=remote}",
        "tcp.stream{size=1B,peer=remote}",
        "tcp.stream{size=1MiB,peer=remote}",
        "tcp.stream_in{size=1000B,peer=remote}",
    ];
    assert_measured(run(&plan(Some(address), 1), &chosen(&ids), |_| {}));
    let too_large = ["udp.round_trip{size=64KiB,peer=remote}", "tcp.stream{size=2MiB,peer=remote}"];
    for reason in reasons(run(&plan(Some(address), 2), &chosen(&too_large), |_| {})) {
        assert!(reason.contains("must be between 1B and"), "{reason}");
    }
}

fn sabotage_is_noticed() {
    let host = OtherHost::start();
    let [address, _] = host.addresses();
    for (_, name) in Sabotage::NAMES {
        let findings = run_as(&["sabotaged", name], &plan(Some(address), 1), &remote(), |_| {});
        for (benchmark, reason) in remote().iter().zip(reasons(findings)) {
            let noticed = reason.contains(&format!("ended with status {NOTICED}"));
            assert!(noticed, "{} ({name}): {reason}", benchmark.primitive);
        }
    }
}

fn no_peer() {
    let wanted = "no peer was specified; start 'assay bench --serve' there and use --peer ADDRESS";
    for reason in reasons(run(&plan(None, 2), &remote(), |_| {})) {
        assert_eq!(reason, wanted);
    }
}

fn no_server() {
    let host = OtherHost::start();
    let [mut address, _] = host.addresses();
    address.set_port(1);
    for reason in reasons(run(&plan(Some(address), 3), &remote(), |_| {})) {
        let wanted = format!("cannot connect to the peer {address}: Connection refused");
        assert!(reason.contains(&wanted) && reason.contains("start 'assay bench --serve' there"), "{reason}");
    }
    // A server of another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.write_all(b"220 mail.example.org ESMTP\r\n");
            let _ = connection.read(&mut [0; 256]);
        }
    });
    for reason in reasons(run(&plan(Some(address), 3), &remote(), |_| {})) {
        assert!(reason.contains("answers '220 mail.example.org ESMTP\\r', so it is not"), "{reason}");
    }
}

fn the_peer_vanishes() {
    let host = OtherHost::start();
    let [address, _] = host.addresses();
    let benchmarks = chosen(&["tcp.round_trip{size=1B,peer=remote}"]);
    let mut taken = Vec::new();
    let findings = run(&plan(Some(address), 4), &benchmarks, |outcome| {
        if taken.is_empty() {
            ip(&["link", "set", "near", "down"]);
        }
        taken.push(outcome.clone());
    });
    assert!(matches!(taken[0], Outcome::Sample(_)), "{taken:?}");
    let Finding::Measured(measured) = &findings[0] else { panic!("{findings:?}") };
    assert_eq!((measured.samples.len(), measured.rejected.len()), (1, 3));
    for reason in &measured.rejected {
        assert!(reason.contains("cannot connect to the peer"), "{reason}");
    }
}
