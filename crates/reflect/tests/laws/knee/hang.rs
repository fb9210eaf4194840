//! The law `knee` on a server that finishes nothing for a time, or for ever.

use assay_reflect::Signal;

use super::{closed, hot_row, in_period, limits_of, peak_of_8_to_32, without_load};

/// The signal, or that of a server that finishes nothing.
fn finished_unless(hangs: bool, signal: Signal) -> Signal {
    if hangs { Signal { finished: 0, ..signal } } else { signal }
}

/// A productivity per second that falls a little behind 8 in flight.
fn peak_of_8(n: f64) -> f64 {
    if n <= 8.0 { 1_000.0 * n } else { 7_000.0 }
}

#[test]
fn knee_leaves_a_collapse_in_which_the_server_hangs() {
    // At each moment of the survey.
    let hangs = [1.0, 3.0, 10.0].into_iter().flat_map(|hang_s| (1..12).map(move |period| (period, hang_s)));
    for (period, hang_s) in hangs {
        let hung = f64::from(period) / 10.0..f64::from(period) / 10.0 + hang_s;
        let (limits, _) = limits_of(120, 1_000.0, |time_s, limit| {
            finished_unless(hung.contains(&time_s), closed(400.0, limit, peak_of_8_to_32))
        });
        assert!((8..32).contains(limits.last().unwrap()), "{hang_s} s from period {period} on: {limits:?}");
    }
}

#[test]
fn knee_leaves_limits_at_which_the_server_hangs_again_and_again() {
    for start in [2.0, 1_000.0] {
        let (limits, reason) = limits_of(120, start, |time_s, limit| {
            let signal = closed(400.0, limit, |n| 1_000.0 * n.min(8.0));
            finished_unless(limit >= 32.0 && time_s % 3.0 < 2.0, signal)
        });
        assert!(limits[600..].iter().all(|limit| *limit < 32), "from {start}: {reason}: {limits:?}");
    }
}

#[test]
fn knee_keeps_its_limit_while_the_server_hangs() {
    for hang_s in [2.0, 4.7, 4.8, 9.0] {
        let hung = 30.0..30.0 + hang_s;
        let (limits, reason) = limits_of(180, 2.0, |time_s, limit| {
            finished_unless(hung.contains(&time_s), closed(1_024.0, limit, hot_row))
        });
        assert!(limits[300..].iter().all(|limit| *limit == limits[299]), "{hang_s} s: {reason}: {limits:?}");
    }
}

#[test]
fn knee_comes_home_from_a_survey_of_a_server_that_hangs_with_what_is_in_flight() {
    let mut stuck: f64 = 0.0;
    let (limits, reason) = limits_of(180, 2.0, |time_s, limit| {
        let hangs = (30.0..90.0).contains(&time_s);
        // None of them ends.
        stuck = if hangs { stuck.max(limit) } else { 0.0 };
        finished_unless(hangs, closed(1_024.0, stuck.max(limit), hot_row))
    });
    assert!(limits[930..].iter().all(|limit| *limit <= 4), "{reason}: {limits:?}");
    assert_eq!(*limits.last().unwrap(), limits[299], "{reason}: {limits:?}");
}

#[test]
fn knee_leaves_a_limit_at_which_the_server_hangs_for_ever() {
    let (limits, reason) = limits_of(180, 2.0, |time_s, limit| {
        finished_unless(time_s > 60.0 && limit >= 4.0, closed(1_024.0, limit, peak_of_8))
    });
    assert!(limits[590] == 8 && *limits.last().unwrap() == 3, "{reason}: {limits:?}");
}

#[test]
fn knee_leaves_a_limit_at_which_the_server_begins_to_hang_again_and_again() {
    for (clients, hung_s, period_s) in [(40.0, 2.0, 3.0), (1_024.0, 2.0, 3.0), (40.0, 9.0, 10.0)] {
        let (limits, reason) = limits_of(240, 2.0, |time_s, limit| {
            let hangs = time_s > 60.0 && limit >= 4.0 && time_s % period_s < hung_s;
            finished_unless(hangs, closed(clients, limit, peak_of_8))
        });
        let name = format!("{clients} clients, {hung_s} s of {period_s} s: {reason}: {limits:?}");
        assert!(limits[590] == 8 && limits[1_200..].iter().all(|limit| *limit < 4), "{name}");
    }
}

#[test]
fn knee_limits_a_load_that_begins_to_stall() {
    // From then on, what is in flight stands still for a second and goes on for a half, if it is too much.
    let (limits, reason) = limits_of(120, 1_000.0, |time_s, limit| {
        let signal = closed(40.0, limit, |n| 1_000.0 * n.min(8.0));
        finished_unless(time_s > 60.0 && limit >= 16.0 && time_s % 1.5 < 1.0, signal)
    });
    assert!(limits[590] >= 40 && limits[780..].iter().all(|limit| *limit < 16), "{reason}: {limits:?}");
}

#[test]
fn knee_admits_no_more_in_a_stall_while_no_limit_binds() {
    let (limits, reason) = limits_of(60, 2.0, |time_s, limit| {
        let since_s = time_s - 30.0;
        let stalls = (0.0..1.0).contains(&since_s);
        finished_unless(stalls, without_load(if stalls { 8.0 + 40.0 * since_s } else { 8.0 }, limit))
    });
    assert!(limits[299..315].iter().all(|limit| *limit == 16), "{reason}: {limits:?}");
}

