//! What waking a sleeper costs the one who wakes: the part of a send or an unlock that the same call does not
//! have when nobody sleeps.
//!
//! `process.wakeup{cpus=different}` and `tcp.wakeup`: the partner sleeps on another processor, which is otherwise
//! idle. One operation is the wake and then a pause of [`NAP_NS`], for which this process stays awake; the same
//! pause follows the call that wakes nobody, so that it drops out of the difference. The pause lets the partner
//! wake up, tell that it did, go to sleep again and leave its processor idle. How deep that processor sleeps by
//! then decides what the next wake costs: `wakeup_deep` pauses for [`DEEP_NAP_NS`]. Before each wake the partner
//! has told of the last one, and after each batch its own count of the times that it gave the processor up shows
//! that it really slept before all but a few. So an operation contains the kernel's search for the sleeper, its way
//! into the run queue of the other processor, and the interrupt or the flag that brings that processor out of
//! idling; it contains neither the time until the sleeper runs nor the sleeper's own work. What `tcp.wakeup` adds
//! is the way from the socket to `epoll_wait`, and the connection's lines, which the reader's processor has had
//! in the meantime: all that `tcp.send`, whose reader is not asleep but absent, does not know.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use assay_process::Process;
use assay_process::accounting::{Who, usage};
use assay_quantity::PrimitiveId;
use rustix::event::epoll;

use super::futex::{self, Scope};
use super::placement::{partner_cpu, sharing};
use super::shared::Shared;
use super::socket::Listener;
use super::wire::Wire;
use crate::benchmark::{Disturbed, Operation, Prepared, Refusal, Setting, expect_done};
use crate::clock::monotonic;
use crate::kernel::expect;
use crate::partner::Partner;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["process.wakeup{cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["futex"],
        about: "FUTEX_WAKE of a process that sleeps on another processor, idle for 50 us, less one that wakes \
                nobody: the waker's share",
        source: "own: what a request costs beside its bytes when its reader sleeps",
        prepare: wake_after_a_nap,
    },
    Row {
        ids: &["process.wakeup_deep{cpus=different}"],
        profile: Profile::Full,
        cost: Per::Operation,
        calls: &["futex"],
        about: "FUTEX_WAKE of a process that sleeps on another processor, idle for 1 ms, less one that wakes \
                nobody: the waker's share",
        source: "own: idle states cost those who end them",
        prepare: wake_from_deep_sleep,
    },
    Row {
        ids: &["tcp.wakeup{cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["write"],
        about: "write of 256 bytes to a TCP connection whose reader sleeps in epoll_wait on another processor, \
                idle for 50 us, less a write that nobody reads",
        source: "own: what a response costs beside its bytes when its client sleeps",
        prepare: send_after_a_nap,
    },
    Row {
        ids: &["tcp.wakeup_deep{cpus=different}"],
        profile: Profile::Full,
        cost: Per::Operation,
        calls: &["write"],
        about: "write of 256 bytes to a TCP connection whose reader sleeps in epoll_wait on another processor, \
                idle for 1 ms, less a write that nobody reads",
        source: "own: idle states cost those who end them",
        prepare: send_into_deep_sleep,
    },
];

/// Pause after a wake, ns: several times what a sleeper takes to come and go, and about the time between the
/// requests of a busy client.
const NAP_NS: u64 = 50_000;

/// Pause after which an idle processor is in a deeper state: beyond the times that kernels and hypervisors poll
/// for work before they stop it (0.2 ms each by default).
const DEEP_NAP_NS: u64 = 1_000_000;

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

/// `FUTEX_WAKE` of a process on another processor.
fn wake_elsewhere(id: &PrimitiveId, setting: &mut Setting, pause_ns: u64) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)])?);
    let theirs = words.clone();
    let mut seen = 0;
    let sleeper = Sleeper::fork(cpu, move || {
        while theirs[0].load(Ordering::Acquire) == seen {
            futex::wait_while(&theirs[0], seen, Scope::Shared)?;
        }
        seen = seen.wrapping_add(1);
        Ok(())
    })?;
    let nobodys = words.clone();
    let wake = move || wake_up(&words[0], 0..=1);
    let wake_none = move || wake_up(&nobodys[1], 0..=0);
    let sharing = sharing(setting, cpu, &sleeper.partner);
    Ok(Prepared {
        operation: Box::new(Wakes::new(wake, &sleeper, 1, pause_ns)),
        baseline: Some(Box::new(Wakes::new(wake_none, &sleeper, 0, pause_ns))),
        sharing,
    })
}

/// Changes a word and wakes who sleeps on it. A sleeper that is late for its nap is not found, and sees the change;
/// how often that happened is looked at after the batch.
#[inline]
fn wake_up(word: &AtomicU32, sleepers: RangeInclusive<libc::c_long>) -> io::Result<()> {
    word.fetch_add(1, Ordering::Release);
    let woken = futex::wake(word, Scope::Shared)?;
    if sleepers.contains(&woken) { Ok(()) } else { Err(too_many(woken)) }
}

