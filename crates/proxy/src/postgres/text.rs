//! What the text of a query says about the session that it leaves behind: temporary tables, advisory locks
//! and the like stay with the connection of the server, and are lost, or seen by others, if the next
//! transaction runs on another one.
//!
//! Words are compared, nothing is parsed: a word in a string counts. So a session may keep its connection
//! without need, which costs speed only. What a function does inside the server is not seen, nor words that
//! belong together with a comment between them.

use std::borrow::Cow;

/// Why a session needs its own connection of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pin {
    /// It changed a setting.
    Setting,
    /// It has a temporary table.
    TemporaryTable,
    /// It listens to notifications.
    Listen,
    /// It prepared a statement in SQL, or one that is too long to be prepared again.
    Statement,
    /// It may hold an advisory lock.
    AdvisoryLock,
    /// It has a cursor that outlives its transaction.
    Cursor,
    /// It loaded a library.
    Library,
    /// Its `COPY` failed while more was on the way.
    Copy,
}

impl Pin {
    /// What the session did.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Setting => "SET, or set_config",
            Self::TemporaryTable => "temporary table",
            Self::Listen => "LISTEN",
            Self::Statement => "prepared statement",
            Self::AdvisoryLock => "advisory lock of the session",
            Self::Cursor => "cursor WITH HOLD",
            Self::Library => "LOAD",
            Self::Copy => "COPY that failed while more was sent",
        }
    }
}

/// What `SET` a text may contain. The server confirms with the tag `SET` that one was executed, but not
/// whether it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Nothing, or one that ends with its transaction.
    Brief,
    /// One that ends with its transaction, in which a text may mean something else.
    Reading,
    /// One that may last.
    Lasting,
}

/// Reads a text that may come in parts.
#[derive(Debug, Clone)]
pub struct Text {
    word: [u8; LONGEST_WORD],
    length: usize,
    /// The kind of the word before this one.
    previous: Word,
    words: u32,
    /// Whether the first word is `SET`; `None` if the text begins with something else than a word.
    is_set: Option<bool>,
    is_brief: bool,
    changes_reading: bool,
    ended: bool,
    several: bool,
    /// Whether this is a block of another language.
    is_block: bool,
    /// The byte before this one, if no word contains it.
    before: u8,
    has_comment: bool,
    pin: Option<Pin>,
}

/// A word, as far as the next one depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// A table may follow that is temporary.
    Creates,
    With,
    Other,
}

/// The longest one is `standard_conforming_strings`.
const LONGEST_WORD: usize = 28;

/// Settings that change what a text means when it is prepared, and the words for them in `SET`.
const READING: [&[u8]; 16] = [
    b"array_nulls",
    b"backslash_quote",
    b"client_encoding",
    b"datestyle",
    b"intervalstyle",
    b"lc_monetary",
    b"names",
    b"schema",
    b"search_path",
    b"standard_conforming_strings",
    b"time",
    b"timezone",
    b"timezone_abbreviations",
    b"transform_null_equals",
    b"xml",
    b"xmloption",
];

/// Whether a text may mean something else with another value of a setting, or of one that has this word.
#[must_use]
pub fn changes_reading(setting: &[u8]) -> bool {
    READING.contains(&setting)
}

impl Default for Text {
    fn default() -> Self {
        Self {
            word: [0; LONGEST_WORD],
            length: 0,
            previous: Word::Other,
            words: 0,
            is_set: Some(false),
            is_brief: false,
            changes_reading: false,
            ended: false,
            several: false,
            is_block: false,
            before: 0,
            has_comment: false,
            pin: None,
        }
    }
}

impl Text {
    /// Reads the next part.
    pub fn read(&mut self, part: &[u8]) {
        for byte in part {
            if byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80 {
                if let Some(place) = self.word.get_mut(self.length) {
                    *place = byte.to_ascii_lowercase();
                }
                self.length += 1;
                self.before = 0;
                continue;
            }
            self.end_word();
            self.has_comment |=
                matches!((std::mem::replace(&mut self.before, *byte), *byte), (b'-', b'-') | (b'/', b'*'));
            if *byte == b';' {
                self.ended = true;
            } else if self.words == 0 && !byte.is_ascii_whitespace() && *byte != 0 {
                self.is_set = None;
            }
        }
    }

