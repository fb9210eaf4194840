//! Where the instructions of a simulated machine went.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_quantity::Unit;
use assay_report::{Block, Cell, Column, Table, scale};
use assay_sim::{Elapsed, Image, Latency, Profile, Service, Spent};
use assay_trace::syscall;

use crate::cli::Observe;

/// Returns the tables of a profile: modes, and, if they were observed, events, programs and services.
pub fn blocks(profile: &Profile, observed: Observe) -> Vec<Block> {
    let tables = match observed {
        Observe::Nothing => Vec::new(),
        Observe::Count => vec![modes(profile).with_note("Idle instructions count as those of the kernel.")],
        Observe::Services => {
            let modes = modes(profile).with_note(balance(profile));
            let latencies = profile.elapsed.map(|elapsed| latencies(profile, elapsed));
            let services = [services(profile), services_of_programs(profile)];
            [modes, events(profile), programs(profile)].into_iter().chain(latencies).chain(services).collect()
        }
    };
    tables.into_iter().map(Block::Table).collect()
}

fn spent(profile: &Profile) -> impl Iterator<Item = &Spent> {
    profile.images.iter().flat_map(|image| &image.services)
}

fn modes(profile: &Profile) -> Table {
    let idle = spent(profile).filter(|spent| spent.service == Service::Idle);
    let idle: u64 = idle.map(|spent| spent.instructions).sum();
    let total = profile.total.user + profile.total.kernel;
    let rows = [
        ("user", profile.total.user),
        ("kernel", profile.total.kernel - idle),
        ("idle", idle),
        ("all", total),
    ];
    let rows = rows.map(|(mode, instructions)| {
        [Cell::text(mode), Cell::Count(instructions), Cell::Share(ratio(instructions, total))]
    });
    let columns = [Column::words("mode"), Column::numbers("instructions"), Column::numbers("share")];
    Table::of("Where the instructions went", columns, rows)
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
    let calls = |is: fn(&Service) -> bool| -> u64 {
        spent(profile).filter(|spent| is(&spent.service)).map(|spent| spent.calls).sum()
    };
    let page_fault = |service: &Service| matches!(service, Service::Exception(name) if is_page_fault(name));
    let rows = [
        ("system calls", calls(|service| matches!(service, Service::Call(_) | Service::CompatibleCall(_)))),
        ("page faults", calls(page_fault)),
        (
            "other exceptions",
            calls(|service| matches!(service, Service::Exception(name) if !is_page_fault(name))),
        ),
        ("interrupts", calls(|service| matches!(service, Service::Interrupt(_)))),
        ("new processes and threads", calls(|service| *service == Service::Start)),
        ("switches to another task", profile.switches),
    ];
    let Some(elapsed) = profile.elapsed else {
        let rows = rows.map(|(event, count)| [Cell::text(event), Cell::Count(count)]);
        return Table::of("Events", [Column::words("event"), Column::numbers("count")], rows);
    };
    let rows = rows.map(|(event, count)| [Cell::text(event), Cell::Count(count), rate(count, elapsed)]);
    let columns = [Column::words("event"), Column::numbers("count"), Column::numbers("per second")];
    let [total, halted] = [elapsed.total_ns, elapsed.halted_ns]
        .map(|time_ns| scale::number(ratio(time_ns, 1), Unit::Nanoseconds));
    let time = format!(
        "{total} passed in the guest, {halted} of it while the processor was halted; an instruction takes 1 ns."
    );
    let unknown = format!("{} halts took a time that is unknown and not included.", elapsed.unknown_halts);
    let table = Table::of("Events", columns, rows).with_note(time);
    if elapsed.unknown_halts > 0 { table.with_note(unknown) } else { table }
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
    let mut programs: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for image in &profile.images {
        let (processes, user, kernel) = programs.entry(&image.name).or_default();
        *processes += 1;
        *user += image.user;
        *kernel += kernel_instructions(image);
    }
    let mut rows: Vec<_> = programs.into_iter().collect();
    rows.sort_by_key(|(_, (_, user, kernel))| Reverse(user + kernel));
    let total = profile.total.user + profile.total.kernel;
    let rows = rows.into_iter().map(|(name, (processes, user, kernel))| {
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
    Table::of("Instructions of each program", columns, rows)
        .with_note("A process that executes another program counts for both.")
}

fn services(profile: &Profile) -> Table {
    let services = by_instructions(spent(profile).map(|spent| (&spent.service, spent)));
    let rows = services.into_iter().map(|(service, calls, instructions)| {
        let [name, kind] = names(service);
        let [calls, instructions, each, share] = figures(calls, instructions, profile);
        [Cell::text(name), Cell::text(kind), calls, instructions, each, share]
    });
    let [calls, instructions, each, share] = figure_columns();
    let columns = [Column::words("service"), Column::words("kind"), calls, instructions, each, share];
    let meaning = "Instructions of a service do not include those of traps, softirqs and annotated functions \
                   during it; instructions per call are rounded down.";
    let table = Table::of("Services of the kernel", columns, rows).with_note(meaning);
    profile.gaps.iter().fold(table, |table, gap| table.with_note(gap.as_str()))
}

/// Smallest share of the kernel's instructions of a row that is not folded.
const FOLDED_BELOW: f64 = 0.01;

fn services_of_programs(profile: &Profile) -> Table {
    let named = profile
        .images
        .iter()
        .flat_map(|image| image.services.iter().map(|spent| ((image.name.as_str(), &spent.service), spent)));
    let rows = by_instructions(named);
    let small =
        |(_, _, instructions): &&(_, _, u64)| ratio(*instructions, profile.total.kernel) < FOLDED_BELOW;
    let folded = rows.iter().filter(small).count();
    let rows = rows.into_iter().map(|((program, service), calls, instructions)| {
        let [calls, instructions, each, share] = figures(calls, instructions, profile);
        let [name, _] = names(service);
        [Cell::text(program), Cell::text(name), calls, instructions, each, share]
    });
    let [calls, instructions, each, share] = figure_columns();
    let columns = [Column::words("program"), Column::words("service"), calls, instructions, each, share];
    Table::of("Services of each program", columns, rows)
        .with_last_folded(folded, "Services below 1 % of the kernel, of these programs")
}

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

/// Adds up calls and instructions, and sorts by descending instructions.
fn by_instructions<'a, K: Ord>(spent: impl Iterator<Item = (K, &'a Spent)>) -> Vec<(K, u64, u64)> {
    let mut sums: BTreeMap<K, (u64, u64)> = BTreeMap::new();
    for (key, spent) in spent {
        let (calls, instructions) = sums.entry(key).or_default();
        *calls += spent.calls;
        *instructions += spent.instructions;
    }
    let mut rows: Vec<_> =
        sums.into_iter().map(|(key, (calls, instructions))| (key, calls, instructions)).collect();
    rows.sort_by_key(|(_, _, instructions)| Reverse(*instructions));
    rows
}

