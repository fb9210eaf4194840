//! Guests on QEMU, which emulates a whole machine (TCG): an x86-64 PC with one processor and no network,
//! whose kernel and first file system QEMU loads itself. An image is in persistent memory (NVDIMM): reading
//! it needs no disk, whose time would be that of the host.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

use thiserror::Error;

use crate::image::Image;
use crate::kernel::Kernel;
use crate::root::{self, System};
use crate::watch::Start;
use crate::{Job, RunError};

/// Major version of QEMU for which this is written.
const MAJOR: &str = "10.";

/// Command line of the guest's kernel, besides the path of its first process: a panic ends the guest, an oops
/// panics; addresses of the kernel are the same in each run; the console shows only what is wrong; the time
/// stamp counter is not compared with slower clocks of the emulated machine; the self tests of the kernel's
/// cryptography, a third of the instructions of a boot, are left out.
const KERNEL_OPTIONS: &str =
    "console=ttyS0 quiet panic=-1 oops=panic nokaslr tsc=reliable cryptomgr.notests rdinit=/init";

/// The default one of QEMU, with random numbers: a kernel without a source of them computes each one anew for
/// its first seconds, which doubles the instructions to create a file and adds a quarter to those of a fork.
const PROCESSOR: &str = "qemu64,+rdrand";

/// Modules for an image, each after those that it needs. A kernel may have them built in.
const DRIVERS: [&str; 4] =
    ["drivers/nvdimm/libnvdimm", "drivers/nvdimm/nd_btt", "drivers/nvdimm/nd_pmem", "drivers/acpi/nfit/nfit"];

/// QEMU, with what guests need besides a kernel, as `scripts/platforms` installs it.
#[derive(Debug, Clone)]
pub struct Qemu {
    /// Where its packages are unpacked.
    root: PathBuf,
    /// A static busybox.
    busybox: PathBuf,
}

/// Why QEMU cannot be used.
#[derive(Debug, Error)]
pub enum Unavailable {
    /// A file is missing.
    #[error("{} is missing; 'scripts/setup simulate' installs it", .0.display())]
    Missing(PathBuf),
    /// It does not run, or is another version.
    #[error("{} is not QEMU 10 ({problem}); remove {} and run 'scripts/setup simulate'", program.display(), root.display())]
    Unusable {
        /// The program.
        program: PathBuf,
        /// What it did instead.
        problem: String,
        /// The directory that the script creates again.
        root: PathBuf,
    },
}

impl Qemu {
    /// Finds QEMU and busybox in the directory of `scripts/platforms`.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn find(platforms: &Path) -> Result<Qemu, Unavailable> {
        let qemu = Qemu { root: platforms.join("qemu"), busybox: platforms.join("busybox/bin/busybox") };
        for file in [qemu.program(), qemu.busybox.clone()] {
            if !file.exists() {
                return Err(Unavailable::Missing(file));
            }
        }
        let version = match qemu.command().arg("--version").output() {
            Ok(output) => first_line(&[output.stdout, output.stderr].concat()),
            Err(error) => error.to_string(),
        };
        if version.strip_prefix("QEMU emulator version ").is_some_and(|rest| rest.starts_with(MAJOR)) {
            return Ok(qemu);
        }
        Err(Unavailable::Unusable { program: qemu.program(), problem: version, root: qemu.root })
    }

    fn program(&self) -> PathBuf {
        self.root.join("usr/bin/qemu-system-x86_64")
    }

    /// QEMU with its own libraries and firmware.
    fn command(&self) -> Command {
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|path| self.root.join(path));
        let mut command = Command::new(self.program());
        command.env("LD_LIBRARY_PATH", libraries.map(PathBuf::into_os_string).join(&OsString::from(":")));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(data));
        }
        command
    }
}

/// How time passes in a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// As on the host.
    Host,
    /// One nanosecond for each instruction, from the same date in each run; time in which the guest waits
    /// passes at once. Runs of the same job are identical to the instruction.
    Instructions,
}

/// A machine to emulate.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The emulator.
    pub qemu: Qemu,
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// Memory in MiB, without that of the image.
    pub memory_mib: u32,
    /// The root file system of the command. What the guest writes to it is lost. Without one, it is that of
    /// busybox.
    pub image: Option<Image>,
    /// Its clock.
    pub clock: Clock,
    /// What observes it.
    pub observer: Option<Observer>,
}

