//! The cost of a wake-up to the waker: the part of a send or an unlock that the same call does not have if
//! there is no sleeper.
//!
//! `process.wakeup{cpus=different}` and `tcp.wakeup`: the partner sleeps on another processor, which is
//! otherwise idle. One operation is a wake-up and then a pause of [`NAP_NS`], during which this process stays
//! awake; the baseline, a call that wakes no process, is followed by the same pause, so that the pause
//! cancels. During the pause the partner wakes up, reports this, falls asleep again and leaves its processor
//! idle. The cost of the next wake-up depends on how deep that processor sleeps by then: `wakeup_deep` pauses
//! for [`DEEP_NAP_NS`]. Before each wake-up the partner has reported the previous one, and after each batch
//! its own count of voluntary switches shows that it really slept before all but a few. An operation
//! therefore includes the kernel's search for the sleeper, the enqueueing of the sleeper in the run queue of
//! the other processor, and the interrupt or the flag that ends the idling of that processor; it includes
//! neither the time until the sleeper runs nor the sleeper's own work. `tcp.wakeup` adds the path from the
//! socket to `epoll_wait`; its baseline is a write to a reader that is awake on the other processor.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use assay_process::Process;
use assay_process::accounting::{Who, usage};
use assay_quantity::{PrimitiveId, Size};
use rustix::event::epoll;

use crate::benchmark::{Disturbed, Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::kernel::expect;
use crate::platform::partner::{Partner, wait_until};
use crate::primitive::kit::futex_word::{self, Scope};
use crate::primitive::kit::peer::PeerConnections;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::socket::Listener;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["process.wakeup{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`FUTEX_WAKE` of a process that sleeps on another processor, idle for 50 us, less one without \
                a sleeper",
        source: "own: the cost of a request in addition to its bytes if its reader sleeps",
        prepare: wake_after_a_nap,
    },
    Row {
        quick: &["process.wakeup_deep{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`FUTEX_WAKE` of a process that sleeps on another processor, idle for 1 ms, less one without \
                a sleeper",
        source: "own: the cost of ending an idle state",
        prepare: wake_from_deep_sleep,
    },
    Row {
        quick: &["tcp.wakeup{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["write"],
        about: "`write` of 256 bytes to a TCP connection whose reader sleeps in `epoll_wait` on another \
                processor, idle for 50 us, less a write to a reader that is awake there",
        source: "own: the cost of a response in addition to its bytes if its client sleeps",
        prepare: send_after_a_nap,
    },
    Row {
        quick: &["tcp.wakeup_deep{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["write"],
        about: "`write` of 256 bytes to a TCP connection whose reader sleeps in `epoll_wait` on another \
                processor, idle for 1 ms, less a write to a reader that is awake there",
        source: "own: the cost of ending an idle state",
        prepare: send_into_deep_sleep,
    },
];

/// Pause after a wake-up, ns: several times longer than a sleeper takes to wake up and fall asleep again, and
/// about the time between the requests of a busy client.
pub(super) const NAP_NS: u64 = 50_000;

/// Pause after which an idle processor is in a deeper state: longer than kernels and hypervisors poll for
/// work before they stop it (0.2 ms each by default).
pub(super) const DEEP_NAP_NS: u64 = 1_000_000;

fn wake_after_a_nap(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    wake_elsewhere(id, setting, NAP_NS)
}

fn wake_from_deep_sleep(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    wake_elsewhere(id, setting, DEEP_NAP_NS)
}

fn send_after_a_nap(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    send_elsewhere(id, setting, NAP_NS)
}

fn send_into_deep_sleep(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    send_elsewhere(id, setting, DEEP_NAP_NS)
}

/// Prepares `FUTEX_WAKE` of a process on another processor.
fn wake_elsewhere(id: &PrimitiveId, setting: &mut Setting, pause_ns: u64) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)])?);
    let theirs = words.clone();
    let mut seen = 0;
    let sleeper = Sleeper::fork(cpu, move || {
        while theirs[0].load(Ordering::Acquire) == seen {
            futex_word::wait_while(&theirs[0], seen, Scope::Shared)?;
        }
        seen = seen.wrapping_add(1);
        Ok(())
    })?;
    let unused = words.clone();
    let wake = move |_| wake_up(&words[0], 0..=1);
    let wake_none = move |_| wake_up(&unused[1], 0..=0);
    let sharing = sharing(setting, cpu, &sleeper.partner);
    Ok(Prepared {
        operation: Box::new(Wakes::new(wake, &sleeper, 1, pause_ns)),
        baseline: Some(Box::new(Wakes::new(wake_none, &sleeper, 0, pause_ns))),
        sharing,
    })
}

