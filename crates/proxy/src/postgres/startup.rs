//! The first packet of a connection: what the client asks for, before there are messages.

use std::fmt;

use super::frame::message;

/// A first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// The client asks for encryption. The answer is one byte.
    Encryption(Kind),
    /// Another session shall cancel what it does. There is no answer.
    Cancel(CancelKey),
    /// A session shall begin.
    Session(Startup),
}

/// A kind of encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TLS.
    Tls,
    /// That of GSSAPI, which the guard does not have.
    Gssapi,
}

/// How a session begins: the whole packet, which is sent to the server. Sessions with equal packets
/// can use the same connections of the server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Startup(Box<[u8]>);

/// What a client has to send to cancel a query: the number of the process and a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CancelKey(pub [u8; 8]);

/// A first packet that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadStart {
    /// It is not one.
    #[error("the first packet is not one of PostgreSQL's protocol, version 3")]
    Malformed,
    /// The session would replicate.
    #[error("replication is not relayed; connect to the server itself")]
    Replication,
}

/// The server accepts no longer packet (`MAX_STARTUP_PACKET_LENGTH`).
const LONGEST: usize = 10_000;

const VERSION_3: u32 = 3;
const VERSION_3_0: [u8; 4] = [0, 3, 0, 0];

/// How the names of extensions of the protocol begin.
const EXTENSION: &[u8] = b"_pq_.";

const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSSAPI: u32 = 80_877_104;

impl First {
    /// Returns the packet.
    #[must_use]
    pub fn packet(&self) -> Vec<u8> {
        match self {
            Self::Encryption(kind) => kind.packet().to_vec(),
            Self::Cancel(key) => key.packet().to_vec(),
            Self::Session(startup) => startup.packet().to_vec(),
        }
    }
}

impl Kind {
    /// Returns the packet that asks for it.
    #[must_use]
    pub fn packet(self) -> [u8; 8] {
        let code = match self {
            Self::Tls => TLS,
            Self::Gssapi => GSSAPI,
        };
        let mut packet = [0, 0, 0, 8, 0, 0, 0, 0];
        packet[4..].copy_from_slice(&code.to_be_bytes());
        packet
    }
}

/// Parses the first packet, and returns it with its length; `None` if there is more to come.
///
/// # Errors
/// If the client has to be refused.
pub fn parse(input: &[u8]) -> Result<Option<(First, usize)>, BadStart> {
    let Some((length, rest)) = input.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadStart::Malformed)?;
    if !(8..=LONGEST).contains(&length) {
        return Err(BadStart::Malformed);
    }
    if input.len() < length {
        return Ok(None);
    }
    let (code, body) = rest[..length - 4].split_first_chunk().ok_or(BadStart::Malformed)?;
    let first = match u32::from_be_bytes(*code) {
        TLS if body.is_empty() => First::Encryption(Kind::Tls),
        GSSAPI if body.is_empty() => First::Encryption(Kind::Gssapi),
        CANCEL => First::Cancel(CancelKey(body.try_into().map_err(|_| BadStart::Malformed)?)),
        version if version >> 16 == VERSION_3 => {
            let parameters = parameters(body).ok_or(BadStart::Malformed)?;
            let is_no = |value: &[u8]| [&b"false"[..], b"off", b"no", b"0"].contains(&value);
            if parameters.iter().any(|(name, value)| *name == b"replication" && !is_no(value)) {
                return Err(BadStart::Replication);
            }
            // The role that has to prove itself must be the one that the server takes.
            if parameters.iter().filter(|(name, _)| *name == b"user").count() > 1 {
                return Err(BadStart::Malformed);
            }
            First::Session(Startup(input[..length].into()))
        }
        _ => return Err(BadStart::Malformed),
    };
    Ok(Some((first, length)))
}

/// Names and values, each of which ends with a zero byte, and another one at the end.
fn parameters(body: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let pairs = body.strip_suffix(b"\0")?;
    let strings: Vec<_> = match pairs.strip_suffix(b"\0") {
        Some(pairs) => pairs.split(|byte| *byte == 0).collect(),
        None if pairs.is_empty() => Vec::new(),
        None => return None,
    };
    let (pairs, []) = strings.as_chunks() else { return None };
    let pairs: Vec<_> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    pairs.iter().all(|(name, _)| !name.is_empty()).then_some(pairs)
}

impl Startup {
    /// A session with these parameters: names and values.
    #[must_use]
    pub fn new(parameters: &[(&[u8], &[u8])]) -> Self {
        let pairs = parameters.iter().flat_map(|(name, value)| [*name, b"\0", *value, b"\0"]);
        let pairs = pairs.collect::<Vec<_>>().concat();
        let length = u32::try_from(pairs.len() + 9).unwrap_or(u32::MAX).to_be_bytes();
        Self([&length[..], &VERSION_3_0, &pairs, b"\0"].concat().into())
    }

