//! Guests that panic, hang, are interrupted or lose their results; missing QEMU and unusable files. QEMU must
//! end in every case. They use the real QEMU and kernels of `scripts/platforms`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::place::{PATIENCE, Place, Said, patiently};

/// Returns the directory with the user's data, which contains the platforms.
fn data_home() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap()).join(".local/share");
    env::var_os("XDG_DATA_HOME").filter(|path| Path::new(path).is_absolute()).map_or_else(home, PathBuf::from)
}

/// Adds the user's platforms to the environment of a place.
fn with_platforms(mut command: Command) -> Command {
    command.env("XDG_DATA_HOME", data_home());
    command
}

/// Runs a command in a guest. No process and no file of it may remain.
fn sim(place: &Place, arguments: &[&str]) -> Said {
    let said = Said::by(&mut with_platforms(place.assay(&[&["sim", "run"], arguments].concat())));
    let story = format!("{arguments:?}");
    place.assert_nothing_runs(&story);
    place.assert_no_litter(&story);
    said
}

#[test]
fn a_guest_that_panics_is_reported_with_the_message_of_its_kernel() {
    let said = sim(&Place::new(), &["--guest-command", "echo c >/proc/sysrq-trigger"]);
    assert_eq!(said.complaint(), "assay: the guest's kernel panicked: sysrq triggered crash");
    assert!(said.stdout.is_empty(), "{said:?}");
}

#[test]
fn a_guest_that_hangs_is_killed() {
    // Whether it has booted by then depends on the speed of the machine.
    let said = sim(&Place::new(), &["--guest-command", "sleep 1000", "--limit", "2"]);
    said.complains_of(&["within 2 s", "killed"]);
}

#[test]
fn a_guest_ends_when_assay_is_interrupted_or_killed() {
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::TERM, Some(130)), (Signal::KILL, None)] {
        let place = Place::new();
        let mut assay = with_platforms(place.assay(&["sim", "run", "--guest-command", "sleep 1000"]));
        let mut going = place.start_command(&mut assay);
        going.await_line("booting");
        let qemu = || place.processes().iter().any(|(_, command)| command.contains("qemu-system"));
        patiently(PATIENCE, || qemu().then_some(())).unwrap();
        going.signal(signal);
        let said = going.end();
        assert_eq!(said.status.code(), code, "{said:?}");
        place.assert_nothing_runs(&format!("{signal:?}"));
        if code.is_some() {
            assert_eq!(said.complaint(), "assay: interrupted; the guest was killed");
            place.assert_no_litter(&format!("{signal:?}"));
        }
    }
}

#[test]
fn a_full_disk_is_reported_before_the_boot_or_when_results_are_lost() {
    // The first file system takes about 2 MB.
    for (size, command, words) in [
        ("1m", "true", ["cannot write", "check free space"]),
        (
            "3m",
            "head -c 2000000 /dev/zero",
            ["the guest's results are damaged (they end after", "check free space"],
        ),
    ] {
        let place = Place::new();
        let prepare = format!(
            "mount -t tmpfs -o size={size} none full; export TMPDIR=$PWD/full XDG_DATA_HOME={}",
            data_home().display()
        );
        let said = place.unshared(&prepare, &["sim", "run", "--guest-command", command]);
        said.complains_of(&words);
        assert!(said.stdout.is_empty(), "{said:?}");
        place.assert_nothing_runs(size);
    }
}

#[test]
fn what_a_guest_cannot_use_is_refused() {
    let place = Place::new();
    fs::write(place.path("text"), "text").unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        sim(&place, &[&["--guest-command", "true"], arguments].concat()).complains_of(words);
    };
    refused(&["--kernel", "text"], &["text is not a Linux kernel for x86", "bzImage"]);
    refused(&["--kernel", "5.4"], &["no kernel 5.4 in ", "installed: 6."]);
    refused(&["--copy", "none"], &["cannot copy none into the guest: No such file"]);
    let said = Said::by(&mut place.assay(&["sim", "run", "--guest-command", "true"]));
    said.complains_of(&["qemu-system-x86_64 is missing", "'scripts/setup simulate' installs it"]);
}
