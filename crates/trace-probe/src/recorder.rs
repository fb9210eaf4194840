//! Loads the probe, marks the process tree, drains the rings into a container, and accounts for every record.

use std::{
    cell::RefCell,
    io::{self, Read},
    mem::MaybeUninit,
    os::fd::AsFd,
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use assay_trace::{
    Writer,
    container::{Closing, CpuCounters, Manifest, RECORD_BYTES, WriteError},
    syscall,
};
use libbpf_rs::{
    Btf, Iter, Link, MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder,
    btf::types::Typedef,
    libbpf_sys,
    skel::{OpenSkel, SkelBuilder},
};
use rustix::thread::gettid;

use crate::{
    opening::{clock_ns, online_cpus},
    skeleton::{OpenProbeSkel, ProbeSkel, ProbeSkelBuilder},
    unavailable::{Unavailable, check, listen_to_libbpf, refused},
};

/// Polling interval of the rings; between polls, the recorder is woken only if a ring fills.
const POLL: Duration = Duration::from_millis(5);
/// Flush interval: the maximum age of the records that a killed recorder loses.
const FLUSH_NS: u64 = 100_000_000;
/// Interval of counter marks while records are lost: the resolution of a long gap.
const MARK_NS: u64 = 1_000_000_000;
/// A ring that is more than 1/`WAKE_PART` full wakes the recorder.
const WAKE_PART: u64 = 8;
/// Polls during which BPF programs that were running at the detachment of the probe may end.
const SETTLE_POLLS: u32 = 20;

/// Options of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Size of the ring of each CPU in bytes: a power of two. The kernel locks this amount of memory per
    /// online CPU.
    pub ring_bytes: u32,
    /// Time in interrupts and network softirqs. Without it, `irq_ns` and `softnet_ns` are 0, and that time is
    /// part of the time on the CPU, and wake-ups in interrupts count as wake-ups of the call.
    pub interrupts: Collect,
    /// Page faults: one record each, and their number per call.
    pub page_faults: Collect,
    /// How the probe reads kernel objects.
    pub descriptor_reads: DescriptorReads,
}

/// Whether an optional group of BPF programs is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collect {
    /// Loaded.
    Yes,
    /// Not loaded; has no overhead.
    No,
}

/// How the probe determines the kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorReads {
    /// Typed loads if the kernel supports them (Linux 6.2 and later), probe reads otherwise.
    Typed,
    /// Always probe reads, as on older kernels.
    Probe,
}

impl Default for Options {
    /// The rings have 16 MiB each: 91,000 records, or 26 ms of the fastest measured producer (3.5 million
    /// records/s). This covers five missed polls.
    fn default() -> Self {
        Self {
            ring_bytes: 16 << 20,
            interrupts: Collect::Yes,
            page_faults: Collect::Yes,
            descriptor_reads: DescriptorReads::Typed,
        }
    }
}

/// A running recording. If dropped, it stops and closes the container.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<Result<Recorded, RecordError>>>>,
}

/// The outcome of a recording.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Records in the container.
    pub records: u64,
    /// Records that the kernel produced, by its own count: `records + lost` if the rings were drained.
    pub made: u64,
    /// Records lost because a ring was full.
    pub lost: u64,
    /// Processor time of the recorder during the recording, ns.
    pub recorder_ns: u64,
    /// Processor time to close the container, ns.
    pub closing_ns: u64,
    /// The manifest of the container.
    pub manifest: Manifest,
}

/// A recording was aborted. The records in the container are still readable.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The container could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The rings or the counters could not be read.
    #[error("cannot read the kernel's ring buffers: {0}; the trace ends early")]
    Ring(#[from] libbpf_rs::Error),
    /// The final iteration over the tasks failed.
    #[error("cannot read the calls in flight: {0}; they are missing in the trace")]
    Flush(io::Error),
    /// The recorder's thread panicked.
    #[error("the recorder thread panicked; please report this bug")]
    Panicked,
}

