//! Tests of the attribution with lists of events.

use proptest::prelude::*;

use super::*;
use crate::annotation::Point;
use crate::profile::Interval;

fn name(text: &str) -> Name {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// A task whose address is that of others with the same last two digits.
fn a_task(number: u32, text: &str, kind: Kind) -> Task {
    let address = 0xffff_8880_0000_0000 + u64::from(number % 100) * 64;
    Task { address, process: number, name: name(text), kind }
}

fn task(number: u32, text: &str, kind: Kind) -> Event {
    Event::Switch { state: 0, to: a_task(number, text, kind) }
}

fn new(number: u32, text: &str, kind: Kind) -> Event {
    Event::New(a_task(number, text, kind))
}

/// A plan with these services.
fn plan() -> Plan {
    let mut plan = Plan::empty();
    plan.services = vec![
        Service::Exception("page_fault".into()),
        Service::Interrupt("timer".into()),
        Service::Exception("zero".into()),
        Service::Exception("copy".into()),
        Service::Function("read_a".into()),
        Service::Function("read_b".into()),
    ];
    plan
}

/// A moment without repetitions.
fn at(counts: Counts) -> Moment {
    Moment::of(counts)
}

/// Takes events, each after this number of instructions of the program and of the kernel, and returns
/// lines of an image's process and name, its own instructions, and its services.
fn attributed(events: &[(u64, u64, Event)]) -> (Vec<String>, Profile) {
    attributed_with(false, events)
}

/// The same for a machine whose clock counts instructions or not.
fn attributed_with(timed: bool, events: &[(u64, u64, Event)]) -> (Vec<String>, Profile) {
    let mut plan = plan();
    plan.timed = timed;
    let mut attribution = Attribution::new(&plan);
    let mut counts = Counts::default();
    let mut profile = None;
    for (user, kernel, event) in events {
        counts.user += user;
        counts.kernel += kernel;
        profile = attribution.take(at(counts), *event);
    }
    let profile = profile.unwrap();
    let image = |image: &Image| {
        let services = image.services.iter().map(|spent| {
            let name = match &spent.service {
                Service::Exception(name) | Service::Interrupt(name) | Service::Function(name) => name.clone(),
                other => format!("{other:?}").to_lowercase(),
            };
            format!(" {name} {}x{}", spent.calls, spent.instructions)
        });
        format!("{} {} {}:{}", image.process, image.name, image.user, services.collect::<String>())
    };
    (profile.images.iter().map(image).collect(), profile)
}

const FAULT: Event = Event::Trap { service: 0, frame: 0x1000 };
const TIMER: Event = Event::Trap { service: 1, frame: 0x900 };

#[test]
fn a_call_a_trap_in_it_and_a_trap_in_that_have_accounts_of_their_own() {
    let (images, profile) = attributed(&[
        (0, 50, task(7, "cat", Kind::Program)),
        (0, 9, Event::ReturnToProgram),
        (5, 0, Event::Begin),
        (100, 0, Event::Call(0)),
        (0, 10, FAULT),
        (0, 20, TIMER),
        (0, 40, Event::ReturnToKernel { frame: 0x900 }),
        (0, 80, Event::ReturnToKernel { frame: 0x1000 }),
        (0, 160, Event::ReturnToProgram),
        (3, 0, FAULT),
        (0, 7, Event::ReturnToProgram),
        (2, 0, Event::End),
    ]);
    assert_eq!(images, ["7 cat 105: call(0) 1x170 page_fault 2x107 timer 1x40"]);
    assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
}

#[test]
fn a_call_that_blocks_goes_on_where_it_was() {
    let (images, profile) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (1, 0, Event::Call(0)),
        (0, 10, task(0, "swapper/0", Kind::Kernel)),
        (0, 1000, TIMER),
        (0, 30, task(9, "kworker", Kind::Kernel)),
        (0, 200, task(7, "cat", Kind::Program)),
        (0, 5, Event::ReturnToProgram),
        (1, 0, task(0, "swapper/0", Kind::Kernel)),
        (0, 3, Event::ReturnToKernel { frame: 0x900 }),
        (0, 4, Event::End),
    ]);
    let expected =
        ["7 cat 2: call(0) 1x15", "0 swapper/0 0: idle 0x1004 timer 1x33", "9 kworker 0: thread 0x200"];
    assert_eq!(images, expected);
    assert_eq!(profile.switches, 4);
}