/// Changes a word and wakes its sleeper. A sleeper that is late is not found, but sees the change; the number
/// of these cases is checked after the batch.
#[inline]
fn wake_up(word: &AtomicU32, sleepers: RangeInclusive<libc::c_long>) -> io::Result<()> {
    word.fetch_add(1, Ordering::Release);
    let woken = futex_word::wake(word, Scope::Shared)?;
    if sleepers.contains(&woken) { Ok(()) } else { Err(too_many(woken)) }
}

#[cold]
fn too_many(woken: libc::c_long) -> io::Error {
    io::Error::other(format!("futex woke {woken} sleepers, more than exist"))
}

/// Bytes of the writes of `tcp.wakeup`: a small response.
const RESPONSE: usize = 256;

/// Prepares `write` to a reader on another processor that sleeps in `epoll_wait`.
fn send_elsewhere(id: &PrimitiveId, setting: &mut Setting, pause_ns: u64) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let (socket, reader) = Listener::open(1)?.pair()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    epoll::add(&poll, &reader, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
        .map_err(io::Error::from)?;
    let sleeper = Sleeper::fork(cpu, move || read_when_ready(&poll, &reader))?;
    let write = move |_| {
        // SAFETY: the pointer and the length are those of an array.
        let sent = unsafe { libc::write(socket.as_raw_fd(), [0_u8; RESPONSE].as_ptr().cast(), RESPONSE) };
        expect("write", sent, RESPONSE)
    };
    let awake = Rc::new(PeerConnections::sending(cpu, Size(RESPONSE as u64))?);
    let peer = awake.clone();
    let write_to_awake = move |number| peer.wire(number).write(&[0; RESPONSE]);
    let sharing = sharing(setting, cpu, &sleeper.partner);
    Ok(Prepared {
        operation: Box::new(Wakes::new(write, &sleeper, 1, pause_ns)),
        baseline: Some(Box::new(Awake {
            writes: Wakes::new(write_to_awake, &sleeper, 0, pause_ns),
            peer: awake,
        })),
        sharing,
    })
}

/// Sleeps until a response has arrived, and reads it.
fn read_when_ready(poll: &OwnedFd, reader: &OwnedFd) -> io::Result<()> {
    // SAFETY: zeroes are a valid `epoll_event`, and the kernel writes at most one of them.
    let ready = unsafe {
        let mut event: libc::epoll_event = std::mem::zeroed();
        libc::epoll_wait(poll.as_raw_fd(), &raw mut event, 1, -1)
    };
    expect("epoll_wait", ready as isize, 1)?;
    let mut response = [0_u8; RESPONSE];
    // SAFETY: the pointer and the length are those of an array.
    let got = unsafe { libc::read(reader.as_raw_fd(), response.as_mut_ptr().cast(), RESPONSE) };
    expect("read", got, RESPONSE)
}

/// A process that sleeps until it is woken, reports this, and sleeps again.
struct Sleeper {
    board: Shared<Board>,
    partner: Partner,
}

/// What the sleeper reports.
#[derive(Debug, Default)]
struct Board {
    /// Voluntary switches since it began.
    switches: AtomicU64,
    /// Number of wake-ups, plus one once it has begun.
    wakes: AtomicU64,
}

impl Sleeper {
    /// Forks a process that calls `nap` repeatedly, and waits until it is asleep.
    fn fork(cpu: usize, mut nap: impl FnMut() -> io::Result<()>) -> io::Result<Rc<Self>> {
        let board = Shared::new(Board::default())?;
        let partner = Partner::fork(cpu, || {
            while let Ok(usage) = usage(Who::Process) {
                board.switches.store(usage.voluntary_switches, Ordering::Relaxed);
                board.wakes.fetch_add(1, Ordering::Release);
                if nap().is_err() {
                    break;
                }
            }
            libc::EXIT_FAILURE
        })?;
        // From here on only the sleeper has the resources on which it waits.
        drop(nap);
        let sleeper = Self { board, partner };
        sleeper.wait_until_asleep()?;
        Ok(Rc::new(sleeper))
    }

    fn wait_until_asleep(&self) -> io::Result<()> {
        let is_asleep = || {
            let asleep = Process::read(self.partner.pid())?.is_some_and(|sleeper| sleeper.is_asleep());
            Ok(asleep && self.board.wakes.load(Ordering::Acquire) > 0)
        };
        wait_until(is_asleep, "the sleeper did not fall asleep")
    }
}

