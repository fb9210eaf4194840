//! Tests of what creates, ends and executes processes, and of their page faults.

use super::{operation, own, shown, terms};
use crate::{
    fixture::{call, record},
    record::{Area, Call, Event, ExecPath, Memory, Record},
    view::{View, demand::Demanding},
};

fn fork(child_process: u32, memory: Option<Memory>) -> Event {
    Event::Fork { child_process, child_thread: child_process, memory }
}

const COPIED: Option<Memory> = Some(Memory::Copied { anonymous_bytes: 1 << 20 });

/// A call that creates a process or a thread, with flags.
fn creates(name: &str, flags: u64) -> Event {
    Event::Call(Call { result: 9, args: [flags, 0, 0, 0, 0, 0], ..call(name) })
}

#[test]
fn a_child_counts_by_its_memory_whichever_call_created_it() {
    let borrowed = Some(Memory::Borrowed);
    let shown = terms(&[
        fork(record(fork(0, None)).process, borrowed),
        creates("clone3", 0x7f00),
        fork(9, COPIED),
        creates("clone3", 0x7f00),
        fork(9, COPIED),
        creates("clone", 17),
        fork(9, borrowed),
        creates("clone", 0x4111),
        fork(9, borrowed),
        creates("clone3", 0x7f00),
        Event::Unfinished(call("exit")),
        Event::Unfinished(call("exit_group")),
        Event::Call(Call { result: 9, ..call("wait4") }),
    ]);
    assert_eq!(
        shown,
        [
            own("process.bare_fork_exit", 2.0, Some(2_097_152.0)),
            own("process.vfork_exit", 2.0, None),
            own("thread.create_join", 1.0, None),
        ]
    );
}

#[test]
fn the_flags_of_a_call_replace_a_fork_that_was_lost_or_does_not_contain_the_memory() {
    let calls = [("fork", 0), ("vfork", 0), ("clone", 17), ("clone", 0x4111), ("clone", 0x3d_0f00)];
    let of_calls = |recorded: &[Event]| {
        let events = calls.map(|(name, flags)| [recorded, &[creates(name, flags)]].concat());
        terms(&events.concat())
    };
    let processes = [own("process.bare_fork_exit", 2.0, Some(0.0)), own("process.vfork_exit", 2.0, None)];
    let all = [&processes[..], &[own("thread.create_join", 1.0, None)]].concat();
    assert_eq!((of_calls(&[]), of_calls(&[fork(9, None)])), (all.clone(), all));
    // The flags of `clone3` are in memory.
    let hidden = [("call.null LowerBound".to_owned(), 1.0, None)];
    assert_eq!(terms(&[fork(9, None), creates("clone3", 0x7f00)]), hidden);
}

/// A fault of a process with this error code and area.
fn fault(process: u32, error: u64, area: Option<Area>) -> Record {
    Record { process, ..record(Event::PageFault { address: 0x1000, error, user: true, area }) }
}

/// The page faults and releases of pages in a trace, by primitive.
fn faults_in(records: &[Record]) -> Vec<(String, f64)> {
    let mut view = Demanding::default();
    records.iter().for_each(|record| view.record(record));
    let terms = shown(&operation(view.finish())).into_iter();
    terms.map(|(primitive, count, _)| (primitive.trim_end_matches(" Own").to_owned(), count)).collect()
}

const READ: u64 = 4;
const WRITE: u64 = 6;
const WRITE_PRESENT: u64 = 7;