#[test]
fn a_new_process_starts_and_becomes_another_program() {
    let (images, profile) = attributed(&[
        (0, 0, task(7, "sh", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (1, 0, Event::Call(56)),
        (0, 400, new(8, "sh", Kind::Program)),
        (0, 100, task(8, "sh", Kind::Program)),
        (0, 30, Event::ReturnToProgram),
        (2, 0, Event::Call(59)),
        (0, 100, Event::Rename { task: 0xffff_8880_0000_0000 + 8 * 64, name: name("ls") }),
        // The call belongs to the program that made it.
        (0, 11, Event::ReturnToProgram),
        (4, 0, Event::Call(231)),
        (0, 70, task(7, "sh", Kind::Program)),
        (0, 6, Event::ReturnToProgram),
        // Another process with the same address and number.
        (0, 0, Event::Call(56)),
        (0, 500, new(8, "sh", Kind::Program)),
        (0, 100, task(8, "sh", Kind::Program)),
        (0, 31, Event::End),
    ]);
    let expected = ["7 sh 1: call(56) 2x1106", "8 sh 2: call(59) 1x111 start 2x61", "8 ls 4: call(231) 1x70"];
    assert_eq!(images, expected);
    assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
}

#[test]
fn a_process_at_the_address_of_an_ended_one_is_another_also_if_it_was_not_seen_to_be_made() {
    let (images, _) = attributed(&[
        (0, 0, task(7, "sh", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (2, 0, Event::Call(231)),
        (0, 10, task(107, "ls", Kind::Program)),
        (0, 31, Event::ReturnToProgram),
        (5, 0, Event::End),
    ]);
    assert_eq!(images, ["7 sh 2: call(231) 1x10", "107 ls 5: start 1x31"]);
}

#[test]
fn a_program_that_the_kernel_starts_is_a_task_of_the_kernel_until_it_runs() {
    let (images, profile) = attributed(&[
        (0, 0, Event::Begin),
        (0, 0, new(9, "kworker", Kind::Kernel)),
        (0, 0, task(9, "kworker", Kind::Kernel)),
        (0, 50, task(0, "swapper/0", Kind::Kernel)),
        // It has the memory of the program, and waits for its file.
        (0, 100, task(9, "modprobe", Kind::Program)),
        (0, 20, Event::ReturnToProgram),
        (3, 0, Event::Call(1)),
        (0, 7, Event::ReturnToProgram),
        (0, 4, Event::End),
    ]);
    let expected = [
        "9 kworker 0: thread 0x50",
        "0 swapper/0 0: idle 0x100",
        "9 modprobe 3: thread 0x20 call(1) 1x7 passage 0x4",
    ];
    assert_eq!(images, expected);
    assert_eq!(profile.returns_without_entry, 0);
}

const FUNCTION: Event = Event::Function { service: 4, frame: 0x1100 };

#[test]
fn a_function_has_an_account_of_its_own_from_its_call_to_its_return() {
    let (images, profile) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (1, 0, Event::Call(0)),
        (0, 10, FUNCTION),
        // Functions that it calls return.
        (0, 1, Event::Return { frame: 0x10f0 }),
        (0, 2, FAULT),
        (0, 100, Event::Return { frame: 0xf00 }),
        (0, 100, Event::ReturnToKernel { frame: 0x1000 }),
        // It waits, and another task is in the same function.
        (0, 4, task(8, "dog", Kind::Program)),
        (0, 50, Event::Function { service: 4, frame: 0x2100 }),
        (0, 30, Event::Return { frame: 0x2100 }),
        (0, 5, task(7, "cat", Kind::Program)),
        (0, 8, Event::Return { frame: 0x1100 }),
        (0, 20, Event::ReturnToProgram),
        (0, 0, Event::End),
    ]);
    assert_eq!(
        images,
        ["7 cat 1: page_fault 1x200 call(0) 1x30 read_a 1x15", "8 dog 0: start 1x55 read_a 1x30"]
    );
    assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
}

#[test]
fn a_function_that_jumps_to_another_one_ends_with_it_and_one_that_exits_with_its_call() {
    let (images, profile) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (1, 0, Event::Call(0)),
        (0, 10, FUNCTION),
        (0, 1, Event::Function { service: 5, frame: 0x1100 }),
        (0, 2, Event::Return { frame: 0x1100 }),
        (0, 20, Event::ReturnToProgram),
        (1, 0, Event::Call(231)),
        (0, 5, FUNCTION),
        (0, 6, new(107, "dog", Kind::Program)),
        (0, 0, Event::End),
    ]);
    assert_eq!(images, ["7 cat 2: call(0) 1x30 read_a 2x7 call(231) 1x5 read_b 1x2", "107 dog 0: start 1x0"]);
    assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
}

