//! No row and no error is ever answered to the wrong client: every session checks that each answer has its
//! own name, while sessions end in the middle of their transactions and are cancelled.

use std::thread;

use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::Type;
use postgres::{Client, Error, NoTls};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Guard;
use crate::postgres_server::Server;

const SESSIONS: u64 = 24;
const TRANSACTIONS: u32 = 150;

/// What a session does with its name. Each checks the answer; an error is the server's.
type Check = fn(&mut Client, &str) -> Result<(), Error>;

const CHECKS: [Check; 9] = [
    |session, name| {
        let rows =
            session.simple_query(&format!("SELECT '{name}'; SELECT '{name}' FROM generate_series(1, 50)"))?;
        let names = rows.iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap() == name),
            _ => None,
        });
        assert_eq!(names.filter(|own| *own).count(), 51);
        Ok(())
    },
    |session, name| {
        let rows = session.query_typed("SELECT $1", &[(&name, Type::TEXT)])?;
        assert_eq!(rows[0].get::<_, String>(0), name);
        Ok(())
    },
    |session, name| {
        let error =
            session.batch_execute(&format!("DO $$ BEGIN RAISE EXCEPTION '{name}'; END $$")).unwrap_err();
        match error.as_db_error() {
            Some(own) if own.message() == name => Ok(()),
            _ => Err(error),
        }
    },
    |session, name| {
        let mut transaction = session.transaction()?;
        transaction.execute_typed("UPDATE counter SET n = n + 1 WHERE name = $1", &[(&name, Type::TEXT)])?;
        let rows =
            transaction.query_typed("SELECT name FROM counter WHERE name = $1", &[(&name, Type::TEXT)])?;
        assert_eq!(rows[0].get::<_, String>(0), name);
        transaction.commit()
    },
    |session, name| {
        let mut transaction = session.transaction()?;
        let error = transaction.query_typed("SELECT $1::int", &[(&name, Type::TEXT)]).unwrap_err();
        match error.as_db_error() {
            Some(own) if own.message().contains(&format!("\"{name}\"")) => transaction.rollback(),
            _ => Err(error),
        }
    },
    |session, name| {
        // The rest of the answer is not read.
        let mut rows =
            session.query_typed_raw("SELECT $1 FROM generate_series(1, 3000)", vec![(name, Type::TEXT)])?;
        if let Some(row) = rows.next()? {
            assert_eq!(row.get::<_, String>(0), name);
        }
        Ok(())
    },
    |session, name| session.batch_execute(&format!("SELECT pg_sleep(0.002), '{name}'")),
    |session, name| {
        // Several transactions; sessions give equal names to different statements.
        let own = session.prepare(&format!("SELECT '{name}'"))?;
        let shared = session.prepare("SELECT $1 || ''")?;
        for _ in 0..2 {
            assert_eq!(session.query_one(&own, &[])?.get::<_, String>(0), name);
            assert_eq!(session.query_one(&shared, &[&name])?.get::<_, String>(0), name);
        }
        Ok(())
    },
    |session, name| {
        let mut transaction = session.transaction()?;
        let fails = transaction.prepare("SELECT $1::text::int")?;
        let error = transaction.query(&fails, &[&name]).unwrap_err();
        match error.as_db_error() {
            Some(own) if own.message().contains(&format!("\"{name}\"")) => transaction.rollback(),
            _ => Err(error),
        }
    },
];

/// Runs one session after the other under one name.
fn check(guard: &Guard, number: u64, seed: u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ number);
    let name = format!("session-{number}");
    let mut session = guard.session("same");
    for _ in 0..TRANSACTIONS {
        match random.random_range(0..20) {
            0 => {
                // It ends in a transaction.
                session
                    .batch_execute(&format!("BEGIN; UPDATE counter SET n = -1 WHERE name = '{name}'"))
                    .unwrap();
                session = guard.session("same");
            }
            1 => {
                let cancel = session.cancel_token();
                let canceller = thread::spawn(move || cancel.cancel_query(NoTls).unwrap());
                let checked = CHECKS[random.random_range(0..CHECKS.len())](&mut session, &name);
                let error = checked.err();
                assert!(
                    error.as_ref().is_none_or(|error| error.code() == Some(&SqlState::QUERY_CANCELED)),
                    "{error:?}"
                );
                canceller.join().unwrap();
                let _ = session.simple_query("ROLLBACK");
            }
            _ => CHECKS[random.random_range(0..CHECKS.len())](&mut session, &name).unwrap(),
        }
    }
}

#[test]
fn every_answer_is_for_the_session_that_asked() {
    let server = Server::start();
    // The limit changes all the time, and with it the connections.
    let guard = Guard::start(&server, &["--start", "3"]);
    let mut administrator = server.session();
    administrator.batch_execute("CREATE TABLE counter (name text PRIMARY KEY, n int)").unwrap();
    for number in 0..SESSIONS {
        administrator.batch_execute(&format!("INSERT INTO counter VALUES ('session-{number}', 0)")).unwrap();
    }
    let seed = rand::rng().random();
    let failed = format!("an answer is wrong, or lost, with seed {seed}");
    thread::scope(|scope| {
        let checks: Vec<_> = (0..SESSIONS)
            .map(|number| {
                scope.spawn({
                    let guard = &guard;
                    move || check(guard, number, seed)
                })
            })
            .collect();
        for check in checks {
            check.join().expect(&failed);
        }
    });
    // What the sessions did not commit was not committed for them.
    let lowest: i32 = administrator.query_one("SELECT min(n) FROM counter", &[]).unwrap().get(0);
    assert!(lowest >= 0, "{failed}");
    let counts = guard.end();
    assert!(counts.of("committed") > u64::from(TRANSACTIONS) && counts.of("admitted after a wait") > 0);
}
