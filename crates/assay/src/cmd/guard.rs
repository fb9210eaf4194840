//! `assay guard`: relays a database, and limits the transactions that are in flight.

use std::net::ToSocketAddrs;

use anyhow::{Context, bail};
use assay_database::{Address, Host};
use assay_proxy::{Options, Relay, Server};

use crate::cli::GuardArgs;
use crate::interrupt::Interrupt;
use crate::{open_files, output, section};

/// Runs the subcommand.
pub fn run(args: &GuardArgs) -> anyhow::Result<()> {
    let server = server(&args.to)?;
    open_files::raise_limit();
    let interrupt = Interrupt::listen()?;
    let options = Options { listen: args.listen, server, limit: args.limit, longest_wait: args.max_wait };
    let to = options.server.to_string();
    let relay = Relay::listen(options)?;
    output::say(&format!("relaying {} to {to}", relay.address()));
    let counts = relay.run(interrupt.flag()).context("cannot wait for the clients and the server")?;
    output::show(&section::guard::report(&counts), args.print.format())
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
