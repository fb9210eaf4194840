//! The built-in client: measures the time that a server requires for exactly this number of requests, with
//! every response correct. It is a closed loop: each connection has one request in flight and sends the next
//! one when the response is complete. It runs in the calling thread and requires one `send`, one `recv` and a
//! share of an `epoll_wait` per request on a kept connection. After the first failure it starts no further
//! request, and the load is an error. It does not retry, pace requests or access the server's processes. What
//! is sent and what is correct is the matter of a [`Protocol`].

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assay_process::accounting::thread_cpu_ns;
use assay_process::clock::{elapsed_ns, now};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use rustix::time::Timespec;

use super::load::{Failure, Failures, Load, LoadError, percentiles};
use super::protocol::{Fault, Protocol, Step, Then};

/// Maximum size of one `recv`: large enough that a large page requires few calls, small enough for the
/// second-level cache.
const BUFFER_BYTES: usize = 64 * 1024;

/// Interval of the checks of timeouts and the stop flag and of the progress reports.
const SWEEP: Duration = Duration::from_millis(50);

/// Longest latency that the histogram distinguishes; the longest timeout of a workload file is an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Parameters of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// Total number of requests.
    pub requests: NonZeroU64,
    /// Number of busy connections.
    pub connections: NonZeroU32,
    /// Timeout of one request, from its connection or first byte to its end.
    pub timeout: Duration,
}

/// Runs the load `plan` with the requests of `protocol`. Calls `on_progress` at intervals with the number of
/// answered requests. Setting `stop` ends the load with [`LoadError::Stopped`].
pub fn run<P: Protocol>(
    plan: &Plan,
    protocol: &P,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Load, LoadError> {
    let mut run = Run::new(plan, protocol)?;
    let cpu_ns =
        || thread_cpu_ns().map_err(|source| LoadError::Io { action: "reading its own CPU time", source });
    let cpu_before_ns = cpu_ns()?;
    run.start();
    run.drive(stop, on_progress)?;
    let client_cpu_ns = cpu_ns()?.saturating_sub(cpu_before_ns);
    on_progress(run.completed);
    if let Some(first) = run.first_failure {
        return Err(LoadError::Failed { completed: run.completed, failures: run.failures, first });
    }
    Ok(Load {
        requests: run.completed,
        elapsed_ns: elapsed_ns(run.started, run.now),
        latency: percentiles(&run.histogram),
        received_bytes: run.received_bytes,
        connections: Some(run.opened),
        client_cpu_ns,
    })
}

/// The event that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// None: it has no request.
    Idle,
    /// Sending the rest of its message, or the connection itself.
    Sending,
    /// The response.
    Receiving,
    /// The server's close after a complete response.
    Closing,
}

#[derive(Debug)]
struct Connection<R> {
    socket: Option<OwnedFd>,
    phase: Phase,
    /// Index of its message.
    message: usize,
    /// Bytes of the message already sent.
    sent: usize,
    reader: R,
    /// Start of the request.
    begun: Instant,
}

/// A running load.
struct Run<'a, P: Protocol> {
    plan: &'a Plan,
    protocol: &'a P,
    epoll: OwnedFd,
    connections: Vec<Connection<P::Reader>>,
    buffer: Vec<u8>,
    histogram: Histogram<u64>,
    failures: Failures,
    first_failure: Option<String>,
    begun: u64,
    completed: u64,
    busy: usize,
    opened: u64,
    received_bytes: u64,
    started: Instant,
    /// The latest reading of the clock: one per completed request.
    now: Instant,
    swept: Instant,
}

