//! Guests that panic, hang, are interrupted or lose their results; missing QEMU, unusable files and plugins.
//! QEMU must end in every case. They use the real QEMU and kernels of `scripts/platforms`.

use std::env;
use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::place::{PATIENCE, Place, Said, patiently};

/// Gives a command of a place the environment of the user, whose platforms it needs.
fn with_platforms(mut command: Command) -> Command {
    for name in ["HOME", "XDG_DATA_HOME"] {
        match env::var_os(name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
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
    let lost = "head -c 2000000 /dev/zero";
    for (size, command, words) in [
        ("1m", "true", ["cannot use", "check free space"]),
        ("3m", lost, ["the guest's results end after", "check free space"]),
    ] {
        let place = Place::new();
        let prepare = format!("mount -t tmpfs -o size={size} none full; export TMPDIR=$PWD/full");
        let simulate = ["sim", "run", "--observe", "nothing", "--guest-command", command];
        let said = place.unshared_with(with_platforms, &prepare, &simulate);
        said.complains_of(&words);
        assert!(said.stdout.is_empty(), "{said:?}");
        place.assert_nothing_runs(size);
    }
}

#[test]
fn a_guest_that_does_not_answer_as_it_should_is_reported() {
    let place = Place::new();
    let refused = |command, words: &[&str]| {
        sim(&place, &["--observe", "nothing", "--guest-command", command]).complains_of(words);
    };
    refused("poweroff -f", &["the guest was shut down before its command had ended"]);
    refused("echo garbage >/dev/ttyS1", &["expected 'ended', found \"garbage\"", "must neither write to"]);
    // What is left in the background, and writes, changes no results.
    let said =
        sim(&place, &["--observe", "nothing", "--guest-command", "(while :; do echo x; done) & echo y"]);
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn what_a_guest_cannot_use_is_refused() {
    let place = Place::new();
    fs::write(place.path("text"), "text").unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        sim(&place, &[&["--guest-command", "true"], arguments].concat()).complains_of(words);
    };
    refused(&["--kernel", "text"], &["text is not a Linux kernel for x86", "bzImage"]);
    refused(&["--kernel", "5.4"], &["no kernel 5.4 in ", "installed: 6.", "scripts/setup simulate"]);
    refused(&["--kernel", "./none"], &["cannot read kernel ./none: No such file"]);
    refused(&["--copy", "none"], &["cannot copy none into the guest: No such file"]);
    let large = fs::File::create(place.path("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    refused(&["--copy", "large"], &["exceed 128 MiB", "more memory"]);
    let said = Said::by(&mut place.assay(&["sim", "run", "--guest-command", "true"]));
    said.complains_of(&["qemu-system-x86_64 is missing", "'scripts/setup simulate' installs it"]);
}

#[test]
fn a_plugin_for_another_version_of_qemu_is_refused() {
    let place = Place::new();
    fs::copy(env!("CARGO_BIN_EXE_assay"), place.path("assay")).unwrap();
    let plugin = "int qemu_plugin_version = 99;\nint qemu_plugin_install(void) { return 0; }\n";
    fs::write(place.path("plugin.c"), plugin).unwrap();
    let arguments = ["-shared", "-fPIC", "-o", "libassay_sim_plugin.so", "plugin.c"];
    assert!(place.command(&["gcc"], &arguments).status().unwrap().success());
    let program = place.path("assay");
    let arguments = ["sim", "run", "--observe", "count", "--guest-command", "true"];
    let said = Said::by(&mut with_platforms(place.command(&[program.to_str().unwrap()], &arguments)));
    said.complains_of(&["QEMU cannot use libassay_sim_plugin.so", "cargo build", "requires API version 99"]);
    place.assert_nothing_runs("a plugin of another version");
    place.assert_no_litter("a plugin of another version");
}
