//! Where the instructions of a simulated machine went.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_report::{Block, Cell, Column, Table};
use assay_sim::{Image, Profile, Service, Spent};
use assay_trace::syscall;

use crate::cli::Observe;

/// Returns the tables of a profile: modes, and, if they were observed, programs and services.
pub fn blocks(profile: &Profile, observed: Observe) -> Vec<Block> {
    let tables = match observed {
        Observe::Nothing => Vec::new(),
        Observe::Count => vec![modes(profile).with_note("Idle instructions count as those of the kernel.")],
        Observe::Services => {
            let modes = modes(profile).with_note(balance(profile));
            vec![modes, programs(profile), services(profile), services_of_programs(profile)]
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
        [Cell::text(mode), Cell::Count(instructions), Cell::Share(share(instructions, total))]
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
    format!("{} switches to another task. {balance}{unreadable}", profile.switches)
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
            Cell::Share(share(user + kernel, total)),
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
        |(_, _, instructions): &&(_, _, u64)| share(*instructions, profile.total.kernel) < FOLDED_BELOW;
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
    [count, Cell::Count(instructions), each, Cell::Share(share(instructions, profile.total.kernel))]
}

/// Name and kind of a service.
fn names(service: &Service) -> [String; 2] {
    let [name, kind] = match service {
        Service::Call(u16::MAX) => ["call 65535 or above", "system call"],
        Service::Call(number) => {
            let name = syscall::name(*number).map_or_else(|| format!("call {number}"), str::to_owned);
            return [name, "system call".to_owned()];
        }
        Service::Trap(name) => return [name.clone(), "trap".to_owned()],
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

#[expect(clippy::cast_precision_loss, reason = "instructions of a run stay below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Report, Style, Symbols};
    use assay_sim::{Attribution, Counts, Event, Kind, Plan, Task};
    use expect_test::expect;

    use super::*;

    fn profile() -> Profile {
        let mut plan = Plan::empty();
        plan.services = vec![
            Service::Trap("page_fault".to_owned()),
            Service::Trap("page_fault/anonymous".to_owned()),
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
            (0, 0, Event::Switch(cat)),
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
            (0, 150, Event::Switch(idle)),
            (0, 50, Event::Switch(cat)),
            (0, 1, Event::ReturnToProgram),
            (0, 9, Event::ReturnToProgram),
            (0, 0, Event::End),
        ] {
            counts.user += user;
            counts.kernel += kernel;
            profile = attribution.take(counts, event);
        }
        profile.unwrap()
    }

    #[test]
    fn the_tables_show_modes_programs_and_services() {
        let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
        let shown = |observed| {
            let report = Report { title: "cat".to_owned(), blocks: blocks(&profile(), observed) };
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
             2 switches to another task. 1 returns had no entry and 0 entries no return: about as many calls are booked to the wrong service.

            Instructions of each program
             program           processes  user  kernel    share
            ----------------------------------------------------
             cat                       1   900   2,400  98.5  %
             iiiiiiiiiiiiiiii          1     0      50   1.49 %
             A process that executes another program counts for both.

            Services of the kernel
             service               kind             calls  instructions  per call  share of kernel
            ---------------------------------------------------------------------------------------
             page_fault/anonymous  trap                 1         2,000     2,000         81.6   %
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
        let mut incomplete = profile();
        incomplete.unreadable = 3;
        assert!(balance(&incomplete).contains(" 3 events could not be read"));
        assert_eq!(shown(Observe::Nothing).trim().lines().count(), 2);
        assert!(shown(Observe::Count).contains("Idle instructions count as those of the kernel."));
        assert!(!shown(Observe::Count).contains("cat  "));
    }
}