#[test]
fn a_page_fault_is_booked_as_the_kind_that_is_found_last() {
    let [zero, copy] = [2, 3].map(|is| Event::Kind { of: 0, is });
    let (images, _) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (0, 0, FAULT),
        (0, 1, zero),
        (0, 2, TIMER),
        (0, 50, Event::ReturnToKernel { frame: 0x900 }),
        (0, 4, FUNCTION),
        (0, 8, copy),
        (0, 16, Event::Return { frame: 0x1100 }),
        (0, 32, Event::ReturnToProgram),
        (0, 0, FAULT),
        (0, 300, Event::ReturnToProgram),
        // No page fault: the kernel needs memory of the program for a call.
        (0, 0, Event::Call(0)),
        (0, 20, zero),
        (0, 5, Event::ReturnToProgram),
        (0, 0, Event::End),
    ]);
    assert_eq!(images, ["7 cat 0: page_fault 1x300 timer 1x50 copy 1x39 call(0) 1x25 read_a 1x24"]);
}

#[test]
fn what_does_not_balance_is_counted() {
    let (_, profile) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::ReturnToProgram),
        (0, 0, Event::Begin),
        (1, 3, Event::ReturnToProgram),
        (1, 0, Event::Call(0)),
        (0, 1, FAULT),
        (0, 1, TIMER),
        // The kernel synchronises the processor, which ends nothing.
        (0, 1, Event::ReturnToKernel { frame: 0x700 }),
        (0, 1, Event::ReturnToProgram),
        (0, 0, Event::End),
    ]);
    assert_eq!((profile.returns_without_entry, profile.entries_without_return), (1, 2));
}

/// Takes events at these times of a clock that runs with the processor, and returns the profile and the
/// latency of each service: how many calls, and how long they were running, blocked and descheduled.
fn timed(events: &[(u64, Event)]) -> (Profile, HashMap<Service, [u64; 4]>) {
    let mut plan = plan();
    plan.timed = true;
    let mut attribution = Attribution::new(&plan);
    let mut profile = None;
    for (ran_ns, event) in events {
        // The last repetition of a string instruction takes time and is no instruction.
        let counts = Counts { user: 0, kernel: ran_ns - ran_ns / 1000 };
        profile = attribution.take(Moment { counts, ran_ns: *ran_ns, ran_user_ns: 0 }, *event);
    }
    let profile = profile.unwrap();
    let mut latencies: HashMap<Service, Latency> = HashMap::new();
    for spent in profile.images.iter().flat_map(|image| &image.services) {
        *latencies.entry(spent.service.clone()).or_default() += spent.latency.unwrap();
    }
    let parts =
        |latency: Latency| [latency.calls, latency.running_ns, latency.blocked_ns, latency.descheduled_ns];
    (profile, latencies.into_iter().map(|(service, latency)| (service, parts(latency))).collect())
}

/// All intervals of a profile together.
fn over_time(profile: &Profile) -> Interval {
    let mut sum = Interval::default();
    profile.timeline.as_ref().unwrap().intervals.iter().for_each(|interval| sum += *interval);
    sum
}

/// The kernel wakes a task up if its state is one of these.
fn wake(number: u32, state: u32, of: u32) -> Event {
    Event::Wake { task: a_task(number, "", Kind::Program).address, state, of }
}

/// The current task has ended, and this one runs.
fn dead(number: u32, text: &str) -> Event {
    Event::Switch { state: 0x80, to: a_task(number, text, Kind::Program) }
}

