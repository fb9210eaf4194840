//! What the guard does when the server, a client, or what it needs of the machine fails.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use assay_proxy::postgres::users::Users;
use postgres::error::SqlState;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;

use crate::encryption::Remote;
use crate::postgres_server::Server;
use crate::session::{process, select};
use crate::users::{MD5_SECRET, list};
use crate::wire::Wire;
use crate::{Guard, command, next_line, wait_until};

/// Sessions of the next test.
const IDLE: usize = 10_000;

#[test]
fn ten_thousand_idle_sessions_cost_little() {
    let server = Server::start();
    // MD5 takes a client less time than SCRAM.
    let users = list(MD5_SECRET);
    let hash = Users::parse(MD5_SECRET).unwrap().secret(b"postgres").unwrap().md5(b"postgres").unwrap();
    let needed = IDLE as u64 + 1_000;
    let files = getrlimit(Resource::Nofile);
    if files.current.is_some_and(|current| current < needed) {
        let maximum = files.maximum.map(|maximum| maximum.max(needed));
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    }
    let options = ["--users", users.path().to_str().unwrap(), "--limit", "4", "--max-wait", "1h"];
    let guard = Guard::start(&server, &options);
    let before = resident_kib(&guard);
    let mut sessions: Vec<Wire> = (0..IDLE)
        .map(|_| {
            let mut session = Wire::begin("postgres", guard.address);
            session.prove(|salt| hash.proof(salt));
            session
        })
        .collect();
    // All begin a transaction at once.
    for session in &mut sessions {
        session.send(&[(b'Q', "SELECT 1\0")]);
    }
    for session in &mut sessions {
        assert_eq!(session.read_to(b'Z').0, "TDCZ");
    }
    let per_session = (resident_kib(&guard) - before) * 1024 / IDLE as u64;
    assert!(per_session < 4096, "{per_session} bytes for each session");
    drop(sessions);
    let counts = guard.end();
    assert_eq!(["logged in", "committed"].map(|what| counts.of(what)), [IDLE as u64; 2]);
    assert!(counts.of("connections to the server that the guard opened") < 100, "{}", counts.0);
}

fn resident_kib(guard: &Guard) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", guard.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Ends the work of other threads, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_commit_that_a_client_has_seen_outlasts_crashes_of_the_server() {
    const SESSIONS: i32 = 8;
    let server = Server::start();
    let mut administrator = server.session();
    administrator.batch_execute("CREATE TABLE counter (name int PRIMARY KEY, n int)").unwrap();
    administrator
        .batch_execute(&format!("INSERT INTO counter SELECT i, 0 FROM generate_series(1, {SESSIONS}) i"))
        .unwrap();
    let guard = Guard::start(&server, &["--start", "3"]);
    let stop = AtomicBool::new(false);
    let update = |number: i32| {
        let (mut seen, mut unknown) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut session) = guard.connect("postgres", "same") else { continue };
            // Until the server is lost.
            while !stop.load(Ordering::Relaxed) {
                let text = format!("UPDATE counter SET n = n + 1 WHERE name = {number} RETURNING name");
                match session.simple_query(&text) {
                    Ok(messages) => {
                        seen += 1;
                        let postgres::SimpleQueryMessage::Row(row) = &messages[1] else {
                            panic!("{messages:?}")
                        };
                        assert_eq!(row.get(0), Some(&*number.to_string()));
                    }
                    Err(_) => {
                        unknown += 1;
                        break;
                    }
                }
            }
        }
        (seen, unknown)
    };
    let counted: Vec<(i32, i32)> = thread::scope(|scope| {
        let sessions: Vec<_> = (1..=SESSIONS).map(|number| scope.spawn(move || update(number))).collect();
        let stopping = Stop(&stop);
        for _ in 0..3 {
            let [mut victim, mut witness] = [(); 2].map(|()| server.session());
            let process = process(&mut victim).parse().unwrap();
            // A process of the server that ends in this way takes all others with it.
            kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
            wait_until(|| witness.simple_query("").is_err());
            // Until the server answers, and has committed more.
            let mut sums: Vec<i64> = Vec::new();
            wait_until(|| {
                let sum = || server.connect("postgres")?.query_one("SELECT sum(n) FROM counter", &[]);
                sums.extend(sum().iter().map(|row| row.get::<_, i64>(0)));
                sums.first() != sums.last()
            });
        }
        drop(stopping);
        sessions.into_iter().map(|session| session.join().unwrap()).collect()
    });
    let mut administrator = server.session();
    assert!(counted.iter().any(|(seen, _)| *seen > 0), "{counted:?}");
    for (number, (seen, unknown)) in (1..).zip(counted) {
        let n: i32 =
            administrator.query_one("SELECT n FROM counter WHERE name = $1", &[&number]).unwrap().get(0);
        assert!((seen..=seen + unknown).contains(&n), "{n} of {seen} and {unknown}");
    }
    guard.end();
}