impl Recorder {
    /// Traces process `root` with all its threads and all its present and future descendants, and records
    /// into `writer`. The calling process is never traced. Returns when the probe is attached; if this fails,
    /// the container is removed.
    pub fn attach(root: u32, options: Options, writer: Writer) -> Result<Self, Unavailable> {
        check()?;
        let rings_fit =
            options.ring_bytes.is_power_of_two() && (4096..=1 << 30).contains(&options.ring_bytes);
        if !rings_fit {
            return Err(Unavailable::Ring { bytes: options.ring_bytes });
        }
        if !Path::new("/proc").join(root.to_string()).exists() {
            return Err(Unavailable::Process { process: root });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let thread = {
            let stop = Arc::clone(&stop);
            let body = move || record(root, options, writer, &stop, &ready);
            thread::Builder::new()
                .name("assay-recorder".to_owned())
                .spawn(body)
                .map_err(Unavailable::Thread)?
        };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Self { stop, thread: Some(thread) }),
            Ok(Err(unavailable)) => Err(unavailable),
            Err(mpsc::RecvError) => {
                let reason = "the recorder thread ended".to_owned();
                Err(Unavailable::Refused { step: "start", reason })
            }
        }
    }

    /// Returns whether the recording still runs. If not, it was aborted, and [`Recorder::stop`] returns the
    /// reason.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Detaches the probe, fetches the remaining records, and closes the container.
    pub fn stop(mut self) -> Result<Recorded, RecordError> {
        self.join().unwrap_or(Err(RecordError::Panicked))
    }

    fn join(&mut self) -> Option<Result<Recorded, RecordError>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().unwrap_or(Some(Err(RecordError::Panicked)))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The result is ignored; the manifest contains the outcome.
        let _ = self.join();
    }
}

/// The recorder thread: all objects of libbpf live on its stack. `None` if the probe is not available; the
/// reason is sent to `ready`.
fn record(
    root: u32,
    options: Options,
    mut writer: Writer,
    stop: &AtomicBool,
    ready: &mpsc::Sender<Result<(), Unavailable>>,
) -> Option<Result<Recorded, RecordError>> {
    let mut storage = MaybeUninit::uninit();
    let attached = writer.roots(vec![root]).map_err(Unavailable::from).and_then(|()| {
        listen_to_libbpf();
        Probe::load(&options, &mut storage)
    });
    let attached = attached.and_then(|mut probe| probe.mark_tree(root).map(|()| probe));
    // The receiver waits for one of the two messages.
    match attached {
        Ok(probe) => {
            let _ = ready.send(Ok(()));
            Some(drain(probe, writer, stop))
        }
        Err(unavailable) => {
            // Drop the writer, which removes the container, before the error is reported.
            drop(writer);
            let _ = ready.send(Err(unavailable));
            None
        }
    }
}

/// The loaded and attached BPF programs.
struct Probe<'obj> {
    skeleton: ProbeSkel<'obj>,
    /// Number of CPUs with a ring.
    cpus: u16,
    rings: Vec<MapHandle>,
    links: Vec<Link>,
}

