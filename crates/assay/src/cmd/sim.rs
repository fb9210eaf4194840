//! `assay sim`: runs programs in a simulated machine.

use std::path::Path;

use anyhow::{Context, ensure};
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Qemu};
use assay_guest::{Job, Platform, RunError};

use crate::cli::{SimArgs, SimCommand, SimRunArgs};
use crate::interrupt::{Interrupt, Interrupted};
use crate::{data, output};

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run_guest(args),
    }
}

/// Runs a command in a guest and prints what it printed.
fn run_guest(args: &SimRunArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let data = data::directory().context("no home directory, in which QEMU is searched; set HOME")?;
    let platforms = data.join("platforms");
    let machine = Machine {
        qemu: Qemu::find(&platforms)?,
        kernel: kernel(&platforms.join("linux"), args.kernel.as_deref())?,
        memory_mib: args.memory,
        clock: if args.deterministic { Clock::Instructions } else { Clock::Host },
    };
    let job = Job { command: args.guest_command.clone(), copies: args.copy.clone(), limit: args.limit };
    output::say(&format!("booting Linux {}", machine.kernel.release));
    let finished = match assay_guest::run(&Platform::Qemu(machine), &job, interrupt.flag()) {
        Err(RunError::Interrupted) => return Err(Interrupted::Simulating.into()),
        finished => finished?,
    };
    output::say_bytes(&finished.errors);
    output::print_bytes(&finished.output)?;
    output::say(&format!(
        "the command ran from {} to {} after the start of the kernel, in time of the guest",
        finished.started, finished.ended
    ));
    ensure!(finished.status == 0, "the guest's command ended with status {}", finished.status);
    Ok(())
}

/// Opens a kernel that is given as a file or as a version.
fn kernel(installed: &Path, given: Option<&Path>) -> anyhow::Result<Kernel> {
    match given {
        Some(file) if file.exists() => Ok(Kernel::open(file)?),
        version => Ok(Kernel::installed(installed, version.map(|v| v.to_string_lossy()).as_deref())?),
    }
}
