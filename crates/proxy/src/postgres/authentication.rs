//! Proofs of a password: the guard asks its clients for one, and gives one to the server (PostgreSQL's
//! manual, *Message Flow*, *Start-up*).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::frame::message;
use super::scram::{Attempt, BadMessage, Challenge, Expected, Keys, MECHANISM, Verifier};
use super::users::{Check, Md5Hash, Secret};

/// The numbers of the messages `Authentication…`.
const OK: u32 = 0;
const PASSWORD: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// `AuthenticationOk`: the session can begin.
pub const ACCEPTED: [u8; 9] = *b"R\0\0\0\x08\0\0\0\0";

/// Random bytes, for a nonce or a salt.
pub type Random = [u8; 18];

/// A login at the guard.
#[derive(Debug)]
pub enum Examination {
    /// The client is asked for its first message of SCRAM. The guard answers with this nonce.
    Scram(Verifier, String),
    /// It is asked for its proof.
    Challenge(Challenge),
    /// It is asked for the MD5 hash, with this salt.
    Md5(Md5Hash, [u8; 4]),
}

/// How a login at the guard goes on.
#[derive(Debug)]
pub enum Progress {
    /// The client has to answer this.
    Asked(Examination, Vec<u8>),
    /// It has the password. It gets this, and [`ACCEPTED`] when its session can begin.
    Proved(Option<Keys>, Vec<u8>),
}

impl Examination {
    /// Begins, and returns the question to the client.
    #[must_use]
    pub fn new(check: Check, random: Random) -> (Self, Vec<u8>) {
        match check {
            Check::Scram(verifier) => {
                let question = question(SASL, &[MECHANISM.as_bytes(), b"\0\0"].concat());
                (Self::Scram(verifier, nonce(random)), question)
            }
            Check::Md5(hash) => {
                let [a, b, c, d, ..] = random;
                let salt = [a, b, c, d];
                (Self::Md5(hash, salt), question(MD5, &salt))
            }
        }
    }

    /// Takes the answer of the client: the body of its message.
    ///
    /// # Errors
    /// If it cannot be read, or does not prove that the client has the password.
    pub fn take(self, body: &[u8]) -> Result<Progress, BadMessage> {
        match self {
            Self::Scram(verifier, nonce) => {
                let (challenge, text) = Challenge::new(verifier, initial_response(body)?, &nonce)?;
                let question = question(SASL_CONTINUE, text.as_bytes());
                Ok(Progress::Asked(Self::Challenge(challenge), question))
            }
            Self::Challenge(challenge) => {
                let (keys, text) = challenge.check(utf8(body)?)?;
                Ok(Progress::Proved(Some(keys), question(SASL_FINAL, text.as_bytes())))
            }
            Self::Md5(hash, salt) => {
                let proof = body.strip_suffix(b"\0").ok_or(BadMessage::Malformed("a string has no end"))?;
                if hash.accepts(proof, salt) {
                    Ok(Progress::Proved(None, Vec::new()))
                } else {
                    Err(BadMessage::Wrong)
                }
            }
        }
    }
}

/// A login of the guard at the server.
#[derive(Debug, Default)]
pub enum Login {
    /// The server has not asked for SCRAM.
    #[default]
    Begun,
    /// It has to send its challenge.
    Attempt(Attempt),
    /// It has to prove that it has the password, too.
    Expected(Expected),
    /// It has.
    Proved,
    /// It has accepted the guard.
    Accepted,
}

