//! Transfers of lines from one processor's cache to another's: the latency of one line, and the bandwidth of
//! reading many.
//!
//! Every sample uses a fresh page, which one of the two processors touches first: if all pairs of processors
//! share one line of one page, its location in the machine affects every figure (core-to-core-latency, issue
//! 155). Both sides wait in a bare loop, without the processor's hint for such loops, which can take longer
//! than a transfer.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_process::cpus::pin;
use assay_quantity::PrimitiveId;
use rand::RngExt;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::clock::monotonic::now_ns;
use crate::platform::kernel::check;
use crate::platform::layout::{Buffer, PAGE};
use crate::platform::partner::Partner;
use crate::primitive::kit::processor;
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::words::{CHUNK, number_words, read_chunk, sum_of_chunk};
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["cache.transfer_line{from=cpu,to=cpu}"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "transfer of a line that processor `from` has written until `to` reads the new value, or in \
                the opposite direction: half of a round trip",
        source: "own: multichase's pingpong and core-to-core-latency, with a fresh page for every sample",
        prepare: transfer,
    },
    Row {
        quick: &["cache.read_remote{set=256KiB,from=cpu,to=cpu}"],
        full: &["cache.read_remote{set=16KiB|256KiB|4MiB,from=cpu,to=cpu}"],
        cost: Per::ByteOf(CHUNK as u64),
        calls: &[],
        about: "load by processor `to`, in order, of every word of lines that `from` has just modified",
        source: "own: a consumer's cost of data in its producer's cache",
        prepare: read_remote,
    },
];

/// A line passed to the other processor, or passed back.
fn transfer(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (from, to) = processor::pair(id, setting)?;
    pin(from)?;
    setting.cpu = from;
    let page = Buffer::shared(PAGE / 2, &mut setting.rng)?;
    let turns = Shared::new(Turns::default())?;
    if setting.rng.random() {
        line(&page).store(0, Ordering::SeqCst);
    }
    let partner = Partner::fork(to, || {
        line(&page).fetch_add(0, Ordering::SeqCst);
        turns.say_where();
        hand_back(line(&page))
    })?;
    turns.expect_on(to)?;
    let sharing = Sharing::TwoCpus { partner: partner.pid(), cpu: to };
    let operation = Transfer { page, _partner: partner, from, turn: 0, done: 0 };
    Ok(Prepared { operation: Box::new(operation), baseline: None, sharing })
}

/// Reads a chunk of the lines that the other processor has modified.
fn read_remote(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (from, to) = processor::pair(id, setting)?;
    let set = WorkingSet::of(id, setting, Course::Sweep)?.bytes;
    let chunks = set / CHUNK;
    if chunks < 2 {
        return Err(Refusal::Unavailable(format!(
            "a set of {set} B is less than two operations of {CHUNK} B; specify a larger one"
        )));
    }
    pin(to)?;
    setting.cpu = to;
    let buffer = Buffer::shared(chunks * CHUNK, &mut setting.rng)?;
    let turns = Shared::new(Turns::default())?;
    let partner = Partner::fork(from, || {
        turns.say_where();
        modify_when_asked(&buffer, chunks, &turns)
    })?;
    turns.expect_on(from)?;
    let sharing = Sharing::TwoCpus { partner: partner.pid(), cpu: from };
    let operation = ReadRemote { buffer, turns, _partner: partner, chunks, to, sum: 0, done: 0 };
    Ok(Prepared { operation: Box::new(operation), baseline: None, sharing })
}

/// Messages between the two processes, separate from the timed data.
#[derive(Default)]
struct Turns {
    /// The partner's processor, plus one.
    cpu: AtomicU64,
    /// Number of the requested modification.
    asked: AtomicU64,
    /// Number of the last completed modification.
    done: AtomicU64,
}

/// Timeout for any answer of the other process, after which it is considered dead.
const ANSWER_MAX_NS: u64 = 5_000_000_000;

impl Turns {
    fn say_where(&self) {
        let cpu = this_cpu().unwrap_or(u64::MAX - 1);
        self.cpu.store(cpu + 1, Ordering::SeqCst);
    }

    fn expect_on(&self, cpu: usize) -> io::Result<()> {
        wait_until(|| self.cpu.load(Ordering::SeqCst) != 0)?;
        let on = self.cpu.load(Ordering::SeqCst) - 1;
        if on == cpu as u64 {
            Ok(())
        } else {
            Err(io::Error::other(format!("the other process is on processor {on} instead of {cpu}")))
        }
    }
}

/// Returns the processor on which this thread runs, from the vDSO.
fn this_cpu() -> io::Result<u64> {
    // SAFETY: the call has no arguments.
    let cpu = check("sched_getcpu", unsafe { libc::sched_getcpu() })?;
    Ok(u64::from(cpu.unsigned_abs()))
}

fn expect_here(cpu: usize) -> io::Result<()> {
    let on = this_cpu()?;
    if on == cpu as u64 {
        Ok(())
    } else {
        Err(io::Error::other(format!("this process is on processor {on} instead of {cpu}")))
    }
}

fn wait_until(true_at_last: impl Fn() -> bool) -> io::Result<()> {
    let begun = now_ns();
    while !true_at_last() {
        if now_ns() - begun > ANSWER_MAX_NS {
            return Err(io::Error::other("the process on the other processor does not respond"));
        }
        spin_loop();
    }
    Ok(())
}

/// Returns the first word of a shared buffer.
fn line(buffer: &Buffer) -> &AtomicU64 {
    // SAFETY: the buffer begins at a line, is longer than a word and is used through atomics only.
    unsafe { AtomicU64::from_ptr(buffer.base().cast()) }
}

