//! `assay sim image`: root file systems for guests.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use assay_guest::RunError;
use assay_guest::image::{self, BuildError, Image};

use super::{PLATFORMS, data};
use crate::cli::{SimImageArgs, SimImageBuildArgs, SimImageCommand};
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;

/// Runs the subcommand.
pub fn run(args: &SimImageArgs) -> anyhow::Result<()> {
    match &args.command {
        SimImageCommand::Build(args) => build(args),
    }
}

/// Opens an image that is given as a file, or the one that [`build`] makes without an option.
pub fn open(image: &Path, platforms: &Path) -> anyhow::Result<Image> {
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
