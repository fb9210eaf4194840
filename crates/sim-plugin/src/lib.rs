//! The plugin for QEMU: counts the instructions of the guest, and reports each execution of an annotated
//! instruction to [`assay_sim::Attribution`], which decides what it means.
//!
//! QEMU loads it with `-plugin FILE,plan=PLAN,profile=PROFILE,snapshots=SNAPSHOTS`: the annotations of the
//! kernel, and the files to which the profile and the snapshots are written when the guest executes the mark
//! of the end.
//!
//! The cost of an instruction is one addition that QEMU compiles into the translated code, and a second one,
//! for its routine, in the kernel if services are observed. Only an annotated one and a repeated string
//! instruction call a function, and a `ret` of the kernel while a function that is a service is running; any
//! other `ret` of the kernel costs a comparison. Each instruction is counted, and not each block at its
//! entry, because an exception can leave a block early. An instruction that faults is counted at each
//! attempt; a repeated string instruction is counted once, and not at each repetition.
//!
//! If the machine's clock counts instructions, the plugin follows it. The clock counts each repetition, and
//! no attempt that ends in a page fault; attempts that end in other exceptions are too rare to matter, and
//! are charged to the next halt. It also goes on while the processor is halted, for a time that is found when
//! the kernel reads the clock afterwards.

mod counters;
mod ffi;
mod guest;

use std::collections::HashSet;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use assay_sim::{Action, Attribution, Counts, Event, Moment, Plan};

use counters::{Counters, Number};
use guest::{Aborted, Guest};

/// Version of the interface for which the plugin is written; QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = ffi::VERSION;

/// Length of the longest instruction in bytes (Intel SDM volume 2, section 2.3.11).
const LONGEST: usize = 15;

/// Bytes of an error code on the stack.
const ERROR_CODE: u8 = 8;

/// Addresses from here on belong to the kernel.
const KERNEL: u64 = 1 << 63;

/// What an annotated instruction does.
#[derive(Debug, Clone, Copy)]
enum Site {
    Annotated(Action),
    /// `iretq`.
    ReturnFromTrap,
    /// `sysretq`, `sysretl`.
    ReturnFromCall,
    /// `ret`, while a function is running that is a service.
    ReturnFromFunction,
    /// `hlt`.
    Halt,
    /// `rdtsc`, `rdtscp`, while the processor was halted and the clock has not been read since.
    ReadClock,
    /// What follows them, in the same state.
    AfterClock,
    Begin,
    Snapshot,
    End,
}

impl Site {
    /// The number that is not 0 when the plugin must be called; `None` if it always is.
    fn condition(self) -> Option<Number> {
        match self {
            Site::ReturnFromFunction => Some(Number::InFunction),
            Site::ReadClock | Site::AfterClock => Some(Number::Halted),
            _ => None,
        }
    }
}

/// Everything between QEMU and the attribution.
struct Plugin {
    plan: Plan,
    /// One for each point of the plan, in the same order. QEMU keeps pointers to them.
    annotated: Vec<Site>,
    /// Whether there are any: without entries, returns mean nothing.
    follows: bool,
    attribution: Attribution,
    guest: Guest,
    counters: Counters,
    /// Address of the last repeated string instruction, and all instructions until after it.
    last_repeated: (u64, u64),
    /// Repetitions of repeated string instructions, without the first of each.
    repetitions: Counts,
    /// Instructions that were counted and have caused a page fault instead.
    aborted: Counts,
    /// Addresses of instructions after those that read the clock. QEMU ends a block after such a one, if the
    /// clock counts instructions.
    after_clock: HashSet<u64>,
    /// All instructions until after the last one that has read the clock: if as many are executed at the
    /// next one, no interrupt was between them.
    clock_read: u64,
    profile: PathBuf,
    snapshots: PathBuf,
}

