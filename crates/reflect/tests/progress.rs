//! Progress counters of programs in C, C++ and Python, read here.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assay_reflect::progress::{Observed, Progress, Units};

/// Counts in two threads: 2,000 units in all, and 3 failures. Then it opens what is no counter.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "assay_progress.h"

static void *work(void *progress)
{
    for (int unit = 0; unit < 1000; unit++)
        assay_progress_finished((struct assay_progress *)progress, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct assay_progress *progress = assay_progress_create(argv[1]);
    if (argc != 3 || !progress)
        return 1;
    pthread_create(&thread, NULL, work, progress);
    work(progress);
    pthread_join(thread, NULL);
    assay_progress_failed(progress, 3);
    assay_progress_finished(NULL, 1);
    if (assay_progress_create(argv[2]) || errno != EINVAL)
        return 2;
    return 0;
}
"#;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Compiles the program, and runs it with a counter and with a file that is none.
fn counted_by(compiler: &str, standard: &str, source: &str, directory: &Path) -> Units {
    let [source, program, counter, other] =
        [source, "program", "counter", "other"].map(|name| directory.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    std::fs::write(&other, "something else").unwrap();
    let mut compile = Command::new(compiler);
    compile.args([standard, "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    run(compile.arg(Path::new(HERE).join("include")).arg(&source).arg("-o").arg(&program));
    run(Command::new(&program).args([&counter, &other]));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "something else");
    Observed::open(&counter).unwrap().read().unwrap()
}

#[test]
fn programs_in_c_and_c_plus_plus_count_by_the_header() {
    for (compiler, standard, source) in
        [("cc", "-std=gnu11", "program.c"), ("c++", "-std=c++17", "program.cc")]
    {
        let directory = tempfile::tempdir().unwrap();
        let units = counted_by(compiler, standard, source, directory.path());
        assert_eq!(units, Units { finished: 2000, failed: 3 }, "{compiler}");
    }
}

fn python(counter: &Path, input: &str) -> Output {
    let example: PathBuf = Path::new(HERE).join("../../examples/progress/progress.py");
    let mut child = Command::new("python3")
        .args([&example, counter])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses the counter does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn the_example_in_python_counts_and_continues() {
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    for _ in 0..2 {
        assert!(python(&counter, "a\n\nb\nc\n").status.success());
    }
    let progress = Observed::open(&counter).unwrap();
    assert_eq!(progress.read().unwrap(), Units { finished: 6, failed: 2 });
    // Rust writes the same file.
    Progress::create(&counter).unwrap().finished(1);
    assert_eq!(progress.read().unwrap().finished, 7);
    std::fs::write(&counter, "something else").unwrap();
    let refused = python(&counter, "a\n");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no progress counter"));
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "something else");
}