#[test]
fn a_latency_is_running_blocked_until_woken_up_and_descheduled_from_then_on() {
    let idle = || task(0, "swapper/0", Kind::Kernel);
    let (profile, latencies) = timed(&[
        (100, task(8, "other", Kind::Program)),
        (105, Event::ReturnToProgram),
        (110, task(7, "cat", Kind::Program)),
        (120, Event::ReturnToProgram),
        (1000, Event::Begin),
        (1100, Event::Call(0)),
        // Nothing to do until an interrupt, which reads the clock after 5 instructions: 5000 ns are halted.
        (1200, idle()),
        (1230, Event::Halt),
        (1231, TIMER),
        (1233, wake(7, 1, 3)),
        (1236, Event::Clock { time_ns: 6236 }),
        (1255, wake(7, 1, 3)),
        (1260, Event::ReturnToKernel { frame: 0x900 }),
        // Another task comes first, and has only to make room.
        (1300, task(8, "other", Kind::Program)),
        (1310, Event::Call(1)),
        (1320, task(7, "cat", Kind::Program)),
        (1330, wake(8, 2, 1)),
        (1370, Event::ReturnToProgram),
        (1380, FAULT),
        (1400, task(8, "other", Kind::Program)),
        (1440, Event::ReturnToProgram),
        (1450, Event::End),
    ]);
    assert_eq!(profile.elapsed, Some(Elapsed { total_ns: 5450, halted_ns: 5000, unknown_halts: 0 }));
    assert_eq!(over_time(&profile), Interval { user_ns: 0, kernel_ns: 379, idle_ns: 5071 });
    assert_eq!(latencies[&Service::Call(0)], [1, 150, 5033, 87]);
    assert_eq!(latencies[&Service::Interrupt("timer".into())], [1, 29, 0, 0]);
    assert_eq!(latencies[&Service::Call(1)], [1, 50, 0, 80]);
    // It has not ended.
    assert_eq!(latencies[&Service::Exception("page_fault".into())], [0; 4]);
}

#[test]
fn what_the_processor_does_is_in_the_order_of_time_though_a_halt_is_known_only_later() {
    let (profile, _) = timed(&[
        (100, task(0, "swapper/0", Kind::Kernel)),
        (200, Event::Begin),
        (1224, Event::Halt),
        (1230, TIMER),
        // 4096 ns are halted.
        (1250, Event::Clock { time_ns: 5346 }),
        (1260, Event::ReturnToKernel { frame: 0x900 }),
        // The clock is not read until after another halt.
        (1270, Event::Halt),
        (1280, TIMER),
        (1290, Event::ReturnToKernel { frame: 0x900 }),
        (1300, Event::Halt),
        (1310, Event::Clock { time_ns: 7454 }),
        (1320, Event::End),
    ]);
    let idle = |idle_ns, kernel_ns| Interval { user_ns: 0, kernel_ns, idle_ns };
    let expected = [[idle(1024, 0); 5].as_slice(), &[idle(984, 40), idle(1024, 0), idle(96, 0)]].concat();
    assert_eq!(profile.timeline.unwrap().intervals, expected);
}

#[test]
fn an_instruction_that_is_taken_back_takes_no_time() {
    let mut plan = plan();
    plan.timed = true;
    let mut attribution = Attribution::new(&plan);
    let mut take = |ran_user_ns, ran_kernel_ns: u64, event| {
        let counts = Counts { user: ran_user_ns, kernel: ran_kernel_ns.max(50) };
        attribution.take(Moment { counts, ran_ns: ran_user_ns + ran_kernel_ns, ran_user_ns }, event)
    };
    take(0, 0, Event::Begin);
    take(50, 50, Event::ReturnToProgram);
    take(50, 49, FAULT);
    take(51, 49, Event::ReturnToProgram);
    let profile = take(60, 60, Event::End).unwrap();
    assert_eq!(over_time(&profile), Interval { user_ns: 59, kernel_ns: 61, idle_ns: 0 });
    assert_eq!(profile.elapsed.unwrap().total_ns, 120);
}

#[test]
fn a_latency_ends_with_its_task_and_has_a_beginning_after_the_mark() {
    let (_, latencies) = timed(&[
        (10, task(7, "sh", Kind::Program)),
        (20, Event::Call(2)),
        (30, Event::Begin),
        (40, new(8, "sh", Kind::Program)),
        (60, task(8, "sh", Kind::Program)),
        (70, Event::ReturnToProgram),
        (90, Event::Call(60)),
        (92, FAULT),
        (100, dead(7, "sh")),
        (130, Event::ReturnToProgram),
        // It ends before its program begins.
        (131, new(9, "sh", Kind::Program)),
        (133, task(9, "sh", Kind::Program)),
        (139, dead(7, "sh")),
        // Its memory is another one's.
        (140, new(109, "sh", Kind::Program)),
        (150, Event::End),
    ]);
    assert_eq!(latencies[&Service::Start], [1, 10, 0, 20]);
    assert_eq!(latencies[&Service::Call(60)], [1, 10, 0, 0]);
    assert_eq!(latencies[&Service::Exception("page_fault".into())], [1, 8, 0, 0]);
    assert_eq!(latencies[&Service::Call(2)], [0; 4]);
}

