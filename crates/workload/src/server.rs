//! A running server: ready when `start` returns, ended when `stop` returns, when the value is dropped, or
//! when this process is killed (see `assay_process::Group`). This module measures nothing; it provides the
//! processes of the server and their CPU time.

mod setting;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use assay_process::clock::now;
use assay_process::cpus::Pinned;
use assay_process::{Exit, Group, NoCpuAccount, StopError, Stopped};
use assay_quantity::CpuTime;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use thiserror::Error;

pub(crate) use self::setting::DEATH;
use self::setting::{Limits, Setting, Step};
use crate::client::closed_loop;
use crate::client::http::Http;
use crate::client::postgres::Postgres;
use crate::client::redis::Redis;
use crate::client::response::{Expected, ExpectedBody};
use crate::client::{Load, LoadError, wrk};
use crate::cpu::{self, Counter, CpuError};
use crate::placement::{PlacementError, Role};
use crate::scratch;
use crate::workload::{
    Client, ClosedLoop, Expect, ExpectedContent, Operation, Program, ReadySign, Request, Reuse,
    ServerProgram, Workload,
};

/// Interval of the readiness checks of a starting server.
const READY_PAUSE: Duration = Duration::from_millis(5);

/// The server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The workload is a command.
    #[error("workload '{name}' is a command, not a server; it can only be run")]
    NotAServer {
        /// The workload.
        name: String,
    },
    /// The program was not found.
    #[error("program '{program}' is neither in PATH nor in /usr/sbin; {}", advice(.packages))]
    ProgramMissing {
        /// The program.
        program: String,
        /// The Debian packages that provide it.
        packages: Vec<String>,
    },
    /// The user of the server does not exist.
    #[error("user '{user}' does not exist; {}", advice(.packages))]
    NoUser {
        /// Its name.
        user: String,
        /// The Debian packages that create it.
        packages: Vec<String>,
    },
    /// The user of the server may not enter its scratch directory, or not execute its program.
    #[error(
        "user '{user}' cannot run programs in {dir}; set TMPDIR to a directory that every user may enter"
    )]
    NoEntry {
        /// Its name.
        user: String,
        /// The scratch directory.
        dir: String,
    },
    /// A command before or after the start failed.
    #[error("a command of `{key}` failed: '{command}' {problem}; the last output: {last_words}")]
    Command {
        /// The key of the workload file that contains it.
        key: &'static str,
        /// The command, with its placeholders replaced.
        command: String,
        /// How it ended.
        problem: String,
        /// The last lines of the output of all programs of the server.
        last_words: String,
    },
    /// Another program listens on the port.
    #[error(
        "port {port} of 127.0.0.1 is in use; change `port` in the workload file (0: any free port) or pass another port"
    )]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The port cannot be used for another reason.
    #[error("cannot listen on port {port} of 127.0.0.1: {source}")]
    Port {
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// A system call for the server failed.
    #[error("cannot start '{program}': {action}: {source}")]
    Io {
        /// The program.
        program: String,
        /// The step that failed.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The server ended before it was ready.
    #[error(
        "'{program}' {exit} before it was ready (a server must stay in the foreground); its last output: {last_words}"
    )]
    Exited {
        /// The program.
        program: String,
        /// The exit status or signal.
        exit: Exit,
        /// The last lines of its output.
        last_words: String,
    },
    /// The server runs but does not respond.
    #[error("'{program}' was not ready within {timeout:?}: {problem}; its last output: {last_words}")]
    NotReady {
        /// The program.
        program: String,
        /// The timeout.
        timeout: Duration,
        /// Error of the last attempt.
        problem: String,
        /// The last lines of its output.
        last_words: String,
    },
    /// The caller's stop flag was set before the server was ready.
    #[error("stopped while '{program}' was starting")]
    Stopped {
        /// The program.
        program: String,
    },
    /// Its CPUs are not available.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

