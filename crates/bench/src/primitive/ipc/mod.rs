//! Communication and synchronisation within this host: messages, transfers, locks, semaphores, events.

pub(crate) mod channel;
pub(crate) mod futex;
pub(crate) mod mutex;
pub(crate) mod notify;
pub(crate) mod one_way;
pub(crate) mod record_lock;
pub(crate) mod round_trip;
pub(crate) mod semaphore;
