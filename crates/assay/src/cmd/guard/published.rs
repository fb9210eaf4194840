//! The last state of a guard, for those that ask for it while it relays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use assay_process::clock::now;
use assay_proxy::State;
use assay_reflect::curve::Curve;

/// A state, which the relay replaces ten times a second.
#[derive(Default)]
pub struct Published(Mutex<Option<(Arc<Seen>, Instant)>>);

/// A guard at a moment.
pub struct Seen {
    /// Its relay.
    pub state: State,
    /// The productivity by load, of a guard that only observes.
    pub curve: Option<Curve>,
}

/// Time without a further state after which the relay does not work.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(3);

impl Published {
    /// Replaces the state.
    pub fn replace(&self, seen: Seen) {
        let seen = Some((Arc::new(seen), now()));
        // It is dropped when others can have the lock.
        let _last = std::mem::replace(&mut *self.lock(), seen);
    }

    /// Returns the last state, also if it is old.
    pub fn last(&self) -> Option<Arc<Seen>> {
        self.lock().as_ref().map(|(seen, _)| Arc::clone(seen))
    }

    /// Returns the state of a relay that works.
    ///
    /// # Errors
    /// If it does not: in words.
    pub fn present(&self) -> Result<Arc<Seen>, String> {
        let last = self.lock().clone();
        let (seen, at) = last.ok_or_else(|| "the relay has not begun".to_owned())?;
        let age = now().saturating_duration_since(at);
        if age >= LONGEST_SILENCE {
            return Err(format!("the relay has done nothing for {} s", age.as_secs()));
        }
        Ok(seen)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Seen>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::guard::endpoint::tests::state;

    #[test]
    fn a_relay_works_that_has_given_its_state_lately() {
        let published = Published::default();
        let fails = || published.present().err();
        assert_eq!(fails().as_deref(), Some("the relay has not begun"));
        published.replace(Seen { state: state(), curve: None });
        assert_eq!(fails(), None);
        if let Some((_, at)) = &mut *published.lock() {
            *at = at.checked_sub(LONGEST_SILENCE).unwrap();
        }
        assert_eq!(fails().as_deref(), Some("the relay has done nothing for 3 s"));
        assert!(published.last().is_some());
    }
}
