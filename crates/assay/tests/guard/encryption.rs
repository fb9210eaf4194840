//! Sessions and connections to the server that are encrypted.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use assay_proxy::postgres::frame::message;
use assay_proxy::postgres::startup::Kind;
use postgres::NoTls;
use postgres::error::SqlState;
use rustix::process::{Pid, Signal, kill_process};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::client::{psql_session, psql_with};
use crate::postgres_server::Server;
use crate::users::list;
use crate::wire::{answer, packet};
use crate::{Guard, command, next_line, text};

/// Signs certificates.
pub struct Authority(TempDir);

/// A certificate and its key.
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The server runs as another user.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let own = Self(directory);
        own.openssl(&["req", "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca"]);
        own
    }

    /// Its own certificate.
    pub fn certificate(&self) -> String {
        self.0.path().join("ca").to_str().unwrap().to_owned()
    }

    /// Signs a certificate of a host.
    pub fn sign(&self, name: &str, host: &str) -> Files {
        let (certificate, key) = (self.0.path().join(name), self.0.path().join(format!("{name}.key")));
        let names = format!("subjectAltName={host}");
        let [certificate_path, key_path] = [&certificate, &key].map(|path| path.to_str().unwrap());
        self.openssl(
            &[
                &["req", "-x509", "-subj", "/CN=host", "-CA", "ca", "-CAkey", "ca.key"][..],
                &["-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"],
                &["-keyout", key_path, "-out", certificate_path],
            ]
            .concat(),
        );
        Files { certificate, key }
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(self.0.path()).args(arguments);
        openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        let output = openssl.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

impl Files {
    /// The options for the clients of a guard.
    pub fn options(&self) -> [&str; 4] {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.to_str().unwrap());
        ["--tls-cert", certificate, "--tls-key", key]
    }

    /// Takes the place of others.
    fn replace(&self, others: &Self) {
        fs::copy(&self.certificate, &others.certificate).unwrap();
        fs::copy(&self.key, &others.key).unwrap();
    }
}

/// A server with an address of the network.
pub struct Remote {
    server: Server,
    pub address: Ipv4Addr,
    files: Option<Files>,
}

