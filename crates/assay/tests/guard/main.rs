//! `assay guard` in front of a real PostgreSQL server, from outside.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod class;
mod client;
mod commands;
mod driver;
mod encryption;
mod ending;
mod entrance;
mod fault;
#[path = "../shared/http.rs"]
mod http;
mod identity;
mod law;
mod load;
mod login;
mod lookup;
#[path = "../shared/postgres_server.rs"]
mod postgres_server;
mod room;
mod session;
mod stall;
mod statement;
mod users;
mod wire;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use postgres_server::Server;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.arg("guard").args(arguments).stdin(Stdio::null());
    command
}

/// A guard, which is killed if its test fails.
struct Guard {
    child: Child,
    messages: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Guard {
    /// Starts one in front of a server.
    fn start(server: &Server, arguments: &[&str]) -> Self {
        Self::spawn(command(&[]), &server.address("postgres"), arguments)
    }

    /// Starts one by a command.
    fn spawn(command: Command, to: &str, arguments: &[&str]) -> Self {
        Self::listen("127.0.0.1:0", command, to, arguments)
    }

    /// Starts one that listens at this address.
    fn listen(at: &str, mut command: Command, to: &str, arguments: &[&str]) -> Self {
        command.args(arguments).args(["--listen", at, "--to", to, "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let line = next_line(&mut messages);
        let address = line.strip_prefix("relaying ").and_then(|rest| rest.split_once(" to "));
        let address = address.unwrap_or_else(|| panic!("{line}")).0.parse().unwrap();
        Self { child, messages, address }
    }

    /// A session, which names itself.
    fn session(&self, name: &str) -> Client {
        self.connect("postgres", name).unwrap()
    }

    fn connect(&self, role: &str, name: &str) -> Result<Client, postgres::Error> {
        Client::connect(&self.parameters(role, name), NoTls)
    }

    /// Where libpq and the client of the test connect.
    fn parameters(&self, role: &str, name: &str) -> String {
        let (host, port) = (self.address.ip(), self.address.port());
        format!("host={host} port={port} user={role} dbname=postgres application_name={name} password=right")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it, and returns its report.
    fn end(self) -> Counts {
        self.signal(Signal::INT);
        self.ended()
    }

    /// Waits for its end, and returns its report.
    fn ended(mut self) -> Counts {
        let mut report = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        let mut messages = String::new();
        self.messages.read_to_string(&mut messages).unwrap();
        assert!(self.child.wait().unwrap().success(), "{messages}");
        assert_eq!(messages, "");
        Counts(serde_json::from_str(&report).unwrap())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The row of the report that counts those that were set aside as they waited for their clients.
const FOR_CLIENT: &str = "set aside, as they waited for their clients";

/// That of those that waited for a lock.
const FOR_LOCK: &str = "set aside, as they waited for a lock";

/// The report of a guard.
struct Counts(Value);

impl Counts {
    /// The first number in the row that begins so; zero if there is none.
    fn of(&self, what: &str) -> u64 {
        self.row(what).first().copied().unwrap_or(0)
    }

    /// The counts in the row that begins so.
    fn row(&self, what: &str) -> Vec<u64> {
        let tables = self.0["blocks"].as_array().unwrap().iter();
        let mut rows = tables.filter_map(|block| block["table"]["rows"].as_array()).flatten();
        let row = rows.find(|row| row[0]["text"].as_str().is_some_and(|text| text.starts_with(what)));
        let cells = row.map_or(&[][..], |row| &row.as_array().unwrap()[1..]);
        cells.iter().filter_map(|cell| cell["count"].as_u64()).collect()
    }
}

/// Returns when this is so.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    assert!((0..6000).any(|_| {
        is_so() || {
            sleep(Duration::from_millis(10));
            false
        }
    }));
}

fn next_line(messages: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    line
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    // Longer than a name can be, so that no server is asked for it.
    let no_name = "x".repeat(64);
    for (listen, to, limit, message) in [
        (&*taken, "host=/run/x", "1", &*format!("cannot listen at {taken}")),
        ("127.0.0.1:0", "secret", "1", "the address of the database cannot be read"),
        ("127.0.0.1:0", "postgres://one,two", "1", "--to has several servers; give one"),
        ("127.0.0.1:0", &*format!("postgres://{no_name}"), "1", "cannot find the host xxx"),
        ("127.0.0.1:0", "postgres://one", "0", "0 is not in 1..=65536"),
    ] {
        let arguments = ["--listen", listen, "--to", to, "--limit", limit];
        let output = command(&arguments).output().unwrap();
        let messages = text(&output.stderr);
        assert!(!output.status.success() && messages.contains(message), "{messages}");
        assert!(!messages.contains("secret") && output.stdout.is_empty(), "{messages}");
    }
    for (arguments, message) in [
        (&["--law", "best"][..], "invalid value 'best'"),
        (&["--law", "knee", "--limit", "4"], "cannot be used with '--limit <N>'"),
        (&["--shadow", "--limit", "4"], "cannot be used with '--limit <N>'"),
        (&["--shadow", "--connection-level"], "cannot be used with '--connection-level'"),
        (&["--admin", "/no/admin"], "cannot listen at /no/admin; give another path: No such file"),
        (&["--law", "paper2003"], "--cgroup <PATH>"),
        (&["--cgroup", "/proc"], "/proc is no control group"),
        (&["--max-wait", "0ms"], "give a time between 1ms and 24h"),
        (&["--config", "/no/config"], "cannot open the configuration /no/config"),
        (&["--log", "/"], "the log / is no regular file"),
        (&["--log", "/no/log"], "cannot open the log /no/log"),
    ] {
        let arguments = [&["--listen", "127.0.0.1:0", "--to", "host=/run/x"], arguments].concat();
        let output = command(&arguments).output().unwrap();
        let messages = text(&output.stderr);
        assert!(!output.status.success() && messages.contains(message), "{messages}");
        assert!(output.stdout.is_empty(), "{messages}");
    }
}
