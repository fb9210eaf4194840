//! What a transaction does: its statements, of which each waits for the answer to the one before.

mod shop;

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

/// A statement, and the tag of the command in its answer if it does what it is for.
#[derive(Debug)]
pub struct Statement {
    pub text: String,
    pub tag: &'static str,
}

impl Statement {
    pub fn new(text: impl Into<String>, tag: &'static str) -> Self {
        Self { text: text.into(), tag }
    }

    /// Whether it changes something.
    pub fn is_change(&self) -> bool {
        let command = self.tag.split(' ').next();
        !matches!(command, Some("BEGIN" | "COMMIT" | "ROLLBACK" | "SELECT"))
    }

    fn update(text: impl Into<String>) -> Self {
        Self::new(text, "UPDATE 1")
    }

    fn insert(text: impl Into<String>) -> Self {
        Self::new(text, "INSERT 0 1")
    }
}

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Changes one row, the same for all clients.
    Hot,
    /// Changes an account, a teller and the one branch, as pgbench does by default (TPC-B, scale 1).
    TpcB,
    /// Changes a row of a thousand eight times, in random order, so that some wait for each other.
    Deadlock,
    /// Runs an interaction of TPC-W's shopping mix.
    Shop,
    /// Reads an account by its key.
    Select,
}

impl Kind {
    /// Returns the statements of the next transaction.
    pub fn statements(self, random: &mut Pcg64Mcg) -> VecDeque<Statement> {
        match self {
            Self::Hot => VecDeque::from([Statement::update("UPDATE hot SET v = v + 1 WHERE id = 1")]),
            Self::TpcB => tpc_b(random),
            Self::Deadlock => {
                let changes = (0..CHANGED).map(|_| {
                    let id = random.random_range(1..=CONTENDED);
                    Statement::update(format!("UPDATE contended SET v = v + 1 WHERE id = {id}"))
                });
                transaction(changes)
            }
            Self::Shop => shop::interaction(random),
            Self::Select => {
                let account = random.random_range(1..=ACCOUNTS);
                VecDeque::from([balance(account)])
            }
        }
    }
}

/// Returns a transaction of these statements.
fn transaction(statements: impl IntoIterator<Item = Statement>) -> VecDeque<Statement> {
    let begin = [Statement::new("BEGIN", "BEGIN")];
    begin.into_iter().chain(statements).chain([Statement::new("COMMIT", "COMMIT")]).collect()
}

fn balance(account: u32) -> Statement {
    Statement::new(format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}"), "SELECT 1")
}

fn tpc_b(random: &mut Pcg64Mcg) -> VecDeque<Statement> {
    let account = random.random_range(1..=ACCOUNTS);
    let teller = random.random_range(1..=TELLERS);
    let delta = random.random_range(-5000..=5000);
    let add = |table, column, key, id| {
        Statement::update(format!("UPDATE {table} SET {column} = {column} + {delta} WHERE {key} = {id}"))
    };
    transaction([
        add("pgbench_accounts", "abalance", "aid", account),
        balance(account),
        add("pgbench_tellers", "tbalance", "tid", teller),
        add("pgbench_branches", "bbalance", "bid", 1),
        Statement::insert(format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
             VALUES ({teller}, 1, {account}, {delta}, CURRENT_TIMESTAMP)"
        )),
    ])
}
