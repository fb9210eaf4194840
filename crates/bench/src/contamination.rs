//! Evidence that something else had the processor while a sample was timed.
//!
//! The harness calls [`Watch`] around every batch. What counts as disturbance depends on who is meant to
//! run ([`Sharing`]), because the time that a benchmark's own partner takes is part of the measurement.
//! Nothing here decides what the evidence means: that is `quantity`'s verdict.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use assay_quantity::Contamination;

/// Who is meant to run during the timed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// This process alone: whatever it waited in the run queue was somebody else's.
    Alone,
    /// This process, the children that it waits for, and the partner if there is one, all on one
    /// processor that is never idle: whatever none of them ran was somebody else's.
    OneCpu {
        /// Process id of the partner.
        partner: Option<libc::pid_t>,
    },
    /// This process and a partner on another processor: whatever either waited in its run queue beyond
    /// [`WAKEUP_NS`] per wake-up was somebody else's.
    TwoCpus {
        /// Process id of the partner.
        partner: libc::pid_t,
        /// Its processor.
        cpu: usize,
    },
}

/// Run-queue delay of one wake-up that nobody else has caused: the way from being made runnable to
/// running on an idle processor, which the kernel counts as delay. An idle virtual processor takes a few
/// microseconds; waiting for a competitor takes a scheduler slice, hundreds of microseconds or more.
pub const WAKEUP_NS: u64 = 20_000;

/// Notices disturbance around the batches of one sample.
pub trait Witness {
    /// Called right before a batch.
    ///
    /// # Errors
    /// When the kernel does not give the evidence.
    fn before(&mut self) -> io::Result<()>;

    /// Called right after a batch that took so long.
    ///
    /// # Errors
    /// When the kernel does not give the evidence.
    fn after(&mut self, elapsed_ns: f64) -> io::Result<()>;
}

/// The evidence that Linux keeps.
#[derive(Debug)]
pub struct Watch {
    sharing: Sharing,
    cpu: usize,
    own_delay: Option<File>,
    partner_delay: Option<File>,
    opened: Ticks,
    opened_ns: u64,
    before: Reading,
    sum: Contamination,
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// Run-queue delay; `None` where the kernel does not tell it.
    delay: Option<Delay>,
    /// Processor time of everybody who is meant to run; 0 where delay is looked at instead.
    ran_ns: u64,
    involuntary_switches: u64,
    major_faults: u64,
}

/// A line of `schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Delay {
    waited_ns: u64,
    wakeups: u64,
}

impl Delay {
    fn plus(self, other: Self) -> Self {
        Self { waited_ns: self.waited_ns + other.waited_ns, wakeups: self.wakeups + other.wakeups }
    }
}

/// Ticks of `/proc/stat` that no process is charged with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    interrupts: u64,
    stolen: u64,
}

impl Watch {
    /// Begins to watch the calling thread, which is bound to `cpu`.
    ///
    /// # Errors
    /// When `/proc` lacks the evidence. A kernel that does not tell run-queue delay is no error: see
    /// [`delay_is_told`].
    pub fn open(sharing: Sharing, cpu: usize) -> io::Result<Self> {
        let own_delay = delay_is_told().then(|| File::open(OWN_DELAY)).transpose()?;
        let partner_delay = match sharing {
            Sharing::TwoCpus { partner, .. } if own_delay.is_some() => {
                Some(File::open(format!("/proc/{partner}/schedstat"))?)
            }
            _ => None,
        };
        let mut watch = Self {
            sharing,
            cpu,
            own_delay,
            partner_delay,
            opened: Ticks::default(),
            opened_ns: crate::clock::monotonic::now_ns(),
            before: Reading::default(),
            sum: Contamination::default(),
        };
        watch.opened = watch.ticks()?;
        Ok(watch)
    }

    /// How stolen time is found here.
    fn rule(&self) -> Rule {
        Rule::of(self.sharing, self.own_delay.is_some())
    }

    /// The evidence of all batches together.
    ///
    /// Ticks are 10 ms, too coarse for a batch, so those of the whole watch are charged to the timed part
    /// by its share of the time: right in the mean over many samples, which is what a verdict looks at.
    /// For the same reason the sum of one sample may come out below zero, and is left so.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read.
    #[expect(clippy::cast_precision_loss, reason = "a sample is far shorter than 2^52 ns")]
    pub fn close(mut self) -> io::Result<Contamination> {
        let now = self.ticks()?;
        let watched_ns = crate::clock::monotonic::now_ns().saturating_sub(self.opened_ns).max(1) as f64;
        let timed_share = (self.sum.wall_ns / watched_ns).min(1.0);
        let tick_ns = 1e9 / rustix::param::clock_ticks_per_second() as f64;
        let ns = |ticks: u64| ticks as f64 * tick_ns * timed_share;
        let stolen_ns = ns(now.stolen.saturating_sub(self.opened.stolen));
        self.sum.stolen_ns = if self.rule() == Rule::NobodyRan {
            // The wall time that nobody ran already holds what the hypervisor took, unless the kernel
            // charges that to processes; and kernels that time interrupts do not charge those to anybody.
            let interrupts_ns = ns(now.interrupts.saturating_sub(self.opened.interrupts));
            (self.sum.stolen_ns - interrupts_ns).max(stolen_ns)
        } else {
            self.sum.stolen_ns + stolen_ns
        };
        Ok(self.sum)
    }