/// Why the guard cannot log in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There is no secret of the role.
    #[error("it asks for a password, which it has not done before")]
    NoSecret,
    /// The secret is not enough.
    #[error("it asks for {0}, for which the secret of this role in the list of users does not suffice")]
    Secret(&'static str),
    /// It has another verifier than the guard, which has no password.
    #[error("its secret of this role is another one than that in the list of users")]
    Other,
    /// There is no answer to what it asks.
    #[error("it asks for an authentication of type {0}, which the guard does not have")]
    Unknown(u32),
    /// It has accepted the guard too early.
    #[error("it has not proved that it has the password")]
    Unproved,
    /// It does not keep to the protocol.
    #[error(transparent)]
    Bad(#[from] BadMessage),
}

impl Login {
    /// Whether the server has accepted the guard.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted)
    }

    /// Takes the body of a message `Authentication…` of the server, and returns the answer, if there is one.
    ///
    /// # Errors
    /// If the guard cannot log in.
    pub fn answer(
        &mut self,
        body: &[u8],
        role: &[u8],
        secret: Option<&mut Secret>,
        random: Random,
    ) -> Result<Option<Vec<u8>>, NoAnswer> {
        let (number, rest) = body.split_first_chunk().ok_or(BadMessage::Malformed("it has no type"))?;
        let (number, state) = (u32::from_be_bytes(*number), std::mem::take(self));
        if number == OK {
            if !matches!(state, Self::Begun | Self::Proved) {
                return Err(NoAnswer::Unproved);
            }
            *self = Self::Accepted;
            return Ok(None);
        }
        let secret = secret.ok_or(NoAnswer::NoSecret)?;
        let answer = match (number, state) {
            (PASSWORD, Self::Begun) => match secret {
                Secret::Password { text, .. } => string(text),
                Secret::Md5(_) | Secret::Scram { .. } => {
                    return Err(NoAnswer::Secret("a password in the clear"));
                }
            },
            (MD5, Self::Begun) => {
                let salt =
                    rest.try_into().map_err(|_| BadMessage::Malformed("the salt has another length"))?;
                string(&secret.md5(role).ok_or(NoAnswer::Secret("an MD5 hash"))?.proof(salt))
            }
            (SASL, Self::Begun) => {
                if matches!(secret, Secret::Md5(_)) {
                    return Err(NoAnswer::Secret(MECHANISM));
                }
                if !rest.split(|byte| *byte == 0).any(|mechanism| mechanism == MECHANISM.as_bytes()) {
                    return Err(NoAnswer::Unknown(SASL));
                }
                let (attempt, first) = Attempt::new(nonce(random));
                *self = Self::Attempt(attempt);
                let length = u32::try_from(first.len()).unwrap_or(u32::MAX).to_be_bytes();
                [MECHANISM.as_bytes(), b"\0", &length, first.as_bytes()].concat()
            }
            (SASL_CONTINUE, Self::Attempt(attempt)) => {
                let challenged = attempt.challenged(utf8(rest)?)?;
                let keys = secret.keys(&challenged.hashing).ok_or(NoAnswer::Other)?;
                let (last, expected) = challenged.prove(keys);
                *self = Self::Expected(expected);
                last.into_bytes()
            }
            (SASL_FINAL, Self::Expected(expected)) => {
                expected.check(utf8(rest)?)?;
                *self = Self::Proved;
                return Ok(None);
            }
            (number, _) => return Err(NoAnswer::Unknown(number)),
        };
        Ok(Some(message(b'p', &answer)))
    }
}

/// A message `Authentication…`.
fn question(number: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&number.to_be_bytes(), rest].concat())
}

/// What a client sends first: the name of the mechanism, and a text that follows its length.
fn initial_response(body: &[u8]) -> Result<&str, BadMessage> {
    let rest = body.strip_prefix(MECHANISM.as_bytes()).and_then(|rest| rest.strip_prefix(b"\0"));
    let rest = rest.ok_or(BadMessage::Malformed("it names another mechanism than SCRAM-SHA-256"))?;
    let text = rest.split_first_chunk().filter(|(length, text)| {
        u32::try_from(text.len()).is_ok_and(|there| there == u32::from_be_bytes(**length))
    });
    utf8(text.ok_or(BadMessage::Malformed("it has another length than it states"))?.1)
}

fn utf8(bytes: &[u8]) -> Result<&str, BadMessage> {
    str::from_utf8(bytes).map_err(|_| BadMessage::Malformed("it is not UTF-8"))
}