impl<'a, P: Protocol> Run<'a, P> {
    fn new(plan: &'a Plan, protocol: &'a P) -> Result<Run<'a, P>, LoadError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(io("creating an epoll instance"))?;
        let count = u64::from(plan.connections.get()).min(plan.requests.get());
        let now = now();
        let connection = || Connection {
            socket: None,
            phase: Phase::Idle,
            message: 0,
            sent: 0,
            reader: protocol.reader(),
            begun: now,
        };
        Ok(Run {
            plan,
            protocol,
            epoll,
            connections: (0..count).map(|_| connection()).collect(),
            buffer: vec![0; BUFFER_BYTES],
            histogram: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants"),
            failures: Failures::default(),
            first_failure: None,
            begun: 0,
            completed: 0,
            busy: 0,
            opened: 0,
            received_bytes: 0,
            started: now,
            now,
            swept: now,
        })
    }

    fn start(&mut self) {
        self.started = now();
        self.now = self.started;
        self.swept = self.started;
        for index in 0..self.connections.len() {
            self.busy += 1;
            self.next(index);
        }
    }

    /// Runs the event loop until no connection has a request.
    fn drive(&mut self, stop: &AtomicBool, on_progress: &mut dyn FnMut(u64)) -> Result<(), LoadError> {
        let pause = Timespec::try_from(SWEEP).expect("a constant");
        let mut events: Vec<Event> = Vec::with_capacity(self.connections.len().min(256));
        while self.busy > 0 {
            let completed = self.completed;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io("waiting for events")(errno)),
            }
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64()).expect("the data is an index of `connections`");
                self.advance(index, event.flags);
            }
            if self.completed == completed && self.busy > 0 {
                self.now = now();
            }
            if self.now.saturating_duration_since(self.swept) >= SWEEP {
                self.sweep();
                on_progress(self.completed);
                if stop.load(Ordering::Relaxed) {
                    return Err(LoadError::Stopped { completed: self.completed });
                }
            }
        }
        Ok(())
    }

    /// Fails the requests that exceeded their timeout.
    fn sweep(&mut self) {
        self.swept = self.now;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let taken = self.now.saturating_duration_since(connection.begun);
            if connection.phase != Phase::Idle && taken >= self.plan.timeout {
                let phase = match connection.phase {
                    Phase::Closing => "the server did not close the connection after its response",
                    _ => "no complete response",
                };
                self.fail(index, Failure::Timeout, &format!("{phase} within {:?}", self.plan.timeout));
            }
        }
    }

    /// Starts the next request on a connection without one, or leaves the connection idle if no requests are
    /// left.
    fn next(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if self.begun == self.plan.requests.get() || self.first_failure.is_some() {
            connection.socket = None;
            connection.phase = Phase::Idle;
            self.busy -= 1;
            return;
        }
        self.begun += 1;
        connection.begun = self.now;
        let fresh = connection.socket.is_none();
        if fresh {
            match open(self.plan.address) {
                Ok(socket) => connection.socket = Some(socket),
                Err(errno) => return self.fail(index, Failure::Connect, &in_words("connect", errno)),
            }
            self.opened += 1;
        }
        self.begin_message(index, fresh);
    }

    /// Sends the message of a connection from its start.
    fn begin_message(&mut self, index: usize, fresh: bool) {
        self.connections[index].sent = 0;
        self.connections[index].phase = Phase::Sending;
        self.send(index, fresh);
    }

    /// Sends the rest of the message. Adds a new socket to the epoll instance.
    fn send(&mut self, index: usize, fresh: bool) {
        let connection = &mut self.connections[index];
        let Some(socket) = &connection.socket else { return };
        let message = &self.protocol.messages()[connection.message];
        match send(socket, &message[connection.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(bytes) => connection.sent += bytes,
            // Not connected yet, or (not observed with requests this small) no space in the socket's buffer.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno @ (Errno::PIPE | Errno::CONNRESET)) => {
                return self.fail(index, Failure::EarlyClose, &in_words("send", errno));
            }
            // The socket's pending error: the reason why the connection failed.
            Err(errno) => return self.fail(index, Failure::Connect, &in_words("connect", errno)),
        }
        let mut interest = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if connection.sent == message.len() {
            connection.phase = Phase::Receiving;
        } else {
            interest |= EventFlags::OUT;
        }
        let data = EventData::new_u64(index as u64);
        let observed = match (fresh, connection.phase) {
            (true, _) => epoll::add(&self.epoll, socket, data, interest),
            (false, Phase::Sending) => epoll::modify(&self.epoll, socket, data, interest),
            (false, _) => Ok(()),
        };
        if let Err(errno) = observed {
            self.fail(index, Failure::Connect, &in_words("epoll_ctl", errno));
        }
    }

    /// Processes the events of a connection.
    fn advance(&mut self, index: usize, flags: EventFlags) {
        if self.connections[index].phase == Phase::Sending {
            self.send(index, false);
        }
        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        while matches!(self.connections[index].phase, Phase::Receiving | Phase::Closing) {
            let Some(socket) = &self.connections[index].socket else { return };
            match recv(socket, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.closed(index),
                Ok((bytes, _)) => {
                    self.received(index, bytes);
                    // A short read means that no bytes are left, and an event will report further bytes. But
                    // no further event reports an end of the stream that this event has already reported.
                    if bytes < BUFFER_BYTES && !hung_up {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(errno) => return self.fail(index, Failure::EarlyClose, &in_words("recv", errno)),
            }
        }
    }

    /// Processes the first `bytes` of the buffer as part of the response.
    fn received(&mut self, index: usize, bytes: usize) {
        self.received_bytes += bytes as u64;
        let connection = &mut self.connections[index];
        if connection.phase == Phase::Closing {
            return self.fail(index, Failure::Surplus, "bytes after the end of the response");
        }
        match self.protocol.feed(&mut connection.reader, &self.buffer[..bytes]) {
            Ok(Step::Incomplete) => {}
            Ok(Step::Complete { used, .. }) if used < bytes => {
                self.fail(index, Failure::Surplus, "bytes after the end of the response");
            }
            Ok(Step::Complete { then, .. }) => self.answered(index, then),
            Err(fault) => self.fault(index, &fault),
        }
    }

    /// Handles a complete and correct response to the message of a connection.
    fn answered(&mut self, index: usize, then: Then) {
        let connection = &mut self.connections[index];
        if connection.message + 1 < self.protocol.messages().len() {
            connection.message += 1;
            return self.begin_message(index, false);
        }
        self.now = now();
        self.histogram.saturating_record(elapsed_ns(connection.begun, self.now));
        match then {
            Then::KeepOpen => {
                self.completed += 1;
                self.next(index);
            }
            Then::Close => connection.phase = Phase::Closing,
        }
    }

    /// Handles a connection closed by the server.
    fn closed(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.phase != Phase::Closing {
            match self.protocol.end(&mut connection.reader) {
                Ok(Step::Complete { .. }) => self.answered(index, Then::Close),
                Ok(Step::Incomplete) => return self.fault(index, &Fault::early_close()),
                Err(fault) => return self.fault(index, &fault),
            }
        }
        // If the server closes first, the TIME_WAIT of the connection is on the server's side and occupies no
        // port of the client.
        self.connections[index].socket = None;
        self.now = now();
        self.completed += 1;
        self.next(index);
    }

    fn fault(&mut self, index: usize, fault: &Fault) {
        self.fail(index, fault.failure, &fault.problem);
    }

    fn fail(&mut self, index: usize, kind: Failure, words: &str) {
        self.failures.add(kind);
        self.first_failure.get_or_insert_with(|| words.to_owned());
        let connection = &mut self.connections[index];
        connection.socket = None;
        connection.phase = Phase::Idle;
        self.busy -= 1;
    }
}

/// Returns a socket that is connected or connecting.
fn open(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn in_words(call: &str, errno: Errno) -> String {
    format!("{call}: {}", std::io::Error::from(errno))
}

fn io(action: &'static str) -> impl Fn(Errno) -> LoadError {
    move |errno| LoadError::Io { action, source: errno.into() }
}
