//! Passes messages between clients and the server, in one thread: each event of a socket is handled at once,
//! and none is waited for.
//!
//! A transaction that is admitted takes one system call for each of its four transfers, and its share of an
//! `epoll_wait`. The kernel reports each change of a socket once (edge-triggered).

mod admission;
mod aside;
mod backend;
mod cancel;
mod classes;
mod client;
mod connection;
mod drain;
mod encryption;
mod entrance;
mod greeting;
mod host;
mod listener;
mod login;
mod lookup;
mod opening;
mod passage;
mod pool;
mod proof;
mod room;
mod stall;
mod state;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use assay_process::clock::now;
use assay_reflect::facility::GroupTime;
use assay_reflect::law::{Law, Limit, Tuning};
use assay_reflect::{Overhead, Signal};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use slotmap::{Key as _, KeyData, SlotMap};

use crate::class::Classes;
use crate::control::{Control, Course, Moment};
use crate::gate::{ClassId, Gate};
use crate::postgres::prepared::Definitions;
use crate::postgres::scram::Key;
use crate::postgres::startup::{CancelKey, Startup};
use crate::postgres::text::Pin;
use crate::postgres::users::Users;
use crate::tls::Encryption;
use backend::{Backend, BackendKey};
use classes::numbered;
use client::{Client, ClientKey};
use listener::Listener;
use login::Logins;
use lookup::Lookups;
use pool::{Pool, PoolKey};
use stall::Stall;

pub use classes::{ClassCounts, Waits};
pub use entrance::Level;
pub use host::{Change, Host, Order};
pub use listener::{NoRelay, Server, TakeOver, listen_at};
pub use lookup::Lookup;
pub use state::State;

/// What a relay does.
#[derive(Debug)]
pub struct Options {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether it does so instead of another one.
    pub take_over: TakeOver,
    /// The server behind it.
    pub server: Server,
    /// What the limit counts.
    pub level: Level,
    /// What sets it.
    pub law: &'static Law,
    /// How it begins.
    pub tuning: Tuning,
    /// The processor time of the server.
    pub cpu: Option<GroupTime>,
    /// What may change.
    pub settings: Settings,
    /// How roles are looked up that are not in the list of users, if there is one.
    pub lookup: Option<Lookup>,
    /// Longest time for sessions to end, after [`Order::Drain`] or [`Change::EndSessions`].
    pub drain_time: Duration,
}

/// What may change while a relay runs.
#[derive(Debug)]
pub struct Settings {
    /// How transactions wait.
    pub classes: Classes,
    /// The roles that log in at the guard; without a list, all log in at the server.
    pub users: Option<Users>,
    /// How connections are encrypted.
    pub encryption: Encryption,
}

/// What happened so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Sessions that logged in.
    pub sessions: u64,
    /// Those of them whose connections are encrypted.
    pub encrypted: u64,
    /// Connections that could not be encrypted.
    pub not_encrypted: u64,
    /// Transactions that succeeded.
    pub committed: u64,
    /// Transactions that their clients had rolled back.
    pub rolled_back: u64,
    /// Transactions in which something failed.
    pub failed: u64,
    /// Transactions that were given up by their client, or by the server, before their end.
    pub abandoned: u64,
    /// Logins at the guard with a wrong password, or of a role of which it has no secret.
    pub not_proved: u64,
    /// Logins of roles that had to be looked up at the server.
    pub looked_up: u64,
    /// Those of them of which the server did not say whether the role has a secret before the client gave up.
    pub not_looked_up: u64,
    /// Transactions that were in flight when the relay ended.
    pub cut_off: u64,
    /// Transactions that waited when the relay ended.
    pub not_begun: u64,
    /// Sessions that ended with an error of the guard, but for those of the next count.
    pub turned_away: u64,
    /// Sessions, and logins, that ended by [`Change::EndSessions`] or with the relay.
    pub dismissed: u64,
    /// What happened to the transactions, or the sessions, of each class at the gate, also of classes that
    /// are no more.
    pub classes: Vec<ClassCounts>,
    /// Sessions that needed their own connection of the server, by reason.
    pub pinned: BTreeMap<Pin, u64>,
    /// Statements that the guard prepared for sessions that had prepared them before.
    pub prepared_again: u64,
    /// Connections of the server that the guard opened for itself.
    pub opened: u64,
    /// Times that the server had no room for a further connection.
    pub no_room: u64,
    /// Requests to cancel that were passed on, or ended a wait.
    pub cancelled: u64,
    /// Times that a transaction gave up its place, as it waited for its client.
    pub aside_for_client: u64,
    /// Times that one did in a stall, as it waited for a lock.
    pub aside_for_lock: u64,
    /// Periods of which the processor time of the server could not be read.
    pub unmeasured: u64,
    /// Times that clients had to wait for their connection, for lack of files or memory.
    pub not_accepted: u64,
}

