//! `assay guard --config`: the classes of transactions, in TOML.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use assay_proxy::class::{Class, Classes, Sessions};
use serde::{Deserialize, Deserializer};

use super::files::{cannot_read, read};
use crate::cli::guard::wait;

/// What messages call the file.
const WHAT: &str = "configuration";

/// The name of the class of all sessions that are in no other.
const OTHERS: &str = "others";

/// Contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    class: Vec<ClassTable>,
}

/// A class.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClassTable {
    name: String,
    roles: Option<Names>,
    databases: Option<Names>,
    applications: Option<Names>,
    #[serde(default)]
    priority: i32,
    max_wait: Option<Wait>,
    #[serde(default, deserialize_with = "at_least_one")]
    max_waiting: Option<usize>,
}

/// Names, of which there is at least one: no session has one of none.
#[derive(Debug)]
struct Names(Vec<String>);

/// A time.
#[derive(Debug)]
struct Wait(Duration);

/// Reads the classes of a file. `longest_wait` is for classes that do not have their own.
pub fn classes(path: Option<&Path>, longest_wait: Duration) -> anyhow::Result<Classes> {
    let Some(path) = path else { return parse("", longest_wait) };
    let text = String::from_utf8(read(path, WHAT)?).with_context(|| cannot_read(path, WHAT))?;
    parse(&text, longest_wait).with_context(|| cannot_read(path, WHAT))
}

fn parse(text: &str, longest_wait: Duration) -> anyhow::Result<Classes> {
    let Config { class: tables } = toml::from_str(text).map_err(|error| in_one_line(&error, text))?;
    let others = Class { name: OTHERS.to_owned(), priority: 0, longest_wait, most_waiting: None };
    Ok(Classes::new(tables.into_iter().map(|table| table.class(longest_wait)).collect(), others)?)
}

/// An error of the library takes several lines.
fn in_one_line(error: &toml::de::Error, text: &str) -> anyhow::Error {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    anyhow!("line {line}: {message}")
}

impl ClassTable {
    fn class(self, longest_wait: Duration) -> (Sessions, Class) {
        let [roles, databases, applications] = [self.roles, self.databases, self.applications]
            .map(|names| names.map_or(vec![], |names| names.0));
        let class = Class {
            name: self.name,
            priority: self.priority,
            longest_wait: self.max_wait.map_or(longest_wait, |wait| wait.0),
            most_waiting: self.max_waiting,
        };
        (Sessions { roles, databases, applications }, class)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::deserialize(deserializer)?;
        if names.is_empty() {
            return Err(serde::de::Error::custom("the list is empty; leave it out for all sessions"));
        }
        Ok(Self(names))
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        wait(&String::deserialize(deserializer)?).map(Self).map_err(serde::de::Error::custom)
    }
}

/// If none of a class could wait, the law would see no overload.
fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("give at least 1")),
        number => Ok(Some(number)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn classes_are_in_the_order_of_the_file() {
        let text = "
            [[class]]
            name = 'web'
            roles = ['web', 'api']
            databases = ['shop']
            applications = ['checkout']
            priority = 10
            max-wait = '500ms'
            max-waiting = 200
            [[class]]
            name = 'batch'
            roles = ['batch']
            priority = -10
        ";
        let classes: Vec<_> = parse(text, LONGEST).unwrap().into_iter().collect();
        let [(web, first), (batch, second), (all, others)] = &classes[..] else { panic!("{classes:?}") };
        assert_eq!(
            (&*web.roles, &*web.databases),
            (&["web".to_owned(), "api".to_owned()][..], &["shop".to_owned()][..])
        );
        assert_eq!(
            (&*web.applications, &*batch.roles),
            (&["checkout".to_owned()][..], &["batch".to_owned()][..])
        );
        assert_eq!(*all, Sessions::default());
        let class = |name: &str, priority, longest_wait, most_waiting| Class {
            name: name.to_owned(),
            priority,
            longest_wait,
            most_waiting,
        };
        assert_eq!(*first, class("web", 10, Duration::from_millis(500), Some(200)));
        assert_eq!(*second, class("batch", -10, LONGEST, None));
        assert_eq!(*others, class("others", 0, LONGEST, None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (text, message) in [
            ("[[class]]\nname = 'x'\nrole = ['y']", "unknown field `role`"),
            ("[[class]]\nroles = ['y']", "missing field `name`"),
            ("[[class]]\nname = 'x'\nroles = []", "line 3: the list is empty; leave it out"),
            ("[[class]]\nname = 'x'\nroles = 'y'", "invalid type: string \"y\", expected a sequence"),
            ("[[class]]\nname = 'x'\nmax-wait = '0ms'", "give a time between 1ms and 24h"),
            ("[[class]]\nname = 'x'\nmax-waiting = 0", "give at least 1"),
            ("[[class]]\nname = 'x'\npriority = 3000000000", "line 3"),
            ("[[class]]\nname = 'x'\n[[class]]\nname = 'y'", "no session is in the class `y`"),
            ("[[class]", "line 1"),
        ] {
            let error = format!("{:#}", parse(text, LONGEST).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_is_refused_with_a_reason(
            lines in prop::collection::vec(
                r"(\[\[class\]\]|(name|roles|priority|max-wait|max-waiting|x) ?= ?[\['a-z0-9\], ]{0,9})", 0..6
            )
        ) {
            if let Err(refusal) = parse(&lines.join("\n"), LONGEST) {
                let reason = format!("{refusal:#}");
                prop_assert!(!reason.is_empty());
            }
        }
    }
}
