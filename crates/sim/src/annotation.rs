//! Which instructions of a kernel mean something: a table of its symbols, and the plan that follows from it
//! for one kernel.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Service;
use crate::btf::{self, BtfError};
use crate::routine::Routines;
use crate::symbols::Symbols;

/// What the execution of an instruction means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A system call; its number is in `rax`.
    Call,
    /// An exception, an interrupt or a call of a 32-bit program.
    Trap {
        /// Its position in [`Plan::services`].
        service: u16,
        /// Bytes on the stack before the saved address: 8 for an error code.
        above: u8,
    },
    /// A page fault. Before the saved address, its error code is on the stack.
    PageFault {
        /// Its position in [`Plan::services`].
        service: u16,
    },
    /// The kernel finds out of what kind a trap is.
    Kind {
        /// Position of the trap in [`Plan::services`].
        of: u16,
        /// Position of its kind.
        is: u16,
    },
    /// A call of a function that is a service by itself.
    Function {
        /// Its position in [`Plan::services`].
        service: u16,
    },
    /// A new task, in `rdi`.
    New,
    /// A switch from the task in `rdi` to the one in `rsi`.
    Switch,
    /// The task in `rdi` is woken up if it is in one of the states in `esi`.
    Wake,
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
const FORMAT: &str = "assay.annotations/5";

/// What a simulator must report of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of its file.
    format: String,
    /// Annotated instructions, in the order of their addresses. Those of one address happen in their order.
    pub points: Vec<Point>,
    /// Whether the machine's clock counts instructions, one nanosecond for each: then services have a
    /// latency.
    pub timed: bool,
    /// The routines whose instructions are counted.
    pub routines: Routines,
    /// What the traps and functions among them are.
    pub services: Vec<Service>,
    /// What cannot be observed in this kernel, a sentence each.
    pub gaps: Vec<String>,
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
    /// `__state`: why it does not run, 4 bytes.
    pub state: u64,
}

/// Why a kernel cannot be annotated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// It does not show its symbols.
    #[error("the kernel shows no symbols; it must be built with CONFIG_KALLSYMS")]
    NoSymbols,
    /// A symbol without which nothing can be attributed is missing.
    #[error("the kernel has no symbol {0}, without which it cannot be observed")]
    NoSymbol(&'static str),
    /// It does not show its structures.
    #[error("the kernel does not describe its structures; it must be built with CONFIG_DEBUG_INFO_BTF")]
    NoStructures,
    /// Its structures cannot be read.
    #[error("{0}; the kernel must be built with CONFIG_DEBUG_INFO_BTF")]
    Btf(#[from] BtfError),
    /// The file is no plan.
    #[error("not the annotations of a kernel: {0}")]
    Malformed(String),
}

/// Why a function cannot be a service.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FunctionError {
    /// It does not exist.
    #[error("the kernel has no function {name}; {}", of_similar(.similar))]
    Missing {
        /// Its name.
        name: String,
        /// Functions whose names begin with it.
        similar: Vec<String>,
    },
    /// It is a service already.
    #[error("{0} is a service already")]
    Already(String),
}

/// Symbols that every kernel must have, and their meaning.
const REQUIRED: [(&str, Action); 4] = [
    ("entry_SYSCALL_64", Action::Call),
    ("wake_up_new_task", Action::New),
    ("__switch_to", Action::Switch),
    ("__set_task_comm", Action::Rename),
];

/// The function that wakes a task up.
const WAKE_UP: &str = "try_to_wake_up";

/// Ways into the kernel that a kernel may lack: calls of 32-bit programs, as a service each.
const COMPATIBLE: [(&str, &str); 4] = [
    ("asm_int80_emulation", "int80"),
    ("entry_INT80_compat", "int80"),
    ("entry_SYSCALL_compat", "syscall32"),
    ("entry_SYSENTER_compat", "sysenter32"),
];

/// Traps other than page faults for which there is a word on the stack above the saved address: an error code
/// by the processor (Intel SDM volume 3A, table 6-1), or the vector by the kernel's own entry.
const WITH_A_WORD: [&str; 9] = [
    "alignment_check",
    "common_interrupt",
    "control_protection",
    "double_fault",
    "general_protection",
    "invalid_tss",
    "segment_not_present",
    "spurious_interrupt",
    "stack_segment",
];

/// Kinds of page faults, by the functions that handle them. The kernel decides in `handle_mm_fault`, which
/// comes first: what none of the others handles is a new page of anonymous memory.
const PAGE_FAULTS: [(&str, &str); 4] = [
    ("handle_mm_fault", "page_fault/anonymous"),
    ("do_wp_page", "page_fault/copy_on_write"),
    ("do_fault", "page_fault/file"),
    ("do_swap_page", "page_fault/swap"),
];

