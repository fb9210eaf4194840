//! Counts at points that programs of the guest choose, so that the difference of two of them is what was
//! executed in between.

use serde::{Deserialize, Serialize};

use crate::event::Counts;
use crate::format::{self, FormatError};
use crate::profile::Contradiction;

/// Marks the file and its version.
const FORMAT: &str = "assay.snapshots/1";

/// What the machine had counted when a program executed [`SNAPSHOT`](crate::SNAPSHOT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The number that the program gave it, in `rdi`.
    pub number: u64,
    /// Instructions executed since the machine's start.
    pub counts: Counts,
    /// Page faults since then.
    pub page_faults: u64,
}

/// The snapshots since the first mark, in the order of execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshots {
    /// At most 65,536 of them.
    pub taken: Vec<Snapshot>,
    /// Number of those after them, which are not kept.
    pub omitted: u64,
}

impl Snapshots {
    /// Most snapshots that are kept, so that a program cannot fill the memory of the host. The catalogue of
    /// `assay bench` takes 25,000 in three rounds.
    const MOST: usize = 1 << 16;

    pub(crate) fn add(&mut self, snapshot: Snapshot) {
        if self.taken.len() < Self::MOST {
            self.taken.push(snapshot);
        } else {
            self.omitted += 1;
        }
    }

    /// Writes them as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        format::write(FORMAT, self)
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn from_json(text: &str) -> Result<Self, FormatError> {
        let snapshots: Self = format::read(text, FORMAT)?;
        let all =
            |Snapshot { counts, page_faults, .. }: &Snapshot| [counts.user, counts.kernel, *page_faults];
        let grows = |pair: &[Snapshot]| all(&pair[0]).iter().zip(all(&pair[1])).all(|(a, b)| *a <= b);
        if !snapshots.taken.windows(2).all(grows) {
            return Err(Contradiction("its counts decrease").into());
        }
        Ok(snapshots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_beyond_the_most_are_counted() {
        let mut snapshots = Snapshots::default();
        let one = Snapshot { number: 7, counts: Counts { user: 1, kernel: 2 }, page_faults: 3 };
        (0..Snapshots::MOST + 2).for_each(|_| snapshots.add(one));
        assert_eq!((snapshots.taken.len(), snapshots.omitted), (Snapshots::MOST, 2));
    }

    #[test]
    fn counts_that_decrease_are_refused() {
        let one = Snapshot { number: 7, counts: Counts { user: 1, kernel: 2 }, page_faults: 3 };
        let more = Snapshot { number: 1, page_faults: 4, ..one };
        let read = |taken: Vec<Snapshot>| Snapshots::from_json(&Snapshots { taken, omitted: 0 }.to_json());
        assert_eq!(read(vec![one, more]).unwrap().taken, [one, more]);
        assert_eq!(read(vec![more, one]).unwrap_err().to_string(), "its counts decrease");
    }
}
