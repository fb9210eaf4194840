//! Messages of ONC remote procedure calls without arguments and results (RFC 5531, sections 9 to 11), in the
//! external data representation (RFC 4506): words of four bytes in big-endian order.
//!
//! Decoding accepts any bytes. Bytes that are not exactly such a message are rejected with the reason.

/// Length of the longest message that is received: a call or reply without a body, with two authenticators.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024;

/// Length of the longest body of an authenticator (RFC 5531, section 8.2).
const AUTHENTICATOR_BYTES_MAX: u32 = 400;

/// The version of the protocol (RFC 5531, section 9).
const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const NO_AUTHENTICATION: u32 = 0;

/// A call of a procedure without arguments and without authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) xid: u32,
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
}

/// A reply without results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) xid: u32,
    pub(super) outcome: Outcome,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    ProgramUnavailable,
    ProgramMismatch { lowest: u32, highest: u32 },
    ProcedureUnavailable,
    GarbageArguments,
    SystemError,
    RpcMismatch { lowest: u32, highest: u32 },
    AuthenticationError(u32),
}

/// Bytes that are not a valid message, or not the expected one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadMessage {
    /// The message is too short.
    #[error("the message of a remote procedure call is truncated")]
    Short,
    /// The message is too long.
    #[error("{0} additional bytes follow the message of a remote procedure call")]
    Long(usize),
    /// A word has an invalid value.
    #[error("invalid message of a remote procedure call: {what} is {value}")]
    Word {
        /// The word.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// The message belongs to another call.
    #[error("received a reply to call {0} instead of call {1}")]
    OtherCall(u32, u32),
    /// The server reported a failure.
    #[error("the server replied to a null call with {0:?}")]
    Failed(Outcome),
    /// The record is not one whole message.
    #[error(
        "the record mark {0:#010x} is not that of a single fragment of at most {MESSAGE_BYTES_MAX} bytes"
    )]
    Fragment(u32),
}

impl Call {
    /// Encodes the call.
    #[inline]
    pub(super) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let Self { xid, program, version, procedure } = *self;
        put(&mut bytes, &[xid, CALL, RPC_VERSION, program, version, procedure]);
        // The remaining zeroes are the credential and the verifier: no authentication, no bytes.
        bytes
    }

    /// Decodes a call.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut words = Words(bytes);
        let xid = words.next()?;
        words.expect("the type", CALL)?;
        words.expect("the version", RPC_VERSION)?;
        let (program, version, procedure) = (words.next()?, words.next()?, words.next()?);
        words.skip_authenticator()?;
        words.skip_authenticator()?;
        words.end()?;
        Ok(Self { xid, program, version, procedure })
    }
}

impl Reply {
    /// Encodes the reply. Returns its bytes and their number.
    #[inline]
    pub(super) fn encode(&self) -> ([u8; 32], usize) {
        let mut bytes = [0; 32];
        let xid = self.xid;
        let accepted = |status: u32| [xid, REPLY, ACCEPTED, NO_AUTHENTICATION, 0, status];
        let length = match self.outcome {
            Outcome::Success => put(&mut bytes, &accepted(0)),
            Outcome::ProgramUnavailable => put(&mut bytes, &accepted(1)),
            Outcome::ProgramMismatch { lowest, highest } => {
                let [.., flavour, authenticator, status] = accepted(2);
                put(&mut bytes, &[xid, REPLY, ACCEPTED, flavour, authenticator, status, lowest, highest])
            }
            Outcome::ProcedureUnavailable => put(&mut bytes, &accepted(3)),
            Outcome::GarbageArguments => put(&mut bytes, &accepted(4)),
            Outcome::SystemError => put(&mut bytes, &accepted(5)),
            Outcome::RpcMismatch { lowest, highest } => {
                put(&mut bytes, &[xid, REPLY, DENIED, 0, lowest, highest])
            }
            Outcome::AuthenticationError(why) => put(&mut bytes, &[xid, REPLY, DENIED, 1, why]),
        };
        (bytes, length)
    }

    /// Decodes a reply.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut words = Words(bytes);
        let xid = words.next()?;
        words.expect("the type", REPLY)?;
        let outcome = match words.next()? {
            ACCEPTED => words.accepted()?,
            DENIED => words.denied()?,
            value => return Err(BadMessage::Word { what: "the status", value }),
        };
        words.end()?;
        Ok(Self { xid, outcome })
    }

    /// Checks that it reports the success of this call.
    #[inline]
    pub(super) fn expect_success(&self, xid: u32) -> Result<(), BadMessage> {
        if self.xid != xid {
            return Err(BadMessage::OtherCall(self.xid, xid));
        }
        match self.outcome {
            Outcome::Success => Ok(()),
            outcome => Err(BadMessage::Failed(outcome)),
        }
    }
}

