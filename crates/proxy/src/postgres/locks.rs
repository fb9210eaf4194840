//! The server's processes that wait for a lock.

use std::collections::HashSet;

use super::result::{self, BadAnswer, Part};

/// Any role may read this view, and it has the processes of all databases. The answer must not be longer than
/// [`super::frame::LONGEST_HEAD`].
const QUERY: &str = "SELECT pid FROM pg_catalog.pg_locks WHERE NOT granted LIMIT 3000";

/// Processes that wait for a lock; `None` if the server does not say.
pub type Waiting = Option<HashSet<u32>>;

/// Returns the messages that ask for them.
#[must_use]
pub fn question() -> Vec<u8> {
    result::question(QUERY, &[])
}

/// Reads the answer, and returns the numbers of the processes with its length; `None` if there is more to
/// come. Settings that have changed are for `setting`.
///
/// # Errors
/// If the connection cannot be used any more.
pub fn answer(input: &[u8], mut setting: impl FnMut(&[u8])) -> Result<Option<(Waiting, usize)>, BadAnswer> {
    let mut processes = Some(HashSet::new());
    let length = result::read(input, |part| match part {
        Part::Row(row) => {
            let process = result::columns(row).and_then(|columns| {
                let text = columns.first().copied().flatten()?;
                str::from_utf8(text).ok()?.parse().ok()
            });
            match process {
                Some(process) => processes.iter_mut().for_each(|known| _ = known.insert(process)),
                None => processes = None,
            }
        }
        Part::Error(_) => processes = None,
        Part::Setting(body) => setting(body),
    })?;
    Ok(length.map(|length| (processes, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::frame::message;
    use crate::postgres::refusal::{READY, Refusal};

    #[test]
    fn an_answer_has_the_numbers_of_processes() {
        let answered = |messages: &[&[u8]]| {
            let steps = [message(b'1', b""), message(b'2', b"")].concat();
            let input = [&steps[..], &messages.concat(), &message(b'C', b"SELECT 2\0"), &READY].concat();
            for end in 0..input.len() {
                assert_eq!(answer(&input[..end], |_| {}), Ok(None));
            }
            let mut settings = Vec::new();
            let (processes, length) = answer(&input, |body| settings.push(body.to_vec())).unwrap().unwrap();
            assert_eq!(length, input.len());
            (processes, settings)
        };
        let [one, other, none] =
            [&b"\0\x01\0\0\0\x0212"[..], b"\0\x01\0\0\0\x0245", b"\0\x01\xff\xff\xff\xff"]
                .map(|row| message(b'D', row));
        let setting = message(b'S', b"TimeZone\0UTC\0");
        assert_eq!(
            answered(&[&one, &setting, &other]),
            (Some(HashSet::from([12, 45])), vec![b"TimeZone\0UTC\0".to_vec()])
        );
        assert_eq!(answered(&[]), (Some(HashSet::new()), vec![]));
        for failure in
            [none, message(b'D', b"\0\x01\0\0\0\x01x"), message(b'D', b"\0"), Refusal::FULL.message("")]
        {
            assert_eq!(answered(&[&one, &failure, &other]), (None, vec![]));
        }
        assert_eq!(answer(&message(b'Z', b"T"), |_| {}), Err(BadAnswer::Open));
    }
}
