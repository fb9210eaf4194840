//! Whether the buffer of a transfer had just been used.
//!
//! One memory per thread and primitive of the last 64 distinct pages. The first use of a page tells nothing of
//! itself: a program that keeps a buffer uses it for a first time too. Such a use is held until its page is used
//! again (then it was the first use of a buffer that is kept) or falls out of the memory (then it was not).

use super::Contribution;

/// Pages that are remembered: 256 KiB, what a second-level cache holds.
const REMEMBERED_PAGES: usize = 64;
const PAGE_BITS: u32 = 12;

/// What is known of a transfer's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Buffer {
    /// The primitive does not ask.
    NoKey,
    /// It is used again and again.
    Reused,
    /// It was not used lately.
    Fresh,
}

/// The last pages that one thread used for one primitive, the latest last.
#[derive(Debug, Default)]
pub(super) struct Pages(Vec<Page>);

#[derive(Debug)]
struct Page {
    number: u64,
    /// Its first use, while nobody knows what it was.
    first: Option<Contribution>,
}

impl Pages {
    /// A transfer from or to `address`. `judge` hears of every transfer once, as soon as its buffer is known.
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
                // With a full memory the page is known not to have been used lately.
                let oldest = self.0.remove(0).first;
                oldest.into_iter().chain([transfer]).for_each(|transfer| judge(Buffer::Fresh, transfer));
                None
            }
        };
        self.0.push(Page { number, first });
    }

    /// The thread ended, or the trace: no page is used again.
    pub fn end(self, mut judge: impl FnMut(Buffer, Contribution)) {
        self.0.into_iter().filter_map(|page| page.first).for_each(|first| judge(Buffer::Fresh, first));
    }
}