/// A relay at work.
#[derive(Debug)]
pub struct Relay {
    epoll: OwnedFd,
    listener: Listener,
    server: Server,
    clients: SlotMap<ClientKey, Client>,
    backends: SlotMap<BackendKey, Backend>,
    pools: SlotMap<PoolKey, Pool>,
    pool_of: HashMap<Startup, PoolKey>,
    client_of: HashMap<CancelKey, ClientKey>,
    /// What the sessions have prepared.
    definitions: Definitions,
    gate: Gate<ClientKey>,
    /// The gate of the sessions, if the limit counts them. That of the transactions has no limit then.
    entrance: Option<Gate<ClientKey>>,
    classes: Classes<ClassId>,
    control: Control,
    cpu: Option<GroupTime>,
    users: Option<Users>,
    lookups: Option<Lookups>,
    encryption: Encryption,
    /// Makes the salts for the clients: they show nothing of the list of users.
    seed: Key,
    logins: Logins,
    /// Connections of the server that the guard opens.
    opening: u32,
    /// When connections of the server have to be open that the guard opens, and when requests to cancel have
    /// to be done, the earliest first.
    openings: VecDeque<(Duration, BackendKey)>,
    /// Pools that have no session left, the one that has none for longest first.
    left: VecDeque<PoolKey>,
    /// The pool that lacks a connection, for which one of another pool ends as soon as it is free.
    starved: Option<PoolKey>,
    /// Clients that can go on with what they have sent.
    resumed: VecDeque<ClientKey>,
    /// Connections that may have more to read.
    again: Vec<Side>,
    /// Clients that wait for their turn to go on with their handshakes.
    handshakes: VecDeque<ClientKey>,
    /// When clients have to be logged in, the earliest first.
    startups: VecDeque<(Duration, ClientKey)>,
    /// When clients have to be gone that have ended, the earliest first.
    endings: VecDeque<(Duration, ClientKey)>,
    /// When sessions of a role that end have to be in no transaction, the earliest first.
    leavings: VecDeque<(Duration, ClientKey)>,
    drain_time: Duration,
    /// When sessions that still go on are cut off, if no more begin.
    drained_by: Option<Duration>,
    counts: Counts,
    stall: Stall,
    buffer: Vec<u8>,
    begun: Instant,
    /// The time of the events that are handled, since the beginning.
    at: Duration,
}

/// A connection of the relay.
#[derive(Debug, Clone, Copy)]
enum Side {
    Client(ClientKey),
    Backend(BackendKey),
}

/// What is read at a time.
const BUFFER: usize = 64 << 10;

/// Events that are taken at a time.
const EVENTS: usize = 256;

/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);

/// All changes of a connection.
const EDGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Bit of a token that distinguishes connections of the server. Numbers of connections are far below it.
const BACKEND: u64 = 1 << 31;

impl Side {
    fn token(self) -> EventData {
        EventData::new_u64(match self {
            Self::Client(key) => key.data().as_ffi(),
            Self::Backend(key) => key.data().as_ffi() | BACKEND,
        })
    }

