//! Reports on a run and on two of them, as text.

use assay_quantity::Pair;
use assay_report::{Colour, Report, Style, Symbols};
use assay_sim::{Attribution, Event, Kind, Moment, Plan, Routines, Setup, Task};
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
    let symbols = [("large", 1 << 63), ("medium", 1 << 63 | 64), ("small", 1 << 63 | 128)];
    plan.routines = Routines::new(&symbols.map(|(name, address)| (name.to_owned(), vec![address])).into());
    let mut routines = vec![0; plan.routines.len()];
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
        // The instructions before an event belong to a routine by their number.
        routines[match kernel {
            1000.. => 1,
            10.. => 2,
            _ => 3,
        }] += kernel;
        attribution.take_routines(&routines);
        profile = attribution.take(Moment::of(counts), event);
    }
    profile.unwrap()
}

fn run(timed: bool, observed: Observed, status: u8) -> Run {
    let setup = Setup {
        command: Some("cat file".to_owned()),
        copies: vec!["file".to_owned()],
        kernel: "6.12".to_owned(),
        root: None,
        memory_mib: 512,
        deterministic: timed,
        observed,
        functions: Vec::new(),
    };
    Run { setup, status, profile: profile(timed) }
}

fn text(report: &Report) -> String {
    let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
    assay_report::text::report(report, &style)
}