    fn reading(&self) -> io::Result<Reading> {
        let usage = usage(libc::RUSAGE_SELF)?;
        let files = [&self.own_delay, &self.partner_delay];
        let delays = files.into_iter().flatten().map(delay).collect::<io::Result<Vec<Delay>>>()?;
        Ok(Reading {
            delay: delays.into_iter().reduce(Delay::plus),
            ran_ns: if self.rule() == Rule::NobodyRan { self.ran_ns()? } else { 0 },
            involuntary_switches: unsigned(usage.ru_nivcsw),
            major_faults: unsigned(usage.ru_majflt),
        })
    }

    /// Processor time of this process, its children and its partner.
    fn ran_ns(&self) -> io::Result<u64> {
        let children = usage_ns(&usage(libc::RUSAGE_CHILDREN)?);
        let partner = match self.sharing {
            Sharing::OneCpu { partner: Some(partner) } => process_ns(partner)?,
            _ => 0,
        };
        Ok(cpu_time_ns(libc::CLOCK_THREAD_CPUTIME_ID)? + children + partner)
    }

    fn ticks(&self) -> io::Result<Ticks> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let mut sum = parse_ticks(&stat, self.cpu).unwrap_or_default();
        if let Sharing::TwoCpus { cpu, .. } = self.sharing {
            sum.stolen += parse_ticks(&stat, cpu).unwrap_or_default().stolen;
        }
        Ok(sum)
    }
}

impl Witness for Watch {
    fn before(&mut self) -> io::Result<()> {
        self.before = self.reading()?;
        Ok(())
    }

    fn after(&mut self, elapsed_ns: f64) -> io::Result<()> {
        let (before, after) = (self.before, self.reading()?);
        self.sum.stolen_ns += self.rule().stolen_ns(&before, &after, elapsed_ns);
        self.sum.wall_ns += elapsed_ns;
        self.sum.involuntary_switches +=
            after.involuntary_switches.saturating_sub(before.involuntary_switches);
        self.sum.major_faults += after.major_faults.saturating_sub(before.major_faults);
        Ok(())
    }
}

/// How the stolen time of a batch is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// What was waited in the run queue.
    Delay,
    /// The same, less what every wake-up waits anyway.
    DelayBeyondWakeups,
    /// What nobody ran of those who are meant to run on the one processor.
    NobodyRan,
    /// Not at all: two processors may be idle for good reasons, and delay is not told.
    Unknown,
}

impl Rule {
    fn of(sharing: Sharing, delay_is_told: bool) -> Self {
        match (sharing, delay_is_told) {
            (Sharing::Alone, true) => Rule::Delay,
            (Sharing::TwoCpus { .. }, true) => Rule::DelayBeyondWakeups,
            (Sharing::OneCpu { .. }, _) | (Sharing::Alone, false) => Rule::NobodyRan,
            (Sharing::TwoCpus { .. }, false) => Rule::Unknown,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ns")]
    fn stolen_ns(self, before: &Reading, after: &Reading, elapsed_ns: f64) -> f64 {
        let (from, to) = (before.delay.unwrap_or_default(), after.delay.unwrap_or_default());
        let waited_ns = to.waited_ns.saturating_sub(from.waited_ns);
        let wakeups_ns = to.wakeups.saturating_sub(from.wakeups).saturating_mul(WAKEUP_NS);
        // What was waited between the two readings but outside of the batch is not in its time.
        let within_batch = |ns: u64| (ns as f64).min(elapsed_ns);
        match self {
            Rule::Delay => within_batch(waited_ns),
            Rule::DelayBeyondWakeups => within_batch(waited_ns.saturating_sub(wakeups_ns)),
            Rule::NobodyRan => elapsed_ns - after.ran_ns.saturating_sub(before.ran_ns) as f64,
            Rule::Unknown => 0.0,
        }
    }
}

const OWN_DELAY: &str = "/proc/thread-self/schedstat";

/// Whether the kernel tells how long a thread waited in the run queue. Without `CONFIG_SCHED_INFO` the file
/// is missing, and where the accounting is off it holds zeroes. Then a process alone is judged by the time
/// that it did not run, in which a wait for a disk counts too, and nothing is said of two processors.
#[must_use]
pub fn delay_is_told() -> bool {
    std::fs::read(OWN_DELAY).is_ok_and(|line| tells_delay(&line))
}

fn tells_delay(schedstat: &[u8]) -> bool {
    // Whoever reads this line has run at least once.
    parse_delay(schedstat).is_some_and(|delay| delay.wakeups > 0)
}

fn delay(schedstat: &File) -> io::Result<Delay> {
    let mut line = [0; 96];
    let length = schedstat.read_at(&mut line, 0)?;
    parse_delay(&line[..length]).ok_or_else(|| {
        io::Error::other("schedstat is not 'ran waited times', as it was when the watch began")
    })
}

/// Reads `ran_ns waited_ns times` (proc(5)).
fn parse_delay(line: &[u8]) -> Option<Delay> {
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
    let (_, waited, wakeups) = (numbers.next()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Delay { waited_ns: waited, wakeups })
}

/// Reads the line of one processor: `cpu0 user nice system idle iowait irq softirq steal ...` (proc(5)).
fn parse_ticks(stat: &str, cpu: usize) -> Option<Ticks> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
    Some(Ticks { interrupts: ticks.get(5)? + ticks.get(6)?, stolen: *ticks.get(7)? })
}

/// What `getrusage` says of this process or of the children that it waited for.
pub(crate) fn usage(who: libc::c_int) -> io::Result<libc::rusage> {
    // SAFETY: `rusage` is numbers only, so zeroes are a value of it, and the call fills it.
    let (result, usage) = unsafe {
        let mut usage = std::mem::zeroed();
        (libc::getrusage(who, &raw mut usage), usage)
    };
    crate::kernel::check("getrusage", result)?;
    Ok(usage)
}

fn usage_ns(usage: &libc::rusage) -> u64 {
    let ns = |time: libc::timeval| unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_usec) * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

fn process_ns(pid: libc::pid_t) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    let result = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    cpu_time_ns(clock)
}

