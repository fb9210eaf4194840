//! A server of HTTP/1.1 for who runs a process: one request on each connection, in a thread of its own, with
//! bounds for its size and its time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use assay_process::clock::now;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done with the path.
    pub method: String,
    /// Without a query.
    pub path: String,
    /// What it brings.
    pub body: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// Its media type.
    pub media_type: &'static str,
    /// The text.
    pub body: String,
}

/// A connection that can time out.
pub trait Socket: Read + Write + Send + 'static {
    /// Sets the longest time of a read and of a write.
    fn set_timeout(&self, time: Duration) -> io::Result<()>;

    /// Sends nothing more.
    fn end(&self) -> io::Result<()>;
}

/// The longest head of a request, and the most headers in it. Those of browsers are far below.
const LONGEST_HEAD: usize = 8192;
const MOST_HEADERS: usize = 64;

/// The longest body. None has more than a name.
const LONGEST_BODY: usize = 1024;

/// Time for a client to send its request, to take the answer, and to end.
const TIME: Duration = Duration::from_secs(5);

/// Connections at a time. A further one is closed at once.
const MOST_CLIENTS: usize = 64;

/// Time after which a client is accepted again, if there were too many files.
const PAUSE: Duration = Duration::from_millis(100);

impl Socket for TcpStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Socket for UnixStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Answer {
    /// Returns one with a plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, media_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// Answers requests until the process ends, each one in a thread of its own.
pub fn serve<S: Socket>(
    accept: impl Fn() -> io::Result<S> + Send + 'static,
    answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    thread::spawn(move || {
        loop {
            match accept() {
                Ok(socket) if Arc::strong_count(&answer) <= MOST_CLIENTS => {
                    let answer = Arc::clone(&answer);
                    // Without a thread, the connection is closed. A client that has gone needs no answer.
                    let _ = thread::Builder::new().spawn(move || converse(socket, &*answer));
                }
                Ok(_) => {}
                Err(_) => thread::sleep(PAUSE),
            }
        }
    });
}

fn converse(mut socket: impl Socket, answer: impl Fn(&Request) -> Answer) -> io::Result<()> {
    let (request, wants_body) = receive(&mut socket, now() + TIME)?;
    let Answer { status, media_type, body } = request
        .as_ref()
        .map_or_else(|status| Answer::text(*status, "the request cannot be read, or is too long\n"), answer);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} \r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let body = if wants_body { &body } else { "" };
    send(&mut socket, (head + body).as_bytes(), now() + TIME)?;
    socket.end()?;
    // If it was closed while there is more to read, the kernel would drop the answer.
    let by = now() + TIME;
    loop {
        if read(&mut socket, &mut [0; LONGEST_BODY], by)? == 0 {
            return Ok(());
        }
    }
}