    /// Returns what the text needs, and what it may set.
    pub fn end(mut self) -> (Option<Pin>, Set) {
        self.end_word();
        let brief = match self.is_set {
            Some(true) => self.is_brief,
            first => first.is_some(),
        };
        let is_brief = brief && !self.several && !self.has_comment;
        let set = match (is_brief, self.changes_reading) {
            (false, _) => Set::Lasting,
            (true, false) => Set::Brief,
            (true, true) => Set::Reading,
        };
        (self.pin, set)
    }

    fn end_word(&mut self) {
        if self.length == 0 {
            return;
        }
        let length = std::mem::take(&mut self.length);
        let word = &self.word[..length.min(LONGEST_WORD)];
        self.several |= self.ended;
        match (self.words, self.is_set) {
            (0, Some(_)) => self.is_set = Some(word == b"set"),
            (2, Some(true)) => self.changes_reading = changes_reading(word),
            (1, Some(true)) => self.is_brief = matches!(word, b"local" | b"transaction" | b"constraints"),
            _ => {}
        }
        self.is_block |= self.words == 0 && word == b"do";
        self.words = self.words.saturating_add(1);
        let pin = match word {
            b"temp" | b"temporary" if self.previous == Word::Creates => Some(Pin::TemporaryTable),
            b"pg_temp" => Some(Pin::TemporaryTable),
            b"hold" if self.previous == Word::With => Some(Pin::Cursor),
            b"set_config" | b"pg_settings" => Some(Pin::Setting),
            b"set" if self.is_block => Some(Pin::Setting),
            b"listen" if self.is_block => Some(Pin::Listen),
            b"prepare" | b"deallocate" if self.is_block => Some(Pin::Statement),
            word if [&b"pg_advisory_lock"[..], b"pg_try_advisory_lock"]
                .iter()
                .any(|lock| word.starts_with(lock)) =>
            {
                Some(Pin::AdvisoryLock)
            }
            _ => None,
        };
        self.pin = self.pin.or(pin);
        self.previous = match word {
            b"create" | b"replace" | b"local" | b"global" | b"into" => Word::Creates,
            b"with" => Word::With,
            _ => Word::Other,
        };
    }
}

/// Returns the name of the prepared statement that a query drops, if that is all that it does; its text ends
/// with a zero byte.
#[must_use]
pub fn dropped(query: &[u8]) -> Option<Cow<'_, [u8]>> {
    let query = query.strip_suffix(b"\0")?.trim_ascii();
    let query = query.strip_suffix(b";").unwrap_or(query);
    let name = after_word(b"deallocate", query)?.trim_ascii_end();
    let name = after_word(b"prepare", name).unwrap_or(name);
    if let Some(quoted) = name.strip_prefix(b"\"") {
        let mut parts = quoted.strip_suffix(b"\"")?.split(|byte| *byte == b'"');
        // Each quote of the name is written twice.
        let mut name = parts.next()?.to_vec();
        while let Some(between) = parts.next() {
            let after = parts.next().filter(|_| between.is_empty())?;
            name.extend([b"\"", after].concat());
        }
        return Some(name.into());
    }
    let is_name =
        name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..));
    (is_name && !name.eq_ignore_ascii_case(b"all")).then(|| name.to_ascii_lowercase().into())
}

/// Returns the name likewise, from the text of a query that something else follows.
#[must_use]
pub fn dropped_first(body: &[u8]) -> Option<Cow<'_, [u8]>> {
    let end = body.iter().position(|byte| *byte == 0)?;
    dropped(&body[..=end])
}

