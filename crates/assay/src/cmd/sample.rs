//! `assay sample`: measures one sample in this process, for `assay bench`.

use std::io;

use anyhow::Context;

use crate::cli::SampleArgs;

/// Runs the subcommand.
pub fn run(args: &SampleArgs) -> anyhow::Result<()> {
    let request = args.arguments.first().context("'sample' is for internal use; run 'assay bench'")?;
    Ok(assay_bench::sample_main(request, &mut io::stdout().lock())?)
}
