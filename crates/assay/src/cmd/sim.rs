//! `assay sim`: simulated machines. Here is what its subcommands share.

mod image;
mod kept;
mod matrix;
mod run;

use std::path::{Path, PathBuf};

use anyhow::Context;
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Qemu};

use crate::cli::{GuestArgs, SimArgs, SimCommand};
use crate::data;

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Matrix(args) => matrix::run(args),
        SimCommand::Show(args) => kept::show(args),
        SimCommand::Diff(args) => kept::diff(args),
        SimCommand::Image(args) => image::run(args),
    }
}

/// The directory of our data.
fn data() -> anyhow::Result<PathBuf> {
    data::directory().context("no home directory, in which QEMU is searched; set HOME")
}

/// Where in it the platforms are.
const PLATFORMS: &str = "platforms";

/// And the descriptions of their kernels.
const KERNELS: &str = "kernels";

/// The machine of a guest, with the host's clock.
fn machine(platforms: &Path, guest: &GuestArgs) -> anyhow::Result<Machine> {
    Ok(Machine {
        qemu: Qemu::find(platforms)?,
        kernel: kernel(&platforms.join("linux"), guest.kernel.as_deref())?,
        memory_mib: guest.memory,
        image: None,
        clock: Clock::Host,
        observer: None,
    })
}

/// Opens a kernel that is given as a file or as a version.
fn kernel(installed: &Path, given: Option<&Path>) -> anyhow::Result<Kernel> {
    match given {
        Some(file) if file.is_file() || file.components().count() > 1 => Ok(Kernel::open(file)?),
        version => Ok(Kernel::installed(installed, version.map(|v| v.to_string_lossy()).as_deref())?),
    }
}