#[test]
fn what_is_not_known_of_the_time_has_no_latency_and_is_counted() {
    let (profile, latencies) = timed(&[
        (10, task(7, "sh", Kind::Program)),
        (15, Event::ReturnToProgram),
        (20, Event::Begin),
        (30, Event::Call(0)),
        (40, FAULT),
        // The return from the fault is missing.
        (50, Event::ReturnToProgram),
        // The clock is behind, then it is not read.
        (60, Event::Halt),
        (70, Event::Clock { time_ns: 65 }),
        (80, Event::Halt),
        (90, Event::End),
    ]);
    assert_eq!(latencies[&Service::Call(0)], [1, 20, 0, 0]);
    assert_eq!(latencies[&Service::Exception("page_fault".into())], [0; 4]);
    assert_eq!(profile.elapsed, Some(Elapsed { total_ns: 70, halted_ns: 0, unknown_halts: 2 }));
}

#[test]
fn without_a_clock_of_instructions_there_is_no_time() {
    let (_, profile) = attributed(&[
        (0, 0, task(7, "cat", Kind::Program)),
        (0, 0, Event::Begin),
        (0, 0, Event::Call(0)),
        (0, 9, Event::ReturnToProgram),
        (0, 0, Event::End),
    ]);
    assert_eq!(profile.elapsed, None);
    assert_eq!(profile.images[0].services[0].latency, None);
}

#[test]
fn events_that_cannot_be_read_are_counted_between_the_marks() {
    let mut attribution = Attribution::new(&Plan::empty());
    attribution.miss();
    attribution.take(Moment::default(), Event::Begin);
    attribution.miss();
    assert_eq!(attribution.take(Moment::default(), Event::End).unwrap().unreadable, 1);
}

#[test]
fn a_profile_is_from_the_first_beginning_to_the_last_end() {
    let mut plan = Plan::empty();
    plan.routines = Routines::new(&[("only", 1)].map(|(name, at)| (name.to_owned(), vec![at])).into());
    let mut attribution = Attribution::new(&plan);
    let counts = |kernel| Counts { user: 0, kernel };
    let mut take = |kernel, event| {
        attribution.take_routines(&[0, kernel, 0]);
        attribution.take(at(counts(kernel)), event)
    };
    assert_eq!(take(1, Event::End), None);
    assert_eq!(take(2, Event::Begin), None);
    assert_eq!(take(5, Event::Begin), None);
    for end in [9, 11] {
        let profile = take(end, Event::End).unwrap();
        assert_eq!(profile.total, counts(end - 2));
        assert_eq!(profile.routines, [("only".to_owned(), end - 2)].into());
        let services = profile.images.iter().flat_map(|image| &image.services);
        assert_eq!(services.map(|spent| spent.instructions).sum::<u64>(), end - 2);
    }
}

#[test]
fn a_profile_is_written_and_read() {
    let (_, profile) = attributed(&[(0, 9, Event::Begin), (1, 2, FAULT), (3, 4, Event::End)]);
    assert_eq!(profile.total, Counts { user: 4, kernel: 6 });
    assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
    let other = profile.to_json().replace("assay.profile/5", "assay.profile/0");
    let refused = Profile::from_json(&other).unwrap_err().to_string();
    assert!(refused.starts_with("its format is 'assay.profile/0'"), "{refused}");
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_u16).prop_map(Event::Call),
        (0..2_u16, 0..4_u64).prop_map(|(service, frame)| Event::Trap { service, frame }),
        (0..2_u16, 2..4_u16).prop_map(|(of, is)| Event::Kind { of, is }),
        (4..6_u16, 0..4_u64).prop_map(|(service, frame)| Event::Function { service, frame }),
        (0..4_u64).prop_map(|frame| Event::Return { frame }),
        (0..4_u64).prop_map(|frame| Event::ReturnToKernel { frame }),
        Just(Event::ReturnToProgram),
        (0..4_u32).prop_map(|number| task(number, "a", Kind::Program)),
        (0..4_u32).prop_map(|number| new(number, "d", Kind::Program)),
        (0..4_u32).prop_map(|number| new(number * 100, "e", Kind::Kernel)),
        (0..4_u32, 0..4_u32).prop_map(|(number, state)| wake(number, state, 2)),
        (0..4_u32).prop_map(|number| dead(number, "a")),
        Just(Event::Halt),
        (0..1000_u64).prop_map(|time_ns| Event::Clock { time_ns }),
        Just(Event::End),
        (0..4_u32).prop_map(|number| task(number * 100, "b", Kind::Kernel)),
        (0..4_u64)
            .prop_map(|number| Event::Rename { task: 0xffff_8880_0000_0000 + number * 64, name: name("c") }),
    ]
}

