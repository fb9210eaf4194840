//! Tests a server on the loopback interface with valid and invalid clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::protocol::{VERSION, digest, pattern};
use super::*;

/// A server in a thread.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Served, CannotServe>>,
}

impl Running {
    fn start() -> Self {
        let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (address, stop) = (server.address(), Arc::new(AtomicBool::new(false)));
        let flag = stop.clone();
        let thread = std::thread::spawn(move || server.serve(&flag));
        Self { address, stop, thread }
    }

    /// Connects and sends these bytes; returns the connection and the line received.
    fn response_to(&self, bytes: &[u8]) -> (BufReader<TcpStream>, String) {
        let mut connection = TcpStream::connect(self.address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection.write_all(bytes).unwrap();
        let mut reader = BufReader::new(connection);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (reader, line)
    }

    fn asked(&self, request: &str) -> (BufReader<TcpStream>, String) {
        self.response_to(format!("{VERSION} {request}\n").as_bytes())
    }

    fn stop(self) -> Served {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().unwrap()
    }
}

fn write(reader: &BufReader<TcpStream>, bytes: &[u8]) {
    reader.get_ref().write_all(bytes).unwrap();
}

fn read<const N: usize>(reader: &mut BufReader<TcpStream>) -> [u8; N] {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).unwrap();
    bytes
}

/// Whether the other side closes the connection without sending more bytes.
fn has_ended(reader: &mut BufReader<TcpStream>) -> bool {
    match reader.read_to_end(&mut Vec::new()) {
        Ok(bytes) => bytes == 0,
        // If the other side did not read all bytes, its kernel resets the connection.
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_invalid_request_is_refused_with_one_line_only() {
    let server = Running::start();
    let too_long = [b'x'; LINE_MAX];
    let cases: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "with nothing after it"),
        (b"GET / HTTP/1.1\n", "refused: this host supports only assay-bench/1"),
        (b"assay-bench/1 fly\n", "refused: a request must be connect, echo SIZE"),
        (b"assay-bench/1 sink 99999999\n", "refused: SIZE must be from 1 to 1048576"),
        (b"assay-bench/1 datagrams 1 0\n", "refused: PORT"),
        (b"\xff\xfe\n", "refused: a request must be one line"),
        (&too_long, "refused: a request must be one line"),
    ];
    for (bytes, reason) in cases {
        let (mut reader, line) = server.response_to(bytes);
        assert!(line.contains(reason) && line.ends_with('\n'), "{line:?} to {bytes:?}");
        assert!(has_ended(&mut reader));
    }
    let (_, line) = server.asked("connect");
    assert_eq!(line, "ok\n", "other clients are still served");
    assert_eq!(server.stop(), Served { connections: 8, granted: 1, refused: 7, broken: 0 });
}

#[test]
fn a_connection_without_a_request_in_time_is_refused() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut asker = Asker::new(listener.accept().unwrap().0, 0).unwrap();
    assert!(matches!(asker.look(4_999_999_999), Look::Waits));
    here.write_all(b"assay-bench/1 conn").unwrap();
    assert!(matches!(asker.look(4_999_999_999), Look::Waits));
    let Look::Bad(reason) = asker.look(5_000_000_001) else { panic!("it may wait forever") };
    assert_eq!(reason, "no request was received within 5 s");
    drop(here);
    while matches!(asker.look(0), Look::Waits) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(asker.look(0), Look::Gone));
}

#[test]
fn messages_pieces_and_answers_follow_the_protocol() {
    let server = Running::start();
    let (mut echo, line) = server.asked("echo 3");
    assert_eq!(line, "ok\n");
    write(&echo, b"abcde");
    assert_eq!(&read::<3>(&mut echo), b"abc");
    write(&echo, b"f");
    assert_eq!(&read::<3>(&mut echo), b"def");
    let (mut sink, _) = server.asked("sink 5");
    for (count, bytes, last) in
        [(2_u64, &b"01234abcde"[..], &b"abcde"[..]), (0, b"", b"abcde"), (1, b"ABCDE", b"ABCDE")]
    {
        write(&sink, &count.to_be_bytes());
        write(&sink, bytes);
        assert_eq!(u64::from_be_bytes(read(&mut sink)), count);
        assert_eq!(u64::from_be_bytes(read(&mut sink)), digest(last));
    }
    let (mut source, _) = server.asked("source 300");
    write(&source, &2_u64.to_be_bytes());
    assert_eq!(read::<600>(&mut source).to_vec(), pattern(300).repeat(2));
    drop((echo, sink, source));
    let served = server.stop();
    assert_eq!((served.granted, served.broken), (3, 0));
}

