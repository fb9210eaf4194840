//! `assay sim matrix`: what one operation of each primitive executes in a simulated machine.

use anyhow::anyhow;
use assay_bench::{Benchmark, Profile};
use assay_guest::qemu::{Clock, Machine};
use assay_quantity as quantity;
use assay_quantity::format::matrix_to_json;

use super::{KERNELS, PLATFORMS, data, machine};
use crate::cli::{BesideArgs, SimMatrixArgs};
use crate::interrupt::Interrupt;
use crate::phase::matrix::count;
use crate::phase::selection::Selection;
use crate::phase::simulation;
use crate::{journal, output, section};

/// Runs the subcommand.
pub fn run(args: &SimMatrixArgs) -> anyhow::Result<()> {
    args.output.as_deref().map_or(Ok(()), output::check_writable)?;
    let beside = beside(&args.beside)?;
    let benchmarks = benchmarks(args)?;
    let interrupt = Interrupt::listen()?;
    let data = data()?;
    let machine = Machine { clock: Clock::Instructions, ..machine(&data.join(PLATFORMS), &args.guest)? };
    let plan = simulation::plan(&machine, &[], &data.join(KERNELS), args.guest.limit, &interrupt)?;
    let matrix = count(machine, &plan, &benchmarks, args.guest.limit, source(args), &interrupt)?;
    let report = section::matrix::report(&matrix, beside.as_ref());
    let shown = output::show(&report, args.print.format());
    if matrix.rows.is_empty() {
        return output::end(shown, Err(anyhow!("no primitive could be counted; the table has the reasons")));
    }
    let written =
        args.output.as_ref().map_or(Ok(()), |path| output::write_file(path, &matrix_to_json(&matrix)));
    output::end(shown, written)
}

/// The command, as far as the counts depend on it and the matrix does not contain it.
fn source(args: &SimMatrixArgs) -> String {
    let full = args.full.then_some("--full");
    let selection = full.into_iter().chain(args.primitives.iter().map(String::as_str));
    let words: Vec<&str> = ["assay sim matrix"].into_iter().chain(selection).collect();
    format!("assay {}: {}", env!("CARGO_PKG_VERSION"), words.join(" "))
}

/// The selected benchmarks; without names, those that enter the kernel.
fn benchmarks(args: &SimMatrixArgs) -> anyhow::Result<Vec<Benchmark>> {
    let profile = if args.full { Profile::Full } else { Profile::Quick };
    let selection = Selection { names: args.primitives.clone(), profile, ..Selection::default() };
    let mut benchmarks = selection.benchmarks()?;
    if args.primitives.is_empty() {
        benchmarks.retain(Benchmark::enters_kernel);
    }
    Ok(benchmarks)
}

/// The machine whose costs are shown beside a matrix.
pub fn beside(args: &BesideArgs) -> anyhow::Result<Option<quantity::Machine>> {
    let known = args.machine.as_ref().map(|name| journal::known(name, &args.store)).transpose()?;
    Ok(known.map(|known| known.machine))
}