/// Returns the mark of a record of one fragment. The highest bit marks the last fragment (RFC 5531, section
/// 11).
#[inline]
pub(super) fn fragment_mark(bytes: usize) -> Result<[u8; 4], BadMessage> {
    match u32::try_from(bytes) {
        Ok(length) if bytes <= MESSAGE_BYTES_MAX => Ok((LAST_FRAGMENT | length).to_be_bytes()),
        _ => Err(BadMessage::Long(bytes.saturating_sub(MESSAGE_BYTES_MAX))),
    }
}

/// Returns the length of the fragment that follows such a mark.
#[inline]
pub(super) fn fragment_bytes(mark: [u8; 4]) -> Result<usize, BadMessage> {
    let mark = u32::from_be_bytes(mark);
    match usize::try_from(mark & !LAST_FRAGMENT) {
        Ok(bytes) if bytes <= MESSAGE_BYTES_MAX && mark & LAST_FRAGMENT != 0 => Ok(bytes),
        _ => Err(BadMessage::Fragment(mark)),
    }
}

const LAST_FRAGMENT: u32 = 1 << 31;

/// Writes words to the beginning of a message, and returns their length in bytes.
#[inline]
fn put(bytes: &mut [u8], words: &[u32]) -> usize {
    for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_be_bytes();
    }
    size_of_val(words)
}