/// Kinds of page faults that a kernel may lack.
const LARGE_PAGE_FAULTS: [(&str, &str); 2] =
    [("do_huge_pmd_wp_page", "page_fault/copy_on_write"), ("hugetlb_fault", "page_fault/hugetlb")];

/// Softirqs, named as in `/proc/softirqs`, and their functions: of several, the first one that a kernel has.
/// The first row runs the others.
const SOFTIRQS: [(&str, &[&str]); 11] = [
    ("softirq", &["handle_softirqs", "__do_softirq"]),
    ("softirq/hi", &["tasklet_hi_action"]),
    ("softirq/timer", &["run_timer_softirq"]),
    ("softirq/net_tx", &["net_tx_action"]),
    ("softirq/net_rx", &["net_rx_action"]),
    ("softirq/block", &["blk_done_softirq"]),
    ("softirq/irq_poll", &["irq_poll_softirq"]),
    ("softirq/tasklet", &["tasklet_action"]),
    ("softirq/sched", &["sched_balance_softirq", "run_rebalance_domains"]),
    ("softirq/hrtimer", &["hrtimer_run_softirq"]),
    ("softirq/rcu", &["rcu_core_si"]),
];

impl Plan {
    /// A plan without annotations: the simulator only counts.
    #[must_use]
    pub fn empty() -> Plan {
        Plan {
            format: FORMAT.to_owned(),
            points: Vec::new(),
            timed: false,
            routines: Routines::default(),
            services: Vec::new(),
            gaps: Vec::new(),
            task: TaskOffsets::default(),
        }
    }

