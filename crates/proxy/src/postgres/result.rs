//! The guard's own queries, and what the server answers.

use super::frame::{Frames, HEADER, LONGEST_HEAD, Malformed, Piece, Side, message};

/// An answer after which the connection cannot be used any more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It has a message that is not one of a result.
    #[error("the query is answered with a message of type 0x{0:02x}")]
    Kind(u8),
    /// The query has begun a transaction, and not ended it.
    #[error("the query leaves a transaction open")]
    Open,
    /// It is too long.
    #[error("the answer to the query is longer than {LONGEST_HEAD} bytes")]
    Long,
}

/// Part of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// A row, which [`columns`] reads.
    Row(&'a [u8]),
    /// An error.
    Error(&'a [u8]),
    /// A setting that has changed: the body of its message.
    Setting(&'a [u8]),
}

/// Returns the messages that ask for the result of a query with these parameters, all as text.
#[must_use]
pub fn question(query: &str, parameters: &[&[u8]]) -> Vec<u8> {
    let number = u16::try_from(parameters.len()).expect("the guard's queries have few parameters");
    let mut bind = [b"\0\0\0\0", &number.to_be_bytes()[..]].concat();
    for parameter in parameters {
        bind.extend(u32::try_from(parameter.len()).unwrap_or(u32::MAX).to_be_bytes());
        bind.extend_from_slice(parameter);
    }
    bind.extend_from_slice(b"\0\0");
    [
        message(b'P', &[b"\0", query.as_bytes(), b"\0\0\0"].concat()),
        message(b'B', &bind),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

/// Reads the answer to a question, part by part, and returns its length; `None` if there is more to come. It
/// is then read again from its beginning.
///
/// # Errors
/// If the connection cannot be used any more.
pub fn read<'a>(input: &'a [u8], mut take: impl FnMut(Part<'a>)) -> Result<Option<usize>, BadAnswer> {
    let (mut frames, mut used) = (Frames::new(Side::Server), 0);
    while let Some((piece, taken)) = frames.next(&input[used..])?
        && !frames.is_inside()
    {
        let Piece::First { kind, body, .. } = piece else { unreachable!("whole messages have one piece") };
        used += taken;
        match kind {
            b'Z' if body != b"I" => return Err(BadAnswer::Open),
            b'Z' => return Ok(Some(used)),
            b'D' => take(Part::Row(body)),
            b'E' => take(Part::Error(body)),
            b'S' => take(Part::Setting(body)),
            // The steps of a query, and what else the server sends without being asked.
            b'1' | b'2' | b'C' | b'I' | b'N' | b'A' => {}
            kind => return Err(BadAnswer::Kind(kind)),
        }
    }
    if input.len() > HEADER + LONGEST_HEAD { Err(BadAnswer::Long) } else { Ok(None) }
}

/// Returns the columns of a row; `None` if it is none. Those without a value are NULL.
#[must_use]
pub fn columns(row: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (_, mut rest) = row.split_first_chunk::<2>()?;
    let mut columns = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, behind) = behind.split_at_checked(length.unwrap_or(0))?;
        columns.push(length.map(|_| value));
        rest = behind;
    }
    Some(columns)
}
