//! Conversations of a client and a server, as they pass through.

use super::*;
use crate::postgres::frame::{self, Frames};
use crate::postgres::prepared::Definitions;

/// A session of a client, and a connection of the server.
#[derive(Debug)]
struct Sides {
    session: Session,
    prepared: Prepared,
    definitions: Definitions,
    changes: u64,
    ends: Vec<End>,
    /// What was passed on, in the form in which it is given.
    passed: Vec<String>,
}

impl Sides {
    /// A conversation: what the client (`>`) and the server (`<`) send, each message as its kind and, after
    /// a colon, its body, in which `0` stands for a zero byte, `_` for a space, `*` for 0 and `~` for _.
    fn converse(&mut self, lines: &str) -> Result<(), Violation> {
        for message in lines.split_whitespace() {
            let Self { session, prepared, definitions, changes, ends, passed } = self;
            let (from, message) = message.split_at(1);
            let (kind, body) = message.split_once(':').unwrap_or((message, ""));
            let body = body.replace('0', "\0").replace('_', " ").replace('*', "0").replace('~', "_");
            let piece = Piece::First { kind: kind.as_bytes()[0], body: body.as_bytes(), rest: 0 };
            let server = Server { prepared, definitions, changes };
            let pass =
                if from == ">" { session.client(piece, server)? } else { session.server(piece, server)? };
            match pass {
                Pass::AsIs => passed.push(message.to_owned()),
                Pass::Instead(messages) => passed.extend(written(messages)),
                Pass::Later => passed.push(format!("({message})")),
            }
            if from == "<" {
                ends.extend(session.end(prepared));
            }
        }
        Ok(())
    }

    /// What was passed on since this was asked last.
    fn passed(&mut self) -> String {
        std::mem::take(&mut self.passed).join(" ")
    }
}

fn written(mut messages: &[u8]) -> Vec<String> {
    let (mut frames, mut all) = (Frames::new(frame::Side::Client), Vec::new());
    while let Some((piece, length)) = frames.next(messages).unwrap() {
        let Piece::First { kind, body, rest: 0 } = piece else { unreachable!() };
        messages = &messages[length..];
        let body = str::from_utf8(body).unwrap().replace("assay_00000001", "assay");
        let body = body.replace('\0', "0").replace(' ', "_");
        let separator = if body.is_empty() { "" } else { ":" };
        all.push(format!("{}{separator}{body}", char::from(kind)));
    }
    all
}

fn converse(lines: &str) -> Result<Sides, Violation> {
    let mut sides = Sides {
        session: Session::default(),
        prepared: Prepared::default(),
        definitions: Definitions::new(1),
        changes: 0,
        ends: Vec::new(),
        passed: Vec::new(),
    };
    sides.converse(lines)?;
    Ok(sides)
}

fn ends(lines: &str) -> Vec<End> {
    converse(lines).unwrap().ends
}

fn pin(lines: &str) -> Option<Pin> {
    converse(lines).unwrap().session.pin()
}

use End::{Committed, Failed, RolledBack};

#[test]
fn a_transaction_ends_when_the_server_is_ready_outside_of_one() {
    assert_eq!(ends(">Q <T <D <C:SELECT_10 <Z:I"), [Committed]);
    assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <C:UPDATE_10 <Z:T >Q <C:COMMIT0 <Z:I >Q"), [Committed]);
    assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <E <Z:E >Q <C:ROLLBACK0 <Z:I >Q <Z:I"), [Failed, Committed]);
    assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <C:ROLLBACK0 <Z:I"), [RolledBack]);
    assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <E <Z:E >Q <C:ROLLBACK0 <Z:T >Q <C:COMMIT0 <Z:I"), [Committed]);
    assert_eq!(ends(">Q <E <Z:I >F <V <Z:I"), [Failed, Committed]);
    assert_eq!(ends(">P:00 >B:00 >D:P0 >E >S <1 <2 <n <C:SELECT_10 <Z:I"), [Committed]);
}

