//! `assay guard --config`: the classes of transactions, in TOML.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use assay_proxy::class::{Class, Classes, Order, Sessions};
use serde::{Deserialize, Deserializer};

use super::files::{cannot_read, read};
use crate::cli::guard::wait;

/// What messages call the file.
const WHAT: &str = "configuration";

/// The name of the class of all sessions that are in no other.
const OTHERS: &str = "others";

/// Contents of the file.
#[derive(Debug, Deserialize)]
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
    #[serde(default)]
    order: OrderName,
    #[serde(default, deserialize_with = "at_least_one")]
    max_waiting: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OrderName {
    #[default]
    OldestFirst,
    NewestFirst,
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
    let others = Class {
        name: OTHERS.to_owned(),
        priority: 0,
        longest_wait,
        order: Order::default(),
        most_waiting: None,
    };
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
            order: match self.order {
                OrderName::OldestFirst => Order::OldestFirst,
                OrderName::NewestFirst => Order::NewestFirst,
            },
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
        wait(&String::deserialize(deserializer)?)
            .map(Self)
            .map_err(|error| serde::de::Error::custom(format!("max-wait: {error}")))
    }
}

/// Without any that waits, the law could not see that there are more than it lets in.
fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("give at least 1 for max-waiting")),
        number => Ok(Some(number)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn the_example_of_the_documentation_is_a_configuration() {
        let page = include_str!("../../../../../docs/guard.md");
        let (_, example) = page.split_once("    [[class]]").unwrap();
        let (example, _) = example.split_once("\n| key |").unwrap();
        let class = |name: &str, priority, longest_wait, order, most_waiting| Class {
            name: name.to_owned(),
            priority,
            longest_wait,
            order,
            most_waiting,
        };
        let sessions = |[roles, databases, applications]: [&[&str]; 3]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Sessions { roles: owned(roles), databases: owned(databases), applications: owned(applications) }
        };
        let checkout = class("checkout", 10, Duration::from_millis(500), Order::NewestFirst, Some(200));
        let reports = class("reports", -10, LONGEST, Order::OldestFirst, None);
        let others = class("others", 0, LONGEST, Order::OldestFirst, None);
        let expected = vec![
            (sessions([&["web"], &[], &["checkout", "payment"]]), checkout),
            (sessions([&[], &["warehouse"], &[]]), reports),
        ];
        let read = parse(&format!("[[class]]{example}"), LONGEST).unwrap();
        assert_eq!(read, Classes::new(expected, others).unwrap());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (text, message) in [
            ("[[class]]\nname = 'x'\nrole = ['y']", "unknown field `role`"),
            ("[[class]]\nroles = ['y']", "missing field `name`"),
            ("[[class]]\nname = 'x'\nroles = []", "line 3: the list is empty; leave it out"),
            ("[[class]]\nname = 'x'\nroles = 'y'", "invalid type: string \"y\", expected a sequence"),
            ("[[class]]\nname = 'x'\nmax-wait = '0ms'", "line 3: max-wait: give a time between 1ms and 24h"),
            ("[[class]]\nname = 'x'\nmax-wait = '5'", "line 3: max-wait: give a time"),
            ("[[class]]\nname = 'x'\nmax-waiting = 0", "line 3: give at least 1"),
            ("[[class]]\nname = 'x'\npriority = 3000000000", "line 3"),
            ("[[class]]\nname = 'x'\n[[class]]\nname = 'y'", "no session is in the class \"y\""),
            ("[[class]]\nname = 'x'\norder = 'last'", "unknown variant `last`, expected `oldest-first` or"),
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
                prop_assert!(!reason.is_empty() && !reason.contains(char::is_control), "{}", reason);
            }
        }
    }
}