#[test]
fn a_fault_counts_by_its_page_its_access_and_what_is_mapped_and_so_does_the_release_of_the_page() {
    let (anonymous, file) = (Some("mmap.release_anonymous"), Some("mmap.release_file"));
    for (error, area, due, release) in [
        (WRITE, Some(Area::Anonymous), "page_fault.anonymous", anonymous),
        (READ, Some(Area::Anonymous), "page_fault.zero", None),
        (READ, Some(Area::PrivateFile), "page_fault.file_around", file),
        (WRITE, Some(Area::PrivateFile), "page_fault.file_copy", anonymous),
        (READ, Some(Area::Shared), "page_fault.file_around", file),
        (WRITE, Some(Area::Shared), "page_fault.file", anonymous),
        (WRITE, Some(Area::Nothing), "page_fault.anonymous", anonymous),
        (READ, None, "page_fault.anonymous", anonymous),
        (WRITE_PRESENT, Some(Area::Anonymous), "page_fault.anonymous", anonymous),
        (WRITE_PRESENT, Some(Area::PrivateFile), "page_fault.copy_on_write", anonymous),
        (WRITE_PRESENT, Some(Area::Shared), "page_fault.reuse", None),
    ] {
        let due: Vec<_> = release.into_iter().chain([due]).map(|name| (name.to_owned(), 1.0)).collect();
        assert_eq!(faults_in(&[fault(7, error, area)]), due, "{error} {area:?}");
    }
}

#[test]
fn a_fault_of_a_call_counts_too_except_where_the_primitive_contains_it() {
    let kernel = record(Event::PageFault { address: 0, error: 2, user: false, area: Some(Area::Anonymous) });
    let of = |name, faults| {
        let records = [kernel, kernel, record(Event::Call(Call { faults, ..call(name) }))];
        faults_in(&records).into_iter().find(|(primitive, _)| primitive == "page_fault.anonymous")
    };
    let two = Some(("page_fault.anonymous".to_owned(), 2.0));
    assert_eq!((of("getppid", 2), of("execve", 2)), (two.clone(), None));
    // Outside calls, for example for the frame of a signal.
    assert_eq!(of("execve", 0), two);
}

#[test]
fn a_write_copies_a_page_while_a_process_with_a_copy_of_the_memory_is_left() {
    let by = |process, event| Record { process, ..record(event) };
    let copy = |parent, child| by(parent, fork(child, COPIED));
    let exit = |process| by(process, Event::Exit { code: 0, whole_process: true });
    let exec = |process| by(process, Event::Exec { path: ExecPath([0; 48]) });
    let write = |process| fault(process, WRITE_PRESENT, Some(Area::Anonymous));
    let due = |records: &[Record], name: &str| {
        let count = |records| {
            let counted = faults_in(records).into_iter().find(|(primitive, _)| primitive == name);
            counted.map_or(0.0, |(_, count)| count)
        };
        let (_, before) = records.split_last().unwrap();
        assert_eq!((name, count(records)), (name, count(before) + 1.0));
    };
    due(&[copy(1, 2), write(1)], "page_fault.copy_on_write");
    due(&[copy(1, 2), write(2)], "page_fault.copy_on_write");
    due(&[copy(1, 2), exit(2), write(1)], "page_fault.reuse");
    due(&[copy(1, 2), exit(1), write(2)], "page_fault.reuse");
    due(&[copy(1, 2), exec(2), write(1)], "page_fault.reuse");
    due(&[copy(1, 2), exec(2), write(2)], "page_fault.anonymous");
    due(&[copy(1, 2), copy(2, 3), exit(2), write(1)], "page_fault.copy_on_write");
    due(&[copy(1, 2), copy(2, 3), exit(2), exit(3), write(1)], "page_fault.reuse");
    due(&[by(1, fork(2, Some(Memory::Borrowed))), write(1)], "page_fault.anonymous");
    due(&[by(1, fork(1, Some(Memory::Borrowed))), write(1)], "page_fault.anonymous");
    // A thread of the process ends, not the process.
    let thread_exit = by(2, Event::Exit { code: 0, whole_process: false });
    due(&[copy(1, 2), thread_exit, write(1)], "page_fault.copy_on_write");
    // The end of process 2 was lost, and its number is used again.
    due(&[copy(1, 2), copy(1, 2), exit(2), write(1)], "page_fault.reuse");
}
