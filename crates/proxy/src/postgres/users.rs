//! The roles that log in at the guard, and their secrets, in the format of PgBouncer's `auth_file`.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use md5::{Digest, Md5};

use super::scram::{Hashing, Key, Keys, NoVerifier, Verifier};

/// Roles and their secrets.
#[derive(Debug)]
pub struct Users {
    listed: Secrets,
    /// Those of other roles, as the server has stated them last.
    looked_up: Secrets,
}

type Secrets = HashMap<Box<[u8]>, Secret>;

/// What is known of the password of a role.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// All.
    Password {
        /// It.
        text: String,
        /// Its keys, for each way in which it had to be hashed: for the clients, and for the server.
        keys: Vec<(Hashing, Keys)>,
    },
    /// Its MD5 hash.
    Md5(Md5Hash),
    /// What its SCRAM proofs are checked with.
    Scram {
        /// It.
        verifier: Verifier,
        /// The keys, after a client has proved that it has them.
        keys: Option<Keys>,
    },
}

/// An MD5 hash, as 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Md5Hash(String);

/// With what the proof of a client is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// By SCRAM-SHA-256.
    Scram(Verifier),
    /// By an MD5 hash.
    Md5(Md5Hash),
}

/// A list of users that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadUsers {
    /// Where, from 1 on.
    pub line: usize,
    /// Why not.
    pub reason: BadUser,
}

/// What is wrong in a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUser {
    /// It has another form.
    #[error("it is not \"ROLE\" \"SECRET\"")]
    Form,
    /// It has no secret.
    #[error("the secret of this role is empty")]
    Empty,
    /// The role had one before.
    #[error("this role has a line before")]
    Twice,
    /// It has a verifier that cannot be read.
    #[error("the secret of this role cannot be read: {0}")]
    Verifier(#[from] NoVerifier),
}

impl Users {
    /// Reads a list: on each line a role and its secret in double quotes, in which a double quote is written
    /// twice. Empty lines and those that begin with a semicolon do not count, nor does what follows the
    /// secret.
    ///
    /// # Errors
    /// If a line cannot be read. The error shows nothing of it.
    pub fn parse(text: &str) -> Result<Self, BadUsers> {
        let mut listed = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let bad = |reason| BadUsers { line, reason };
            let text = text.trim();
            if text.is_empty() || text.starts_with(';') {
                continue;
            }
            let fields = quoted(text).and_then(|(role, rest)| Some((role, quoted(rest.trim_start())?.0)));
            let (role, secret) = fields.ok_or_else(|| bad(BadUser::Form))?;
            let secret = secret.parse().map_err(bad)?;
            if listed.insert(role.into_bytes().into_boxed_slice(), secret).is_some() {
                return Err(bad(BadUser::Twice));
            }
        }
        Ok(Self { listed, looked_up: HashMap::new() })
    }

    /// Returns with what the proof of a role is checked. One that is not in the list gets a check that no
    /// proof passes, like that of a password: its question does not show that it is not there. `seed` is a
    /// random key, and always the same.
    pub fn check(&mut self, role: &[u8], seed: &Key) -> Check {
        let hashing = Hashing::new(seed.salt(role));
        match self.secret(role) {
            None => Check::Scram(seed.verifier_of_none(hashing)),
            Some(Secret::Md5(hash)) => Check::Md5(hash.clone()),
            Some(Secret::Scram { verifier, .. }) => Check::Scram(verifier.clone()),
            Some(secret @ Secret::Password { .. }) => match secret.keys(&hashing) {
                Some(keys) => Check::Scram(Verifier::new(keys, hashing)),
                None => Check::Scram(seed.verifier_of_none(hashing)),
            },
        }
    }

    /// A client has proved that it has these keys of a role. The secret may have changed since it was asked.
    pub fn learn(&mut self, role: &[u8], proved: Keys) {
        if let Some(Secret::Scram { verifier, keys }) = self.secret(role)
            && *verifier == Verifier::new(&proved, verifier.hashing().clone())
        {
            *keys = Some(proved);
        }
    }

    /// Whether a role is in the list.
    #[must_use]
    pub fn lists(&self, role: &[u8]) -> bool {
        self.listed.contains_key(role)
    }

    /// The server has stated the secret of a role that is not in the list, or that it has none.
    pub fn found(&mut self, role: &[u8], secret: Option<Secret>) {
        match (self.looked_up.get(role), secret) {
            (Some(known), Some(secret)) if known.is_same(&secret) => {}
            (_, Some(secret)) => _ = self.looked_up.insert(role.into(), secret),
            (_, None) => _ = self.looked_up.remove(role),
        }
    }

    /// Takes from an earlier list the roles that were looked up and are not listed now, and what has become
    /// known of the secrets that are the same.
    pub fn succeed(&mut self, earlier: &mut Self) {
        self.looked_up = std::mem::take(&mut earlier.looked_up);
        for (role, secret) in &mut self.listed {
            let looked_up = self.looked_up.remove(role);
            if let Some(known) = earlier.listed.remove(role).or(looked_up)
                && secret.is_same(&known)
            {
                *secret = known;
            }
        }
    }

    /// Returns the secret of a role.
    pub fn secret(&mut self, role: &[u8]) -> Option<&mut Secret> {
        self.listed.get_mut(role).or_else(|| self.looked_up.get_mut(role))
    }
}

