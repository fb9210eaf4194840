//! The server that the guard relays.

use std::net::ToSocketAddrs;

use anyhow::{Context, bail};
use assay_database::{Address, Host};
use assay_proxy::Server;

/// A server.
pub struct Target {
    /// Where it is.
    pub server: Server,
    /// The name that its certificate has to have; `None` for a Unix socket, which is not encrypted.
    pub name: Option<String>,
    /// Whether its address says that connections are encrypted.
    pub must_encrypt: bool,
}

impl Target {
    /// The server of an address. Its name is looked up once.
    pub fn of(address: &str) -> anyhow::Result<Self> {
        let address = Address::parse(address, None)?;
        let must_encrypt = address.must_encrypt();
        match address.host() {
            None => bail!("--to has several servers; give one"),
            Some(Host::Unix(path)) => Ok(Self { server: Server::Unix(path), name: None, must_encrypt }),
            Some(Host::Tcp(host, port)) => {
                let look_up = || format!("cannot find the host {}", assay_report::visible(&host));
                let mut found = (&*host, port).to_socket_addrs().with_context(look_up)?;
                let server = Server::Tcp(found.next().with_context(look_up)?);
                let name = Some(address.name().unwrap_or(&host).to_owned());
                Ok(Self { server, name, must_encrypt })
            }
        }
    }
}
