//! Images of Debian: they need the network, and the image that `make simulate` builds before it runs this.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

#[expect(dead_code, reason = "the tests of `sim` need more of it")]
mod guest;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use guest::{MODES, PROGRAMS, Tables, assay, kernels, sim};

#[test]
fn a_program_is_compiled_and_run_in_debian_the_same_in_each_run() {
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\nint main(void) { return printf(\"compiled\\n\"); }\n";
    fs::write(directory.path().join("program.c"), source).unwrap();
    for kernel in kernels() {
        let runs = ["first", "second"].map(|output| {
            let command = "gcc -O2 program.c && ./a.out";
            let arguments =
                ["--image", "debian", "--guest-command", command, "--copy", "program.c", "--json"];
            let kept = ["--deterministic", "--kernel", &kernel, "--output", output];
            let said = sim(directory.path(), &[&arguments[..], &kept].concat());
            let expected = "compiled\nassay: the guest's command ended with status 9\n";
            assert!(said.messages.ends_with(expected), "{said:?}");
            let tables = Tables::of(&said);
            for program in ["gcc", "cc1", "as", "ld", "a.out"] {
                assert!(tables.count(PROGRAMS, program, "processes") > 0, "{program}: {said:?}");
            }
            fs::read_to_string(directory.path().join(output)).unwrap()
        });
        assert!(runs[0] == runs[1], "{kernel}: two runs differ");
    }
    let compared = Tables::of(&assay(directory.path(), &["sim", "diff", "first", "second", "--json"]));
    assert_eq!(compared.difference(MODES, "all"), 0);
}

#[test]
fn an_image_is_built_once_and_only_from_packages_that_exist() {
    let directory = tempfile::tempdir().unwrap();
    let build =
        |arguments: &[&str]| assay(directory.path(), &[&["sim", "image", "build"], arguments].concat());
    let refused = build(&["--output", "none.ext4", "--package", "no-such-package"]);
    assert!(refused.code == Some(1) && refused.messages.contains("no-such-package"), "{refused:?}");
    assert!(refused.messages.contains("mmdebstrap ended with"), "{refused:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    let built = build(&["-o", "hello.ext4", "--package", "hello"]);
    assert_eq!(built.code, Some(0), "{built:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let said = sim(
        directory.path(),
        &["--image", "hello.ext4", "--guest-command", "getent hosts localhost && hello", "--json"],
    );
    assert!(said.messages.ends_with("127.0.0.1       localhost\nHello, world!\n"), "{said:?}");
    assert_eq!(build(&["-o", "hello.ext4"]).messages, "hello.ext4 exists\n");
    assert_eq!(build(&["-o", "hello.ext4", "--package", "hello"]).code, Some(1));
}

#[test]
fn an_interrupted_build_leaves_neither_files_nor_mounts() {
    let directory = tempfile::tempdir().unwrap();
    let mut assay = Command::new(env!("CARGO_BIN_EXE_assay"));
    assay.args(["sim", "image", "build", "-o", "image"]).current_dir(directory.path());
    let mut going = assay.spawn().unwrap();
    // The first packages are installed when the file systems are mounted.
    let is_installing = || {
        let builder = fs::read_dir(directory.path()).unwrap().next();
        builder.is_some_and(|builder| builder.unwrap().path().join("root/var/lib/dpkg/info").exists())
    };
    while !is_installing() {
        assert!(going.try_wait().unwrap().is_none(), "the build has ended before it was interrupted");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&going), Signal::INT).unwrap();
    assert_eq!(going.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
}
