//! Tests of the timeline: sums over the intervals, what is where, and threads that begin and end.

use super::*;
use crate::{
    fixture::{call, exec, random, record},
    record::Call,
};

/// Traces of a test.
const CASES: usize = 1_000;

const PROCESS_EXIT: Event = Event::Exit { code: 0, whole_process: true };

fn timeline(filter: Filter, records: &[Record]) -> Timeline {
    let mut view = CollectTimeline::of(filter, 0);
    records.iter().for_each(|record| view.record(record));
    view.finish()
}

fn at(begin_ns: u64, thread: u32, event: Event) -> Record {
    Record { begin_ns, process: 1, thread, ..record(event) }
}

fn read(elapsed_ns: u64) -> Event {
    Event::Call(Call { elapsed_ns, ..call("read") })
}

fn fault() -> Event {
    Event::PageFault { address: 0, error: 0, user: true, area: None }
}

fn fork((child_process, child_thread): (u32, u32)) -> Event {
    Event::Fork { child_process, child_thread, memory: None }
}

fn user_ns(records: &[Record]) -> Option<u64> {
    total(&timeline(Filter::default(), records)).user_ns
}

/// Returns what all intervals have together, with no begin, program and call.
fn total(timeline: &Timeline) -> Interval {
    let mut total = Interval { faults: Some(0), user_ns: Some(0), ..Interval::default() };
    for interval in &timeline.intervals {
        total.length_ns += interval.length_ns;
        total.calls += interval.calls;
        total.errors += interval.errors;
        total.faults = total.faults.zip(interval.faults).map(|(sum, faults)| sum + faults);
        total.lost += interval.lost;
        total.user_ns = total.user_ns.zip(interval.user_ns).map(|(sum_ns, user_ns)| sum_ns + user_ns);
        total.times.add(&interval.times);
    }
    total
}

/// Returns a trace of three threads and what all its intervals have together.
fn random_trace(state: &mut u64) -> (Vec<Record>, Interval) {
    let mut below = |limit: u64| random(state) % limit;
    let scale = 10u64.pow(u32::try_from(below(8)).unwrap());
    let start_ns = below(10) * below(100 * scale);
    let mut records = Vec::new();
    let mut due = Interval { faults: Some(0), user_ns: Some(0), ..Interval::default() };
    for thread in 1..=3 {
        let mut now_ns = start_ns;
        records.push(at(start_ns, 1, fork((1, thread))));
        for _ in 0..below(50) {
            let user_ns = below(3) * below(5 * scale);
            due.user_ns = due.user_ns.map(|sum_ns| sum_ns + user_ns);
            now_ns += user_ns;
            let elapsed_ns = below(10 * scale);
            let [blocked_ns, waiting_ns, irq_ns] = [(); 3].map(|()| below(4) * elapsed_ns / 12);
            let result = if below(4) == 0 { -11 } else { 5 };
            let call = Call { elapsed_ns, blocked_ns, waiting_ns, irq_ns, result, ..call("read") };
            let event = match below(3) {
                0 => Event::OffCpu { blocked_ns, waiting_ns },
                _ => Event::Call(call),
            };
            let record = at(now_ns, thread, event);
            match event {
                Event::Call(call) => {
                    due.calls += 1;
                    due.errors += u64::from(call.errno().is_some());
                    due.times.add(&StateTimes::of(&call));
                }
                _ => due.times.add(&StateTimes::off_cpu(blocked_ns, waiting_ns)),
            }
            now_ns = record.end_ns();
            records.push(record);
            if below(3) == 0 {
                due.faults = due.faults.map(|faults| faults + 1);
                records.push(at(now_ns, thread, fault()));
            }
        }
        records.push(at(now_ns, thread, Event::Exit { code: 0, whole_process: false }));
        due.length_ns = due.length_ns.max(now_ns - start_ns);
    }
    records.sort_by_key(Record::end_ns);
    (records, due)
}