/// Time after which a sleeper that has not reported a wake-up counts as lost, ns.
const LOST_NS: u64 = 1_000_000_000;

/// One wake-up, and in addition one in this number, may find the sleeper awake, because other work prevented
/// it from falling asleep. Such wake-ups are cheaper, but too few to move the median of the slopes.
pub(super) const AWAKE_ONE_IN: u64 = 16;

/// Wake-ups, each followed by a pause.
struct Wakes<W> {
    /// The call that wakes the sleeper, or none; its argument is the number of the operation, from 0.
    wake: W,
    sleeper: Rc<Sleeper>,
    /// Number of sleepers that one call wakes: 1, or 0 for the baseline.
    sleepers: u64,
    pause_ns: u64,
    /// The counts that the sleeper reported before this batch.
    wakes_before: u64,
    switches_before: u64,
    done: u64,
    /// Pauses of the batch that were extended because the sleeper was late.
    extended: u64,
}

impl<W: FnMut(usize) -> io::Result<()>> Wakes<W> {
    fn new(wake: W, sleeper: &Rc<Sleeper>, sleepers: u64, pause_ns: u64) -> Self {
        Self {
            wake,
            sleeper: sleeper.clone(),
            sleepers,
            pause_ns,
            wakes_before: 0,
            switches_before: 0,
            done: 0,
            extended: 0,
        }
    }

    /// Stays awake until the pause is over and the sleeper has reported this many wake-ups. If the sleeper is
    /// late, the whole pause is repeated, so that it sleeps before the next wake-up; the batch is then
    /// disturbed, because the pause is not part of a wake-up.
    #[inline]
    fn pause(&mut self, wakes: u64) -> io::Result<()> {
        let begun_ns = monotonic::now_ns();
        let mut pause_begun_ns = begun_ns;
        let mut extended = 0;
        loop {
            std::hint::spin_loop();
            let now_ns = monotonic::now_ns();
            if now_ns.saturating_sub(pause_begun_ns) < self.pause_ns {
                continue;
            }
            if self.sleeper.board.wakes.load(Ordering::Acquire) == wakes {
                self.extended += extended;
                return Ok(());
            }
            if now_ns.saturating_sub(begun_ns) > LOST_NS {
                return Err(io::Error::other("the sleeper was woken, but did not report this within 1 s"));
            }
            pause_begun_ns = now_ns;
            extended = 1;
        }
    }
}

impl<W: FnMut(usize) -> io::Result<()>> Operation for Wakes<W> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.wakes_before = self.sleeper.board.wakes.load(Ordering::Acquire);
        self.switches_before = self.sleeper.board.switches.load(Ordering::Relaxed);
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut wakes = self.wakes_before;
        for (_, number) in (0..operations).zip(0..) {
            (self.wake)(number)?;
            wakes += self.sleepers;
            self.pause(wakes)?;
        }
        self.done = operations;
        Ok(())
    }

    /// Checks that every wake-up arrived, that the sleeper was asleep before all but a few, and that it
    /// reported each of them in time.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let due = operations * self.sleepers;
        let wakes = self.sleeper.board.wakes.load(Ordering::Acquire) - self.wakes_before;
        if wakes != due {
            return Err(io::Error::other(format!("{wakes} of {due} wake-ups arrived")));
        }
        let (extended, pause_ns) = (std::mem::take(&mut self.extended), self.pause_ns);
        if extended > 0 {
            return Err(Disturbed::error(format!(
                "the sleeper was late in {extended} of {operations} pauses of {pause_ns} ns"
            )));
        }
        let naps = self.sleeper.board.switches.load(Ordering::Relaxed) - self.switches_before;
        if naps + 1 + due / AWAKE_ONE_IN < due {
            return Err(Disturbed::error(format!("{naps} of {due} wake-ups found the sleeper asleep")));
        }
        Ok(())
    }
}

/// Writes to a peer that is awake on the processor of the sleeper. The sleeper is not woken.
struct Awake<W> {
    writes: Wakes<W>,
    peer: Rc<PeerConnections>,
}

