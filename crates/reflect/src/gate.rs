//! The gate of an application that tunes itself (Fowler et al., section 4): its threads enter it with each
//! unit of work, and wait if as many units are in flight as the law allows.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use assay_process::accounting::own_cpu_ns;
use assay_process::clock::now;

use crate::advice::{Advice, Class, Queue};
use crate::law::{Decision, Law, Limit, Tuning};
use crate::meter::{Admission, Meter, Outcome};
use crate::{Overhead, Signal};

/// A gate whose limit a law sets, in a thread of its own, which ends up to a period after the gate.
#[derive(Debug)]
pub struct Gate(Arc<Shared>);

/// The right to do one unit of work. The unit ends when it is dropped, and then has failed.
#[derive(Debug)]
#[must_use = "a unit of work ends with its permit"]
pub struct Permit<'a> {
    gate: &'a Gate,
    /// `None` for a unit that may not be queued, and after the end.
    admission: Option<Admission>,
    outcome: Outcome,
}

#[derive(Debug)]
struct Shared {
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    meter: Meter,
    interactive: VecDeque<Arc<Waiter>>,
    batch: VecDeque<Arc<Waiter>>,
}

/// A thread that waits.
#[derive(Debug, Default)]
struct Waiter {
    admission: Mutex<Option<Admission>>,
    admitted: Condvar,
}

impl Gate {
    /// Opens a gate, and starts its law. The signals have the processor time of this process as the only
    /// overhead. `observe` gets each signal and what the law makes of it; if it panics, the last limit stays.
    ///
    /// # Errors
    /// If the thread of the law cannot be started.
    pub fn open(
        law: &'static Law,
        tuning: Tuning,
        observe: impl FnMut(&Signal, Decision) + Send + 'static,
    ) -> io::Result<Self> {
        let state = State {
            limit: tuning.start,
            meter: Meter::default(),
            interactive: VecDeque::new(),
            batch: VecDeque::new(),
        };
        let shared = Arc::new(Shared { begun: now(), state: Mutex::new(state) });
        let gate = Arc::downgrade(&shared);
        thread::Builder::new()
            .name("assay-law".to_owned())
            .spawn(move || control(&gate, law, tuning, observe))?;
        Ok(Self(shared))
    }

    /// Waits for admission. Units of one class are admitted in the order in which they arrive. A thread that
    /// has a permit must not wait for another one, which could need the place of the first.
    pub fn enter(&self, advice: &Advice) -> Permit<'_> {
        let admission = match advice.queue {
            Queue::Allowed => Some(self.admission(advice.class)),
            Queue::Never => None,
        };
        Permit { gate: self, admission, outcome: Outcome::Failed }
    }

    fn admission(&self, class: Class) -> Admission {
        let mut state = locked(&self.0.state);
        let at = self.0.elapsed();
        state.meter.arrive(at);
        // Units wait only while there is no room, so that none is overtaken here.
        if state.has_room() {
            return state.meter.admit(at);
        }
        let waiter = Arc::new(Waiter::default());
        match class {
            Class::Interactive => state.interactive.push_back(Arc::clone(&waiter)),
            Class::Batch => state.batch.push_back(Arc::clone(&waiter)),
        }
        drop(state);
        waiter.wait()
    }
}

impl Permit<'_> {
    /// Ends a unit of work that succeeded.
    pub fn finished(mut self) {
        self.outcome = Outcome::Finished;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(admission) = self.admission.take() else { return };
        let shared = &self.gate.0;
        let mut state = locked(&shared.state);
        let at = shared.elapsed();
        state.meter.end(admission, self.outcome, at);
        state.admit(at);
    }
}

impl Shared {
    /// The time of a change. It is read under the lock, so that it never decreases.
    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.begun)
    }

    fn period(&self, overhead: Overhead) -> Signal {
        let mut state = locked(&self.state);
        let at = self.elapsed();
        state.meter.period(at, overhead)
    }

    fn allow(&self, limit: Limit) {
        let mut state = locked(&self.state);
        state.limit = limit;
        let at = self.elapsed();
        state.admit(at);
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.meter.in_flight() < self.limit.units() as usize
    }

    /// Admits as many units that wait as there is room for.
    fn admit(&mut self, at: Duration) {
        while self.has_room() {
            let Some(waiter) = self.interactive.pop_front().or_else(|| self.batch.pop_front()) else {
                return;
            };
            waiter.admit(self.meter.admit(at));
        }
    }
}

impl Waiter {
    fn admit(&self, admission: Admission) {
        *locked(&self.admission) = Some(admission);
        self.admitted.notify_one();
    }

    fn wait(&self) -> Admission {
        let mut admission = locked(&self.admission);
        loop {
            match admission.take() {
                Some(admission) => return admission,
                None => admission = self.admitted.wait(admission).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Nothing that is done under these locks panics.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Updates the limit in each period of the law, until the gate has ended.
fn control(gate: &Weak<Shared>, law: &Law, tuning: Tuning, mut observe: impl FnMut(&Signal, Decision)) {
    let mut controller = (law.new)(tuning);
    let mut cpu_ns = own_cpu_ns().ok();
    loop {
        thread::sleep(law.period);
        let Some(shared) = gate.upgrade() else { return };
        let last_ns = std::mem::replace(&mut cpu_ns, own_cpu_ns().ok());
        let used_ns = cpu_ns.zip(last_ns).map(|(now_ns, last_ns)| now_ns.saturating_sub(last_ns));
        let overhead = Overhead { cpu: used_ns.map(Duration::from_nanos), ..Overhead::default() };
        let signal = shared.period(overhead);
        let decision = controller.update(&signal);
        shared.allow(decision.limit);
        observe(&signal, decision);
    }
}