    /// Returns the packet.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.0
    }

    /// Returns the role that begins the session; empty if there is none.
    #[must_use]
    pub fn role(&self) -> &[u8] {
        self.parameter(b"user").unwrap_or(b"")
    }

    /// Returns the database; by default, it has the name of the role.
    #[must_use]
    pub fn database(&self) -> &[u8] {
        self.parameter(b"database").filter(|name| !name.is_empty()).unwrap_or_else(|| self.role())
    }

    /// Returns the `application_name`; empty if there is none.
    #[must_use]
    pub fn application(&self) -> &[u8] {
        self.parameter(b"application_name").unwrap_or(b"")
    }

    /// Takes out what version 3.0 of the protocol does not have, and returns the message that tells the
    /// client (`NegotiateProtocolVersion`); `None` if there was nothing.
    pub fn make_plain(&mut self) -> Option<Vec<u8>> {
        let all = self.parameters();
        let (extensions, plain): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(name, _)| name.starts_with(EXTENSION));
        if extensions.is_empty() && self.0[4..8] == VERSION_3_0 {
            return None;
        }
        let count = u32::try_from(extensions.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut body = [VERSION_3_0, count].concat();
        extensions.iter().for_each(|(name, _)| body.extend([*name, b"\0"].concat()));
        *self = Self::new(&plain);
        Some(message(b'v', &body))
    }

    /// The value of a parameter. If there are several, the server takes the last one.
    fn parameter(&self, name: &[u8]) -> Option<&[u8]> {
        self.parameters().into_iter().rfind(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn parameters(&self) -> Vec<(&[u8], &[u8])> {
        parameters(&self.0[8..]).unwrap_or_default()
    }
}

impl CancelKey {
    /// Returns the number of the server's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the packet that asks the server to cancel.
    #[must_use]
    pub fn packet(&self) -> [u8; 16] {
        let mut packet = [0; 16];
        packet[..4].copy_from_slice(&16u32.to_be_bytes());
        packet[4..8].copy_from_slice(&CANCEL.to_be_bytes());
        packet[8..].copy_from_slice(&self.0);
        packet
    }

    /// Returns the message `BackendKeyData`, by which a client gets its key.
    #[must_use]
    pub fn message(&self) -> [u8; 13] {
        let mut message = [0; 13];
        message[..5].copy_from_slice(b"K\0\0\0\x0c");
        message[5..].copy_from_slice(&self.0);
        message
    }
}

/// Without the values, which may be secrets.
impl fmt::Debug for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Startup({} bytes)", self.0.len())
    }
}

/// Without the secret.
impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
        [&length[..], &code.to_be_bytes(), body].concat()
    }

    const VERSION: u32 = 3 << 16;

    #[test]
    fn a_session_is_its_packet() {
        let start = packet(VERSION, b"user\0one\0database\0two\0options\0\0\0");
        let behind = [&start[..], b"Q"].concat();
        for cut in 0..start.len() {
            assert_eq!(parse(&start[..cut]), Ok(None));
        }
        let (first, length) = parse(&behind).unwrap().unwrap();
        let First::Session(session) = first else { panic!("{first:?}") };
        assert_eq!((session.packet(), length), (&start[..], start.len()));
        assert!(!format!("{session:?}").contains("one"));
    }

    #[test]
    fn a_plain_session_has_nothing_of_later_protocols() {
        let session = |code, body: &[u8]| match parse(&packet(code, body)) {
            Ok(Some((First::Session(session), _))) => session,
            other => panic!("{other:?}"),
        };
        let plain = session(VERSION, b"user\0one\0options\0\0\0");
        assert_eq!(
            (plain.role(), plain.database(), plain.application()),
            (&b"one"[..], &b"one"[..], &b""[..])
        );
        let named =
            session(VERSION, b"user\0one\0database\0two\0application_name\0x\0application_name\0y\0\0");
        assert_eq!((named.database(), named.application()), (&b"two"[..], &b"y"[..]));
        let mut same = plain.clone();
        assert_eq!((same.make_plain(), &same), (None, &plain));
        let mut later = session(VERSION + 2, b"user\0one\0_pq_.x\0y\0options\0\0\0");
        let answer = later.make_plain().unwrap();
        assert_eq!(answer, b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
        assert_eq!(later, plain);
        assert_eq!(session(VERSION, b"\0").role(), b"");
    }

    #[test]
    fn encryption_and_cancellation_are_requests_of_their_own() {
        for kind in [Kind::Tls, Kind::Gssapi] {
            assert_eq!(parse(&kind.packet()), Ok(Some((First::Encryption(kind), 8))));
        }
        let key = CancelKey(*b"12345678");
        assert_eq!(parse(&key.packet()), Ok(Some((First::Cancel(key), 16))));
        assert_eq!(key.message(), *b"K\0\0\0\x0c12345678");
    }

    #[test]
    fn what_cannot_be_relayed_is_refused() {
        for body in [
            &b""[..],
            b"user\0",
            b"user\0one",
            b"user\0one\0",
            b"user\0\0",
            b"\0one\0\0",
            b"user\0one\0more\0\0",
            b"user\0one\0user\0two\0\0",
        ] {
            assert_eq!(parse(&packet(VERSION, body)), Err(BadStart::Malformed), "{body:?}");
        }
        for start in [packet(2 << 16, b"\0"), packet(TLS, b"x"), packet(CANCEL, b"1234567"), vec![0, 0, 0, 7]]
        {
            assert_eq!(parse(&start), Err(BadStart::Malformed), "{start:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(BadStart::Malformed));
        let replication =
            |value: &str| parse(&packet(VERSION, format!("user\0x\0replication\0{value}\0\0").as_bytes()));
        assert_eq!(replication("database"), Err(BadStart::Replication));
        assert!(replication("false").is_ok());
    }
}
