//! The mapping rule: which primitive of the operating system stands for which call (Brown 1997, section 4.1).
//!
//! [`RULES`] is the whole of it: rows of call, kind of descriptor, condition and primitive, the first that fits
//! wins, and what fits none is bounded from below by the null call. One pass makes the coefficients of an
//! application vector ([`assay_quantity::OperationDemand`]), with a histogram over sizes and whether the buffer of
//! a transfer had just been used. It says nothing about what a primitive costs.

use std::collections::{BTreeMap, HashMap};

use assay_quantity::{CallCount, Coefficient, Mapping, OperationDemand, Use};

use super::View;
use crate::{
    descriptor::Descriptor,
    histogram::bucket,
    record::{Abi, Call, Event, Lost, Record},
    syscall,
};

/// Pages that a thread's transfers of one kind remember, so that a buffer used within the last 64 distinct pages
/// counts as reused: 256 KiB, what a second-level cache holds.
const REMEMBERED_PAGES: usize = 64;
const PAGE_BITS: u32 = 12;
/// `/dev/null` as the kernel numbers devices: major 1, minor 3.
const NULL_DEVICE: u64 = 1 << 20 | 3;
const AT_EMPTY_PATH: u64 = 0x1000;
const CLONE_THREAD: u64 = 0x1_0000;
const ENOENT: u16 = 2;

/// The primitive that bounds every call from below.
pub const NULL_CALL: &str = "call.null";
/// The primitive of a voluntary context switch, wherever it happens.
pub const CONTEXT_SWITCH: &str = "process.context_switch{processes=2,cpus=same}";
/// The primitive of a page fault in user mode.
pub const PAGE_FAULT: &str = "page_fault.anonymous";

/// One row of the mapping.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Names of the calls.
    pub calls: &'static [&'static str],
    /// Kind of descriptor that they must have worked on.
    pub on: On,
    /// What else must hold.
    pub when: When,
    /// Primitive that stands for the call, without `size` and `buffer`.
    pub primitive: &'static str,
    /// How it stands for it.
    pub role: Role,
}

/// Kind of descriptor a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Any, or none.
    Any,
    /// A regular file.
    File,
    /// TCP.
    Tcp,
    /// `/dev/null`.
    Null,
}

/// Condition on a call's result or arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It succeeded.
    Succeeded,
    /// It failed with `ENOENT`.
    Missing,
    /// It succeeded, and its fourth argument has `AT_EMPTY_PATH`.
    EmptyPath,
    /// It made a process, not a thread.
    MadeProcess,
    /// It ended its thread.
    Ended,
}

/// How a primitive stands for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One operation each.
    Operation,
    /// One operation each, of the size of the result.
    Sized,
    /// One operation each, of the size of the result, from or to a buffer whose reuse is told apart.
    Buffered,
    /// Contained in an operation that another call stands for: no operation of its own.
    Within,
}

macro_rules! rules {
    ($($calls:tt $on:ident $when:ident => $primitive:literal $role:ident,)+) => {
        &[$(Rule {
            calls: &$calls, on: On::$on, when: When::$when, primitive: $primitive, role: Role::$role,
        },)+]
    };
}

/// The mapping. A transfer that fails (`EAGAIN` above all) moves nothing and fits no row.
pub const RULES: &[Rule] = rules! {
    ["read", "recvfrom", "recvmsg", "readv"] Tcp Succeeded => "tcp.receive" Buffered,
    ["write", "sendto", "sendmsg"] Tcp Succeeded => "tcp.send" Buffered,
    ["writev"] Tcp Succeeded => "tcp.writev" Sized,
    ["sendfile"] Tcp Succeeded => "tcp.sendfile" Sized,
    ["accept", "accept4"] Tcp Succeeded => "tcp.accept" Operation,
    ["connect"] Tcp Succeeded => "tcp.connect" Operation,
    ["close"] Tcp Succeeded => "tcp.close" Operation,
    ["read", "pread64"] File Succeeded => "file.read" Buffered,
    ["write", "pwrite64"] File Succeeded => "file.write" Buffered,
    ["write"] Null Succeeded => "null.write" Sized,
    ["open", "openat", "openat2"] File Succeeded => "file.open_close" Operation,
    ["close"] File Succeeded => "file.open_close" Within,
    ["open", "openat", "openat2"] Any Missing => "file.open_missing" Operation,
    ["newfstatat", "statx"] Any EmptyPath => "file.fstat" Operation,
    ["fstat"] Any Succeeded => "file.fstat" Operation,
    ["stat", "lstat", "newfstatat", "statx"] Any Succeeded => "file.stat" Operation,
    ["epoll_wait", "epoll_pwait", "epoll_pwait2"] Any Succeeded => "epoll.wait_ready" Operation,
    ["epoll_ctl"] Any Succeeded => "epoll.ctl" Operation,
    ["setsockopt"] Any Succeeded => "socket.setsockopt" Operation,
    ["rt_sigaction"] Any Succeeded => "signal.install" Operation,
    ["clock_gettime"] Any Succeeded => "clock.gettime" Operation,
    ["getppid"] Any Succeeded => "call.null" Operation,
    ["fork", "vfork", "clone", "clone3"] Any MadeProcess => "process.fork_exit" Operation,
    ["exit_group"] Any Ended => "process.fork_exit" Within,
    // How the program is linked is not in the trace; nearly all are dynamic.
    ["execve", "execveat"] Any Succeeded => "process.exec{link=dynamic}" Operation,
};

