//! `assay sim`: runs programs in a simulated machine, and shows and compares such runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use assay_guest::image::{self, BuildError, Image};
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Qemu};
use assay_guest::{Job, RunError};
use assay_quantity::Pair;
use assay_sim::{Observed, Plan, Run, Setup};

use crate::cli::{
    Observe, SimArgs, SimCommand, SimDiffArgs, SimImageBuildArgs, SimImageCommand, SimRunArgs, SimShowArgs,
};
use crate::interrupt::{Interrupt, Interrupted};
use crate::journal::read;
use crate::phase::simulation;
use crate::{data, output, section};

/// The command of a guest that is given none: 240 million instructions, three quarters of them in the kernel.
const MIX: &str = include_str!("sim/mix.sh");

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run_guest(args),
        SimCommand::Show(args) => show(args),
        SimCommand::Diff(args) => diff(args),
        SimCommand::Image(args) => match &args.command {
            SimImageCommand::Build(args) => build(args),
        },
    }
}

/// Runs a command in a guest, keeps the run, and shows where its instructions went.
fn run_guest(args: &SimRunArgs) -> anyhow::Result<()> {
    ensure!(
        args.annotate.is_empty() || args.observe == Observe::Services,
        "--annotate needs --observe services, the default"
    );
    ensure!(
        args.output.is_none() || args.observe != Observe::Nothing,
        "--output needs --observe services, the default, or --observe count"
    );
    args.output.as_deref().map_or(Ok(()), output::check_writable)?;
    let interrupt = Interrupt::listen()?;
    let data = data()?;
    let platforms = data.join(PLATFORMS);
    let machine = Machine {
        qemu: Qemu::find(&platforms)?,
        kernel: kernel(&platforms.join("linux"), args.kernel.as_deref())?,
        memory_mib: args.memory,
        image: args.image.as_deref().map(|image| open(image, &platforms)).transpose()?,
        clock: if args.deterministic { Clock::Instructions } else { Clock::Host },
        observer: None,
    };
    let job = Job {
        command: args.guest_command.as_deref().unwrap_or(MIX).to_owned(),
        copies: args.copy.clone(),
        marks: simulation::MARKS,
        limit: args.limit,
    };
    let setup = |observed| Setup {
        command: args.guest_command.clone(),
        copies: args.copy.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        kernel: machine.kernel.release.clone(),
        root: args.image.as_ref().map(|image| image.to_string_lossy().into_owned()),
        memory_mib: args.memory,
        deterministic: args.deterministic,
        observed,
        functions: args.annotate.clone(),
    };
    let plan = match args.observe {
        Observe::Services => {
            let kernels = data.join("kernels");
            let plan = simulation::plan(&machine, &args.annotate, &kernels, &interrupt)?;
            Some((setup(Observed::Services), plan))
        }
        Observe::Count => Some((setup(Observed::Count), Plan::empty())),
        Observe::Nothing => None,
    };
    let Some((setup, plan)) = plan else {
        return is_success(simulation::run_visibly(machine, &job, &interrupt)?);
    };
    let (status, profile) = simulation::observe(machine, &job, &plan, &interrupt)?;
    let run = Run { setup, status, profile };
    run.check().context("the profile does not belong to this run")?;
    let written = args.output.as_ref().map_or(Ok(()), |path| output::write_file(path, &run.to_json()));
    let shown = output::show(&section::simulation::report(&run), args.print.format());
    output::end(output::end(shown, written), is_success(status))
}

fn is_success(status: u8) -> anyhow::Result<()> {
    ensure!(status == 0, "the guest's command ended with status {status}");
    Ok(())
}

/// The directory of our data.
fn data() -> anyhow::Result<PathBuf> {
    data::directory().context("no home directory, in which QEMU is searched; set HOME")
}

/// Where in it the platforms are.
const PLATFORMS: &str = "platforms";

/// Opens an image that is given as a file, or the one that [`build`] makes without an option.
fn open(image: &Path, platforms: &Path) -> anyhow::Result<Image> {
    if image != Path::new(DEBIAN) {
        return Ok(Image::open(image)?);
    }
    let built = platforms.join(DEBIAN_FILE);
    ensure!(built.exists(), "there is no image 'debian'; 'assay sim image build' makes it");
    Ok(Image::open(&built)?)
}

const DEBIAN: &str = "debian";
const DEBIAN_FILE: &str = "debian.ext4";

/// Builds an image.
fn build(args: &SimImageBuildArgs) -> anyhow::Result<()> {
    let file = match &args.output {
        Some(file) => file.clone(),
        None => {
            let platforms = data()?.join(PLATFORMS);
            fs::create_dir_all(&platforms)
                .with_context(|| format!("cannot create {}", platforms.display()))?;
            platforms.join(DEBIAN_FILE)
        }
    };
    if file.exists() {
        let image = Image::open(&file)?;
        let file = image.file.display();
        ensure!(args.package.is_empty(), "{file} exists; remove it, or choose another --output");
        output::say(&format!("{file} exists"));
        return Ok(());
    }
    let interrupt = Interrupt::listen()?;
    output::say("downloading and installing packages");
    match image::build(&file, &args.package, interrupt.flag()) {
        Err(BuildError::Run(RunError::Interrupted)) => Err(Interrupted::Building.into()),
        built => {
            output::say(&format!("built {}", built?.file.display()));
            Ok(())
        }
    }
}

/// Opens a kernel that is given as a file or as a version.
fn kernel(installed: &Path, given: Option<&Path>) -> anyhow::Result<Kernel> {
    match given {
        Some(file) if file.is_file() || file.components().count() > 1 => Ok(Kernel::open(file)?),
        version => Ok(Kernel::installed(installed, version.map(|v| v.to_string_lossy()).as_deref())?),
    }
}

/// Shows a run that was kept.
fn show(args: &SimShowArgs) -> anyhow::Result<()> {
    let run = kept(&args.run)?;
    output::show(&section::simulation::report(&run), args.print.format())
}

/// Compares two runs that were kept.
fn diff(args: &SimDiffArgs) -> anyhow::Result<()> {
    let runs = Pair { a: kept(&args.a)?, b: kept(&args.b)? };
    ensure!(
        runs.a.setup.observed == runs.b.setup.observed,
        "only one of the runs has services; compare two runs with the same option --observe"
    );
    let names = Pair { a: &args.a, b: &args.b }.map(|path| path.display().to_string());
    output::show(&section::simulation::difference::report(&runs, &names), args.print.format())
}

fn kept(path: &Path) -> anyhow::Result<Run> {
    Run::from_json(&read(path)?).with_context(|| format!("{} is not a run of 'assay sim'", path.display()))
}
