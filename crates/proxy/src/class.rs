//! Classes of sessions: whose transactions are admitted first, how long they may wait, and how many of them
//! may.

use std::time::Duration;

/// How the transactions of a class wait for admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its name, by which it stays the same when the classes change.
    pub name: String,
    /// Transactions of a class with a higher one are admitted first.
    pub priority: i32,
    /// The longest time that one waits.
    pub longest_wait: Duration,
    /// Which transaction is admitted next.
    pub order: Order,
    /// The number that may wait; without it, as many as there are sessions.
    pub most_waiting: Option<usize>,
}

/// In which order the transactions of a class are admitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that has waited longest is the next.
    #[default]
    OldestFirst,
    /// The same, until one has waited for half of the longest wait. From then on, the one that arrived last
    /// is the next: if more arrive than the server does, those that are admitted have hardly waited, and not
    /// all of them almost too long.
    NewestFirst,
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

/// What a session says when it begins.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// Its role.
    pub role: &'a [u8],
    /// Its database.
    pub database: &'a [u8],
    /// Its `application_name`.
    pub application: &'a [u8],
}

/// Classes, or what stands for them, and their sessions: a session is in the first one that has it, and the
/// last one has all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes<T = Class>(Vec<(Sessions, T)>);

/// Classes that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadClasses {
    /// The name of a class is empty, or would not fit into a line.
    #[error("{0:?} cannot be the name of a class; give one of visible characters")]
    Name(String),
    /// Two classes have this name.
    #[error("there are two classes {0:?}; give one of them another name")]
    Twice(String),
    /// A class has the name of that for all other sessions.
    #[error("{0:?} is the class of all other sessions; give another name")]
    Others(String),
    /// No session is ever in a class.
    #[error("no session is in the class {unused:?}, as all are in {before:?} before it; change their order")]
    Unused {
        /// The name of the class.
        unused: String,
        /// The name of the one that has its sessions.
        before: String,
    },
}

impl Sessions {
    /// Whether a session is among them.
    #[must_use]
    pub fn have(&self, session: Session<'_>) -> bool {
        let has = |names: &[String], name: &[u8]| {
            names.is_empty() || names.iter().any(|known| known.as_bytes() == name)
        };
        has(&self.roles, session.role)
            && has(&self.databases, session.database)
            && has(&self.applications, session.application)
    }

    /// Whether all others are among them.
    fn have_all(&self, others: &Self) -> bool {
        let have = |names: &[String], others: &[String]| {
            names.is_empty() || (!others.is_empty() && others.iter().all(|other| names.contains(other)))
        };
        have(&self.roles, &others.roles)
            && have(&self.databases, &others.databases)
            && have(&self.applications, &others.applications)
    }
}

impl Classes {
    /// Sessions that are in none of these classes are in `others`.
    ///
    /// # Errors
    /// If the classes have no names of their own, or one of them has all sessions of a later one.
    pub fn new(mut classes: Vec<(Sessions, Class)>, others: Class) -> Result<Self, BadClasses> {
        for (number, (sessions, Class { name, .. })) in classes.iter().enumerate() {
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(BadClasses::Name(name.clone()));
            }
            if *name == others.name {
                return Err(BadClasses::Others(name.clone()));
            }
            for (earlier, Class { name: before, .. }) in &classes[..number] {
                if name == before {
                    return Err(BadClasses::Twice(name.clone()));
                }
                if earlier.have_all(sessions) {
                    return Err(BadClasses::Unused { unused: name.clone(), before: before.clone() });
                }
            }
        }
        if !classes.iter().any(|(sessions, _)| *sessions == Sessions::default()) {
            classes.push((Sessions::default(), others));
        }
        Ok(Self(classes))
    }
}

impl<T> Classes<T> {
    /// Puts something else in the place of each class.
    pub fn map<U>(self, mut replace: impl FnMut(T) -> U) -> Classes<U> {
        Classes(self.0.into_iter().map(|(sessions, class)| (sessions, replace(class))).collect())
    }

    /// Returns the class of a session.
    #[must_use]
    pub fn of(&self, session: Session<'_>) -> &T {
        let first = self.0.iter().find(|(sessions, _)| sessions.have(session));
        &first.expect("the last class has all sessions").1
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
            order: Order::default(),
            most_waiting: None,
        }
    }

    fn sessions(roles: &[&str], databases: &[&str], applications: &[&str]) -> Sessions {
        let [roles, databases, applications] =
            [roles, databases, applications].map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Sessions { roles, databases, applications }
    }

    fn session<'a>(role: &'a str, database: &'a str, application: &'a str) -> Session<'a> {
        let [role, database, application] = [role, database, application].map(str::as_bytes);
        Session { role, database, application }
    }

    #[test]
    fn sessions_are_those_that_have_a_name_of_each_list() {
        let some = sessions(&["web", "api"], &[], &["shop"]);
        assert!(some.have(session("web", "any", "shop")) && some.have(session("api", "", "shop")));
        assert!(!some.have(session("web", "any", "")) && !some.have(session("batch", "any", "shop")));
        assert!(!sessions(&[], &["one"], &[]).have(session("one", "two", "one")));
        assert!(Sessions::default().have(session("", "", "")));
    }

    #[test]
    fn a_session_is_in_the_first_class_that_has_it() {
        let one = (sessions(&["web"], &[], &["shop"]), class("one"));
        let two = (sessions(&["web"], &[], &[]), class("two"));
        let classes = Classes::new(vec![one, two], class("others")).unwrap().map(|class| class.name);
        let of = |role, application| &**classes.of(session(role, "any", application));
        assert_eq!([of("web", "shop"), of("web", ""), of("batch", "shop")], ["one", "two", "others"]);
        let all = (Sessions::default(), class("all"));
        let classes = Classes::new(vec![all], class("others")).unwrap();
        assert_eq!(*classes.of(session("", "", "")), class("all"));
    }

    #[test]
    fn each_class_has_a_name_and_sessions_of_its_own() {
        let refused = |named: Vec<(&str, Sessions)>| {
            let classes = named.into_iter().map(|(name, sessions)| (sessions, class(name))).collect();
            Classes::new(classes, class("others")).unwrap_err()
        };
        let web = || sessions(&["web", "api"], &[], &[]);
        let unused = |sessions| {
            let BadClasses::Unused { unused, before } =
                refused(vec![("before", web()), ("unused", sessions)])
            else {
                panic!("another error")
            };
            (unused, before) == ("unused".to_owned(), "before".to_owned())
        };
        assert!(unused(web()) && unused(sessions(&["api"], &["one"], &[])));
        let more = [sessions(&["web", "batch"], &[], &[]), sessions(&[], &["one"], &[])];
        for sessions in more {
            let classes = vec![(web(), class("one")), (sessions, class("two"))];
            Classes::new(classes, class("others")).unwrap();
        }
        let all = refused(vec![("all", Sessions::default()), ("web", web())]);
        assert_eq!(all, BadClasses::Unused { unused: "web".to_owned(), before: "all".to_owned() });
        let batch = sessions(&["batch"], &[], &[]);
        assert_eq!(refused(vec![("web", web()), ("web", batch)]), BadClasses::Twice("web".to_owned()));
        assert_eq!(refused(vec![("others", web())]), BadClasses::Others("others".to_owned()));
        for name in ["", "a\nb"] {
            assert_eq!(refused(vec![(name, web())]), BadClasses::Name(name.to_owned()));
        }
    }
}
