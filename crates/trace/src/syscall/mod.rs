//! What a system call's number says: its name, which argument is a descriptor, what its result counts.
//!
//! Names and numbers come from the crate `syscalls`; the rules are ours, in [`table::TABLE`], and are what both the
//! probe (through [`probe_rules`]) and the views go by. Bytes moved are a rule of the call: the result of an `mmap`
//! or an `lseek` is positive and no byte count.

mod table;

use std::sync::LazyLock;

use syscalls::Sysno;

pub use table::{ARGUMENTS, TABLE};

/// Room for the numbers of the native table, which ends below it.
pub const CALLS: usize = 512;

/// What is known of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Which argument is the descriptor that the record classifies. For the calls that move bytes between two it
    /// is the destination. When the call succeeds and its result is a descriptor, the record classifies that.
    pub descriptor: Argument,
    /// What the result is.
    pub result: Outcome,
    /// Which argument points to the bytes that are moved.
    pub buffer: Option<u8>,
}

/// Where a descriptor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// No argument is one.
    None,
    /// This argument; a negative one is a bad descriptor.
    At(u8),
    /// This argument; a negative one means that there is none (`AT_FDCWD`, an anonymous `mmap`).
    Maybe(u8),
}

/// What a result that is not negative means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes moved.
    Bytes(Direction),
    /// A new descriptor.
    Descriptor,
    /// Neither.
    Other,
}

/// Which way bytes went, seen from the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Into the program.
    In,
    /// Out of it.
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

static ARITIES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut arities = vec![6; CALLS];
    for (count, names) in (0..).zip(ARGUMENTS) {
        for number in names.iter().filter_map(|name| number(name)) {
            arities[usize::from(number)] = count;
        }
    }
    arities
});

/// The name of a call of the native table.
#[must_use]
pub fn name(number: u16) -> Option<&'static str> {
    Sysno::new(usize::from(number)).map(|call| call.name())
}

/// The number of a call of the native table.
#[must_use]
pub fn number(name: &str) -> Option<u16> {
    name.parse::<Sysno>().ok().and_then(|call| u16::try_from(call.id()).ok())
}

/// What is known of a call of the native table.
#[must_use]
pub fn rule(number: u16) -> Rule {
    RULES.get(usize::from(number)).copied().unwrap_or(Rule::PLAIN)
}

/// How many arguments a call of the native table takes; six for one that [`ARGUMENTS`] does not list.
#[must_use]
pub fn arguments(number: u16) -> usize {
    ARITIES.get(usize::from(number)).copied().map_or(6, usize::from)
}

/// The rules as the probe wants them, one byte per call: bits 0 to 2 are one more than the argument that is a
/// descriptor (0: none), bit 3 says that the result is one, bit 4 that a negative argument means none.
#[must_use]
pub fn probe_rules() -> [u8; CALLS] {
    let mut bytes = [0; CALLS];
    for (byte, rule) in bytes.iter_mut().zip(RULES.iter()) {
        *byte = match rule.descriptor {
            Argument::None => 0,
            Argument::At(index) => index + 1,
            Argument::Maybe(index) => (index + 1) | 16,
        };
        if rule.result == Outcome::Descriptor {
            *byte |= 8;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_call_once_and_points_to_arguments_that_it_has() {
        for (position, (name, rule)) in TABLE.iter().enumerate() {
            let number = number(name).unwrap_or_else(|| panic!("{name} is no call"));
            assert!(usize::from(number) < CALLS);
            assert!(TABLE[..position].iter().all(|(other, _)| other != name), "{name} stands twice");
            assert_eq!(rule, &super::rule(number));
            let count = arguments(number);
            match rule.descriptor {
                Argument::At(index) | Argument::Maybe(index) => {
                    assert!(usize::from(index) < count, "{name}");
                    assert!([0, 2, 4].contains(&index), "{name}: the probe looks at arguments 0, 2 and 4");
                }
                Argument::None => {}
            }
            assert!(rule.buffer.is_none_or(|index| usize::from(index) < count), "{name}");
            assert_ne!(*rule, Rule::PLAIN, "{name} says nothing");
        }
    }

    #[test]
    fn every_listed_arity_is_of_a_call_and_listed_once() {
        let names = ARGUMENTS.iter().flat_map(|names| names.iter()).collect::<Vec<_>>();
        for (position, name) in names.iter().enumerate() {
            assert!(number(name).is_some(), "{name} is no call");
            assert!(!names[..position].contains(name), "{name} stands twice");
        }
        for (name, _) in TABLE {
            assert!(names.contains(&name), "{name} has no arity");
        }
    }

    #[test]
    fn the_native_table_ends_below_the_probes_room() {
        assert!(Sysno::iter().all(|call| usize::try_from(call.id()).unwrap() < CALLS));
        assert_eq!(name(257), Some("openat"));
        assert_eq!(number("openat"), Some(257));
        assert_eq!(name(511), None);
        assert_eq!(rule(u16::MAX), Rule::PLAIN);
    }

    #[test]
    fn results_that_are_positive_but_no_byte_count_are_not_bytes() {
        for name in ["mmap", "brk", "lseek", "fork", "clone", "epoll_wait", "fcntl", "getpid", "recvmmsg"] {
            assert!(!matches!(rule(number(name).unwrap()).result, Outcome::Bytes(_)), "{name}");
        }
        for (name, way) in [("read", Direction::In), ("writev", Direction::Out), ("sendfile", Direction::Out)]
        {
            assert_eq!(rule(number(name).unwrap()).result, Outcome::Bytes(way), "{name}");
        }
    }

    #[test]
    fn the_probes_bytes_say_what_the_rules_say() {
        let bytes = probe_rules();
        let byte = |name: &str| bytes[usize::from(number(name).unwrap())];
        assert_eq!(byte("read"), 1);
        assert_eq!(byte("accept4"), 1 | 8);
        assert_eq!(byte("openat"), 8);
        assert_eq!(byte("mmap"), 5 | 16);
        assert_eq!(byte("copy_file_range"), 3);
        assert_eq!(byte("getpid"), 0);
    }
}
