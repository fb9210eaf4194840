//! Names of primitives: `family.operation{key=value,...}`.
//!
//! A primitive is one operation that a layer offers to the layer above (thesis, section 2.1). Keys and their
//! values come from [`KEYS`] only, and are always written in its order, so that a primitive has the same name
//! in every machine and every demand.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::size::Size;

/// A parameter of a primitive. Ids list keys in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Bytes moved by one operation.
    Size,
    /// Reused: the same buffer every time, in cache; fresh: mapped, but in no cache.
    Buffer,
    /// Level of the memory hierarchy that holds the working set.
    Level,
    /// Bytes of the working set.
    Set,
    /// Bytes between one access and the next; without it the order is random.
    Stride,
    /// Page size of the memory that is accessed.
    Pages,
    /// Type of the operands.
    Type,
    /// Independent chains of operations that are under way together.
    Chains,
    /// Stores in one operation.
    Stores,
    /// Share of the memory bandwidth that others use, per cent.
    Load,
    /// Kind of the descriptors that are waited for.
    Descriptor,
    /// Number of descriptors that are waited for.
    Descriptors,
    /// Number of processes that take part.
    Processes,
    /// Number of threads that take part.
    Threads,
    /// Processor that writes.
    From,
    /// Processor that reads, or node of memory.
    To,
    /// Whether those who take part share one processor.
    Cpus,
    /// How the program is linked.
    Link,
    /// Type of the file system.
    Filesystem,
    /// Protocol underneath.
    Transport,
    /// Remote: another host, where 'assay bench --serve' answers; without it this host.
    Peer,
    /// Cold: every cache was emptied before each operation; without it warm.
    Cache,
    /// Copies of the benchmark that run at the same time.
    Copies,
    /// Free: the scheduler places the copies; without it each is bound to a processor.
    Placement,
}

/// The values that a key accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of bytes, `4KiB`.
    Bytes,
    /// A whole number.
    Count,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// One row of [`KEYS`].
#[derive(Debug, Clone, Copy)]
pub struct KeyRow {
    /// The key.
    pub key: Key,
    /// Its name in ids.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its meaning, for `assay bench --list` and the documentation.
    pub about: &'static str,
}

/// Every key. A new parameter is one row here and one variant of [`Key`].
pub const KEYS: [KeyRow; 24] = [
    KeyRow { key: Key::Size, name: "size", kind: Kind::Bytes, about: "bytes moved by one operation" },
    KeyRow {
        key: Key::Buffer,
        name: "buffer",
        kind: Kind::Word(&["reused", "fresh"]),
        about: "reused: the same buffer every time, in cache; fresh: mapped, but in no cache",
    },
    KeyRow {
        key: Key::Level,
        name: "level",
        kind: Kind::Word(&["l1", "l2", "l3", "dram"]),
        about: "level of the memory hierarchy that holds the working set",
    },
    KeyRow { key: Key::Set, name: "set", kind: Kind::Bytes, about: "bytes of the working set" },
    KeyRow {
        key: Key::Stride,
        name: "stride",
        kind: Kind::Bytes,
        about: "bytes between one access and the next; without it the order is random",
    },
    KeyRow {
        key: Key::Pages,
        name: "pages",
        kind: Kind::Word(&["base", "huge"]),
        about: "page size of the memory that is accessed",
    },
    KeyRow {
        key: Key::Type,
        name: "type",
        kind: Kind::Word(&["int32", "int64", "float32", "float64"]),
        about: "type of the operands",
    },
    KeyRow {
        key: Key::Chains,
        name: "chains",
        kind: Kind::Count,
        about: "independent chains of operations that are under way together",
    },
    KeyRow { key: Key::Stores, name: "stores", kind: Kind::Count, about: "stores in one operation" },
    KeyRow {
        key: Key::Load,
        name: "load",
        kind: Kind::Count,
        about: "share of the memory bandwidth that others use, per cent",
    },
    KeyRow {
        key: Key::Descriptor,
        name: "descriptor",
        kind: Kind::Word(&["file", "pipe", "eventfd", "tcp"]),
        about: "kind of the descriptors that are waited for",
    },
    KeyRow {
        key: Key::Descriptors,
        name: "descriptors",
        kind: Kind::Count,
        about: "number of descriptors that are waited for",
    },
    KeyRow {
        key: Key::Processes,
        name: "processes",
        kind: Kind::Count,
        about: "number of processes that take part",
    },
    KeyRow {
        key: Key::Threads,
        name: "threads",
        kind: Kind::Count,
        about: "number of threads that take part",
    },
    KeyRow { key: Key::From, name: "from", kind: Kind::Count, about: "processor that writes" },
    KeyRow { key: Key::To, name: "to", kind: Kind::Count, about: "processor that reads, or node of memory" },
    KeyRow {
        key: Key::Cpus,
        name: "cpus",
        kind: Kind::Word(&["same", "different"]),
        about: "whether those who take part share one processor",
    },
    KeyRow {
        key: Key::Link,
        name: "link",
        kind: Kind::Word(&["static", "dynamic"]),
        about: "how the program is linked",
    },
    KeyRow {
        key: Key::Filesystem,
        name: "filesystem",
        kind: Kind::Word(&["tmpfs", "ext4", "xfs", "btrfs", "overlay", "other"]),
        about: "type of the file system",
    },
    KeyRow {
        key: Key::Transport,
        name: "transport",
        kind: Kind::Word(&["tcp", "udp"]),
        about: "protocol underneath",
    },
    KeyRow {
        key: Key::Peer,
        name: "peer",
        kind: Kind::Word(&["remote"]),
        about: "remote: another host, where 'assay bench --serve' answers; without it this host",
    },
    KeyRow {
        key: Key::Cache,
        name: "cache",
        kind: Kind::Word(&["cold"]),
        about: "cold: every cache was emptied before each operation; without it warm",
    },
    KeyRow {
        key: Key::Copies,
        name: "copies",
        kind: Kind::Count,
        about: "copies of the benchmark that run at the same time",
    },
    KeyRow {
        key: Key::Placement,
        name: "placement",
        kind: Kind::Word(&["free"]),
        about: "free: the scheduler places the copies; without it each is bound to a processor",
    },
];

