//! One HTTP request over the loopback interface (lmbench 3, `lat_http`): a GET that a server in the partner
//! process answers from memory, over a persistent connection or over a new one for each request.
//!
//! The server is minimal: it reads the request, checks that it is a GET of its only path, and writes head and
//! body with one call. The status, the stated length and the received length of every response are checked in
//! the timed part, as every client does; the body of the last response of a batch is compared as a whole,
//! untimed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::time::Duration;

use assay_quantity::{PrimitiveId, Size};
use rand::RngExt;
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout, set_tcp_nodelay};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::layout::Buffer;
use crate::platform::partner::Partner;
use crate::primitive::kit::echo::PATIENCE;
use crate::primitive::kit::limit;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::socket::{read, write};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["http.request{size=1KiB|64KiB,cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["write", "read"],
        about: "an HTTP GET over a persistent connection to a server in another process, and the response \
                with a body of `size` bytes",
        source: "lmbench 3, lat_http",
        prepare: request,
    },
    Row {
        quick: &["http.request_connect{size=1KiB,cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["socket", "connect", "accept4", "write", "read", "close"],
        about: "an HTTP GET over a new connection: `socket`, `connect`, request, response, `close`",
        source: "lmbench 3, lat_http",
        prepare: request_connect,
    },
];

/// The client's request over a persistent connection.
const REQUEST: &[u8] = b"GET /body HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";

/// The client's request over a connection that it closes afterwards.
const LAST_REQUEST: &[u8] =
    b"GET /body HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// The only path of the server.
const PATH: &str = "/body";

/// Bytes of the longest body. Longer ones are bulk transfers.
const BODY_MAX: Size = Size::mib(16);

/// Maximum bytes of a head, and maximum number of headers.
const HEAD_BYTES_MAX: usize = 1024;
const HEADERS_MAX: usize = 16;

/// Prepares requests over a persistent connection.
fn request(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    with_server(id, setting, |address, client, partner| {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        set_socket_timeout(&connection, Timeout::Recv, Some(PATIENCE))?;
        let kept = Kept { connection: connection.into(), client, _partner: partner };
        Ok(Box::new(Steps::of(kept)))
    })
}

/// Prepares requests that each use a new connection.
fn request_connect(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    with_server(id, setting, |address, client, partner| {
        Ok(Box::new(Steps::of(Anew { address, client, _partner: partner })))
    })
}

fn with_server(
    id: &PrimitiveId,
    setting: &mut Setting,
    operation: impl FnOnce(SocketAddr, Client, Partner) -> io::Result<Box<dyn Operation>>,
) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(0)..=BODY_MAX)?;
    let body: Vec<u8> = (0..size).map(|_| setting.rng.random()).collect();
    let cpu = partner_cpu(id, setting)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Accepted connections inherit both options: written bytes are sent immediately, and the close that
    // follows the client's leaves no socket in TIME_WAIT; otherwise the ports would soon be exhausted.
    set_tcp_nodelay(&listener, true).map_err(io::Error::from)?;
    set_socket_linger(&listener, Some(Duration::ZERO)).map_err(io::Error::from)?;
    let response = response(&body);
    let partner = Partner::fork(cpu, || serve(&listener, &response))?;
    let sharing = sharing(setting, cpu, &partner);
    let client = Client { into: Buffer::new(HEAD_BYTES_MAX + size, &mut setting.rng)?, body, at: 0 };
    let operation = operation(listener.local_addr()?, client, partner)?;
    Ok(Prepared { operation, baseline: None, sharing })
}

/// Requests over one persistent connection.
struct Kept {
    connection: OwnedFd,
    client: Client,
    _partner: Partner,
}

impl Step for Kept {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.client.request(&self.connection, REQUEST)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.client.check_body()
    }
}

/// Requests over one new connection each.
struct Anew {
    address: SocketAddr,
    client: Client,
    _partner: Partner,
}

impl Step for Anew {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let connection = TcpStream::connect(self.address)?.into();
        self.client.request(&connection, LAST_REQUEST)?;
        // SAFETY: the owner has just released the descriptor, so it is closed once.
        check("close", unsafe { libc::close(connection.into_raw_fd()) }).map(drop)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.client.check_body()
    }
}

/// Sends requests and checks the responses.
struct Client {
    into: Buffer,
    /// The expected body.
    body: Vec<u8>,
    /// Offset in `into` of the last body that was received.
    at: usize,
}

impl Client {
    #[inline]
    fn request(&mut self, connection: &OwnedFd, request: &[u8]) -> io::Result<()> {
        write(connection, request)?;
        let mut got = 0;
        let begins = loop {
            got += read(connection, &mut self.into[got..])?;
            match body_begins(&self.into[..got.min(HEAD_BYTES_MAX)], self.body.len())? {
                Some(begins) => break begins,
                None if got < HEAD_BYTES_MAX => {}
                None => return Err(io::Error::other("the response's head does not end")),
            }
        };
        let due = begins + self.body.len();
        while got < due {
            got += read(connection, &mut self.into[got..])?;
        }
        if got > due {
            return Err(io::Error::other(format!("expected a response of {due} bytes, received {got}")));
        }
        self.at = begins;
        Ok(())
    }

    fn check_body(&mut self) -> io::Result<()> {
        let came = &mut self.into[self.at..self.at + self.body.len()];
        if came != self.body {
            return Err(io::Error::other(
                "the body of the last response differs from the body of the server",
            ));
        }
        // Otherwise the body of this batch would pass as the body of the next one.
        came.fill(0);
        Ok(())
    }
}

