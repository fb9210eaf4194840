//! Runs a command in an observed guest.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Observer};
use assay_guest::{Finished, Job, Platform, RunError};
use assay_sim::symbols::{self, Symbols};
use assay_sim::{Plan, Profile, Snapshots};
use flate2::bufread::GzDecoder;

use crate::interrupt::{Interrupt, Interrupted};
use crate::output;

/// What the plugin takes for the beginning and the end of a command.
pub const MARKS: [[u8; 8]; 2] = [assay_sim::BEGIN, assay_sim::END];

/// Name of the plugin's library, which cargo builds next to the program.
const PLUGIN: &str = "libassay_sim_plugin.so";

/// The command that builds it.
const BUILD: &str = "'cargo build --release --workspace'";

/// The command with which a kernel describes itself: the symbols of its code, then its BTF, compressed
/// because a serial port is slow. The kernel hides the addresses of its symbols unless `kptr_restrict` is 0
/// or 1.
const DESCRIBE: &str =
    "grep -v '\\[' /proc/kallsyms | grep -i ' [tw] ' | gzip -c; gzip -c /sys/kernel/btf/vmlinux";

/// A job that was observed.
#[derive(Debug)]
pub struct Observation {
    /// What it has printed, and its status.
    pub finished: Finished,
    /// Where its instructions went.
    pub profile: Profile,
    /// What was executed at the points that its programs have chosen.
    pub snapshots: Snapshots,
}

/// Runs a job and observes it.
pub fn observe(
    mut machine: Machine,
    job: &Job,
    plan: &Plan,
    interrupt: &Interrupt,
) -> anyhow::Result<Observation> {
    let directory = tempfile::Builder::new().prefix("assay-sim-").tempdir();
    let directory = directory.context("cannot create a temporary directory")?;
    let [plan_file, profile_file, snapshots_file] =
        ["plan", "profile", "snapshots"].map(|name| directory.path().join(name));
    output::write_file(&plan_file, &plan.to_json())?;
    machine.observer = Some(Observer {
        library: plugin()?,
        files: vec![
            ("plan", plan_file),
            ("profile", profile_file.clone()),
            ("snapshots", snapshots_file.clone()),
        ],
    });
    let finished = run(machine, job, interrupt).map_err(|error| match error.downcast_ref() {
        Some(RunError::Ended { last, .. }) if last.contains(PLUGIN) => error.context(format!(
            "QEMU cannot use {PLUGIN}; {BUILD} builds it, and 'scripts/setup simulate' installs QEMU"
        )),
        _ => error,
    })?;
    let written = |file: &Path| {
        fs::read_to_string(file).context(
            "there is no profile: the command has prevented the mark of its end, or the disk is full",
        )
    };
    let other = || format!("{PLUGIN} does not fit this program; {BUILD} builds it");
    let profile = Profile::from_json(&written(&profile_file)?).with_context(other)?;
    let snapshots = Snapshots::from_json(&written(&snapshots_file)?).with_context(other)?;
    Ok(Observation { finished, profile, snapshots })
}

/// Runs a job.
pub fn run(machine: Machine, job: &Job, interrupt: &Interrupt) -> anyhow::Result<Finished> {
    output::say(&format!("booting Linux {}", machine.kernel.release));
    boot(machine, job, interrupt)
}

fn boot(machine: Machine, job: &Job, interrupt: &Interrupt) -> anyhow::Result<Finished> {
    match assay_guest::run(&Platform::Qemu(machine), job, interrupt.flag()) {
        Err(RunError::Interrupted) => Err(Interrupted::Simulating.into()),
        finished => Ok(finished?),
    }
}

fn plugin() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let plugin = program.with_file_name(PLUGIN);
    if !plugin.is_file() {
        bail!("{} is missing; {BUILD} builds it", plugin.display());
    }
    Ok(plugin)
}

/// Returns the annotations of a kernel, in which these functions are services too.
pub fn plan(
    machine: &Machine,
    functions: &[String],
    kernels: &Path,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<Plan> {
    let (mut plan, symbols) = described(machine, kernels, limit, interrupt)?;
    if machine.clock == Clock::Instructions {
        plan.add_clock(&symbols);
    }
    for function in functions {
        plan.add_function(&symbols, function)?;
    }
    Ok(plan)
}

/// Returns the annotations of a kernel and its symbols, from the description that it gives in a guest. The
/// descriptions are kept in `kernels`, by the content of the kernel and of [`DESCRIBE`].
fn described(
    machine: &Machine,
    kernels: &Path,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<(Plan, Symbols)> {
    let kernel = &machine.kernel;
    let kept = kernels.join(format!("{:016x}.gz", hash(kernel)?));
    if let Ok(description) = fs::read(&kept) {
        // One that was damaged since is replaced.
        if let Ok(described) = plan_of(&description) {
            return Ok(described);
        }
    }
    output::say(&format!("booting Linux {} for its symbols, which are kept", kernel.release));
    let job = Job { command: DESCRIBE.to_owned(), copies: Vec::new(), marks: MARKS, limit };
    let machine = Machine { clock: Clock::Host, image: None, observer: None, ..machine.clone() };
    let description = boot(machine, &job, interrupt)?.output;
    let described =
        plan_of(&description).with_context(|| format!("Linux {} cannot be observed", kernel.release))?;
    fs::create_dir_all(kernels)
        .with_context(|| format!("cannot create {}; check free space and permissions", kernels.display()))?;
    output::write_file(&kept, &description)?;
    Ok(described)
}

/// A number that differs between kernels, and between ways to describe them; it need not resist an attack.
fn hash(kernel: &Kernel) -> anyhow::Result<u64> {
    let image = fs::read(&kernel.image).with_context(|| format!("cannot read {}", kernel.image.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&image);
    hasher.write(DESCRIBE.as_bytes());
    Ok(hasher.finish())
}

/// Reads the output of [`DESCRIBE`].
fn plan_of(description: &[u8]) -> anyhow::Result<(Plan, Symbols)> {
    let mut kallsyms = Vec::new();
    let mut first = GzDecoder::new(description);
    first.read_to_end(&mut kallsyms).context("its symbols are damaged")?;
    let mut btf = Vec::new();
    let rest = first.into_inner();
    // Without BTF there is nothing after the symbols, which the plan reports.
    if !rest.is_empty() {
        GzDecoder::new(rest).read_to_end(&mut btf).context("its BTF is damaged")?;
    }
    let symbols = symbols::parse(&String::from_utf8_lossy(&kallsyms));
    Ok((Plan::new(&symbols, &btf)?, symbols))
}
