//! Describes the machine, and lists what the measurement does not control. The description is read from
//! `/proc`, `/sys` and the processor; this module changes nothing. The report shows it with every run.

pub mod parse;

use std::fs;
use std::path::Path;

use assay_process::{accounting, cpus, own_cgroup};
use assay_quantity::{Description, Fact, Size};

pub use parse::CacheSizes;

use crate::platform::clock::{Calibration, Source};

const UNKNOWN: &str = "unknown";

/// Describes this machine in its current state. `directory` is the directory for the benchmarks' files.
#[must_use]
pub fn describe(clock: &Calibration, directory: &Path) -> Description {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| parse::field(&cpuinfo, name).unwrap_or(UNKNOWN).to_owned();
    let hypervisor = hypervisor(&cpuinfo);
    let governor = one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let facts = [
        ("assay", env!("CARGO_PKG_VERSION").to_owned()),
        ("cpu", field("model name")),
        ("cpus", cpus()),
        ("smt", worded("/sys/devices/system/cpu/smt/control", parse::smt)),
        ("microcode", field("microcode")),
        ("caches", caches().to_string()),
        ("memory", memory()),
        ("page", parse::in_words(Size(u64::try_from(rustix::param::page_size()).unwrap_or(0)))),
        ("huge pages", huge_pages()),
        ("hypervisor", hypervisor.clone().unwrap_or_else(|| "none seen".to_owned())),
        ("kernel", kernel()),
        ("libc", libc_version()),
        ("clocksource", one_line(CLOCKSOURCE).unwrap_or_else(unknown)),
        ("batch clock", batch_clock(clock)),
        ("governor", governor.clone().unwrap_or_else(not_reported)),
        ("turbo", turbo()),
        ("mitigations", mitigations()),
        ("aslr", worded("/proc/sys/kernel/randomize_va_space", parse::aslr)),
        ("autogroup", worded("/proc/sys/kernel/sched_autogroup_enabled", parse::switch)),
        ("cgroup cpu limit", cgroup_cpu_limit()),
        ("file system", file_system(directory)),
        ("load", read("/proc/loadavg").and_then(|line| parse::load(&line)).unwrap_or_else(unknown)),
    ];
    let facts = facts.into_iter().map(|(name, value)| Fact { name: name.to_owned(), value }).collect();
    Description { facts, uncontrolled: uncontrolled(clock, hypervisor.as_deref(), governor.as_deref()) }
}

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns sentences about what the measurement cannot correct. A virtual machine is described by its facts
/// and its measured condition instead.
fn uncontrolled(clock: &Calibration, hypervisor: Option<&str>, governor: Option<&str>) -> Vec<String> {
    let mut sentences = Vec::new();
    match governor {
        None if hypervisor.is_none() => {
            sentences.push("The kernel reports no frequency governor: the clock rate may vary.".to_owned());
        }
        None | Some("performance") => {}
        Some(other) => {
            sentences.push(format!("The frequency governor is {other}, so the clock rate follows the load."));
        }
    }
    if let Some(reason) = &clock.refused {
        sentences
            .push(format!("The processor's counter is not used: {reason}. Batches are timed by the kernel."));
    }
    let running = read("/proc/loadavg").and_then(|line| parse::runnable(&line));
    if let Some(others) = running.and_then(|running| running.checked_sub(1)).filter(|others| *others > 0) {
        sentences.push(format!("{others} other tasks were runnable when the run began."));
    }
    if !accounting::has_run_queue_delay() {
        sentences.push(
            "The kernel does not count run-queue delay: the time that sleeping benchmarks lose to other tasks is \
             unknown."
                .to_owned(),
        );
    }
    if cgroup_cpu_limit() != NO_LIMIT && cgroup_cpu_limit() != UNKNOWN {
        sentences.push("A control group limits the processor time: batches can be throttled.".to_owned());
    }
    sentences
}

/// Returns the sizes of the data caches of processor 0.
#[must_use]
pub fn caches() -> CacheSizes {
    let mut sizes = CacheSizes::default();
    for index in 0.. {
        let path = |file: &str| format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
        let (Some(level), Some(kind), Some(size)) =
            (one_line(&path("level")), one_line(&path("type")), one_line(&path("size")))
        else {
            break;
        };
        sizes.add(&level, &kind, &size);
    }
    sizes
}

/// Returns the processors that this process may use, in order; empty if the kernel does not report them.
#[must_use]
pub fn usable_cpus() -> Vec<usize> {
    cpus::allowed().unwrap_or_default()
}

/// Returns the nodes that have memory, in order; empty if the kernel does not report them.
pub(crate) fn memory_nodes() -> Vec<usize> {
    one_line("/sys/devices/system/node/has_memory")
        .and_then(|list| cpus::parse_list(&list))
        .unwrap_or_default()
}

