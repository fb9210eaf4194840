//! Which instructions of a kernel mean something: a table of its symbols, and the plan that follows from it
//! for one kernel.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::btf::{self, BtfError};
use crate::symbols::Symbols;

/// What the execution of an instruction means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A system call; its number is in `rax`.
    Call,
    /// An exception or an interrupt, at this position in [`Plan::traps`].
    Trap {
        /// The position.
        trap: u16,
        /// Bytes on the stack before the saved address: 8 for an error code.
        above: u8,
    },
    /// A new task, in `rdi`.
    New,
    /// A switch to the task in `rsi`.
    Switch,
    /// A new name for the task in `rdi`, at the address in `rsi`.
    Rename,
}

/// An annotated instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Its virtual address.
    pub address: u64,
    /// Its meaning.
    pub action: Action,
}

/// Marks the file and its version.
const FORMAT: &str = "assay.annotations/2";

/// What a simulator must report of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of its file.
    format: String,
    /// Annotated instructions, in the order of their addresses.
    pub points: Vec<Point>,
    /// Names of the exceptions and interrupts.
    pub traps: Vec<String>,
    /// Offsets in `task_struct`.
    pub task: TaskOffsets,
}

/// Offsets of members of `task_struct`, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOffsets {
    /// `tgid`: number of the process, 4 bytes.
    pub process: u64,
    /// `comm`: name, 16 bytes.
    pub name: u64,
    /// `mm`: pointer to the memory of a program, 8 bytes; null for a task of the kernel.
    pub memory: u64,
}

/// Why a kernel cannot be annotated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// It does not show its symbols.
    #[error("the kernel shows no symbols; it must be built with CONFIG_KALLSYMS")]
    NoSymbols,
    /// A symbol without which nothing can be attributed is missing.
    #[error("the kernel has no symbol {0}, which marks where instructions belong")]
    NoSymbol(&'static str),
    /// Its structures are unknown.
    #[error("{0}; the kernel must be built with CONFIG_DEBUG_INFO_BTF")]
    Btf(#[from] BtfError),
    /// The file is no plan.
    #[error("not the annotations of a kernel: {0}")]
    Malformed(String),
}

/// Symbols that every kernel must have, and their meaning.
const REQUIRED: [(&str, Action); 4] = [
    ("entry_SYSCALL_64", Action::Call),
    ("wake_up_new_task", Action::New),
    ("__switch_to", Action::Switch),
    ("__set_task_comm", Action::Rename),
];

/// Ways into the kernel that a kernel may lack: calls of 32-bit programs, as a trap each.
const COMPATIBLE: [(&str, &str); 4] = [
    ("asm_int80_emulation", "int80"),
    ("entry_INT80_compat", "int80"),
    ("entry_SYSCALL_compat", "syscall32"),
    ("entry_SYSENTER_compat", "sysenter32"),
];

/// Traps for which there is a word on the stack above the saved address: an error code by the processor
/// (Intel SDM volume 3A, table 6-1), or the vector by the kernel's own entry.
const WITH_A_WORD: [&str; 10] = [
    "alignment_check",
    "common_interrupt",
    "control_protection",
    "double_fault",
    "general_protection",
    "invalid_tss",
    "page_fault",
    "segment_not_present",
    "spurious_interrupt",
    "stack_segment",
];

impl Plan {
    /// A plan without annotations: the simulator only counts.
    #[must_use]
    pub fn empty() -> Plan {
        Plan {
            format: FORMAT.to_owned(),
            points: Vec::new(),
            traps: Vec::new(),
            task: TaskOffsets::default(),
        }
    }

    /// Makes the plan for a kernel with these symbols and this BTF.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(symbols: &Symbols, btf: &[u8]) -> Result<Plan, PlanError> {
        if symbols.is_empty() {
            return Err(PlanError::NoSymbols);
        }
        let required = |(symbol, action): (&'static str, Action)| {
            let address = *symbols.get(symbol).ok_or(PlanError::NoSymbol(symbol))?;
            Ok(Point { address, action })
        };
        let mut points = REQUIRED.map(required).into_iter().collect::<Result<Vec<_>, PlanError>>()?;
        let mut traps: Vec<String> = Vec::new();
        for (symbol, address) in symbols {
            let Some(name) = trap_name(symbol) else { continue };
            let above = if WITH_A_WORD.contains(&name) { 8 } else { 0 };
            let trap = u16::try_from(traps.len()).expect("a kernel has less than 256 vectors");
            traps.push(name.to_owned());
            points.push(Point { address: *address, action: Action::Trap { trap, above } });
        }
        if traps.is_empty() {
            return Err(PlanError::NoSymbol("asm_exc_page_fault"));
        }
        points.sort_by_key(|point| point.address);
        let member = |name| btf::offset(btf, "task_struct", name);
        let task = TaskOffsets { process: member("tgid")?, name: member("comm")?, memory: member("mm")? };
        Ok(Plan { format: FORMAT.to_owned(), points, traps, task })
    }

    /// Writes the plan as JSON.
    ///
    /// # Panics
    /// Never: all its parts have a form in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a plan has a form in JSON")
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`PlanError::Malformed`], also for another version.
    pub fn from_json(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan =
            serde_json::from_str(text).map_err(|error| PlanError::Malformed(error.to_string()))?;
        if plan.format == FORMAT {
            Ok(plan)
        } else {
            Err(PlanError::Malformed(format!("their format is '{}', not {FORMAT}", plan.format)))
        }
    }
}

/// The name of the trap that begins at a symbol.
fn trap_name(symbol: &str) -> Option<&str> {
    if let Some((_, name)) = COMPATIBLE.iter().find(|(compatible, _)| *compatible == symbol) {
        return Some(name);
    }
    match symbol.strip_prefix("asm_")? {
        name @ ("common_interrupt" | "spurious_interrupt") => Some(name),
        name => name.strip_prefix("exc_").or_else(|| name.strip_prefix("sysvec_")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_are_found_by_the_names_of_their_entries() {
        for (symbol, name) in [
            ("asm_exc_page_fault", Some("page_fault")),
            ("asm_sysvec_apic_timer_interrupt", Some("apic_timer_interrupt")),
            ("asm_common_interrupt", Some("common_interrupt")),
            ("asm_int80_emulation", Some("int80")),
            ("asm_load_gs_index", None),
            ("exc_page_fault", None),
        ] {
            assert_eq!(trap_name(symbol), name);
        }
    }

    #[test]
    fn a_kernel_without_symbols_or_structures_is_refused() {
        let refused = |symbols: &[&str]| {
            let symbols = symbols.iter().map(|name| ((*name).to_owned(), 1)).collect();
            Plan::new(&symbols, &[]).unwrap_err().to_string()
        };
        assert_eq!(refused(&[]), "the kernel shows no symbols; it must be built with CONFIG_KALLSYMS");
        let missing = "the kernel has no symbol __switch_to, which marks where instructions belong";
        assert_eq!(refused(&["entry_SYSCALL_64", "wake_up_new_task"]), missing);
        assert_eq!(
            refused(&[
                "entry_SYSCALL_64",
                "wake_up_new_task",
                "__switch_to",
                "__set_task_comm",
                "asm_exc_page_fault"
            ]),
            "the description of the kernel's structures (BTF) is damaged; \
             the kernel must be built with CONFIG_DEBUG_INFO_BTF"
        );
    }
}