    /// The connection of a token; `None` for the listener.
    fn of(token: EventData) -> Option<Self> {
        let token = token.u64();
        let key = KeyData::from_ffi(token & !BACKEND);
        if token & BACKEND != 0 {
            return Some(Self::Backend(key.into()));
        }
        (token != LISTENER.u64()).then(|| Self::Client(key.into()))
    }
}

/// The token of the listener. Tokens of connections are not zero.
const LISTENER: EventData = EventData::new_u64(0);

impl Relay {
    /// Begins to listen.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn listen(options: Options) -> Result<Self, NoRelay> {
        let seed = try_random().map_err(|errno| NoRelay::Random(errno.into()))?;
        let definitions = Definitions::new(u32::from_ne_bytes(random()));
        let no_epoll = |errno: Errno| NoRelay::Events(errno.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(no_epoll)?;
        // From now on, clients come.
        let listener = Listener::bind(options.listen, options.take_over)?;
        listener.register(&epoll, LISTENER).map_err(no_epoll)?;
        let Settings { classes, users, encryption } = options.settings;
        let limited = Gate::new(options.tuning.start);
        let (mut gate, mut entrance) = match options.level {
            Level::Transactions => (limited, None),
            Level::Sessions => (Gate::new(Limit::NONE), Some(limited)),
        };
        let mut counts = Counts::default();
        Ok(Self {
            classes: numbered(classes, (&mut gate, &mut entrance), &mut counts),
            epoll,
            listener,
            server: options.server,
            clients: SlotMap::with_key(),
            backends: SlotMap::with_key(),
            pools: SlotMap::with_key(),
            pool_of: HashMap::new(),
            client_of: HashMap::new(),
            definitions,
            gate,
            entrance,
            control: Control::new(options.law, options.tuning),
            cpu: options.cpu,
            users,
            lookups: options.lookup.map(Lookups::new),
            encryption,
            seed: Key::new(seed),
            logins: Logins::default(),
            opening: 0,
            openings: VecDeque::new(),
            left: VecDeque::new(),
            starved: None,
            resumed: VecDeque::new(),
            again: Vec::new(),
            handshakes: VecDeque::new(),
            startups: VecDeque::new(),
            endings: VecDeque::new(),
            leavings: VecDeque::new(),
            drain_time: options.drain_time,
            drained_by: None,
            counts,
            stall: Stall::default(),
            buffer: vec![0; BUFFER],
            begun: now(),
            at: Duration::ZERO,
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Relays until the host has it end, and returns what happened, and the limits.
    ///
    /// # Errors
    /// If the kernel does not report events.
    pub fn run(mut self, host: &mut impl Host) -> io::Result<(Counts, Course)> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut due = Duration::ZERO;
        loop {
            let is_done = self.again.is_empty() && self.handshakes.is_empty();
            let wait = if is_done { due.saturating_sub(self.at) } else { Duration::ZERO };
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.min(TICK).subsec_nanos().into() };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.at = now().saturating_duration_since(self.begun);
            let order = host.order();
            if order == Order::End {
                break;
            }
            self.handle(&events);
            if order == Order::Drain && !self.is_draining() {
                host.say(self.drain());
            }
            if self.at >= due {
                due = self.at + TICK;
                self.tick(host);
                if self.is_drained() {
                    break;
                }
            }
            self.resume();
        }
        self.lookup_failure().into_iter().for_each(|text| host.say(text));
        self.end_all();
        Ok((self.counts, self.control.course()))
    }

    /// Does what has to be done.
    fn handle(&mut self, events: &[Event]) {
        for side in std::mem::take(&mut self.again) {
            self.read(side);
            self.resume();
        }
        self.go_on_with_handshake();
        self.resume();
        for event in events {
            match Side::of(event.data) {
                None => self.accept(),
                Some(side) => self.changed(side, event.flags),
            }
            self.resume();
        }
    }

    /// A connection has changed.
    fn changed(&mut self, side: Side, flags: EventFlags) {
        let connection = match side {
            Side::Client(key) => self.clients.get_mut(key).map(|client| &mut client.connection),
            Side::Backend(key) => self.backends.get_mut(key).map(|backend| &mut backend.connection),
        };
        // It may have been closed by an earlier event.
        let Some(connection) = connection else { return };
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            connection.hang_up();
        } else if flags.contains(EventFlags::IN) {
            connection.set_readable();
        }
        if flags.contains(EventFlags::OUT) && !connection.is_flushed() {
            let flushed = connection.flush();
            match side {
                Side::Client(key) => self.client_flushed(key, flushed),
                Side::Backend(key) => self.backend_flushed(key, flushed),
            }
        }
        self.read(side);
    }

