//! Loads a PostgreSQL server, or a proxy in front of one: each client runs one transaction after the other,
//! or those that arrive while it has nothing to do.
//!
//!     load 127.0.0.1:5432 hot --clients 1024 --duration 10s
//!     load 127.0.0.1:5432 tpc-b --clients 1024 --rate 2000 --deadline 500
//!     load 127.0.0.1:5432 hot --clients 1024 --session 100
//!
//! One thread serves all clients: on a machine that it shares with the server, a thread for each would take
//! the processors from the server. The server must trust this address.
//!
//! At the end, each client finishes the transaction in which it is. So `changes_in_all` is exactly what the
//! database must have.

mod arrivals;
mod client;
mod transaction;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use assay_process::accounting::own_cpu_ns;
use assay_process::clock::{elapsed_ns, now};
use clap::Parser;
use hdrhistogram::{Histogram, RecordError};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use self::arrivals::Arrivals;
use self::client::{Client, Outcome};
use self::transaction::Kind;

/// Longest time without any answer of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads a PostgreSQL server, and prints what it committed.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Args {
    /// Address of the server or of a proxy.
    to: SocketAddr,
    /// What a transaction does.
    transaction: Kind,
    /// Clients, each with a connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Time that is measured.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    duration: Duration,
    /// Time of the load before that.
    #[arg(long, default_value = "2s", value_parser = seconds)]
    warm_up: Duration,
    /// Transactions that arrive in a second, at random times, also if those before have not ended (an open
    /// loop). One that finds all clients busy is not begun. Without a rate, each client begins the next
    /// transaction when the last one has ended (a closed loop).
    #[arg(long, requires = "deadline", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Time after its arrival in which a transaction is of use, in ms.
    #[arg(long, requires = "rate", value_name = "MS")]
    deadline: Option<u32>,
    /// Transactions after which a client ends its session, and begins another one with the next transaction,
    /// whose time includes the login. All sessions begin at once then, not one after the other.
    #[arg(long, value_name = "TRANSACTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    session: Option<u32>,
    /// Database.
    #[arg(long, default_value = "postgres")]
    database: String,
}

/// Reads `10s`.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').and_then(|number| number.parse::<u32>().ok());
    let number =
        number.filter(|number| *number <= 3600).ok_or("give whole seconds up to an hour, such as 10s")?;
    Ok(Duration::from_secs(number.into()))
}

/// What was measured.
struct Figures {
    /// Transactions that ended in the measured time.
    committed: u64,
    failed: u64,
    /// Of those that were committed, the ones that were in time: in a closed loop, all.
    in_time: u64,
    /// Transactions that arrived in the measured time, and found all clients busy.
    not_begun: u64,
    /// Transactions that were committed at any time.
    committed_in_all: u64,
    /// Of those, the ones that changed something.
    changes_in_all: u64,
    /// SQLSTATEs of transactions that failed, at any time.
    errors: BTreeMap<String, u64>,
    /// From the beginning of a transaction, or its arrival, to its last answer, of all that were under way in
    /// the measured time and were committed, in ns. Those that end after it are among them: they are the slow
    /// ones.
    latency: Histogram<u64>,
    /// Processor time of this program for a transaction, in ns.
    own_cpu_ns: f64,
}

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else { return ExitCode::SUCCESS };
    let _ = writeln!(io::stderr(), "load: {error}");
    ExitCode::FAILURE
}

fn print(figures: &Figures, args: &Args) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let us = |ns: f64| ns / 1e3;
    let per_s = |number: u64| number as f64 / args.duration.as_secs_f64();
    let latency = &figures.latency;
    writeln!(out, "committed_per_s {:.1}", per_s(figures.committed))?;
    writeln!(out, "failed_per_s {:.1}", per_s(figures.failed))?;
    writeln!(out, "in_time_per_s {:.1}", per_s(figures.in_time))?;
    writeln!(out, "not_begun_per_s {:.1}", per_s(figures.not_begun))?;
    writeln!(out, "changes_in_all {}", figures.changes_in_all)?;
    if !latency.is_empty() {
        writeln!(out, "mean_us {:.2}", us(latency.mean()))?;
        writeln!(out, "p50_us {:.2}", us(latency.value_at_quantile(0.5) as f64))?;
        writeln!(out, "p99_us {:.2}", us(latency.value_at_quantile(0.99) as f64))?;
    }
    writeln!(out, "own_cpu_us {:.2}", us(figures.own_cpu_ns))?;
    figures.errors.iter().try_for_each(|(code, count)| writeln!(out, "error_{code} {count}"))?;
    out.flush()
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for number in 0..args.clients as usize {
        let mut client = None;
        if args.session.is_none() {
            let cannot = |error| format!("client {} of {} cannot log in: {error}", number + 1, args.clients);
            client.insert(connect(args, &epoll, number)?).log_in().map_err(cannot)?;
        }
        clients.push(client);
    }
    let cpu = own_cpu_ns()?;
    let began = now();
    let mut load = Load {
        args,
        epoll,
        random: Pcg64Mcg::seed_from_u64(1),
        arrivals: args.rate.map(|rate| Arrivals::new(rate.into(), began)),
        deadline: args.deadline.map_or(Duration::MAX, |ms| Duration::from_millis(ms.into())),
        measured: (began + args.warm_up, began + args.warm_up + args.duration),
        figures: Figures {
            committed: 0,
            failed: 0,
            in_time: 0,
            not_begun: 0,
            committed_in_all: 0,
            changes_in_all: 0,
            errors: BTreeMap::new(),
            latency: Histogram::new(3)?,
            own_cpu_ns: 0.0,
        },
    };
    load.drive(&mut clients)?;
    let figures = &mut load.figures;
    let transactions = figures.committed_in_all + figures.errors.values().sum::<u64>();
    figures.own_cpu_ns = own_cpu_ns()?.saturating_sub(cpu) as f64 / transactions as f64;
    print(figures, args)?;
    Ok(clients.into_iter().flatten().try_for_each(Client::log_out)?)
}