#[cold]
fn too_many(woken: libc::c_long) -> io::Error {
    io::Error::other(format!("futex woke {woken} sleepers, which is more than there are"))
}

/// Bytes of the writes of `tcp.wakeup`: a small response.
const RESPONSE: usize = 256;

/// Buffers of the connection that nobody reads.
const BUFFER_BYTES: i32 = 1 << 20;

/// Writes of its longest batch: a few milliseconds of short naps, and as many deep ones as a sample has time for.
const UNREAD_MAX: usize = 64;

/// `write` to a reader on another processor that sleeps in `epoll_wait`.
fn send_elsewhere(id: &PrimitiveId, setting: &mut Setting, pause_ns: u64) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let (socket, reader) = Listener::open(1)?.pair()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    epoll::add(&poll, &reader, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
        .map_err(io::Error::from)?;
    let sleeper = Sleeper::fork(cpu, move || read_when_ready(&poll, &reader))?;
    let write = move || {
        // SAFETY: the pointer and the length are those of an array.
        let sent = unsafe { libc::write(socket.as_raw_fd(), [0_u8; RESPONSE].as_ptr().cast(), RESPONSE) };
        expect("write", sent, RESPONSE)
    };
    let unread = Wire::open(BUFFER_BYTES)?;
    unread.use_reno()?;
    let longest = unread.open_window(RESPONSE, UNREAD_MAX)?.ok_or_else(|| {
        Refusal::Unavailable(
            "two writes of 256 bytes do not arrive at once; raise net.core.rmem_max".to_owned(),
        )
    })?;
    let unread = Rc::new(unread);
    let writer = unread.clone();
    let write_unread = move || writer.write(&[0; RESPONSE]);
    let sharing = sharing(setting, cpu, &sleeper.partner);
    Ok(Prepared {
        operation: Box::new(Wakes::new(write, &sleeper, 1, pause_ns)),
        baseline: Some(Box::new(Unread {
            writes: Wakes::new(write_unread, &sleeper, 0, pause_ns),
            wire: unread,
            longest,
        })),
        sharing,
    })
}

/// Sleeps until a response is there, and takes it.
fn read_when_ready(poll: &OwnedFd, reader: &OwnedFd) -> io::Result<()> {
    // SAFETY: zeroes are a value of `epoll_event`, and the kernel writes at most one of them.
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

/// A process that sleeps until it is woken, tells so, and sleeps again.
struct Sleeper {
    board: Shared<Board>,
    partner: Partner,
}

/// What the sleeper tells.
#[derive(Debug, Default)]
struct Board {
    /// Processor given up of its own accord since it began.
    switches: AtomicU64,
    /// Times that it was woken, plus one once it has begun.
    wakes: AtomicU64,
}

/// Looks, a tenth of a millisecond apart, for a sleeper that is asleep: two seconds.
const LOOKS: u32 = 20_000;

impl Sleeper {
    /// Forks a process that takes nap after nap, and waits until it is asleep.
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
        // What the sleeper waits for belongs to it alone from here on.
        drop(nap);
        let sleeper = Self { board, partner };
        sleeper.wait_until_asleep()?;
        Ok(Rc::new(sleeper))
    }

    fn wait_until_asleep(&self) -> io::Result<()> {
        for _ in 0..LOOKS {
            let asleep = Process::read(self.partner.pid())?.is_some_and(|sleeper| sleeper.is_asleep());
            if asleep && self.board.wakes.load(Ordering::Acquire) > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(io::Error::other("the sleeper does not fall asleep"))
    }
}

/// A sleeper that has not told of a wake after so long is lost, ns.
const LOST_NS: u64 = 1_000_000_000;

/// One wake and one in so many may find the sleeper awake, because something else kept it from its nap: they are the
/// cheaper ones, and so few do not move the median of the slopes.
const AWAKE_ONE_IN: u64 = 16;

/// Wakes, each followed by a pause.
struct Wakes<W> {
    wake: W,
    sleeper: Rc<Sleeper>,
    /// Sleepers that one call wakes: the one there is, or none.
    sleepers: u64,
    pause_ns: u64,
    /// What the sleeper told before this batch.
    wakes_before: u64,
    switches_before: u64,
    done: u64,
    /// Pauses of the batch that took longer because the sleeper was late.
    extended: u64,
}

impl<W: FnMut() -> io::Result<()>> Wakes<W> {
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

    /// Stays awake until the pause is over and the sleeper has told of so many wakes. One that was late gets the
    /// whole pause again, so that it sleeps before the next wake; the batch is disturbed then, because the pause is no
    /// part of a wake.
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
                return Err(io::Error::other("the sleeper was woken and did not tell so"));
            }
            pause_begun_ns = now_ns;
            extended = 1;
        }
    }
}