#[test]
fn knee_keeps_its_limit_while_one_unit_alone_takes_long() {
    // With the limit that it holds, and while none binds.
    for (clients, limit) in [(1_024.0, 2), (4.0, 8)] {
        let (limits, reason) = limits_of(120, 2.0, |time_s, limit| {
            let alone = 20.0..80.0;
            let clients = if alone.contains(&time_s) { 1.0 } else { clients };
            let signal =
                if clients > 4.0 { closed(clients, limit, hot_row) } else { without_load(clients, limit) };
            finished_unless(alone.contains(&time_s), signal)
        });
        assert!(limits[190..].iter().all(|each| *each == limit), "{clients} clients: {reason}: {limits:?}");
    }
}

#[test]
fn knee_keeps_its_limit_after_a_stall_and_a_time_without_load() {
    for (stall_s, pause_s) in [(0.5, 0.1), (1.0, 0.1), (1.0, 2.0), (5.0, 0.1), (5.0, 2.0)] {
        let (limits, reason) = limits_of(60, 2.0, |time_s, limit| {
            let since_s = time_s - 30.0;
            if (stall_s..stall_s + pause_s).contains(&since_s) {
                closed(0.0, limit, hot_row)
            } else {
                finished_unless((0.0..stall_s).contains(&since_s), closed(1_024.0, limit, hot_row))
            }
        });
        let name = format!("{stall_s} s, {pause_s} s: {reason}: {limits:?}");
        assert!(limits[299..].iter().all(|limit| *limit == limits[299]), "{name}");
    }
}

#[test]
fn knee_finds_the_same_limit_whenever_the_server_hangs() {
    // Until the server goes on, or until all clients give up.
    for (start, pause_s) in (0..200).flat_map(|start| [(start, 0.0), (start, 0.2)]) {
        let start_s = f64::from(start) / 10.0;
        let (hung, paused) = (start_s..start_s + 5.0, start_s + 5.0..start_s + 5.0 + pause_s);
        let (limits, reason) = limits_of(60, 2.0, |time_s, limit| {
            let clients = if paused.contains(&time_s) { 0.0 } else { 1_024.0 };
            finished_unless(hung.contains(&time_s), closed(clients, limit, hot_row))
        });
        // It holds this limit from 5.5 s on.
        let held = if start < 60 { &limits[400..] } else { &limits[60..] };
        assert!(held.iter().all(|limit| *limit == 2), "{hung:?}, {pause_s} s: {reason}: {limits:?}");
    }
}

#[test]
fn knee_leaves_a_limit_at_which_the_server_hangs_until_all_clients_give_up() {
    let (limits, reason) = limits_of(180, 2.0, |time_s, limit| {
        let clients = if time_s > 60.0 && time_s % 5.0 < 0.2 { 0.0 } else { 40.0 };
        finished_unless(time_s > 60.0 && limit >= 4.0, closed(clients, limit, peak_of_8))
    });
    assert!(limits[590] == 8 && limits[1_200..].iter().all(|limit| *limit < 4), "{reason}: {limits:?}");
}

#[test]
fn knee_takes_no_time_without_load_for_a_part_of_a_hang() {
    let (limits, reason) = limits_of(180, 2.0, |time_s, limit| {
        let clients = if time_s < 60.0 || time_s % 3.0 < 1.0 { 1_024.0 } else { 0.0 };
        finished_unless(time_s >= 60.0, closed(clients, limit, hot_row))
    });
    assert!(limits[600..].iter().all(|limit| *limit == limits[600]), "{reason}: {limits:?}");
}

#[test]
fn knee_does_not_wait_for_the_first_unit_to_leave_a_collapse() {
    let (limits, _) = limits_of(60, 1_000.0, |time_s, limit| {
        finished_unless(time_s < 1.0, closed(400.0, limit, peak_of_8_to_32))
    });
    assert_eq!(limits[..2], [1_000, 100], "{limits:?}");
    assert!((8..32).contains(limits.last().unwrap()), "{limits:?}");
}

#[test]
fn knee_sees_no_lack_of_load_before_the_first_unit() {
    let (limits, reason) = limits_of(60, 1_000.0, |time_s, limit| {
        if time_s < 0.1 {
            Signal { finished: 0, ..without_load(5.0, limit) }
        } else {
            closed(400.0, limit, peak_of_8_to_32)
        }
    });
    assert!((8..32).contains(limits.last().unwrap()), "{reason}: {limits:?}");
}

#[test]
fn knee_does_not_wait_for_ever_for_the_first_unit() {
    let (limits, reason) =
        limits_of(60, 16.0, |_, limit| finished_unless(limit >= 4.0, without_load(20.0, limit)));
    assert_eq!(*limits.last().unwrap(), 3, "{reason}: {limits:?}");
}

#[test]
fn knee_takes_no_units_that_take_long_for_a_collapse() {
    for (unit_s, start) in [(0.5, 1_000.0), (2.0, 1_000.0), (2.0, 4.0), (5.0, 4.0), (20.0, 4.0)] {
        let mut rest: f64 = 0.0;
        let (limits, reason) = limits_of(180, start, |time_s, limit| {
            let signal = closed(400.0, limit, |_| 0.0);
            rest = if time_s < unit_s { 0.0 } else { rest.fract() + 0.1 * signal.in_flight / unit_s };
            Signal { finished: in_period(10.0 * rest), ..signal }
        });
        assert_eq!(reason, "no higher limit does harm", "{unit_s} s from {start}: {limits:?}");
    }
}
