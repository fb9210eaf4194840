//! `assay sim run`: runs a command in a simulated machine.

use anyhow::{Context, ensure};
use assay_guest::qemu::{Clock, Machine};
use assay_guest::{Finished, Job};
use assay_sim::{Observed, Plan, Run, Setup};

use super::{KERNELS, PLATFORMS, data, image, machine};
use crate::cli::{Observe, SimRunArgs};
use crate::interrupt::Interrupt;
use crate::phase::simulation::{self, Observation};
use crate::{output, section};

/// The command of a guest that is given none: 220 million instructions, three quarters of them in the kernel.
const MIX: &str = include_str!("mix.sh");

/// Runs a command in a guest, keeps the run, and shows where its instructions went.
pub fn run(args: &SimRunArgs) -> anyhow::Result<()> {
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
        image: args.image.as_deref().map(|image| image::open(image, &platforms)).transpose()?,
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
            let kernels = data.join(KERNELS);
            let plan = simulation::plan(&machine, &args.annotate, &kernels, args.guest.limit, &interrupt)?;
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