/// Set by `qemu_plugin_install` and never changed: QEMU's callback for translation has no data of ours. All
/// processors are emulated in one thread, so no two callbacks run at once.
static PLUGIN: AtomicPtr<Plugin> = AtomicPtr::new(ptr::null_mut());

/// Called by QEMU when it has loaded the plugin. Returns 0, or -1 after a message.
///
/// # Safety
/// QEMU passes valid pointers: `info` to its description, `arguments` to `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const ffi::Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let (info, arguments) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        let argument = |index| CStr::from_ptr(*arguments.add(index)).to_bytes();
        (&*info, (0..count).map(argument).collect::<Vec<&[u8]>>())
    };
    match Plugin::new(info, &arguments) {
        Ok(plugin) => {
            PLUGIN.store(Box::into_raw(Box::new(plugin)), Ordering::Release);
            // SAFETY: `id` is the one that QEMU gave, and the functions live as long as the process.
            unsafe {
                ffi::qemu_plugin_register_vcpu_init_cb(id, on_processor);
                ffi::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
            }
            0
        }
        Err(problem) => {
            #[expect(clippy::print_stderr, reason = "QEMU has no other way for the message of a plugin")]
            {
                eprintln!("assay's plugin: {problem}");
            }
            -1
        }
    }
}

impl Plugin {
    fn new(info: &ffi::Info, arguments: &[&[u8]]) -> Result<Plugin, String> {
        // SAFETY: QEMU's description contains a valid string.
        let target = unsafe { CStr::from_ptr(info.target) };
        if !info.is_system || target != c"x86_64" || info.processors_max != 1 {
            return Err("it observes only x86-64 machines with one processor".to_owned());
        }
        let argument = |name: &str| {
            let mut found = arguments.iter().filter_map(|argument| argument.strip_prefix(name.as_bytes()));
            let value = found.next().ok_or(format!("the argument {name} is missing"))?;
            Ok::<_, String>(PathBuf::from(OsStr::from_bytes(value)))
        };
        let [path, profile, snapshots] = [argument("plan=")?, argument("profile=")?, argument("snapshots=")?];
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let plan = Plan::from_json(&text).map_err(|error| error.to_string())?;
        Ok(Plugin {
            annotated: plan.points.iter().map(|point| Site::Annotated(point.action)).collect(),
            follows: !plan.points.is_empty(),
            attribution: Attribution::new(&plan),
            guest: Guest::new(plan.task),
            counters: Counters::new(plan.routines.len()),
            last_repeated: (0, 0),
            repetitions: Counts::default(),
            aborted: Counts::default(),
            after_clock: HashSet::new(),
            clock_read: 0,
            plan,
            profile,
            snapshots,
        })
    }

    /// Finds what an instruction means: nothing for nearly all of them, several things for a few.
    fn sites(&self, address: u64, bytes: &[u8]) -> impl Iterator<Item = &Site> {
        let points = &self.plan.points;
        let first = points.partition_point(|point| point.address < address);
        let same = points[first..].iter().take_while(|point| point.address == address).count();
        let by_itself = match bytes {
            _ if address < KERNEL => match bytes.try_into() {
                Ok(assay_sim::BEGIN) => Some(&Site::Begin),
                Ok(assay_sim::SNAPSHOT) => Some(&Site::Snapshot),
                Ok(assay_sim::END) => Some(&Site::End),
                _ => None,
            },
            _ if !self.follows => None,
            [0xf4] if self.plan.timed => Some(&Site::Halt),
            _ if self.reads_clock(address, bytes) => Some(&Site::ReadClock),
            [0x48, 0xcf] => Some(&Site::ReturnFromTrap),
            [0x0f, 0x07] | [0x48, 0x0f, 0x07] => Some(&Site::ReturnFromCall),
            _ => assay_sim::is_return(bytes).then_some(&Site::ReturnFromFunction),
        };
        // The clock belongs to the instruction before, and comes first.
        let after_clock = self.after_clock.contains(&address).then_some(&Site::AfterClock);
        after_clock.into_iter().chain(&self.annotated[first..first + same]).chain(by_itself)
    }