/// Sends all of an answer.
fn send(socket: &mut impl Socket, mut bytes: &[u8], by: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_timeout(left(by)?)?;
        match socket.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads what comes next.
fn read(socket: &mut impl Socket, bytes: &mut [u8], by: Instant) -> io::Result<usize> {
    loop {
        socket.set_timeout(left(by)?)?;
        match socket.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Returns the time that is left.
fn left(by: Instant) -> io::Result<Duration> {
    let left = by.saturating_duration_since(now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Receives a request, or the status for what is none, and whether the answer may have a body.
fn receive(socket: &mut impl Socket, by: Instant) -> io::Result<(Result<Request, u16>, bool)> {
    let mut input = Vec::new();
    loop {
        if let Some(request) = parse(&input).transpose() {
            return Ok((request, !input.starts_with(b"HEAD ")));
        }
        let mut bytes = [0; 1024];
        match read(socket, &mut bytes, by)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => input.extend_from_slice(&bytes[..length]),
        }
    }
}

/// Parses a request, or returns the status for what is none. `None` if there has to come more.
fn parse(input: &[u8]) -> Result<Option<Request>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let begin = match head.parse(input) {
        Ok(httparse::Status::Complete(begin)) => begin,
        Ok(httparse::Status::Partial) if input.len() < LONGEST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    };
    let mut length = 0;
    for header in &*head.headers {
        if header.name.eq_ignore_ascii_case("Content-Length") {
            let value = str::from_utf8(header.value).ok().filter(|value| !value.starts_with('+'));
            length = value.and_then(|value| value.parse().ok()).ok_or(400u16)?;
        } else if header.name.eq_ignore_ascii_case("Transfer-Encoding") {
            return Err(411);
        }
    }
    if length > LONGEST_BODY {
        return Err(413);
    }
    let (Some(method), Some(path)) = (head.method, head.path) else { return Err(400) };
    let path = path.split('?').next().unwrap_or_default();
    Ok(input.get(begin..begin + length).map(|body| Request {
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a client gets that sends this and closes its half.
    fn answered(input: &[u8]) -> String {
        let (ours, mut client) = UnixStream::pair().unwrap();
        client.write_all(input).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let echo = |request: &Request| {
            let Request { method, path, body } = request;
            Answer::text(200, format!("{method} {path} {}", body.escape_ascii()))
        };
        let _ = converse(ours, echo);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_have_bounds() {
        for (input, status, end) in [
            ("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n", "200", "\r\n\r\nGET /a "),
            ("HEAD /a HTTP/1.1\r\n\r\n", "200", "close\r\n\r\n"),
            ("POST /a HTTP/1.1\r\ncontent-length: 3\r\n\r\nweb", "200", "\r\n\r\nPOST /a web"),
            ("POST /a HTTP/1.1\r\nContent-Length: 1025\r\n\r\n", "413", ""),
            ("GET /a HTTP/1.1\r\nContent-Length: 4611686018427387904\r\n\r\n", "413", ""),
            ("GET /a HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", "400", ""),
            ("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "411", ""),
            ("HEAD /a HTTP/1.1\r\nContent-Length: 1025\r\n\r\n", "413", "close\r\n\r\n"),
            ("nothing\r\n\r\n", "400", ""),
            ("GET /a HTTP/1.1\r\nno header\r\n\r\n", "400", ""),
            (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(LONGEST_HEAD)), "431", ""),
            (&format!("GET /a HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(65)), "431", ""),
        ] {
            let answer = answered(input.as_bytes());
            let begin = answer.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("{input}"));
            assert!(begin.starts_with(status) && begin.ends_with(end), "{input}: {answer}");
        }
        // It has not come as a whole.
        assert_eq!(answered(b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nwe"), "");
    }

    /// A socket of which each call is interrupted before it succeeds.
    struct Interrupted(UnixStream, bool);

    impl Interrupted {
        fn interrupt(&mut self) -> io::Result<()> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }
    }

    impl Read for Interrupted {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.interrupt()?;
            self.0.read(bytes)
        }
    }

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.interrupt()?;
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl Socket for Interrupted {
        fn set_timeout(&self, time: Duration) -> io::Result<()> {
            self.0.set_timeout(time)
        }

        fn end(&self) -> io::Result<()> {
            self.0.end()
        }
    }

    #[test]
    fn signals_end_no_request() {
        let (ours, mut client) = UnixStream::pair().unwrap();
        client.write_all(b"GET /a HTTP/1.1\r\n\r\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        converse(Interrupted(ours, false), |_| Answer::text(200, "whole")).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nwhole"), "{answer}");
    }

    proptest! {
        #[test]
        fn no_input_stops_the_parser(input in prop::collection::vec(any::<u8>(), 0..300), with_line: bool) {
            let line: &[u8] = if with_line { b"POST / HTTP/1.1\r\nContent-Length: " } else { b"" };
            if let Ok(Some(request)) = parse(&[line, &input].concat()) {
                prop_assert!(request.body.len() <= LONGEST_BODY);
            }
        }
    }
}
