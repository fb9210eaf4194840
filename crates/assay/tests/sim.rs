//! `assay sim` from outside, on the real QEMU and kernels of `scripts/platforms`.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Runs a command in a guest in this directory. Returns its output, its messages and the exit code of
/// `assay`.
fn sim(directory: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    let mut assay = Command::new(env!("CARGO_BIN_EXE_assay"));
    let output = assay.args(["sim", "run"]).args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn a_command_runs_in_a_guest_with_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("tree")).unwrap();
    fs::write(path("tree/script"), "#!/bin/sh\nuname -r; cat /proc/sys/kernel/hostname; echo $# $1\n")
        .unwrap();
    fs::set_permissions(path("tree/script"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("script", path("tree/link")).unwrap();
    let command = "tree/link 'a b'; cat bytes; echo an error >&2; exit 3";
    let bytes: String = (0..2000).map(|number| format!("\t{number}\r\n\u{4}")).collect();
    fs::write(path("bytes"), &bytes).unwrap();
    for version in ["6.1", "6.12"] {
        let arguments =
            ["--guest-command", command, "--copy", "tree", "--copy", "bytes", "--kernel", version];
        let (output, messages, code) = sim(directory.path(), &arguments);
        let (release, rest) = output.split_once('\n').unwrap_or_else(|| panic!("{messages}"));
        assert!(release.starts_with(&format!("{version}.")), "{output}");
        assert_eq!(rest, format!("(none)\n1 a b\n{bytes}"));
        let lines: Vec<&str> = messages.lines().collect();
        assert_eq!(lines[0], format!("booting Linux {release}"), "{messages}");
        assert_eq!(lines[1], "an error", "{messages}");
        assert!(lines[2].starts_with("the command ran from "), "{messages}");
        assert_eq!(lines[3..], ["assay: the guest's command ended with status 3"], "{messages}");
        assert_eq!(code, Some(1));
    }
}

#[test]
fn with_the_clock_of_its_instructions_a_guest_does_the_same_in_each_run() {
    let directory = tempfile::tempdir().unwrap();
    // Random numbers, interrupts, memory and the time in ns, after work with processes and files.
    let command = "for i in $(seq 20); do sh -c 'echo $$' >>pids; done; ls -laR /work | md5sum
        head -c 16 /dev/urandom | xxd; cat /proc/interrupts /proc/vmstat /proc/uptime; adjtimex; date +%s";
    let run = || sim(directory.path(), &["--guest-command", command, "--deterministic"]);
    let (first, second) = (run(), run());
    assert_eq!(first.2, Some(0), "{}", first.1);
    assert!(first.0.contains("nr_free_pages"), "{}", first.0);
    assert_eq!(first, second);
}
