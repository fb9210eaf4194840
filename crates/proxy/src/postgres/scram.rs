//! SCRAM-SHA-256, by which a client and a server prove to each other that they have the same password, which
//! neither sends (RFC 5802, RFC 7677). Both sides; over TLS with channel binding (RFC 5929), so that no host
//! in between can pass a login on.
//!
//! A server keeps a [`Verifier`], with which it can check a proof but not make one. A proof shows the
//! client's key to those that have the verifier, so the guard can log in at a server with the same verifier
//! once a client has logged in at the guard. Crates for SCRAM keep that key to themselves.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::channel::EndPoint;

/// The name of the mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// Its name with channel binding.
pub const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";

/// What the first message of a client says of channel binding (RFC 5802, section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// The client does not support it.
    Unsupported,
    /// It does, and the server has not offered it.
    NotOffered,
    /// The login is bound to this end of a TLS connection.
    Bound(EndPoint),
}

/// A key, or a hash of one.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// How a password is hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashing {
    salt: Vec<u8>,
    iterations: u32,
}

/// What a password is hashed to: with both keys, each side can make its proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    client: Key,
    server: Key,
}

/// What a server keeps of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    hashing: Hashing,
    /// The hash of the client's key.
    stored: Key,
    server: Key,
}

/// A text that is not a verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY")]
pub struct NoVerifier;

/// A message that does not prove what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// It cannot be read.
    #[error("a SCRAM message cannot be read: {0}")]
    Malformed(&'static str),
    /// Its proof is wrong.
    #[error("the proof of the password is wrong")]
    Wrong,
}

/// Iterations of the hash where no server has chosen them, as PostgreSQL has by default.
const ITERATIONS: u32 = 4096;

/// Most iterations that a server may ask the guard for: all sessions wait for them, about 0.2 s.
const MOST_ITERATIONS: u32 = 1_000_000;

impl Binding {
    /// The name of the mechanism with it.
    #[must_use]
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Unsupported | Self::NotOffered => MECHANISM,
            Self::Bound(_) => BOUND_MECHANISM,
        }
    }

    /// How the first message begins.
    pub(super) fn header(&self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::Bound(_) => "p=tls-server-end-point,,",
        }
    }

    /// What the last message repeats.
    fn repeated(&self) -> String {
        let data = match self {
            Self::Unsupported | Self::NotOffered => &[][..],
            Self::Bound(end_point) => end_point.bytes(),
        };
        format!("c={}", BASE64.encode([self.header().as_bytes(), data].concat()))
    }

    /// What a client says that has selected a mechanism, of those that were offered: with `offered`, both.
    fn of_client(mechanism: &str, first: &str, offered: Option<&EndPoint>) -> Result<Self, BadMessage> {
        let said = match (mechanism, offered) {
            (MECHANISM, None) => vec![Self::Unsupported, Self::NotOffered],
            // If it has not got the offer, somebody in between has taken it away.
            (MECHANISM, Some(_)) => vec![Self::Unsupported],
            (BOUND_MECHANISM, Some(end_point)) => vec![Self::Bound(end_point.clone())],
            _ => return Err(BadMessage::Malformed("it names a mechanism that was not offered")),
        };
        let said = said.into_iter().find(|said| first.starts_with(said.header()));
        said.ok_or(BadMessage::Malformed("what it says of channel binding does not match what was offered"))
    }
}

impl Hashing {
    /// With this salt.
    #[must_use]
    pub fn new(salt: [u8; 16]) -> Self {
        Self { salt: salt.into(), iterations: ITERATIONS }
    }

    fn parse(salt: &str, iterations: &str) -> Option<Self> {
        let iterations = iterations.parse().ok().filter(|iterations| *iterations > 0)?;
        Some(Self { salt: BASE64.decode(salt).ok()?, iterations })
    }
}

impl Keys {
    /// Hashes a password. An iteration takes about 0.2 µs.
    #[must_use]
    pub fn of_password(password: &str, hashing: &Hashing) -> Self {
        // PostgreSQL, too, takes a password as it is that cannot be normalised.
        let normal = stringprep::saslprep(password).unwrap_or(password.into());
        let salted =
            pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(normal.as_bytes(), &hashing.salt, hashing.iterations);
        let salted = Key(salted);
        Self { client: salted.hmac(b"Client Key"), server: salted.hmac(b"Server Key") }
    }
}

