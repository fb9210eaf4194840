//! The records of a log in the order in which their events ended.
//!
//! A line that has a whole call is in the order of the beginnings if several logs were merged.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    container::{Closing, WriteError, Writer},
    record::{Content, Record},
};

/// Writes records that are not yet in order.
#[derive(Debug)]
pub(super) struct Ordered {
    writer: Writer,
    /// Records that may not be the next ones, by their end and the order in which they were added.
    waiting: BinaryHeap<Reverse<Waiting>>,
    added: u64,
    /// End of the last record that was written.
    end_ns: u64,
    /// Largest difference between the begin of a record and that of its call.
    moved_ns: u64,
}

#[derive(Debug)]
struct Waiting {
    end_ns: u64,
    position: u64,
    record: Box<(Record, Vec<Content>)>,
}

impl Ordered {
    pub fn of(writer: Writer) -> Self {
        Self { writer, waiting: BinaryHeap::new(), added: 0, end_ns: 0, moved_ns: 0 }
    }

    pub fn add(&mut self, record: Record, contents: Vec<Content>) {
        self.added += 1;
        let (end_ns, position) = (record.end_ns(), self.added);
        self.waiting.push(Reverse(Waiting { end_ns, position, record: Box::new((record, contents)) }));
    }

    /// Writes the records that ended until this time: later lines have later ones.
    pub fn release(&mut self, until_ns: u64) -> Result<(), WriteError> {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.end_ns <= until_ns) {
            let Some(Reverse(Waiting { end_ns, record, .. })) = self.waiting.pop() else { break };
            let (mut record, contents) = *record;
            // strace reads the time of a line after the end of its call, so a line of another thread may be
            // between them: by some microseconds, the record is too late.
            let late_ns = self.end_ns.saturating_sub(end_ns);
            record.begin_ns = record.begin_ns.saturating_add(late_ns);
            self.moved_ns = self.moved_ns.max(late_ns);
            self.end_ns = self.end_ns.max(end_ns);
            self.writer.append_record(&record, &contents)?;
        }
        Ok(())
    }

    /// Writes the other records and closes the trace. Returns by how much a record at most is too late.
    pub fn close(mut self, closing: Closing) -> Result<u64, WriteError> {
        self.release(u64::MAX)?;
        self.writer.close(closing)?;
        Ok(self.moved_ns)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.end_ns, self.position).cmp(&(other.end_ns, other.position))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
