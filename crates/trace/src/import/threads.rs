//! Which thread belongs to which process.
//!
//! A log shows a new thread before the call that created it returns, so the births are read before the rest
//! of the log. The number of a thread may be used again after its end: each birth is that of the next thread
//! with the number.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};

use super::call::Child;

/// The threads that a log creates, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Births(HashMap<u32, VecDeque<Birth>>);

/// The creation of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Birth {
    /// The line where the call that creates it begins.
    pub line: u64,
    pub parent: u32,
    pub child: Child,
}

impl Births {
    pub fn add(&mut self, birth: Birth) {
        self.0.entry(birth.child.thread).or_default().push_back(birth);
    }
}

/// The threads that live at a line of the log.
#[derive(Debug)]
pub(super) struct Threads {
    births: Births,
    /// The process of each thread.
    living: HashMap<u32, u32>,
    /// Number of living threads of each process.
    sizes: HashMap<u32, u64>,
    /// Threads that were seen before the call that created them returned.
    early: HashSet<u32>,
    /// Number of processes that lived so far.
    pub processes: u64,
    /// Number of them that the log does not create.
    pub roots: u64,
}

impl Threads {
    pub fn of(births: Births) -> Self {
        Self {
            births,
            living: HashMap::default(),
            sizes: HashMap::default(),
            early: HashSet::default(),
            processes: 0,
            roots: 0,
        }
    }

    /// Returns the process of a thread that lives.
    pub fn process(&self, thread: u32) -> u32 {
        self.living.get(&thread).copied().unwrap_or(thread)
    }

    /// Processes a line of a thread. Returns its birth if it is its first line.
    pub fn meet(&mut self, thread: u32, line: u64) -> Option<Birth> {
        if self.living.contains_key(&thread) {
            return None;
        }
        let birth = self.begin(thread, line);
        if birth.is_some() {
            self.early.insert(thread);
        }
        birth
    }

    /// Processes the return of a call that created a thread. Returns its birth if the thread was not seen
    /// yet.
    pub fn created(&mut self, child: Child) -> Option<Birth> {
        if self.early.remove(&child.thread) || self.living.contains_key(&child.thread) {
            return None;
        }
        self.begin(child.thread, u64::MAX)
    }

    /// Processes the end of a thread. Returns whether it was the last one of its process.
    pub fn end(&mut self, thread: u32) -> bool {
        let Some(process) = self.living.remove(&thread) else { return true };
        let size = self.sizes.entry(process).or_default();
        *size = size.saturating_sub(1);
        let is_last = *size == 0;
        if is_last {
            self.sizes.remove(&process);
        }
        is_last
    }

    /// Begins a thread, which a call created that began before this line, or none.
    fn begin(&mut self, thread: u32, line: u64) -> Option<Birth> {
        let births = self.births.0.get_mut(&thread);
        let next = births.filter(|births| births.front().is_some_and(|birth| birth.line < line));
        let birth = next.and_then(VecDeque::pop_front);
        let process = match birth {
            Some(Birth { parent, child, .. }) if child.is_thread => self.process(parent),
            _ => thread,
        };
        self.living.insert(thread, process);
        let size = self.sizes.entry(process).or_default();
        *size += 1;
        self.processes += u64::from(*size == 1);
        self.roots += u64::from(birth.is_none());
        birth
    }
}
