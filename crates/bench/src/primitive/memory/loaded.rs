//! Loaded latency: a load while a neighbour keeps the memory busy (the term of Intel's Memory Latency Checker
//! and of multichase).
//!
//! The neighbour is a process on another processor. It reads its own memory one piece at a time, and waits
//! after each piece so that reading takes the given share of the time. At 0 per cent it only waits, so that
//! the only difference from 100 per cent is the traffic. The share refers to the bandwidth that a single
//! processor can use, not to the bandwidth of the memory.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::{Key, PrimitiveId};

use super::load::Lap;
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::clock::monotonic::now_ns;
use crate::platform::layout::{Buffer, LINE};
use crate::platform::partner::Partner;
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["memory.load{level=dram,load=100}"],
    full: &["memory.load{level=dram,load=0|50|100}"],
    cost: Per::Operation,
    calls: &[],
    about: "load whose address is the result of the previous load, while a process on another processor \
            reads its own memory for this percentage of the time; at 0 it only waits. The share refers to \
            the bandwidth that a single processor can use",
    source: "own: loaded latency as in multichase and MLC",
    prepare: load,
}];

/// One dependent load during a neighbour's traffic.
fn load(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let share = id.number(Key::Load).filter(|share| *share <= 100).ok_or_else(|| {
        Refusal::Unavailable(format!("the load of {id} is not a share between 0 and 100 per cent"))
    })?;
    let cpu = setting.other_cpu.ok_or_else(|| {
        Refusal::Unavailable("this process may use one processor only, but two are required".to_owned())
    })?;
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    // The neighbour prepares itself while this process does.
    let traffic = Traffic::start(cpu, share, set.bytes)?;
    let lap = Lap::of_lines(set, setting)?;
    traffic.expect_flowing()?;
    let chase = lap.chase::<1>()?;
    let sharing = Sharing::TwoCpus { partner: traffic.partner.pid(), cpu };
    Ok(Prepared { operation: Box::new(Loaded { chase, traffic }), baseline: None, sharing })
}

/// The chase, and the neighbour that runs during it.
struct Loaded<O> {
    chase: O,
    traffic: Traffic,
}

impl<O: Operation> Operation for Loaded<O> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.chase.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.chase.run(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.chase.disarm(operations)?;
        self.traffic.expect_flowing()
    }

    fn max_batch(&self) -> u64 {
        self.chase.max_batch()
    }
}

/// A process that reads memory for a share of its time.
struct Traffic {
    partner: Partner,
    turns: Shared<AtomicU64>,
}

/// Bytes read at a time: about ten microseconds, a fiftieth of a batch.
const PIECE: usize = 64 << 10;

/// Duration of a turn without reading.
const IDLE_TURN_NS: u64 = 10_000;

/// Maximum duration of a turn, after which the neighbour is considered dead. Preparation takes a fraction of
/// a second.
const TURN_MAX_NS: u64 = 5_000_000_000;

impl Traffic {
    fn start(cpu: usize, share: u64, set: usize) -> io::Result<Self> {
        let turns = Shared::new(AtomicU64::new(0))?;
        let partner = Partner::fork(cpu, || {
            // In the partner's own memory: its lines must not be those of this process, found in a shared
            // cache.
            let Ok(buffer) = Buffer::aligned(set.next_multiple_of(PIECE)) else { return libc::EXIT_FAILURE };
            flow(&buffer, share, &turns)
        })?;
        Ok(Self { partner, turns })
    }

    /// Waits until the neighbour has started and finished another turn.
    fn expect_flowing(&self) -> io::Result<()> {
        let (before, begun) = (self.turns.load(Ordering::Relaxed), now_ns());
        while self.turns.load(Ordering::Relaxed) < before + 2 {
            if now_ns() - begun > TURN_MAX_NS {
                return Err(io::Error::other(
                    "the process that should keep the memory busy makes no progress",
                ));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// The main loop of the partner: alternately reads a piece and waits, forever.
fn flow(buffer: &Buffer, share: u64, turns: &AtomicU64) -> ! {
    let mut pieces = buffer.chunks(PIECE).cycle();
    loop {
        let begun = now_ns();
        let turn_ns = match (share, pieces.next()) {
            (0, _) | (_, None) => IDLE_TURN_NS,
            (share, Some(piece)) => {
                read_lines(piece);
                (now_ns() - begun) * 100 / share
            }
        };
        while now_ns() - begun < turn_ns {
            std::hint::spin_loop();
        }
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Fetches every line of a piece.
fn read_lines(piece: &[u8]) {
    for line in piece.chunks(LINE) {
        // SAFETY: this is the first byte of a slice that is not empty.
        black_box(unsafe { line.as_ptr().read_volatile() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_process::cpus::allowed;

    #[test]
    fn the_neighbour_makes_progress_whether_it_reads_or_only_waits() {
        let cpu = allowed().unwrap()[0];
        for share in [0, 50, 100] {
            let traffic = Traffic::start(cpu, share, 4 * PIECE).unwrap();
            let before = traffic.turns.load(Ordering::Relaxed);
            traffic.expect_flowing().unwrap();
            assert!(traffic.turns.load(Ordering::Relaxed) > before, "{share}");
        }
    }

    #[test]
    fn shares_above_100_and_machines_with_one_processor_are_rejected() {
        let refusal = |load: u64, other_cpu: Option<usize>| {
            let mut setting =
                crate::primitive::kit::working_set::tests::setting(crate::platform::describe::caches());
            setting.other_cpu = other_cpu;
            let id = format!("memory.load{{level=dram,load={load}}}").parse().unwrap();
            super::load(&id, &mut setting).err().unwrap().to_string()
        };
        assert!(refusal(101, Some(0)).contains("not a share between 0 and 100"));
        assert!(refusal(50, None).contains("one processor only"));
    }
}
