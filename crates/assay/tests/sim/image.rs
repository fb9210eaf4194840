//! Commands in an image of our own.

use std::fs;
use std::path::Path;

use crate::guest::{PROGRAMS, Tables, compile, kernels, platforms, run, sim};

/// A shell without a library, which creates a file in its root directory, finds what a guest has mounted
/// there, and executes no command.
const SHELL: &str = r#"
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
void _start(void)
{
    long file = call(2, (long)"/new", 0301, 0600); /* open(O_WRONLY | O_CREAT | O_EXCL) */
    long standard = call(2, (long)"/dev/stderr", 01, 0); /* open(O_WRONLY) */
    call(1, 1, (long)"made\n", 5); /* write */
    call(1, standard, (long)"error\n", 6);
    call(60, call(1, file, (long)"made\n", 5) == 5 ? 7 : 1, 0, 0); /* exit */
}
"#;

/// Makes an image with [`SHELL`] and as many inodes.
fn make(directory: &Path, name: &str, inodes: &str) {
    fs::create_dir_all(directory.join("root/bin")).unwrap();
    compile(&directory.join("root/bin"), "sh", SHELL, &[]);
    run(directory, "mkfs.ext4", &["-q", "-b", "4096", "-N", inodes, "-d", "root", name, "32M"]);
}

#[test]
fn a_command_runs_in_an_image_which_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), "small,image", "256");
    let content = || fs::read(directory.path().join("small,image")).unwrap();
    let before = content();
    for kernel in kernels() {
        let arguments = ["--guest-command", "false", "--image", "small,image", "--kernel", &kernel, "--json"];
        let said = sim(directory.path(), &arguments);
        let expected = "\nerror\nmade\nassay: the guest's command ended with status 7\n";
        assert!(said.messages.ends_with(expected) && said.code == Some(1), "{said:?}");
        assert_eq!(Tables::of(&said).count(PROGRAMS, "chroot", "processes"), 1);
        assert!(content() == before, "{kernel} has changed the image");
    }
}

#[test]
fn what_is_no_image_or_cannot_be_mounted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), "image", "256");
    let refused = |arguments: &[&str], words: &[&str]| {
        let said = sim(directory.path(), &[&["--guest-command", "true"], arguments].concat());
        assert!(words.iter().all(|word| said.messages.contains(word)), "{said:?}");
        assert_eq!((said.report.as_str(), said.code), ("", Some(1)), "{said:?}");
    };
    // Away from its modules.
    let kernel = &kernels()[0];
    let boot = platforms().join("linux").join(kernel).join("boot");
    fs::copy(boot.join(format!("vmlinuz-{kernel}")), directory.path().join("vmlinuz")).unwrap();
    refused(
        &["--image", "image", "--kernel", "./vmlinuz", "--observe", "nothing"],
        &["cannot mount the image", "the drivers nfit and nd_pmem"],
    );
    // Of 16 inodes, 13 are for the file system itself and the shell.
    make(directory.path(), "full", "16");
    refused(&["--image", "full", "--observe", "nothing"], &["cannot create directories in the image"]);
    let without_command = sim(directory.path(), &["--image", "image"]);
    assert!(without_command.code == Some(2) && without_command.messages.contains("--guest-command"));
    refused(&["--image", "none"], &["cannot read image none: No such file"]);
    fs::write(directory.path().join("text"), "text").unwrap();
    refused(&["--image", "text"], &["text is not an image of an ext4 file system"]);
    let half = fs::File::options().write(true).open(directory.path().join("image")).unwrap();
    half.set_len(16 << 20).unwrap();
    refused(&["--image", "image"], &["image has 16777216 bytes, but its file system has 33554432"]);
}
