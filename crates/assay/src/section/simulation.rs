//! Where the instructions of a simulated machine went.

pub mod difference;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_quantity::Unit;
use assay_report::{Axis, Block, Cell, Column, Figure, Report, Series, Stack, Table, scale};
use assay_sim::{Counts, Elapsed, Interval, Latency, Observed, Profile, Run, Service, Spent};
use assay_trace::syscall;

/// Returns the report on a run: its modes, and, if they were observed, events, programs, services and
/// routines.
pub fn report(run: &Run) -> Report {
    let profile = &run.profile;
    let tables = match run.setup.observed {
        Observed::Count => vec![modes(run).with_note(COUNTED)],
        Observed::Services => {
            let modes = modes(run).with_note(balance(profile));
            let latencies = profile.elapsed.map(|elapsed| latencies(profile, elapsed));
            let kernel = [services(profile), services_of_programs(profile), routines(profile)];
            [modes, events(profile), programs(profile)].into_iter().chain(latencies).chain(kernel).collect()
        }
    };
    let mut blocks: Vec<Block> = tables.into_iter().map(Block::Table).collect();
    blocks.splice(1..1, over_time(profile).map(Block::Figure));
    let title = format!("{} on Linux {}", command(run), run.setup.kernel);
    Report { title, blocks }
}

/// Draws the modes over time (Rosenblum et al., figure 4.1). `None` if the time is unknown, or none has
/// passed.
fn over_time(profile: &Profile) -> Option<Figure> {
    let (timeline, elapsed) = (profile.timeline.as_ref()?, profile.elapsed?);
    let layer = |name: &str, of: fn(&Interval) -> u64| {
        let values = timeline.intervals.iter().map(|interval| Some(ratio(of(interval), 1))).collect();
        Series { name: name.to_owned(), values }
    };
    let layers = vec![
        layer("user", |interval| interval.user_ns),
        layer("kernel", |interval| interval.kernel_ns),
        layer("idle or halted", |interval| interval.idle_ns),
    ];
    let time = Axis { label: "the guest's time".to_owned(), unit: Unit::Nanoseconds };
    let begins = timeline.intervals.iter().zip(0..).map(|(_, position)| position * timeline.interval_ns);
    let edges = begins.chain([elapsed.total_ns]).map(|edge_ns| ratio(edge_ns, 1)).collect();
    Stack::new("What the processor did", time, edges, layers).ok().map(Figure::Stack)
}

/// States what the mode kernel contains if services were not observed.
const COUNTED: &str = "Idle instructions count as those of the kernel.";

/// The memory of a machine.
pub fn memory(mib: u32) -> Cell {
    Cell::Number { value: f64::from(mib) * f64::from(1 << 20), unit: Unit::Bytes }
}

fn command(run: &Run) -> &str {
    run.setup.command.as_deref().unwrap_or("A mix of system calls")
}

fn spent(profile: &Profile) -> impl Iterator<Item = &Spent> {
    profile.images.iter().flat_map(|image| &image.services)
}

fn modes(run: &Run) -> Table {
    let modes = by_mode(&run.profile);
    let [.., (_, total)] = modes;
    let rows = modes.map(|(mode, instructions)| {
        [Cell::text(mode), Cell::Count(instructions), Cell::Share(ratio(instructions, total))]
    });
    let columns = [Column::words("mode"), Column::numbers("instructions"), Column::numbers("share")];
    let table = Table::of(MODES, columns, rows);
    match run.status {
        0 => table,
        status => table.with_note(format!("The command ended with status {status}.")),
    }
}

const MODES: &str = "Where the instructions went";

