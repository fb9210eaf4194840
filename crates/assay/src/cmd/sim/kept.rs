//! `assay sim show` and `assay sim diff`: shows and compares runs and matrices that were kept.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use assay_quantity::format::{is_matrix, matrix_from_json};
use assay_quantity::{Matrix, Pair};
use assay_sim::Run;

use super::matrix;
use crate::cli::{SimDiffArgs, SimShowArgs};
use crate::journal::read;
use crate::{output, section};

/// Shows a run or a matrix that was kept.
pub fn show(args: &SimShowArgs) -> anyhow::Result<()> {
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
pub fn diff(args: &SimDiffArgs) -> anyhow::Result<()> {
    let names = Pair { a: &args.a, b: &args.b }.map(|path| path.display().to_string());
    let report = match (Kept::read(&args.a)?, Kept::read(&args.b)?) {
        (Kept::Run(a), Kept::Run(b)) => {
            ensure!(
                a.setup.observed == b.setup.observed,
                "only one of the runs has services; compare two runs with the same option --observe"
            );
            section::simulation::difference::report(&Pair { a: *a, b: *b }, &names)
        }
        (Kept::Matrix(a), Kept::Matrix(b)) => section::matrix::difference::report(&Pair { a, b }, &names),
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
        let kept = if is_matrix(&text) {
            matrix_from_json(&text).map(Kept::Matrix).map_err(anyhow::Error::from)
        } else {
            Run::from_json(&text).map(|run| Kept::Run(Box::new(run))).map_err(Into::into)
        };
        kept.with_context(|| format!("{} is neither a run nor a matrix of 'assay sim'", path.display()))
    }
}
