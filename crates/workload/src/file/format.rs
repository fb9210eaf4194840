//! The types that mirror the text of a workload file, key by key. They check only the types of values; the
//! module above checks all other rules and converts them into the types of this crate.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

/// Default timeout of a request: far above the time for any page, but short enough to wait for.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) name: Spanned<String>,
    pub(super) about: String,
    pub(super) packages: Vec<String>,
    pub(super) server_cpus: Option<Cpus>,
    pub(super) client_cpus: Option<Cpus>,
    pub(super) server: Option<Server>,
    pub(super) command: Option<Command>,
    #[serde(default)]
    pub(super) file: Vec<File>,
    #[serde(default)]
    pub(super) operation: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) command: Spanned<Words>,
    pub(super) port: u16,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) prepare: Vec<Spanned<Words>>,
    pub(super) ready: Spanned<Ready>,
    #[serde(default)]
    pub(super) populate: Vec<Spanned<Words>>,
    pub(super) stop: Stop,
    pub(super) concurrency: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    pub(super) run: Spanned<Words>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    pub(super) path: Option<Spanned<String>>,
    pub(super) run: Option<Spanned<Words>>,
    pub(super) timeout_s: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    pub(super) signal: Spanned<String>,
    pub(super) grace_s: Spanned<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) path: Spanned<String>,
    pub(super) content: Option<String>,
    pub(super) size: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Operation {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) client: Client,
    pub(super) connections: Spanned<u32>,
    pub(super) requests: Option<Spanned<u64>>,
    pub(super) duration_s: Option<Spanned<u32>>,
    pub(super) timeout_s: Option<Spanned<f64>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) keep_alive: Option<bool>,
    pub(super) command: Option<Spanned<Words>>,
    pub(super) user: Option<Spanned<String>>,
    pub(super) database: Option<Spanned<String>>,
    pub(super) query: Option<Spanned<String>>,
    pub(super) expect: Spanned<Expect>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Client {
    Http,
    Redis,
    Postgres,
    Wrk,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Client::Http => "http",
            Client::Redis => "redis",
            Client::Postgres => "postgres",
            Client::Wrk => "wrk",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) status: Option<u16>,
    pub(super) file: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) reply: Option<String>,
    pub(super) rows: Option<Vec<Vec<String>>>,
    pub(super) tag: Option<String>,
}

/// A command: one line that is split like in a shell, or a list of words.
#[derive(Debug)]
pub(super) enum Words {
    Line(String),
    List(Vec<String>),
}

/// CPUs: `"any"`, `"split"`, or a list of numbers.
#[derive(Debug, Default)]
pub(super) enum Cpus {
    #[default]
    Any,
    Split,
    List(Vec<usize>),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Words;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a command line or a list of words")
            }
            fn visit_str<E: Error>(self, line: &str) -> Result<Words, E> {
                Ok(Words::Line(line.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Words, A::Error> {
                elements(list).map(Words::List)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cpus, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Cpus;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("\"any\", \"split\" or a list of CPU numbers")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Cpus, E> {
                match word {
                    "any" => Ok(Cpus::Any),
                    "split" => Ok(Cpus::Split),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Cpus, A::Error> {
                let cpus: Vec<usize> = elements(list)?;
                let known = |cpu: &usize| *cpu < rustix::thread::CpuSet::MAX_CPU;
                if cpus.is_empty() || !cpus.iter().all(known) {
                    return Err(A::Error::custom(
                        "a list of CPUs must contain at least one CPU, each below 1024",
                    ));
                }
                Ok(Cpus::List(cpus))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn elements<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut list: A) -> Result<Vec<T>, A::Error> {
    let mut elements = Vec::new();
    while let Some(element) = list.next_element()? {
        elements.push(element);
    }
    Ok(elements)
}