/// The instructions of each mode, and of all.
fn by_mode(profile: &Profile) -> [(&'static str, u64); 4] {
    let idle = spent(profile).filter(|spent| spent.service == Service::Idle);
    let idle: u64 = idle.map(|spent| spent.instructions).sum();
    let Counts { user, kernel } = profile.total;
    [("user", user), ("kernel", kernel - idle), ("idle", idle), ("all", user + kernel)]
}

/// States how well the services are separated.
fn balance(profile: &Profile) -> String {
    let balance = match (profile.returns_without_entry, profile.entries_without_return) {
        (0, 0) => "Every entry into the kernel has its return.".to_owned(),
        (returns, entries) => format!(
            "{returns} returns had no entry and {entries} entries no return: about as many calls are \
             booked to the wrong service."
        ),
    };
    let unreadable = match profile.unreadable {
        0 => String::new(),
        events => format!(
            " {events} events could not be read from the guest's memory: what follows them may be booked to \
             another program."
        ),
    };
    format!("{balance}{unreadable}")
}

/// What has happened, and how often in a second of the machine's time, if it is known (Rosenblum et al.,
/// table 4.2).
fn events(profile: &Profile) -> Table {
    let rows = by_event(profile);
    let Some(elapsed) = profile.elapsed else {
        let rows = rows.map(|(event, count)| [Cell::text(event), Cell::Count(count)]);
        return Table::of(EVENTS, [Column::words("event"), Column::numbers("count")], rows);
    };
    let rows = rows.map(|(event, count)| [Cell::text(event), Cell::Count(count), rate(count, elapsed)]);
    let columns = [Column::words("event"), Column::numbers("count"), Column::numbers("per second")];
    Table::of(EVENTS, columns, rows).with_note(format!("{} An instruction takes 1 ns.", time(elapsed)))
}

const EVENTS: &str = "Events";

/// States how long a run took.
fn time(elapsed: Elapsed) -> String {
    let [total, halted] = [elapsed.total_ns, elapsed.halted_ns]
        .map(|time_ns| scale::number(ratio(time_ns, 1), Unit::Nanoseconds));
    let time = format!("{total} passed in the guest, {halted} of it while the processor was halted.");
    match elapsed.unknown_halts {
        0 => time,
        halts => format!("{time} {halts} halts took a time that is unknown and not included."),
    }
}

/// How often each event has happened.
fn by_event(profile: &Profile) -> [(&'static str, u64); 6] {
    let calls = |is: fn(&Service) -> bool| -> u64 {
        spent(profile).filter(|spent| is(&spent.service)).map(|spent| spent.calls).sum()
    };
    let page_fault = |service: &Service| matches!(service, Service::Exception(name) if is_page_fault(name));
    [
        ("system calls", calls(|service| matches!(service, Service::Call(_) | Service::CompatibleCall(_)))),
        ("page faults", calls(page_fault)),
        (
            "other exceptions",
            calls(|service| matches!(service, Service::Exception(name) if !is_page_fault(name))),
        ),
        ("interrupts", calls(|service| matches!(service, Service::Interrupt(_)))),
        ("new processes and threads", calls(|service| *service == Service::Start)),
        ("switches to another task", profile.switches),
    ]
}

fn is_page_fault(exception: &str) -> bool {
    exception.split('/').next() == Some("page_fault")
}

fn rate(count: u64, elapsed: Elapsed) -> Cell {
    if elapsed.total_ns == 0 {
        return Cell::text("");
    }
    Cell::Number { value: 1e9 * ratio(count, elapsed.total_ns), unit: Unit::PerSecond }
}

fn programs(profile: &Profile) -> Table {
    let mut rows: Vec<_> = by_program(profile).into_iter().collect();
    rows.sort_by_key(|(_, program)| Reverse(program.user + program.kernel));
    let total = profile.total.user + profile.total.kernel;
    let rows = rows.into_iter().map(|(name, Program { processes, user, kernel })| {
        [
            Cell::text(name),
            Cell::Count(processes),
            Cell::Count(user),
            Cell::Count(kernel),
            Cell::Share(ratio(user + kernel, total)),
        ]
    });
    let columns = [
        Column::words("program"),
        Column::numbers("processes"),
        Column::numbers("user"),
        Column::numbers("kernel"),
        Column::numbers("share"),
    ];
    Table::of(PROGRAMS, columns, rows).with_note(PROCESSES)
}

const PROGRAMS: &str = "Instructions of each program";

const PROCESSES: &str = "A process that executes another program counts for both.";

/// Processes of a program, and their instructions.
#[derive(Debug, Default, Clone, Copy)]
struct Program {
    processes: u64,
    user: u64,
    kernel: u64,
}

fn by_program(profile: &Profile) -> BTreeMap<&str, Program> {
    let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
    for image in &profile.images {
        let program = programs.entry(&image.name).or_default();
        program.processes += 1;
        program.user += image.user;
        program.kernel += image.services.iter().map(|spent| spent.instructions).sum::<u64>();
    }
    programs
}

fn services(profile: &Profile) -> Table {
    let rows = by_instructions(by_service(profile)).into_iter().map(|(service, work)| {
        let [name, kind] = names(service);
        let [calls, instructions, each, share] = figures(work, profile);
        [Cell::text(name), Cell::text(kind), calls, instructions, each, share]
    });
    let [calls, instructions, each, share] = figure_columns();
    let columns = [Column::words("service"), Column::words("kind"), calls, instructions, each, share];
    let table = Table::of(SERVICES, columns, rows).with_note(PER_CALL);
    profile.gaps.iter().fold(table, |table, gap| table.with_note(gap.as_str()))
}

const SERVICES: &str = "Services of the kernel";

const PER_CALL: &str = "Instructions of a service do not include those of traps, softirqs and annotated \
                        functions during it; instructions per call are rounded down.";

/// Smallest share of a row that is not folded.
const FOLDED_BELOW: f64 = 0.01;

fn services_of_programs(profile: &Profile) -> Table {
    let named = profile
        .images
        .iter()
        .flat_map(|image| image.services.iter().map(|spent| ((image.name.as_str(), &spent.service), spent)));
    let rows = by_instructions(added_up(named));
    let small = |(_, work): &&(_, Work)| ratio(work.instructions, profile.total.kernel) < FOLDED_BELOW;
    let folded = rows.iter().filter(small).count();
    let rows = rows.into_iter().map(|((program, service), work)| {
        let [calls, instructions, each, share] = figures(work, profile);
        let [name, _] = names(service);
        [Cell::text(program), Cell::text(name), calls, instructions, each, share]
    });
    let [calls, instructions, each, share] = figure_columns();
    let columns = [Column::words("program"), Column::words("service"), calls, instructions, each, share];
    Table::of("Services of each program", columns, rows)
        .with_last_folded(folded, "Services below 1 % of the kernel, of these programs")
}

fn routines(profile: &Profile) -> Table {
    let mut rows: Vec<_> = profile.routines.iter().collect();
    rows.sort_by_key(|(_, instructions)| Reverse(**instructions));
    let of_kernel = |instructions: u64| ratio(instructions, profile.total.kernel);
    let small: Vec<u64> =
        rows.iter().map(|(_, own)| **own).filter(|own| of_kernel(*own) < FOLDED_BELOW).collect();
    let together = scale::number(of_kernel(small.iter().sum()), Unit::Ratio);
    let rows = rows.into_iter().map(|(name, instructions)| {
        [Cell::text(name), Cell::Count(*instructions), Cell::Share(of_kernel(*instructions))]
    });
    let [instructions, share] = ["instructions", "share of kernel"].map(Column::numbers);
    Table::of(ROUTINES, [Column::words("routine"), instructions, share], rows)
        .with_note(OWN)
        .with_last_folded(small.len(), &format!("Routines below 1 % of the kernel, together {together}"))
}

const ROUTINES: &str = "Routines of the kernel";

const OWN: &str = "Instructions of a routine do not include those of the routines that it calls.";

/// How often services are called, how long the calls take, and why (Rosenblum et al., table 4.8), by
/// descending time.
fn latencies(profile: &Profile, elapsed: Elapsed) -> Table {
    let mut sums: BTreeMap<&Service, (u64, Latency)> = BTreeMap::new();
    for spent in spent(profile) {
        let (calls, latency) = sums.entry(&spent.service).or_default();
        *calls += spent.calls;
        *latency += spent.latency.unwrap_or_default();
    }
    let mut rows: Vec<_> = sums.into_iter().filter(|(_, (_, latency))| latency.calls > 0).collect();
    rows.sort_by_key(|(_, (_, latency))| Reverse(latency.total_ns()));
    let small =
        |(_, (_, latency)): &&(_, (_, Latency))| ratio(latency.total_ns(), elapsed.total_ns) < FOLDED_BELOW;
    let folded = rows.iter().filter(small).count();
    let rows = rows.into_iter().map(|(service, (calls, latency))| {
        let [name, _] = names(service);
        let mean = |total_ns| Cell::Number { value: ratio(total_ns, latency.calls), unit: Unit::Nanoseconds };
        let Latency { running_ns, blocked_ns, descheduled_ns, .. } = latency;
        let [total, running, blocked, descheduled] =
            [latency.total_ns(), running_ns, blocked_ns, descheduled_ns].map(mean);
        [Cell::text(name), rate(calls, elapsed), total, running, blocked, descheduled]
    });
    let columns = [
        Column::words("service"),
        Column::numbers("calls per second"),
        Column::numbers("latency"),
        Column::numbers("running"),
        Column::numbers("blocked"),
        Column::numbers("descheduled"),
    ];
    Table::of("Latency of services", columns, rows)
        .with_note(
            "Means of the calls that began and ended between the marks, in the guest's time. Running includes \
             what interrupted the call, which also has a row of its own; blocked: until the task was woken up; \
             descheduled: while it could run and another task did.",
        )
        .with_last_folded(folded, "Services that took below 1 % of the time, all calls together")
}

/// Calls of a service, and its instructions.
#[derive(Debug, Default, Clone, Copy)]
struct Work {
    calls: u64,
    instructions: u64,
}

impl Work {
    /// How many calls, and the instructions of each; nothing for what is not called.
    fn cells(self) -> [Cell; 2] {
        match self.instructions.checked_div(self.calls) {
            Some(each) => [Cell::Count(self.calls), Cell::Count(each)],
            None => [(); 2].map(|()| Cell::text("")),
        }
    }
}

fn by_service(profile: &Profile) -> BTreeMap<&Service, Work> {
    added_up(spent(profile).map(|spent| (&spent.service, spent)))
}

fn added_up<'a, K: Ord>(spent: impl Iterator<Item = (K, &'a Spent)>) -> BTreeMap<K, Work> {
    let mut sums: BTreeMap<K, Work> = BTreeMap::new();
    for (key, spent) in spent {
        let work = sums.entry(key).or_default();
        work.calls += spent.calls;
        work.instructions += spent.instructions;
    }
    sums
}

