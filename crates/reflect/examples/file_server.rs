//! A file server that tunes itself: its progress is the number of requests served, and a control law limits
//! how many of them are served at a time.
//!
//!     cargo run --release --package assay-reflect --example file_server -- DIRECTORY
//!
//! A thread answers each connection. It reads a file completely before it sends the answer, so that no answer
//! breaks off because of the disk. Many requests at a time use the memory in which the kernel caches files.

use std::convert::Infallible;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use assay_process::clock::now;
use assay_reflect::advice::{Advice, Queue};
use assay_reflect::gate::Gate;
use assay_reflect::law::{LAWS, Law, Limit, Tuning};
use assay_reflect::progress::Progress;
use clap::Parser;
use memmap2::MmapMut;

/// Longest head of a request, in bytes.
const LONGEST_HEAD: usize = 8 << 10;

/// Longest time in which a client sends a request, or receives an answer: a slow one holds its permit.
const LONGEST_TIME: Duration = Duration::from_secs(30);

/// Pause after a connection could not be accepted or answered, for want of descriptors or threads.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the files of a directory by HTTP/1.1, as many at a time as a control law permits.
///
/// `/health` is answered without waiting. Links are followed.
#[derive(Debug, Parser)]
struct Args {
    /// Directory of the files.
    directory: PathBuf,
    /// Address to listen at.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Control law.
    #[arg(long, default_value = "knee", value_parser = law)]
    law: &'static Law,
    /// First limit [default: one request for each processor].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(Limit::HIGHEST)))]
    limit: Option<u32>,
    /// File that counts the requests, for `assay reflect watch --progress`.
    #[arg(long)]
    progress: Option<PathBuf>,
}

fn law(name: &str) -> Result<&'static Law, String> {
    Law::named(name).ok_or_else(|| format!("give one of {}", LAWS.each_ref().map(|law| law.name).join(", ")))
}

/// What all connections share.
#[derive(Debug)]
struct Files {
    directory: PathBuf,
    gate: Gate,
    progress: Option<Progress>,
    /// On a request for a file, and on one for `/health`.
    file: Advice,
    health: Advice,
}

fn main() -> ExitCode {
    let Err(error) = run(Args::parse());
    let _ = writeln!(io::stderr(), "file_server: {error}");
    ExitCode::FAILURE
}

fn run(args: Args) -> Result<Infallible, Box<dyn Error>> {
    if !args.directory.is_dir() {
        return Err(format!("{} is not a directory", args.directory.display()).into());
    }
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| format!("cannot listen at {}: {error}", args.listen))?;
    let files = Arc::new(Files::open(args)?);
    writeln!(io::stdout(), "listening at http://{}/", listener.local_addr()?)?;
    serve(&listener, &files)
}

/// Answers each connection in a thread of its own.
fn serve(listener: &TcpListener, files: &Arc<Files>) -> ! {
    loop {
        let started = listener.accept().and_then(|(connection, _)| {
            let files = Arc::clone(files);
            // An error is one of this client, which has gone or is too slow.
            thread::Builder::new().spawn(move || files.answer(connection))
        });
        if let Err(error) = started {
            let _ = writeln!(io::stderr(), "cannot answer a connection: {error}");
            thread::sleep(PAUSE);
        }
    }
}

impl Files {
    fn open(args: Args) -> Result<Self, Box<dyn Error>> {
        let file = Advice { unit: "request".to_owned(), ..Advice::default() };
        let health = Advice { queue: Queue::Never, ..file.clone() };
        let progress = args.progress.as_deref().map(Progress::create).transpose()?;
        if let Some(progress) = &progress {
            progress.advise(&file)?;
        }
        let mut tuning = Tuning::advised(&file, thread::available_parallelism()?.get());
        if let Some(limit) = args.limit {
            tuning.start = Limit::nearest(f64::from(limit));
        }
        let (mut elapsed, mut limit) = (Duration::ZERO, tuning.start);
        let gate = Gate::open(args.law, tuning, move |signal, decision| {
            elapsed += signal.period;
            if std::mem::replace(&mut limit, decision.limit) != decision.limit {
                let (limit, reason) = (decision.limit.units(), decision.reason);
                let _ = writeln!(io::stdout(), "{:.1} s: limit {limit}: {reason}", elapsed.as_secs_f64());
            }
        })?;
        Ok(Self { directory: args.directory, gate, progress, file, health })
    }