    /// Reads a connection once. What is left of it comes in the next turn, so that none keeps the others
    /// waiting.
    fn read(&mut self, side: Side) {
        let mut buffer = std::mem::take(&mut self.buffer);
        match side {
            Side::Client(key) => self.read_client(key, &mut buffer),
            Side::Backend(key) => self.read_backend(key, &mut buffer),
        }
        self.buffer = buffer;
    }

    /// Lets clients go on that may log in, were admitted, or have sent the next transaction early.
    fn resume(&mut self) {
        loop {
            self.begin_logins();
            let Some(key) = self.resumed.pop_front() else { return };
            self.resume_client(key);
        }
    }

    /// Ends what has taken too long, and turns to the host.
    fn tick(&mut self, host: &mut impl Host) {
        self.admit_sessions();
        self.refuse_all_late();
        self.look_after_pools();
        self.give_places();
        self.look_for_stall();
        while let Some(key) = due(&mut self.startups, self.at) {
            self.startup_is_due(key);
        }
        while let Some(key) = due(&mut self.endings, self.at) {
            self.remove_client(key);
        }
        while let Some(key) = due(&mut self.leavings, self.at) {
            self.cut_off(key);
        }
        if self.listener.is_paused() {
            self.accept();
        }
        match host.change() {
            None => {}
            Some(Change::Settings(settings)) => self.change(settings),
            Some(Change::EndSessions { role, number }) => {
                // Who has asked may not wait for the number any more.
                let _ = number.send(self.end_sessions(&role));
            }
        }
        self.lookup_failure().into_iter().for_each(|text| host.say(text));
        if self.control.is_due(self.at) {
            host.period(&self.end_period());
        }
        host.state(&|| self.state());
    }

    fn change(&mut self, Settings { classes, users, encryption }: Settings) {
        self.change_classes(classes);
        self.encryption = encryption;
        if let (Some(present), Some(mut users)) = (&mut self.users, users) {
            users.succeed(present);
            *present = users;
        }
    }

    /// Lets the law set the limit of the next period.
    fn end_period(&mut self) -> Moment {
        let cpu = self.cpu.as_mut().and_then(GroupTime::since_last);
        self.counts.unmeasured += u64::from(self.cpu.is_some() && cpu.is_none());
        let mut signal = self.gate.period(self.at, Overhead { cpu, ..Overhead::default() });
        if let Some(entrance) = &mut self.entrance {
            let Signal { in_flight, waiting, .. } = entrance.period(self.at, Overhead::default());
            signal = Signal { in_flight, waiting, ..signal };
        }
        let moment = self.control.update(self.at, signal);
        self.entrance.as_mut().unwrap_or(&mut self.gate).allow(moment.decision.limit);
        self.admit_sessions();
        self.admit_waiting();
        moment
    }
}

/// Random bytes of the kernel, which [`Relay::listen`] has asked for some before.
fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    try_random().expect("the kernel goes on to give random bytes")
}

/// Random bytes of the kernel: all of so few, or none.
fn try_random<const LENGTH: usize>() -> Result<[u8; LENGTH], Errno> {
    let mut bytes = [0; LENGTH];
    getrandom(&mut bytes, GetRandomFlags::empty()).map(|_| bytes)
}

/// Takes the first one that is due.
fn due<T>(deadlines: &mut VecDeque<(Duration, T)>, at: Duration) -> Option<T> {
    deadlines.front().is_some_and(|(due, _)| *due <= at).then(|| deadlines.pop_front())?.map(|(_, key)| key)
}
