//! Divides the addresses of a kernel into routines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::symbols::Symbols;

/// The routines of a kernel, sorted by address; they cover every address. None if routines are not observed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Routine>")]
pub struct Routines(Vec<Routine>);

/// The code from an address to the next routine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Routine {
    address: u64,
    name: String,
}

/// Name of the code before and after that of the kernel's own symbols.
const OUTSIDE: &str = "modules and generated code";

/// The kernel is mapped by pages of this size, and what follows it is not in the last one
/// (Documentation/arch/x86/x86_64/mm.rst of Linux).
const LARGE_PAGE: u64 = 2 << 20;

/// Names of the padding before functions, which is never executed, begin with it.
const PADDING: &str = "__pfx_";

impl Routines {
    /// The routines that begin at these symbols. Of several names of an address, the shortest is taken that
    /// is not the mark of a section: `memcpy` and not `__memcpy`.
    #[must_use]
    pub fn new(symbols: &Symbols) -> Self {
        let mut names: BTreeMap<u64, &String> = BTreeMap::new();
        for (name, addresses) in symbols.iter().filter(|(name, _)| !name.starts_with(PADDING)) {
            for address in addresses {
                let known = names.entry(*address).or_insert(name);
                if rank(name) < rank(known) {
                    *known = name;
                }
            }
        }
        let Some((last, _)) = names.last_key_value() else { return Self::default() };
        let end = (last / LARGE_PAGE + 1).saturating_mul(LARGE_PAGE);
        let routine = |address, name: &str| Routine { address, name: name.to_owned() };
        let known = names.into_iter().map(|(address, name)| routine(address, name));
        Self([routine(0, OUTSIDE)].into_iter().chain(known).chain([routine(end, OUTSIDE)]).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The position of the routine to which an address belongs; `None` if there are none.
    #[must_use]
    pub fn position(&self, address: u64) -> Option<usize> {
        self.0.partition_point(|routine| routine.address <= address).checked_sub(1)
    }

    /// What the routines have executed, given by position, by name; without those that have executed nothing.
    pub(crate) fn by_name(&self, executed: impl Iterator<Item = u64>) -> BTreeMap<String, u64> {
        let mut by_name = BTreeMap::new();
        for (routine, instructions) in self.0.iter().zip(executed).filter(|(_, executed)| *executed > 0) {
            *by_name.entry(routine.name.clone()).or_default() += instructions;
        }
        by_name
    }
}

impl TryFrom<Vec<Routine>> for Routines {
    type Error = &'static str;

    fn try_from(routines: Vec<Routine>) -> Result<Self, Self::Error> {
        let is_sorted = routines.is_sorted_by(|a, b| a.address < b.address);
        if is_sorted && routines.first().is_none_or(|first| first.address == 0) {
            Ok(Self(routines))
        } else {
            Err("the routines are not sorted, or do not begin at address 0")
        }
    }
}

/// A lower one is preferred. The marks of sections are named like `_stext` and `__static_call_text_start`.
fn rank(name: &str) -> (bool, usize) {
    let is_mark = name.starts_with('_') && ["text", "_start", "_end"].iter().any(|end| name.ends_with(end));
    (is_mark, name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn routines() -> Routines {
        let symbols = [
            ("_text", vec![KERNEL]),
            ("startup_64", vec![KERNEL]),
            ("twice", vec![KERNEL + 0x08, KERNEL + 0x30]),
            ("__memcpy", vec![KERNEL + 0x10]),
            ("memcpy", vec![KERNEL + 0x10]),
            ("__do_sys_getpid", vec![KERNEL + 0x20]),
            ("__x64_sys_getpid", vec![KERNEL + 0x20]),
            ("__pfx_twice", vec![KERNEL + 0x28]),
            ("__softirqentry_text_end", vec![KERNEL + 0x38]),
            ("__x86_indirect_thunk_rax", vec![KERNEL + 0x38]),
        ];
        Routines::new(&symbols.map(|(name, addresses)| (name.to_owned(), addresses)).into())
    }

    #[test]
    fn each_address_belongs_to_the_best_name_before_it() {
        let routines = routines();
        let name = |address| routines.0[routines.position(address).unwrap()].name.as_str();
        for (address, expected) in [
            (0, OUTSIDE),
            (KERNEL - 1, OUTSIDE),
            (KERNEL, "startup_64"),
            (KERNEL + 0x08, "twice"),
            (KERNEL + 0x0f, "twice"),
            (KERNEL + 0x10, "memcpy"),
            (KERNEL + 0x2f, "__do_sys_getpid"),
            (KERNEL + 0x37, "twice"),
            (KERNEL + 0x1f_ffff, "__x86_indirect_thunk_rax"),
            (KERNEL + 0x20_0000, OUTSIDE),
            (u64::MAX, OUTSIDE),
        ] {
            assert_eq!(name(address), expected, "{address:x}");
        }
        assert_eq!(Routines::default().position(KERNEL), None);
    }

    #[test]
    fn routines_of_one_name_are_added_up_and_those_that_did_not_run_left_out() {
        let executed = routines().by_name([2, 0, 4, 0, 0, 5, 0, 8].into_iter());
        assert_eq!(
            executed,
            [("twice", 9), (OUTSIDE, 10)].map(|(name, count)| (name.to_owned(), count)).into()
        );
    }

    #[test]
    fn routines_that_do_not_cover_all_addresses_in_order_are_refused() {
        let read = |text: &str| serde_json::from_str::<Routines>(text).map_err(|error| error.to_string());
        let written = serde_json::to_string(&routines()).unwrap();
        assert_eq!(read(&written).unwrap(), routines());
        for (from, to) in
            [("\"address\":0,", "\"address\":1,"), ("twice\"},", "twice\"},{\"address\":0,\"name\":\"\"},")]
        {
            assert!(read(&written.replacen(from, to, 1)).unwrap_err().contains("not sorted"), "{from}");
        }
    }
}
