//! Proofs of a password: the guard asks its clients for one, and gives one to the server (PostgreSQL's
//! manual, *Message Flow*, *Start-up*).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::channel::{Channel, EndPoint};
use super::frame::message;
use super::scram::{
    Attempt, BOUND_MECHANISM, BadMessage, Binding, Challenge, Expected, Keys, MECHANISM, Verifier,
};
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
    /// The client is asked for its first message of SCRAM, which can be bound to this end of its connection.
    /// The guard answers with this nonce.
    Scram(Verifier, Option<EndPoint>, String),
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
    /// Begins, and returns the question to the client, whose connection may have an end to bind the login to.
    #[must_use]
    pub fn new(check: Check, end_point: Option<EndPoint>, random: Random) -> (Self, Vec<u8>) {
        match check {
            Check::Scram(verifier) => {
                let bound = if end_point.is_some() { string(BOUND_MECHANISM) } else { Vec::new() };
                let question = question(SASL, &[bound, string(MECHANISM), b"\0".to_vec()].concat());
                (Self::Scram(verifier, end_point, nonce(random)), question)
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
            Self::Scram(verifier, end_point, nonce) => {
                let (mechanism, first) = initial_response(body)?;
                let (challenge, text) =
                    Challenge::new(verifier, mechanism, first, end_point.as_ref(), &nonce)?;
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
    #[error("it asks for a password, and the guard has none of this role")]
    NoSecret,
    /// Others could read the password.
    #[error(
        "it asks for a password in the clear, over a network without TLS; give --server-ca, or add \
         sslmode=require to the address of the server"
    )]
    Exposed,
    /// The secret is not enough.
    #[error("it asks for {0}, for which the guard's secret of this role does not suffice")]
    Secret(&'static str),
    /// It has another verifier than the guard, which has no password.
    #[error("its secret of this role is another one than the guard's")]
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

    /// Takes the body of a message `Authentication…` of the server, which comes over this channel, and
    /// returns the answer, if there is one.
    ///
    /// # Errors
    /// If the guard cannot log in.
    pub fn answer(
        &mut self,
        body: &[u8],
        role: &[u8],
        secret: Option<&mut Secret>,
        channel: Channel,
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
                Secret::Password { .. } if channel == Channel::Open => return Err(NoAnswer::Exposed),
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
                let offers = |name: &str| mechanisms(rest).any(|offered| offered == name.as_bytes());
                let binding = match channel {
                    Channel::Tls(Some(end_point)) if offers(BOUND_MECHANISM) => Binding::Bound(end_point),
                    Channel::Tls(Some(_)) => Binding::NotOffered,
                    Channel::Open | Channel::Local | Channel::Tls(None) => Binding::Unsupported,
                };
                if !offers(binding.mechanism()) {
                    return Err(NoAnswer::Unknown(SASL));
                }
                let mechanism = string(binding.mechanism());
                let (attempt, first) = Attempt::new(binding, nonce(random));
                *self = Self::Attempt(attempt);
                let length = u32::try_from(first.len()).unwrap_or(u32::MAX).to_be_bytes();
                [&*mechanism, &length, first.as_bytes()].concat()
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

/// Takes channel binding out of what a server offers, from the body of its message `Authentication…`, and
/// returns the message; `None` if it offers none. A client that logs in through the guard cannot be bound to
/// the server's end of a connection that it does not have.
#[must_use]
pub fn without_binding(body: &[u8]) -> Option<Vec<u8>> {
    let offered = body.strip_prefix(&SASL.to_be_bytes())?;
    if !mechanisms(offered).any(|mechanism| mechanism == BOUND_MECHANISM.as_bytes()) {
        return None;
    }
    let others = mechanisms(offered).filter(|mechanism| *mechanism != BOUND_MECHANISM.as_bytes());
    let others = others.flat_map(|mechanism| [mechanism, b"\0"]).collect::<Vec<_>>().concat();
    Some(question(SASL, &[&*others, b"\0"].concat()))
}

/// Whether the body of a client's first message says that channel binding was not offered, and that the
/// client would have used it. A server that has offered it takes that for an attack.
#[must_use]
pub fn misses_binding(body: &[u8]) -> bool {
    initial_response(body).is_ok_and(|(_, first)| first.starts_with(Binding::NotOffered.header()))
}

/// The names of mechanisms, each of which ends with a zero byte.
fn mechanisms(offered: &[u8]) -> impl Iterator<Item = &[u8]> {
    offered.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

/// A message `Authentication…`.
fn question(number: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&number.to_be_bytes(), rest].concat())
}

/// What a client sends first: the name of the mechanism, and a text that follows its length.
fn initial_response(body: &[u8]) -> Result<(&str, &str), BadMessage> {
    let mut parts = body.splitn(2, |byte| *byte == 0);
    let (Some(mechanism), Some(rest)) = (parts.next(), parts.next()) else {
        return Err(BadMessage::Malformed("it names no mechanism"));
    };
    let text = rest.split_first_chunk().filter(|(length, text)| {
        u32::try_from(text.len()).is_ok_and(|there| there == u32::from_be_bytes(**length))
    });
    let (_, text) = text.ok_or(BadMessage::Malformed("it has another length than it states"))?;
    Ok((utf8(mechanism)?, utf8(text)?))
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

    /// An MD5 hash.
    const HASH: &str = "md5e721edf6e7ef16cbff1526f1163776e0";

    /// A role logs in at the guard as the guard does at the server. Returns what the guard has learned.
    fn logs_in(listed: &str, known: &str) -> Result<Option<Keys>, String> {
        logs_in_over(listed, None, known, Channel::Local)
    }

    /// It does so over the ends of a connection that both see.
    fn logs_in_over(
        listed: &str,
        own: Option<EndPoint>,
        known: &str,
        seen: Channel,
    ) -> Result<Option<Keys>, String> {
        let mut listed = Users::parse(&format!("\"role\" \"{listed}\"")).unwrap();
        let mut known: Secret = known.parse().unwrap();
        let mut login = Login::default();
        let check = listed.check(b"role", &Key::new(SEED));
        let (mut examination, mut question) = Examination::new(check, own, [1; 18]);
        loop {
            let answer = login.answer(&question[5..], b"role", Some(&mut known), seen.clone(), [2; 18]);
            let answer = answer.map_err(|error| error.to_string())?.unwrap();
            assert_eq!(answer[0], b'p');
            match examination.take(&answer[5..]).map_err(|error| error.to_string())? {
                Progress::Asked(next, asked) => (examination, question) = (next, asked),
                Progress::Proved(keys, last) => {
                    if !last.is_empty() {
                        assert_eq!(
                            login.answer(&last[5..], b"role", Some(&mut known), Channel::Local, [3; 18]),
                            Ok(None)
                        );
                    }
                    assert!(!login.is_accepted());
                    assert_eq!(
                        login.answer(&ACCEPTED[5..], b"role", Some(&mut known), Channel::Local, [3; 18]),
                        Ok(None)
                    );
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
    fn a_login_is_bound_to_the_end_that_both_sides_see() {
        let [one, other] = [1, 2].map(|byte| EndPoint::with(vec![byte; 32]));
        let over =
            |own: Option<&EndPoint>, seen: Channel| logs_in_over(VERIFIER, own.cloned(), "pencil", seen);
        for own in [None, Some(&one)] {
            for seen in [Channel::Open, Channel::Tls(None), Channel::Tls(Some(one.clone()))] {
                assert!(over(own, seen.clone()).is_ok_and(|keys| keys.is_some()), "{own:?} {seen:?}");
            }
        }
        let between = over(Some(&one), Channel::Tls(Some(other))).unwrap_err();
        assert!(between.contains("channel binding"), "{between}");
    }

    #[test]
    fn an_offer_that_was_taken_away_is_noticed() {
        let end_point = EndPoint::with(vec![1; 32]);
        let check =
            Users::parse(&format!("\"role\" \"{VERIFIER}\"")).unwrap().check(b"role", &Key::new(SEED));
        let (examination, offered) = Examination::new(check, Some(end_point.clone()), [1; 18]);
        assert!(offered.ends_with(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"));
        let changed = without_binding(&offered[5..]).unwrap();
        assert_eq!(changed, b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(without_binding(&changed[5..]), None);
        let (mut login, mut secret): (_, Secret) = (Login::default(), "pencil".parse().unwrap());
        let channel = Channel::Tls(Some(end_point));
        let answer = login.answer(&changed[5..], b"role", Some(&mut secret), channel, [2; 18]);
        let answer = answer.unwrap().unwrap();
        assert!(misses_binding(&answer[5..]));
        let error = examination.take(&answer[5..]).unwrap_err();
        assert!(error.to_string().contains("channel binding"), "{error}");
    }

    #[test]
    fn a_server_must_not_accept_the_guard_before_it_has_proved_itself() {
        let mut secret: Secret = "pencil".parse().unwrap();
        let mut login = Login::default();
        let mut answer = |question: Vec<u8>| {
            login.answer(&question[5..], b"role", Some(&mut secret), Channel::Local, [2; 18])
        };
        answer(question(SASL, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")).unwrap().unwrap();
        assert_eq!(answer(question(OK, b"")), Err(NoAnswer::Unproved));
        let mut trusted = Login::default();
        assert_eq!(trusted.answer(&[0; 4], b"role", None, Channel::Local, [2; 18]), Ok(None));
        let password = [0, 0, 0, 3];
        assert_eq!(
            trusted.answer(&password, b"role", None, Channel::Local, [2; 18]),
            Err(NoAnswer::NoSecret)
        );
        let in_the_clear =
            Login::default().answer(&password, b"role", Some(&mut secret), Channel::Local, [2; 18]);
        assert_eq!(in_the_clear, Ok(Some(b"p\0\0\0\x0bpencil\0".to_vec())));
        let exposed = Login::default().answer(&password, b"role", Some(&mut secret), Channel::Open, [2; 18]);
        assert_eq!(exposed, Err(NoAnswer::Exposed));
        let kerberos =
            Login::default().answer(&[0, 0, 0, 7], b"role", Some(&mut secret), Channel::Local, [2; 18]);
        assert_eq!(kerberos, Err(NoAnswer::Unknown(7)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_a_proof_or_a_panic(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4),
            text in "(SCRAM-SHA-256(-PLUS)?\0\0\0\0.)?(p=tls-server-end-point,,)?[nyprc=,a/+]{0,20}",
        ) {
            let end_point = EndPoint::with(vec![1; 32]);
            for (secret, bound) in [(VERIFIER, None), (VERIFIER, Some(&end_point)), (HASH, None)] {
                let check = Users::parse(&format!("\"role\" \"{secret}\"")).unwrap().check(b"role", &Key::new(SEED));
                let mut examination = Some(Examination::new(check, bound.cloned(), [1; 18]).0);
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
                let channel = Channel::Tls(Some(end_point.clone()));
                let _ = login.answer(body, b"role", Some(&mut secret), channel, [2; 18]);
            }
        }
    }
}
