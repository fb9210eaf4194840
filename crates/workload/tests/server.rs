//! Real servers, started, loaded and stopped: nginx and Apache as Debian ships them.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod shared;

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_process::Process;
use assay_workload::client::LoadError;
use assay_workload::{Client, Content, MeasureError, Plan, Server, StartError, Stopped, Workload, measure};
use expect_test::expect;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use self::shared::{program, shipped};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn requests(count: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(count)
}

fn lines(server: &Server, log: &str) -> usize {
    fs::read_to_string(server.dir().join(log)).unwrap().lines().count()
}

fn exists(pid: &i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Every request that the client counts is one line of the server's access log, and the log contains no other
/// lines except that of the readiness check.
fn counts_are_those_of_the_access_log(workload: &str) {
    let workload = shipped(workload);
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let mut expected = lines(&server, "access.log");
    for operation in workload.operations() {
        let Client::ClosedLoop(_) = operation.client else { continue };
        let load = server.load(operation, requests(101), &GO_ON, &mut |_| {}).unwrap();
        assert_eq!(load.requests, 101, "{}", operation.name);
        expected += 101;
        // The server writes the last line after it has sent the last response.
        while lines(&server, "access.log") < expected {
            std::thread::yield_now();
        }
        assert_eq!(lines(&server, "access.log"), expected, "{}", operation.name);
    }
    assert_eq!(server.stop().unwrap(), Stopped::AsAsked);
}

#[test]
fn nginx_logs_exactly_the_requests_that_the_client_counts() {
    counts_are_those_of_the_access_log("nginx");
}

#[test]
fn apache_logs_exactly_the_requests_that_the_client_counts() {
    counts_are_those_of_the_access_log("apache");
}

#[test]
fn keep_alive_uses_one_connection_and_otherwise_each_request_has_its_own() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let connections = |name: &str| {
        let operation = workload.operation(name).unwrap();
        server.load(operation, requests(50), &GO_ON, &mut |_| {}).unwrap().connections
    };
    assert_eq!(connections("page"), Some(1));
    assert_eq!(connections("connect and page"), Some(50));
    assert_eq!(connections("page, 16 at once"), Some(16));
}

#[test]
fn every_operation_of_every_shipped_workload_succeeds() {
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")).unwrap() {
        let workload = Workload::read(&file.unwrap().path()).unwrap();
        let server =
            Server::start(&workload, None, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{error}"));
        for operation in workload.operations() {
            let load = server.load(operation, requests(200), &GO_ON, &mut |_| {});
            let load = load.unwrap_or_else(|error| panic!("{}: {}: {error}", workload.name, operation.name));
            assert!(load.requests >= 200, "{load:?}");
            assert!(load.latency.p50_ns > 0 && load.latency.p50_ns <= load.latency.max_ns, "{load:?}");
        }
        assert_eq!(server.stop().unwrap(), Stopped::AsAsked, "{}", workload.name);
    }
}

#[test]
fn a_page_with_one_wrong_byte_is_an_error_not_a_rate() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let page = server.dir().join("www/page.html");
    let mut bytes = fs::read(&page).unwrap();
    bytes[5000] ^= 1;
    fs::write(page, bytes).unwrap();
    let error = server.load(&workload.operations()[0], requests(1000), &GO_ON, &mut |_| {}).unwrap_err();
    expect!["1 request failed (1 with wrong content) after 0 correct responses; first failure: body differs from the expected one at byte 5000"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_missing_page_is_an_error_with_wrk_too() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    fs::remove_file(server.dir().join("www/page.html")).unwrap();
    let operation = workload.operation("page by wrk").unwrap();
    let error = server.load(operation, None, &GO_ON, &mut |_| {}).unwrap_err().to_string();
    assert!(error.starts_with("wrk: it reported failures: Non-2xx or 3xx responses: "), "{error}");
}

#[test]
fn rounds_contain_the_cpu_time_of_the_server_and_the_requested_requests() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let plan = Plan {
        warm_up_requests: requests(10),
        requests: requests(3000),
        rounds: NonZeroU32::new(2).unwrap(),
    };
    let mut seen = HashSet::new();
    let rounds = measure(&server, &workload.operations()[0], &plan, &GO_ON, &mut |round, answered| {
        seen.insert((round, answered));
    })
    .unwrap();
    assert_eq!(rounds.len(), 2);
    for round in &rounds {
        assert_eq!((round.units, round.usable_cpus), (3000, 1));
        // A request costs a web server more than a microsecond and less than a second.
        assert!((1e3..1e9).contains(&round.cpu_ns_per_unit()), "{round:?}");
        assert!(round.cpu.total_ns < round.elapsed_ns * 2, "{round:?}");
        assert!(round.idle_share() < 1.0, "{round:?}");
    }
    assert!([(0, 10), (1, 3000), (2, 3000)].iter().all(|end| seen.contains(end)), "{seen:?}");
}

