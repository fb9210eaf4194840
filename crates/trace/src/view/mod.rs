//! Views: evaluations of a trace, each in one pass, with memory for its result and not for the records.
//!
//! A view is one file here and one row in the table of `assay view`. Views produce plain rows; that command
//! and the crate `report` format them. All are a [`View`] except the [`sequence`], whose rows are printed as
//! they are read. They follow ktranal's modes (Brown 1997, section 3.2): the time sequence, the summary, the
//! extraction of a call ([`Filter`]), and the vector of chapter 4.

pub mod calls;
pub mod demand;
mod filter;
pub mod outcomes;
pub mod phases;
pub mod processes;
mod programs;
pub mod sequence;
pub mod stacks;
mod state;
pub mod summary;
mod tally;
pub mod timeline;
pub mod wakeups;

pub use filter::{Filter, Filtered};
pub use state::StateTimes;
pub use tally::Tally;

use crate::{
    container::{ReadError, Reader},
    record::{Content, Entry, Lost, Record},
};

/// An evaluation of a trace, such as this one:
///
/// ```
/// use assay_trace::record::{Event, Lost, Record};
/// use assay_trace::view::View;
///
/// /// Counts calls that failed.
/// #[derive(Debug, Default)]
/// pub struct CountFailed(FailedCalls);
///
/// /// Calls that failed.
/// #[derive(Debug, Default)]
/// pub struct FailedCalls {
///     /// Their number.
///     pub calls: u64,
///     /// Lost records, any of which may be such a call.
///     pub lost: u64,
/// }
///
/// impl View for CountFailed {
///     type Shown = FailedCalls;
///
///     fn record(&mut self, record: &Record) {
///         if let Event::Call(call) = &record.event {
///             self.0.calls += u64::from(call.errno().is_some());
///         }
///     }
///
///     fn lost(&mut self, lost: &Lost) {
///         self.0.lost = self.0.lost.saturating_add(lost.records);
///     }
///
///     fn finish(self) -> FailedCalls {
///         self.0
///     }
/// }
/// ```
pub trait View {
    /// The result.
    type Shown;

    /// Processes the next record.
    fn record(&mut self, record: &Record);

    /// Processes the next record, a call with these contents of its arguments. Most views do not show them.
    fn record_with(&mut self, record: &Record, _contents: &[Content]) {
        self.record(record);
    }

    /// Processes a gap.
    fn lost(&mut self, lost: &Lost);

    /// Ends the evaluation and returns the result.
    fn finish(self) -> Self::Shown;
}

/// Passes the whole trace to `view` and returns its result.
pub fn look<V: View>(mut reader: Reader, mut view: V) -> Result<V::Shown, ReadError> {
    while let Some(entry) = reader.next_entry()? {
        match entry {
            Entry::Record(record, contents) => view.record_with(record, contents),
            Entry::Lost(lost) => view.lost(lost),
        }
    }
    Ok(view.finish())
}
