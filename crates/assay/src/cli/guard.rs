//! The command line of `assay guard`.

use std::net::SocketAddr;
use std::time::Duration;

use assay_reflect::law::Limit;
use clap::{Args, value_parser};

use super::PrintArgs;

/// `assay guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Address for the clients of the database, such as 127.0.0.1:6432.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// PostgreSQL server, such as postgres://127.0.0.1:5432 or host=/run/postgresql. Clients log in as
    /// themselves.
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// Transactions that may be in flight; the others wait.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(Limit::HIGHEST)))]
    pub limit: u32,
    /// Longest time that a transaction waits, such as 5s; after that, it is refused with SQLSTATE 57014.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::budget)]
    pub max_wait: Duration,
    /// Output format of the report at the end.
    #[command(flatten)]
    pub print: PrintArgs,
}