impl Verifier {
    /// The verifier of these keys.
    #[must_use]
    pub fn new(keys: &Keys, hashing: Hashing) -> Self {
        Self { hashing, stored: keys.client.hash(), server: keys.server.clone() }
    }

    /// How its password is hashed.
    #[must_use]
    pub fn hashing(&self) -> &Hashing {
        &self.hashing
    }
}

impl FromStr for Verifier {
    type Err = NoVerifier;

    /// In the form in which PostgreSQL keeps it (`pg_authid.rolpassword`).
    fn from_str(text: &str) -> Result<Self, NoVerifier> {
        let parts = || {
            let (mechanism, rest) = text.split_once('$')?;
            let (hashing, keys) = rest.split_once('$')?;
            let (iterations, salt) = hashing.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let hashing = Hashing::parse(salt, iterations)?;
            (mechanism == MECHANISM).then_some(Self {
                hashing,
                stored: Key::parse(stored)?,
                server: Key::parse(server)?,
            })
        };
        parts().ok_or(NoVerifier)
    }
}

/// A server's side of a login, after its challenge.
#[derive(Debug)]
pub struct Challenge {
    verifier: Verifier,
    /// What the last message of the client has to begin with.
    prefix: String,
    /// Both messages that have been sent.
    messages: String,
}

impl Challenge {
    /// Takes the first message of a client, which has selected a mechanism, and returns the answer. Channel
    /// binding was offered if `end_point` is given. `nonce` must be random.
    ///
    /// # Errors
    /// If the message cannot be read.
    pub fn new(
        verifier: Verifier,
        mechanism: &str,
        first: &str,
        end_point: Option<&EndPoint>,
        nonce: &str,
    ) -> Result<(Self, String), BadMessage> {
        let binding = Binding::of_client(mechanism, first, end_point)?;
        let bare = &first[binding.header().len()..];
        let mut attributes = bare.split(',');
        // The name is that of the first packet (PostgreSQL's manual, *SASL Authentication*).
        let name = attributes.next().filter(|name| name.starts_with("n="));
        let of_client = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let (Some(_), Some(of_client)) = (name, of_client.filter(|nonce| is_nonce(nonce))) else {
            return Err(BadMessage::Malformed("it has no name and nonce"));
        };
        let Hashing { salt, iterations } = &verifier.hashing;
        let answer = format!("r={of_client}{nonce},s={},i={iterations}", BASE64.encode(salt));
        let prefix = format!("{},r={of_client}{nonce}", binding.repeated());
        let messages = format!("{bare},{answer}");
        Ok((Self { verifier, prefix, messages }, answer))
    }

    /// Takes the last message of the client, and returns the keys that it has proved to have, and the answer.
    ///
    /// # Errors
    /// If the message cannot be read, or the client has another password.
    pub fn check(&self, last: &str) -> Result<(Keys, String), BadMessage> {
        let (unproved, proof) = last.rsplit_once(",p=").ok_or(BadMessage::Malformed("it has no proof"))?;
        let rest = unproved.strip_prefix(&self.prefix);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(',')) {
            return Err(BadMessage::Malformed("it does not repeat the channel binding and the nonce"));
        }
        let proof = Key::parse(proof).ok_or(BadMessage::Malformed("its proof has another length"))?;
        let all = format!("{},{unproved}", self.messages);
        let client = proof.xor(&self.verifier.stored.hmac(all.as_bytes()));
        if client.hash() != self.verifier.stored {
            return Err(BadMessage::Wrong);
        }
        let server = self.verifier.server.clone();
        let answer = format!("v={}", BASE64.encode(server.hmac(all.as_bytes()).0));
        Ok((Keys { client, server }, answer))
    }
}

/// A client's side of a login, after its first message.
#[derive(Debug)]
pub struct Attempt {
    nonce: String,
    binding: Binding,
}

/// The challenge of a server, to which the proof is the answer.
#[derive(Debug)]
pub struct Challenged {
    /// How the server has hashed the password.
    pub hashing: Hashing,
    /// The last message, without the proof.
    unproved: String,
    messages: String,
}