#[test]
fn the_death_of_the_server_is_the_error_and_not_its_closed_connection() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let processes = server.processes().unwrap();
    let plan = Plan { warm_up_requests: None, requests: requests(u64::MAX), rounds: NonZeroU32::MIN };
    let mut killed = false;
    let error = measure(&server, &workload.operations()[0], &plan, &GO_ON, &mut |_, _| {
        if !std::mem::replace(&mut killed, true) {
            for pid in &processes {
                let pid = rustix::process::Pid::from_raw(*pid).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
            while server.exit().unwrap().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    })
    .unwrap_err();
    assert!(matches!(error, MeasureError::ServerEnded { .. }), "{error}");
    expect!["operation 'page': the server was killed by signal 9; its last output: (nothing)"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_load_can_be_stopped() {
    let workload = shipped("nginx");
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    for name in ["page", "page by wrk"] {
        let stop = AtomicBool::new(true);
        let result = server.load(workload.operation(name).unwrap(), requests(u64::MAX), &stop, &mut |_| {});
        assert!(matches!(result, Err(LoadError::Stopped { .. })), "{name}: {result:?}");
        assert!(stop.load(Ordering::Relaxed));
    }
}

#[test]
fn the_error_for_a_port_in_use_contains_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error =
        Server::start(&shipped("nginx"), Some(port), &AtomicBool::new(false)).unwrap_err().to_string();
    expect!["port PORT of 127.0.0.1 is in use; change `port` in the workload file (0: any free port) or pass another port"]
        .assert_eq(&error.replace(&port.to_string(), "PORT"));
}

#[test]
fn a_passed_port_is_used() {
    let free = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&free, true).unwrap();
    bind(&free, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = SocketAddr::try_from(getsockname(&free).unwrap()).unwrap().port();
    let server = Server::start(&shipped("nginx"), Some(port), &AtomicBool::new(false)).unwrap();
    assert_eq!(server.address().port(), port);
    assert!(TcpStream::connect(server.address()).is_ok());
}

#[test]
fn the_output_of_a_server_that_ends_at_the_start_is_in_the_error() {
    let mut workload = shipped("nginx");
    program(&mut workload).files[0].content = Content::Text("daemon off; wrong_word 1;".into());
    let error = Server::start(&workload, None, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, StartError::Exited { .. }), "{error}");
    let error = error.to_string();
    assert!(error.starts_with("'nginx' ended with status 1 before it was ready"), "{error}");
    assert!(error.contains("unknown directive \"wrong_word\""), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_start_that_is_stopped_does_not_wait_for_its_timeout() {
    let mut workload = shipped("nginx");
    let server = program(&mut workload);
    server.command = ["sleep", "1000"].map(str::to_owned).to_vec();
    server.ready.timeout = std::time::Duration::from_secs(100_000);
    let error = Server::start(&workload, None, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, StartError::Stopped { .. }), "{error}");
}

#[test]
fn a_server_that_becomes_a_daemon_is_an_error_and_leaves_nothing_behind() {
    let mut workload = shipped("nginx");
    let server = program(&mut workload);
    let name = format!("assay-background-test-{}", std::process::id());
    let script = format!("sleep 1000 & echo $! >{{dir}}/../{name}");
    server.command = vec!["sh".to_owned(), "-c".to_owned(), script];
    let error = Server::start(&workload, None, &AtomicBool::new(false)).unwrap_err().to_string();
    expect!["'sh' ended with status 0 before it was ready (a server must stay in the foreground); its last output: (nothing)"]
        .assert_eq(&error);
    let note = std::env::temp_dir().join(name);
    let pid = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    fs::remove_file(note).unwrap();
    assert!(!alive(pid));
}

#[test]
fn a_server_that_never_answers_is_killed_after_its_timeout() {
    let mut workload = shipped("nginx");
    let server = program(&mut workload);
    server.command = ["sh", "-c", "echo waiting for nothing; exec sleep 1000"].map(str::to_owned).to_vec();
    server.ready.timeout = std::time::Duration::from_secs(5);
    expect!["'sh' was not ready within 5s: GET /page.html: connect: Connection refused (os error 111); its last output: waiting for nothing"]
        .assert_eq(&Server::start(&workload, None, &AtomicBool::new(false)).unwrap_err().to_string());
}

#[test]
fn the_error_for_a_missing_program_contains_its_package() {
    let mut workload = shipped("nginx");
    program(&mut workload).command[0] = "nginx-of-tomorrow".into();
    expect!["program 'nginx-of-tomorrow' is neither in PATH nor in /usr/sbin; install the Debian package nginx-light"]
        .assert_eq(&Server::start(&workload, None, &AtomicBool::new(false)).unwrap_err().to_string());
}

#[test]
fn a_command_is_not_a_server() {
    let workload = Workload::command(vec!["true".into()]).unwrap();
    expect!["workload 'true' is a command, not a server; it can only be run"]
        .assert_eq(&Server::start(&workload, None, &AtomicBool::new(false)).unwrap_err().to_string());
}

#[test]
fn stopping_leaves_no_process_no_zombie_and_no_directory() {
    for name in ["nginx", "apache", "postgres"] {
        let server = Server::start(&shipped(name), None, &AtomicBool::new(false)).unwrap();
        let (address, dir) = (server.address(), server.dir().to_owned());
        let (main, processes) = (server.pid(), server.processes().unwrap());
        assert!(processes.contains(&main) && processes.len() >= 2, "{name}: {processes:?}");
        server.stop().unwrap();
        assert!(!exists(&main), "{name}: the main process is still there, if only as a zombie");
        assert!(!processes.iter().any(|pid| alive(*pid)), "{name}: {processes:?}");
        assert!(TcpStream::connect(address).is_err(), "{name}");
        assert!(!dir.exists(), "{name}");
    }
}

#[test]
fn dropping_a_server_kills_it() {
    let server = Server::start(&shipped("apache"), None, &AtomicBool::new(false)).unwrap();
    let mut processes = server.processes().unwrap();
    // The first child answers before the last one has started.
    while processes.len() < 17 {
        processes = server.processes().unwrap();
    }
    drop(server);
    assert!(!processes.iter().any(|pid| alive(*pid)), "{processes:?}");
}

/// Returns whether the process exists and is not a zombie: process 1 reaps orphans at a time of its choice.
fn alive(pid: i32) -> bool {
    Process::read(pid).expect("/proc is readable").is_some_and(|process| process.is_alive())
}
