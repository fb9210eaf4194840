//! How a guard ends, another one takes over from it, and both are watched.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::http::get;
use crate::postgres_server::Server;
use crate::session::select;
use crate::wire::Wire;
use crate::{Guard, command, next_line, text, wait_until};

/// Where a guard with `--metrics 127.0.0.1:0` has its pages.
fn pages(guard: &mut Guard) -> SocketAddr {
    let line = next_line(&mut guard.messages);
    let address = line.trim_end().strip_prefix("answering Prometheus at http://");
    address
        .and_then(|address| address.strip_suffix("/metrics"))
        .unwrap_or_else(|| panic!("{line}"))
        .parse()
        .unwrap()
}

/// Returns when a page has one of these texts.
fn wait_for(address: SocketAddr, path: &str, texts: &[&str]) {
    wait_until(|| {
        let page = get(address, path);
        texts.iter().any(|text| page.contains(text))
    });
}

/// Reads the error with which a session ends with the guard.
pub fn farewell(session: Wire) {
    ends(session, "because the guard ends");
}

/// Reads the error with which a session ends, for this reason.
pub fn ends(mut session: Wire, reason: &str) {
    let (_, error) = session.read_to(b'E');
    assert!(error.contains(&format!("C57P01\0Mterminating connection {reason}\0")), "{error}");
    assert!(session.is_at_end());
}

/// Longer than the guard takes to look after what is due.
pub const A_WHILE: Duration = Duration::from_millis(300);

pub const DRAINING: &str =
    "no client is accepted any more; sessions end after their transactions, all within";

#[test]
fn a_guard_that_is_terminated_ends_with_its_transactions() {
    let server = Server::start();
    let [mut blocker, mut other] = [(); 2].map(|()| server.session());
    blocker
        .batch_execute("CREATE TABLE hot (v int); INSERT INTO hot VALUES (0); CREATE TABLE cold (v int)")
        .unwrap();
    let mut guard =
        Guard::start(&server, &["--limit", "2", "--drain-time", "1h", "--metrics", "127.0.0.1:0"]);
    let pages = pages(&mut guard);
    // It does not end before, also without clients.
    thread::sleep(A_WHILE);
    let mut begins = TcpStream::connect(guard.address).unwrap();
    let [idle, mut active, mut waiting, mut gone] = [(); 4].map(|()| Wire::start(&guard));
    wait_for(pages, "/health", &["HTTP/1.1 200 "]);
    let mut lock = blocker.transaction().unwrap();
    lock.batch_execute("UPDATE hot SET v = 1").unwrap();
    let mut table = other.transaction().unwrap();
    table.batch_execute("LOCK TABLE cold").unwrap();
    active.send(&[(b'Q', "UPDATE hot SET v = v + 1\0")]);
    gone.send(&[(b'Q', "INSERT INTO cold VALUES (1)\0"), (b'X', "")]);
    drop(gone);
    wait_for(pages, "/metrics", &["\nassay_guard_in_flight 2\n"]);
    waiting.send(&[(b'Q', "UPDATE hot SET v = v * 10\0")]);
    // If it has waited for long, the two that wait for locks have given up their places.
    let is_there = ["\nassay_guard_waiting{class=\"others\"} 1\n", "\nassay_guard_aside 2\n"];
    wait_for(pages, "/metrics", &is_there);
    guard.signal(Signal::TERM);
    farewell(idle);
    assert_eq!(begins.read(&mut [0]).unwrap(), 0);
    drop(begins);
    let message = next_line(&mut guard.messages);
    assert!(message.starts_with(DRAINING), "{message}");
    // The address is free.
    TcpListener::bind(guard.address).unwrap();
    wait_for(pages, "/health", &["\r\ndraining\n"]);
    lock.commit().unwrap();
    for mut session in [active, waiting] {
        assert_eq!(session.read_to(b'Z').0, "CZ");
        farewell(session);
    }
    thread::sleep(A_WHILE);
    assert!(
        guard.child.try_wait().unwrap().is_none(),
        "the transaction of a client that is gone has not ended"
    );
    table.commit().unwrap();
    let counts = guard.ended();
    assert_eq!(select(&mut blocker, "SELECT v FROM hot"), ["20"]);
    assert_eq!(select(&mut blocker, "SELECT v FROM cold"), ["1"]);
    for (what, number) in [
        ("committed", 2),
        ("abandoned by their client or the server", 1),
        ("ended by a command, or with the guard", 3),
        ("ended with an error of the guard", 0),
        ("in flight when the guard ended", 0),
        ("waiting when the guard ended", 0),
    ] {
        assert_eq!(counts.of(what), number, "{what}");
    }
}

#[test]
fn transactions_that_do_not_end_are_cut_off_and_counted() {
    let server = Server::start();
    let mut administrator = server.session();
    administrator.batch_execute("CREATE TABLE hot (v int)").unwrap();
    let mut guard = Guard::start(&server, &["--limit", "2", "--drain-time", "300ms"]);
    let mut session = Wire::start(&guard);
    session.send(&[(b'Q', "BEGIN; INSERT INTO hot VALUES (1)\0")]);
    session.read_to(b'Z');
    guard.signal(Signal::TERM);
    farewell(session);
    assert_eq!(next_line(&mut guard.messages), format!("{DRAINING} 300ms\n"));
    assert_eq!(guard.ended().of("in flight when the guard ended"), 1);
    assert_eq!(select(&mut administrator, "SELECT count(*) FROM hot"), ["0"]);
}

#[test]
fn another_guard_takes_over_and_no_client_is_lost() {
    let server = Server::start();
    let mut first = Guard::start(&server, &["--limit", "2"]);
    let address = first.address.to_string();
    let to = server.address("postgres");
    let refused = command(&["--listen", &address, "--to", &to]).output().unwrap();
    assert!(text(&refused.stderr).contains("cannot listen at"), "{}", text(&refused.stderr));

    let mut stays = Wire::start(&first);
    let take_over = || Guard::listen(&address, command(&[]), &to, &["--limit", "2", "--take-over"]);
    let second = take_over();
    drop([(); 20].map(|()| Wire::start(&second)));
    assert_eq!(second.end().of("logged in"), 20);
    // New clients come to the first one again.
    drop([(); 5].map(|()| Wire::start(&first)));

    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let third = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut session = Wire::connect(first.address);
                session.send(&[(b'Q', "SELECT 1\0")]);
                assert_eq!(session.read_to(b'Z').0, "TDCZ");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let go_on = || {
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 10 {
                assert!(!clients.is_finished(), "a client was lost");
                thread::yield_now();
            }
        };
        go_on();
        let third = take_over();
        go_on();
        stays.send(&[(b'Q', "SELECT 1\0")]);
        stays.read_to(b'Z');
        first.signal(Signal::TERM);
        farewell(stays);
        go_on();
        is_over.store(true, Ordering::Relaxed);
        third
    });
    assert!(next_line(&mut first.messages).starts_with(DRAINING));
    let sessions = [first.ended(), third.end()].map(|counts| counts.of("logged in"));
    assert_eq!(sessions.iter().sum::<u64>(), 1 + 5 + done.into_inner());
    // Of ten twice, the first one may have begun before.
    assert!(sessions[1] >= 18, "{sessions:?}");
}