#[test]
fn all_that_was_sent_is_answered_before_a_transaction_ends() {
    // Pipelined: two transactions, which use the connection together.
    assert_eq!(ends(">P:00 >B:00 >E >S >P:00 >B:00 >E >S <1 <2 <C:X0 <Z:I"), []);
    assert_eq!(ends(">P:00 >B:00 >E >S >P:00 >B:00 >E >S <1 <2 <C:X0 <Z:I <1 <2 <C:X0 <Z:I"), [Committed]);
    assert_eq!(ends(">Q >Q <C:X0 <Z:I <E <Z:I"), [Failed]);
    // Sync is still to come.
    assert_eq!(ends(">Q >P:00 >H <C:X0 <Z:I <1"), []);
    assert_eq!(ends(">Q >H <C:X0 <Z:I"), [Committed]);
    // An error skips up to Sync.
    assert_eq!(ends(">P:00 >B:00 >E <E >E >S <Z:I"), [Failed]);
}

#[test]
fn a_query_without_a_sync_before_it_comes_after_the_answers() {
    // As asyncpg prepares.
    let prepares = ">P:x0A0 >D:Sx0 >H <1 <t <T";
    let sides = converse(prepares).unwrap();
    assert!(sides.session.waits_for_client() && sides.ends.is_empty());
    assert_eq!(ends(&format!("{prepares} >Q <C:BEGIN0 <Z:T >Q <C:COMMIT0 <Z:I")), [Committed]);
    assert_eq!(ends(&format!("{prepares} >B:0x00 >E >H <2 <C:X0 >Q <C:X0 <Z:I")), [Committed]);
    assert_eq!(ends(&format!("{prepares} >B:0x00 >E >S <2 <C:COPY_10 <Z:I")), [Committed]);
    for unanswered in [">P:x0A0 >D:Sx0 >H <1 <t", ">B:0x00 >E >H <2", ">P:x0A0 >S >D:S0 >H <1", ">P:00 >E <1"]
    {
        let mut sides = converse(unanswered).unwrap();
        assert!(!sides.session.waits_for_client(), "{unanswered}");
        assert_eq!(sides.converse(">Q").unwrap_err(), Violation::Unsynced, "{unanswered}");
    }
    // After an error, the server skips it.
    assert_eq!(ends(">P:00 >H <E >Q >F >S <Z:I >Q <Z:I"), [Failed, Committed]);
    assert!(converse(">P:00 >H <E").unwrap().session.waits_for_client());
    // A query that would be answered by the guard, too.
    assert_eq!(converse(">P:x0A0 >Q:DEALLOCATE_x0").unwrap_err(), Violation::Unsynced);
    assert_eq!(ends(">P:x0A0 >S >Q:DEALLOCATE_x0 <1 <Z:I >Q:DEALLOCATE_x0 <I <Z:I"), [Committed; 2]);
}

#[test]
fn a_query_may_follow_a_copy_whose_sync_is_ignored() {
    // What comes before the data, the Sync, and the data.
    let copies = ">P:00 >B:00 >E >S >d >c";
    assert_eq!(ends(&format!("{copies} <1 <2 <G <C:COPY_10 >Q <C:X0 <Z:I")), [Committed]);
    let sides = converse(&format!("{copies} <1 <2 <G")).unwrap();
    assert!(!sides.session.waits_for_client());
    // More without a Sync.
    let more = format!("{copies} >B:0x00 >E >H <1 <2 <G <C:COPY_10");
    for unanswered in [&more, &format!("{more} <2")] {
        let mut sides = converse(unanswered).unwrap();
        assert!(!sides.session.waits_for_client(), "{unanswered}");
        assert_eq!(sides.converse(">Q").unwrap_err(), Violation::Unsynced, "{unanswered}");
    }
    assert_eq!(ends(&format!("{more} <2 <C:X0 >Q <C:X0 <Z:I")), [Committed]);
    let prepares = format!("{copies} >P:y0A0 >H <1 <2 <G <C:COPY_10 <1");
    assert_eq!(ends(&format!("{prepares} >Q <C:X0 <Z:I")), [Committed]);
    // With a Sync.
    assert_eq!(
        ends(&format!("{copies} >S >B:0x00 >H <1 <2 <G <C:COPY_10 <Z:I <2 >Q <C:X0 <Z:I")),
        [Committed]
    );
    // It fails before it reads the Sync, which it answers then.
    let mut fails = converse(">P:00 >B:00 >E >S <1 <2 <G <E").unwrap();
    assert!(!fails.session.waits_for_client());
    assert_eq!(fails.converse(">Q").unwrap_err(), Violation::Unsynced);
}