#[test]
fn only_datagrams_of_the_session_come_back() {
    let server = Running::start();
    let [own, stranger, witness] = [0; 3].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let session = |socket: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (connection, line) =
            server.asked(&format!("datagrams 4 {}", socket.local_addr().unwrap().port()));
        assert_eq!(line, "ok\n");
        connection
    };
    let (connection, _witnessed) = (session(&own), session(&witness));
    let mut buffer = [0; 16];
    own.send_to(b"good", server.address).unwrap();
    assert_eq!(own.recv(&mut buffer).unwrap(), 4);
    assert_eq!(&buffer[..4], b"good");
    // The server answers in order: a datagram that is not returned before the witness's is never returned.
    let comes_back = |socket: &UdpSocket, message: &[u8]| {
        socket.set_nonblocking(true).unwrap();
        socket.send_to(message, server.address).unwrap();
        witness.send_to(b"seen", server.address).unwrap();
        witness.recv(&mut [0; 16]).unwrap();
        socket.recv(&mut [0; 16]).is_ok()
    };
    for wrong in [&b"short"[..2], b"longer"] {
        assert!(!comes_back(&own, wrong), "{wrong:?} came back");
    }
    assert!(!comes_back(&stranger, b"evil"), "a stranger was answered");
    drop(connection);
    let outlives = (0..60_000).all(|_| {
        std::thread::sleep(Duration::from_millis(1));
        comes_back(&own, b"late")
    });
    assert!(!outlives, "a session outlived its connection");
    assert_eq!(server.stop().broken, 0);
}

#[test]
fn two_sessions_of_datagrams_share_the_port_and_each_gets_its_own() {
    let server = Running::start();
    let sessions: Vec<_> = (0..4)
        .map(|_| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let connection = server.asked(&format!("datagrams 1 {}", socket.local_addr().unwrap().port()));
            assert_eq!(connection.1, "ok\n");
            (socket, connection)
        })
        .collect();
    for (number, (socket, _)) in sessions.iter().enumerate() {
        socket.send_to(&[u8::try_from(number).unwrap()], server.address).unwrap();
    }
    for (number, (socket, _)) in sessions.iter().enumerate() {
        let mut byte = [9];
        socket.recv(&mut byte).unwrap();
        assert_eq!(usize::from(byte[0]), number);
    }
}

#[test]
fn sessions_beyond_the_maximum_are_refused_until_others_end() {
    let server = Running::start();
    let mut sessions: Vec<_> = (0..SESSIONS_MAX).map(|_| server.asked("echo 1")).collect();
    assert!(sessions.iter().all(|(_, line)| line == "ok\n"));
    let (_, line) = server.asked("echo 1");
    assert!(line.starts_with("refused: 64 sessions are running here"), "{line}");
    assert_eq!(server.asked("connect").1, "ok\n", "a request without a session is not limited");
    sessions.pop();
    let again = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.asked("echo 1").1 == "ok\n"
    });
    assert!(again, "no new session was granted after another one ended");
    drop(sessions);
}

#[test]
fn a_protocol_violation_ends_only_the_session_of_its_client() {
    let server = Running::start();
    let (mut other, _) = server.asked("echo 1");
    let (mut endless, _) = server.asked("sink 1");
    write(&endless, &u64::MAX.to_be_bytes());
    assert!(has_ended(&mut endless));
    let (short, _) = server.asked("sink 100");
    write(&short, &1_u64.to_be_bytes());
    write(&short, b"too little");
    drop(short);
    write(&other, b"x");
    assert_eq!(&read::<1>(&mut other), b"x");
    drop(other);
    assert_eq!(server.stop().broken, 2);
}

#[test]
fn every_session_ends_when_the_server_is_stopped() {
    let server = Running::start();
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut idle: Vec<_> = ["echo 1", "sink 1", "source 1", &format!("datagrams 1 {port}")]
        .into_iter()
        .map(|request| server.asked(request).0)
        .collect();
    // A client that requests more than it receives.
    let (greedy, _) = server.asked("source 1048576");
    write(&greedy, &1000_u64.to_be_bytes());
    let served = server.stop();
    assert_eq!((served.granted, served.broken), (5, 0));
    assert!(idle.iter_mut().all(has_ended));
}

#[test]
fn an_address_that_cannot_be_bound_is_an_error_that_names_it() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address).unwrap_err().to_string();
    assert!(error.contains(&format!("cannot listen on {address}")) && error.contains("--serve"), "{error}");
}
