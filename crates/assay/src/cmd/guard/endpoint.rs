//! `assay guard --metrics`: what a guard does, as a page that Prometheus reads, and whether it works.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use assay_proxy::{ClassCounts, State, TakeOver, listen_at};

use super::published::Published;
use crate::http::Answer;
use crate::prometheus::{self, Page, labels, seconds};
use crate::section::guard::{Count, OTHERS, SESSIONS, TRANSACTIONS};

/// Listens at an address, until the process ends, and returns it with its port.
pub fn listen(
    address: SocketAddr,
    take_over: TakeOver,
    published: Arc<Published>,
) -> anyhow::Result<SocketAddr> {
    let listener = listen_at(address, take_over).map(TcpListener::from);
    let listener =
        listener.map_err(|error| anyhow!("cannot listen at {address}: {error}; give another address"))?;
    let address = listener.local_addr().context("cannot find the port")?;
    prometheus::serve(listener, move |path| match path {
        // Empty before the relay has begun.
        "/metrics" => Some(Page::answer(published.last().map(|seen| page(&seen.state)).unwrap_or_default())),
        "/health" => Some(health(&published)),
        _ => None,
    })?;
    Ok(address)
}

/// Whether clients can come.
fn health(published: &Published) -> Answer {
    match published.present() {
        Err(silence) => Answer::text(503, silence + "\n"),
        Ok(seen) if seen.state.is_draining => Answer::text(503, "draining\n"),
        Ok(_) => Answer::text(200, "relaying\n"),
    }
}

/// The page of a state.
fn page(state: &State) -> String {
    let State { level, counts, limits, in_flight, aside, waiting, parked, .. } = state;
    let State { clients, backends, is_draining, .. } = state;
    let units = level.name();
    let mut page = Page::default();
    for (about, of) in [("transactions: ", &TRANSACTIONS[..]), ("sessions: ", &SESSIONS), ("", &OTHERS)] {
        for Count { what, metric, of } in of {
            let name = format!("assay_guard_{metric}_total");
            page.add((&name, "counter", &format!("{about}{what}")), [(String::new(), of(counts))]);
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
    let help = format!("waits of the {units} that were admitted later than they arrived");
    page.add(("assay_guard_wait_seconds", "summary", &help), waits);
    for (name, help, values) in [
        ("assay_guard_waiting", format!("{units} that wait for admission"), waiting),
        ("assay_guard_parked", "transactions that lack a connection of the server".to_owned(), parked),
    ] {
        page.add((name, "gauge", &help), classes().zip(values));
    }
    let refused = counts.classes.iter().flat_map(|ClassCounts { name, late, not_queued, .. }| {
        [("late", late), ("too many", not_queued)]
            .map(|(reason, number)| (labels(&[("class", name), ("reason", reason)]), number))
    });
    let help = format!("{units} refused while they waited, or at once");
    page.add(("assay_guard_refused_total", "counter", &help), refused);

    for (name, help, value) in [
        ("assay_guard_limit", &*format!("{units} that may be in flight"), limits.last.units() as usize),
        ("assay_guard_in_flight", &*format!("{units} in flight"), *in_flight),
        ("assay_guard_aside", "transactions that are set aside", *aside),
        ("assay_guard_clients", "connections of clients", *clients),
        ("assay_guard_server_connections", "connections to the server", *backends),
        (
            "assay_guard_law_failed",
            "1 if the law has failed, and its last limit stays",
            usize::from(limits.has_failed),
        ),
        ("assay_guard_draining", "1 if sessions end as soon as they can", usize::from(*is_draining)),
    ] {
        page.add((name, "gauge", help), [(String::new(), value)]);
    }
    page.text()
}

#[cfg(test)]
pub mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use assay_proxy::control::Course;
    use assay_proxy::postgres::text::Pin;
    use assay_proxy::{Counts, Level, Waits};
    use assay_reflect::law::Limit;
    use expect_test::expect;

    use super::*;
    use crate::cmd::guard::published::Seen;

    /// A relay at a moment.
    pub fn state() -> State {
        let limit = Limit::nearest(8.0);
        let waits = Waits { number: 2, sum: Duration::from_millis(1500), longest: Duration::from_secs(1) };
        let odd = ClassCounts { name: "a \"b\\\n".to_owned(), waits, late: 3, not_queued: 4 };
        let others = ClassCounts { name: "others".to_owned(), ..ClassCounts::default() };
        State {
            level: Level::Transactions,
            counts: Counts {
                committed: 100,
                pinned: [(Pin::Listen, 1)].into(),
                classes: vec![odd, others],
                ..Counts::default()
            },
            limits: Course { lowest: limit, highest: limit, last: limit, changes: 0, has_failed: true },
            in_flight: 7,
            aside: 3,
            waiting: vec![5, 0],
            parked: vec![0, 6],
            clients: 20,
            backends: 9,
            sessions: [(b"web".to_vec(), 20)].into(),
            is_draining: false,
        }
    }

    #[test]
    fn a_page_has_the_counts_and_what_there_is_now() {
        let page = page(&state());
        let values = page.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
        expect![[r#"
            assay_guard_committed_total 100
            assay_guard_sessions_pinned_total{reason="LISTEN"} 1
            assay_guard_wait_seconds_sum{class="a \"b\\\n"} 1.500000000
            assay_guard_wait_seconds_count{class="a \"b\\\n"} 2
            assay_guard_wait_seconds_sum{class="others"} 0.000000000
            assay_guard_waiting{class="a \"b\\\n"} 5
            assay_guard_parked{class="others"} 6
            assay_guard_refused_total{class="a \"b\\\n",reason="late"} 3
            assay_guard_refused_total{class="a \"b\\\n",reason="too many"} 4
            assay_guard_limit 8
            assay_guard_in_flight 7
            assay_guard_aside 3
            assay_guard_clients 20
            assay_guard_server_connections 9
            assay_guard_law_failed 1"#]]
        .assert_eq(&values.collect::<Vec<_>>().join("\n"));
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.map(|line| line.split_once(' ').unwrap().0).collect::<Vec<_>>();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let accepted = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(names.iter().all(|name| name.chars().all(accepted)), "{names:?}");
    }

    #[test]
    fn a_guard_is_healthy_whose_relay_works_and_accepts_clients() {
        let published = Published::default();
        let status = || health(&published).status;
        let before = status();
        let after = [false, true].map(|is_draining| {
            published.replace(Seen { state: State { is_draining, ..state() }, curve: None });
            status()
        });
        assert_eq!((before, after), (503, [200, 503]));
    }
}