impl Secret {
    /// Returns the keys of the password, hashed in this way; `None` if they are not known.
    pub fn keys(&mut self, hashing: &Hashing) -> Option<&Keys> {
        match self {
            Self::Md5(_) => None,
            Self::Scram { verifier, keys } => keys.as_ref().filter(|_| verifier.hashing() == hashing),
            Self::Password { text, keys } => {
                let known = keys.iter().position(|(known, _)| known == hashing);
                let at = known.unwrap_or_else(|| {
                    // The server may hash it anew.
                    keys.truncate(1);
                    keys.push((hashing.clone(), Keys::of_password(text, hashing)));
                    keys.len() - 1
                });
                Some(&keys[at].1)
            }
        }
    }

    /// Whether it was stated in the same way. What has become known of it since does not count.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Password { text, .. }, Self::Password { text: other, .. }) => text == other,
            (Self::Md5(hash), Self::Md5(other)) => hash == other,
            (Self::Scram { verifier, .. }, Self::Scram { verifier: other, .. }) => verifier == other,
            _ => false,
        }
    }

    /// Returns the MD5 hash of the password; `None` if it is not known.
    #[must_use]
    pub fn md5(&self, role: &[u8]) -> Option<Md5Hash> {
        match self {
            Self::Password { text, .. } => Some(Md5Hash::new(&[text.as_bytes(), role].concat())),
            Self::Md5(hash) => Some(hash.clone()),
            Self::Scram { .. } => None,
        }
    }
}

impl FromStr for Secret {
    type Err = BadUser;

    fn from_str(text: &str) -> Result<Self, BadUser> {
        if text.is_empty() {
            return Err(BadUser::Empty);
        }
        if text.starts_with("SCRAM-SHA-256$") {
            return Ok(Self::Scram { verifier: text.parse()?, keys: None });
        }
        let hash = text.strip_prefix("md5").filter(|hash| hash.len() == 32);
        Ok(match hash.filter(|hash| hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))) {
            Some(hash) => Self::Md5(Md5Hash(hash.to_owned())),
            None => Self::Password { text: text.to_owned(), keys: Vec::new() },
        })
    }
}