impl Key {
    /// Its row in [`KEYS`].
    #[must_use]
    pub fn row(self) -> &'static KeyRow {
        // The table is in the order of the enum, which a test checks.
        &KEYS[self as usize]
    }
}

/// A value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A number of bytes.
    Bytes(Size),
    /// A whole number.
    Count(u64),
    /// A word of the key's row.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bytes(size) => size.fmt(f),
            Value::Count(count) => count.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// The name of a primitive, or of a set of primitives if a key is left free.
///
/// Invariant: family and operation are lower-case words, and every key holds a value of its row's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrimitiveId {
    family: String,
    operation: String,
    keys: BTreeMap<Key, Value>,
}

impl PrimitiveId {
    /// The part before the dot.
    #[must_use]
    pub fn family(&self) -> &str {
        &self.family
    }

    /// The part between the dot and the keys.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The keys with their values, in the order of [`KEYS`].
    #[must_use]
    pub fn keys(&self) -> &BTreeMap<Key, Value> {
        &self.keys
    }

    /// The bytes that one operation moves, if the id contains them.
    #[must_use]
    pub fn size(&self) -> Option<Size> {
        match self.keys.get(&Key::Size) {
            Some(Value::Bytes(size)) => Some(*size),
            _ => None,
        }
    }

    /// The word of a key; empty if it has none.
    #[must_use]
    pub fn word(&self, key: Key) -> &'static str {
        match self.keys.get(&key) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// The number of a key, in bytes or as a count.
    #[must_use]
    pub fn number(&self, key: Key) -> Option<u64> {
        match self.keys.get(&key) {
            Some(Value::Bytes(size)) => Some(size.bytes()),
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// The same id with this value for `key`.
    ///
    /// # Panics
    /// If the value is not of the key's kind.
    #[must_use]
    pub fn with(&self, key: Key, value: Value) -> Self {
        let fits = match (key.row().kind, value) {
            (Kind::Bytes, Value::Bytes(_)) | (Kind::Count, Value::Count(_)) => true,
            (Kind::Word(words), Value::Word(word)) => words.contains(&word),
            _ => false,
        };
        assert!(fits, "{value} is not a value of the key {}", key.row().name);
        let mut id = self.clone();
        id.keys.insert(key, value);
        id
    }

    /// The same id with `key` left free: the name of a cost curve over it.
    #[must_use]
    pub fn without(&self, key: Key) -> Self {
        let mut id = self.clone();
        id.keys.remove(&key);
        id
    }
}

impl fmt::Display for PrimitiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.family, self.operation)?;
        for (position, (key, value)) in self.keys.iter().enumerate() {
            let separator = if position == 0 { '{' } else { ',' };
            write!(f, "{separator}{}={value}", key.row().name)?;
        }
        if self.keys.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

/// Why a text is not the name of a primitive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPrimitive {
    /// Not of the form `family.operation{...}`.
    #[error("primitive name '{0}' is not family.operation{{key=value,...}}; see 'assay bench --list'")]
    Shape(String),
    /// A key that is not in [`KEYS`].
    #[error("primitive name '{id}' has the unknown key '{key}'; see 'assay bench --list'")]
    Key {
        /// The whole text.
        id: String,
        /// The key in question.
        key: String,
    },
    /// A repeated key.
    #[error("primitive name '{id}' gives the key '{key}' twice; give it once")]
    Twice {
        /// The whole text.
        id: String,
        /// The key in question.
        key: &'static str,
    },
    /// A value that the key does not accept.
    #[error("primitive name '{id}' gives {key}={value}, which is not a value of {key} ({about})")]
    Value {
        /// The whole text.
        id: String,
        /// The key in question.
        key: &'static str,
        /// The refused value.
        value: String,
        /// What the key means.
        about: &'static str,
    },
}