impl Rule {
    fn fits(&self, call: &Call, made: Option<Made>, ended: bool) -> bool {
        let on = match self.on {
            On::Any => true,
            On::File => call.descriptor == Descriptor::File,
            On::Tcp => call.descriptor.is_tcp(),
            On::Null => call.descriptor == Descriptor::CharacterDevice && call.inode == NULL_DEVICE,
        };
        let succeeded = !ended && call.errno().is_none();
        // statx has its flags in another place than newfstatat.
        let flags = if call.name() == "statx" { call.args[2] } else { call.args[3] };
        on && match self.when {
            When::Succeeded => succeeded,
            When::Missing => !ended && call.errno() == Some(ENOENT),
            When::EmptyPath => succeeded && flags & AT_EMPTY_PATH != 0,
            When::MadeProcess => succeeded && made == Some(Made::Process),
            When::Ended => ended,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Process,
    Thread,
}

/// Collects what a program asks for.
#[derive(Debug, Default)]
pub struct Demanding {
    terms: BTreeMap<Term, Tally>,
    threads: HashMap<u32, Thread>,
    unfinished: u64,
    lost: u64,
}

/// What becomes one coefficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    primitive: &'static str,
    bound: Bound,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    Own,
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Buffer {
    NoKey,
    Reused,
    Fresh,
}

#[derive(Debug, Default)]
struct Tally {
    /// By size, in the buckets of a [`crate::histogram::Histogram`]; `None` for an operation without a size.
    bins: BTreeMap<Option<usize>, Bin>,
    kernel_ns: u64,
    calls: BTreeMap<(Abi, u16, Descriptor), u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Bin {
    calls: u64,
    bytes: u64,
}

/// What must be remembered of a thread that lives.
#[derive(Debug, Default)]
struct Thread {
    made: Option<Made>,
    pages: HashMap<&'static str, Vec<u64>>,
}

/// What a program asked of the operating system.
#[derive(Debug)]
pub struct Demanded {
    terms: BTreeMap<Term, Tally>,
    /// Calls that never returned, except those that ended their thread; they are in no coefficient.
    pub unfinished: u64,
    /// Records that are missing: with losses a demand is a lower bound.
    pub lost: u64,
}

impl View for Demanding {
    type Shown = Demanded;

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Call(call) => self.call(record.thread, call, false),
            Event::Unfinished(call) if is_exit(call) => self.call(record.thread, call, true),
            Event::Unfinished(_) => self.unfinished += 1,
            Event::PageFault { user: true, .. } => self.count(PAGE_FAULT, 1),
            Event::Fork { child_process, .. } => {
                let made = if *child_process == record.process { Made::Thread } else { Made::Process };
                self.threads.entry(record.thread).or_default().made = Some(made);
            }
            Event::Exit { .. } => {
                self.threads.remove(&record.thread);
            }
            Event::PageFault { user: false, .. } | Event::OffCpu { .. } | Event::Exec { .. } => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(self) -> Demanded {
        Demanded { terms: self.terms, unfinished: self.unfinished, lost: self.lost }
    }
}

impl Demanding {
    fn call(&mut self, thread: u32, call: &Call, ended: bool) {
        let name = call.name();
        let made = self.made(thread, call);
        let rule = RULES
            .iter()
            .filter(|_| call.abi == Abi::Native)
            .find(|rule| rule.calls.contains(&&*name) && rule.fits(call, made, ended));
        let (primitive, bound, role) = match rule {
            Some(rule) => (rule.primitive, Bound::Own, rule.role),
            None => (NULL_CALL, Bound::Lower, Role::Operation),
        };
        let buffer = if matches!(rule, Some(rule) if has_buffer(rule.primitive)) && role == Role::Buffered {
            self.buffer(thread, primitive, call)
        } else {
            Buffer::NoKey
        };
        let tally = self.terms.entry(Term { primitive, bound, buffer }).or_default();
        let bytes = u64::try_from(call.result).unwrap_or(0);
        match role {
            Role::Sized | Role::Buffered => tally.bin(Some(bucket(bytes)), 1, bytes),
            Role::Operation => tally.bin(None, 1, 0),
            Role::Within => {}
        }
        tally.kernel_ns = tally.kernel_ns.saturating_add(call.kernel_ns());
        *tally.calls.entry((call.abi, call.number, call.descriptor)).or_default() += 1;
        if call.voluntary > 0 {
            self.count(CONTEXT_SWITCH, u64::from(call.voluntary));
        }
    }

    /// A primitive that is counted and has no kernel time of its own: that stays with the call around it.
    fn count(&mut self, primitive: &'static str, times: u64) {
        let term = Term { primitive, bound: Bound::Own, buffer: Buffer::NoKey };
        self.terms.entry(term).or_default().bin(None, times, 0);
    }

    /// What a fork made; the fork event comes before the call returns. A lost event is replaced by the flags,
    /// which only `clone` carries in a register.
    fn made(&mut self, thread: u32, call: &Call) -> Option<Made> {
        let name = call.name();
        if !matches!(&*name, "fork" | "vfork" | "clone" | "clone3") {
            return None;
        }
        let seen = self.threads.get_mut(&thread).and_then(|thread| thread.made.take());
        seen.or(match &*name {
            "fork" | "vfork" => Some(Made::Process),
            "clone" if call.args[0] & CLONE_THREAD != 0 => Some(Made::Thread),
            "clone" => Some(Made::Process),
            _ => None,
        })
    }

    /// Vectors and message headers hide their buffers; programs that use them keep them, so they count as reused.
    fn buffer(&mut self, thread: u32, primitive: &'static str, call: &Call) -> Buffer {
        let Some(argument) = syscall::rule(call.number).buffer else { return Buffer::Reused };
        let page = call.args[usize::from(argument)] >> PAGE_BITS;
        let pages = self.threads.entry(thread).or_default().pages.entry(primitive).or_default();
        let known = pages.iter().position(|known| *known == page);
        match known {
            Some(position) => {
                pages.remove(position);
            }
            None if pages.len() == REMEMBERED_PAGES => {
                pages.remove(0);
            }
            None => {}
        }
        pages.push(page);
        if known.is_some() { Buffer::Reused } else { Buffer::Fresh }
    }
}

fn is_exit(call: &Call) -> bool {
    call.abi == Abi::Native && matches!(&*call.name(), "exit" | "exit_group")
}

fn has_buffer(primitive: &str) -> bool {
    RULES.iter().any(|rule| rule.primitive == primitive && rule.role == Role::Buffered)
}

impl Tally {
    fn bin(&mut self, size: Option<usize>, calls: u64, bytes: u64) {
        let bin = self.bins.entry(size).or_default();
        bin.calls += calls;
        bin.bytes = bin.bytes.saturating_add(bytes);
    }
}

impl Demanded {
    /// Share of the traced kernel time whose calls have a primitive of their own, 0 to 1; `None` when there was
    /// none.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        let sum = |own: fn(&Term) -> bool| {
            let terms = self.terms.iter().filter(|(term, _)| own(term));
            terms.map(|(_, tally)| tally.kernel_ns as f64).sum::<f64>()
        };
        let all = sum(|_| true);
        (all > 0.0).then(|| sum(|term| term.bound == Bound::Own) / all)
    }

    /// The vector of the operation `name`, of which the trace saw `units` units of work. Processor times are not
    /// in a trace; who measured them adds them.
    #[must_use]
    pub fn into_operation(self, name: Named, units: f64) -> OperationDemand {
        let coefficients = self.terms.iter().map(|(term, tally)| coefficient(*term, tally, units)).collect();
        OperationDemand {
            name: name.operation,
            unit_of_work: name.unit_of_work,
            units,
            user: None,
            system: None,
            lost_records: self.lost,
            coefficients,
        }
    }
}

/// What an operation and one unit of its work are called.
#[derive(Debug, Clone)]
pub struct Named {
    /// Name of the operation, `page`.
    pub operation: String,
    /// One unit of work, `request`.
    pub unit_of_work: String,
}

fn coefficient(term: Term, tally: &Tally, units: f64) -> Coefficient {
    let per_unit = |count: u64| count as f64 / units;
    let uses = tally
        .bins
        .iter()
        .map(|(size, bin)| Use { calls: per_unit(bin.calls), bytes: size.map(|_| per_unit(bin.bytes)) });
    let calls = tally.calls.iter().map(|((abi, number, descriptor), count)| CallCount {
        call: crate::record::call_name(*abi, *number).into_owned(),
        descriptor: if *descriptor == Descriptor::None {
            String::new()
        } else {
            descriptor.name().to_owned()
        },
        calls: per_unit(*count),
    });
    let id = match term.buffer {
        Buffer::NoKey => term.primitive.to_owned(),
        Buffer::Reused => format!("{}{{buffer=reused}}", term.primitive),
        Buffer::Fresh => format!("{}{{buffer=fresh}}", term.primitive),
    };
    Coefficient {
        primitive: id.parse().expect("a test walks the table: every name in it is a primitive's"),
        mapping: match term.bound {
            Bound::Own => Mapping::Own,
            Bound::Lower => Mapping::LowerBound,
        },
        uses: uses.collect(),
        kernel_ns: per_unit(tally.kernel_ns),
        calls: calls.collect(),
    }
}

#[cfg(test)]
mod tests;