/// Returns the processors that share a core with this one, including itself.
pub(crate) fn siblings(cpu: usize) -> Vec<usize> {
    one_line(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
        .and_then(|list| cpus::parse_list(&list))
        .unwrap_or_else(|| vec![cpu])
}

fn cpus() -> String {
    let online = one_line("/sys/devices/system/cpu/online")
        .and_then(|list| Some(format!("{} online ({list})", cpus::parse_list(&list)?.len())))
        .unwrap_or_else(unknown);
    match cpus::allowed() {
        Ok(allowed) => format!("{online}, {} allowed", allowed.len()),
        Err(_) => online,
    }
}

fn memory() -> String {
    meminfo("MemTotal").map_or_else(unknown, parse::in_words)
}

/// Returns the size in a line of `/proc/meminfo`.
pub(crate) fn meminfo(name: &str) -> Option<Size> {
    parse::meminfo(&read("/proc/meminfo")?, name)
}

fn huge_pages() -> String {
    one_line("/sys/kernel/mm/transparent_hugepage/enabled")
        .and_then(|line| parse::bracketed(&line).map(str::to_owned))
        .map_or_else(unknown, |mode| format!("{mode}; the benchmarks' buffers use none"))
}

fn hypervisor(cpuinfo: &str) -> Option<String> {
    one_line("/sys/hypervisor/type").or_else(|| processor_hypervisor(cpuinfo))
}

/// Returns the hypervisor that the processor reports.
#[cfg(target_arch = "x86_64")]
fn processor_hypervisor(cpuinfo: &str) -> Option<String> {
    let flags = parse::field(cpuinfo, "flags")?;
    flags.split(' ').any(|flag| flag == "hypervisor").then(|| {
        // The leaf in which hypervisors report their signature by convention.
        let leaf = crate::platform::cpuid::leaf(0x4000_0000);
        parse::signature([leaf.ebx, leaf.ecx, leaf.edx])
    })
}

/// Returns the hypervisor that the guest's device tree names; processors other than x86-64 report none.
#[cfg(not(target_arch = "x86_64"))]
fn processor_hypervisor(_: &str) -> Option<String> {
    one_line("/proc/device-tree/hypervisor/compatible")
}

fn kernel() -> String {
    let name = rustix::system::uname();
    let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    format!(
        "{} {} {} {}",
        part(name.sysname()),
        part(name.release()),
        part(name.version()),
        part(name.machine())
    )
}

fn libc_version() -> String {
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: returns a constant string of the library.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}, linked {linked}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    format!("{}, linked {linked}", std::env::consts::OS)
}

fn batch_clock(clock: &Calibration) -> String {
    match clock.source {
        Source::Counter { ticks_per_ns } => format!(
            "cycle counter, {:.3} MHz, calibrations within {:.1} ppm, steps of {:.0} ns",
            ticks_per_ns * 1000.0,
            clock.error_ppm,
            clock.resolution_ns
        ),
        Source::MonotonicRaw => format!("CLOCK_MONOTONIC_RAW, steps of {:.0} ns", clock.resolution_ns),
    }
}

fn turbo() -> String {
    if let Some(off) = one_line("/sys/devices/system/cpu/intel_pstate/no_turbo") {
        return if off == "1" { "off" } else { "on" }.to_owned();
    }
    match one_line("/sys/devices/system/cpu/cpufreq/boost").as_deref() {
        Some("0") => "off".to_owned(),
        Some(_) => "on".to_owned(),
        None => not_reported(),
    }
}

fn mitigations() -> String {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return unknown() };
    let states: Vec<(String, String)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, read(entry.path())?)))
        .collect();
    parse::mitigations(states)
}

const NO_LIMIT: &str = "none";

/// Returns the lowest `cpu.max` from this process's group up to the root.
fn cgroup_cpu_limit() -> String {
    let Some((mount, mut path)) = own_cgroup() else { return unknown() };
    let mut tightest: Option<f64> = None;
    loop {
        if let Some(share) = read(path.join("cpu.max")).as_deref().and_then(parse::cpu_max) {
            tightest = Some(tightest.map_or(share, |before| before.min(share)));
        }
        if !path.pop() || !path.starts_with(&mount) {
            break;
        }
    }
    tightest.map_or(NO_LIMIT.to_owned(), |share| format!("{share:.2} processors"))
}

fn file_system(directory: &Path) -> String {
    let canonical = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    read("/proc/self/mountinfo")
        .and_then(|mounts| parse::mount_type(&mounts, &canonical.to_string_lossy()).map(str::to_owned))
        .map_or_else(unknown, |kind| format!("{kind} at {}", directory.display()))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn one_line(path: &str) -> Option<String> {
    Some(read(path)?.trim().to_owned())
}

/// Returns the description of a file of one line.
fn worded(path: &str, words: impl FnOnce(&str) -> String) -> String {
    one_line(path).map_or_else(not_reported, |line| words(&line))
}

/// The value for facts that the machine, often a virtual one, does not report.
fn not_reported() -> String {
    parse::NOT_REPORTED.to_owned()
}

fn unknown() -> String {
    UNKNOWN.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::calibrate;

    #[test]
    fn no_fact_is_empty() {
        let description = describe(&calibrate(), &std::env::temp_dir());
        assert!(description.facts.len() > 15);
        for fact in &description.facts {
            assert!(!fact.value.is_empty(), "{}", fact.name);
        }
        assert!(description.uncontrolled.iter().all(|sentence| sentence.ends_with('.')));
    }
}
