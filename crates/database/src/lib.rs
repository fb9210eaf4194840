//! Productivity and overhead of a database, queried from its server: what it commits, and what its sessions
//! wait for.
//!
//! The waits show a collapse in which the processors have nothing to do, as when transactions stand still
//! until a deadlock is found. `assay reflect watch` passes them to the facility of `assay_reflect`. They are
//! not part of that crate, because applications that count their progress need no client of a database.

#![forbid(unsafe_code)]

mod session;

use std::borrow::Cow;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use assay_process::clock::now;
use assay_quantity::Unit;
use assay_reflect::facility::{Measure, Provided, Side, Source};

pub use session::{Address, BadAddress, Host};
use session::{Counts, Session};

/// What is queried: three totals of the server, and two sums over the sessions.
pub static MEASURES: [Measure; 5] = [
    Measure {
        name: Cow::Borrowed("commits"),
        unit: Unit::Count,
        side: Side::Productivity,
        each: Some(Cow::Borrowed("commit")),
        about: "transactions that the database committed",
    },
    Measure::overhead("rollbacks", Unit::Count, "transactions that the database rolled back"),
    Measure::overhead("deadlocks", Unit::Count, "deadlocks that the database found"),
    Measure::overhead("lock wait", Unit::Nanoseconds, "time in which sessions waited for a lock"),
    Measure::overhead(
        "lightweight lock wait",
        Unit::Nanoseconds,
        "time in which sessions waited for a lock of the server's own memory",
    ),
];

/// Time between two queries, whenever the facility is read. A query took 0.3 ms of the server with 4 sessions
/// and 2.2 ms with 1,000.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Most sessions of PostgreSQL report their transactions at the end of one, if they have not done so for this
/// long (`PGSTAT_MIN_INTERVAL`). The counts of a shorter period would be those of the few that report in it.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time until the first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a database cannot be queried.
#[derive(Debug, thiserror::Error)]
#[error("cannot query {address}: {reason}")]
pub struct NoDatabase {
    /// The database and its hosts.
    pub address: String,
    /// Why.
    pub reason: String,
}

/// Connects to a database, and queries it from now on, in a thread of its own: a server in overload answers
/// late, and no other reading waits for it.
///
/// # Errors
/// If the server does not answer, or refuses.
pub fn connect(address: Address) -> Result<Provided, NoDatabase> {
    let (sender, answers) = channel();
    let shown = address.to_string();
    thread::spawn(move || poll(&address, &sender));
    let first = answers.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => format!("no answer in {} s", ANSWER_TIMEOUT.as_secs()),
            RecvTimeoutError::Disconnected => STOPPED.to_owned(),
        })
    });
    let first = first.map_err(|reason| NoDatabase { address: shown, reason })?;
    Ok(Provided { measures: &MEASURES, source: Box::new(Polled::new(first, answers)) })
}

/// The reason if the thread has given none.
const STOPPED: &str = "the thread that queries it has ended";

/// What was counted up to a moment, in the order of [`MEASURES`].
#[derive(Debug, Clone, Copy)]
struct Totals {
    at: Instant,
    counts: Counts,
    waits_ns: [u64; 2],
}

impl Totals {
    fn new(counts: Counts, at: Instant) -> Self {
        Self { at, counts, waits_ns: [0; 2] }
    }

    /// The totals at a later moment: in between, the mean of both numbers of sessions waited.
    fn then(&self, counts: Counts, at: Instant) -> Self {
        let elapsed_ns = at.saturating_duration_since(self.at).as_nanos();
        let waits_ns = [0, 1].map(|kind| {
            let sessions = u128::from(self.counts.waiting[kind]) + u128::from(counts.waiting[kind]);
            self.waits_ns[kind].saturating_add(u64::try_from(elapsed_ns * sessions / 2).unwrap_or(u64::MAX))
        });
        Self { at, counts, waits_ns }
    }
}

/// Totals, or why there are no further ones.
type Answer = Result<Totals, String>;

/// Queries until there is no receiver.
fn poll(address: &Address, answers: &Sender<Answer>) {
    let polled = Session::open(address).and_then(|mut session| {
        let mut totals = Totals::new(session.query()?, now());
        while answers.send(Ok(totals)).is_ok() {
            thread::sleep((totals.at + POLL_INTERVAL).saturating_duration_since(now()));
            totals = totals.then(session.query()?, now());
        }
        Ok(())
    });
    if let Err(reason) = polled {
        // Without a receiver, the reason is of no use.
        let _ = answers.send(Err(reason));
    }
}