impl<W: FnMut() -> io::Result<()>> Operation for Wakes<W> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.wakes_before = self.sleeper.board.wakes.load(Ordering::Acquire);
        self.switches_before = self.sleeper.board.switches.load(Ordering::Relaxed);
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut wakes = self.wakes_before;
        for _ in 0..operations {
            (self.wake)()?;
            wakes += self.sleepers;
            self.pause(wakes)?;
        }
        self.done = operations;
        Ok(())
    }

    /// Every wake has arrived, found a sleeper that had given the processor up, and been told of in time.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let due = operations * self.sleepers;
        let wakes = self.sleeper.board.wakes.load(Ordering::Acquire) - self.wakes_before;
        if wakes != due {
            return Err(io::Error::other(format!("of {due} wakes {wakes} arrived")));
        }
        let (extended, pause_ns) = (std::mem::take(&mut self.extended), self.pause_ns);
        if extended > 0 {
            return Err(Disturbed::error(format!(
                "in {extended} of {operations} pauses of {pause_ns} ns the sleeper had not told of its wake"
            )));
        }
        let naps = self.sleeper.board.switches.load(Ordering::Relaxed) - self.switches_before;
        if naps + 1 + due / AWAKE_ONE_IN < due {
            return Err(Disturbed::error(format!("of {due} wakes {naps} found the sleeper asleep")));
        }
        Ok(())
    }
}

/// Writes to a connection that nobody reads until the batch has ended.
struct Unread<W> {
    writes: Wakes<W>,
    wire: Rc<Wire>,
    longest: u64,
}

impl<W: FnMut() -> io::Result<()>> Operation for Unread<W> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.writes.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.writes.run(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let bytes = operations * RESPONSE as u64;
        self.wire.check_arrived(bytes)?;
        self.wire.drain(bytes)?;
        self.writes.disarm(operations)
    }

    fn max_batch(&self) -> u64 {
        self.longest
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
                futex::wait_while(&theirs[0], seen, Scope::Shared)?;
            }
            seen += 1;
            Ok(())
        })
        .unwrap()
    }

    #[test]
    fn every_wake_finds_the_sleeper_asleep_and_one_for_nobody_wakes_nobody() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let calls: [&dyn Fn() -> io::Result<()>; 2] =
            [&|| wake_up(&words[0], 0..=1), &|| wake_up(&words[1], 0..=0)];
        for (call, sleepers) in calls.into_iter().zip([1, 0]) {
            let mut wakes = Wakes::new(call, &sleeper, sleepers, NAP_NS);
            for operations in [1, 20] {
                // A busy machine may keep the sleeper from its processor: of a hundred batches, once it does not.
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
        let wake = || {
            is_due.wait();
            Ok(())
        };
        let mut late = Wakes::new(wake, &sleeper, 1, 0);
        late.arm(1).unwrap();
        std::thread::scope(|scope| {
            let (word, is_due) = (&words[0], &is_due);
            scope.spawn(move || {
                is_due.wait();
                // Far longer than the pause needs to begin, and not so long that the sleeper is lost.
                std::thread::sleep(Duration::from_nanos(LOST_NS / 2));
                wake_up(word, 0..=1).unwrap();
            });
            late.run(1).unwrap();
        });
        let error = late.disarm(1).unwrap_err();
        assert!(Disturbed::is(&error));
        let told = "in 1 of 1 pauses of 0 ns the sleeper had not told of its wake";
        assert_eq!((error.to_string(), late.extended), (told.to_owned(), 0));
    }

    #[test]
    fn a_wake_that_the_sleeper_did_not_sleep_for_is_refused() {
        let words = Rc::new(Shared::new([AtomicU32::new(0), AtomicU32::new(0)]).unwrap());
        let sleeper = a_sleeper(&words);
        let mut wakes = Wakes::new(|| Ok(()), &sleeper, 1, NAP_NS);
        wakes.arm(40).unwrap();
        wakes.done = 40;
        let error = wakes.disarm(40).unwrap_err();
        assert!(!Disturbed::is(&error));
        assert_eq!(error.to_string(), "of 40 wakes 0 arrived");
        // Told of, but not slept for as often.
        sleeper.board.wakes.fetch_add(40, Ordering::Release);
        for (naps, accepted) in [(36, false), (37, true)] {
            sleeper.board.switches.store(wakes.switches_before + naps, Ordering::Relaxed);
            wakes.done = 40;
            let disturbed = wakes.disarm(40).is_err_and(|error| Disturbed::is(&error));
            assert_eq!(disturbed, !accepted, "{naps} naps for 40 wakes");
        }
    }
}