proptest! {
    #[test]
    fn the_sum_over_the_services_is_the_total(
        before in proptest::collection::vec((0..9_u64, 0..9_u64, any_event()), 0..40),
        within in proptest::collection::vec((0..9_u64, 0..9_u64, any_event()), 0..80),
    ) {
        let mut events = before;
        events.push((1, 1, Event::Begin));
        let is_call = |event: &Event| matches!(event, Event::Call(_) | Event::Trap { .. } | Event::Function { .. });
        let entries = within.iter().filter(|(_, _, event)| is_call(event)).count() as u64;
        events.extend(within);
        events.push((1, 1, Event::End));
        let (_, profile) = attributed_with(true, &events);
        let elapsed = profile.elapsed.unwrap();
        prop_assert!(elapsed.total_ns == elapsed.halted_ns + profile.total.user + profile.total.kernel);
        prop_assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile.clone());
        let modes = over_time(&profile);
        prop_assert_eq!(modes.user_ns, profile.total.user);
        let spent = || profile.images.iter().flat_map(|image| &image.services);
        let idle = spent().filter(|spent| spent.service == Service::Idle).map(|spent| spent.instructions);
        prop_assert_eq!(modes.idle_ns, elapsed.halted_ns + idle.sum::<u64>());
        prop_assert_eq!(profile.images.iter().map(|image| image.user).sum::<u64>(), profile.total.user);
        prop_assert_eq!(spent().map(|spent| spent.instructions).sum::<u64>(), profile.total.kernel);
        let entered = spent().filter(|spent| spent.service != Service::Start).map(|spent| spent.calls);
        prop_assert_eq!(entered.sum::<u64>(), entries);
        let ended = spent().map(|spent| spent.latency.unwrap().calls).sum::<u64>();
        prop_assert!(ended <= spent().map(|spent| spent.calls).sum());
        for latency in spent().filter_map(|spent| spent.latency) {
            prop_assert!(latency.total_ns() <= latency.calls * elapsed.total_ns);
        }
    }
}

#[test]
fn a_snapshot_has_what_was_executed_since_the_start_and_is_taken_after_the_first_mark_only() {
    let mut plan = plan();
    plan.points = vec![Point { address: 1 << 63, action: Action::PageFault { service: 0 } }];
    let mut attribution = Attribution::new(&plan);
    let fault = Event::Trap { service: 0, frame: 8 };
    let timer = Event::Trap { service: 1, frame: 4 };
    let mut counts = Counts::default();
    for (user, kernel, event) in [
        (1, 0, Event::Snapshot(1)),
        (1, 0, fault),
        (0, 10, Event::ReturnToProgram),
        (1, 0, Event::Begin),
        (5, 0, Event::Snapshot(2)),
        (1, 0, fault),
        (0, 20, timer),
        (0, 30, Event::ReturnToKernel { frame: 4 }),
        (0, 40, Event::ReturnToProgram),
        (2, 0, Event::Snapshot(9)),
        (7, 0, Event::End),
    ] {
        counts.user += user;
        counts.kernel += kernel;
        attribution.take(at(counts), event);
    }
    let taken = attribution.snapshots().taken.iter();
    let taken: Vec<_> =
        taken.map(|one| (one.number, one.counts.user, one.counts.kernel, one.page_faults)).collect();
    assert_eq!(taken, [(2, 8, 10, 1), (9, 11, 100, 2)]);
    assert_eq!(attribution.snapshots().omitted, 0);
}
