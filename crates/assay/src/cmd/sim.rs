//! `assay sim`: runs programs in a simulated machine.

use std::path::Path;

use anyhow::{Context, ensure};
use assay_guest::Job;
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Qemu};
use assay_report::Report;
use assay_sim::Plan;

use crate::cli::{Observe, SimArgs, SimCommand, SimRunArgs};
use crate::interrupt::Interrupt;
use crate::phase::simulation;
use crate::{data, output, section};

/// The command of a guest that is given none: 240 million instructions, three quarters of them in the kernel.
const MIX: &str = include_str!("sim/mix.sh");

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run_guest(args),
    }
}

/// Runs a command in a guest and shows where its instructions went.
fn run_guest(args: &SimRunArgs) -> anyhow::Result<()> {
    ensure!(
        args.annotate.is_empty() || args.observe == Observe::Services,
        "--annotate needs --observe services, the default"
    );
    let interrupt = Interrupt::listen()?;
    let data = data::directory().context("no home directory, in which QEMU is searched; set HOME")?;
    let platforms = data.join("platforms");
    let machine = Machine {
        qemu: Qemu::find(&platforms)?,
        kernel: kernel(&platforms.join("linux"), args.kernel.as_deref())?,
        memory_mib: args.memory,
        clock: if args.deterministic { Clock::Instructions } else { Clock::Host },
        observer: None,
    };
    let release = machine.kernel.release.clone();
    let command = args.guest_command.as_deref();
    let job = Job {
        command: command.unwrap_or(MIX).to_owned(),
        copies: args.copy.clone(),
        marks: simulation::MARKS,
        limit: args.limit,
    };
    let plan = match args.observe {
        Observe::Services => {
            let kernels = data.join("kernels");
            Some(simulation::plan(&machine, &args.annotate, &kernels, &interrupt)?)
        }
        Observe::Count => Some(Plan::empty()),
        Observe::Nothing => None,
    };
    let (status, profile) = simulation::simulate(machine, &job, plan.as_ref(), &interrupt)?;
    if let Some(profile) = profile {
        let title = format!("{} on Linux {release}", command.unwrap_or("A mix of system calls"));
        let report = Report { title, blocks: section::simulation::blocks(&profile, args.observe) };
        output::show(&report, args.print.format())?;
    }
    ensure!(status == 0, "the guest's command ended with status {status}");
    Ok(())
}

/// Opens a kernel that is given as a file or as a version.
fn kernel(installed: &Path, given: Option<&Path>) -> anyhow::Result<Kernel> {
    match given {
        Some(file) if file.is_file() || file.components().count() > 1 => Ok(Kernel::open(file)?),
        version => Ok(Kernel::installed(installed, version.map(|v| v.to_string_lossy()).as_deref())?),
    }
}
