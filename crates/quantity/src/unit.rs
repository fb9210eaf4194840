//! Units of the quantities that cross a crate boundary.
//!
//! All crates use nanoseconds; only `report` chooses a scale for the reader.

use std::fmt;
use std::str::FromStr;

/// The unit of a number. A number never leaves its crate without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Time of one operation.
    Nanoseconds,
    /// Time per byte moved: the cost of a data-transfer primitive (thesis, section 4.1).
    NanosecondsPerByte,
    /// Completed operations per second.
    PerSecond,
    /// Bytes moved per second: the bandwidth that a cost per byte amounts to.
    BytesPerSecond,
    /// A share of a whole, 1 being all of it.
    Ratio,
    /// A number of things.
    Count,
    /// A number of bytes.
    Bytes,
}

/// Every unit with the symbol that files use for it.
const SYMBOLS: [(Unit, &str); 7] = [
    (Unit::Nanoseconds, "ns"),
    (Unit::NanosecondsPerByte, "ns/B"),
    (Unit::PerSecond, "1/s"),
    (Unit::BytesPerSecond, "B/s"),
    (Unit::Ratio, "ratio"),
    (Unit::Count, "count"),
    (Unit::Bytes, "B"),
];

impl Unit {
    /// The symbol that files use.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        SYMBOLS.iter().find(|(unit, _)| *unit == self).map_or("?", |(_, symbol)| symbol)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// An unknown symbol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unit '{0}' is unknown; use one of ns, ns/B, 1/s, B/s, ratio, count, B")]
pub struct UnknownUnit(String);

impl FromStr for Unit {
    type Err = UnknownUnit;

    fn from_str(text: &str) -> Result<Self, UnknownUnit> {
        SYMBOLS
            .iter()
            .find(|(_, symbol)| *symbol == text)
            .map(|(unit, _)| *unit)
            .ok_or_else(|| UnknownUnit(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_reads_back_as_its_unit() {
        for (unit, symbol) in SYMBOLS {
            assert_eq!(symbol.parse(), Ok(unit));
            assert_eq!(unit.to_string(), symbol);
        }
        assert!("ms".parse::<Unit>().is_err());
    }
}