#[test]
fn a_guard_that_is_killed_leaves_no_transaction_and_the_next_one_begins_at_once() {
    let server = Server::start();
    server.session().batch_execute("CREATE TABLE t (x int); INSERT INTO t VALUES (1)").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let options = ["--limit", "2", "--log", log.to_str().unwrap()];
    let first = Guard::start(&server, &options);
    let address = first.address;
    let [mut holder, mut waiting] = [(); 2].map(|()| first.session("same"));
    holder.batch_execute("BEGIN; UPDATE t SET x = 2").unwrap();
    let waiting = thread::spawn(move || waiting.simple_query("UPDATE t SET x = 3"));
    let blocked = "SELECT 1 FROM pg_locks WHERE NOT granted";
    wait_until(|| !select(&mut server.session(), blocked).is_empty());
    // Drop kills it.
    drop(first);
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.is_closed() || error.code() == Some(&SqlState::CONNECTION_FAILURE), "{error}");
    assert!(holder.simple_query("COMMIT").is_err());

    let second = Guard::listen(&address.to_string(), command(&[]), &server.address("postgres"), &options);
    let mut session = second.session("same");
    // The lock is free; one of the two updates may have been committed when its client was gone.
    assert_ne!(select(&mut session, "UPDATE t SET x = x RETURNING x"), ["2"]);
    second.end();
}

#[test]
fn the_kernel_asks_silent_ends_whether_they_are_still_there() {
    let server = Remote::start(None);
    let guard = server.guard(&[]);
    let mut session = guard.session("same");
    assert_eq!(select(&mut session, "SELECT 1"), ["1"]);
    // As in proc_pid_net(5).
    let end = |ip: IpAddr, port: u16| {
        let IpAddr::V4(ip) = ip else { panic!("{ip}") };
        format!("{:08X}:{port:04X}", u32::from_ne_bytes(ip.octets()))
    };
    let client = (1, end(guard.address.ip(), guard.address.port()));
    let server = (2, end(server.address.into(), 5432));
    let (established, keeps_alive) = ("01", "02");
    for (column, end) in [client, server] {
        let seconds = || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // A table that changes while it is read can lack a row.
            let row = rows.find(|row| row[column] == end && row[3] == established)?;
            let (timer, hundredths) = row[5].split_once(':').unwrap();
            (timer == keeps_alive).then(|| u64::from_str_radix(hundredths, 16).unwrap() / 100)
        };
        // What was sent last may have to be confirmed first.
        wait_until(|| seconds().is_some_and(|seconds| seconds <= 60));
    }
    guard.end();
}

/// The path of a file that a guard has at this one.
fn as_seen_by(guard: &Guard, path: &Path) -> PathBuf {
    let root = Path::new("/proc").join(guard.child.id().to_string()).join("root");
    root.join(path.strip_prefix("/").unwrap())
}

#[test]
fn a_log_goes_on_when_its_disk_has_room_again() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    // A disk that only this guard sees.
    let mut mounted = Command::new("unshare");
    let script = "mount -t tmpfs -o size=64k none \"$1\" && head -c 60k /dev/zero > \"$1/filler\" && shift && \
                  exec \"$0\" guard \"$@\"";
    mounted.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_assay")]).arg(directory.path());
    let arguments = ["--law", "aimd", "--log", path.to_str().unwrap()];
    let mut guard = Guard::spawn(mounted, &server.address("postgres"), &arguments);
    let message = next_line(&mut guard.messages);
    assert!(message.starts_with("cannot write to the log: No space left on device"), "{message}");
    let mut session = guard.session("same");
    assert_eq!(select(&mut session, "SELECT 1"), ["1"]);
    let seen = |name: &str| as_seen_by(&guard, &directory.path().join(name));
    let log = File::open(seen("log")).unwrap();
    let full = log.metadata().unwrap().len();
    fs::remove_file(seen("filler")).unwrap();
    // A short line may have had room before.
    wait_until(|| log.metadata().unwrap().len() > full + 1000);
    let counts = guard.end();
    assert!(counts.0.to_string().contains("The log lacks "), "{}", counts.0);
    let lines = BufReader::new(log).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let periods: Vec<Value> = lines.skip(1).collect();
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let follows = |pair: &[Value]| {
        number(&pair[1], "end_ns") - number(&pair[0], "end_ns") == number(&pair[1], "length_ns")
    };
    assert!(!periods.windows(2).all(follows), "{periods:?}");
}

#[test]
fn a_guard_does_without_proc() {
    let server = Server::start();
    let mut hidden = Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$0\" guard \"$@\"";
    hidden.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_assay")]).stdin(Stdio::null());
    let guard = Guard::spawn(hidden, &server.address("postgres"), &[]);
    assert_eq!(fs::read_dir(as_seen_by(&guard, Path::new("/proc"))).unwrap().count(), 0);
    assert_eq!(select(&mut guard.session("same"), "SELECT 1"), ["1"]);
    assert_eq!(guard.end().of("committed"), 1);
}