/// The answers to the queries.
#[derive(Debug)]
struct Polled {
    answers: Receiver<Answer>,
    /// The last answer, if it was not read.
    totals: Option<Totals>,
    /// Why there are no further ones.
    failure: Option<String>,
    /// When the next answer is due that is read whole.
    due: Instant,
}

impl Polled {
    fn new(first: Totals, answers: Receiver<Answer>) -> Self {
        Self { answers, totals: Some(first), failure: None, due: first.at }
    }

    fn accept(&mut self, answer: Answer) {
        match answer {
            Ok(totals) => self.totals = Some(totals),
            Err(reason) => self.failure = Some(reason),
        }
    }

    /// Accepts the answers that have arrived.
    fn update(&mut self) {
        loop {
            match self.answers.try_recv() {
                Ok(answer) => self.accept(answer),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.failure.get_or_insert_with(|| STOPPED.to_owned());
                    return;
                }
            }
        }
    }
}

impl Source for Polled {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        self.update();
        let Some(Totals { at, counts, waits_ns }) = self.totals.take() else {
            totals.extend([None; MEASURES.len()]);
            return self.failure.take().map_or(Ok(()), |reason| Err(io::Error::other(reason)));
        };
        // The next answer may come too late for the reading in which it is due.
        let is_whole = at + POLL_INTERVAL >= self.due;
        if is_whole {
            self.due = self.due.max(at) + REPORT_INTERVAL;
        }
        totals.extend(counts.transactions.map(|total| is_whole.then_some(total)));
        totals.extend(waits_ns.map(Some));
        Ok(())
    }

    /// Waits for one more answer, but not for one that is late, and makes it due.
    fn complete(&mut self) {
        self.update();
        if let Ok(answer) = self.answers.recv_timeout(REPORT_INTERVAL) {
            self.accept(answer);
        }
        if let Some(totals) = &self.totals {
            self.due = totals.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(transactions: [u64; 3], waiting: [u64; 2]) -> Counts {
        Counts { transactions, waiting }
    }

    #[test]
    fn waits_are_the_mean_number_of_sessions_for_the_time_between_two_queries() {
        let begin = now();
        let first = Totals::new(counts([1, 2, 3], [4, 0]), begin);
        assert_eq!(first.waits_ns, [0, 0]);
        let second = first.then(counts([1, 2, 3], [0, 6]), begin + Duration::from_millis(100));
        let third = second.then(counts([4, 5, 6], [1, 8]), begin + Duration::from_millis(350));
        assert_eq!(third.waits_ns, [200_000_000 + 125_000_000, 300_000_000 + 1_750_000_000]);
    }

    #[test]
    fn transactions_are_read_once_a_second_and_a_failure_after_the_last_answer() {
        let begin = now();
        let totals = |ms: u64| {
            let counts = counts([ms, 0, 0], [0, 0]);
            Totals { at: begin + Duration::from_millis(ms), counts, waits_ns: [ms, 0] }
        };
        let (sender, answers) = channel();
        let mut polled = Polled::new(totals(0), answers);
        let mut read = |answers: &[Answer]| {
            answers.iter().for_each(|answer| sender.send(answer.clone()).unwrap());
            let mut totals = Vec::new();
            polled.read(&mut totals).map(|()| (totals[0], totals[3])).map_err(|error| error.to_string())
        };
        let both = |ms| Ok((Some(ms), Some(ms)));
        assert_eq!(read(&[]), both(0));
        assert_eq!(read(&[]), Ok((None, None)));
        assert_eq!(read(&[Ok(totals(100)), Ok(totals(800))]), Ok((None, Some(800))));
        // A little early, so that a reading of each second has them.
        assert_eq!(read(&[Ok(totals(901))]), both(901));
        assert_eq!(read(&[Ok(totals(1800))]), Ok((None, Some(1800))));
        assert_eq!(read(&[Ok(totals(60_000))]), both(60_000));
        assert_eq!(read(&[Ok(totals(60_100)), Err("gone".to_owned())]), Ok((None, Some(60_100))));
        assert_eq!(read(&[]), Err("gone".to_owned()));
    }

    #[test]
    fn the_last_reading_is_whole() {
        let first = Totals::new(counts([1, 0, 0], [0, 0]), now());
        let last = first.then(counts([7, 0, 0], [0, 0]), now());
        let (sender, answers) = channel();
        let mut polled = Polled::new(first, answers);
        polled.read(&mut Vec::new()).unwrap();
        sender.send(Ok(last)).unwrap();
        // There will not be another answer.
        drop(sender);
        polled.complete();
        let mut totals = Vec::new();
        polled.read(&mut totals).unwrap();
        assert_eq!(totals[0], Some(7));
    }
}
