//! The processes that were given: which of them can be placed, and how their productivity is counted.

use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{fs, io};

use assay_process::accounting::process_cpu_ns;
use assay_process::clock::now;
use assay_process::{Process, is_gone};

use super::places::{Place, places};
use super::scheduling::Found;
use super::{LONGEST, NoPlacement, SETTLING, failed, sleep};
use crate::advice::{Advice, Bound, Class, Queue};
use crate::facility::Instructions;
use crate::placement::{Done, Interference, PAIRS};
use crate::progress::Observed;

/// Most processes that are placed: each pair of them takes ten periods.
pub const MOST: usize = 16;

/// Turns that each task has at least in a period in which time slices are compared: if one has a turn more
/// than another, the mean of the logarithms of what they do is half a per cent too low.
const TURNS: u32 = 5;

/// A process that can be placed.
#[derive(Debug)]
pub struct Task {
    /// Its id.
    pub pid: i32,
    /// The name of its program.
    pub name: String,
    /// What it counts, if that has a name.
    pub unit: String,
    /// Whether it may be paused: by its advice, its units may be queued.
    pub may_pause: bool,
    /// How urgent its units are, by its advice.
    pub class: Class,
    /// Whether it is limited by the bandwidth of the memory, by its advice.
    pub is_bandwidth_bound: bool,
    pub(super) found: Found,
    productivity: Productivity,
}

/// What a task did so far.
#[derive(Debug, Clone, Copy)]
struct Totals {
    units: u64,
    busy_ns: u64,
}

/// How the productivity of a process is counted.
#[derive(Debug)]
enum Productivity {
    Progress(Vec<Observed>),
    Instructions(Instructions),
}

/// The processes that were given, and the places of this machine.
#[derive(Debug)]
pub struct Survey {
    /// Those that can be placed.
    pub tasks: Vec<Task>,
    /// The others, with the reason.
    pub others: Vec<(i32, String)>,
    /// The places, of the processors that all tasks may use.
    pub places: Vec<Place>,
}

impl Survey {
    /// Looks at processes, and changes nothing.
    ///
    /// # Errors
    /// If there are fewer than two that can be placed, too many, or fewer than two places.
    pub fn of(pids: &[i32]) -> Result<Self, NoPlacement> {
        let (mut tasks, mut others) = (Vec::new(), Vec::new());
        for &pid in pids {
            match Task::find(pid) {
                Ok(task) => tasks.push(task),
                Err(reason) => others.push((pid, reason)),
            }
        }
        // What one of them does is not known.
        let files: Vec<_> = tasks.iter().flat_map(Task::files).collect();
        let is_shared = |task: &mut Task| {
            task.files().iter().any(|file| files.iter().filter(|other| *other == file).count() > 1)
        };
        let shared = tasks.extract_if(.., is_shared);
        others.extend(shared.map(|task| (task.pid, "it counts in the same file as another one".to_owned())));
        others.sort_unstable();
        match (tasks.len(), &others[..]) {
            (2..=MOST, _) => {}
            (0 | 1, []) => return Err(NoPlacement::NoChoice("give two processes or more".to_owned())),
            (0 | 1, [(pid, reason), more @ ..]) => {
                let more = match more.len() {
                    0 => String::new(),
                    more => format!(", and {more} more cannot be placed"),
                };
                return Err(NoPlacement::NoChoice(format!("process {pid} cannot be placed: {reason}{more}")));
            }
            (many, _) => return Err(NoPlacement::TooMany(many)),
        }
        let mut cpus = tasks[0].found.cpus();
        cpus.retain(|cpu| tasks.iter().all(|task| task.found.cpus().contains(cpu)));
        let places = places(&cpus);
        if places.len() < 2 {
            let text = match cpus.len() {
                0 => "there is no processor that all of the processes may use",
                _ => "the processors that all of the processes may use share a core: there is no choice",
            };
            return Err(NoPlacement::NoChoice(text.to_owned()));
        }
        Ok(Self { tasks, others, places })
    }

    /// Time that a placement takes.
    #[must_use]
    pub fn time(&self, period: Duration) -> Duration {
        let times = |each: Duration, periods: usize| each.saturating_mul(small(periods));
        let places = times(period + SETTLING, Interference::periods(self.tasks.len()) + 2 * PAIRS);
        let slices = match small(self.may_lengthen()) {
            0 => Duration::ZERO,
            // Before a period, half a rotation passes for each on average, then one for all.
            batch => times(self.turns(period) + self.rotation() / 2 * (batch + 2), 2 * PAIRS),
        };
        places.saturating_add(slices)
    }

    /// Number of tasks whose time slices may be lengthened.
    pub(super) fn may_lengthen(&self) -> usize {
        self.tasks.iter().filter(|task| task.may_lengthen()).count()
    }

    /// Length of a period in which time slices are compared.
    pub(super) fn turns(&self, period: Duration) -> Duration {
        period.max(TURNS * self.rotation())
    }

    /// The time in which each task has a turn with the longest time slice, if tasks are spread evenly over
    /// processors.
    pub(super) fn rotation(&self) -> Duration {
        let processors: usize = self.places.iter().map(|place| place.cpus.len()).sum();
        LONGEST * small(self.tasks.len().div_ceil(processors).max(2))
    }

