//! Which primitives a page fault and the release of its page count as.
//!
//! The error code of the processor contains whether the page was present and whether the access was a write;
//! the record contains what is mapped at the address. A write to a present page copies it if another process
//! has a copy of the memory, and otherwise makes it writable: this module follows which processes have one.

use foldhash::HashMap;

use crate::record::Area;

/// Bits of the processor's error code (Intel, 2023, volume 3, section 4.7).
const PRESENT: u64 = 1;
const WRITE: u64 = 2;

/// One row of the mapping of page faults.
#[derive(Debug, Clone, Copy)]
pub struct FaultRule {
    /// Whether the page was present: the access needed rights that the page did not have.
    pub present: bool,
    /// Whether the access was a write; `None` for any access.
    pub write: Option<bool>,
    /// What is mapped at the address; `None` for any area, also one that was not recorded.
    pub area: Option<Area>,
    /// Who has the memory; `None` for any owners.
    pub owners: Option<Owners>,
    /// The primitive.
    pub primitive: &'static str,
    /// The primitive of the release of the page, which follows once; `None` if an earlier fault of the page
    /// counts it, or if there is nothing to release.
    pub release: Option<&'static str>,
}

/// The processes that have the memory of a process since a fork copied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// It was never copied.
    Always,
    /// It was copied, and the other processes have ended or executed programs.
    Again,
    /// Other processes have it too.
    Several,
}

const ANONYMOUS: Option<&str> = Some("mmap.release_anonymous");
const FILE: Option<&str> = Some("mmap.release_file");

const fn row(
    (present, write): (bool, Option<bool>),
    (area, owners): (Option<Area>, Option<Owners>),
    (primitive, release): (&'static str, Option<&'static str>),
) -> FaultRule {
    FaultRule { present, write, area, owners, primitive, release }
}

/// The mapping of page faults. The first matching row applies.
pub const FAULTS: &[FaultRule] = &[
    row((false, Some(true)), (Some(Area::Shared), None), ("page_fault.file", ANONYMOUS)),
    row((false, None), (Some(Area::Shared), None), ("page_fault.file_around", FILE)),
    row((false, Some(true)), (Some(Area::PrivateFile), None), ("page_fault.file_copy", ANONYMOUS)),
    row((false, None), (Some(Area::PrivateFile), None), ("page_fault.file_around", FILE)),
    row((false, Some(false)), (Some(Area::Anonymous), None), ("page_fault.zero", None)),
    row((false, None), (None, None), ("page_fault.anonymous", ANONYMOUS)),
    row((true, Some(true)), (Some(Area::Shared), None), ("page_fault.reuse", None)),
    row((true, Some(true)), (None, Some(Owners::Several)), ("page_fault.copy_on_write", ANONYMOUS)),
    row((true, Some(true)), (None, Some(Owners::Again)), ("page_fault.reuse", None)),
    row((true, Some(true)), (Some(Area::PrivateFile), None), ("page_fault.copy_on_write", ANONYMOUS)),
    // A write to the page of zeroes, which a read has mapped.
    row((true, None), (None, None), ("page_fault.anonymous", ANONYMOUS)),
];

impl FaultRule {
    /// Returns the row of a fault in the memory of these owners.
    pub(super) fn of(error: u64, area: Option<Area>, owners: Owners) -> &'static Self {
        let fits = |rule: &&FaultRule| {
            rule.present == (error & PRESENT != 0)
                && rule.write.is_none_or(|write| write == (error & WRITE != 0))
                && (rule.area.is_none() || rule.area == area)
                && rule.owners.is_none_or(|due| due == owners)
        };
        FAULTS.iter().find(fits).expect("a row matches all absent pages, and a row all present ones")
    }
}

/// Which processes have the memory of others, since a fork copied it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The group of each process that a fork has copied or created.
    groups: HashMap<u32, u64>,
    /// The number of processes in each group.
    sizes: HashMap<u64, u32>,
    made: u64,
}

impl Copies {
    /// A fork copied the memory of `parent`.
    pub fn fork(&mut self, parent: u32, child: u32) {
        // A child whose number an earlier process had, whose end was lost.
        self.leave(child);
        let group = *self.groups.entry(parent).or_insert_with(|| {
            self.made += 1;
            self.sizes.insert(self.made, 1);
            self.made
        });
        self.groups.insert(child, group);
        *self.sizes.entry(group).or_default() += 1;
    }

    /// A process ended, or executed a program and has new memory.
    pub fn leave(&mut self, process: u32) {
        let Some(group) = self.groups.remove(&process) else { return };
        if let Some(size) = self.sizes.get_mut(&group) {
            *size -= 1;
            if *size == 0 {
                self.sizes.remove(&group);
            }
        }
    }

    /// Returns who has the memory of a process.
    pub fn owners(&self, process: u32) -> Owners {
        match self.groups.get(&process).and_then(|group| self.sizes.get(group)) {
            None => Owners::Always,
            Some(1) => Owners::Again,
            Some(_) => Owners::Several,
        }
    }
}
