//! Timers of programs: the lateness of a sleep, and the cost of moving an expiry.

pub(crate) mod lateness;
pub(crate) mod timer_setting;
