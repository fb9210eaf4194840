//! What one side has sent, on its way to the other: the bytes as they came, as long as no message is changed.

use std::borrow::Cow;

use super::connection::FULL;
use crate::postgres::prepared::Pass;

/// Pieces of messages that are passed on together.
#[derive(Debug)]
pub struct Passage<'a> {
    input: &'a [u8],
    /// Bytes of the input that are done with.
    used: usize,
    /// Those of them that are in `changed`, if they are passed on.
    copied: usize,
    changed: Vec<u8>,
}

impl<'a> Passage<'a> {
    /// Begins with what was sent.
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, used: 0, copied: 0, changed: Vec::new() }
    }

    /// Returns what comes next.
    pub fn rest(&self) -> &'a [u8] {
        &self.input[self.used..]
    }

    /// Returns the number of bytes that are done with.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Adds the next piece, which has this length.
    pub fn add(&mut self, length: usize, pass: Pass) {
        match pass {
            Pass::AsIs => {}
            Pass::Instead(messages) => {
                self.changed.extend_from_slice(&self.input[self.copied..self.used]);
                self.changed.extend_from_slice(messages);
                self.copied = self.used + length;
            }
            Pass::Later => return,
        }
        self.used += length;
    }

    /// Whether it has to be passed on before more is added, because messages of the guard make it much longer
    /// than what came.
    pub fn is_large(&self) -> bool {
        self.changed.len() >= FULL
    }

    /// Returns what is passed on.
    pub fn end(mut self) -> Cow<'a, [u8]> {
        let last = &self.input[self.copied..self.used];
        if self.changed.is_empty() {
            return last.into();
        }
        self.changed.extend_from_slice(last);
        self.changed.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_not_copied() {
        let mut passage = Passage::new(b"onetwo three");
        passage.add(3, Pass::AsIs);
        passage.add(3, Pass::AsIs);
        assert_eq!((passage.rest(), passage.used()), (&b" three"[..], 6));
        assert!(matches!(passage.end(), Cow::Borrowed(b"onetwo")));
        let mut passage = Passage::new(b"onetwo");
        passage.add(3, Pass::Instead(b""));
        passage.add(3, Pass::AsIs);
        assert!(matches!(passage.end(), Cow::Borrowed(b"two")));
    }

    #[test]
    fn what_is_changed_stays_in_its_place() {
        let mut passage = Passage::new(b"onetwothreefour");
        for (length, pass) in
            [(3, Pass::AsIs), (3, Pass::Instead(b"2")), (5, Pass::Instead(b"")), (4, Pass::AsIs)]
        {
            passage.add(length, pass);
        }
        assert_eq!(passage.end(), &b"one2four"[..]);
    }
}