/// Begins the session of the client with this number.
fn connect(args: &Args, epoll: &OwnedFd, number: usize) -> io::Result<Client> {
    let client = Client::connect(args.to, &args.database, PATIENCE)?;
    epoll::add(epoll, client.socket(), EventData::new_u64(number as u64), EventFlags::IN)?;
    Ok(client)
}

/// Ends the session of a client, if it has one.
fn log_out(client: &mut Option<Client>) -> io::Result<()> {
    client.take().map_or(Ok(()), Client::log_out)
}

/// A load that is under way.
struct Load<'a> {
    args: &'a Args,
    epoll: OwnedFd,
    random: Pcg64Mcg,
    /// `None` for a closed loop.
    arrivals: Option<Arrivals>,
    deadline: Duration,
    /// When the measured time begins and ends.
    measured: (Instant, Instant),
    figures: Figures,
}

impl Load<'_> {
    /// Begins transactions until the measured time is over and the last one has ended.
    fn drive(&mut self, clients: &mut [Option<Client>]) -> Result<(), Box<dyn Error>> {
        let mut idle: Vec<usize> = (0..clients.len()).collect();
        let mut events = Vec::with_capacity(1024);
        loop {
            let at = now();
            self.begin(clients, &mut idle, at)?;
            if at >= self.measured.1 {
                if idle.len() == clients.len() {
                    return Ok(());
                }
                if self.args.session.is_some() {
                    // Others may wait until these end.
                    idle.iter().try_for_each(|number| log_out(&mut clients[*number]))?;
                }
            }
            let next = self.arrivals.as_ref().map(Arrivals::next).filter(|next| *next < self.measured.1);
            let wait = next.map_or(PATIENCE, |next| next.saturating_duration_since(at));
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::try_from(wait)?)) {
                Ok(0) if next.is_none() => {
                    return Err(format!("no answer for {} s", PATIENCE.as_secs()).into());
                }
                Err(Errno::INTR) => continue,
                result => result?,
            };
            for event in &events {
                let number = usize::try_from(event.data.u64())?;
                let Some(client) = &mut clients[number] else { continue };
                let Some(outcome) = client.go_on()? else { continue };
                let at = now();
                self.count(outcome, client, at)?;
                idle.push(number);
                if self.args.session == Some(client.ended()) {
                    log_out(&mut clients[number])?;
                }
                self.begin(clients, &mut idle, at)?;
            }
        }
    }

    /// Lets clients that have nothing to do begin what there is to do.
    fn begin(
        &mut self,
        clients: &mut [Option<Client>],
        idle: &mut Vec<usize>,
        at: Instant,
    ) -> io::Result<()> {
        let (from, to) = self.measured;
        while let Some(arrivals) = &mut self.arrivals
            && let Some(arrived) = arrivals.take(at.min(to), &mut self.random)
        {
            match idle.pop() {
                Some(number) => self.begin_one(&mut clients[number], number, arrived)?,
                None => self.figures.not_begun += u64::from(arrived >= from),
            }
        }
        if self.arrivals.is_none() && at < to {
            idle.drain(..).try_for_each(|number| self.begin_one(&mut clients[number], number, at))?;
        }
        Ok(())
    }

    /// Lets a client begin a transaction, and a session if it has none.
    fn begin_one(&mut self, client: &mut Option<Client>, number: usize, at: Instant) -> io::Result<()> {
        let client = match client {
            Some(client) => client,
            None => client.insert(connect(self.args, &self.epoll, number)?),
        };
        client.begin(self.args.transaction.statements(&mut self.random), at)
    }

    fn count(&mut self, outcome: Outcome, client: &Client, at: Instant) -> Result<(), RecordError> {
        let began = client.began();
        let figures = &mut self.figures;
        let (from, to) = self.measured;
        let is_measured = (from..to).contains(&at);
        match outcome {
            Outcome::Committed => {
                figures.committed_in_all += 1;
                figures.changes_in_all += u64::from(client.is_change());
                figures.committed += u64::from(is_measured);
                figures.in_time += u64::from(is_measured && at - began <= self.deadline);
                if at >= from {
                    figures.latency.record(elapsed_ns(began, at))?;
                }
            }
            Outcome::Failed(code) => {
                figures.failed += u64::from(is_measured);
                *figures.errors.entry(code).or_default() += 1;
            }
        }
        Ok(())
    }
}
