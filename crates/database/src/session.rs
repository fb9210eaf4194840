//! A session of PostgreSQL 15 or later that queries what the server counts, and is not in the counts itself.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use postgres::config::{self, SslMode};
use postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Time for a connection to one host, and until one that has broken is given up, if the address gives no
/// other.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the counts need of the server and of the role. The timeout of the role is meant for other queries.
const REQUIREMENTS: &str = "SET LOCAL statement_timeout = 0; \
    SELECT current_setting('server_version_num'), pg_has_role('pg_read_all_stats', 'USAGE'), \
        quote_ident(current_user), current_setting('track_counts')";

/// The columns of [`Counts`]. The functions of the views `pg_stat_database` and `pg_stat_activity` take half
/// as long as the views. The session reports its transactions at the end of this one, so that the next answer
/// has them; `pg_stat_force_next_flush` is the newest function that is used.
const COUNTS: &str = "SET LOCAL statement_timeout = 0; \
    SELECT pg_stat_get_db_xact_commit(oid), pg_stat_get_db_xact_rollback(oid), pg_stat_get_db_deadlocks(oid), \
        waiting.*, pg_stat_force_next_flush() \
    FROM pg_database, LATERAL ( \
        SELECT count(*) FILTER (WHERE type = 'Lock'), count(*) FILTER (WHERE type = 'LWLock') \
        FROM pg_stat_get_backend_idset() AS id, pg_stat_get_backend_wait_event_type(id) AS type \
        WHERE pg_stat_get_backend_dbid(id) = oid \
    ) AS waiting \
    WHERE datname = current_database()";

/// Where a database is, and the role that queries it.
#[derive(Debug, Clone)]
pub struct Address(Config);

/// A text is not an address. It is not repeated here, because it may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address of the database cannot be read; give one such as postgres://user@host:5432/database, or \
     \"host=/run/postgresql dbname=database\", and write @ in a password as %40"
)]
pub struct BadAddress;

impl Address {
    /// Parses a URL, or the keywords and values of libpq (PostgreSQL's manual, *Connection Strings*). The
    /// password is used if the address contains none.
    ///
    /// # Errors
    /// If it is neither, or lacks the host.
    pub fn parse(text: &str, password: Option<&[u8]>) -> Result<Self, BadAddress> {
        let mut config: Config = text.parse().map_err(|_| BadAddress)?;
        // A password with an unescaped @ ends in the host.
        let is_host = |host: &config::Host| !matches!(host, config::Host::Tcp(name) if name.contains('@'));
        if !config.get_hosts().iter().all(is_host)
            || (config.get_hosts().is_empty() && config.get_hostaddrs().is_empty())
        {
            return Err(BadAddress);
        }
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(CONNECT_TIMEOUT).keepalives_idle(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("assay");
        }
        Ok(Self(config))
    }
}

/// A server of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// The name or the number of a host, and a port.
    Tcp(String, u16),
    /// The socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Whether connections have to be encrypted (`sslmode=require`).
    #[must_use]
    pub fn must_encrypt(&self) -> bool {
        self.0.get_ssl_mode() == SslMode::Require
    }

    /// Returns the server; `None` if the address has several.
    #[must_use]
    pub fn host(&self) -> Option<Host> {
        let Self(config) = self;
        let port = match config.get_ports() {
            [] => PORT,
            [port] => *port,
            _ => return None,
        };
        match (config.get_hostaddrs(), config.get_hosts()) {
            ([number], [] | [_]) => Some(Host::Tcp(number.to_string(), port)),
            ([], [config::Host::Tcp(name)]) => Some(Host::Tcp(name.clone(), port)),
            ([], [config::Host::Unix(directory)]) => {
                Some(Host::Unix(directory.join(format!(".s.PGSQL.{port}"))))
            }
            _ => None,
        }
    }

    /// Returns the name of the server, which its certificate has to have; `None` if the address has only
    /// numbers.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self.0.get_hosts() {
            [config::Host::Tcp(name)] => Some(name),
            _ => None,
        }
    }
}

