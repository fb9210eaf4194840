//! How many files this process may have open: the counters of a process take one for each thread, a guard one
//! for each session and each connection of the server.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows as many as the system permits.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer files, counters are not available and clients are not accepted, which the reports state.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
