//! Builds images from Debian's packages.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use assay_process::{Exit, find_program};
use thiserror::Error;

use super::{Image, ImageError};
use crate::{RunError, watch};

/// Packages that are in every image: with them, programs can be compiled in the guest.
const PACKAGES: [&str; 3] = ["gcc", "libc6-dev", "make"];

/// Length of the images that are built. Only what is used takes space on the host's disk.
const LENGTH: &str = "2G";

/// Time limit for each step; the longest takes 15 s with a fast connection.
const LIMIT: Duration = Duration::from_secs(3600);

/// Why an image cannot be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// Files of other users cannot be made.
    #[error("building an image needs root: its files belong to several users; run it with sudo")]
    NotRoot,
    /// A program is missing.
    #[error("{0} is missing; 'scripts/setup simulate' installs it")]
    NoProgram(&'static str),
    /// There is nothing to download from.
    #[error("the package sources have no entry for this release of Debian; add one, or run 'apt-get update'")]
    NoSource,
    /// A program fails.
    #[error("{program} {exit}: {message}")]
    Failed {
        /// Its name.
        program: &'static str,
        /// How it ended.
        exit: Exit,
        /// Its message.
        message: String,
    },
    /// A program does not end.
    #[error("{program} did not end within an hour and was killed")]
    NotEnded {
        /// Its name.
        program: &'static str,
    },
    /// It cannot be run, or was interrupted.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The result is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Builds an image of this machine's release of Debian, with the packages that it needs to boot, a compiler,
/// and these. The file appears when it is complete. When `stop` becomes true, nothing remains.
///
/// # Errors
/// [`BuildError`].
pub fn build(to: &Path, packages: &[String], stop: &AtomicBool) -> Result<Image, BuildError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot);
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Next to the image, so that it can be renamed.
    let directory = tempfile::Builder::new().prefix(".assay-image-").tempdir_in(parent);
    let directory = directory.map_err(|source| RunError::File { path: parent.to_owned(), source })?;
    let work = Work { directory: directory.path(), stop };
    let [root, file] = ["root", "image"].map(|name| work.directory.join(name));
    let (release, mirror) = source(&work)?;
    let include = PACKAGES.into_iter().chain(packages.iter().map(String::as_str)).collect::<Vec<_>>();
    work.run("mmdebstrap", |command| {
        command.args(["--quiet", "--variant=minbase", "--mode=root"]);
        command.arg(format!("--include={}", include.join(",")));
        command.arg(&release).arg(&root).arg(format!("deb {mirror} {release} main"));
    })?;
    work.run("mkfs.ext4", |command| {
        command.args(["-q", "-d"]).arg(&root).arg(&file).arg(LENGTH);
    })?;
    let image = Image::open(&file)?;
    let moved =
        fs::set_permissions(&file, Permissions::from_mode(0o644)).and_then(|()| fs::rename(&file, to));
    moved.map_err(|source| RunError::File { path: to.to_owned(), source })?;
    Ok(Image { file: to.to_owned(), ..image })
}

/// Where an image is built.
struct Work<'a> {
    directory: &'a Path,
    stop: &'a AtomicBool,
}

impl Work<'_> {
    /// Runs a program to its successful end, and returns what it has printed to stdout. It has namespaces of
    /// its own, because mmdebstrap mounts file systems, and does not unmount them when it is killed.
    fn run(&self, program: &'static str, arguments: impl FnOnce(&mut Command)) -> Result<String, BuildError> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command.arg(find_program(program).ok_or(BuildError::NoProgram(program))?);
        arguments(&mut command);
        let [output, messages] = ["output", "messages"].map(|name| self.directory.join(name));
        let open = |path: &Path| {
            File::create(path).map_err(|source| RunError::File { path: path.to_owned(), source })
        };
        command.stdin(Stdio::null()).stdout(open(&output)?).stderr(open(&messages)?);
        match watch::run(program, &mut command, LIMIT, self.stop)? {
            Some(exit) if exit.is_success() => Ok(watch::read_text(&output)?),
            Some(exit) => {
                let messages = watch::read_text(&messages)?;
                // The first error of apt is the cause, and the others follow from it.
                let first = messages.lines().find(|line| line.starts_with("E: "));
                let message = first.map_or_else(|| watch::last_line(&messages), str::to_owned);
                Err(BuildError::Failed { program, exit, message })
            }
            None => Err(BuildError::NotEnded { program }),
        }
    }
}

/// The release of Debian on this machine, and where its packages come from.
fn source(work: &Work) -> Result<(String, String), BuildError> {
    let format = "$(CODENAME) $(ORIGIN) $(REPO_URI)";
    let targets = work.run("apt-get", |command| {
        command.args(["indextargets", "--format", format, "Created-By: Packages"]);
    })?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename =
        release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or_default();
    let mirror = targets.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, "Debian", mirror] if name == codename => Some(mirror.to_owned()),
        _ => None,
    });
    Ok((codename.to_owned(), mirror.ok_or(BuildError::NoSource)?))
}
