//! Joins the contents of arguments with their call: the probe writes them before it, in pieces.

use super::layout::{Key, Piece};
use crate::record::{Content, Event, Record};

/// The contents of the next call of one CPU, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    call: Option<Key>,
    contents: Vec<Content>,
    /// Missing bytes of the last content.
    left: usize,
}

impl Assembly {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &Piece) {
        if self.call != Some(piece.call) {
            self.contents.clear();
            self.call = Some(piece.call);
        }
        let bytes = &piece.bytes[..piece.left.min(piece.bytes.len())];
        match self.contents.last_mut() {
            Some(last) if last.argument == piece.argument && self.left == piece.left => {
                last.bytes.extend_from_slice(bytes);
                last.is_cut = piece.is_cut;
            }
            _ => {
                self.contents.retain(|content| content.argument != piece.argument);
                let (argument, is_cut) = (piece.argument, piece.is_cut);
                self.contents.push(Content { argument, is_cut, bytes: bytes.to_vec() });
            }
        }
        self.left = piece.left - bytes.len();
        // Until the next piece arrives, it is missing.
        if let Some(last) = self.contents.last_mut() {
            last.is_cut |= self.left > 0;
        }
    }

    /// Returns the contents of the record, and forgets them.
    pub fn take(&mut self, record: &Record) -> Vec<Content> {
        if self.call.is_none() {
            return Vec::new();
        }
        let contents = std::mem::take(&mut self.contents);
        let key = match record.event {
            Event::Call(call) | Event::Unfinished(call) => {
                Some(Key { end_ns: record.end_ns(), thread: record.thread, number: call.number })
            }
            _ => None,
        };
        if self.call.take() == key { contents } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const CALL: Key = Key { end_ns: 0, thread: 1, number: 82 };

    fn piece(argument: u8, left: usize, text: &str) -> Piece {
        let mut bytes = [0xff; 48];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Piece { call: CALL, argument, is_cut: false, left, bytes, lost: 0 }
    }

    /// Returns the contents of a `rename` after these pieces.
    fn joined(pieces: &[Piece]) -> Vec<(u8, String, bool)> {
        let mut assembly = Assembly::default();
        pieces.iter().for_each(|piece| assembly.add(piece));
        let call = fixture::record(Event::Call(fixture::call("rename")));
        let contents = assembly.take(&call).into_iter();
        assert!(assembly.take(&call).is_empty());
        contents.map(|it| (it.argument, String::from_utf8(it.bytes).unwrap(), it.is_cut)).collect()
    }

    #[test]
    fn pieces_that_follow_each_other_are_one_content() {
        let (long, rest) = ("l".repeat(48), "r".repeat(48));
        let whole = (0, format!("{long}{rest}end"), false);
        let pieces = [piece(0, 99, &long), piece(0, 51, &rest), piece(0, 3, "end"), piece(1, 5, "short")];
        assert_eq!(joined(&pieces), [whole.clone(), (1, "short".to_owned(), false)]);
        assert_eq!(joined(&pieces[..3]), [whole]);
        assert_eq!(joined(&[piece(0, 0, "")]), [(0, String::new(), false)]);
        assert_eq!(joined(&[piece(0, 48, &long)]), [(0, long.clone(), false)]);
        let is_cut = Piece { is_cut: true, ..piece(0, 48, &long) };
        assert_eq!(joined(&[is_cut]), [(0, long, true)]);
    }

    #[test]
    fn a_content_without_its_last_pieces_is_cut() {
        let long = "l".repeat(48);
        let (cut, end) = ((0, long.clone(), true), (1, "end".to_owned(), false));
        assert_eq!(joined(&[piece(0, 51, &long), piece(1, 3, "end")]), [cut.clone(), end.clone()]);
        assert_eq!(joined(&[piece(0, 99, &long)]), [cut]);
        assert_eq!(joined(&[piece(1, 51, &long), piece(1, 9, "other"), piece(1, 3, "end")]), [end]);
    }

    #[test]
    fn contents_are_only_those_of_their_call() {
        let other = Piece { call: Key { end_ns: 1, ..CALL }, ..piece(0, 3, "old") };
        assert_eq!(joined(std::slice::from_ref(&other)), []);
        assert_eq!(joined(&[other, piece(1, 3, "new")]), [(1, "new".to_owned(), false)]);
        let mut assembly = Assembly::default();
        assembly.add(&piece(0, 3, "old"));
        assert!(assembly.take(&fixture::record(Event::Exit { code: 0, whole_process: true })).is_empty());
        assert!(assembly.take(&fixture::record(Event::Call(fixture::call("rename")))).is_empty());
    }
}