/// Returns the offset of the body in a response; `None` if the head is incomplete. Fails unless the status is
/// 200 and the head states this length once.
#[inline]
fn body_begins(bytes: &[u8], size: usize) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let begins = match response.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Complete(begins) => begins,
        httparse::Status::Partial => return Ok(None),
    };
    if response.code != Some(200) {
        return Err(io::Error::other(format!("the server answered with status {:?}", response.code)));
    }
    let mut stated =
        response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length =
        stated.next().and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok());
    if length != Some(size) || stated.next().is_some() {
        return Err(io::Error::other(format!(
            "the response must contain exactly one Content-Length header, with the value {size}"
        )));
    }
    Ok(Some(begins))
}

/// Builds the server's only successful response.
fn response(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: assay\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Runs the partner: serves one connection after another, each until the client closes it.
fn serve(listener: &TcpListener, response: &[u8]) -> libc::c_int {
    while let Ok((connection, _)) = listener.accept() {
        // The client detects and reports a broken connection.
        let _ = answer(&connection.into(), response);
    }
    libc::EXIT_FAILURE
}

/// Answers requests until the client closes the connection.
fn answer(connection: &OwnedFd, response: &[u8]) -> io::Result<()> {
    let mut buffer = [0; HEAD_BYTES_MAX];
    let mut got = 0;
    loop {
        match asked(&buffer[..got]) {
            Asked::Body(length) => {
                send(connection, response)?;
                buffer.copy_within(length..got, 0);
                got -= length;
            }
            Asked::Other(length) => {
                send(connection, NOT_FOUND)?;
                buffer.copy_within(length..got, 0);
                got -= length;
            }
            Asked::Unfinished if got < buffer.len() => got += read(connection, &mut buffer[got..])?,
            Asked::Unfinished | Asked::Nonsense => return send(connection, BAD_REQUEST),
        }
    }
}

/// What a client requested, with the length of the request in bytes.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Body(usize),
    Other(usize),
    Unfinished,
    Nonsense,
}

fn asked(bytes: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => match (request.method, request.path) {
            (Some("GET"), Some(PATH)) => Asked::Body(length),
            _ => Asked::Other(length),
        },
        Ok(httparse::Status::Partial) => Asked::Unfinished,
        Err(_) => Asked::Nonsense,
    }
}

/// Writes all bytes, in as many calls as the kernel requires.
fn send(connection: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = rustix::io::write(connection, bytes)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_has_one_path_and_classifies_all_other_requests() {
        assert_eq!(asked(REQUEST), Asked::Body(REQUEST.len()));
        assert_eq!(asked(LAST_REQUEST), Asked::Body(LAST_REQUEST.len()));
        assert_eq!(asked(b"GET / HTTP/1.1\r\n\r\nGET"), Asked::Other(18));
        assert_eq!(asked(b"POST /body HTTP/1.1\r\n\r\n"), Asked::Other(23));
        assert_eq!(asked(b""), Asked::Unfinished);
        assert_eq!(asked(&REQUEST[..REQUEST.len() - 1]), Asked::Unfinished);
        assert_eq!(asked(b"\0\0\0\0"), Asked::Nonsense);
    }

    #[test]
    fn a_response_that_fails_or_states_another_length_is_an_error() {
        let good = response(b"abc");
        assert_eq!(body_begins(&good, 3).unwrap(), Some(good.len() - 3));
        assert_eq!(body_begins(&good[..40], 3).unwrap(), None);
        assert!(body_begins(&good, 4).unwrap_err().to_string().contains("with the value 4"));
        assert!(body_begins(NOT_FOUND, 0).unwrap_err().to_string().contains("status Some(404)"));
        assert!(body_begins(b"HTTP/1.1 200 OK\r\n\r\n", 0).is_err());
        assert!(
            body_begins(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 3).is_err()
        );
        assert!(body_begins(b"220 mail.example.org\r\n", 3).is_err());
    }

    /// The client after it has received these parts from a server.
    fn received(parts: &[&[u8]], body: &[u8]) -> io::Result<Client> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        let (server, _) = listener.accept().unwrap();
        let into = Buffer::aligned(HEAD_BYTES_MAX + body.len()).unwrap();
        let mut client = Client { into, body: body.to_vec(), at: 0 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let server = OwnedFd::from(server);
                // If bytes remain unread, the close sends a reset.
                read(&server, &mut [0; HEAD_BYTES_MAX]).unwrap();
                for part in parts {
                    send(&server, part).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            client.request(&connection, REQUEST)
        })?;
        Ok(client)
    }

    #[test]
    fn a_response_in_parts_is_read_whole_and_its_body_compared() {
        let whole = response(b"0123456789");
        let mut client =
            received(&[&whole[..9], &whole[9..whole.len() - 4], &whole[whole.len() - 4..]], b"0123456789")
                .unwrap();
        client.check_body().unwrap();
        assert!(client.check_body().is_err(), "the same body must not pass twice");
        let mut other = received(&[&response(b"0123456789")], b"012345678_").unwrap();
        assert!(other.check_body().unwrap_err().to_string().contains("differs from the body of the server"));
    }

    #[test]
    fn a_response_that_ends_early_or_goes_on_is_an_error() {
        let whole = response(b"0123456789");
        let short = received(&[&whole[..whole.len() - 1]], b"0123456789").err().unwrap().to_string();
        assert!(short.contains("has closed the connection"), "{short}");
        let longer = [&whole[..], b"+"].concat();
        let long = received(&[&longer], b"0123456789");
        assert!(long.err().unwrap().to_string().contains("expected a response of"));
        let no_head = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 2000]].concat();
        let endless = received(&[&no_head], b"");
        assert!(endless.err().unwrap().to_string().contains("head does not end"));
    }
}