/// A plugin of QEMU.
#[derive(Debug, Clone)]
pub struct Observer {
    /// The shared library.
    pub library: PathBuf,
    /// Names of its arguments, and the files that are their values.
    pub files: Vec<(&'static str, PathBuf)>,
}

impl Machine {
    /// Writes the guest's first file system and returns how to start the machine.
    pub(crate) fn prepare(&self, job: &Job, directory: &Path) -> Result<Start, RunError> {
        let write = |name: &str, content: &[u8]| {
            let path = directory.join(name);
            match fs::write(&path, content) {
                Ok(()) => Ok(path),
                Err(source) => Err(RunError::File { path, source }),
            }
        };
        let memory_bytes = u64::from(self.memory_mib) << 20;
        let drivers: Option<Vec<PathBuf>> = self
            .image
            .is_some()
            .then(|| DRIVERS.into_iter().filter_map(|driver| self.kernel.module(driver)).collect());
        let system = System { busybox: &self.qemu.busybox, drivers: drivers.as_deref() };
        let root = write("root.cpio", &root::archive(job, &system, memory_bytes)?)?;
        let [console, answer] = [write("console", b"")?, write("answer", b"")?];
        let mut command = self.qemu.command();
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // One thread emulates all processors, which `-icount` requires.
        command.args(["-accel", "tcg,thread=single", "-smp", "1", "-cpu", PROCESSOR]);
        let mut memory = format!("{memory_bytes}b");
        if let Some(image) = &self.image {
            memory += &format!(",slots=1,maxmem={}b", memory_bytes + image.bytes);
            command.args(["-machine", "nvdimm=on", "-device", "nvdimm,memdev=image", "-object"]);
            command.arg(memory_of(image));
        }
        command.args(["-m", &memory]);
        command.arg("-kernel").arg(&self.kernel.image);
        command.arg("-initrd").arg(&root);
        command.args(["-append", KERNEL_OPTIONS]);
        for (id, file) in [("console", &console), ("answer", &answer)] {
            command.arg("-chardev").arg(chardev(id, file));
            command.args(["-serial", &format!("chardev:{id}")]);
        }
        if let Some(observer) = &self.observer {
            let mut option = escaped(&observer.library);
            for (name, file) in &observer.files {
                option.push(format!(",{name}="));
                option.push(escaped(file));
            }
            command.arg("-plugin").arg(option);
        }
        if self.clock == Clock::Instructions {
            command.args(["-icount", "shift=0,sleep=off", "-rtc", "clock=vm,base=2026-01-01", "-seed", "1"]);
        }
        Ok(Start { program: "QEMU", command, console, answer, messages: write("messages", b"")? })
    }
}

/// The option of memory that begins with the content of an image, and whose changes do not reach it.
fn memory_of(image: &Image) -> OsString {
    let mut option = OsString::from("memory-backend-file,id=image,share=off,readonly=on,rom=off,");
    option.push(format!("size={}b,mem-path=", image.bytes));
    option.push(escaped(&image.file));
    option
}

/// The option of a character device that writes to a file.
fn chardev(id: &str, file: &Path) -> OsString {
    let mut option = OsString::from(format!("file,id={id},path="));
    option.push(escaped(file));
    option
}

/// A path in an option. QEMU separates the parts of options by commas, and takes two for one.
fn escaped(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter();
    OsString::from_vec(
        bytes.flat_map(|byte| iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 })).collect(),
    )
}

fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or("it prints nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_missing_or_unusable_qemu_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let refused = || Qemu::find(directory.path()).unwrap_err().to_string();
        let program = path("qemu/usr/bin/qemu-system-x86_64");
        assert_eq!(
            refused(),
            format!("{} is missing; 'scripts/setup simulate' installs it", program.display())
        );
        for name in [&program, &path("busybox/bin/busybox")] {
            fs::create_dir_all(name.parent().unwrap()).unwrap();
            fs::write(name, "#!/bin/sh\necho QEMU emulator version 7.2.22\n").unwrap();
            fs::set_permissions(name, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let expected = format!(
            "{} is not QEMU 10 (QEMU emulator version 7.2.22); remove {} and run 'scripts/setup simulate'",
            program.display(),
            path("qemu").display()
        );
        assert_eq!(refused(), expected);
    }
}
