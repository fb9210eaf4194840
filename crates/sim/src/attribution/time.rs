//! Time in a machine whose clock counts instructions: how long its processor was halted, and how long a task
//! has waited since a service began.

use std::iter;

use crate::profile::Latency;

/// The time of the machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct Clock {
    /// How long its processor has run, at the last event.
    ran_ns: u64,
    /// How long its processor has been halted, as far as it is known.
    pub halted_ns: u64,
    /// Since when it has been halted last, until the clock is read.
    halted_since_ns: Option<u64>,
    /// Readings of the clock after a halt that cannot be right.
    pub unknown: u64,
}

/// The end of a halt.
#[derive(Debug, Clone, Copy)]
pub struct Halt {
    /// Its begin.
    since_ns: u64,
    /// Its length.
    pub length_ns: u64,
}

impl Clock {
    /// Time since the start of the machine.
    pub fn now_ns(&self) -> u64 {
        self.ran_ns + self.halted_ns
    }

    /// The processor has run for this time since its start. Returns how long since the last event.
    pub fn run(&mut self, ran_ns: u64) -> u64 {
        // A return is an event when it begins, and takes no time if it then causes a page fault.
        let passed_ns = ran_ns.saturating_sub(self.ran_ns);
        self.ran_ns += passed_ns;
        passed_ns
    }

    /// The processor halts.
    pub fn halt(&mut self) {
        self.halted_since_ns = Some(self.now_ns());
    }

    /// Whether the processor was halted and the clock has not been read since.
    pub fn is_halted(&self) -> bool {
        self.halted_since_ns.is_some()
    }

    /// The clock shows this time. Returns the halt whose length is known from that, if there was one and the
    /// time is possible.
    pub fn set(&mut self, time_ns: u64) -> Option<Halt> {
        let since_ns = self.halted_since_ns.take()?;
        let Some(length_ns) = time_ns.checked_sub(self.now_ns()) else {
            self.unknown += 1;
            return None;
        };
        self.halted_ns += length_ns;
        Some(Halt { since_ns, length_ns })
    }

    /// Halts whose length is not known, with one that goes on.
    pub fn unknown_halts(&self) -> u64 {
        self.unknown + u64::from(self.is_halted())
    }
}

impl Halt {
    /// Corrects a time that was taken before the length of the halt was known: what has happened since its
    /// end happened later by as much.
    fn correct(self, at_ns: &mut u64) {
        if *at_ns > self.since_ns {
            *at_ns += self.length_ns;
        }
    }
}

/// The waiting of a task.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    waited: Waited,
    /// `None` while it runs.
    away: Option<Away>,
}

/// How long a task has not run.
#[derive(Debug, Default, Clone, Copy)]
struct Waited {
    /// Until it was woken up.
    blocked_ns: u64,
    /// While it could run, and another task did.
    descheduled_ns: u64,
}

/// A task that does not run.
#[derive(Debug, Clone, Copy)]
struct Away {
    /// Since when.
    since_ns: u64,
    /// When it was woken up.
    woken_ns: Option<u64>,
}

impl Waits {
    /// A task that is made now and can run.
    pub fn new(now_ns: u64) -> Self {
        let away = Some(Away { since_ns: now_ns, woken_ns: Some(now_ns) });
        Self { waited: Waited::default(), away }
    }

    /// Another task runs.
    pub fn pause(&mut self, now_ns: u64) {
        self.away = Some(Away { since_ns: now_ns, woken_ns: None });
    }

    /// The task is woken up if it does not run.
    pub fn wake(&mut self, now_ns: u64) {
        if let Some(away) = &mut self.away {
            away.woken_ns.get_or_insert(now_ns);
        }
    }

    /// The task runs again.
    pub fn resume(&mut self, now_ns: u64) {
        if let Some(Away { since_ns, woken_ns }) = self.away.take() {
            // What was not woken up was not blocked: it was preempted, or has yielded.
            let ready_ns = woken_ns.unwrap_or(since_ns);
            self.waited.blocked_ns += ready_ns - since_ns;
            self.waited.descheduled_ns += now_ns - ready_ns;
        }
    }

    /// Corrects its times by a halt.
    pub fn correct(&mut self, halt: Halt) {
        let times = self.away.iter_mut();
        let times = times.flat_map(|away| iter::once(&mut away.since_ns).chain(&mut away.woken_ns));
        times.for_each(|at_ns| halt.correct(at_ns));
    }
}

/// When a service has begun, and how long its task had waited until then.
#[derive(Debug, Clone, Copy)]
pub struct Began {
    at_ns: u64,
    waited: Waited,
}

impl Began {
    /// A service of a task with these waits begins now.
    pub fn new(now_ns: u64, waits: &Waits) -> Self {
        Self { at_ns: now_ns, waited: waits.waited }
    }

    /// Its latency if it ends now.
    pub fn latency(self, now_ns: u64, waits: &Waits) -> Latency {
        let blocked_ns = waits.waited.blocked_ns - self.waited.blocked_ns;
        let descheduled_ns = waits.waited.descheduled_ns - self.waited.descheduled_ns;
        let running_ns = now_ns - self.at_ns - blocked_ns - descheduled_ns;
        Latency { calls: 1, running_ns, blocked_ns, descheduled_ns }
    }

    /// Corrects its time by a halt.
    pub fn correct(&mut self, halt: Halt) {
        halt.correct(&mut self.at_ns);
    }
}
