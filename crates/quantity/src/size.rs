//! A number of bytes as people write it: `64`, `4KiB`, `32MiB`.

use std::fmt;
use std::str::FromStr;

/// Bytes. Written with the largest binary prefix that divides it, so that one size has one spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

const PREFIXES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Size {
    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, bytes) = PREFIXES
            .iter()
            .find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes))
            .unwrap_or(&("B", 1));
        write!(f, "{}{prefix}", self.0 / bytes)
    }
}

/// Text that is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("size '{0}' is not a number of bytes; write for example 64B, 4KiB or 32MiB")]
pub struct NotASize(String);

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let refuse = || NotASize(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, prefix) = text.split_at(digits);
        let unit = match prefix {
            "" => 1,
            _ => PREFIXES.iter().find(|(name, _)| *name == prefix).ok_or_else(refuse)?.1,
        };
        let number: u64 = number.parse().map_err(|_| refuse())?;
        number.checked_mul(unit).map(Size).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_written_with_the_largest_prefix_that_divides_them() {
        for (bytes, text) in [(0, "0B"), (1, "1B"), (4096, "4KiB"), (6144, "6KiB"), (33_554_432, "32MiB")] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for text in ["", "KiB", "4kb", "-1B", "1.5MiB", "99999999999999999999B", "18446744073709551615KiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_size_reads_back(bytes: u64) {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}