impl Md5Hash {
    fn new(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the 32 hexadecimal digits.
    #[cfg(test)]
    pub fn digits(&self) -> &str {
        &self.0
    }

    /// Whether this proves that a client has it.
    #[must_use]
    pub fn accepts(&self, proof: &[u8], salt: [u8; 4]) -> bool {
        Key::of(proof) == Key::of(self.proof(salt).as_bytes())
    }

    /// Returns what a client sends to prove that it has it.
    #[must_use]
    pub fn proof(&self, salt: [u8; 4]) -> String {
        let Self(hash) = Self::new(&[self.0.as_bytes(), &salt].concat());
        format!("md5{hash}")
    }
}

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Without the hash, which is as good as the password.
impl fmt::Debug for Md5Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Md5Hash")
    }
}

/// Takes a field in double quotes, and returns it and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut field = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Some((field, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::scram::VERIFIER;

    fn users(text: &str) -> Users {
        Users::parse(text).unwrap()
    }

    #[test]
    fn secrets_are_passwords_and_what_servers_keep_of_them() {
        let text = format!(
            "; a comment\n\n\"one\" \"pencil\" \"more\" is ignored\n  \"t\"\"wo\"\t\"a \"\" b\"\r\n\
             \"three\" \"md5e721edf6e7ef16cbff1526f1163776e0\"\n\"four\" \"md5E721EDF6E7EF16CBFF1526F1163776E0\"\n\"five\" \"{VERIFIER}\"\n"
        );
        let mut users = users(&text);
        let password = |text: &str| Secret::Password { text: text.to_owned(), keys: Vec::new() };
        assert!(*users.secret(b"one").unwrap() == password("pencil"));
        assert!(*users.secret(b"t\"wo").unwrap() == password("a \" b"));
        assert!(matches!(users.secret(b"three").unwrap(), Secret::Md5(_)));
        assert!(*users.secret(b"four").unwrap() == password("md5E721EDF6E7EF16CBFF1526F1163776E0"));
        assert!(matches!(users.secret(b"five").unwrap(), Secret::Scram { keys: None, .. }));
        assert!(users.secret(b"six").is_none());
        let shown = format!("{users:?}");
        assert!(!["pencil", "e721", "W22Z"].iter().any(|secret| shown.contains(secret)), "{shown}");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_reported_without_its_secret() {
        for (text, message) in [
            ("\"one\" \"1\"\n\"one\" \"2\"", "line 2: this role has a line before"),
            ("one secret", "line 1: it is not \"ROLE\" \"SECRET\""),
            ("\"one\" \"secret", "line 1: it is not \"ROLE\" \"SECRET\""),
            ("\"one\"", "line 1: it is not \"ROLE\" \"SECRET\""),
            ("\u{feff}\"one\" \"1\"", "line 1: it is not \"ROLE\" \"SECRET\""),
            ("\n\"one\" \"\"", "line 2: the secret of this role is empty"),
            (
                "\"one\" \"SCRAM-SHA-256$secret\"",
                "line 1: the secret of this role cannot be read: it is not SCRAM-",
            ),
        ] {
            let error = Users::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message) && !error.contains("secret\""), "{error}");
        }
    }

    #[test]
    fn a_role_that_is_not_listed_looks_like_one_that_is() {
        let seed = Key::new([7; 32]);
        let mut users = users("\"one\" \"pencil\"");
        let hashing = |check| match check {
            Check::Scram(verifier) => verifier.hashing().clone(),
            Check::Md5(_) => panic!("an MD5 hash"),
        };
        let [one, two] = [&b"one"[..], b"two"].map(|role| [0; 2].map(|_| hashing(users.check(role, &seed))));
        assert!(one[0] == one[1] && two[0] == two[1] && one[0] != two[0], "{one:?} {two:?}");
        assert_ne!(hashing(users.check(b"two", &Key::new([8; 32]))), two[0]);
    }

    #[test]
    fn keys_are_those_of_one_hashing() {
        let hashings = [[1; 16], [2; 16], [3; 16]].map(Hashing::new);
        let mut secret: Secret = "pencil".parse().unwrap();
        let keys = hashings.each_ref().map(|hashing| secret.keys(hashing).unwrap().clone());
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
        assert_eq!(secret.keys(&hashings[0]), Some(&keys[0]));
        let mut users = users(&format!("\"five\" \"{VERIFIER}\""));
        let Check::Scram(verifier) = users.check(b"five", &Key::new([7; 32])) else { panic!("no verifier") };
        let proved = Keys::of_password("pencil", verifier.hashing());
        assert_eq!(users.secret(b"five").unwrap().keys(verifier.hashing()), None);
        users.learn(b"five", proved.clone());
        let secret = users.secret(b"five").unwrap();
        assert_eq!(secret.keys(verifier.hashing()), Some(&proved));
        assert_eq!(secret.keys(&hashings[0]), None);
        assert!(secret.md5(b"five").is_none());
        users.learn(b"five", keys[0].clone());
        assert_eq!(users.secret(b"five").unwrap().keys(verifier.hashing()), Some(&proved));
    }

    #[test]
    fn a_role_that_is_looked_up_has_the_secret_that_was_found_last() {
        let mut users = users("\"one\" \"listed\"");
        let secret = |text: &str| text.parse::<Secret>().unwrap();
        let hashing = Hashing::new([1; 16]);
        users.found(b"two", Some(secret("pencil")));
        let keys = users.secret(b"two").unwrap().keys(&hashing).unwrap().clone();
        users.found(b"two", Some(secret("pencil")));
        assert!(*users.secret(b"two").unwrap() != secret("pencil"), "what is known of it is lost");
        assert_eq!(users.secret(b"two").unwrap().keys(&hashing), Some(&keys));
        assert_eq!((users.lists(b"one"), users.lists(b"two")), (true, false));
        // A list does without it, or has its own secret of it.
        let mut next = Users::parse("\"three\" \"listed\"").unwrap();
        next.succeed(&mut users);
        assert!(next.secret(b"two").is_some() && next.secret(b"one").is_none());
        let mut same = Users::parse("\"two\" \"pencil\"").unwrap();
        same.succeed(&mut next);
        assert!(*same.secret(b"two").unwrap() != secret("pencil"), "what is known of it is lost");
        let mut last = Users::parse("").unwrap();
        last.succeed(&mut same);
        assert!(last.secret(b"two").is_none());
        last.found(b"four", Some(secret("pencil")));
        last.found(b"four", Some(secret("other")));
        assert!(*last.secret(b"four").unwrap() == secret("other"));
        last.found(b"four", None);
        assert!(last.secret(b"four").is_none());
    }

    #[test]
    fn keys_stay_known_while_their_secret_is_in_the_list() {
        let (hashing, other) = (Hashing::new([1; 16]), VERIFIER.replace("$W", "$X"));
        let mut one = users(&format!("\"scram\" \"{VERIFIER}\"\n\"password\" \"pencil\""));
        let Check::Scram(verifier) = one.check(b"scram", &Key::new([7; 32])) else { panic!("no verifier") };
        let proved = Keys::of_password("pencil", verifier.hashing());
        one.learn(b"scram", proved.clone());
        one.secret(b"password").unwrap().keys(&hashing).unwrap();
        let mut same = users(&format!("\"password\" \"pencil\"\n\"scram\" \"{VERIFIER}\""));
        same.succeed(&mut one);
        assert_eq!(same.secret(b"scram").unwrap().keys(verifier.hashing()), Some(&proved));
        let Some(Secret::Password { keys, .. }) = same.secret(b"password") else { panic!("no password") };
        assert_eq!(keys.len(), 1);
        let mut changed = users(&format!("\"password\" \"other\"\n\"scram\" \"{other}\""));
        changed.succeed(&mut same);
        assert_eq!(changed.secret(b"scram").unwrap().keys(verifier.hashing()), None);
        assert!(*changed.secret(b"password").unwrap() == "other".parse().unwrap());
        let mut fewer = users("\"scram\" \"pencil\"");
        fewer.succeed(&mut changed);
        assert!(*fewer.secret(b"scram").unwrap() == "pencil".parse().unwrap());
        assert!(fewer.secret(b"password").is_none());
    }
}
