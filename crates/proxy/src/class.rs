//! Classes of sessions: whose transactions are admitted first, how long they may wait, and how many of them
//! may.

use std::collections::BTreeSet;
use std::time::Duration;
use std::vec;

/// How the transactions of a class wait for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name, by which it stays the same when the classes change.
    pub name: String,
    /// Transactions of a class with a higher one are admitted first.
    pub priority: i32,
    /// The longest time that one waits.
    pub longest_wait: Duration,
    /// The number that may wait; without it, as many as there are sessions.
    pub most_waiting: Option<usize>,
}

/// Sessions, by what they say when they begin. Those of an empty list are all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Their roles.
    pub roles: Vec<String>,
    /// Their databases.
    pub databases: Vec<String>,
    /// Their `application_name`s.
    pub applications: Vec<String>,
}

/// All classes, and the sessions that are in them: a session is in the first one that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(Vec<(Sessions, Class)>);

/// Classes that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadClasses {
    /// A class has no name.
    #[error("a class has no name")]
    NoName,
    /// Two classes have this name.
    #[error("there are two classes `{0}`")]
    Twice(String),
    /// A class has the name of that for all other sessions.
    #[error("`{0}` is the class of all other sessions; give another name")]
    Others(String),
    /// No session is ever in a class.
    #[error("no session is in the class `{0}`: all are in `{1}` before it")]
    Unused(String, String),
}

impl Sessions {
    /// Whether one that begins so is among them.
    #[must_use]
    pub fn have(&self, role: &[u8], database: &[u8], application: &[u8]) -> bool {
        [(&self.roles, role), (&self.databases, database), (&self.applications, application)]
            .iter()
            .all(|(names, name)| names.is_empty() || names.iter().any(|known| known.as_bytes() == *name))
    }
}

impl Classes {
    /// Sessions that are in none of these classes are in `others`.
    ///
    /// # Errors
    /// If the classes have no names of their own, or no session can be in one.
    pub fn new(mut classes: Vec<(Sessions, Class)>, others: Class) -> Result<Self, BadClasses> {
        let mut names = BTreeSet::new();
        let mut all: Option<&str> = None;
        for (sessions, Class { name, .. }) in &classes {
            if name.is_empty() {
                return Err(BadClasses::NoName);
            }
            if *name == others.name {
                return Err(BadClasses::Others(name.clone()));
            }
            if !names.insert(name) {
                return Err(BadClasses::Twice(name.clone()));
            }
            if let Some(all) = all {
                return Err(BadClasses::Unused(name.clone(), all.to_owned()));
            }
            all = (*sessions == Sessions::default()).then_some(name);
        }
        if all.is_none() {
            classes.push((Sessions::default(), others));
        }
        Ok(Self(classes))
    }
}

/// The classes, the first one first. The last one has all sessions.
impl IntoIterator for Classes {
    type Item = (Sessions, Class);
    type IntoIter = vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> Class {
        Class {
            name: name.to_owned(),
            priority: 0,
            longest_wait: Duration::from_secs(60),
            most_waiting: None,
        }
    }

    fn sessions(roles: &[&str], databases: &[&str], applications: &[&str]) -> Sessions {
        let [roles, databases, applications] =
            [roles, databases, applications].map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Sessions { roles, databases, applications }
    }

    #[test]
    fn sessions_are_those_that_have_a_name_of_each_list() {
        let some = sessions(&["web", "api"], &[], &["shop"]);
        assert!(some.have(b"web", b"any", b"shop") && some.have(b"api", b"", b"shop"));
        assert!(!some.have(b"web", b"any", b"") && !some.have(b"batch", b"any", b"shop"));
        assert!(!sessions(&[], &["one"], &[]).have(b"one", b"two", b"one"));
        assert!(Sessions::default().have(b"", b"", b""));
    }

    #[test]
    fn each_session_has_a_class_and_each_class_can_have_sessions() {
        let web = || (sessions(&["web"], &[], &[]), class("web"));
        let all = || (Sessions::default(), class("all"));
        let names = |classes| {
            let classes: Classes = Classes::new(classes, class("others"))?;
            Ok(classes.into_iter().map(|(_, class)| class.name).collect::<Vec<_>>())
        };
        assert_eq!(names(vec![]).unwrap(), ["others"]);
        assert_eq!(names(vec![web()]).unwrap(), ["web", "others"]);
        assert_eq!(names(vec![web(), all()]).unwrap(), ["web", "all"]);
        let unused = BadClasses::Unused("web".to_owned(), "all".to_owned());
        assert_eq!(names(vec![all(), web()]), Err(unused));
        assert_eq!(names(vec![web(), web()]), Err(BadClasses::Twice("web".to_owned())));
        let named = |name| vec![(sessions(&["x"], &[], &[]), class(name))];
        assert_eq!(names(named("others")), Err(BadClasses::Others("others".to_owned())));
        assert_eq!(names(named("")), Err(BadClasses::NoName));
    }
}
