//! Ways to look at a trace: each in one pass and bounded memory.
//!
//! A view is one file here and one row in [`VIEWS`]. Views make plain rows; turning them into text is the work of
//! the crate `report`. They follow ktranal's modes (Brown 1997, section 3.2): the time sequence, the summary, the
//! extraction of a call ([`Filter`]), and the vector of chapter 4.

pub mod demand;
mod filter;
#[cfg(test)]
mod fixture;
pub mod sequence;
pub mod summary;

pub use filter::Filter;

use crate::{
    container::ReadError,
    record::{Entry, Lost, Record},
};

/// A way to look at a trace.
pub trait View {
    /// What it shows in the end.
    type Shown;

    /// Takes the next record.
    fn record(&mut self, record: &Record);

    /// Takes note of a gap.
    fn lost(&mut self, lost: &Lost);

    /// The end of the trace.
    fn finish(self) -> Self::Shown;
}

/// Shows all of `entries` to `view`.
pub fn look<V: View>(
    entries: impl IntoIterator<Item = Result<Entry, ReadError>>,
    mut view: V,
) -> Result<V::Shown, ReadError> {
    for entry in entries {
        match entry? {
            Entry::Record(record) => view.record(&record),
            Entry::Lost(lost) => view.lost(&lost),
        }
    }
    Ok(view.finish())
}

/// A view as users choose it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
}

/// Every view.
pub const VIEWS: [Row; 3] = [
    Row {
        name: "summary",
        about: "per call and kind of descriptor: count, times, percentiles, bytes, errors",
    },
    Row {
        name: "sequence",
        about: "every call in the order of time, with arguments, result and elapsed time",
    },
    Row { name: "demand", about: "what the program asks of the operating system, as primitives" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_name_of_its_own_and_is_documented() {
        let page = include_str!("../../../../docs/trace.md");
        for (position, view) in VIEWS.iter().enumerate() {
            assert!(VIEWS[..position].iter().all(|other| other.name != view.name));
            assert!(!view.about.is_empty());
            assert!(
                page.contains(&format!("### {}", view.name)),
                "docs/trace.md has no section on {}",
                view.name
            );
        }
    }
}