/// The port of a server whose address has none.
const PORT: u16 = 5432;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(config) = self;
        f.write_str("the database ")?;
        if let Some(name) = config.get_dbname() {
            write!(f, "{name} ")?;
        }
        let mut hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
        if hosts.is_empty() {
            hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        }
        write!(f, "at {}", hosts.join(", "))?;
        match config.get_ports() {
            [] => Ok(()),
            ports => write!(f, ", port {}", ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

fn host(host: &config::Host) -> String {
    match host {
        config::Host::Tcp(name) => name.clone(),
        config::Host::Unix(path) => path.display().to_string(),
    }
}

/// An answer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Commits, rollbacks and deadlocks, all since the statistics were reset.
    pub transactions: [u64; 3],
    /// Sessions that wait for a lock, and sessions that wait for a lightweight one.
    pub waiting: [u64; 2],
}

/// A connection.
pub struct Session {
    client: Client,
    commits: Commits,
}

impl Session {
    /// Connects, and checks that the server counts and that the role may read the counts.
    pub fn open(address: &Address) -> Result<Self, String> {
        if address.must_encrypt() {
            return Err(
                "sslmode=require is not supported; connect through a Unix socket or a tunnel".to_owned()
            );
        }
        let Address(config) = address;
        let mut client = config.connect(NoTls).map_err(|error| reason(&error))?;
        let answer = row(&mut client, REQUIREMENTS)?;
        let text = |column| answer.get(column).unwrap_or_default();
        if text(0).parse().is_ok_and(|version: u32| version < 150_000) {
            return Err("the server is older than PostgreSQL 15".to_owned());
        }
        if text(1) != "t" {
            return Err(format!(
                "the role {0} may not see what other sessions wait for; GRANT pg_read_all_stats TO {0}",
                text(2)
            ));
        }
        if text(3) != "on" {
            return Err("the server does not count transactions; set its track_counts to on".to_owned());
        }
        // So that the session has nothing left to report.
        row(&mut client, COUNTS)?;
        Ok(Self { client, commits: Commits::default() })
    }

    /// Queries the counts.
    pub fn query(&mut self) -> Result<Counts, String> {
        let row = row(&mut self.client, COUNTS)?;
        let count = |column| {
            let text = row.get(column).unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("the server answered '{text}' instead of a count"))
        };
        Ok(Counts {
            transactions: [self.commits.of_others(count(0)?), count(1)?, count(2)?],
            waiting: [count(3)?, count(4)?],
        })
    }
}

/// The commits of a database without those of this session, each query of which is one.
#[derive(Debug, Default)]
struct Commits {
    /// All, in the last answer.
    last: Option<u64>,
    /// Those of this session since the first answer, or since the statistics were reset.
    own: u64,
}

impl Commits {
    /// Returns those of others, out of all that the next answer has.
    fn of_others(&mut self, all: u64) -> u64 {
        let goes_on = self.last.replace(all).is_some_and(|last| last <= all);
        self.own = if goes_on { self.own + 1 } else { 0 };
        all.saturating_sub(self.own)
    }
}

/// Returns the one row that answers a query.
fn row(client: &mut Client, query: &str) -> Result<SimpleQueryRow, String> {
    let messages = client.simple_query(query).map_err(|error| reason(&error))?;
    let row = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.ok_or_else(|| "the server has no statistics of this database".to_owned())
}

/// An error with its causes, or the message of the server.
fn reason(error: &postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commits_of_this_session_are_not_counted() {
        // The server's count has the commits of others, and one for each query before.
        let mut commits = Commits::default();
        assert_eq!([100, 101, 107, 108].map(|all| commits.of_others(all)), [100, 100, 105, 105]);
        // It was reset.
        assert_eq!([3, 4, 9].map(|all| commits.of_others(all)), [3, 3, 7]);
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = |text| Address::parse(text, Some(b"secret")).unwrap();
        for (text, shown) in [
            ("postgres://user:secret@one:5433,two/shop", "the database shop at one, two, port 5433, 5432"),
            ("host=/run/postgresql dbname=shop", "the database shop at /run/postgresql"),
            ("host=one hostaddr=127.0.0.1", "the database at one"),
            ("hostaddr=127.0.0.1 user=x", "the database at 127.0.0.1"),
        ] {
            assert_eq!(address(text).to_string(), shown);
            assert!(!format!("{:?}", address(text)).contains("secret"), "{text}");
        }
    }

    #[test]
    fn an_address_has_one_server_or_several() {
        let host = |text| Address::parse(text, None).unwrap().host();
        let tcp = |name: &str, port| Some(Host::Tcp(name.to_owned(), port));
        assert_eq!(host("postgres://user@one:5433/shop"), tcp("one", 5433));
        assert_eq!(host("host=one hostaddr=127.0.0.1"), tcp("127.0.0.1", 5432));
        assert_eq!(host("host=/run/x port=7"), Some(Host::Unix("/run/x/.s.PGSQL.7".into())));
        assert_eq!(host("postgres://one,two/shop"), None);
    }

    #[test]
    fn a_password_of_the_address_takes_precedence() {
        let password = |text| {
            let Address(config) = Address::parse(text, Some(b"given")).unwrap();
            config.get_password().map(<[u8]>::to_vec)
        };
        assert_eq!(password("postgres://user:own@one/shop"), Some(b"own".to_vec()));
        assert_eq!(password("postgres://user@one/shop"), Some(b"given".to_vec()));
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        for text in [
            "",
            "secret",
            "user=postgres",
            "postgres://user:secret@one:port/shop",
            "postgres://user:a@b@one/shop",
        ] {
            assert_eq!(Address::parse(text, None).unwrap_err(), BadAddress, "{text}");
        }
        let encrypted = Address::parse("postgres://user@one/shop?sslmode=require", None).unwrap();
        assert!(Session::open(&encrypted).is_err_and(|reason| reason.contains("sslmode=require")));
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_refused(
            text in "(postgres(ql)?://)?([a-z:@%/?=&,.\\[\\]0-9' \\\\]|host|port|sslmode|dbname|\\PC){0,40}"
        ) {
            if let Ok(address) = Address::parse(&text, None) {
                prop_assert!(address.to_string().starts_with("the database "));
            }
        }
    }
}