    /// Whether an instruction reads the clock and may be the first one to do so after a halt.
    fn reads_clock(&self, address: u64, bytes: &[u8]) -> bool {
        self.plan.timed && address >= KERNEL && assay_sim::reads_clock(bytes)
    }

    /// Takes an execution of a repeated string instruction. QEMU executes it as some number of repetitions at
    /// a time, down to one; it is counted at the first.
    fn on_repeated(&mut self, processor: c_uint, address: u64) {
        let last = self.last_repeated;
        let counted = self.counters.counted(processor);
        let executed = counted.user + counted.kernel;
        if last != (address, executed) {
            *at(address, &mut counted.user, &mut counted.kernel) += 1;
            self.last_repeated = (address, executed + 1);
            if let Some(position) = routine_position(&self.plan, address) {
                self.counters.routines(processor)[position] += 1;
            }
        } else {
            *at(address, &mut self.repetitions.user, &mut self.repetitions.kernel) += 1;
        }
    }

    /// Takes the execution of an instruction that means something, before it is counted.
    fn on_site(&mut self, processor: c_uint, site: Site) {
        if self.plan.timed && matches!(site, Site::Annotated(Action::PageFault { .. })) {
            match self.guest.aborted() {
                Some(Aborted::Nothing) => {}
                Some(Aborted::User) => self.aborted.user += 1,
                Some(Aborted::Kernel) => self.aborted.kernel += 1,
                None => self.attribution.miss(),
            }
        }
        let counted = self.counters.counted(processor);
        let mut counts = Counts { user: counted.user, kernel: counted.kernel };
        // A return is the last instruction of what it ends.
        counts.kernel +=
            u64::from(matches!(site, Site::ReturnFromTrap | Site::ReturnFromCall | Site::ReturnFromFunction));
        let executed = counts.user + counts.kernel;
        let guest = &mut self.guest;
        let event = match site {
            Site::Annotated(Action::Call) => Some(guest.call()),
            Site::Annotated(Action::Trap { service, above }) => Some(guest.trap(service, above)),
            Site::Annotated(Action::PageFault { service }) => Some(guest.trap(service, ERROR_CODE)),
            Site::Annotated(Action::Kind { of, is }) => Some(Event::Kind { of, is }),
            Site::Annotated(Action::Function { service }) => Some(guest.function(service)),
            Site::Annotated(Action::New) => guest.new_task(),
            Site::Annotated(Action::Switch) => guest.switch(),
            Site::Annotated(Action::Wake) => guest.wake(),
            Site::Annotated(Action::Rename) => guest.rename(),
            Site::ReturnFromTrap => guest.return_from_trap(),
            Site::ReturnFromCall => Some(Event::ReturnToProgram),
            Site::ReturnFromFunction => Some(guest.return_from_function()),
            Site::Halt => Some(Event::Halt),
            Site::ReadClock => {
                self.clock_read = executed + 1;
                return;
            }
            Site::AfterClock if self.clock_read == executed => Some(guest.clock()),
            Site::AfterClock => return,
            Site::Begin => Some(Event::Begin),
            Site::Snapshot => Some(guest.snapshot()),
            Site::End => Some(Event::End),
        };
        let Some(event) = event else { return self.attribution.miss() };
        let ran_user_ns = counts.user + self.repetitions.user - self.aborted.user;
        let ran_kernel_ns = counts.kernel + self.repetitions.kernel - self.aborted.kernel;
        let moment = Moment { counts, ran_ns: ran_user_ns + ran_kernel_ns, ran_user_ns };
        if matches!(event, Event::Begin | Event::End) {
            self.attribution.take_routines(self.counters.routines(processor));
        }
        if let Some(profile) = self.attribution.take(moment, event) {
            // What is missing of the file is noticed by its reader.
            let _ = std::fs::write(&self.profile, profile.to_json());
            let _ = std::fs::write(&self.snapshots, self.attribution.snapshots().to_json());
        }
        let [in_function, halted] = [self.attribution.is_in_function(), self.attribution.is_halted()];
        let counted = self.counters.counted(processor);
        (counted.in_function, counted.halted) = (u64::from(in_function), u64::from(halted));
    }
}