    /// Answers the requests of a connection, until the client closes it or asks for that.
    fn answer(&self, connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut client = Client { connection, deadline: now() + LONGEST_TIME };
        let mut head = [0; LONGEST_HEAD];
        let mut filled = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&head[..filled]) {
                Ok(httparse::Status::Complete(_)) if has_content(&request) => {
                    return client.refuse("400 Bad Request");
                }
                Ok(httparse::Status::Complete(length)) => {
                    match (request.method, request.path) {
                        (Some("GET"), Some(path)) => self.get(&mut client, path)?,
                        _ => return client.refuse("405 Method Not Allowed"),
                    }
                    if is_last(&request) {
                        return Ok(());
                    }
                    head.copy_within(length..filled, 0);
                    filled -= length;
                }
                Ok(httparse::Status::Partial) if filled < head.len() => {
                    match client.read(&mut head[filled..])? {
                        0 => return Ok(()),
                        read => filled += read,
                    }
                }
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return client.refuse("431 Request Header Fields Too Large");
                }
                Err(_) => return client.refuse("400 Bad Request"),
            }
        }
    }

    /// Answers one request when the gate admits it.
    fn get(&self, client: &mut Client, path: &str) -> io::Result<()> {
        let is_health = path == "/health";
        let permit = self.gate.enter(if is_health { &self.health } else { &self.file });
        client.deadline = now() + LONGEST_TIME;
        let served = if is_health { client.send("200 OK", b"ok\n") } else { self.file(client, path) };
        match served {
            Ok(()) => permit.finished(),
            Err(_) => drop(permit),
        }
        if let Some(progress) = &self.progress {
            if served.is_ok() { progress.finished(1) } else { progress.failed(1) }
        }
        client.deadline = now() + LONGEST_TIME;
        served
    }

    /// Sends a file. One that does not exist is an answer, too; any other error is a failure.
    fn file(&self, client: &mut Client, path: &str) -> io::Result<()> {
        let inside = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
        match content(&self.directory.join(inside.collect::<PathBuf>())) {
            Ok(content) => client.send("200 OK", &content),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                client.send("404 Not Found", &[])
            }
            Err(error) => client.refuse("500 Internal Server Error").and(Err(error)),
        }
    }
}

/// Reads a file, into memory that is given back after the answer.
fn content(path: &Path) -> io::Result<MmapMut> {
    // A pipe without a writer would otherwise wait for one.
    let mut file: File = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    let mut content = MmapMut::map_anon(usize::try_from(status.len()).map_err(io::Error::other)?)?;
    file.read_exact(&mut content)?;
    Ok(content)
}

/// Whether a request has content, which this server does not read.
fn has_content(request: &httparse::Request<'_, '_>) -> bool {
    let is_content =
        |name: &str| ["content-length", "transfer-encoding"].iter().any(|n| n.eq_ignore_ascii_case(name));
    request.headers.iter().any(|header| is_content(header.name))
}

/// Whether the client expects the connection to end after the answer.
fn is_last(request: &httparse::Request<'_, '_>) -> bool {
    let closes = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("connection") && header.value.eq_ignore_ascii_case(b"close")
    };
    request.version == Some(0) || request.headers.iter().any(closes)
}

/// A connection that ends if the client is too slow.
#[derive(Debug)]
struct Client {
    connection: TcpStream,
    deadline: Instant,
}

impl Client {
    fn send(&mut self, status: &str, content: &[u8]) -> io::Result<()> {
        self.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", content.len()).as_bytes())?;
        self.write_all(content)
    }

    /// Sends an answer without content. The connection ends after it.
    fn refuse(&mut self, status: &str) -> io::Result<()> {
        self.write_all(
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.connection.set_read_timeout(self.left()?)?;
        self.connection.read(buffer)
    }
}

impl Write for Client {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.connection.set_write_timeout(self.left()?)?;
        self.connection.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.connection.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use assay_reflect::progress::{Observed, Units};

