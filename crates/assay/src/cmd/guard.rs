//! `assay guard`: relays a database, and limits the transactions that are in flight.

mod admin;
mod config;
mod endpoint;
mod files;
mod log;
mod messages;
mod operation;
mod published;
mod settings;
mod target;

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, bail};
use assay_proxy::{Level, Lookup, Options, Relay, Server, TakeOver};
use assay_reflect::Cgroup;
use assay_reflect::advice::Advice;
use assay_reflect::curve::Curve;
use assay_reflect::facility::GroupTime;
use assay_reflect::law::{Law, Limit, Tuning};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::SIGTERM;

use self::admin::Admin;
use self::log::Log;
use self::messages::Messages;
use self::operation::Operation;
use self::published::{Published, Seen};
use self::settings::Files;
use self::target::Target;
use crate::cli::GuardArgs;
use crate::interrupt::{Interrupt, register};
use crate::section::guard::Passed;
use crate::{open_files, output, section};

/// Runs the subcommand.
pub fn run(args: &GuardArgs) -> anyhow::Result<()> {
    let target = Target::of(&args.to)?;
    // Passwords and the data of the clients do not belong into a core dump.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot switch off core dumps")?;
    open_files::raise_limit();
    let interrupt = Interrupt::listen_to_sigint()?;
    let terminated = Arc::new(AtomicBool::new(false));
    register(SIGTERM, &terminated)?;
    let files = Files::new(args, &target, &interrupt)?;
    let settings = files.read()?;
    let lookup = lookup(args, &target)?;
    let (law, tuning) = law(args);
    let group = args.cgroup.as_deref().map(Cgroup::open).transpose()?;
    let cpu = group.map(GroupTime::open).transpose()?;
    let take_over = if args.take_over { TakeOver::Yes } else { TakeOver::No };
    let level = if args.connection_level { Level::Sessions } else { Level::Transactions };
    let log = args.log.as_deref().map(|path| Log::open(path, law, level)).transpose()?;
    let published = Arc::new(Published::default());
    let listen = |address| endpoint::listen(address, take_over, Arc::clone(&published));
    let pages = args.metrics.map(listen).transpose()?;
    let listen =
        |path| Admin::listen((path, take_over), law, Arc::clone(&published), Arc::clone(&terminated));
    let admin = args.admin.as_deref().map(listen).transpose()?;
    let relay = Relay::listen(Options {
        listen: args.listen,
        take_over,
        server: target.server.clone(),
        level,
        law,
        tuning,
        cpu,
        settings,
        lookup,
        drain_time: args.drain_time,
    })?;
    let curve = args.shadow.then(Curve::default);
    published.replace(Seen { state: relay.state(), curve: curve.clone() });
    // A guard that cannot begin leaves another one its commands, and one that takes them has a status.
    admin.as_ref().map(Admin::open).transpose()?;
    say_where(relay.address(), &target.server, pages, args.admin.as_deref());
    let is_watched = pages.is_some() || admin.is_some();
    let mut operation = Operation {
        interrupt,
        terminated,
        files,
        log,
        curve,
        messages: Messages::begin(),
        published: is_watched.then_some(published),
        admin,
    };
    let relayed = relay.run(&mut operation);
    operation.messages.end();
    let unlogged = operation.log.map(Log::close);
    let (counts, limits) = relayed.context("cannot wait for the clients and the server")?;
    let curve = operation.curve.as_ref();
    let passed = Passed { level, law, counts: &counts, limits: &limits, curve, unlogged };
    output::show(&section::guard::report(&passed), args.print.format())
}

/// Says where the guard can be reached.
fn say_where(address: SocketAddr, server: &Server, pages: Option<SocketAddr>, admin: Option<&Path>) {
    output::say(&format!("relaying {address} to {server}"));
    if let Some(address) = pages {
        output::say(&format!("answering Prometheus at http://{address}/metrics"));
    }
    if let Some(path) = admin {
        output::say(&format!("taking commands at {}", path.display()));
    }
}

/// How roles are looked up that are not in the list.
fn lookup(args: &GuardArgs, target: &Target) -> anyhow::Result<Option<Lookup>> {
    let Some(role) = args.auth_user.clone() else { return Ok(None) };
    if !target.server.is_local() && !target.must_encrypt && args.server_ca.is_none() {
        bail!(
            "the server would send secrets over a network without TLS; give --server-ca, or add \
             sslmode=require to the address of the server"
        );
    }
    Ok(Some(Lookup { role, database: args.auth_dbname.clone(), query: args.auth_query.clone() }))
}

/// The law, and where it begins.
fn law(args: &GuardArgs) -> (&'static Law, Tuning) {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let tuning = Tuning::advised(&Advice::default(), processors);
    let limit = args.shadow.then_some(Limit::NONE).or(args.limit);
    match (limit, args.start) {
        (Some(limit), _) => (Law::fixed(), Tuning { start: limit, ..tuning }),
        (None, Some(start)) => (args.law, Tuning { start, ..tuning }),
        (None, None) => (args.law, tuning),
    }
}
