//! Properties of a system call by number: its name, its descriptor argument and the meaning of its result.
//!
//! Names and numbers come from the crate `syscalls`. The rules are in [`table::TABLE`]; the probe (through
//! [`probe_rules`]) and the views use them. Whether a result counts bytes depends on the call: the result of
//! an `mmap` or an `lseek` is positive and not a byte count.

mod names;
mod signature;
mod table;

use std::sync::LazyLock;

use syscalls::Sysno;

pub(crate) use names::FAMILY;
pub use names::Names;
pub(crate) use signature::constants;
pub use signature::{Kind, arguments, uses};
pub use table::TABLE;

/// Returns whether the result of a call is an address in the memory of the program.
#[must_use]
pub fn returns_address(number: u16) -> bool {
    matches!(Sysno::new(number.into()), Some(Sysno::mmap | Sysno::mremap | Sysno::brk | Sysno::shmat))
}

/// In an imported trace, an argument that the log does not show: a structure, or what a killed call had. No
/// program has it as an address, because the addresses of processors have a gap there.
pub const NOT_SHOWN: u64 = 1 << 63;

/// Upper bound for the numbers of the native table.
pub const CALLS: usize = 512;

/// The rule for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The argument whose descriptor the record classifies. For calls that move bytes between two
    /// descriptors, it is the destination. When the call succeeds and its result is a descriptor, the record
    /// classifies the result instead.
    pub descriptor: Argument,
    /// The meaning of the result.
    pub result: Outcome,
    /// The argument that points to the moved bytes.
    pub buffer: Option<u8>,
}

/// The position of a descriptor argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// No argument is a descriptor.
    None,
    /// This argument; a negative one is a bad descriptor.
    At(u8),
    /// This argument; a negative one means that there is none (`AT_FDCWD`, an anonymous `mmap`).
    Maybe(u8),
}

/// The meaning of a non-negative result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes moved.
    Bytes(Direction),
    /// A new descriptor.
    Descriptor,
    /// Neither.
    Other,
}

/// Direction of a transfer, seen from the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Into the program.
    In,
    /// Out of the program.
    Out,
}

impl Rule {
    /// A call without a descriptor and without bytes.
    pub const PLAIN: Self = Self { descriptor: Argument::None, result: Outcome::Other, buffer: None };
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules = vec![Rule::PLAIN; CALLS];
    for (name, rule) in TABLE {
        if let Some(number) = number(name) {
            rules[usize::from(number)] = *rule;
        }
    }
    rules
});

/// Returns the name of a call of the native table.
#[must_use]
pub fn name(number: u16) -> Option<&'static str> {
    Sysno::new(usize::from(number)).map(|call| call.name())
}

/// Returns the number of a call of the native table.
#[must_use]
pub fn number(name: &str) -> Option<u16> {
    name.parse::<Sysno>().ok().and_then(|call| u16::try_from(call.id()).ok())
}

/// Returns the rule for a call of the native table.
#[must_use]
pub fn rule(number: u16) -> Rule {
    RULES.get(usize::from(number)).copied().unwrap_or(Rule::PLAIN)
}

/// Returns the rules in the format of the probe, 16 bits per call: bits 0 to 2 are the index of the
/// descriptor argument plus one (0: none), bit 3 is set if the result is a descriptor, bit 4 if a negative
/// argument means "no descriptor"; the other bits are the arguments that the probe copies.
#[must_use]
pub fn probe_rules() -> [u16; CALLS] {
    let mut rules = [0; CALLS];
    for ((number, bits), rule) in (0..).zip(&mut rules).zip(RULES.iter()) {
        *bits = match rule.descriptor {
            Argument::None => 0,
            Argument::At(index) => u16::from(index) + 1,
            Argument::Maybe(index) => (u16::from(index) + 1) | 16,
        };
        if rule.result == Outcome::Descriptor {
            *bits |= 8;
        }
        *bits |= signature::probe_pointers(number);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_unique_call_and_valid_argument_indices() {
        for (position, (name, rule)) in TABLE.iter().enumerate() {
            let number = number(name).unwrap_or_else(|| panic!("{name} is not a call"));
            assert!(usize::from(number) < CALLS);
            assert!(TABLE[..position].iter().all(|(other, _)| other != name), "{name} is listed twice");
            assert_eq!(rule, &super::rule(number));
            let count = arguments(number).len();
            match rule.descriptor {
                Argument::At(index) | Argument::Maybe(index) => {
                    assert!(usize::from(index) < count, "{name}");
                }
                Argument::None => {}
            }
            assert!(rule.buffer.is_none_or(|index| usize::from(index) < count), "{name}");
            assert_ne!(*rule, Rule::PLAIN, "{name} has the default rule");
        }
    }

    #[test]
    fn the_numbers_of_the_native_table_are_below_calls() {
        assert!(Sysno::iter().all(|call| usize::try_from(call.id()).unwrap() < CALLS));
        assert_eq!(name(257), Some("openat"));
        assert_eq!(number("openat"), Some(257));
        assert_eq!(name(511), None);
        assert_eq!(rule(u16::MAX), Rule::PLAIN);
    }

    #[test]
    fn positive_results_that_do_not_count_bytes_are_not_bytes() {
        for name in ["mmap", "brk", "lseek", "fork", "clone", "epoll_wait", "fcntl", "getpid", "recvmmsg"] {
            assert!(!matches!(rule(number(name).unwrap()).result, Outcome::Bytes(_)), "{name}");
        }
        for (name, way) in [("read", Direction::In), ("writev", Direction::Out), ("sendfile", Direction::Out)]
        {
            assert_eq!(rule(number(name).unwrap()).result, Outcome::Bytes(way), "{name}");
        }
    }

    #[test]
    fn the_bits_for_the_probe_encode_the_rules() {
        let rules = probe_rules();
        let bits = |name: &str| rules[usize::from(number(name).unwrap())];
        assert_eq!(bits("getpid"), 0);
        assert_eq!(bits("read"), 1);
        assert_eq!(bits("mmap"), 5 | 16);
        assert_eq!(bits("copy_file_range"), 3);
        assert_eq!(bits("openat"), 8 | 2 << 5);
        assert_eq!(bits("rename"), 1 << 5 | 2 << 8);
        assert_eq!(bits("renameat"), 2 << 5 | 4 << 8);
        assert_eq!(bits("execveat"), 1 | 16 | 2 << 5 | 1 << 13);
        assert_eq!(bits("sendto"), 1 | 5 << 5 | 6 << 8 | 1 << 11);
        assert_eq!(bits("accept4"), 1 | 8 | 2 << 5 | 3 << 8 | 1 << 11 | 1 << 12);
    }
}