    use super::*;

    /// A server of a directory, with a limit of one, and its address and counter.
    fn served(directory: &Path) -> (SocketAddr, Observed) {
        let root = directory.join("root");
        std::fs::create_dir(&root).unwrap();
        let progress = directory.join("progress");
        let args = Args {
            directory: root,
            listen: ([127, 0, 0, 1], 0).into(),
            law: Law::named("fixed").unwrap(),
            limit: Some(1),
            progress: Some(progress.clone()),
        };
        let listener = TcpListener::bind(args.listen).unwrap();
        let address = listener.local_addr().unwrap();
        let files = Arc::new(Files::open(args).unwrap());
        thread::spawn(move || serve(&listener, &files));
        (address, Observed::open(&progress).unwrap())
    }

    /// Everything that the server answers to this, until it closes the connection.
    fn answers(address: SocketAddr, requests: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(LONGEST_TIME)).unwrap();
        connection.write_all(requests).unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
        let mut answers = String::new();
        connection.read_to_string(&mut answers).unwrap();
        answers
    }

    fn get(path: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\n\r\n").into_bytes()
    }

    fn ok(content: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len())
    }

    const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn files_are_served_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path());
        let root = directory.path().join("root");
        std::fs::write(root.join("file"), "content").unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        let requests = ["/file", "/missing", "/file/missing", "/empty", "/health"].map(get).concat();
        let expected = [&ok("content"), NOT_FOUND, NOT_FOUND, &ok(""), &ok("ok\n")].concat();
        assert_eq!(answers(address, &requests), expected);
        assert_eq!(progress.read().unwrap(), Units { finished: 5, failed: 0 });
        assert_eq!(progress.advice().unwrap().unit, "request");
    }

    #[test]
    fn only_files_of_the_directory_are_served() {
        let directory = tempfile::tempdir().unwrap();
        let (address, _) = served(directory.path());
        std::fs::write(directory.path().join("secret"), "secret").unwrap();
        let pipe = directory.path().join("root/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        for path in ["/../secret", "//..//secret", "/%2e%2e/secret", "/.", "/pipe"] {
            assert_eq!(answers(address, &get(path)), NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path());
        std::os::unix::fs::symlink("loop", directory.path().join("root/loop")).unwrap();
        let requests = ["/loop", "/health"].map(get).concat();
        let expected = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(answers(address, &requests), expected);
        assert_eq!(progress.read().unwrap(), Units { finished: 0, failed: 1 });
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path());
        let long = [b"GET /".as_slice(), &vec![b'x'; LONGEST_HEAD]].concat();
        for (requests, status) in [
            (b"\0\r\n\r\n".as_slice(), "400 Bad Request"),
            (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\n", "400 Bad Request"),
            (b"POST /file HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (&long[..LONGEST_HEAD], "431 Request Header Fields Too Large"),
        ] {
            let expected = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            assert_eq!(answers(address, requests), expected);
        }
        assert_eq!(answers(address, b"GET /file HTTP/1.1\r\n"), "");
        assert_eq!(progress.read().unwrap(), Units::default());
    }

    #[test]
    fn a_connection_ends_if_the_client_asks_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let (address, _) = served(directory.path());
        for head in ["HTTP/1.0\r\n", "HTTP/1.1\r\nConnection: Close\r\n"] {
            let request = format!("GET /missing {head}\r\n");
            assert_eq!(answers(address, request.repeat(2).as_bytes()), NOT_FOUND, "{head}");
        }
    }

    #[test]
    fn health_is_answered_while_the_limit_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path());
        // More than the buffers of a connection hold.
        File::create(directory.path().join("root/large")).unwrap().set_len(64 << 20).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(&get("/large")).unwrap();
        slow.read_exact(&mut [0; 12]).unwrap();
        assert_eq!(answers(address, &get("/health")), ok("ok\n"));
        assert_eq!(progress.read().unwrap(), Units { finished: 1, failed: 0 });
    }
}
