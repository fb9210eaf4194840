//! A file server that tunes itself: its progress is the number of requests served, and a control law limits
//! how many of them are served at a time.
//!
//!     cargo run --release --package assay-reflect --example file_server -- DIRECTORY
//!
//! A thread answers each connection. It reads a file completely before it sends the answer, so that no answer
//! breaks off because of the disk; many requests at a time take the memory that would keep the files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use assay_reflect::advice::{Advice, Queue};
use assay_reflect::gate::Gate;
use assay_reflect::law::{Law, Limit, Tuning};
use assay_reflect::progress::Progress;
use clap::Parser;
use memmap2::MmapMut;

/// Longest head of a request, in bytes.
const LONGEST_HEAD: usize = 8 << 10;

/// Time after which a client that neither sends nor receives is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves the files of a directory by HTTP/1.1, as many at a time as a control law permits. `/health` is answered
/// without waiting.
#[derive(Debug, Parser)]
struct Args {
    /// Directory of the files
    directory: PathBuf,
    /// Address to listen at
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Control law (see `assay reflect simulate`)
    #[arg(long, default_value = "knee", value_parser = |name: &str| Law::named(name).ok_or("no such law"))]
    law: &'static Law,
    /// First limit [default: one request for each processor]
    #[arg(long)]
    limit: Option<u32>,
    /// File that counts the requests, for `assay reflect watch --progress`
    #[arg(long)]
    progress: Option<PathBuf>,
}

/// What all connections share.
#[derive(Debug)]
struct Files {
    directory: PathBuf,
    gate: Gate,
    progress: Option<Progress>,
    /// What a request for a file is, and one for `/health`.
    file: Advice,
    health: Advice,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    serve(&listener, &Arc::new(Files::open(args)?))
}

/// Answers each connection in a thread of its own.
fn serve(listener: &TcpListener, files: &Arc<Files>) -> anyhow::Result<()> {
    loop {
        let (connection, client) = listener.accept()?;
        let files = Arc::clone(files);
        let answer = move || {
            if let Err(error) = files.answer(connection) {
                let _ = writeln!(io::stderr(), "{client}: {error}");
            }
        };
        thread::Builder::new().spawn(answer)?;
    }
}

impl Files {
    fn open(args: Args) -> anyhow::Result<Self> {
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

    /// Answers the requests of a connection, until the client closes it.
    fn answer(&self, mut connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        let mut head = [0; LONGEST_HEAD];
        let mut filled = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&head[..filled]) {
                Ok(httparse::Status::Complete(length)) => {
                    match (request.method, request.path) {
                        (Some("GET"), Some(path)) => self.get(&mut connection, path)?,
                        _ => return send(&mut connection, "405 Method Not Allowed", &[]),
                    }
                    head.copy_within(length..filled, 0);
                    filled -= length;
                }
                Ok(httparse::Status::Partial) if filled < head.len() => {
                    match connection.read(&mut head[filled..])? {
                        0 => return Ok(()),
                        read => filled += read,
                    }
                }
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return send(&mut connection, "431 Request Header Fields Too Large", &[]);
                }
                Err(_) => return send(&mut connection, "400 Bad Request", &[]),
            }
        }
    }

    /// Answers one request when the gate admits it.
    fn get(&self, connection: &mut TcpStream, path: &str) -> io::Result<()> {
        let is_health = path == "/health";
        let permit = self.gate.enter(if is_health { &self.health } else { &self.file });
        if is_health {
            send(connection, "200 OK", b"ok\n")?;
        } else if let Ok(content) = self.content(path) {
            send(connection, "200 OK", &content)?;
        } else {
            send(connection, "404 Not Found", &[])?;
        }
        permit.finished();
        if let Some(progress) = &self.progress {
            progress.finished(1);
        }
        Ok(())
    }

    /// Reads a file, into memory that is given back after the answer.
    fn content(&self, path: &str) -> io::Result<MmapMut> {
        let inside = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
        let mut file = File::open(self.directory.join(inside.collect::<PathBuf>()))?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut content = MmapMut::map_anon(length)?;
        file.read_exact(&mut content)?;
        Ok(content)
    }
}

fn send(connection: &mut TcpStream, status: &str, content: &[u8]) -> io::Result<()> {
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", content.len())?;
    connection.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of a directory with one file, and its address and counter.
    fn served(directory: &Path, limit: u32) -> (SocketAddr, assay_reflect::progress::Observed) {
        let root = directory.join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "content").unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        std::fs::write(directory.join("secret"), "secret").unwrap();
        let progress = directory.join("progress");
        let args = Args {
            directory: root,
            listen: ([127, 0, 0, 1], 0).into(),
            law: Law::named("fixed").unwrap(),
            limit: Some(limit),
            progress: Some(progress.clone()),
        };
        let listener = TcpListener::bind(args.listen).unwrap();
        let address = listener.local_addr().unwrap();
        let files = Arc::new(Files::open(args).unwrap());
        thread::spawn(move || serve(&listener, &files));
        (address, assay_reflect::progress::Observed::open(&progress).unwrap())
    }

    /// Everything that the server answers to this.
    fn answers(address: SocketAddr, requests: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.write_all(requests).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        connection.read_to_string(&mut answers).unwrap();
        answers
    }

    #[test]
    fn files_are_served_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path(), 1);
        let ok =
            |content: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len());
        let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let requests = b"GET /file HTTP/1.1\r\n\r\nGET /missing HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n";
        assert_eq!(answers(address, requests), format!("{}{not_found}{}", ok("content"), ok("ok\n")));
        assert_eq!(progress.read().unwrap().finished, 3);
        assert_eq!(progress.advice().unwrap().unit, "request");
        assert_eq!(answers(address, b"GET /empty HTTP/1.1\r\n\r\n"), ok(""));
        // Nothing outside of the directory is served.
        for path in ["/../secret", "//..//secret", "/%2e%2e/secret", "/."] {
            let requests = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(answers(address, requests.as_bytes()), not_found, "{path}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path(), 1);
        let long = [b"GET /".as_slice(), &vec![b'x'; LONGEST_HEAD]].concat();
        for (requests, status) in [
            (b"\0\r\n\r\n".as_slice(), "400 Bad Request"),
            (b"POST /file HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (&long[..LONGEST_HEAD], "431 Request Header Fields Too Large"),
        ] {
            let answer = answers(address, requests);
            assert_eq!(answer, format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
        assert_eq!(answers(address, b"GET /file HTTP/1.1\r\n"), "");
        assert_eq!(progress.read().unwrap().finished, 0);
    }

    #[test]
    fn health_is_answered_while_the_limit_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let (address, progress) = served(directory.path(), 1);
        // More than a connection holds, and that nothing reads.
        let large = File::create(directory.path().join("root/large")).unwrap();
        large.set_len(64 << 20).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /large HTTP/1.1\r\n\r\n").unwrap();
        slow.read_exact(&mut [0; 12]).unwrap();
        assert!(answers(address, b"GET /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
        assert_eq!(progress.read().unwrap().finished, 1);
    }
}
