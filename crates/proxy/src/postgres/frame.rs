//! Splits what one side of a connection sends into messages, without waiting for the whole of a long one.
//!
//! A message is a byte for its kind, four for its length and its body. [`Frames::next`] returns the first
//! part of each message as soon as it has what the relay reads of it, and then the rest as it comes.

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client, after its first packet.
    Client,
    /// The server.
    Server,
}

/// The state of one direction of a connection.
#[derive(Debug, Clone)]
pub struct Frames {
    side: Side,
    /// Bytes of the present message that have not been returned.
    rest: usize,
}

/// Part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The beginning of a message.
    First {
        /// Its kind.
        kind: u8,
        /// What there is of its body.
        body: &'a [u8],
        /// Bytes of its body that follow.
        rest: usize,
    },
    /// What follows in the same message.
    Rest(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// Returns the part of the body.
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        match self {
            Self::First { body, .. } | Self::Rest(body) => body,
        }
    }
}

/// The bytes are not messages of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The length is not possible.
    #[error("a message of type 0x{kind:02x} has an impossible length of {length}")]
    Length {
        /// The kind of the message.
        kind: u8,
        /// The length that it states.
        length: u32,
    },
    /// The part that has to be read is too long.
    #[error("a name in a message of type 0x{kind:02x} is longer than {LONGEST_HEAD} bytes")]
    Name {
        /// The kind of the message.
        kind: u8,
    },
}

/// Bytes of the kind and the length.
pub const HEADER: usize = 5;

/// Longest part of a message that is waited for. Only names and the few short messages of the server are.
/// Answers to the server's questions at the login are as long at most (`PG_MAX_AUTH_TOKEN_LENGTH`).
pub const LONGEST_HEAD: usize = 64 << 10;

/// Longest query that is waited for: with `DEALLOCATE` and any name (`NAMEDATALEN`).
const LONGEST_DROP: usize = 128;

/// The server accepts no longer message (`PQ_LARGE_MESSAGE_LIMIT`).
const LONGEST: u32 = 0x3fff_ffff;

/// What of a message has to be there before it is returned.
enum Head {
    /// Its header.
    Header,
    /// This many strings, each of which ends with a zero byte.
    Strings(usize),
    /// All of it.
    Whole,
}

impl Frames {
    /// Begins with the first message of a side.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, rest: 0 }
    }

    /// Whether the last message that was returned has not been returned to its end.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.rest > 0
    }

    /// Returns the kind of the message that begins here; `None` inside of one, or before there is a byte.
    #[must_use]
    pub fn kind(&self, input: &[u8]) -> Option<u8> {
        if self.is_inside() { None } else { input.first().copied() }
    }

    /// Returns the next piece and the number of bytes that it takes of the input; `None` if more are needed.
    ///
    /// # Errors
    /// If the input cannot be part of the protocol. Nothing after it can be read.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, Malformed> {
        if input.is_empty() {
            return Ok(None);
        }
        if self.rest > 0 {
            let taken = self.rest.min(input.len());
            self.rest -= taken;
            return Ok(Some((Piece::Rest(&input[..taken]), taken)));
        }
        let Some((header, rest)) = input.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        let length = u32::from_be_bytes(length);
        let body = match usize::try_from(length) {
            Ok(all) if (4..=LONGEST).contains(&length) => all - 4,
            _ => return Err(Malformed::Length { kind, length }),
        };
        let there = &rest[..body.min(rest.len())];
        if there.len() < body && !head_of(self.side, kind, body).is_in(there) {
            // What is waited for is kept in memory.
            return if there.len() > LONGEST_HEAD { Err(Malformed::Name { kind }) } else { Ok(None) };
        }
        self.rest = body - there.len();
        Ok(Some((Piece::First { kind, body: there, rest: self.rest }, HEADER + there.len())))
    }
}

impl Head {
    fn is_in(&self, part: &[u8]) -> bool {
        match self {
            Self::Header => true,
            Self::Strings(strings) => part.iter().filter(|byte| **byte == 0).nth(strings - 1).is_some(),
            Self::Whole => false,
        }
    }
}

/// Returns a message.
#[must_use]
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    begin(&mut message, kind, &[body], 0);
    message
}