#[test]
fn the_intervals_contain_everything_once_at_every_scale() {
    let mut state = 1;
    for _ in 0..CASES {
        let (records, due) = random_trace(&mut state);
        let shown = timeline(Filter::default(), &records);
        assert_eq!(total(&shown), due, "{records:?}");
        let (interval_ns, many) = (shown.interval_ns, u64::try_from(shown.intervals.len()).unwrap());
        assert!(many <= INTERVALS_MAX, "{many} of {interval_ns}");
        let shorter_ns = match interval_ns.to_string().trim_end_matches('0') {
            "1" | "2" => interval_ns / 2,
            "5" => interval_ns * 2 / 5,
            digits => panic!("{digits} is not 1, 2 or 5"),
        };
        let begin_ns = records[0].begin_ns;
        let shorter = (begin_ns + due.length_ns) / shorter_ns - begin_ns / shorter_ns + 1;
        assert!(
            shorter > INTERVALS_MAX || interval_ns == 1_000,
            "{shorter} of {shorter_ns} are not too many"
        );
        let begins: Vec<u64> = shown.intervals.iter().map(|interval| interval.begin_ns).collect();
        assert!(begins.windows(2).all(|two| two[1] - two[0] == shown.interval_ns), "{begins:?}");
    }
}

#[test]
fn two_periods_contain_what_the_whole_trace_contains() {
    let mut state = 2;
    for _ in 0..CASES {
        let (records, due) = random_trace(&mut state);
        let middle_ns = records[0].begin_ns + random(&mut state) % (due.length_ns + 2);
        let part = |from_ns, to_ns| {
            let shown = timeline(Filter { from_ns, to_ns, ..Filter::default() }, &records);
            Interval { length_ns: 0, ..total(&shown) }
        };
        let (before, after) = (part(None, Some(middle_ns)), part(Some(middle_ns), None));
        let both = Timeline { interval_ns: 1, intervals: vec![before, after], lost: 0 };
        assert_eq!(total(&both), Interval { length_ns: 0, ..due }, "{middle_ns}: {records:?}");
    }
}

#[test]
fn an_interval_shows_what_is_in_it() {
    let write =
        Call { elapsed_ns: 300, result: -11, blocked_ns: 100, waiting_ns: 50, irq_ns: 30, ..call("write") };
    let records = [
        at(10_000, 1, exec("/bin/sh")),
        at(10_000, 1, read(200)),
        at(10_500, 1, Event::Call(write)),
        at(10_800, 1, fault()),
        at(12_100, 1, Event::OffCpu { blocked_ns: 5, waiting_ns: 95 }),
        at(12_200, 1, exec("/bin/ls")),
        at(12_200, 1, PROCESS_EXIT),
    ];
    let first = Interval {
        begin_ns: 10_000,
        length_ns: 1_000,
        calls: 2,
        errors: 1,
        faults: Some(1),
        lost: 0,
        user_ns: Some(500),
        times: StateTimes { working_ns: 320, blocked_ns: 100, waiting_ns: 50, interrupts_ns: 30 },
        program: Some("sh".to_owned()),
        call: Some("read".to_owned()),
    };
    let named = Interval { faults: Some(0), program: first.program.clone(), ..Interval::default() };
    let second = Interval { begin_ns: 11_000, length_ns: 1_000, user_ns: Some(1_000), ..named.clone() };
    let times = StateTimes { blocked_ns: 5, waiting_ns: 95, ..StateTimes::default() };
    let third = Interval { begin_ns: 12_000, length_ns: 200, user_ns: Some(100), times, ..named };
    let due = Timeline { interval_ns: 1_000, intervals: vec![first, second, third], lost: 0 };
    assert_eq!(timeline(Filter::default(), &records), due);
}

#[test]
fn the_time_of_a_call_is_divided_evenly_and_it_counts_where_it_begins() {
    let wait = Call { elapsed_ns: 3_000, blocked_ns: 2_400, waiting_ns: 301, ..call("poll") };
    let intervals = timeline(Filter::default(), &[at(10_500, 1, Event::Call(wait))]).intervals;
    let shown: Vec<_> =
        intervals.iter().map(|it| (it.calls, it.times.blocked_ns, it.times.waiting_ns)).collect();
    assert_eq!(shown, [(1, 400, 50), (0, 800, 100), (0, 800, 100), (0, 400, 51)]);
    assert!(intervals.iter().all(|interval| interval.call.as_deref() == Some("poll")), "{intervals:?}");
}