#[test]
fn with_a_clock_of_instructions_there_are_rates_and_latencies() {
    let profile = profile(true);
    let tables = [events(&profile), latencies(&profile, profile.elapsed.unwrap())].map(Block::Table);
    let over_time = over_time(&profile).map(Block::Figure);
    let blocks = over_time.into_iter().chain(tables).collect();
    let report = Report { title: "cat".to_owned(), blocks };
    expect![[r#"
        cat
        ===

        What the processor did
         100 % ..............................................................
               ..............................................................
               ..............................................................
               ..............................................................
               ..............................................................
               ..............................................................
               ..............................................................
               ..............................................................
               =.............................................................
           0 % #.............................................................
               0 ns                                                   1.00 ms
         # user, = kernel, . idle or halted, over the guest's time

        Events
         event                      count  per second
        ----------------------------------------------
         system calls                   1    1.00 k/s
         page faults                    1    1.00 k/s
         other exceptions               0    0    /s
         interrupts                     0    0    /s
         new processes and threads      0    0    /s
         switches to another task       2    2.00 k/s
         1.00 ms passed in the guest, 997 us of it while the processor was halted. An instruction takes 1 ns.

        Latency of services
         service  calls per second  latency  running  blocked  descheduled
        -------------------------------------------------------------------
         read             1.00 k/s   999 us  2.39 us   997 us      10.0 ns
         Services that took below 1 % of the time, all calls together (values: --format html, json or csv): vfs_read, page_fault/anonymous, softirq/timer
         Means of the calls that began and ended between the marks, in the guest's time. Running includes what interrupted the call, which also has a row of its own; blocked: until the task was woken up; descheduled: while it could run and another task did.
    "#]].assert_eq(&text(&report));
}

#[test]
fn the_tables_show_modes_programs_and_services() {
    expect![[r#"
        cat file on Linux 6.12
        ======================

        Where the instructions went
         mode    instructions     share
        --------------------------------
         user             900   26.9  %
         kernel         2,400   71.6  %
         idle              50    1.49 %
         all            3,350  100    %
         The command ended with status 3.
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

        Routines of the kernel
         routine  instructions  share of kernel
        ----------------------------------------
         large           1,500           61.2 %
         medium            935           38.2 %
         Routines below 1 % of the kernel, together 0.612 % (values: --format html, json or csv): small
         Instructions of a routine do not include those of the routines that it calls.
    "#]].assert_eq(&text(&report(&run(false, Observed::Services, 3))));
}

#[test]
fn what_is_incomplete_or_only_counted_is_noted() {
    let mut incomplete = profile(false);
    incomplete.unreadable = 3;
    assert!(balance(&incomplete).contains(" 3 events could not be read"));
    let counted = text(&report(&run(false, Observed::Count, 0)));
    assert!(counted.contains("Idle instructions count as those of the kernel."), "{counted}");
    assert!(!counted.contains("cat  ") && !counted.contains("status"), "{counted}");
}

/// A run that differs from others in everything that a comparison shows.
fn another_run() -> Run {
    let mut run = run(false, Observed::Services, 1);
    run.setup.kernel = "6.1".to_owned();
    let cat = run.profile.images.iter_mut().find(|image| image.name == "cat").unwrap();
    cat.user += 8;
    let read = cat.services.iter_mut().find(|spent| spent.service == Service::Call(0)).unwrap();
    (read.calls, read.instructions) = (3, 651);
    cat.services.retain(|spent| spent.service != Service::Softirq("softirq/timer".to_owned()));
    run.profile.total.user += 8;
    run.profile.total.kernel += 400 - 70;
    run.profile.routines = [("large", 1520), ("small", 16), ("medium", 1244)]
        .map(|(name, instructions)| (name.to_owned(), instructions))
        .into();
    run.profile.gaps = vec!["Nothing else can be observed.".to_owned()];
    run.setup.functions.push("vfs_read".to_owned());
    run
}

#[test]
fn a_comparison_shows_what_differs_and_folds_what_does_not() {
    let (a, b) = (run(true, Observed::Services, 0), another_run());
    expect![[r#"
        B compared with A
        =================

        What is compared
                              A           B
        ---------------------------------------------
         run                  a.sim.json  b.sim.json
         command              cat file    cat file
         status               0           1
         copied               file        file
         kernel               6.12        6.1
         memory               512 MiB     512 MiB
         deterministic        yes         no
         annotated functions              vfs_read
         Small differences can be chance, as not both runs are deterministic.

        Where the instructions went
         mode        A      B  B - A    B/A
        ------------------------------------
         user      900    908     +8  101 %
         kernel  2,400  2,730   +330  114 %
         idle       50     50      0  100 %
         all     3,350  3,688   +338  110 %
         1 returns had no entry and 0 entries no return: about as many calls are booked to the wrong service.

        Events
         event                      A  B  B - A
        ----------------------------------------
         system calls               1  3     +2
         page faults                1  1      0
         other exceptions           0  0      0
         interrupts                 0  0      0
         new processes and threads  0  0      0
         switches to another task   2  2      0

        Instructions of each program
         program  processes A  processes B  user A  user B  user B - A  kernel A  kernel B  kernel B - A
        -------------------------------------------------------------------------------------------------
         cat                1            1     900     908          +8     2,400     2,730          +330
         Programs with together less than 1 % of all differences of instructions and of calls (values: --format html, json or csv): iiiiiiiiiiiiiiii
         A process that executes another program counts for both.

        Services of the kernel
         service        calls A  calls B  per call A  per call B    A    B  B - A
        --------------------------------------------------------------------------
         read                 1        3         251         217  251  651   +400
         softirq/timer        1                   70               70    0    -70
         Services with together less than 1 % of all differences of instructions and of calls (values: --format html, json or csv): page_fault/anonymous, vfs_read, idle, passage
         Instructions of a service do not include those of traps, softirqs and annotated functions during it; instructions per call are rounded down.
         A: Something cannot be observed.
         B: Nothing else can be observed.

        Routines of the kernel
         routine      A      B  B - A
        ------------------------------
         medium     935  1,244   +309
         large    1,500  1,520    +20
         Routines with less than 1 % of all differences each, together 0.303 % (values: --format html, json or csv): small
         Instructions of a routine do not include those of the routines that it calls.
    "#]].assert_eq(&compared(a, b));
}

#[test]
fn a_comparison_of_equal_runs_has_no_rows_and_one_of_counts_no_services() {
    let of = |timed| run(timed, Observed::Services, 0);
    let same = compared(of(true), of(true));
    assert!(same.contains("yes         yes") && !same.contains("chance"), "{same}");
    assert!(
        same.contains("Services without a difference (") && same.contains("1,000,035  1,000,035      0"),
        "{same}"
    );
    for (a, b) in [(true, false), (false, true)] {
        assert!(compared(of(a), of(b)).contains("chance"));
    }
    let counted = compared(run(false, Observed::Count, 0), run(true, Observed::Count, 0));
    assert!(counted.contains("Idle instructions count") && !counted.contains("read"), "{counted}");
}

#[test]
fn a_difference_of_calls_or_between_modes_is_not_folded() {
    let a = run(true, Observed::Services, 0);
    let mut b = a.clone();
    let [cat, idle] = &mut b.profile.images[..] else { panic!("{b:?}") };
    (cat.user, idle.user) = (cat.user - 100, idle.user + 100);
    cat.services.iter_mut().for_each(|spent| spent.calls += u64::from(spent.service == Service::Call(0)));
    let compared = compared(a, b);
    for row in ["900     800        -100", "read           1        2 "] {
        assert!(compared.contains(row), "{compared}");
    }
}

fn compared(a: Run, b: Run) -> String {
    let names = Pair { a: "a.sim.json", b: "b.sim.json" }.map(str::to_owned);
    text(&difference::report(&Pair { a, b }, &names))
}