/// The rest of a message.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    #[inline]
    fn next(&mut self) -> Result<u32, BadMessage> {
        let (word, rest) = self.0.split_first_chunk().ok_or(BadMessage::Short)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    #[inline]
    fn expect(&mut self, what: &'static str, wanted: u32) -> Result<(), BadMessage> {
        match self.next()? {
            word if word == wanted => Ok(()),
            value => Err(BadMessage::Word { what, value }),
        }
    }

    /// Skips a flavour, a length, and this many bytes, padded to a whole word.
    #[inline]
    fn skip_authenticator(&mut self) -> Result<(), BadMessage> {
        let _flavour = self.next()?;
        let length = self.next()?;
        if length > AUTHENTICATOR_BYTES_MAX {
            return Err(BadMessage::Word { what: "an authenticator's length", value: length });
        }
        for _ in 0..length.div_ceil(4) {
            self.next()?;
        }
        Ok(())
    }

    fn accepted(&mut self) -> Result<Outcome, BadMessage> {
        self.skip_authenticator()?;
        Ok(match self.next()? {
            0 => Outcome::Success,
            1 => Outcome::ProgramUnavailable,
            2 => Outcome::ProgramMismatch { lowest: self.next()?, highest: self.next()? },
            3 => Outcome::ProcedureUnavailable,
            4 => Outcome::GarbageArguments,
            5 => Outcome::SystemError,
            value => return Err(BadMessage::Word { what: "the accepted status", value }),
        })
    }

    fn denied(&mut self) -> Result<Outcome, BadMessage> {
        Ok(match self.next()? {
            0 => Outcome::RpcMismatch { lowest: self.next()?, highest: self.next()? },
            1 => Outcome::AuthenticationError(self.next()?),
            value => return Err(BadMessage::Word { what: "the reason of the denial", value }),
        })
    }

    #[inline]
    fn end(&self) -> Result<(), BadMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(BadMessage::Long(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcomes() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Success),
            Just(Outcome::ProgramUnavailable),
            any::<(u32, u32)>().prop_map(|(lowest, highest)| Outcome::ProgramMismatch { lowest, highest }),
            Just(Outcome::ProcedureUnavailable),
            Just(Outcome::GarbageArguments),
            Just(Outcome::SystemError),
            any::<(u32, u32)>().prop_map(|(lowest, highest)| Outcome::RpcMismatch { lowest, highest }),
            any::<u32>().prop_map(Outcome::AuthenticationError),
        ]
    }

    proptest! {
        #[test]
        fn every_call_reads_back_as_it_was_written(
            (xid, program, version, procedure) in any::<(u32, u32, u32, u32)>()
        ) {
            let call = Call { xid, program, version, procedure };
            prop_assert_eq!(Call::decode(&call.encode()), Ok(call));
        }

        #[test]
        fn every_reply_reads_back_as_it_was_written(xid: u32, outcome in outcomes()) {
            let reply = Reply { xid, outcome };
            let (bytes, length) = reply.encode();
            prop_assert_eq!(Reply::decode(&bytes[..length]), Ok(reply));
        }

        #[test]
        fn truncated_messages_and_messages_with_additional_bytes_are_rejected(
            xid: u32, outcome in outcomes(), cut in 0usize..32, more in 1usize..9
        ) {
            let (bytes, length) = Reply { xid, outcome }.encode();
            prop_assert_eq!(Reply::decode(&bytes[..cut.min(length - 1)]), Err(BadMessage::Short));
            let mut longer = bytes[..length].to_vec();
            longer.resize(length + more, 0);
            prop_assert_eq!(Reply::decode(&longer), Err(BadMessage::Long(more)));
            let call = Call { xid, program: 1, version: 1, procedure: 0 }.encode();
            prop_assert_eq!(Call::decode(&call[..cut]), Err(BadMessage::Short));
        }

        #[test]
        fn any_bytes_are_either_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(reply) = Reply::decode(&bytes) {
                // An authenticator may contain bytes that this module does not write, so only the first ones
                // are compared.
                let (again, length) = reply.encode();
                prop_assert!(length <= bytes.len());
                prop_assert_eq!(&again[..8], &bytes[..8]);
            }
            let _ = Call::decode(&bytes);
        }

        #[test]
        fn a_damaged_success_is_rejected_or_becomes_another_message(position in 0usize..24, bit in 0u32..8) {
            let success = Reply { xid: 7, outcome: Outcome::Success };
            let (mut bytes, length) = success.encode();
            bytes[position] ^= 1 << bit;
            // Bytes 12 to 15 are the flavour of the server's authenticator, which may have any value.
            if let Ok(reply) = Reply::decode(&bytes[..length]) {
                prop_assert!(reply.expect_success(7).is_err() || (12..16).contains(&position));
            }
        }

        #[test]
        fn a_mark_contains_its_length(bytes in 0usize..2000) {
            match fragment_mark(bytes) {
                Ok(mark) => prop_assert_eq!(fragment_bytes(mark), Ok(bytes)),
                Err(error) => prop_assert_eq!(error, BadMessage::Long(bytes - MESSAGE_BYTES_MAX)),
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        let call = Call { xid: 0x0102_0304, program: 100_003, version: 3, procedure: 0 };
        let words = [0x0102_0304, 0, 2, 100_003, 3, 0, 0, 0, 0, 0_u32];
        assert_eq!(call.encode().to_vec(), words.map(u32::to_be_bytes).concat());
        let (reply, length) = Reply { xid: 9, outcome: Outcome::Success }.encode();
        assert_eq!(reply[..length].to_vec(), [9, 1, 0, 0, 0, 0_u32].map(u32::to_be_bytes).concat());
        assert_eq!(fragment_mark(40), Ok([0x80, 0, 0, 40]));
    }

    #[test]
    fn an_authenticator_is_skipped_with_its_padding_and_one_that_is_too_long_is_rejected() {
        let with_authenticator = |length: u32, body: &[u8]| {
            let mut bytes = [5, 1, 0, 1, length].map(u32::to_be_bytes).concat();
            bytes.extend_from_slice(body);
            bytes.extend_from_slice(&0_u32.to_be_bytes());
            Reply::decode(&bytes)
        };
        let success = Ok(Reply { xid: 5, outcome: Outcome::Success });
        assert_eq!(with_authenticator(5, &[1, 2, 3, 4, 5, 0, 0, 0]), success);
        assert_eq!(with_authenticator(400, &[7; 400]), success);
        assert_eq!(with_authenticator(5, &[1, 2, 3, 4]), Err(BadMessage::Short));
        let long = BadMessage::Word { what: "an authenticator's length", value: 401 };
        assert_eq!(with_authenticator(401, &[7; 404]), Err(long));
    }

    #[test]
    fn a_mark_of_a_fragment_that_is_not_the_last_or_too_long_is_rejected() {
        for mark in [[0, 0, 0, 40], [0x80, 0, 4, 1], [0xff; 4]] {
            assert_eq!(fragment_bytes(mark), Err(BadMessage::Fragment(u32::from_be_bytes(mark))));
        }
    }
}
