//! The command line of `assay sim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{PrintArgs, StoreArgs, budget};

/// `assay sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// The subcommands of `assay sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Boot a Linux kernel in QEMU and run a command there.
    Run(SimRunArgs),
    /// Show a run or a matrix that was kept with --output.
    Show(SimShowArgs),
    /// Compare two runs that were kept, service by service, or two matrices, primitive by primitive: two
    /// kernels, options or programs.
    Diff(SimDiffArgs),
    /// Count what one operation of each primitive of 'assay bench' executes in a guest.
    Matrix(SimMatrixArgs),
    /// Make root file systems for guests.
    Image(SimImageArgs),
}

/// A guest.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// Kernel to boot: a file (bzImage), or the version of an installed one, such as 6.1 [default: the newest
    /// installed one].
    #[arg(long, value_name = "KERNEL")]
    pub kernel: Option<PathBuf>,
    /// Memory of the guest in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=65_536))]
    pub memory: u32,
    /// Kill the guest if it has not ended after this time, which includes the boot, such as 60s or 10m.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = budget)]
    pub limit: Duration,
}

/// `assay sim run`.
#[derive(Debug, Args)]
pub struct SimRunArgs {
    /// Command for the shell of the guest, which has the programs of busybox, or those of the image [default:
    /// a mix of system calls].
    #[arg(long, value_name = "COMMAND")]
    pub guest_command: Option<String>,
    /// File or directory to copy into the directory of the command; can be repeated.
    #[arg(long, value_name = "PATH")]
    pub copy: Vec<PathBuf>,
    /// Guest of the command.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Root file system of the command: 'debian', which 'assay sim image build' makes, or a file with an ext4
    /// file system, which stays as it is [default: busybox].
    #[arg(long, value_name = "IMAGE", requires = "guest_command")]
    pub image: Option<PathBuf>,
    /// Let the guest's time pass with its instructions, one nanosecond for each, so that each run of a
    /// command is the same to the instruction; show what the processor did over time, and the latency of
    /// services. Takes about twice as long.
    #[arg(long)]
    pub deterministic: bool,
    /// What to observe.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Observe::Services)]
    pub observe: Observe,
    /// Count the instructions of a function of the kernel by itself, such as 'tcp_sendmsg: service'; can be
    /// repeated.
    #[arg(long, value_name = "FUNCTION: service", value_parser = annotation)]
    pub annotate: Vec<String>,
    /// Keep the run in this file, for 'assay sim show' and 'assay sim diff'.
    #[arg(short, long, value_name = "NAME.sim.json")]
    pub output: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// `assay sim matrix`.
#[derive(Debug, Args)]
pub struct SimMatrixArgs {
    /// Primitives to count: ids, or prefixes of ids such as `tcp` or `file.read` [default: those of the quick
    /// profile that enter the kernel].
    #[arg(value_name = "PRIMITIVE")]
    pub primitives: Vec<String>,
    /// Also count the sweeps.
    #[arg(long)]
    pub full: bool,
    /// Guest of the primitives.
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Keep the matrix in this file, for 'assay sim show' and 'assay sim diff'.
    #[arg(short, long, value_name = "NAME.matrix.json")]
    pub output: Option<PathBuf>,
    /// Machine whose costs are shown beside.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// The costs to show beside a matrix.
#[derive(Debug, Args)]
pub struct BesideArgs {
    /// Show the costs of this machine beside: a file, a run of 'assay bench' such as 'latest', or a
    /// historical machine.
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<PathBuf>,
    /// Location of its run.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay sim show`.
#[derive(Debug, Args)]
pub struct SimShowArgs {
    /// Run or matrix to show.
    #[arg(value_name = "FILE.json")]
    pub file: PathBuf,
    /// Machine whose costs are shown beside a matrix.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// `assay sim diff`.
#[derive(Debug, Args)]
pub struct SimDiffArgs {
    /// Baseline: a run or a matrix.
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// What to compare with the baseline.
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// `assay sim image`.
#[derive(Debug, Args)]
pub struct SimImageArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimImageCommand,
}

/// The subcommands of `assay sim image`.
#[derive(Debug, Subcommand)]
pub enum SimImageCommand {
    /// Build an image from the packages of this machine's release of Debian, with gcc and make; needs root.
    Build(SimImageBuildArgs),
}

/// `assay sim image build`.
#[derive(Debug, Args)]
pub struct SimImageBuildArgs {
    /// Additional package; can be repeated.
    #[arg(long, value_name = "PACKAGE", value_parser = package)]
    pub package: Vec<String>,
    /// File to build [default: the one that '--image debian' uses].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What `assay sim run` observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Observe {
    /// Instructions of each program, and of each service and routine of the kernel.
    Services,
    /// Instructions of all programs and of the kernel, for any kernel.
    Count,
    /// Nothing: only run the command.
    Nothing,
}

/// Reads the name of a package (Debian policy, section 5.6.7).
fn package(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    // apt removes a package if its name is followed by a minus.
    let is_name = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && !text.ends_with('-');
    if is_name && text.chars().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err("expected the name of a Debian package, such as postgresql".to_owned())
    }
}

/// Reads `FUNCTION: service`, and returns the function.
fn annotation(text: &str) -> Result<String, String> {
    let (function, action) = text.split_once(':').unwrap_or((text, ""));
    if action.trim() != "service" || function.trim().is_empty() {
        return Err(
            "expected a function of the kernel and its meaning, as in 'tcp_sendmsg: service'".to_owned()
        );
    }
    Ok(function.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_packages_are_installed() {
        for name in ["gcc", "g++", "libc6-dev", "0ad"] {
            assert_eq!(package(name).as_deref(), Ok(name));
        }
        // What apt, or the list of mmdebstrap, takes for something else.
        for text in ["", "gcc-", "-y", "a,b", "./gcc.deb", "gcc=12", "?essential", "GCC"] {
            assert!(package(text).is_err(), "{text}");
        }
    }
}