/// What the last message of the server has to prove.
#[derive(Debug)]
pub struct Expected(Key);

impl Attempt {
    /// Begins, and returns the first message. `nonce` must be random.
    #[must_use]
    pub fn new(binding: Binding, nonce: String) -> (Self, String) {
        let first = format!("{}n=,r={nonce}", binding.header());
        (Self { nonce, binding }, first)
    }

    /// Takes the challenge of the server.
    ///
    /// # Errors
    /// If it cannot be read, or asks for more work than the guard can do.
    pub fn challenged(&self, challenge: &str) -> Result<Challenged, BadMessage> {
        let mut attributes = challenge.split(',');
        let mut next = |name| attributes.next().and_then(|attribute| attribute.strip_prefix(name));
        let (nonce, salt, iterations) = (next("r="), next("s="), next("i="));
        let nonce = nonce.filter(|nonce| nonce.starts_with(&self.nonce) && nonce.len() > self.nonce.len());
        let hashing = salt.zip(iterations).and_then(|(salt, iterations)| Hashing::parse(salt, iterations));
        let (Some(nonce), Some(hashing)) = (nonce, hashing) else {
            return Err(BadMessage::Malformed("the challenge has not the nonce, a salt and iterations"));
        };
        if hashing.iterations > MOST_ITERATIONS {
            return Err(BadMessage::Malformed("the challenge asks for more than a million iterations"));
        }
        let messages = format!("n=,r={},{challenge}", self.nonce);
        Ok(Challenged { hashing, unproved: format!("{},r={nonce}", self.binding.repeated()), messages })
    }
}

impl Challenged {
    /// Proves that the guard has the keys. Returns the last message, and what the server has to prove.
    #[must_use]
    pub fn prove(&self, keys: &Keys) -> (String, Expected) {
        let unproved = &self.unproved;
        let all = format!("{},{unproved}", self.messages);
        let proof = keys.client.xor(&keys.client.hash().hmac(all.as_bytes()));
        (format!("{unproved},p={}", BASE64.encode(proof.0)), Expected(keys.server.hmac(all.as_bytes())))
    }
}

impl Expected {
    /// Takes the last message of the server.
    ///
    /// # Errors
    /// If it does not prove that the server has the password.
    pub fn check(&self, last: &str) -> Result<(), BadMessage> {
        let signature = last.strip_prefix("v=").and_then(Key::parse);
        let signature = signature.ok_or(BadMessage::Malformed("the server gives no signature"))?;
        if signature == self.0 { Ok(()) } else { Err(BadMessage::Wrong) }
    }
}

impl Key {
    /// A key of random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash of other bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A verifier that no password has.
    #[must_use]
    pub fn verifier_of_none(&self, hashing: Hashing) -> Verifier {
        Verifier { hashing, stored: self.clone(), server: self.clone() }
    }

    /// Returns the salt of a name, which is always the same.
    #[must_use]
    pub fn salt(&self, name: &[u8]) -> [u8; 16] {
        let hash = self.hmac(name).0;
        std::array::from_fn(|byte| hash[byte])
    }

    fn parse(text: &str) -> Option<Self> {
        BASE64.decode(text).ok()?.try_into().ok().map(Self)
    }

    fn hash(&self) -> Self {
        Self::of(&self.0)
    }

    fn hmac(&self, bytes: &[u8]) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        Self(mac.chain_update(bytes).finalize().into_bytes().into())
    }

    fn xor(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|byte| self.0[byte] ^ other.0[byte]))
    }
}

/// In a time that does not depend on the bytes.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        CtOutput::<Sha256>::new(self.0.into()) == CtOutput::new(other.0.into())
    }
}

impl Eq for Key {}

