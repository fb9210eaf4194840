//! Determines whether the buffer of a transfer was used recently.
//!
//! For each thread and primitive, the last 64 distinct pages are stored. The first use of a page is
//! ambiguous: a kept buffer has a first use too. Such a use is pending until its page is used again (it was
//! the first use of a kept buffer) or leaves the list (it was not).

use super::Contribution;

/// Maximum number of stored pages: 256 KiB, the size of a second-level cache.
const REMEMBERED_PAGES: usize = 64;
const PAGE_BITS: u32 = 12;

/// Reuse of the buffer of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Buffer {
    /// The primitive has no `buffer` key.
    NoKey,
    /// The buffer is used repeatedly.
    Reused,
    /// The buffer was not used recently.
    Fresh,
}

/// The last pages that one thread used for one primitive, most recent last.
#[derive(Debug, Default)]
pub(super) struct Pages(Vec<Page>);

#[derive(Debug)]
struct Page {
    number: u64,
    /// Its first use, while its kind is undetermined.
    first: Option<Contribution>,
}

impl Pages {
    /// Processes a transfer from or to `address`. Calls `judge` once for every transfer, as soon as its kind
    /// of buffer is determined.
    pub fn transfer(
        &mut self,
        address: u64,
        transfer: Contribution,
        mut judge: impl FnMut(Buffer, Contribution),
    ) {
        let number = address >> PAGE_BITS;
        let first = match self.0.iter().position(|page| page.number == number) {
            Some(known) => {
                let first = self.0.remove(known).first;
                first.into_iter().chain([transfer]).for_each(|transfer| judge(Buffer::Reused, transfer));
                None
            }
            None if self.0.len() < REMEMBERED_PAGES => Some(transfer),
            None => {
                // With a full list, the page was not used recently.
                let oldest = self.0.remove(0).first;
                oldest.into_iter().chain([transfer]).for_each(|transfer| judge(Buffer::Fresh, transfer));
                None
            }
        };
        self.0.push(Page { number, first });
    }

    /// Ends the list when the thread or the trace ends: no page is used again.
    pub fn end(self, mut judge: impl FnMut(Buffer, Contribution)) {
        self.0.into_iter().filter_map(|page| page.first).for_each(|first| judge(Buffer::Fresh, first));
    }
}