fn figure_columns() -> [Column; 4] {
    ["calls", "instructions", "per call", "share of kernel"].map(Column::numbers)
}

fn figures(calls: u64, instructions: u64, profile: &Profile) -> [Cell; 4] {
    let [count, each] = match instructions.checked_div(calls) {
        Some(each) => [Cell::Count(calls), Cell::Count(each)],
        None => [(); 2].map(|()| Cell::text("")),
    };
    [count, Cell::Count(instructions), each, Cell::Share(ratio(instructions, profile.total.kernel))]
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

fn kernel_instructions(image: &Image) -> u64 {
    image.services.iter().map(|spent| spent.instructions).sum()
}

#[expect(clippy::cast_precision_loss, reason = "instructions and nanoseconds of a run stay below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Report, Style, Symbols};
    use assay_sim::{Attribution, Counts, Event, Kind, Moment, Plan, Task};
    use expect_test::expect;

    use super::*;

    fn profile(timed: bool) -> Profile {
        let mut plan = Plan::empty();
        plan.timed = timed;
        plan.services = vec![
            Service::Exception("page_fault".to_owned()),
            Service::Exception("page_fault/anonymous".to_owned()),
            Service::Softirq("softirq/timer".to_owned()),
            Service::Function("vfs_read".to_owned()),
        ];
        plan.gaps = vec!["Something cannot be observed.".to_owned()];
        let mut attribution = Attribution::new(&plan);
        let mut name = [0; 16];
        name[..3].copy_from_slice(b"cat");
        let cat = Task { address: 1, process: 7, name, kind: Kind::Program };
        let idle = Task { address: 2, process: 0, name: [b'i'; 16], kind: Kind::Kernel };
        let mut counts = Counts::default();
        let mut profile = None;
        for (user, kernel, event) in [
            (0, 0, Event::Switch { state: 0, to: cat }),
            (0, 0, Event::ReturnToProgram),
            (0, 0, Event::Begin),
            (900, 0, Event::Call(0)),
            (0, 100, Event::Function { service: 3, frame: 64 }),
            (0, 30, Event::Trap { service: 0, frame: 8 }),
            (0, 500, Event::Kind { of: 0, is: 1 }),
            (0, 1500, Event::Function { service: 2, frame: 4 }),
            (0, 70, Event::Return { frame: 4 }),
            (0, 0, Event::ReturnToKernel { frame: 8 }),
            (0, 40, Event::Return { frame: 64 }),
            (0, 150, Event::Switch { state: 0, to: idle }),
            (0, 20, Event::Halt),
            (0, 5, Event::Clock { time_ns: 1_000_000 }),
            (0, 15, Event::Wake { task: 1, state: 1, of: 1 }),
            (0, 10, Event::Switch { state: 0, to: cat }),
            (0, 1, Event::ReturnToProgram),
            (0, 9, Event::ReturnToProgram),
            (0, 0, Event::End),
        ] {
            counts.user += user;
            counts.kernel += kernel;
            profile = attribution.take(Moment { counts, ran_ns: counts.user + counts.kernel }, event);
        }
        profile.unwrap()
    }

    #[test]
    fn with_a_clock_of_instructions_there_are_rates_and_latencies() {
        let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
        let profile = profile(true);
        let tables = [events(&profile), latencies(&profile, profile.elapsed.unwrap())];
        let report = Report { title: "cat".to_owned(), blocks: tables.map(Block::Table).into() };
        expect![[r#"
            cat
            ===

            Events
             event                      count  per second
            ----------------------------------------------
             system calls                   1    1.00 k/s
             page faults                    1    1.00 k/s
             other exceptions               0    0    /s
             interrupts                     0    0    /s
             new processes and threads      0    0    /s
             switches to another task       2    2.00 k/s
             1.00 ms passed in the guest, 997 us of it while the processor was halted; an instruction takes 1 ns.

            Latency of services
             service  calls per second  latency  running  blocked  descheduled
            -------------------------------------------------------------------
             read             1.00 k/s   999 us  2.39 us   997 us      10.0 ns
             Services that took below 1 % of the time, all calls together (values: --format html, json or csv): vfs_read, page_fault/anonymous, softirq/timer
             Means of the calls that began and ended between the marks, in the guest's time. Running includes what interrupted the call, which also has a row of its own; blocked: until the task was woken up; descheduled: while it could run and another task did.
        "#]].assert_eq(&assay_report::text::report(&report, &style));
    }

    #[test]
    fn the_tables_show_modes_programs_and_services() {
        let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
        let shown = |observed| {
            let report = Report { title: "cat".to_owned(), blocks: blocks(&profile(false), observed) };
            assay_report::text::report(&report, &style)
        };
        expect![[r#"
            cat
            ===

            Where the instructions went
             mode    instructions     share
            --------------------------------
             user             900   26.9  %
             kernel         2,400   71.6  %
             idle              50    1.49 %
             all            3,350  100    %
             1 returns had no entry and 0 entries no return: about as many calls are booked to the wrong service.

            Events
             event                      count
            ----------------------------------
             system calls                   1
             page faults                    1
             other exceptions               0
             interrupts                     0
             new processes and threads      0
             switches to another task       2

            Instructions of each program
             program           processes  user  kernel    share
            ----------------------------------------------------
             cat                       1   900   2,400  98.5  %
             iiiiiiiiiiiiiiii          1     0      50   1.49 %
             A process that executes another program counts for both.

            Services of the kernel
             service               kind             calls  instructions  per call  share of kernel
            ---------------------------------------------------------------------------------------
             page_fault/anonymous  exception            1         2,000     2,000         81.6   %
             read                  system call          1           251       251         10.2   %
             softirq/timer         softirq              1            70        70          2.86  %
             vfs_read              function             1            70        70          2.86  %
             idle                  idle                              50                    2.04  %
             passage               ways in and out                    9                    0.367 %
             Instructions of a service do not include those of traps, softirqs and annotated functions during it; instructions per call are rounded down.
             Something cannot be observed.

            Services of each program
             program           service               calls  instructions  per call  share of kernel
            ----------------------------------------------------------------------------------------
             cat               page_fault/anonymous      1         2,000     2,000          81.6  %
             cat               read                      1           251       251          10.2  %
             cat               softirq/timer             1            70        70           2.86 %
             cat               vfs_read                  1            70        70           2.86 %
             iiiiiiiiiiiiiiii  idle                                   50                     2.04 %
             Services below 1 % of the kernel, of these programs (values: --format html, json or csv): cat
        "#]].assert_eq(&shown(Observe::Services));
        let mut incomplete = profile(false);
        incomplete.unreadable = 3;
        assert!(balance(&incomplete).contains(" 3 events could not be read"));
        assert_eq!(shown(Observe::Nothing).trim().lines().count(), 2);
        assert!(shown(Observe::Count).contains("Idle instructions count as those of the kernel."));
        assert!(!shown(Observe::Count).contains("cat  "));
    }
}