impl<'obj> Probe<'obj> {
    fn load(
        options: &Options,
        storage: &'obj mut MaybeUninit<libbpf_rs::OpenObject>,
    ) -> Result<Self, Unavailable> {
        let mut open = ProbeSkelBuilder::default().open(storage).map_err(refused("open the probe"))?;
        let possible = libbpf_rs::num_possible_cpus().map_err(refused("count the CPUs"))?;
        let possible = u32::try_from(possible).unwrap_or(u32::MAX);
        open.maps.rings.set_max_entries(possible).map_err(refused("size the rings"))?;
        open.maps.idles.set_max_entries(possible).map_err(refused("size the table of idle CPUs"))?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.rules = syscall::probe_rules();
            constants.tracer = std::process::id();
            constants.recorder = gettid().as_raw_nonzero().get().cast_unsigned();
            constants.wake_bytes = u64::from(options.ring_bytes) / WAKE_PART;
            constants.probe_reads_only = options.descriptor_reads == DescriptorReads::Probe;
        }
        choose_programs(&mut open, options)?;
        let skeleton = open.load().map_err(refused("load the probe"))?;
        let mut rings = Vec::new();
        let cpus = online_cpus()?;
        for cpu in 0..u32::from(cpus) {
            let ring = create_ring(options.ring_bytes).map_err(refused("allocate a ring"))?;
            let descriptor = std::os::fd::AsRawFd::as_raw_fd(&ring.as_fd()).to_ne_bytes();
            let update = skeleton.maps.rings.update(&cpu.to_ne_bytes(), &descriptor, MapFlags::ANY);
            update.map_err(refused("install a ring"))?;
            rings.push(ring);
        }
        let mut probe = Self { skeleton, cpus, rings, links: Vec::new() };
        probe.attach().map_err(refused("attach the probe"))?;
        Ok(probe)
    }

    /// Attaches the programs. Forks precede calls, so that all later children of a marked thread are traced.
    /// Ends of interrupts precede their starts: a start whose end was missed would last forever.
    fn attach(&mut self) -> libbpf_rs::Result<()> {
        let programs = &mut self.skeleton.progs;
        let ordered = [
            &mut programs.fork_task,
            &mut programs.exit_task,
            &mut programs.exec_task,
            &mut programs.switch_task,
            &mut programs.migrate_task,
            &mut programs.waking_task,
            &mut programs.wake_task,
            &mut programs.irq_ends,
            &mut programs.irq_begins,
            &mut programs.softirq_ends,
            &mut programs.softirq_begins,
            &mut programs.timer_ends,
            &mut programs.timer_begins,
            &mut programs.fault_user,
            &mut programs.fault_kernel,
            &mut programs.leave_call,
            &mut programs.enter_call,
        ];
        for program in ordered {
            if program.autoload() {
                self.links.push(program.attach()?);
            }
        }
        Ok(())
    }

    /// Marks every thread of the tree below `root`. An iteration may visit a child before its parent, so it
    /// is repeated until it marks no further thread.
    fn mark_tree(&mut self, root: u32) -> Result<(), Unavailable> {
        let walk = self.skeleton.progs.mark_tree.attach().map_err(refused("walk over the tasks"))?;
        if let Some(variables) = self.skeleton.maps.bss_data.as_deref_mut() {
            variables.root = root;
        }
        let mut known = 0;
        loop {
            run(&walk).map_err(|error| Unavailable::Refused {
                step: "walk over the tasks",
                reason: error.to_string(),
            })?;
            let marked = self.skeleton.maps.bss_data.as_deref().map_or(0, |variables| variables.marked);
            match (marked, marked == known) {
                (0, _) => return Err(Unavailable::Process { process: root }),
                (_, true) => return Ok(()),
                (_, false) => known = marked,
            }
        }
    }

    /// Ends the recording at one point in time, detaches all programs in reverse order, then records the
    /// calls that were in flight at that time.
    fn detach(&mut self) -> Result<(), RecordError> {
        if let Some(variables) = self.skeleton.maps.bss_data.as_deref_mut() {
            variables.stopped_ns = clock_ns(libc::CLOCK_MONOTONIC);
        }
        self.links.drain(..).rev().for_each(drop);
        let walk = self.skeleton.progs.flush_calls.attach()?;
        run(&walk).map_err(RecordError::Flush)
    }

    fn counters(&self) -> libbpf_rs::Result<Vec<CpuCounters>> {
        let values = self.skeleton.maps.cpus.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        let values = (0..).zip(values.unwrap_or_default());
        let counters =
            values.map(|(cpu, value)| CpuCounters { cpu, made: word(&value, 0), lost: word(&value, 8) });
        // A possible CPU without a ring has counters only if it came online during the recording.
        Ok(counters.filter(|counters| counters.cpu < self.cpus || counters.made > 0).collect())
    }

    fn untracked(&self) -> u64 {
        self.skeleton.maps.bss_data.as_deref().map_or(0, |variables| variables.untracked)
    }
}

/// Disables the programs that are not selected and those for which this kernel has no tracepoint.
fn choose_programs(open: &mut OpenProbeSkel<'_>, options: &Options) -> Result<(), Unavailable> {
    let types = Btf::from_vmlinux().map_err(refused("read its types"))?;
    let has = |name: &str| types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some();
    let programs = &mut open.progs;
    let irq = options.interrupts == Collect::Yes;
    programs.irq_begins.set_autoload(irq);
    programs.irq_ends.set_autoload(irq);
    programs.softirq_begins.set_autoload(irq);
    programs.softirq_ends.set_autoload(irq);
    // These names are specific to x86; on other architectures, the timer interrupt is an ordinary interrupt.
    let timer = irq && has("local_timer_entry") && has("local_timer_exit");
    programs.timer_begins.set_autoload(timer);
    programs.timer_ends.set_autoload(timer);
    let faults = options.page_faults == Collect::Yes && has("page_fault_user") && has("page_fault_kernel");
    programs.fault_user.set_autoload(faults);
    programs.fault_kernel.set_autoload(faults);
    Ok(())
}

fn create_ring(bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    MapHandle::create(MapType::RingBuf, Some("assay_ring"), 0, 0, bytes, &options)
}

/// Runs an iterator program over all tasks. Its output is empty.
fn run(walk: &Link) -> io::Result<()> {
    let mut nothing = Vec::new();
    Iter::new(walk).map_err(io::Error::other)?.read_to_end(&mut nothing).map(drop)
}

/// Destination of the records; shared by the callbacks of all rings, which run in one thread.
struct Sink {
    writer: Writer,
    records: u64,
    failure: Option<WriteError>,
}

impl Sink {
    /// Appends a record; returns a negative value to stop the consumption.
    fn take(&mut self, cpu: u16, record: &[u8]) -> i32 {
        let Ok(record) = <&[u8; RECORD_BYTES]>::try_from(record) else { return 0 };
        match self.writer.append(cpu, record) {
            Ok(()) => {
                self.records += 1;
                0
            }
            Err(error) => {
                self.failure = Some(error);
                -libc::EIO
            }
        }
    }
}