    /// Makes the plan for a kernel with these symbols and this BTF.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(symbols: &Symbols, btf: &[u8]) -> Result<Plan, PlanError> {
        let mut plan = Plan::of_symbols(symbols)?;
        if btf.is_empty() {
            return Err(PlanError::NoStructures);
        }
        let member = |name| btf::offset(btf, "task_struct", name);
        plan.task = TaskOffsets {
            process: member("tgid")?,
            name: member("comm")?,
            memory: member("mm")?,
            // Its name before Linux 5.14.
            state: member("__state").or_else(|_| member("state"))?,
        };
        Ok(plan)
    }

    fn of_symbols(symbols: &Symbols) -> Result<Plan, PlanError> {
        if symbols.is_empty() {
            return Err(PlanError::NoSymbols);
        }
        let mut plan = Plan { routines: Routines::new(symbols), ..Plan::empty() };
        for (symbol, action) in REQUIRED {
            let addresses = symbols.get(symbol).ok_or(PlanError::NoSymbol(symbol))?;
            plan.annotate(addresses, action);
        }
        for (symbol, addresses) in symbols {
            let Some((name, service)) = trap(symbol) else { continue };
            let above = if WITH_A_WORD.contains(&name) { 8 } else { 0 };
            let service = plan.service(service(name.to_owned()));
            let action = match name {
                "page_fault" => Action::PageFault { service },
                _ => Action::Trap { service, above },
            };
            plan.annotate(addresses, action);
        }
        plan.annotate_page_faults(symbols)?;
        plan.annotate_softirqs(symbols);
        plan.points.sort_by_key(|point| point.address);
        Ok(plan)
    }

    /// Prepares the plan for a machine whose clock counts instructions, one nanosecond for each.
    pub fn add_clock(&mut self, symbols: &Symbols) {
        self.timed = true;
        if let Some(addresses) = symbols.get(WAKE_UP) {
            self.annotate(addresses, Action::Wake);
            self.points.sort_by_key(|point| point.address);
        } else {
            self.gaps
                .push(format!("Blocked time is part of descheduled: this kernel has no function {WAKE_UP}."));
        }
    }

    /// Makes a service of all functions with this name.
    ///
    /// # Errors
    /// [`FunctionError`].
    pub fn add_function(&mut self, symbols: &Symbols, name: &str) -> Result<(), FunctionError> {
        let Some(addresses) = symbols.get(name) else {
            let from = symbols.range(name.to_owned()..).map(|(symbol, _)| symbol);
            let mut similar: Vec<String> =
                from.take_while(|symbol| symbol.starts_with(name)).cloned().collect();
            similar.sort_by_key(String::len);
            similar.truncate(SIMILAR);
            return Err(FunctionError::Missing { name: name.to_owned(), similar });
        };
        let is_service = |point: &Point| {
            let is_entry = matches!(
                point.action,
                Action::Call | Action::Trap { .. } | Action::PageFault { .. } | Action::Function { .. }
            );
            is_entry && addresses.contains(&point.address)
        };
        if self.points.iter().any(is_service) {
            return Err(FunctionError::Already(name.to_owned()));
        }
        let service = self.service(Service::Function(name.to_owned()));
        self.annotate(addresses, Action::Function { service });
        self.points.sort_by_key(|point| point.address);
        Ok(())
    }

    fn annotate(&mut self, addresses: &[u64], action: Action) {
        self.points.extend(addresses.iter().map(|address| Point { address: *address, action }));
    }

    /// The position of a service, which is added if it is new.
    fn service(&mut self, service: Service) -> u16 {
        let position = self.services.iter().position(|known| *known == service).unwrap_or_else(|| {
            self.services.push(service);
            self.services.len() - 1
        });
        u16::try_from(position).expect("a kernel has at most 256 vectors, and a command few functions")
    }

    fn annotate_page_faults(&mut self, symbols: &Symbols) -> Result<(), PlanError> {
        let page_fault = Service::Exception("page_fault".to_owned());
        let of = self.services.iter().position(|known| *known == page_fault);
        let of = of.ok_or(PlanError::NoSymbol("asm_exc_page_fault"))?;
        let of = u16::try_from(of).expect("service() has checked it");
        if let Some((missing, _)) = PAGE_FAULTS.iter().find(|(symbol, _)| !symbols.contains_key(*symbol)) {
            self.gaps
                .push(format!("Page faults are not split by kind: this kernel has no function {missing}."));
            return Ok(());
        }
        for (symbol, kind) in PAGE_FAULTS.into_iter().chain(LARGE_PAGE_FAULTS) {
            let Some(addresses) = symbols.get(symbol) else { continue };
            let is = self.service(Service::Exception(kind.to_owned()));
            self.annotate(addresses, Action::Kind { of, is });
        }
        Ok(())
    }

    fn annotate_softirqs(&mut self, symbols: &Symbols) {
        for (name, functions) in SOFTIRQS {
            if let Some(addresses) = functions.iter().find_map(|function| symbols.get(*function)) {
                let service = self.service(Service::Softirq(name.to_owned()));
                self.annotate(addresses, Action::Function { service });
            } else if name == "softirq" {
                self.gaps.push(format!(
                    "Softirqs are part of the interrupts: this kernel has no function {}.",
                    functions.join(" or ")
                ));
            }
        }
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

/// Number of similar names that are proposed at most.
const SIMILAR: usize = 3;

/// What to do about a function that does not exist.
fn of_similar(names: &[String]) -> String {
    match names {
        [] => "the compiler may have inlined it into its callers".to_owned(),
        names => format!("it has {}", names.join(", ")),
    }
}

/// Makes a service of a name.
type Naming = fn(String) -> Service;

/// The trap that begins at a symbol: its name, and what makes a service of it.
fn trap(symbol: &str) -> Option<(&str, Naming)> {
    if let Some((_, name)) = COMPATIBLE.iter().find(|(compatible, _)| *compatible == symbol) {
        return Some((name, Service::CompatibleCall));
    }
    let name = symbol.strip_prefix("asm_")?;
    if let Some(name) = name.strip_prefix("exc_") {
        return Some((name, Service::Exception));
    }
    let vector = name.strip_prefix("sysvec_");
    let shared = || matches!(name, "common_interrupt" | "spurious_interrupt").then_some(name);
    vector.or_else(shared).map(|name| (name, Service::Interrupt as Naming))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_are_found_by_the_names_of_their_entries() {
        let named = |symbol| trap(symbol).map(|(name, service)| service(name.to_owned()));
        let text = str::to_owned;
        for (symbol, service) in [
            ("asm_exc_page_fault", Some(Service::Exception(text("page_fault")))),
            ("asm_sysvec_apic_timer_interrupt", Some(Service::Interrupt(text("apic_timer_interrupt")))),
            ("asm_common_interrupt", Some(Service::Interrupt(text("common_interrupt")))),
            ("asm_int80_emulation", Some(Service::CompatibleCall(text("int80")))),
            ("asm_load_gs_index", None),
            ("exc_page_fault", None),
        ] {
            assert_eq!(named(symbol), service);
        }
    }

    /// Symbols with these names, at addresses from 1 on in their order.
    fn symbols(names: &[&str]) -> Symbols {
        names.iter().zip(1..).map(|(name, address)| ((*name).to_owned(), vec![address])).collect()
    }

    /// Symbols that a kernel must have.
    const KERNEL: [&str; 5] =
        ["entry_SYSCALL_64", "wake_up_new_task", "__switch_to", "__set_task_comm", "asm_exc_page_fault"];

    #[test]
    fn a_kernel_without_symbols_or_structures_is_refused() {
        let refused_with = |names: &[&str], btf| Plan::new(&symbols(names), btf).unwrap_err().to_string();
        let refused = |names| refused_with(names, &[]);
        assert_eq!(refused(&[]), "the kernel shows no symbols; it must be built with CONFIG_KALLSYMS");
        let missing = "the kernel has no symbol __switch_to, without which it cannot be observed";
        assert_eq!(refused(&KERNEL[..2]), missing);
        let missing = "the kernel has no symbol asm_exc_page_fault, without which it cannot be observed";
        assert_eq!(refused(&KERNEL[..4]), missing);
        let missing =
            "the kernel does not describe its structures; it must be built with CONFIG_DEBUG_INFO_BTF";
        assert_eq!(refused(&KERNEL), missing);
        assert_eq!(
            refused_with(&KERNEL, &[0; 32]),
            "the description of the kernel's structures (BTF) is damaged; \
             the kernel must be built with CONFIG_DEBUG_INFO_BTF"
        );
    }

    #[test]
    fn what_a_kernel_has_no_functions_for_is_said() {
        let gaps = |others: &[&str]| Plan::of_symbols(&symbols(&[&KERNEL, others].concat())).unwrap().gaps;
        let all = ["handle_mm_fault", "do_wp_page", "do_fault", "do_swap_page", "__do_softirq"];
        assert_eq!(gaps(&all), [""; 0]);
        let softirqs = "Softirqs are part of the interrupts: this kernel has no function handle_softirqs or \
                        __do_softirq.";
        assert_eq!(gaps(&all[..4]), [softirqs]);
        let faults = "Page faults are not split by kind: this kernel has no function do_fault.";
        assert_eq!(gaps(&[&all[..2], &all[3..]].concat()), [faults]);
    }

    #[test]
    fn with_a_clock_of_instructions_wake_ups_are_seen_or_missed_with_a_note() {
        let plan = |symbols: &Symbols| {
            let mut plan = Plan::of_symbols(symbols).unwrap();
            assert!(!plan.timed && plan.points.iter().all(|point| point.action != Action::Wake));
            let before = plan.gaps.len();
            plan.add_clock(symbols);
            (plan.timed, plan.points.last().unwrap().action == Action::Wake, plan.gaps.split_off(before))
        };
        assert_eq!(plan(&symbols(&[&KERNEL[..], &["try_to_wake_up"]].concat())), (true, true, Vec::new()));
        let gap = "Blocked time is part of descheduled: this kernel has no function try_to_wake_up.";
        assert_eq!(plan(&symbols(&KERNEL)), (true, false, vec![gap.to_owned()]));
    }

    #[test]
    fn a_function_becomes_a_service_wherever_one_of_its_name_is() {
        let mut symbols =
            symbols(&[&KERNEL[..], &["twice", "cut.isra.0", "cut.part.1", "cut2", "cut3"]].concat());
        symbols.get_mut("twice").unwrap().push(2);
        let plan = |name: &str| {
            let mut plan = Plan::of_symbols(&symbols).unwrap();
            plan.add_function(&symbols, name).map(|()| plan)
        };
        let found = plan("twice").unwrap();
        let service = u16::try_from(found.services.len() - 1).unwrap();
        assert_eq!(found.services.last(), Some(&Service::Function("twice".to_owned())));
        let at = |address| found.points.iter().filter(move |point| point.address == address);
        let actions = |address| at(address).map(|point| point.action).collect::<Vec<_>>();
        assert_eq!(actions(2), [Action::New, Action::Function { service }]);
        assert_eq!(actions(6), [Action::Function { service }]);

        let refused = |name| plan(name).unwrap_err().to_string();
        assert_eq!(refused("cut"), "the kernel has no function cut; it has cut2, cut3, cut.isra.0");
        assert_eq!(
            refused("none"),
            "the kernel has no function none; the compiler may have inlined it into its callers"
        );
        assert_eq!(refused("asm_exc_page_fault"), "asm_exc_page_fault is a service already");
        let again = plan("twice").unwrap().add_function(&symbols, "twice").unwrap_err().to_string();
        assert_eq!(again, "twice is a service already");
    }
}