#[test]
fn a_sync_that_copy_ignores_is_not_answered() {
    assert_eq!(ends(">Q <G >d >d >c <C:COPY_20 <Z:I"), [Committed]);
    assert_eq!(ends(">Q <G >d >S >H >f <E <Z:I"), [Failed]);
    // As libpq does: one Sync after Execute, which is ignored, one after the data.
    assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d >c >S <C:COPY_10 <Z:I"), [Committed]);
    assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d >c <C:COPY_10"), []);
    // Without waiting.
    assert_eq!(ends(">P:00 >B:00 >E >d >c >S <1 <2 <G <C:COPY_10 <Z:I"), [Committed]);
    assert_eq!(ends(">P:00 >B:00 >E >S >d >c >S <1 <2 <G <C:COPY_10 <Z:I"), [Committed]);
    assert_eq!(ends(">Q >d >c >Q <G <C:COPY_10 <Z:I <C:X0 <Z:I"), [Committed]);
    assert_eq!(converse(">Q <G >Q").unwrap_err(), Violation::Copying);
    // The server fails in the middle of the data: the rest is ignored.
    assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d <E >d >c >S <Z:I"), [Failed]);
    assert_eq!(ends(">Q <G >d <E <Z:I"), [Failed]);
    // It fails after it has begun, and before it reads: it answers what it would have ignored. The
    // session keeps its connection, because it may also have ignored that.
    for (lines, committed) in [(">P:00 >B:00 >E >S <1 <2 <G <E <Z:I", 0), (">Q >Q <G <E <Z:I <C:X0 <Z:I", 1)]
    {
        let Sides { ends, session, .. } = converse(lines).unwrap();
        assert_eq!(ends.iter().filter(|end| **end == Committed).count(), committed);
        assert_eq!((ends[0], session.pin()), (Failed, Some(Pin::Copy)));
        // The next one is tracked.
        assert!(converse(&format!("{lines} >P:0A0 >S <1 <Z:I")).is_ok());
    }
    // It fails before.
    assert_eq!(ends(">P:00 >B:00 >E >d >c >S <1 <E <Z:I >Q <Z:I"), [Failed, Committed]);
}

#[test]
fn a_session_is_pinned_by_what_was_executed() {
    assert_eq!(pin(">Q:SET_x=1 <C:SET0 <Z:I"), Some(Pin::Setting));
    assert_eq!(pin(">Q:SET_x=1 <E <Z:I"), None);
    assert_eq!(pin(">Q:SET_LOCAL_x=1 <C:SET0 <Z:I"), None);
    assert_eq!(pin(">Q:SET_LOCAL_x=1 >Q:SET_x=1 <E <Z:I <C:SET0 <Z:I"), Some(Pin::Setting));
    assert_eq!(pin(">P:0SET_x=10 >B:00 >E >S <1 <2 <C:SET0 <Z:I"), Some(Pin::Setting));
    assert_eq!(pin(">Q:LISTEN_x <C:LISTEN0 <Z:I"), Some(Pin::Listen));
    assert_eq!(pin(">Q:PREPARE_x <C:PREPARE0 <Z:I"), Some(Pin::Statement));
    assert_eq!(pin(">Q:LOAD_x <C:LOAD0 <Z:I"), Some(Pin::Library));
    assert_eq!(pin(">Q:CREATE_TEMP_TABLE_t() <C:CREATE_TABLE0 <Z:I"), Some(Pin::TemporaryTable));
}