impl Remote {
    /// A certificate of this authority makes it encrypt connections.
    pub fn start(authority: Option<&Authority>) -> Self {
        // No other server has an address of this machine that is made from the number of this process.
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = id().to_be_bytes();
        let address = Ipv4Addr::new(127, high | 0x80, low, NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut settings = vec![format!("listen_addresses={address}")];
        let files =
            authority.map(|authority| authority.sign("server", &format!("IP:{address},IP:127.0.0.1")));
        if let Some(Files { certificate, key }) = &files {
            assert!(Command::new("chown").arg("postgres").arg(key).status().unwrap().success());
            let (certificate, key) = (certificate.display(), key.display());
            settings.extend([
                "ssl=on".to_owned(),
                format!("ssl_cert_file={certificate}"),
                format!("ssl_key_file={key}"),
            ]);
        }
        let server = Server::start_with(&settings.iter().map(|setting| &**setting).collect::<Vec<_>>());
        // Passwords are required in the network only, from one role in the clear.
        let mut administrator = server.session();
        let file: String = administrator.query_one("SHOW hba_file", &[]).unwrap().get(0);
        let rules = format!(
            "CREATE ROLE clear PASSWORD 'right' LOGIN; ALTER ROLE postgres PASSWORD 'right'; \
             COPY (VALUES ('local all all trust'), ('host all clear all password'), \
                 ('host all all all scram-sha-256')) TO '{file}'"
        );
        administrator.batch_execute(&rules).unwrap();
        administrator.batch_execute("SELECT pg_reload_conf()").unwrap();
        let trusted = format!("host={address} user=postgres dbname=postgres");
        let asks = |error: postgres::Error| format!("{error:?}").contains("password missing");
        while !postgres::Client::connect(&trusted, NoTls).err().is_some_and(asks) {}
        Self { server, address, files }
    }

    /// Starts a guard in front of it.
    pub fn guard(&self, arguments: &[&str]) -> Guard {
        self.guard_with("", arguments)
    }

    /// Starts a guard with parameters of the address.
    fn guard_with(&self, parameters: &str, arguments: &[&str]) -> Guard {
        Guard::spawn(
            command(&["--limit", "2"]),
            &format!("postgres://{}{parameters}", self.address),
            arguments,
        )
    }
}

/// A guard with a list of users, both of whose sides are encrypted, and its server.
fn encrypted(authority: &Authority) -> (Remote, Guard) {
    let server = Remote::start(Some(authority));
    let files = authority.sign("guard", "IP:127.0.0.1");
    let users = list("\"postgres\" \"right\"\n\"clear\" \"right\"");
    let options = ["--users", users.path().to_str().unwrap(), "--server-ca", &authority.certificate()];
    let guard = server.guard(&[&options[..], &files.options()].concat());
    (server, guard)
}

/// Parameters for a session that is encrypted, with a guard whose certificate this authority has signed.
fn verified(guard: &Guard, authority: &Authority, role: &str) -> String {
    let certificate = authority.certificate();
    format!("{} sslmode=verify-full sslrootcert={certificate}", guard.parameters(role, "psql"))
}

/// Whether the session is encrypted, as both of its ends see it, and the server sees its own.
fn ends(parameters: &str) -> (bool, String) {
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let output =
        psql_session(parameters).args(["--command", "\\conninfo", "--command", query]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    (said.contains("SSL connection"), said.lines().last().unwrap().to_owned())
}

#[test]
fn both_sides_are_encrypted_and_logins_are_bound_to_them() {
    let authority = Authority::new();
    let (_server, guard) = encrypted(&authority);
    let plain = format!("{} sslmode=disable", guard.parameters("postgres", "psql"));
    assert_eq!(ends(&plain), (false, "t".to_owned()));
    for role in ["postgres", "clear"] {
        let bound = format!("{} channel_binding=require", verified(&guard, &authority, role));
        assert_eq!(ends(&bound), (true, "t".to_owned()));
    }
    // Much in both directions.
    let bound = verified(&guard, &authority, "postgres");
    let copied = "\\copy numbers from program 'seq 300000'";
    let query = "SELECT count(*), sum(n) FROM numbers";
    let long = "SELECT repeat('x', 20000000)";
    for (command, result) in [
        ("CREATE TABLE numbers (n int)", "CREATE TABLE\n"),
        (copied, "COPY 300000\n"),
        (query, "300000|45000150000\n"),
        (long, &*("x".repeat(20_000_000) + "\n")),
    ] {
        assert!(text(&psql_with(&bound, command).stdout) == result, "{command}");
    }
    let wrong = psql_with(&bound.replace("=right", "=wrong"), "SELECT 1");
    assert!(text(&wrong.stderr).contains("password authentication failed"), "{}", text(&wrong.stderr));
    let counts = guard.end();
    assert_eq!((counts.of("logged in"), counts.of("with TLS")), (7, 6));
    assert_eq!(
        (counts.of("connections of clients that could not"), counts.of("ended with an error")),
        (0, 0)
    );
}

#[test]
fn transactions_of_many_clients_are_encrypted_on_both_sides() {
    let authority = Authority::new();
    let (_server, guard) = encrypted(&authority);
    let pgbench = |arguments: &[&str]| {
        let mut command = Command::new("pgbench");
        let output = command.args(arguments).arg(verified(&guard, &authority, "postgres")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    pgbench(&["--initialize", "--quiet", "--init-steps=dtg"]);
    let report =
        pgbench(&["--no-vacuum", "--protocol=extended", "--client=8", "--jobs=8", "--transactions=20"]);
    assert!(report.contains("transactions actually processed: 160/160"), "{report}");
    let query =
        "SELECT (SELECT sum(bbalance) FROM pgbench_branches) = sum(delta), count(*) FROM pgbench_history";
    assert_eq!(text(&psql_with(&verified(&guard, &authority, "postgres"), query).stdout), "t|160\n");
    let mut session = guard.session("cancelled");
    let cancel = session.cancel_token();
    let sleeping = thread::spawn(move || session.batch_execute("SELECT pg_sleep(3600)").unwrap_err());
    while !sleeping.is_finished() {
        cancel.cancel_query(NoTls).unwrap();
    }
    assert_eq!(sleeping.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
    let counts = guard.end();
    assert!(counts.of("requests to cancel") > 0 && counts.of("admitted after a wait") > 0, "{}", counts.0);
}

#[test]
fn the_certificate_of_the_server_is_checked() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let server = Remote::start(Some(&authority));
    let users = list("\"postgres\" \"right\"");
    let users = ["--users", users.path().to_str().unwrap()];
    for (arguments, host, reason) in [
        (&["--server-ca", &*other.certificate()][..], "", "invalid peer certificate"),
        (&["--server-ca", &authority.certificate()], "localhost", "not valid for name"),
    ] {
        for users in [&users[..], &[]] {
            let arguments = [arguments, users].concat();
            let guard = match host {
                "" => server.guard(&arguments),
                // The certificate is for another name than that of the address.
                host => {
                    let to = format!("host={host} hostaddr={}", server.address);
                    Guard::spawn(command(&["--limit", "2"]), &to, &arguments)
                }
            };
            let error = guard.connect("postgres", "same").err().unwrap();
            assert_eq!(error.code(), Some(&SqlState::CONNECTION_FAILURE), "{error}");
            let message = error.as_db_error().unwrap().message();
            assert!(message.contains(reason), "{message}");
            guard.end();
        }
    }
    // Without authorities, any will do.
    let guard = server.guard_with("?sslmode=require", &users);
    assert_eq!(ends(&guard.parameters("postgres", "psql")), (false, "t".to_owned()));
    guard.end();
    let without = Remote::start(None);
    let guard = without.guard_with("?sslmode=require", &[]);
    let error = guard.connect("postgres", "same").err().unwrap();
    assert!(error.as_db_error().unwrap().message().contains("it does not offer TLS"), "{error:?}");
    guard.end();
    drop(without.server);
}

#[test]
fn clients_log_in_at_a_server_to_which_the_guard_encrypts() {
    let authority = Authority::new();
    let server = Remote::start(Some(&authority));
    let files = authority.sign("guard", "IP:127.0.0.1");
    let ca = authority.certificate();
    let guard = server.guard(&[&["--server-ca", &*ca][..], &files.options()].concat());
    for role in ["postgres", "clear"] {
        let parameters = guard.parameters(role, "psql");
        assert_eq!(ends(&format!("{parameters} sslmode=disable")), (false, "t".to_owned()));
        let encrypted = format!("{} channel_binding=disable", verified(&guard, &authority, role));
        assert_eq!(ends(&encrypted), (true, "t".to_owned()));
    }
    // A client that could bind its login is at another end than that of the server.
    let output = psql_with(&verified(&guard, &authority, "postgres"), "SELECT 1");
    assert!(
        text(&output.stderr).contains("connect with channel_binding=disable"),
        "{}",
        text(&output.stderr)
    );
    guard.end();
    // With the certificate of the server, the guard is the same end.
    let same = server.files.as_ref().unwrap().options();
    let guard = server.guard(&[&["--server-ca", &*ca][..], &same].concat());
    let bound = format!("{} channel_binding=require", verified(&guard, &authority, "postgres"));
    assert_eq!(ends(&bound), (true, "t".to_owned()));
    guard.end();
}

#[test]
fn a_client_must_ask_for_tls_and_then_use_it() {
    let server = Server::start();
    let authority = Authority::new();
    let files = authority.sign("guard", "IP:127.0.0.1");
    let guard = Guard::start(&server, &[&["--limit", "1", "--require-tls"][..], &files.options()].concat());
    let error = guard.connect("postgres", "same").err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{error}");
    assert_eq!(ends(&verified(&guard, &authority, "postgres")), (true, "f".to_owned()));
    let early = answer(&guard, &[&Kind::Tls.packet()[..], b"\0"].concat());
    assert!(
        early.starts_with('E') && early.contains("between its request for TLS and the answer"),
        "{early}"
    );
    // It does not use it, ends in the middle, or does not know the certificate.
    let mut client = request_tls(&guard);
    client.write_all(b"\0\0\0\x12\0\x03\0\0user\0postgres\0\0").unwrap();
    let mut alert = Vec::new();
    client.read_to_end(&mut alert).unwrap();
    assert_eq!(alert[..3], [21, 3, 3]);
    drop(request_tls(&guard));
    let other = Authority::new();
    let output = psql_with(&verified(&guard, &other, "postgres"), "SELECT 1");
    assert!(text(&output.stderr).contains("certificate verify failed"), "{}", text(&output.stderr));
    let mut client = connect(&guard, &other);
    assert!(client.write_all(b"x").is_err());
    // The guard has read why when it closes the connection.
    client.sock.read_to_end(&mut Vec::new()).unwrap();
    let counts = guard.end();
    assert_eq!(counts.of("logged in"), 1);
    assert!(counts.of("connections of clients that could not") >= 2, "{}", counts.0);
}

/// A client that has asked for TLS, and was answered.
fn request_tls(guard: &Guard) -> TcpStream {
    let mut client = TcpStream::connect(guard.address).unwrap();
    client.write_all(&Kind::Tls.packet()).unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"S");
    client
}

/// A client of TLS that is written by hand.
fn connect(guard: &Guard, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.certificate()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::from(guard.address.ip());
    StreamOwned::new(ClientConnection::new(config.into(), name).unwrap(), request_tls(guard))
}

#[test]
fn a_client_that_reads_slowly_and_sends_meanwhile_gets_everything() {
    let server = Server::start();
    let authority = Authority::new();
    let files = authority.sign("guard", "IP:127.0.0.1");
    let guard = Guard::start(&server, &[&["--limit", "1"][..], &files.options()].concat());
    let mut client = connect(&guard, &authority);
    client.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(&packet("user\0postgres\0database\0postgres\0\0")).unwrap();
    client.write_all(&message(b'Q', b"SELECT repeat('x', 40000000)\0")).unwrap();
    // The guard and the kernel take part of the result only. The next query comes a byte at a time meanwhile.
    let next = message(b'Q', format!("SELECT{}'end'\0", " ".repeat(8000)).as_bytes());
    let (last, meanwhile) = next.split_last().unwrap();
    let (mut meanwhile, mut result, mut part) = (meanwhile.iter(), Vec::new(), vec![0; 4 << 10]);
    let mut read = |client: &mut StreamOwned<_, _>| {
        let length = client.read(&mut part).unwrap();
        result.extend_from_slice(&part[..length]);
        result.ends_with(b"SELECT 1\0Z\0\0\0\x05I")
    };
    let mut administrator = server.session();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
    while administrator.query_one(waits, &[]).unwrap().get::<_, i64>(0) == 0 {}
    while !read(&mut client) {
        meanwhile.next().into_iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
    }
    assert_eq!(meanwhile.next(), None);
    client.write_all(&[*last]).unwrap();
    while !read(&mut client) {}
    assert!(result.len() > 40_000_000);
    guard.end();
}

#[test]
fn files_are_read_again_on_request_and_change_nothing_if_they_cannot_be_used() {
    let server = Server::start();
    let [before, after] = [Authority::new(), Authority::new()];
    let [files, broken, new] = [(&before, "guard"), (&before, "broken"), (&after, "new")]
        .map(|(by, name)| by.sign(name, "IP:127.0.0.1"));
    fs::write(&broken.key, "no key").unwrap();
    let mut guard = Guard::start(&server, &[&["--limit", "1"][..], &files.options()].concat());
    let works = |guard: &Guard, authority: &Authority| {
        psql_with(&verified(guard, authority, "postgres"), "SELECT 1").status.success()
    };
    let mut earlier = psql_session(&verified(&guard, &before, "postgres"));
    let mut earlier = earlier.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut commands = earlier.stdin.take().unwrap();
    commands.write_all(b"\\echo begun\n").unwrap();
    let mut output = earlier.stdout.take().unwrap();
    output.read_exact(&mut [0; 6]).unwrap();
    assert_eq!((works(&guard, &before), works(&guard, &after)), (true, false));
    for (next, message, of_before) in [
        (
            &broken,
            "there is no private key in PEM; one that is encrypted itself cannot be read; all files stay",
            true,
        ),
        (&new, "all files were read again", false),
    ] {
        next.replace(&files);
        kill_process(Pid::from_child(&guard.child), Signal::HUP).unwrap();
        let line = next_line(&mut guard.messages);
        assert!(line.contains(message), "{line}");
        assert_eq!((works(&guard, &before), works(&guard, &after)), (of_before, !of_before));
    }
    commands.write_all(b"SELECT 'goes on';\n").unwrap();
    drop(commands);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "goes on\n");
    assert!(earlier.wait().unwrap().success());
    guard.end();
}

#[test]
fn files_that_cannot_be_used_are_refused_in_one_line() {
    let authority = Authority::new();
    let [files, other] = ["one", "other"].map(|name| authority.sign(name, "IP:127.0.0.1"));
    let [certificate, key, other_key] = [&files.certificate, &files.key, &other.key];
    let open = authority.0.path().join("open");
    fs::copy(key, &open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    let (missing, empty) = (Path::new("/no/file"), authority.0.path().join("empty"));
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, Permissions::from_mode(0o600)).unwrap();
    let options = |certificate: &Path, key: &Path| {
        ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()].map(str::to_owned)
    };
    let one = |option: &str, value: &Path| [option, value.to_str().unwrap()].map(str::to_owned);
    for (arguments, to, message) in [
        (&options(certificate, other_key)[..], "host=/run/x", "the key is not that of the certificate"),
        (&options(key, key), "host=/run/x", "there is no certificate in PEM"),
        (&options(certificate, &empty), "host=/run/x", "there is no private key in PEM"),
        (&options(certificate, &open), "host=/run/x", "others can read or change the key"),
        (&options(missing, key), "host=/run/x", "cannot open the certificate /no/file"),
        (&one("--tls-cert", certificate), "host=/run/x", "--tls-key <FILE>"),
        (&["--require-tls".to_owned()], "host=/run/x", "--tls-cert <FILE>"),
        (&one("--server-ca", key), "127.0.0.1", "there is no certificate in PEM"),
        (&one("--server-ca", missing), "127.0.0.1", "cannot open the authorities /no/file"),
        (&one("--server-ca", certificate), "host=/run/x", "a Unix socket is not encrypted"),
    ] {
        let to = if to.starts_with("host") { to.to_owned() } else { format!("postgres://{to}") };
        let mut guard = command(&["--listen", "127.0.0.1:0", "--to", &to]);
        let output = guard.args(arguments).output().unwrap();
        let messages = text(&output.stderr);
        assert!(!output.status.success() && messages.contains(message), "{messages}");
        assert!(output.stdout.is_empty() && !messages.contains("relaying"), "{messages}");
    }
}
