//! The command line of `assay guard`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use assay_proxy::postgres::lookup::QUERY;
use assay_reflect::law::{Law, Limit};
use clap::builder::TypedValueParser;
use clap::{Args, value_parser};

use super::PrintArgs;

/// `assay guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Address for the clients of the database, such as 127.0.0.1:6432.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Take over from the guard that listens at this address: new clients come to this one. The other one
    /// goes on with its sessions until SIGTERM.
    #[arg(long)]
    pub take_over: bool,
    /// PostgreSQL server, such as postgres://127.0.0.1:5432 or host=/run/postgresql. Clients log in as
    /// themselves.
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// Classes of transactions, in TOML: which are admitted first, and how long and how many of each wait. On
    /// SIGHUP, the guard reads this and its other files again, and goes on.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// List of the roles that may log in, and their secrets, in the format of PgBouncer. The guard asks for
    /// their passwords; without a list, the server does.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Role as which the guard looks up roles that are not in the list, at the server.
    #[arg(long, value_name = "ROLE", requires = "users")]
    pub auth_user: Option<String>,
    /// Query by which it does, which returns one row with the role $1 and its secret, or none.
    #[arg(long, value_name = "SQL", requires = "auth_user", default_value = QUERY)]
    pub auth_query: String,
    /// Database in which it does.
    #[arg(long, value_name = "NAME", requires = "auth_user", default_value = "postgres")]
    pub auth_dbname: String,
    /// Certificate for clients that ask for TLS, in PEM, with those of its authorities behind it.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Refuse sessions without TLS.
    #[arg(long, requires = "tls_cert")]
    pub require_tls: bool,
    /// Connect to the server with TLS, and check that one of the authorities in this file, in PEM, has signed
    /// its certificate for the host of --to. Without a file, `sslmode=require` in --to encrypts, and checks
    /// nothing.
    #[arg(long, value_name = "FILE")]
    pub server_ca: Option<PathBuf>,
    /// Control law, which sets how many transactions may be in flight; the others wait.
    #[arg(long, value_name = "LAW", default_value = "knee", value_parser = super::reflect::laws())]
    pub law: &'static Law,
    /// Limit that the law begins with [default: the number of processors].
    #[arg(long, value_name = "N", value_parser = limit())]
    pub start: Option<Limit>,
    /// Limit that never changes: the same as `--law fixed --start N`.
    #[arg(long, value_name = "N", conflicts_with_all = ["law", "start"], value_parser = limit())]
    pub limit: Option<Limit>,
    /// Observe only: no transaction waits for admission. The report has the productivity of the server by
    /// the number of transactions in flight.
    #[arg(long, conflicts_with_all = ["law", "start", "limit"])]
    pub shadow: bool,
    /// Limit the sessions instead of the transactions, as the paper does, to compare: each one holds its
    /// place until it ends.
    #[arg(long, conflicts_with = "shadow")]
    pub connection_level: bool,
    /// Longest time that a transaction waits, such as 500ms or 5s; after that, it is refused with SQLSTATE
    /// 57014, or 53300 if it lacks a connection of the server. With --connection-level, sessions wait no
    /// longer, either, and are refused with 53300.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = wait)]
    pub max_wait: Duration,
    /// Control group of the server in the unified hierarchy, whose processor time the law gets;
    /// `paper2003` requires it.
    #[arg(long, value_name = "PATH", required_if_eq("law", "paper2003"))]
    pub cgroup: Option<PathBuf>,
    /// Append each decision of the law to this file, as a line of JSON.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Answer Prometheus (/metrics) and health checks (/health) at this address, such as 127.0.0.1:9127.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Take commands over HTTP at this Unix socket, which only the user of the guard can reach: GET /status,
    /// POST /drain, POST /end-sessions with the name of a role as the body.
    #[arg(long, value_name = "PATH")]
    pub admin: Option<PathBuf>,
    /// Longest time for the sessions to end after SIGTERM or a command, such as 500ms or 5s. Each one ends
    /// when it is in no transaction; those that are left after this time are cut off.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    pub drain_time: Duration,
    /// Output format of the report at the end.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// Parses a time for which transactions or the guard wait.
pub fn wait(text: &str) -> Result<Duration, String> {
    let ms =
        text.strip_suffix("ms").and_then(|ms| ms.parse().ok()).filter(|ms| (1..=86_400_000).contains(ms));
    let wait = ms.map(Duration::from_millis);
    let wait = wait.or_else(|| super::budget(text).ok().filter(|_| text.ends_with(char::is_alphabetic)));
    wait.ok_or_else(|| "give a time between 1ms and 24h, such as 500ms or 60s".to_owned())
}

fn limit() -> impl TypedValueParser<Value = Limit> {
    value_parser!(u32).range(1..=i64::from(Limit::HIGHEST)).map(|units| Limit::nearest(f64::from(units)))
}
