//! Patterns: the ids of several primitives in one text, `file.read{size=4KiB|64KiB,buffer=*}`.
//!
//! The catalogue of `bench` describes its primitives by patterns, and its documentation is made from them.

use std::str::FromStr;

use crate::primitive::{Key, Kind, NotAPrimitive, Parts, PrimitiveId, Value, parse_value};

/// Ids that differ only in the values of their keys.
///
/// It is written like an id. The value of a key is a list of alternatives, separated by `|`, or `*` for every
/// word of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Family and operation, without keys.
    name: PrimitiveId,
    /// The alternatives of each key, at least one, in the order of the keys in ids.
    keys: Vec<(Key, Vec<Value>)>,
}

impl Pattern {
    /// The alternatives of each key, in the order of the keys in ids.
    #[must_use]
    pub fn keys(&self) -> &[(Key, Vec<Value>)] {
        &self.keys
    }

    /// Returns its ids: every combination of alternatives; those of the last key change first.
    #[must_use]
    pub fn ids(&self) -> Vec<PrimitiveId> {
        self.keys.iter().fold(vec![self.name.clone()], |ids, (key, values)| {
            ids.iter().flat_map(|id| values.iter().map(|value| id.with(*key, *value))).collect()
        })
    }

    /// Whether an id differs from one of its ids in numbers only.
    #[must_use]
    pub fn covers(&self, id: &PrimitiveId) -> bool {
        let is_number = |key: Key| !matches!(key.row().kind, Kind::Word(_));
        (self.name.family(), self.name.operation()) == (id.family(), id.operation())
            && self.keys.len() == id.keys().len()
            && self.keys.iter().zip(id.keys()).all(|((key, values), (other, value))| {
                key == other && (is_number(*key) || values.contains(value))
            })
    }
}

impl FromStr for Pattern {
    type Err = NotAPrimitive;

    fn from_str(text: &str) -> Result<Self, NotAPrimitive> {
        let parts = Parts::of(text)?;
        let keys = parts.keys.iter().map(|(row, alternatives)| {
            let values = match (row.kind, *alternatives) {
                (Kind::Word(words), "*") => words.iter().map(|word| Value::Word(word)).collect(),
                _ => alternatives
                    .split('|')
                    .map(|value| parse_value(text, row, value))
                    .collect::<Result<_, _>>()?,
            };
            Ok((row.key, values))
        });
        Ok(Self { keys: keys.collect::<Result<_, _>>()?, name: parts.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    fn ids(text: &str) -> Vec<String> {
        pattern(text).ids().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pattern_has_an_id_for_every_combination_of_its_alternatives() {
        assert_eq!(ids("call.null"), ["call.null"]);
        assert_eq!(ids("file.read{buffer=fresh,size=64B}"), ["file.read{size=64B,buffer=fresh}"]);
        assert_eq!(
            ids("file.read{size=64B|4KiB,buffer=*}"),
            [
                "file.read{size=64B,buffer=reused}",
                "file.read{size=64B,buffer=fresh}",
                "file.read{size=4KiB,buffer=reused}",
                "file.read{size=4KiB,buffer=fresh}",
            ]
        );
    }

    #[test]
    fn a_pattern_covers_every_number_but_no_other_word_key_or_name() {
        let pattern = pattern("pipe.transfer{size=4KiB|64KiB,buffer=reused}");
        let covers = |id: &str| pattern.covers(&id.parse().unwrap());
        assert!(covers("pipe.transfer{size=4KiB,buffer=reused}"));
        assert!(covers("pipe.transfer{size=123B,buffer=reused}"));
        assert!(!covers("pipe.transfer{size=4KiB,buffer=fresh}"));
        assert!(!covers("pipe.transfer{size=4KiB}"));
        assert!(!covers("pipe.transfer{size=4KiB,buffer=reused,cpus=same}"));
        assert!(!covers("unix.transfer{size=4KiB,buffer=reused}"));
        assert!(!covers("pipe.round_trip{size=4KiB,buffer=reused}"));
    }

    #[test]
    fn texts_that_are_no_pattern_are_rejected_with_the_reason() {
        let message = |text: &str| text.parse::<Pattern>().unwrap_err().to_string();
        assert!(message("file.read{size}").contains("is not family.operation"));
        assert!(message("file.read{sise=4KiB}").contains("unknown key 'sise'"));
        assert!(message("file.read{size=*}").contains("gives size=*"));
        assert!(message("file.read{size=1KiB|}").contains("gives size=,"));
        assert!(message("file.read{buffer=fresh|warm}").contains("gives buffer=warm"));
        assert!(message("file.read{buffer=fresh,buffer=reused}").contains("twice"));
    }
}
