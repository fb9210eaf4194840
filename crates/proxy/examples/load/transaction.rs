//! What a transaction does: its statements, of which each waits for the answer to the one before.

use std::collections::VecDeque;

use clap::ValueEnum;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Rows of `pgbench --initialize --scale 1`.
const ACCOUNTS: u32 = 100_000;
const TELLERS: u32 = 10;

/// Rows of `contended`, and how many of them a transaction changes.
const CONTENDED: u32 = 1000;
const CHANGED: usize = 8;

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Changes one row, the same for all clients.
    Hot,
    /// Changes an account, a teller and the one branch, as pgbench does by default (TPC-B, scale 1).
    TpcB,
    /// Changes a row of a thousand eight times, in random order, so that some wait for each other.
    Deadlock,
    /// Reads an account by its key.
    Select,
}

impl Kind {
    /// Returns the statements of the next transaction.
    pub fn statements(self, random: &mut Pcg64Mcg) -> VecDeque<String> {
        match self {
            Self::Hot => VecDeque::from(["UPDATE hot SET v = v + 1 WHERE id = 1".to_owned()]),
            Self::TpcB => tpc_b(random),
            Self::Deadlock => {
                let changes = (0..CHANGED).map(|_| {
                    let id = random.random_range(1..=CONTENDED);
                    format!("UPDATE contended SET v = v + 1 WHERE id = {id}")
                });
                let begin = ["BEGIN".to_owned()];
                begin.into_iter().chain(changes).chain(["COMMIT".to_owned()]).collect()
            }
            Self::Select => {
                let account = random.random_range(1..=ACCOUNTS);
                VecDeque::from([format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}")])
            }
        }
    }
}

fn tpc_b(random: &mut Pcg64Mcg) -> VecDeque<String> {
    let account = random.random_range(1..=ACCOUNTS);
    let teller = random.random_range(1..=TELLERS);
    let delta = random.random_range(-5000..=5000);
    VecDeque::from([
        "BEGIN".to_owned(),
        format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account}"),
        format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}"),
        format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller}"),
        format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1"),
        format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
             VALUES ({teller}, 1, {account}, {delta}, CURRENT_TIMESTAMP)"
        ),
        "COMMIT".to_owned(),
    ])
}
