//! `assay guard --metrics`: what a guard does, as a page that Prometheus reads, and whether it works.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use assay_process::clock::now;
use assay_proxy::{ClassCounts, State, TakeOver, listen_at};

use crate::prometheus::{self, Answer, labels, seconds};
use crate::section::guard::{Count, SESSIONS, TRANSACTIONS};

/// A server of the pages, to which the relay gives its state.
pub struct Page {
    address: SocketAddr,
    /// The last state, and when it was.
    last: Arc<Mutex<Option<(State, Instant)>>>,
}

/// Time without a further state after which the relay does not work: it gives one ten times a second.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);

impl Page {
    /// Listens at an address, until the process ends.
    pub fn listen(address: SocketAddr, take_over: TakeOver) -> anyhow::Result<Self> {
        let listener = listen_at(address, take_over).map(TcpListener::from);
        let listener = listener
            .with_context(|| format!("cannot listen at {address} for Prometheus; give another address"))?;
        // The server of the pages waits for its clients.
        listener.set_nonblocking(false).context("cannot wait for Prometheus")?;
        let address = listener.local_addr().context("cannot find the port")?;
        let last = Arc::new(Mutex::new(None));
        let page = Self { address, last: Arc::clone(&last) };
        prometheus::serve(listener, move |path| {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match path {
                "/metrics" => Some(metrics(last)),
                "/health" => Some(health(last)),
                _ => None,
            }
        })?;
        Ok(page)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the state.
    pub fn publish(&self, state: State) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((state, now()));
    }
}

/// Whether clients can come.
fn health(last: Option<(State, Instant)>) -> Answer {
    let age = |at: Instant| now().saturating_duration_since(at);
    let (status, body) = match last {
        None => (503, "the relay has not begun".to_owned()),
        Some((_, at)) if age(at) >= LONGEST_SILENCE => {
            (503, format!("the relay has done nothing for {} s", age(at).as_secs()))
        }
        Some((State { is_draining: true, .. }, _)) => (503, "draining".to_owned()),
        Some(_) => (200, "relaying".to_owned()),
    };
    Answer { status, body: body + "\n" }
}

/// The counts and what the relay has to do, as far as it has begun.
fn metrics(last: Option<(State, Instant)>) -> Answer {
    Answer { status: 200, body: last.map(|(state, _)| page(&state)).unwrap_or_default() }
}

/// The page of a state.
fn page(state: &State) -> String {
    let State { counts, limit, in_flight, waiting, parked, clients, backends, law_has_failed, is_draining } =
        state;
    let mut page = prometheus::Page::default();
    for (about, of) in [("transactions", &TRANSACTIONS[..]), ("sessions", &SESSIONS[..])] {
        for Count { what, metric, of } in of {
            let name = format!("assay_guard_{metric}_total");
            page.add((&name, "counter", &format!("{about}: {what}")), [(String::new(), of(counts))]);
        }
    }
    let pinned = counts.pinned.iter().map(|(pin, number)| (labels(&[("reason", pin.about())]), number));
    let help = "sessions with a connection of their own, by the first reason";
    page.add(("assay_guard_sessions_pinned_total", "counter", help), pinned);

    let classes = || counts.classes.iter().map(|class| labels(&[("class", &class.name)]));
    let waits = counts.classes.iter().zip(classes()).flat_map(|(ClassCounts { waits, .. }, class)| {
        [("_sum", seconds(waits.sum.as_nanos())), ("_count", waits.number.to_string())]
            .map(|(part, value)| (format!("{part}{class}"), value))
    });
    let help = "waits of the transactions that were admitted later than they arrived";
    page.add(("assay_guard_wait_seconds", "summary", help), waits);
    for (name, help, values) in [
        ("assay_guard_waiting", "transactions that wait for admission", waiting),
        ("assay_guard_parked", "transactions that lack a connection of the server", parked),
    ] {
        page.add((name, "gauge", help), classes().zip(values));
    }
    let refused = counts.classes.iter().flat_map(|ClassCounts { name, late, not_queued, .. }| {
        [("late", late), ("too many", not_queued)]
            .map(|(reason, number)| (labels(&[("class", name), ("reason", reason)]), number))
    });
    page.add(
        ("assay_guard_refused_total", "counter", "transactions refused while they waited, or at once"),
        refused,
    );

    for (name, help, value) in [
        ("assay_guard_limit", "transactions that may be in flight", limit.units() as usize),
        ("assay_guard_in_flight", "transactions in flight", *in_flight),
        ("assay_guard_clients", "connections of clients", *clients),
        ("assay_guard_server_connections", "connections to the server", *backends),
        (
            "assay_guard_law_failed",
            "1 if the law has failed, and its last limit stays",
            usize::from(*law_has_failed),
        ),
        ("assay_guard_draining", "1 if sessions end as soon as they can", usize::from(*is_draining)),
    ] {
        page.add((name, "gauge", help), [(String::new(), value)]);
    }
    page.text()
}