/// Sorts by descending instructions.
fn by_instructions<K: Ord>(sums: BTreeMap<K, Work>) -> Vec<(K, Work)> {
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, work)| Reverse(work.instructions));
    rows
}

fn figure_columns() -> [Column; 4] {
    ["calls", "instructions", "per call", "share of kernel"].map(Column::numbers)
}

fn figures(work: Work, profile: &Profile) -> [Cell; 4] {
    let [calls, each] = work.cells();
    let share = Cell::Share(ratio(work.instructions, profile.total.kernel));
    [calls, Cell::Count(work.instructions), each, share]
}

/// Name and kind of a service.
fn names(service: &Service) -> [String; 2] {
    let [name, kind] = match service {
        Service::Call(u16::MAX) => ["call 65535 or above", "system call"],
        Service::Call(number) => {
            let name = syscall::name(*number).map_or_else(|| format!("call {number}"), str::to_owned);
            return [name, "system call".to_owned()];
        }
        Service::CompatibleCall(name) => return [name.clone(), "32-bit calls".to_owned()],
        Service::Exception(name) => return [name.clone(), "exception".to_owned()],
        Service::Interrupt(name) => return [name.clone(), "interrupt".to_owned()],
        Service::Softirq(name) => return [name.clone(), "softirq".to_owned()],
        Service::Function(name) => return [name.clone(), "function".to_owned()],
        Service::Start => ["start", "new task"],
        Service::Thread => ["work", "task of the kernel"],
        Service::Idle => ["idle", "idle"],
        Service::Passage => ["passage", "ways in and out"],
    };
    [name, kind].map(str::to_owned)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits than a double has")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