impl FromStr for PrimitiveId {
    type Err = NotAPrimitive;

    fn from_str(text: &str) -> Result<Self, NotAPrimitive> {
        let Parts { family, operation, keys } = Parts::of(text)?;
        let keys = keys.into_iter().map(|(row, value)| Ok((row.key, parse_value(text, row, value)?)));
        Ok(PrimitiveId { family, operation, keys: keys.collect::<Result<_, _>>()? })
    }
}

/// The parts of a text of the form `family.operation{key=value,...}`, with the values as they are written.
pub(crate) struct Parts<'a> {
    family: String,
    operation: String,
    /// In the order of [`KEYS`].
    pub(crate) keys: Vec<(&'static KeyRow, &'a str)>,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(text: &'a str) -> Result<Self, NotAPrimitive> {
        let shape = || NotAPrimitive::Shape(text.to_owned());
        let (name, pairs) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => match rest.strip_suffix('}') {
                Some(pairs) if !pairs.is_empty() => (name, pairs),
                _ => return Err(shape()),
            },
        };
        let (family, operation) = name.split_once('.').ok_or_else(shape)?;
        if !is_word(family) || !is_word(operation) {
            return Err(shape());
        }
        let mut keys: Vec<(&'static KeyRow, &str)> = Vec::new();
        for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(shape)?;
            let row = KEYS
                .iter()
                .find(|row| row.name == name)
                .ok_or_else(|| NotAPrimitive::Key { id: text.to_owned(), key: name.to_owned() })?;
            if keys.iter().any(|(known, _)| known.key == row.key) {
                return Err(NotAPrimitive::Twice { id: text.to_owned(), key: row.name });
            }
            keys.push((row, value));
        }
        keys.sort_by_key(|(row, _)| row.key);
        Ok(Self { family: family.to_owned(), operation: operation.to_owned(), keys })
    }

    /// Returns the id without its keys.
    pub(crate) fn name(&self) -> PrimitiveId {
        let (family, operation) = (self.family.clone(), self.operation.clone());
        PrimitiveId { family, operation, keys: BTreeMap::new() }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Parses the value of a key in the text of an id or of a pattern.
pub(crate) fn parse_value(text: &str, row: &KeyRow, value: &str) -> Result<Value, NotAPrimitive> {
    let parsed = match row.kind {
        Kind::Bytes => value.parse().ok().map(Value::Bytes),
        Kind::Count => value.parse().ok().map(Value::Count),
        Kind::Word(words) => words.iter().find(|word| **word == value).map(|word| Value::Word(word)),
    };
    parsed.ok_or_else(|| NotAPrimitive::Value {
        id: text.to_owned(),
        key: row.name,
        value: value.to_owned(),
        about: row.about,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_key_table_is_in_the_order_of_the_enum_with_unique_names() {
        for (position, row) in KEYS.iter().enumerate() {
            assert_eq!(row.key as usize, position, "{}", row.name);
            assert_eq!(KEYS.iter().filter(|other| other.name == row.name).count(), 1);
            assert!(!row.about.is_empty());
        }
    }

    #[test]
    fn keys_are_written_in_table_order_in_whichever_order_they_were_read() {
        let id: PrimitiveId = "tcp.send{buffer=fresh,size=4096}".parse().unwrap();
        assert_eq!(id.to_string(), "tcp.send{size=4KiB,buffer=fresh}");
        assert_eq!(id.without(Key::Size).to_string(), "tcp.send{buffer=fresh}");
        assert_eq!(id.without(Key::Size).without(Key::Buffer).to_string(), "tcp.send");
    }

    #[test]
    fn names_that_are_no_primitive_say_why() {
        let message = |text: &str| text.parse::<PrimitiveId>().unwrap_err().to_string();
        for text in ["read", "", ".x", "a.", "A.b", "file.read{", "file.read{}", "file.read{size}", "a.b}"] {
            assert!(message(text).contains("is not family.operation"), "{text}");
        }
        assert!(message("file.read{colour=red}").contains("unknown key 'colour'"));
        assert!(message("file.read{size=1,size=2}").contains("twice"));
        assert!(message("file.read{buffer=warm}").contains("not a value of buffer"));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_reads_back_the_same(text in "[a-z_.{}=,0-9KMiB]{0,40}") {
            if let Ok(id) = text.parse::<PrimitiveId>() {
                prop_assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }
}