/// Returns what follows a word and white space.
fn after_word<'a>(word: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_at_checked(word.len())?;
    let follows = rest.first().is_some_and(u8::is_ascii_whitespace);
    (follows && first.eq_ignore_ascii_case(word)).then(|| rest.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Option<Pin>, Set) {
        let mut state = Text::default();
        state.read(text.as_bytes());
        state.end()
    }

    #[test]
    fn what_stays_with_a_connection_needs_it() {
        for (text, pin) in [
            ("CREATE TEMP TABLE t (x int)", Pin::TemporaryTable),
            ("create local\n temporary table t (x int)", Pin::TemporaryTable),
            ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", Pin::TemporaryTable),
            ("SELECT 1 AS x INTO TEMPORARY t", Pin::TemporaryTable),
            ("CREATE TABLE pg_temp.t (x int)", Pin::TemporaryTable),
            ("SELECT pg_advisory_lock(1)", Pin::AdvisoryLock),
            ("SELECT pg_try_advisory_lock_shared(1)", Pin::AdvisoryLock),
            ("SELECT set_config('search_path', 'x', false)", Pin::Setting),
            ("UPDATE pg_settings SET setting = '1' WHERE name = 'x'", Pin::Setting),
            ("DO $$ BEGIN SET x = 1; END $$", Pin::Setting),
            ("do 'BEGIN EXECUTE ''LISTEN x''; END'", Pin::Listen),
            ("DO $$BEGIN EXECUTE 'PREPARE x AS SELECT 1'; END$$", Pin::Statement),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Pin::Cursor),
        ] {
            assert_eq!(read(text).0, Some(pin), "{text}");
        }
        for text in [
            "",
            "SELECT temp, hold FROM weather",
            "SELECT pg_advisory_xact_lock(1)",
            "UPDATE t SET temporary = 1 WHERE hold",
            "DECLARE c CURSOR FOR SELECT 1",
            "BEGIN",
            ";",
        ] {
            assert_eq!(read(text), (None, Set::Brief), "{text}");
        }
    }

    #[test]
    fn a_setting_lasts_unless_the_text_is_a_single_one_that_does_not() {
        for text in [
            "SET x = 1",
            "  set SESSION x = 1;",
            "/* local */ SET x = 1",
            "-- SET LOCAL\nSET x = 1",
            "SET /* local */ x = 1",
            "SET LOCAL x = 1; SET y = 2",
            "BEGIN; SET LOCAL x = 1",
            "(SELECT 1)",
        ] {
            assert_eq!(read(text).1, Set::Lasting, "{text}");
        }
        for text in [
            "SET LOCAL x = 1;",
            " SET TRANSACTION READ ONLY",
            "set constraints all deferred",
            "UPDATE t SET x = 1",
            "UPDATE t SET time = 1",
        ] {
            assert_eq!(read(text).1, Set::Brief, "{text}");
        }
        for text in [
            "SET LOCAL TimeZone = 'UTC'",
            "set local time zone 'UTC';",
            "SET LOCAL \"standard_conforming_strings\" TO off",
        ] {
            assert_eq!(read(text).1, Set::Reading, "{text}");
        }
    }

    #[test]
    fn a_query_that_drops_a_statement_is_that_alone() {
        for (query, name) in [
            ("DEALLOCATE one", "one"),
            ("deallocate PREPARE pdo_stmt_00000001;", "pdo_stmt_00000001"),
            (" DEALLOCATE\n\"One \"\"two\"\"\" ; ", "One \"two\""),
            ("DEALLOCATE prepare", "prepare"),
            ("DEALLOCATE One", "one"),
            ("DEALLOCATE \"all\"", "all"),
        ] {
            let query = format!("{query}\0");
            assert_eq!(dropped(query.as_bytes()).as_deref(), Some(name.as_bytes()), "{query}");
        }
        for query in [
            "DEALLOCATE ALL",
            "DEALLOCATE PREPARE all;",
            "DEALLOCATE one; SELECT 1",
            "DEALLOCATE \"one\" two\"",
            "DEALLOCATE \"one",
            "DEALLOCATE \"",
            "DEALLOCATE",
            "DEALLOCATEone",
            "SELECT 1",
            "",
        ] {
            assert_eq!(dropped(format!("{query}\0").as_bytes()), None, "{query}");
        }
        assert_eq!((dropped(b"DEALLOCATE one"), dropped(b"")), (None, None));
    }

    proptest! {
        #[test]
        fn a_text_means_the_same_in_parts(text in "(create|temp|set|local|with|hold|;|--|pg_advisory_lock| |\\PC){0,12}", cut in 0..100usize) {
            let mut parts = Text::default();
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            parts.read(first);
            parts.read(second);
            prop_assert_eq!(parts.end(), read(&text));
        }
    }
}