fn drain(mut probe: Probe<'_>, writer: Writer, stop: &AtomicBool) -> Result<Recorded, RecordError> {
    let sink = Rc::new(RefCell::new(Sink { writer, records: 0, failure: None }));
    // Take the handles out of `probe`, which is still used below; the rings stay in the kernel's table.
    let handles = std::mem::take(&mut probe.rings);
    let mut builder = RingBufferBuilder::new();
    for (cpu, ring) in (0..).zip(&handles) {
        let sink = Rc::clone(&sink);
        builder.add(ring, move |record| sink.borrow_mut().take(cpu, record))?;
    }
    let rings = builder.build()?;
    let started_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut schedule = Schedule::default();
    while !stop.load(Ordering::Relaxed) {
        consume(&rings, &sink, POLL)?;
        schedule.keep(&probe, &sink)?;
    }
    probe.detach()?;
    let (counters, drained) = settle(&probe, &rings, &sink)?;
    let recorder_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - started_ns;
    drop(rings);
    let sink = Rc::into_inner(sink).ok_or(RecordError::Panicked)?.into_inner();
    let closing = Closing {
        monotonic_ns: clock_ns(libc::CLOCK_MONOTONIC),
        drained,
        untracked_threads: probe.untracked(),
        counters,
        skipped_lines: 0,
    };
    let manifest = sink.writer.close(closing)?;
    let closing_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - started_ns - recorder_ns;
    let (made, lost) = (manifest.made().unwrap_or(0), manifest.lost().unwrap_or(0));
    Ok(Recorded { records: sink.records, made, lost, recorder_ns, closing_ns, manifest })
}

fn consume(rings: &RingBuffer<'_>, sink: &RefCell<Sink>, wait: Duration) -> Result<(), RecordError> {
    // `poll` processes only rings that woke the recorder, hence the call of `consume`.
    let result = rings.poll(wait).and_then(|()| rings.consume());
    if let Some(failure) = sink.borrow_mut().failure.take() {
        return Err(failure.into());
    }
    match result {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(()),
        other => Ok(other?),
    }
}

/// Fetches records until every record that the kernel produced is either fetched or counted as lost.
fn settle(
    probe: &Probe<'_>,
    rings: &RingBuffer<'_>,
    sink: &RefCell<Sink>,
) -> Result<(Vec<CpuCounters>, bool), RecordError> {
    for _ in 0..SETTLE_POLLS {
        consume(rings, sink, Duration::ZERO)?;
        let counters = probe.counters()?;
        let sum = |field: fn(&CpuCounters) -> u64| counters.iter().map(field).sum::<u64>();
        if sum(|cpu| cpu.made) == sum(|cpu| cpu.lost) + sink.borrow().records {
            return Ok((counters, true));
        }
        thread::sleep(POLL);
    }
    Ok((probe.counters()?, false))
}

/// Periodic work between two polls of the rings.
#[derive(Default)]
struct Schedule {
    flushed_ns: u64,
    marked_ns: u64,
    lost: Vec<u64>,
}

impl Schedule {
    fn keep(&mut self, probe: &Probe<'_>, sink: &RefCell<Sink>) -> Result<(), RecordError> {
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        if now_ns - self.marked_ns >= MARK_NS {
            self.marked_ns = now_ns;
            let counters = probe.counters()?;
            self.lost.resize(counters.len(), 0);
            for (counters, known) in counters.iter().zip(&mut self.lost) {
                if counters.lost > *known && counters.cpu < probe.cpus {
                    *known = counters.lost;
                    sink.borrow_mut().writer.mark(counters.cpu, now_ns, counters.lost)?;
                }
            }
        }
        if now_ns - self.flushed_ns >= FLUSH_NS {
            self.flushed_ns = now_ns;
            sink.borrow_mut().writer.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening;

    #[test]
    fn an_error_of_the_kernel_reaches_the_caller_without_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.trace");
        let writer = Writer::create(&path, opening(Vec::new()).unwrap()).unwrap();
        // No kernel supports rings of one byte; `Recorder::attach` rejects them earlier.
        let options = Options { ring_bytes: 1, ..Options::default() };
        let (ready, is_ready) = mpsc::channel();
        let ended = record(std::process::id(), options, writer, &AtomicBool::new(false), &ready);
        assert!(ended.is_none(), "{ended:?}");
        assert!(matches!(is_ready.recv(), Ok(Err(Unavailable::Refused { .. }))));
        assert!(!path.exists());
    }
}