fn string(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

fn nonce(random: Random) -> String {
    BASE64.encode(random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::postgres::scram::{Hashing, Key, VERIFIER};
    use crate::postgres::users::Users;

    const SEED: [u8; 32] = [7; 32];

    /// A role logs in at the guard as the guard does at the server. Returns what the guard has learned.
    fn logs_in(listed: &str, known: &str) -> Result<Option<Keys>, String> {
        let mut listed = Users::parse(&format!("\"role\" \"{listed}\"")).unwrap();
        let mut known: Secret = known.parse().unwrap();
        let mut login = Login::default();
        let check = listed.check(b"role", &Key::new(SEED));
        let (mut examination, mut question) = Examination::new(check, [1; 18]);
        loop {
            let answer = login.answer(&question[5..], b"role", Some(&mut known), [2; 18]);
            let answer = answer.map_err(|error| error.to_string())?.unwrap();
            assert_eq!(answer[0], b'p');
            match examination.take(&answer[5..]).map_err(|error| error.to_string())? {
                Progress::Asked(next, asked) => (examination, question) = (next, asked),
                Progress::Proved(keys, last) => {
                    if !last.is_empty() {
                        assert_eq!(login.answer(&last[5..], b"role", Some(&mut known), [3; 18]), Ok(None));
                    }
                    assert!(!login.is_accepted());
                    assert_eq!(login.answer(&ACCEPTED[5..], b"role", Some(&mut known), [3; 18]), Ok(None));
                    assert!(login.is_accepted());
                    return Ok(keys);
                }
            }
        }
    }

    /// The MD5 hash of `pencil` for this role.
    fn hash() -> String {
        let secret: Secret = "pencil".parse().unwrap();
        let hash = secret.md5(b"role").unwrap();
        format!("md5{}", hash.digits())
    }

    #[test]
    fn who_has_the_secret_logs_in_and_others_do_not() {
        let hashing = Hashing::new(Key::new(SEED).salt(b"role"));
        assert_eq!(logs_in("pencil", "pencil"), Ok(Some(Keys::of_password("pencil", &hashing))));
        assert_eq!(logs_in(&hash(), "pencil"), Ok(None));
        assert_eq!(logs_in(&hash(), &hash()), Ok(None));
        let wrong = BadMessage::Wrong.to_string();
        assert_eq!(logs_in("pencil", "pencils"), Err(wrong.clone()));
        assert_eq!(logs_in(&hash(), "pencils"), Err(wrong));
        assert_eq!(logs_in("pencil", &hash()), Err(NoAnswer::Secret(MECHANISM).to_string()));
    }

    #[test]
    fn a_server_must_not_accept_the_guard_before_it_has_proved_itself() {
        let mut secret: Secret = "pencil".parse().unwrap();
        let mut login = Login::default();
        let mut answer =
            |question: Vec<u8>| login.answer(&question[5..], b"role", Some(&mut secret), [2; 18]);
        answer(question(SASL, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")).unwrap().unwrap();
        assert_eq!(answer(question(OK, b"")), Err(NoAnswer::Unproved));
        let mut trusted = Login::default();
        assert_eq!(trusted.answer(&[0; 4], b"role", None, [2; 18]), Ok(None));
        let password = [0, 0, 0, 3];
        assert_eq!(trusted.answer(&password, b"role", None, [2; 18]), Err(NoAnswer::NoSecret));
        let in_the_clear = Login::default().answer(&password, b"role", Some(&mut secret), [2; 18]);
        assert_eq!(in_the_clear, Ok(Some(b"p\0\0\0\x0bpencil\0".to_vec())));
        let kerberos = Login::default().answer(&[0, 0, 0, 7], b"role", Some(&mut secret), [2; 18]);
        assert_eq!(kerberos, Err(NoAnswer::Unknown(7)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_a_proof_or_a_panic(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4),
            text in "(SCRAM-SHA-256\0\0\0\0.)?[nyprc=,a/+]{0,20}",
        ) {
            for secret in [VERIFIER, "md5e721edf6e7ef16cbff1526f1163776e0"] {
                let check = Users::parse(&format!("\"role\" \"{secret}\"")).unwrap().check(b"role", &Key::new(SEED));
                let mut examination = Some(Examination::new(check, [1; 18]).0);
                for body in bodies.iter().map(Vec::as_slice).chain([text.as_bytes()]) {
                    let Some(asked) = examination.take() else { break };
                    match asked.take(body) {
                        Ok(Progress::Asked(next, _)) => examination = Some(next),
                        Ok(Progress::Proved(..)) => prop_assert!(false, "{body:?}"),
                        Err(_) => {}
                    }
                }
            }
            let mut login = Login::default();
            let mut secret: Secret = "pencil".parse().unwrap();
            for body in &bodies {
                let _ = login.answer(body, b"role", Some(&mut secret), [2; 18]);
            }
        }
    }
}