#[test]
fn a_call_may_begin_before_the_first_event_that_ended() {
    let wait = Call { elapsed_ns: 3_000, blocked_ns: 3_000, ..call("poll") };
    let shown = timeline(Filter::default(), &[at(12_000, 1, fault()), at(10_000, 2, Event::Call(wait))]);
    let rows: Vec<_> =
        shown.intervals.iter().map(|it| (it.begin_ns, it.faults, it.times.blocked_ns)).collect();
    assert_eq!(rows, [(10_000, Some(0), 1_000), (11_000, Some(0), 1_000), (12_000, Some(1), 1_000)]);
}

#[test]
fn a_thread_is_in_user_mode_until_it_ends_or_the_trace_ends() {
    let trace = |end: &[Record]| {
        let begin = [at(1_000, 1, read(0)), at(1_000, 1, fork((1, 2))), at(2_000, 2, read(0))];
        user_ns(&[&begin, end, &[at(9_000, 1, fault())]].concat())
    };
    assert_eq!(trace(&[]), Some(8_000 + 8_000));
    assert_eq!(trace(&[at(5_000, 2, Event::Exit { code: 0, whole_process: false })]), Some(8_000 + 4_000));
    let forever = Call { elapsed_ns: 500, ..call("exit") };
    assert_eq!(trace(&[at(4_000, 2, Event::Unfinished(forever))]), Some(8_000 + 3_000));
}

#[test]
fn a_thread_whose_end_is_lost_ends_with_its_process() {
    let thread = [at(1_000, 1, read(0)), at(1_000, 1, fork((1, 2))), at(2_000, 2, read(0))];
    let after = [at(9_000, 1, fault())];
    assert_eq!(user_ns(&[&thread[..], &[at(3_000, 1, exec("/bin/true"))], &after].concat()), Some(9_000));
    assert_eq!(user_ns(&[&thread[..], &[at(3_000, 1, PROCESS_EXIT)], &after].concat()), Some(3_000));
    assert_eq!(user_ns(&[&thread[..], &[at(3_000, 2, PROCESS_EXIT)], &after].concat()), Some(2_000));
    let both = [at(3_000, 1, exec("/bin/true")), at(4_000, 1, PROCESS_EXIT)];
    assert_eq!(user_ns(&[&thread[..], &both, &after].concat()), Some(4_000));
}

#[test]
fn a_thread_without_a_record_of_its_own_waits_for_a_cpu() {
    let created = [at(1_000, 1, fork((2, 2)))];
    let ended = at(9_000, 1, fault());
    assert_eq!(user_ns(&[&created[..], &[ended]].concat()), Some(0));
    assert_eq!(
        user_ns(
            &[&created[..], &[at(8_500, 2, Event::OffCpu { blocked_ns: 0, waiting_ns: 0 }), ended]].concat()
        ),
        Some(8_000)
    );
}

#[test]
fn time_before_a_program_is_executed_belongs_to_the_one_before() {
    let execve = Event::Call(Call { elapsed_ns: 10, ..call("execve") });
    let records = [
        at(0, 1, exec("/bin/sh")),
        at(0, 1, read(10)),
        at(2_995, 1, exec("/bin/ls")),
        at(2_990, 1, execve),
        at(4_990, 1, read(10)),
    ];
    let shown = timeline(Filter::default(), &records);
    let programs: Vec<_> = shown.intervals.iter().map(|interval| interval.program.as_deref()).collect();
    assert_eq!(programs, ["sh", "sh", "sh", "ls", "ls"].map(Some));
}

#[test]
fn what_follows_the_end_of_a_thread_does_not_begin_one() {
    let late = Event::OffCpu { blocked_ns: 0, waiting_ns: 100 };
    let life = |begin_ns: u64| {
        [
            at(begin_ns, 1, read(0)),
            at(begin_ns + 1_000, 1, PROCESS_EXIT),
            at(begin_ns + 1_000, 1, late),
            at(begin_ns + 1_100, 1, fault()),
        ]
    };
    assert_eq!(user_ns(&[life(1_000), life(50_000)].concat()), Some(2_000));
}

