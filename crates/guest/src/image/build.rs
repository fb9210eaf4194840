//! Builds images from Debian's packages.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use assay_process::{Exit, find_program};
use thiserror::Error;

use super::{Image, ImageError};
use crate::{RunError, program};

/// Packages that are in every image: with them, programs can be compiled in the guest.
const PACKAGES: [&str; 3] = ["gcc", "libc6-dev", "make"];

/// Length of the images that are built. Only what is used takes space on the host's disk.
const LENGTH: &str = "2G";

/// Files in which mmdebstrap would leave the network of this machine, and what a guest needs there instead.
const NETWORK: &str =
    "set -e; cd \"$1/etc\"; echo 127.0.0.1 localhost >hosts; echo guest >hostname; : >resolv.conf";

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
    #[error("{program} did not end within {} s and was killed", LIMIT.as_secs())]
    NotEnded {
        /// Its name.
        program: &'static str,
    },
    /// A program or a file cannot be used, or the caller stopped the build.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The result is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Builds an image of this machine's release of Debian, with its minimal packages, a compiler, and these. The
/// file appears when it is complete, and replaces no other one. When `stop` becomes true, nothing remains.
///
/// # Errors
/// [`BuildError`].
pub fn build(to: &Path, packages: &[String], stop: &AtomicBool) -> Result<Image, BuildError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot);
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // On the file system of the image.
    let directory = tempfile::Builder::new().prefix(".assay-image-").tempdir_in(parent);
    let directory = directory.map_err(program::unusable(parent))?;
    let builder = Builder { directory: directory.path(), stop };
    let built = builder.build(packages)?;
    // A name besides the one in the directory, which is then removed.
    let linked = File::open(&built).and_then(|file| file.sync_all()).and_then(|()| fs::hard_link(&built, to));
    linked.map_err(program::unusable(to))?;
    directory.close().map_err(program::unusable(parent))?;
    Ok(Image::open(to)?)
}

/// Builds an image in a directory of its own.
struct Builder<'a> {
    directory: &'a Path,
    stop: &'a AtomicBool,
}

impl Builder<'_> {
    /// Builds an image and returns its path.
    fn build(&self, packages: &[String]) -> Result<PathBuf, BuildError> {
        let [root, image] = ["root", "image"].map(|name| self.directory.join(name));
        let (release, mirror) = self.source()?;
        let include: Vec<&str> = PACKAGES.into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.run("mmdebstrap", |command| {
            command.args(["--quiet", "--variant=minbase", "--mode=root", "--customize-hook", NETWORK]);
            command.arg(format!("--include={}", include.join(",")));
            command.arg(&release).arg(&root).arg(format!("deb {mirror} {release} main"));
        })?;
        self.run("mkfs.ext4", |command| {
            command.args(["-q", "-d"]).arg(&root).arg(&image).arg(LENGTH);
        })?;
        fs::set_permissions(&image, Permissions::from_mode(0o644)).map_err(program::unusable(&image))?;
        Ok(image)
    }

    /// The release of Debian on this machine, and where its packages come from.
    fn source(&self) -> Result<(String, String), BuildError> {
        let format = "$(CODENAME) $(ORIGIN) $(REPO_URI)";
        let targets = self.run("apt-get", |command| {
            command.args(["indextargets", "--format", format, "Created-By: Packages"]);
        })?;
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let codename = codename.unwrap_or_default();
        let mirror = targets.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [name, "Debian", mirror] if name == codename => Some(mirror.to_owned()),
            _ => None,
        });
        Ok((codename.to_owned(), mirror.ok_or(BuildError::NoSource)?))
    }

    /// Runs a program to its successful end, and returns what it has printed to stdout. It has namespaces of
    /// its own, because mmdebstrap mounts file systems, and does not unmount them when it is killed.
    fn run(&self, name: &'static str, arguments: impl FnOnce(&mut Command)) -> Result<String, BuildError> {
        let found = |name| find_program(name).ok_or(BuildError::NoProgram(name));
        let mut command = Command::new(found("unshare")?);
        command.args(["--mount", "--pid", "--fork", "--kill-child"]).arg(found(name)?);
        arguments(&mut command);
        let [output, messages] = ["output", "messages"].map(|file| self.directory.join(file));
        let create = |path: &Path| File::create(path).map_err(program::unusable(path));
        command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&messages)?);
        command.env("TMPDIR", self.directory);
        match program::run(name, &mut command, LIMIT, self.stop)? {
            Some(exit) if exit.is_success() => Ok(program::read_text(&output)?),
            Some(exit) => {
                let messages = program::read_text(&messages)?;
                // The first error of apt is the cause, and the others follow from it.
                let first = messages.lines().find(|line| line.starts_with("E: "));
                let message = first.map_or_else(|| program::last_line(&messages), str::to_owned);
                Err(BuildError::Failed { program: name, exit, message })
            }
            None => Err(BuildError::NotEnded { program: name }),
        }
    }
}