    /// Lets a period pass, and returns what each task did in it.
    ///
    /// # Errors
    /// If a task has ended, or the user interrupts.
    pub fn period(&mut self, period: Duration, interrupt: &AtomicBool) -> Result<Vec<Done>, NoPlacement> {
        let mut totals = || self.tasks.iter_mut().map(Task::totals).collect::<Result<Vec<_>, _>>();
        let (before, begin) = (totals()?, now());
        sleep(period, interrupt)?;
        let (after, length) = (totals()?, now().saturating_duration_since(begin));
        let done = |(task, (before, after)): (&Task, (Totals, Totals))| {
            let fell = || failed("observe", task.pid, io::Error::other("its count of units fell"));
            Ok(Done {
                units: real(after.units.checked_sub(before.units).ok_or_else(fell)?),
                length_s: length.as_secs_f64(),
                busy_s: real(after.busy_ns.saturating_sub(before.busy_ns)) / 1e9,
            })
        };
        self.tasks.iter().zip(before.into_iter().zip(after)).map(done).collect()
    }
}

impl Task {
    /// Looks at a process, or returns the reason why it cannot be placed.
    fn find(pid: i32) -> Result<Self, String> {
        let failed = |error: io::Error| {
            if is_gone(&error) { "it has ended".to_owned() } else { format!("it cannot be read: {error}") }
        };
        let process = Process::read(pid).map_err(failed)?.filter(Process::is_alive);
        let process = process.ok_or("it does not exist")?;
        if is_ancestor(pid).map_err(failed)? {
            return Err("it is this command, or one that started it".to_owned());
        }
        if matches!(process.state, b'T' | b't') {
            return Err("it is stopped".to_owned());
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        let observed = Observed::mapped_by(pid).map_err(failed)?;
        let advice: Vec<Advice> = observed.iter().filter_map(Observed::advice).collect();
        let may_pause = advice.iter().all(|advice| advice.queue == Queue::Allowed);
        let is_bandwidth_bound = advice.iter().any(|advice| advice.bound == Bound::Bandwidth);
        // Not without advice: it may be interactive.
        let is_batch = !advice.is_empty() && advice.iter().all(|advice| advice.class == Class::Batch);
        let class = if is_batch { Class::Batch } else { Class::Interactive };
        let found = Found::read(process, class).map_err(failed)?;
        let unit = advice.into_iter().next().map_or_else(String::new, |advice| advice.unit);
        let (productivity, unit) = if observed.is_empty() {
            let instructions = Instructions::of(pid);
            let instructions =
                instructions.map_err(|reason| format!("it has no progress counter, and {reason}"))?;
            (Productivity::Instructions(instructions), "instruction".to_owned())
        } else {
            (Productivity::Progress(observed), unit)
        };
        Ok(Self { pid, name, unit, may_pause, class, is_bandwidth_bound, found, productivity })
    }

    /// Whether its time slices may be lengthened: it is a batch job, and they can be chosen.
    #[must_use]
    pub fn may_lengthen(&self) -> bool {
        self.found.may_lengthen()
    }

    /// The files in which it counts.
    fn files(&self) -> Vec<(u64, u64)> {
        match &self.productivity {
            Productivity::Progress(counters) => counters.iter().map(Observed::file).collect(),
            Productivity::Instructions(_) => Vec::new(),
        }
    }

    /// Fails if it has ended.
    pub(super) fn must_live(&self) -> Result<(), NoPlacement> {
        let is_alive = self.found.is_alive().map_err(|error| failed("observe", self.pid, error))?;
        if is_alive { Ok(()) } else { Err(NoPlacement::Ended(self.pid)) }
    }

    /// What it did so far.
    fn totals(&mut self) -> Result<Totals, NoPlacement> {
        let read = |error| {
            if is_gone(&error) { NoPlacement::Ended(self.pid) } else { failed("observe", self.pid, error) }
        };
        self.must_live()?;
        let units = match &mut self.productivity {
            Productivity::Progress(counters) => {
                let units = counters.iter().map(|counter| Ok(counter.read()?.finished));
                units.sum::<io::Result<u64>>()
            }
            Productivity::Instructions(counter) => counter.total().and_then(|total| {
                total.ok_or_else(|| io::Error::other("other events took all counters of the processor"))
            }),
        };
        let busy_ns = process_cpu_ns(self.pid).map_err(read)?;
        Ok(Totals { units: units.map_err(read)?, busy_ns })
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("a number of tasks, or of their pairs")
}

/// Whether a process is this one, or started it.
fn is_ancestor(pid: i32) -> io::Result<bool> {
    let mut own = Some(std::process::id().cast_signed());
    while let Some(next) = own {
        if next == pid {
            return Ok(true);
        }
        own = Process::read(next)?.map(|process| process.parent).filter(|parent| *parent != 0);
    }
    Ok(false)
}

#[expect(clippy::cast_precision_loss, reason = "counts in a period are far below 2^52")]
fn real(number: u64) -> f64 {
    number as f64
}
