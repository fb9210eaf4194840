//! Records and random numbers for tests.

use crate::{
    record::{Call, Event, ExecPath, Record},
    syscall,
};

pub(crate) fn call(name: &str) -> Call {
    Call { number: syscall::number(name).unwrap(), ..Call::default() }
}

pub(crate) fn record(event: Event) -> Record {
    Record { begin_ns: 0, process: 1, thread: 1, cpu: 0, lost_before: 0, event }
}

pub(crate) fn exec(path: &str) -> Event {
    Event::Exec { path: ExecPath::of(path.as_bytes()) }
}

/// Numbers that look random (SplitMix64).
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