/// Without the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Printable, without a comma (RFC 5802, section 7).
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The verifier of `pencil` in the example of RFC 7677, section 3.
#[cfg(test)]
pub const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
                            $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                            wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 7677, section 3.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn hashing() -> Hashing {
        Hashing::parse("W22ZaJ0SNY7soEsUEjb6gQ==", "4096").unwrap()
    }

    fn verifier() -> Verifier {
        VERIFIER.parse().unwrap()
    }

    fn challenge() -> Challenge {
        Challenge::new(verifier(), MECHANISM, FIRST, None, NONCE).unwrap().0
    }

    #[test]
    fn the_example_of_the_rfc_is_accepted_and_shows_the_keys() {
        let (challenge, question) = Challenge::new(verifier(), MECHANISM, FIRST, None, NONCE).unwrap();
        let expected =
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(question, expected);
        let (keys, answer) = challenge.check(LAST).unwrap();
        assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(keys, Keys::of_password("pencil", &hashing()));
    }

    #[test]
    fn the_guard_proves_its_keys_and_checks_the_server() {
        let keys = Keys::of_password("pencil", &hashing());
        let (attempt, first) = Attempt::new(Binding::Unsupported, "mine".to_owned());
        let (challenge, question) = Challenge::new(verifier(), MECHANISM, &first, None, "yours").unwrap();
        let challenged = attempt.challenged(&question).unwrap();
        assert_eq!(challenged.hashing, hashing());
        let (last, expected) = challenged.prove(&keys);
        let (proved, answer) = challenge.check(&last).unwrap();
        assert_eq!((proved, expected.check(&answer)), (keys.clone(), Ok(())));
        let other = format!("v={}", BASE64.encode([0; 32]));
        assert_eq!(expected.check(&other), Err(BadMessage::Wrong));
        assert!(matches!(expected.check("e=other-error"), Err(BadMessage::Malformed(_))));
        let (last, _) = challenged.prove(&Keys::of_password("pencils", &hashing()));
        assert_eq!(challenge.check(&last), Err(BadMessage::Wrong));
        assert_eq!(format!("{keys:?}"), "Keys { client: Key, server: Key }");
    }

    #[test]
    fn a_server_cannot_use_the_nonce_of_another_login_or_keep_the_guard_at_work() {
        let (attempt, _) = Attempt::new(Binding::Unsupported, "mine".to_owned());
        for challenge in ["r=mine,s=AAAA,i=1", "r=yours,s=AAAA,i=1", "r=mineyours,s=AAAA,i=0", "r=mineyours"]
        {
            assert!(attempt.challenged(challenge).is_err(), "{challenge}");
        }
        assert!(attempt.challenged("r=mineyours,s=AAAA,i=1000000").is_ok());
        assert!(attempt.challenged("r=mineyours,s=AAAA,i=1000001").is_err());
    }

    #[test]
    fn verifiers_are_read_as_the_server_keeps_them() {
        assert_eq!(verifier(), Verifier::new(&Keys::of_password("pencil", &hashing()), hashing()));
        for cut in 0..VERIFIER.len() {
            assert_eq!(VERIFIER[..cut].parse::<Verifier>(), Err(NoVerifier), "{cut}");
        }
        assert_eq!(VERIFIER.replace("4096", "0").parse::<Verifier>(), Err(NoVerifier));
    }

    #[test]
    fn passwords_are_normalised_as_the_server_does() {
        let keys = |password| Keys::of_password(password, &hashing());
        // A ligature and a non-breaking space; what must not be in a password is taken as it is.
        assert_eq!(keys("\u{fb01}x\u{a0}y"), keys("fix y"));
        assert_ne!(keys("a\u{7}"), keys("a"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_other_message_is_a_proof(at in 0..LAST.len(), with in "[ -~]?") {
            let mut changed = LAST.to_owned();
            changed.replace_range(at..=at, &with);
            // The last digit of the proof has two bits that must be zero: no other text is the same proof.
            prop_assume!(changed != LAST);
            prop_assert!(challenge().check(&changed).is_err());
        }

        #[test]
        fn no_message_is_a_panic(text in "[nyprcsiv=,a0/+]{0,40}|.{0,40}") {
            let _ = Challenge::new(verifier(), MECHANISM, &text, None, NONCE);
            let _ = challenge().check(&text);
            let _ = Attempt::new(Binding::NotOffered, "n".to_owned()).0.challenged(&text);
            let _ = Expected(Key::new([0; 32])).check(&text);
            let _ = text.parse::<Verifier>();
        }
    }
}