/// The position of the routine of the kernel to which an address belongs, if they are counted.
fn routine_position(plan: &Plan, address: u64) -> Option<usize> {
    if address < KERNEL { None } else { plan.routines.position(address) }
}

/// What belongs to the mode of an instruction at this address.
fn at<T>(address: u64, user: T, kernel: T) -> T {
    if address >= KERNEL { kernel } else { user }
}

/// QEMU has made a processor.
unsafe extern "C" fn on_processor(_: u64, _: c_uint) {
    // SAFETY: set before this callback was registered, and not used by another thread.
    let plugin = unsafe { &mut *PLUGIN.load(Ordering::Acquire) };
    plugin.guest.find_registers();
}

/// QEMU translates a block of instructions.
unsafe extern "C" fn on_translation(_: u64, block: *mut c_void) {
    // SAFETY: as above; QEMU passes a valid block. The sites live as long as the process.
    unsafe {
        let plugin = &mut *PLUGIN.load(Ordering::Acquire);
        for index in 0..ffi::qemu_plugin_tb_n_insns(block) {
            let instruction = ffi::qemu_plugin_tb_get_insn(block, index);
            let address = ffi::qemu_plugin_insn_vaddr(instruction);
            let mut bytes = [0; LONGEST];
            let size = ffi::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), LONGEST);
            let bytes = &bytes[..size];
            if assay_sim::is_repeated(bytes) {
                ffi::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    on_repeated,
                    ffi::READS_NOTHING,
                    ptr::without_provenance_mut(usize::try_from(address).expect("a pointer has 64 bits")),
                );
                continue;
            }
            if plugin.reads_clock(address, bytes) {
                plugin.after_clock.insert(address + size as u64);
            }
            // Callbacks and additions happen in the order of their registration.
            for site in plugin.sites(address, bytes) {
                let data = ptr::from_ref(site).cast_mut().cast();
                if let Some(number) = site.condition() {
                    ffi::qemu_plugin_register_vcpu_insn_exec_cond_cb(
                        instruction,
                        on_instruction,
                        ffi::READS_REGISTERS,
                        ffi::NOT_EQUAL,
                        plugin.counters.counter(number),
                        0,
                        data,
                    );
                } else {
                    ffi::qemu_plugin_register_vcpu_insn_exec_cb(
                        instruction,
                        on_instruction,
                        ffi::READS_REGISTERS,
                        data,
                    );
                }
            }
            let mode = at(address, Number::User, Number::Kernel);
            let routine = routine_position(&plugin.plan, address).map(Number::Routine);
            for number in [Some(mode), routine].into_iter().flatten() {
                let counter = plugin.counters.counter(number);
                ffi::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ffi::ADD, counter, 1);
            }
        }
    }
}

/// The guest executes a repeated string instruction, or goes on with it.
unsafe extern "C" fn on_repeated(processor: c_uint, address: *mut c_void) {
    // SAFETY: as above.
    unsafe { (*PLUGIN.load(Ordering::Acquire)).on_repeated(processor, address.addr() as u64) }
}

/// The guest is about to execute an instruction that means something.
unsafe extern "C" fn on_instruction(processor: c_uint, site: *mut c_void) {
    // SAFETY: as above; `site` is the one that `on_translation` has registered.
    unsafe {
        let site = *site.cast::<Site>();
        (*PLUGIN.load(Ordering::Acquire)).on_site(processor, site);
    }
}