fn advice(packages: &[String]) -> String {
    match packages {
        [] => "install it".to_owned(),
        [one] => format!("install the Debian package {one}"),
        more => format!("install the Debian packages {}", more.join(" ")),
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    program: ServerProgram,
    // Must precede the setting: fields are dropped in this order, and the server writes to its directory.
    group: Group,
    // Must follow the group: a control group with processes cannot be removed.
    counter: Counter,
    setting: Setting,
    cpus: Vec<usize>,
}

impl Server {
    /// Starts the server of `workload` on `port`, or on the workload's own port if that is `None`, and waits
    /// until it is ready. If `stop` is set before that, ends the server without leaving anything behind.
    pub fn start(workload: &Workload, port: Option<u16>, stop: &AtomicBool) -> Result<Server, StartError> {
        let Program::Server(program) = &workload.program else {
            return Err(StartError::NotAServer { name: workload.name.clone() });
        };
        let name = &program.command[0];
        let failed = |action| move |source| StartError::Io { program: name.clone(), action, source };
        let asked = port.unwrap_or(program.port);
        let (reservation, port) = reserve(asked)?;
        let setting = Setting::new(workload, program, port)?;
        let timeout = program.ready.timeout;
        let limits = Limits { deadline: now() + timeout, timeout, stop };
        let mut command = setting.command(&program.command)?;
        for command in &program.prepare {
            setting.run_successfully(Step { key: "prepare", command }, limits, None)?;
        }
        // On a port selected by the user, a server that does not set SO_REUSEADDR works too, because the
        // reservation is released before its start.
        let reservation = (asked == 0).then_some(reservation);

        let cpus = program.server_cpus.cpus(Role::Server)?;
        let counter = Counter::open();
        let mut group = Group::new().map_err(failed("starting its watchdog"))?;
        let pinned = Pinned::to(&cpus).map_err(PlacementError::Affinity)?;
        counter
            .spawn(&mut group, &mut command)
            .map_err(|source| setting.io(&program.command, "starting it", source))?;
        drop(pinned);
        let mut server = Server { program: *program.clone(), group, counter, setting, cpus };
        server.wait_until_ready(limits)?;
        drop(reservation);
        for command in &program.populate {
            let step = Step { key: "populate", command };
            server.setting.run_successfully(step, limits, Some(&server.group))?;
        }
        server.group.remember_members().map_err(failed("listing its processes"))?;
        Ok(server)
    }

    /// Returns the id of the main process.
    pub fn pid(&self) -> i32 {
        self.group.main().map_or(0, |pid| pid.as_raw_nonzero().get())
    }

    /// Returns the ids of all processes of the server: the main process, its descendants and the other
    /// members of its process group.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        Ok(self.group.members()?.iter().map(|process| process.pid).collect())
    }

    /// Returns the CPU time of all processes of the server since its start.
    pub fn cpu(&self) -> Result<CpuTime, CpuError> {
        let failed = |source| CpuError { pid: self.pid(), source };
        let members = self.group.members().map_err(failed)?;
        self.counter.counted(cpu::of(&members)?).map_err(failed)
    }

    /// Returns why its CPU time is read from `/proc`; `None` if a control group counts it.
    pub fn not_counted(&self) -> Option<&NoCpuAccount> {
        self.counter.not_counted()
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.setting.placeholders.port))
    }

    /// Returns its scratch directory, `{dir}` of the workload file.
    pub fn dir(&self) -> &Path {
        self.setting.scratch.path()
    }

    /// Returns how the main process ended; `None` if it still runs.
    pub fn exit(&self) -> io::Result<Option<Exit>> {
        self.group.exit()
    }

    /// Like [`Server::exit`], but waits for the end for at most `patience`.
    pub fn exit_within(&self, patience: Duration) -> io::Result<Option<Exit>> {
        self.group.wait(patience)?;
        self.exit()
    }

    /// Returns the last lines that the server wrote to its standard output and error.
    pub fn last_words(&self) -> String {
        self.setting.last_words()
    }

    /// Returns the number of CPUs that the server can keep busy at the same time: the CPUs of its placement,
    /// or fewer if its configuration limits its running threads.
    pub fn usable_cpus(&self) -> NonZeroU32 {
        let placed = u32::try_from(self.cpus.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        self.program.concurrency.map_or(placed, |concurrency| concurrency.min(placed))
    }

    /// Loads the server with one round of `operation`: with `requests` requests, or with the number of the
    /// operation if that is `None`. Wrk does not support a number of requests and ignores it. The client runs
    /// in the calling thread, on the CPUs that the workload assigns to it.
    pub fn load(
        &self,
        operation: &Operation,
        requests: Option<NonZeroU64>,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Load, LoadError> {
        let cpus = self.program.client_cpus.cpus(Role::Client)?;
        let _pinned = Pinned::to(&cpus).map_err(PlacementError::Affinity)?;
        match &operation.client {
            Client::ClosedLoop(operation) => self.closed_loop(operation, requests, stop, on_progress),
            Client::Wrk(operation) => {
                let plan = wrk::Plan {
                    address: self.address(),
                    path: operation.path.clone(),
                    duration_s: operation.duration_s,
                    connections: operation.connections,
                    reuse: operation.reuse,
                    expect_bytes: operation.expect_bytes,
                };
                wrk::run(&plan, stop)
            }
        }
    }

    /// Requests the server to stop, waits for its grace period, kills the remaining processes, and removes
    /// the scratch directory. Dropping a server does the same without a report of errors.
    pub fn stop(mut self) -> Result<Stopped, StopError> {
        self.group.stop(self.program.stop)
    }

    fn closed_loop(
        &self,
        operation: &ClosedLoop,
        requests: Option<NonZeroU64>,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Load, LoadError> {
        let plan = closed_loop::Plan {
            address: self.address(),
            requests: requests.unwrap_or(operation.requests),
            connections: operation.connections,
            timeout: operation.timeout,
        };
        match &operation.request {
            Request::Http { path, reuse, expect } => {
                let http = Http::new(plan.address, path, *reuse, self.expected(expect));
                closed_loop::run(&plan, &http, stop, on_progress)
            }
            Request::Redis { command, expect } => {
                closed_loop::run(&plan, &Redis::new(command, expect.clone()), stop, on_progress)
            }
            Request::Postgres { user, database, query, expect } => {
                let postgres = Postgres::new(user, database, query, expect.clone());
                closed_loop::run(&plan, &postgres, stop, on_progress)
            }
        }
    }

    fn expected(&self, expect: &Expect) -> Expected {
        let body = match &expect.content {
            ExpectedContent::Bytes(bytes) => ExpectedBody::Length(*bytes),
            ExpectedContent::File(path) => {
                let file = self.program.files.iter().find(|file| file.path == *path);
                let file = file.expect("the file was checked when the workload was read");
                ExpectedBody::Exactly(scratch::content(file, &self.setting.placeholders))
            }
        };
        Expected { status: expect.status, body }
    }

    fn wait_until_ready(&self, limits: Limits) -> Result<(), StartError> {
        let program = || self.program.command[0].clone();
        let timeout = self.program.ready.timeout;
        loop {
            let attempt = self.attempt(limits)?;
            let exit = self.exit().map_err(|source| StartError::Io {
                program: program(),
                action: "checking whether it still runs",
                source,
            })?;
            match (exit, attempt) {
                (Some(exit), _) => return Err(self.setting.exited(exit)),
                (None, Ok(())) => return Ok(()),
                (None, Err(_)) if limits.stop.load(Ordering::Relaxed) => {
                    return Err(StartError::Stopped { program: program() });
                }
                (None, Err(problem)) if now() >= limits.deadline => {
                    let last_words = self.last_words();
                    return Err(StartError::NotReady { program: program(), timeout, problem, last_words });
                }
                (None, Err(_)) => thread::sleep(READY_PAUSE),
            }
        }
    }

    /// Makes one readiness check; the inner error is the reason why the server is not ready.
    fn attempt(&self, limits: Limits) -> Result<Result<(), String>, StartError> {
        let timeout = Duration::from_secs(1).min(self.program.ready.timeout);
        Ok(match &self.program.ready.sign {
            ReadySign::Connection => TcpStream::connect_timeout(&self.address(), timeout)
                .map(drop)
                .map_err(|error| format!("connect: {error}")),
            ReadySign::Page(path) => self.attempt_page(path, timeout),
            ReadySign::Command(command) => {
                let step = Step { key: "ready", command };
                match self.setting.run(step, limits, Some(&self.group))? {
                    Exit::Status(0) => Ok(()),
                    exit => Err(format!("the command of `ready` {exit}")),
                }
            }
        })
    }

    fn attempt_page(&self, path: &str, timeout: Duration) -> Result<(), String> {
        let plan = closed_loop::Plan {
            address: self.address(),
            requests: NonZeroU64::MIN,
            connections: NonZeroU32::MIN,
            timeout,
        };
        let expected = Expected { status: 200, body: ExpectedBody::Within(u64::MAX) };
        let http = Http::new(plan.address, path, Reuse::NewConnection, expected);
        match closed_loop::run(&plan, &http, &AtomicBool::new(false), &mut |_| {}) {
            Ok(_) => Ok(()),
            Err(LoadError::Failed { first, .. }) => Err(format!("GET {path}: {first}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Server {
    /// A database that is killed leaves shared memory behind.
    fn drop(&mut self) {
        // What cannot be stopped here is killed by the group, or when this process ends.
        let _ = self.group.stop(self.program.stop);
    }
}

/// Reserves `port` of 127.0.0.1, or any free port if it is 0; returns the socket that holds it, and its
/// number.
///
/// The socket is bound with SO_REUSEADDR and does not listen (socket(7)): the kernel does not assign this
/// port to programs that request any free port, but a server that sets the same option, as servers do, can
/// listen on it.
fn reserve(port: u16) -> Result<(OwnedFd, u16), StartError> {
    let reserved = || {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok((socket, port))
    };
    reserved().map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortInUse { port },
        _ => StartError::Port { port, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::listen;

    #[test]
    fn only_a_server_that_reuses_addresses_can_bind_a_reserved_port() {
        let (_reservation, port) = reserve(0).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let socket =
            || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(bind(socket(), &address).unwrap_err(), rustix::io::Errno::ADDRINUSE);
        TcpStream::connect(address).expect_err("there is no server yet");
        let server = socket();
        set_socket_reuseaddr(&server, true).unwrap();
        bind(&server, &address).unwrap();
        listen(&server, 1).unwrap();
        TcpStream::connect(address).unwrap();
        assert!(matches!(reserve(port), Err(StartError::PortInUse { .. })));
    }
}