/// The main loop of the partner: waits for an odd turn and sets the next one.
fn hand_back(line: &AtomicU64) -> ! {
    let mut turn = 1;
    loop {
        while line.load(Ordering::Acquire) != turn {}
        line.store(turn + 1, Ordering::Release);
        turn += 2;
    }
}

/// Number of loops without an answer after which the partner is considered dead: a second or more.
const LOOKS_MAX: u64 = 1 << 31;

struct Transfer {
    page: Buffer,
    _partner: Partner,
    from: usize,
    /// The last turn, which the partner has set.
    turn: u64,
    done: u64,
}

impl Operation for Transfer {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let (line, first) = (line(&self.page), self.turn);
        for round in 0..operations / 2 {
            let turn = first + 2 * round + 1;
            line.store(turn, Ordering::Release);
            let mut looks = 0;
            while line.load(Ordering::Acquire) != turn + 1 {
                looks += 1;
                if looks == LOOKS_MAX {
                    return Err(io::Error::other(
                        "the process on the other processor does not pass the line back",
                    ));
                }
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        self.turn += operations;
        let seen = line(&self.page).load(Ordering::Acquire);
        if seen != self.turn {
            return Err(io::Error::other(format!("the line is at turn {seen} instead of {}", self.turn)));
        }
        expect_here(self.from)
    }

    fn granule(&self) -> u64 {
        2
    }
}

/// The main loop of the partner: overwrites every word of the set on request.
fn modify_when_asked(buffer: &Buffer, chunks: usize, turns: &Turns) -> ! {
    let mut done = 0;
    loop {
        while turns.asked.load(Ordering::Acquire) == done {
            spin_loop();
        }
        done += 1;
        // SAFETY: the words of the buffer, which the other process reads only after the completion is
        // reported.
        unsafe { number_words(buffer.base().cast(), chunks, first_of(done)) };
        turns.done.store(done, Ordering::Release);
    }
}

/// Returns the value of the first word after this modification.
fn first_of(modification: u64) -> u64 {
    modification.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct ReadRemote {
    buffer: Buffer,
    turns: Shared<Turns>,
    _partner: Partner,
    chunks: usize,
    to: usize,
    sum: u64,
    done: u64,
}

impl Operation for ReadRemote {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.sum = 0;
        let asked = self.turns.asked.fetch_add(1, Ordering::AcqRel) + 1;
        wait_until(|| self.turns.done.load(Ordering::Acquire) == asked)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let chunks = usize::try_from(operations).map_err(io::Error::other)?;
        let words = self.buffer.base().cast::<u64>();
        for chunk in 0..chunks.min(self.chunks) {
            // SAFETY: the chunk is within the buffer, and the partner has reported that it has written it.
            self.sum = self.sum.wrapping_add(unsafe { read_chunk(words, chunk) });
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let first = first_of(self.turns.asked.load(Ordering::Acquire));
        let chunks = usize::try_from(operations).map_err(io::Error::other)?;
        let due = (0..chunks).map(|chunk| sum_of_chunk(first, chunk)).fold(0, u64::wrapping_add);
        if self.sum != due {
            return Err(io::Error::other(format!("the words read add up to {} instead of {due}", self.sum)));
        }
        expect_here(self.to)
    }

    /// The lines are modified once per batch, and read once.
    fn max_batch(&self) -> u64 {
        self.chunks as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepares a primitive between the first processor and the last one. `None` if these are the same, which
    /// must be rejected.
    fn prepare(id: &str) -> Option<Prepared> {
        let cpus = assay_process::cpus::allowed().unwrap();
        let [first, last] = [cpus[0], cpus[cpus.len() - 1]];
        let id = id.replace("{0}", &first.to_string()).replace("{1}", &last.to_string());
        let mut setting =
            crate::primitive::kit::working_set::tests::setting(crate::platform::describe::caches());
        setting.cpus = cpus;
        let id: PrimitiveId = id.parse().unwrap();
        let prepare = if id.operation() == "transfer_line" { transfer } else { read_remote };
        let prepared = prepare(&id, &mut setting);
        if first == last {
            let refusal = prepared.err().unwrap().to_string();
            assert!(refusal.contains("one processor only"), "{refusal}");
            return None;
        }
        Some(prepared.unwrap())
    }

    /// Runs a test in a separate thread, because it binds the thread to a processor.
    fn in_a_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(test).join().unwrap();
        });
    }

    #[test]
    fn a_line_is_passed_back_and_a_missing_transfer_is_detected() {
        in_a_thread(|| {
            let Some(prepared) = prepare("cache.transfer_line{from={0},to={1}}") else { return };
            let mut operation = prepared.operation;
            for length in [2, 4, 100] {
                operation.run(length).unwrap();
                operation.disarm(length).unwrap();
            }
            assert!(operation.disarm(2).unwrap_err().to_string().contains("0 of 2 operations"));
        });
    }

    #[test]
    fn every_batch_reads_the_words_that_the_other_processor_wrote() {
        in_a_thread(|| {
            let Some(prepared) = prepare("cache.read_remote{set=64KiB,from={0},to={1}}") else { return };
            let mut operation = prepared.operation;
            assert_eq!(operation.max_batch(), 16);
            for length in [1, 16, 16, 3] {
                operation.arm(length).unwrap();
                operation.run(length).unwrap();
                operation.disarm(length).unwrap();
            }
            operation.arm(4).unwrap();
            operation.run(3).unwrap();
            assert!(operation.disarm(4).is_err());
        });
    }
}