#[test]
fn filters_select_what_is_shown() {
    let other = |record: Record| Record { process: 7, thread: 7, ..record };
    let records = [
        at(1_000, 1, read(100)),
        other(at(1_000, 1, read(100))),
        at(1_000, 1, fault()),
        at(1_500, 1, Event::Call(Call { elapsed_ns: 700, ..call("write") })),
        other(at(4_000, 1, fault())),
    ];
    let all = Filter::default();
    let of = |filter| total(&timeline(filter, &records));
    let figures = |it: Interval| (it.calls, it.faults, it.user_ns, it.times.working_ns);
    assert_eq!(figures(of(all)), (3, Some(2), Some(400 + 1_800 + 2_900), 900));
    assert_eq!(figures(of(Filter { process: Some(1), ..all })), (2, Some(1), Some(2_200), 800));
    let calls = timeline(Filter { call: Some(call("read").number), ..all }, &records);
    let first = &calls.intervals[0];
    assert_eq!((first.calls, first.faults, first.user_ns), (2, None, None));
    let twice = timeline(
        Filter { call: Some(call("read").number), ..all },
        &[at(0, 1, read(9)), at(2_000, 1, read(9))],
    );
    assert_eq!(twice.intervals[1].program, None, "between the calls");
    let of_period = timeline(Filter { from_ns: Some(1_050), to_ns: Some(2_000), ..all }, &records);
    assert_eq!(figures(total(&of_period)), (1, Some(0), Some(400 + 900), 50 + 50 + 500));
    let first = &of_period.intervals[0];
    assert_eq!((first.begin_ns, first.length_ns), (1_000, 950), "intervals begin with the recording");
}

#[test]
fn lost_records_are_where_their_gap_was_noticed() {
    let mut view = CollectTimeline::of(
        Filter { from_ns: Some(10_000), to_ns: Some(13_000), ..Filter::default() },
        5_000,
    );
    for (time_ns, records) in [(9_999, 1), (10_500, 2), (12_000, 4), (12_001, 8), (13_000, 16)] {
        view.lost(&Lost { time_ns, cpu: 0, records });
    }
    let shown = view.finish();
    let lost: Vec<_> = shown.intervals.iter().map(|interval| (interval.begin_ns, interval.lost)).collect();
    assert_eq!(lost, [(5_000, 2), (6_000, 0), (7_000, 12)]);
    assert_eq!(shown.lost, 30, "those at the end of the period may have been lost in it");
}

#[test]
fn an_interval_distinguishes_a_limited_number_of_programs() {
    let work =
        |program: u64, elapsed_ns| [at(0, 1, exec(&format!("/{program}"))), at(0, 1, read(elapsed_ns))];
    let mut records: Vec<Record> = (0..1_100).flat_map(|program| work(program, 1)).collect();
    records.extend(work(7, 50));
    records.extend(work(1_050, 60));
    let intervals = timeline(Filter::default(), &records).intervals;
    assert_eq!(intervals[0].program.as_deref(), Some("7"), "1050 is one too many");
}

#[test]
fn any_times_give_a_timeline() {
    let call = Call { elapsed_ns: u64::MAX, blocked_ns: 1 << 63, ..call("read") };
    let off_cpu = Event::OffCpu { blocked_ns: u64::MAX, waiting_ns: u64::MAX };
    for start_ns in [0, 5, u64::MAX] {
        let mut view = CollectTimeline::of(Filter::default(), start_ns);
        for begin_ns in [3, 1 << 40, u64::MAX, 0] {
            for event in [Event::Call(call), fault(), off_cpu, read(0), read(1)] {
                view.record(&at(begin_ns, 1, event));
            }
        }
        let shown = view.finish();
        let calls: u64 = shown.intervals.iter().map(|interval| interval.calls).sum();
        let faults: u64 = shown.intervals.iter().filter_map(|interval| interval.faults).sum();
        assert_eq!((calls, faults), (12, 4));
        assert!(shown.intervals.len() <= 40, "{}", shown.intervals.len());
    }
}