impl<W: FnMut(usize) -> io::Result<()>> Operation for Awake<W> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.serve(operations)?;
        self.peer.read_answers(operations)?;
        self.writes.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.writes.run(operations)
    }

    /// Leaves the processor idle for as long as before any wake-up.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.check_arrived(operations)?;
        self.peer.rest()?;
        self.writes.pause(self.writes.wakes_before)?;
        self.writes.disarm(operations)
    }

    fn max_batch(&self) -> u64 {
        self.peer.max_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_sleeper(words: &Rc<Shared<[AtomicU32; 2]>>) -> Rc<Sleeper> {
        let theirs = words.clone();
        let mut seen = 0;
        let cpu = assay_process::cpus::allowed().unwrap().pop().unwrap();
        Sleeper::fork(cpu, move || {
            while theirs[0].load(Ordering::Acquire) == seen {
                futex_word::wait_while(&theirs[0], seen, Scope::Shared)?;
            }
            seen += 1;
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn every_wakeup_finds_the_sleeper_asleep_and_one_without_a_sleeper_wakes_none() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let calls: [&dyn Fn(usize) -> io::Result<()>; 2] =
            [&|_| wake_up(&words[0], 0..=1), &|_| wake_up(&words[1], 0..=0)];
        for (call, sleepers) in calls.into_iter().zip([1, 0]) {
            let mut wakes = Wakes::new(call, &sleeper, sleepers, NAP_NS);
            for operations in [1, 20] {
                // A busy machine may delay the sleeper. At least one of a hundred batches is undisturbed.
                let passes = (0..100).any(|_| {
                    wakes.arm(operations).unwrap();
                    wakes.run(operations).unwrap();
                    let result = wakes.disarm(operations);
                    assert!(result.as_ref().err().is_none_or(Disturbed::is), "{result:?}");
                    result.is_ok()
                });
                assert!(passes);
            }
            assert!(wakes.disarm(1).is_err());
        }
    }

    #[test]
    fn a_batch_that_waited_for_a_late_sleeper_is_disturbed() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let is_due = std::sync::Barrier::new(2);
        let wake = |_| {
            is_due.wait();
            Ok(())
        };
        let mut late = Wakes::new(wake, &sleeper, 1, 0);
        late.arm(1).unwrap();
        std::thread::scope(|scope| {
            let (word, is_due) = (&words[0], &is_due);
            scope.spawn(move || {
                is_due.wait();
                // Much longer than the pause takes to begin, and too short for the sleeper to count as lost.
                std::thread::sleep(std::time::Duration::from_nanos(LOST_NS / 2));
                wake_up(word, 0..=1).unwrap();
            });
            late.run(1).unwrap();
        });
        let error = late.disarm(1).unwrap_err();
        assert!(Disturbed::is(&error));
        let message = "the sleeper was late in 1 of 1 pauses of 0 ns";
        assert_eq!((error.to_string(), late.extended), (message.to_owned(), 0));
    }

    #[test]
    fn a_wakeup_that_did_not_arrive_or_found_the_sleeper_awake_is_an_error() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let mut wakes = Wakes::new(|_| Ok(()), &sleeper, 1, NAP_NS);
        wakes.arm(40).unwrap();
        wakes.done = 40;
        let error = wakes.disarm(40).unwrap_err();
        assert!(!Disturbed::is(&error));
        assert_eq!(error.to_string(), "0 of 40 wake-ups arrived");
        // All wake-ups are reported, but the sleeper slept less often.
        sleeper.board.wakes.fetch_add(40, Ordering::Release);
        for (naps, accepted) in [(36, false), (37, true)] {
            sleeper.board.switches.store(wakes.switches_before + naps, Ordering::Relaxed);
            wakes.done = 40;
            let disturbed = wakes.disarm(40).is_err_and(|error| Disturbed::is(&error));
            assert_eq!(disturbed, !accepted, "{naps} naps for 40 wake-ups");
        }
    }

    #[test]
    fn writes_to_a_peer_that_is_awake_wake_no_process_and_leave_its_processor_idle() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let peer = Rc::new(PeerConnections::sending(cpu, Size(RESPONSE as u64)).unwrap());
        let connections = peer.clone();
        let write = move |number| connections.wire(number).write(&[0; RESPONSE]);
        let mut awake = Awake { writes: Wakes::new(write, &sleeper, 0, NAP_NS), peer };
        for operations in [2, awake.max_batch(), 1] {
            awake.arm(operations).unwrap();
            awake.run(operations).unwrap();
            awake.disarm(operations).unwrap();
            assert!(awake.peer.is_at_rest().unwrap());
        }
        assert_eq!(sleeper.board.wakes.load(Ordering::Acquire), 1);
    }
}