fn cpu_time_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    crate::kernel::check("clock_gettime", unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_nsec))
}

/// A count that the C interface keeps in a signed type.
fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_schedstat_and_stat_are_read_where_proc_5_puts_them() {
        assert_eq!(parse_delay(b"363685 444630 7\n"), Some(Delay { waited_ns: 444_630, wakeups: 7 }));
        assert_eq!(parse_delay(b"363685 444630"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 1 1 2 0 0\n";
        assert_eq!(parse_ticks(stat, 1), Some(Ticks { interrupts: 13, stolen: 8 }));
        assert_eq!(parse_ticks(stat, 10), Some(Ticks { interrupts: 2, stolen: 2 }));
        assert_eq!(parse_ticks(stat, 0), None);
    }

    fn reading(ran_ns: u64, waited_ns: u64, wakeups: u64) -> Reading {
        Reading { delay: Some(Delay { waited_ns, wakeups }), ran_ns, ..Reading::default() }
    }

    #[test]
    fn without_run_queue_delay_a_process_alone_has_lost_what_it_did_not_run() {
        let (alone, one) = (Sharing::Alone, Sharing::OneCpu { partner: None });
        let two = Sharing::TwoCpus { partner: 1, cpu: 1 };
        let (before, after) = (reading(1_000, 50_000, 3), reading(61_000, 150_000, 5));
        let stolen = |sharing, told| {
            let stolen_ns = Rule::of(sharing, told).stolen_ns(&before, &after, 200_000.0);
            format!("{stolen_ns:.0}")
        };
        assert_eq!([stolen(alone, true), stolen(alone, false)], ["100000", "140000"]);
        assert_eq!([stolen(one, true), stolen(one, false)], ["140000", "140000"]);
        assert_eq!([stolen(two, true), stolen(two, false)], ["60000", "0"]);
    }

    #[test]
    fn delay_outside_of_a_batch_is_not_charged_to_it() {
        let stolen = Rule::Delay.stolen_ns(&reading(0, 0, 0), &reading(0, 9_000, 1), 4_000.0);
        assert!((stolen - 4_000.0).abs() < 0.5, "{stolen}");
    }

    #[test]
    fn a_schedstat_of_zeroes_tells_nothing() {
        assert!(tells_delay(b"363685 0 7\n"));
        assert!(!tells_delay(b"0 0 0\n"));
        assert!(!tells_delay(b""));
    }

    #[test]
    fn time_that_a_process_alone_spends_running_is_not_stolen() {
        let mut watch = Watch::open(Sharing::OneCpu { partner: None }, 0).unwrap();
        watch.before().unwrap();
        let ran = cpu_time_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap();
        while cpu_time_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap() < ran + 2_000_000 {}
        // Told that the batch took less than the thread has run, nothing can be left for others.
        watch.after(2_000_000.0).unwrap();
        assert!(watch.sum.stolen_ns <= 0.0, "{}", watch.sum.stolen_ns);
        assert!(watch.sum.stolen_ns > -100_000_000.0, "{}", watch.sum.stolen_ns);
    }
}