#[test]
fn a_statement_is_prepared_on_the_connection_that_lacks_it() {
    let mut one = converse(">P:mine0SELECT_10 >B:p0mine00 >D:Smine0 >S <1 <2 <t <T <Z:I").unwrap();
    assert_eq!(one.passed(), "P:assay_10SELECT_10 B:p0assay_100 D:Sassay_10 S 1 2 t T Z:I");
    // Another connection.
    one.prepared = Prepared::default();
    one.converse(">B:0mine0params >S <1 <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "P:assay_10SELECT_10 B:0assay_10params S 2 Z:I");
    assert_eq!(one.prepared.again, 1);
    one.converse(">D:Smine0 >S <t <T <Z:I").unwrap();
    assert_eq!(one.passed(), "D:Sassay_10 S t T Z:I");
    // Another session prepares the same text: both use what was prepared last.
    let mut first = std::mem::take(&mut one.session);
    one.converse(">P:their0SELECT_10 >B:0their00 >E >C:Stheir0 >S <3 <1 <2 <C:X0 <3 <Z:I").unwrap();
    assert_eq!(
        one.passed(),
        "C:Sassay_10 P:assay_20SELECT_10 B:0assay_200 E C:Sassay_none0 S 1 2 C:X0 3 Z:I"
    );
    assert_eq!((one.session.pin(), one.prepared.again), (None, 1));
    std::mem::swap(&mut one.session, &mut first);
    one.converse(">B:0mine00 >S <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "B:0assay_200 S 2 Z:I");
    // What another connection has is older than what that session has prepared.
    let mut older = converse(">P:mine0SELECT_10 >S <1 <Z:I").unwrap();
    let place = std::mem::take(&mut older.prepared);
    older.session = Session::default();
    older.converse(">P:their0SELECT_10 >S <1 <Z:I").unwrap();
    older.prepared = place;
    older.passed();
    older.converse(">B:0their00 >S <3 <1 <2 <Z:I").unwrap();
    assert_eq!(older.passed(), "C:Sassay_10 P:assay_20SELECT_10 B:0assay_200 S 2 Z:I");
    std::mem::swap(&mut one.session, &mut first);
    // It has closed the statement.
    one.converse(">B:0their00 >S <E:C26***0 <Z:I").unwrap();
    assert_eq!(one.passed(), "B:0their00 S E:C26***0 Z:I");
}

#[test]
fn what_the_server_skips_is_not_prepared() {
    let mut one = converse(">P:one0A0 >P:two0B0 >B:0two00 >C:Sone0 >S <1 <E <Z:I").unwrap();
    one.passed();
    one.converse(">B:0one00 >B:0two00 >S <2 <E:C42***0 <Z:I").unwrap();
    assert_eq!(one.passed(), "B:0assay_100 B:0two00 S 2 E:C42***0 Z:I");
    // Preparing it again on another connection fails, too.
    one.prepared = Prepared::default();
    one.converse(">B:0one00 >S <E <Z:I >B:0one00 >S").unwrap();
    let first = "P:assay_10A0 B:0assay_100 S E Z:I";
    assert_eq!(one.passed(), format!("{first} P:assay_20A0 B:0assay_200 S"));
    // The answer to the guard is not for the client.
    one.converse("<1 <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "2 Z:I");
}

#[test]
fn a_name_that_is_taken_is_refused_by_the_server() {
    let mut one = converse(">P:one0A0 >S <1 <Z:I").unwrap();
    one.prepared = Prepared::default();
    one.passed();
    one.converse(">P:one0B0 >S <1 <E:C42P*50 <Z:I >B:0one00 >S <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "P:assay_10A0 P:assay_10B0 S E:C42P*50 Z:I B:0assay_100 S 2 Z:I");
    // A function of the server has dropped the statement: no session may use the other one for it.
    one.converse(">P:one0B0 >S <1 <Z:I >B:0one00 >S").unwrap();
    let other = "P:assay_10B0 S 1 Z:I C:Sassay_10 P:assay_20B0 B:0assay_200 S";
    assert_eq!(one.passed(), other);
}

#[test]
fn the_unnamed_statement_outlives_its_transaction() {
    let mut one = converse(">P:0SELECT0 >D:S0 >S <1 <t <T <Z:I >B:00 >E >S <1 <2 <C:X0 <Z:I").unwrap();
    assert_eq!(one.passed(), "P:0SELECT0 D:S0 S 1 t T Z:I P:0SELECT0 B:00 E S 2 C:X0 Z:I");
    one.converse(">D:S0 >B:00 >S <1 <t <T <2 <Z:I").unwrap();
    assert_eq!((one.passed(), one.prepared.again), ("P:0SELECT0 D:S0 B:00 S t T 2 Z:I".to_owned(), 2));
    // A simple query drops it, and so does one that is not prepared.
    for drops in [">Q <Z:I", ">P:0X0 >S <E <Z:I", ">P:0A0 >C:S0 >S <1 <3 <Z:I"] {
        let mut one = converse(&format!(">P:0A0 >S <1 <Z:I {drops}")).unwrap();
        one.passed();
        one.converse(">B:00 >S <E <Z:I").unwrap();
        assert_eq!(one.passed(), "B:0assay_none0 S E Z:I", "{drops}");
    }
    // A later one counts.
    let mut one = converse(">P:0A0 >S >P:0B0 >S <E <Z:I <1 <Z:I").unwrap();
    one.passed();
    one.converse(">B:00 >S").unwrap();
    assert_eq!(one.passed(), "P:0B0 B:00 S");
    // In one transaction it can be used again.
    let lines = ">Q:BEGIN <C:BEGIN0 <Z:T >P:0X0 >B:00 >S <1 <2 <Z:T >B:00 >E >S";
    assert_eq!(converse(lines).unwrap().passed(), "Q:BEGIN C:BEGIN0 Z:T P:0X0 B:00 S 1 2 Z:T B:00 E S");
}

#[test]
fn what_a_statement_sets_counts_when_it_is_executed() {
    for name in ["", "name"] {
        let prepares = format!(">P:{name}0SET_x=10 >S <1 <Z:I");
        assert_eq!(pin(&prepares), None);
        let executes = format!("{prepares} >B:0{name}00 >E >S <1 <2 <C:SET0 <Z:I");
        let executes = if name.is_empty() { executes } else { executes.replace("<1 <2", "<2") };
        assert_eq!(pin(&executes), Some(Pin::Setting));
        let listens = executes.replace("SET", "LISTEN");
        assert_eq!(pin(&listens), Some(Pin::Listen));
    }
    assert_eq!(pin(">P:name0CREATE_TEMP_TABLE_t()0 >S <1 <Z:I"), Some(Pin::TemporaryTable));
}

#[test]
fn statements_are_dropped_where_they_are() {
    let prepared = || {
        let mut one = converse(">P:one0A0 >P:Two0B0 >S <1 <1 <Z:I").unwrap();
        one.passed();
        one
    };
    // Others keep it.
    let mut one = prepared();
    one.converse(">Q:DEALLOCATE_one0 <I <Z:I >B:0one00 >B:0Two00 >S").unwrap();
    assert_eq!(one.passed(), "Q:0 C:DEALLOCATE0 Z:I B:0one00 B:0assay_200 S");
    // The server refuses it in a transaction that has failed.
    let mut one = prepared();
    one.converse(">Q:BEGIN <C:BEGIN0 <Z:T >Q <E <Z:E >Q:DEALLOCATE_one0 <E <Z:E").unwrap();
    assert!(one.passed().ends_with("Q:DEALLOCATE_one0 E Z:E"));
    one.converse(">Q:ROLLBACK <Z:I >B:0one00").unwrap();
    assert!(one.passed().ends_with("B:0assay_100"));
    // It is none of the client.
    let mut one = prepared();
    one.converse(">Q:DEALLOCATE_two0 <E:C26***0 <Z:I").unwrap();
    assert_eq!(one.passed(), "Q:DEALLOCATE_two0 E:C26***0 Z:I");
    for all in ["DEALLOCATE_ALL", "DISCARD_ALL"] {
        let mut one = prepared();
        one.converse(&format!(">Q:{all}0 >P:new0B0 >S <C:{all}0 <Z:I <3 <1 <Z:I")).unwrap();
        one.passed();
        one.converse(">B:0one00 >B:0new00 >S").unwrap();
        let closes = one.passed();
        assert!(closes.starts_with("B:0one00 C:Sassay_") && closes.ends_with("P:assay_40B0 B:0assay_400 S"));
    }
    // A close that is skipped does not bring it back.
    let mut one = prepared();
    one.converse(">Q:DISCARD_ALL0 >E >C:Sone0 >S <C:DISCARD_ALL0 <Z:I <E <Z:I >B:0one00").unwrap();
    assert!(one.passed().ends_with("B:0one00"));
    // In the extended protocol.
    let mut one = prepared();
    one.converse(">P:0DEALLOCATE_one00 >B:00 >E >S <1 <2 <C:DEALLOCATE0 <Z:I >B:0one00 >S").unwrap();
    let sent = "P:0DEALLOCATE_assay_100 B:00 E S";
    assert_eq!(one.passed(), format!("{sent} 1 2 C:DEALLOCATE0 Z:I B:0one00 S"));
    // Unless it is skipped.
    let mut one = prepared();
    one.converse(">E >P:0DEALLOCATE_one00 >S <E <Z:I").unwrap();
    one.passed();
    one.converse(">B:0one00 >S <3 <1 <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "C:Sassay_10 P:assay_30A0 B:0assay_300 S 2 Z:I");
}

#[test]
fn what_depends_on_an_answer_waits_for_it() {
    // An error skips the statement, and the connection has an unnamed one of another session.
    let mut one = converse(">E >P:0A0 >S >B:00").unwrap();
    assert_eq!((one.passed(), one.session.waits()), ("E P:0A0 S (B:00)".to_owned(), true));
    one.converse("<E <Z:I >B:00 >S").unwrap();
    assert_eq!((one.passed(), one.session.waits()), ("E Z:I B:0assay_none0 S".to_owned(), false));
    // So do messages that use a named one, or its name.
    for waits in [">B:0x00", ">D:Sx0", ">C:Sx0", ">P:x0B0"] {
        for before in [">P:x0A0 >S", ">P:x0A0 >S <1 <Z:I >C:Sx0 >S"] {
            let mut one = converse(&format!("{before} {waits}")).unwrap();
            assert!(one.passed().ends_with(&format!("({})", &waits[1..])), "{before}");
        }
    }
    let mut one = converse(">P:x0A0 >S <1 <Z:I").unwrap();
    one.prepared = Prepared::default();
    one.converse(">B:0x00 >S >B:0x00").unwrap();
    assert!(one.session.waits());
    // The statement is there, but its name may mean nothing.
    let mut one = converse(">P:x0A0 >S >P:y0A0 >B:0x00").unwrap();
    assert!(one.session.waits() && one.passed().ends_with("(B:0x00)"));
    // All is known after an error.
    let mut one = converse(">P:x0A0 >E >C:Sx0 >S <1 <E <Z:I >P:y0B0 >B:0x00").unwrap();
    assert!(!one.session.waits() && one.passed().ends_with("B:0assay_100"));
    // Within its own part nothing waits, nor does another unnamed statement.
    let mut one = converse(">P:0A0 >B:00 >S >P:0B0 >B:00 >P:x0A0 >B:0x00 >S").unwrap();
    assert_eq!(one.passed(), "P:0A0 B:00 S P:0B0 B:00 P:assay_10A0 B:0assay_100 S");
}

#[test]
fn closes_that_the_server_skips_are_sent_again() {
    let mut one = converse(">P:x0A0 >S <1 <Z:I >Q <S:DateStyle0 <Z:I >E >P:y0B0 >S <E <Z:I").unwrap();
    one.passed();
    one.converse(">P:y0B0 >S <3 <1 <Z:I").unwrap();
    assert_eq!(one.passed(), "C:Sassay_10 P:assay_30B0 S 1 Z:I");
}

#[test]
fn nothing_is_kept_of_what_the_server_skips_without_an_answer() {
    let mut one = converse(">E <E").unwrap();
    for _ in 0..3 {
        one.converse(">C:Sx0 >P:x0A0 >c >B:0x00").unwrap();
    }
    assert!(one.session.owed.is_empty());
    one.passed();
    one.converse(">S <Z:I >B:0x00").unwrap();
    assert_eq!(one.passed(), "S Z:I B:0x00");
    // Those that are not answered are bounded.
    let endless = ">P:0A0 ".repeat(super::MOST + 2);
    assert_eq!(converse(&endless).unwrap_err(), Violation::Unanswered);
}

#[test]
fn what_is_prepared_with_other_settings_is_of_one_transaction() {
    let mut one = converse(">P:x0A0 >S <1 <Z:I >Q:BEGIN <C:BEGIN0 <Z:T").unwrap();
    one.passed();
    one.converse(">P:0SET_LOCAL_TimeZone='UTC'00 >B:00 >E >B:0x00 >E >S").unwrap();
    let set = "P:0SET_LOCAL_TimeZone='UTC'00 B:00 E C:Sassay_10 P:assay_20A0 B:0assay_200 E S";
    assert_eq!(one.passed(), set);
    one.converse("<1 <2 <C:SET0 <3 <1 <2 <C:X0 <Z:T >B:0x00 >S <2 <Z:T").unwrap();
    assert_eq!(one.passed(), "1 2 C:SET0 2 C:X0 Z:T B:0assay_200 S 2 Z:T");
    one.converse(">Q:COMMIT <C:COMMIT0 <Z:I >B:0x00 >S <3 <1 <2 <Z:I").unwrap();
    assert_eq!(one.passed(), "Q:COMMIT C:COMMIT0 Z:I C:Sassay_20 P:assay_30A0 B:0assay_300 S 2 Z:I");
    assert_eq!(one.session.pin(), None);
}

#[test]
fn what_may_have_changed_is_prepared_anew() {
    let changed = "<E:C*A***0RRevalidateCachedQuery0 <Z:I";
    for (lines, is_everywhere) in [
        (">Q <E:C26***0M\"assay~*******1~1\"0 <Z:I", false),
        (">Q <S:TimeZone0UTC0 <C:X0 <Z:I", false),
        (&*format!(">Q {changed}"), true),
    ] {
        // The other connection has one of another session.
        let mut one = converse(">P:x0A0 >S <1 <Z:I").unwrap();
        let mut other = std::mem::take(&mut one.prepared);
        one.converse(&format!(">B:0x00 >S <1 <2 <Z:I {lines}")).unwrap();
        one.passed();
        one.converse(">B:0x00 >S <3 <1 <2 <Z:I").unwrap();
        assert_eq!(one.passed(), "C:Sassay_10 P:assay_20A0 B:0assay_200 S 2 Z:I");
        one.converse(">B:0x00").unwrap();
        assert_eq!(one.passed(), "B:0assay_200");
        std::mem::swap(&mut one.prepared, &mut other);
        one.converse(">B:0x00").unwrap();
        assert_eq!(one.passed() == "B:0assay_100", !is_everywhere, "{lines}");
    }
    // It is of SQL.
    let mut one = converse(">P:x0A0 >S <1 <Z:I >Q <E:C26***0M\"other\"0 <Z:I").unwrap();
    one.passed();
    one.converse(">B:0x00").unwrap();
    assert_eq!(one.passed(), "B:0assay_100");
}

#[test]
fn what_cannot_be_relayed_is_a_violation() {
    assert_eq!(converse(">P:00 >Q").unwrap_err(), Violation::Unsynced);
    assert_eq!(converse(">Q >p").unwrap_err(), Violation::Unknown(b'p'));
    assert_eq!(converse(">Q <G >P:00X0").unwrap_err(), Violation::Copying);
    assert_eq!(converse("<Z:I").unwrap_err(), Violation::Unasked);
    for answer in ["<1", ">P:00X0 <3", ">C:Px0 <1", ">P:00X0 <1 <1", ">P:00X0 <E >S <Z:I <1"] {
        assert_eq!(converse(answer).unwrap_err(), Violation::Unasked);
    }
    assert_eq!(converse(">Q <Z:I <Z:I").unwrap_err(), Violation::Unasked);
}
