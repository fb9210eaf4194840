//! The secret of a role, by a query of the server: the role is its parameter, and its result has a row with
//! the role and its secret. PgBouncer's `auth_query` has the same form.

use super::refusal;
use super::result::{self, BadAnswer, Part};
use super::users::{BadUser, Secret};

/// The query for what the server itself keeps of roles that may log in. Only a superuser can read that. It
/// finds no superuser: the server's rules for the addresses of clients do not protect them behind the guard.
pub const QUERY: &str = "SELECT rolname, rolpassword FROM pg_catalog.pg_authid WHERE rolname = $1 \
    AND rolcanlogin AND NOT rolsuper AND coalesce(rolvaliduntil > pg_catalog.now(), true)";

/// The SQLSTATE of a parameter that is no text in the encoding of the server (`character_not_in_repertoire`).
const NOT_IN_REPERTOIRE: &[u8] = b"22021";

/// A result that does not say whether there is a secret. The connection can be used further.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadResult {
    /// It failed.
    #[error("the query fails: {0}")]
    Failed(String),
    /// Its result has another form.
    #[error("the query has to return one row with the role and its secret, or none")]
    Form,
    /// The secret cannot be used.
    #[error("{0}")]
    Secret(#[from] BadUser),
    /// It is no text.
    #[error("the secret of this role is not UTF-8")]
    Encoding,
}

/// What a query says of a role: its secret, if it has one.
pub type Found = Result<Option<Secret>, BadResult>;

/// Returns the messages that ask for the secret of a role.
#[must_use]
pub fn question(query: &str, role: &[u8]) -> Vec<u8> {
    result::question(query, &[role])
}

/// Reads the answer to the question for a role, and returns what it says with its length; `None` if there is
/// more to come.
///
/// # Errors
/// If the connection cannot be used any more.
pub fn answer(input: &[u8], role: &[u8]) -> Result<Option<(Found, usize)>, BadAnswer> {
    let (mut found, mut has_row) = (Ok(None), false);
    let length = result::read(input, |part| match part {
        // No role has a name that is no text.
        Part::Error(body) if refusal::code(body) == Some(NOT_IN_REPERTOIRE) => {}
        Part::Setting(_) => {}
        _ if found.is_err() => {}
        Part::Error(body) => found = Err(BadResult::Failed(refusal::text(body))),
        Part::Row(row) => {
            found = match result::columns(row).as_deref() {
                // The server cuts a name that is too long before it compares it.
                Some([Some(name), _]) if *name != role => return,
                // A function that returns no set returns this if its query finds nothing.
                Some([None, None]) => return,
                Some([Some(_), secret]) if !has_row => secret.map(secret_of).transpose(),
                _ => Err(BadResult::Form),
            };
            has_row = true;
        }
    })?;
    Ok(length.map(|length| (found, length)))
}

fn secret_of(text: &[u8]) -> Result<Secret, BadResult> {
    Ok(str::from_utf8(text).map_err(|_| BadResult::Encoding)?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::frame::{HEADER, LONGEST_HEAD, message};
    use crate::postgres::refusal::{READY, Refusal};

    fn row(columns: &[Option<&[u8]>]) -> Vec<u8> {
        let column = |column: &Option<&[u8]>| match column {
            None => (-1i32).to_be_bytes().to_vec(),
            Some(value) => [&u32::try_from(value.len()).unwrap().to_be_bytes(), *value].concat(),
        };
        let count = u16::try_from(columns.len()).unwrap().to_be_bytes();
        message(b'D', &[&count[..], &columns.iter().flat_map(column).collect::<Vec<_>>()].concat())
    }

    fn result(messages: &[Vec<u8>]) -> Vec<u8> {
        let steps = [message(b'1', b""), message(b'N', b"\0"), message(b'2', b"")].concat();
        [&steps, &*messages.concat(), &message(b'C', b"SELECT\0"), &READY].concat()
    }

    fn found(messages: &[Vec<u8>]) -> Found {
        let input = result(messages);
        for end in 0..input.len() {
            assert_eq!(answer(&input[..end], b"one"), Ok(None));
        }
        let (found, length) = answer(&[&input[..], b"S"].concat(), b"one").unwrap().unwrap();
        assert_eq!(length, input.len());
        found
    }

    #[test]
    fn a_row_has_the_role_and_its_secret() {
        let one = |secret| row(&[Some(b"one"), secret]);
        assert_eq!(found(&[one(Some(b"pencil"))]), Ok(Some("pencil".parse().unwrap())));
        let other = row(&[Some(b"other"), Some(b"secret")]);
        assert_eq!(found(&[other, one(Some(b"pencil"))]), Ok(Some("pencil".parse().unwrap())));
        for none in [&[one(None)][..], &[], &[row(&[Some(b"One"), Some(b"secret")])], &[row(&[None, None])]] {
            assert_eq!(found(none), Ok(None));
        }
    }

    #[test]
    fn a_result_that_says_nothing_of_the_role_is_an_error() {
        let one = row(&[Some(b"one"), Some(b"pencil")]);
        for rows in [
            &[one.clone(), one.clone()][..],
            &[row(&[Some(b"one"), None]), one.clone()],
            &[row(&[Some(b"one")])],
            &[row(&[Some(b"one"), Some(b"pencil"), None])],
            &[row(&[None, Some(b"pencil")])],
            &[row(&[])],
            &[message(b'D', b"\0\x02\0\0\0\x04one")],
            &[message(b'D', b"\0")],
        ] {
            assert_eq!(found(rows), Err(BadResult::Form), "{rows:?}");
        }
        let no_text = Refusal { code: "22021", ..Refusal::FULL };
        assert_eq!(found(&[no_text.message("\\xff")]), Ok(None));
        let error = Refusal::FULL.message("not one");
        assert_eq!(found(&[one.clone(), error]), Err(BadResult::Failed("not one".to_owned())));
        let secret = |secret| found(&[row(&[Some(b"one"), Some(secret)])]).unwrap_err().to_string();
        assert!(secret(b"SCRAM-SHA-256$secret").starts_with("the secret of this role cannot be read"));
        assert_eq!(secret(b"\xff"), "the secret of this role is not UTF-8");
    }

    #[test]
    fn a_connection_is_lost_after_what_is_no_result() {
        for (messages, error) in [
            (message(b'G', b"\0\0\0"), BadAnswer::Kind(b'G')),
            (message(b'Z', b"T"), BadAnswer::Open),
            (row(&[Some(&[b'x'; LONGEST_HEAD])])[..=HEADER + LONGEST_HEAD].to_vec(), BadAnswer::Long),
        ] {
            assert_eq!(answer(&messages, b"one"), Err(error));
        }
        assert!(matches!(answer(b"D\0\0\0\0", b"one"), Err(BadAnswer::Malformed(_))));
    }

    #[test]
    fn the_role_is_a_parameter() {
        let sent = question("q", b"o'ne");
        assert_eq!(
            sent,
            b"P\0\0\0\x09\0q\0\0\0B\0\0\0\x14\0\0\0\0\0\x01\0\0\0\x04o'ne\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
        );
    }
}