/// Appends the beginning of a message, of whose body `rest` bytes follow these parts.
pub fn begin(to: &mut Vec<u8>, kind: u8, parts: &[&[u8]], rest: usize) {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>() + rest;
    to.push(kind);
    to.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
}

/// What the relay reads of a message with a body of this length.
fn head_of(side: Side, kind: u8, length: usize) -> Head {
    match (side, kind) {
        // A statement that is prepared; an error.
        (Side::Client, b'P') | (Side::Server, b'E') if length <= LONGEST_HEAD => Head::Whole,
        // A statement that is dropped.
        (Side::Client, b'Q') if length <= LONGEST_DROP => Head::Whole,
        // The name of the statement; those of the portal and of the statement.
        (Side::Client, b'P') => Head::Strings(1),
        (Side::Client, b'B') => Head::Strings(2),
        // Describe and Close, with the name that they are about, and answers at the login.
        (Side::Client, b'D' | b'C' | b'p') => Head::Whole,
        // Authentication, BackendKeyData, ParameterStatus, ReadyForQuery, and the tag of CommandComplete.
        (Side::Server, b'R' | b'K' | b'S' | b'Z' | b'C') => Head::Whole,
        // The severity of an error, in two forms, and its SQLSTATE.
        (Side::Server, b'E') => Head::Strings(3),
        _ => Head::Header,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All messages of an input that comes in parts that end at these places.
    fn messages(side: Side, input: &[u8], ends: &[usize]) -> Result<Vec<(u8, Vec<u8>)>, Malformed> {
        let mut frames = Frames::new(side);
        let (mut messages, mut begin) = (Vec::<(u8, Vec<u8>)>::new(), 0);
        for end in ends.iter().copied().chain([input.len()]) {
            while let Some((piece, taken)) = frames.next(&input[begin..end.max(begin)])? {
                begin += taken;
                match piece {
                    Piece::First { kind, body, .. } => messages.push((kind, body.to_vec())),
                    Piece::Rest(bytes) => messages.last_mut().unwrap().1.extend_from_slice(bytes),
                }
            }
        }
        Ok(messages)
    }

    #[test]
    fn a_message_is_returned_as_soon_as_its_names_are_there() {
        let bind = message(b'B', b"portal\0statement\0 and many parameters");
        let mut frames = Frames::new(Side::Client);
        assert_eq!(frames.next(&bind[..HEADER + 16]).unwrap(), None);
        let (piece, taken) = frames.next(&bind[..HEADER + 17]).unwrap().unwrap();
        assert_eq!(
            (piece, taken),
            (Piece::First { kind: b'B', body: b"portal\0statement\0", rest: 20 }, HEADER + 17)
        );
        assert!(frames.is_inside() && frames.kind(b"Q").is_none());
        let rest = &bind[taken..];
        assert_eq!(frames.next(rest).unwrap(), Some((Piece::Rest(rest), rest.len())));
        assert_eq!((frames.is_inside(), frames.kind(b"Q")), (false, Some(b'Q')));
    }

    #[test]
    fn what_is_waited_for_is_bounded() {
        let endless = message(b'P', &[b'x'; LONGEST_HEAD + 2]);
        let mut frames = Frames::new(Side::Client);
        assert_eq!(frames.next(&endless[..LONGEST_HEAD]), Ok(None));
        assert_eq!(frames.next(&endless[..endless.len() - 1]), Err(Malformed::Name { kind: b'P' }));
        for length in [0, 3, LONGEST + 1, u32::MAX] {
            let header = [&b"Q"[..], &length.to_be_bytes()].concat();
            let refused = Malformed::Length { kind: b'Q', length };
            assert_eq!(Frames::new(Side::Client).next(&header), Err(refused));
        }
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_where_the_input_is_cut(
            bodies in prop::collection::vec((prop::sample::select(&b"PBDCQSdRKZET"[..]), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            mut ends in prop::collection::vec(0..400usize, 0..20),
        ) {
            let input = bodies.iter().flat_map(|(kind, body)| message(*kind, body)).collect::<Vec<_>>();
            ends.iter_mut().for_each(|end| *end = (*end).min(input.len()));
            ends.sort_unstable();
            for side in [Side::Client, Side::Server] {
                prop_assert_eq!(messages(side, &input, &ends), Ok(bodies.clone()));
            }
        }
    }
}
