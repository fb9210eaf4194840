//! `assay sim`: runs programs in a simulated machine, and shows and compares such runs.

mod matrix;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use assay_guest::image::{self, BuildError, Image};
use assay_guest::kernel::Kernel;
use assay_guest::qemu::{Clock, Machine, Qemu};
use assay_guest::{Finished, Job, RunError};
use assay_quantity::format::{is_matrix, matrix_from_json};
use assay_quantity::{Matrix, Pair};
use assay_sim::{Observed, Plan, Run, Setup};

use crate::cli::{
    GuestArgs, Observe, SimArgs, SimCommand, SimDiffArgs, SimImageBuildArgs, SimImageCommand, SimRunArgs,
    SimShowArgs,
};
use crate::interrupt::{Interrupt, Interrupted};
use crate::journal::read;
use crate::phase::simulation::{self, Observation};
use crate::{data, output, section};

/// The command of a guest that is given none: 220 million instructions, three quarters of them in the kernel.
const MIX: &str = include_str!("sim/mix.sh");

/// Runs the subcommand.
pub fn run(args: &SimArgs) -> anyhow::Result<()> {
    match &args.command {
        SimCommand::Run(args) => run_guest(args),
        SimCommand::Matrix(args) => matrix::run(args),
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
        image: args.image.as_deref().map(|image| open(image, &platforms)).transpose()?,
        clock: if args.deterministic { Clock::Instructions } else { Clock::Host },
        ..machine(&platforms, &args.guest)?
    };
    let job = Job {
        command: args.guest_command.as_deref().unwrap_or(MIX).to_owned(),
        copies: args.copy.clone(),
        marks: simulation::MARKS,
        limit: args.guest.limit,
    };
    let setup = |observed| Setup {
        command: args.guest_command.clone(),
        copies: args.copy.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        kernel: machine.kernel.release.clone(),
        root: args.image.as_ref().map(|image| image.to_string_lossy().into_owned()),
        memory_mib: args.guest.memory,
        deterministic: args.deterministic,
        observed,
        functions: args.annotate.clone(),
    };
    let plan = match args.observe {
        Observe::Services => {
            let plan = simulation::plan(&machine, &args.annotate, &data.join(KERNELS), &interrupt)?;
            Some((setup(Observed::Services), plan))
        }
        Observe::Count => Some((setup(Observed::Count), Plan::empty())),
        Observe::Nothing => None,
    };
    let Some((setup, plan)) = plan else {
        return is_success(said(&simulation::run(machine, &job, &interrupt)?));
    };
    let Observation { finished, profile, .. } = simulation::observe(machine, &job, &plan, &interrupt)?;
    let status = said(&finished);
    let run = Run { setup, status, profile };
    run.check().context("the profile does not belong to this run")?;
    let written = args.output.as_ref().map_or(Ok(()), |path| output::write_file(path, &run.to_json()));
    let shown = output::show(&section::simulation::report(&run), args.print.format());
    output::end(output::end(shown, written), is_success(status))
}

/// Prints what the command has printed, as messages, and returns its status.
fn said(finished: &Finished) -> u8 {
    output::say_bytes(&finished.errors);
    output::say_bytes(&finished.output);
    finished.status
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

/// And the descriptions of their kernels.
const KERNELS: &str = "kernels";

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

/// Shows a run or a matrix that was kept.
fn show(args: &SimShowArgs) -> anyhow::Result<()> {
    let report = match Kept::read(&args.file)? {
        Kept::Matrix(matrix) => section::matrix::report(&matrix, matrix::beside(&args.beside)?.as_ref()),
        Kept::Run(run) => {
            ensure!(args.beside.machine.is_none(), "a run has no costs to compare; --machine needs a matrix");
            section::simulation::report(&run)
        }
    };
    output::show(&report, args.print.format())
}

/// Compares two runs, or two matrices, that were kept.
fn diff(args: &SimDiffArgs) -> anyhow::Result<()> {
    let names = Pair { a: &args.a, b: &args.b }.map(|path| path.display().to_string());
    let report = match (Kept::read(&args.a)?, Kept::read(&args.b)?) {
        (Kept::Run(a), Kept::Run(b)) => {
            ensure!(
                a.setup.observed == b.setup.observed,
                "only one of the runs has services; compare two runs with the same option --observe"
            );
            section::simulation::difference::report(&Pair { a: *a, b: *b }, &names)
        }
        (Kept::Matrix(a), Kept::Matrix(b)) => section::matrix::difference(&Pair { a, b }, &names),
        _ => bail!("a run and a matrix have nothing in common; compare two runs or two matrices"),
    };
    output::show(&report, args.print.format())
}

/// What was kept in a file.
enum Kept {
    Run(Box<Run>),
    Matrix(Matrix),
}

impl Kept {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = read(path)?;
        let is_matrix = is_matrix(&text);
        let kept = if is_matrix {
            matrix_from_json(&text).map(Kept::Matrix).map_err(anyhow::Error::from)
        } else {
            Run::from_json(&text).map(|run| Kept::Run(Box::new(run))).map_err(Into::into)
        };
        kept.with_context(|| format!("{} is neither a run nor a matrix of 'assay sim'", path.display()))
    }
}
