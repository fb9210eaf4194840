//! `assay guard`: relays a database, and limits the transactions that are in flight.

mod log;
mod users;

use std::net::ToSocketAddrs;
use std::num::NonZero;
use std::thread;

use anyhow::{Context, bail};
use assay_database::{Address, Host};
use assay_proxy::{Options, Relay, Server};
use assay_reflect::Cgroup;
use assay_reflect::advice::Advice;
use assay_reflect::facility::GroupTime;
use assay_reflect::law::{Law, Tuning};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use self::log::Log;
use crate::cli::GuardArgs;
use crate::interrupt::Interrupt;
use crate::section::guard::Passed;
use crate::{open_files, output, section};

/// Runs the subcommand.
pub fn run(args: &GuardArgs) -> anyhow::Result<()> {
    let server = server(&args.to)?;
    // Passwords and the data of the clients do not belong into a core dump.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot switch off core dumps")?;
    let users = args.users.as_deref().map(users::read).transpose()?;
    open_files::raise_limit();
    let interrupt = Interrupt::listen()?;
    let (law, tuning) = law(args);
    let group = args.cgroup.as_deref().map(Cgroup::open).transpose()?;
    let cpu = group.map(GroupTime::open).transpose()?;
    let to = server.to_string();
    let relay = Relay::listen(Options {
        listen: args.listen,
        server,
        law,
        tuning,
        longest_wait: args.max_wait,
        cpu,
        users,
    })?;
    let mut log = args.log.as_deref().map(|path| Log::open(path, law)).transpose()?;
    output::say(&format!("relaying {} to {to}", relay.address()));
    let relayed = relay.run(interrupt.flag(), |moment| log.iter_mut().for_each(|log| log.add(moment)));
    let unlogged = log.map(Log::close);
    let (counts, limits) = relayed.context("cannot wait for the clients and the server")?;
    let passed = Passed { law, counts, limits, unlogged };
    output::show(&section::guard::report(&passed), args.print.format())
}

/// The law, and where it begins.
fn law(args: &GuardArgs) -> (&'static Law, Tuning) {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let tuning = Tuning::advised(&Advice::default(), processors);
    match (args.limit, args.start) {
        (Some(limit), _) => (Law::fixed(), Tuning { start: limit, ..tuning }),
        (None, Some(start)) => (args.law, Tuning { start, ..tuning }),
        (None, None) => (args.law, tuning),
    }
}

/// The server of an address. Its name is looked up once.
fn server(address: &str) -> anyhow::Result<Server> {
    match Address::parse(address, None)?.host() {
        None => bail!("--to has several servers; give one"),
        Some(Host::Unix(path)) => Ok(Server::Unix(path)),
        Some(Host::Tcp(name, port)) => {
            let look_up = || format!("cannot find the host {}", assay_report::visible(&name));
            let mut found = (&*name, port).to_socket_addrs().with_context(look_up)?;
            Ok(Server::Tcp(found.next().with_context(look_up)?))
        }
    }
}
