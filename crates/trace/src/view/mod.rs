//! Ways to look at a trace: each in one pass and bounded memory.
//!
//! A view is one file here and one row in the table of `assay view`. Views make plain rows; turning them into text is
//! the work of that command and of the crate `report`. They follow ktranal's modes (Brown 1997, section 3.2): the time sequence, the summary, the
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
