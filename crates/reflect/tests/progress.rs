//! Progress counters of programs in C, C++ and Python, read here.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assay_reflect::advice::{Advice, Bound, Class, Queue};
use assay_reflect::progress::{Observed, Progress, Units};

/// Counts in two threads: 2,000 units in all, and 3 failures. Then it gives the advice of a number, and opens
/// what is no counter.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "assay_progress.h"

static const unsigned ADVICE[] = {
    0, ASSAY_PROGRESS_BATCH, ASSAY_PROGRESS_BANDWIDTH_BOUND, ASSAY_PROGRESS_NEVER_QUEUED,
};

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
    if (argc != 4 || !progress)
        return 1;
    pthread_create(&thread, NULL, work, progress);
    work(progress);
    pthread_join(thread, NULL);
    assay_progress_failed(progress, 3);
    assay_progress_finished(NULL, 1);
    if (assay_progress_advise(progress, "an earlier name", ASSAY_PROGRESS_NEVER_QUEUED) ||
        assay_progress_advise(progress, "transaction", ADVICE[atoi(argv[3])]) ||
        assay_progress_advise(NULL, "", 0) ||
        assay_progress_advise(progress, "0123456789 0123456789 0123456789 0123456789 01234", 0) != -1 ||
        assay_progress_advise(progress, "row", 1) != -1)
        return 3;
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

/// Compiles the program.
fn compiled(compiler: &str, standard: &str, source: &str, directory: &Path) -> PathBuf {
    let [source, program] = [source, "program"].map(|name| directory.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new(compiler);
    compile.args([standard, "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    run(compile.arg(Path::new(HERE).join("include")).arg(&source).arg("-o").arg(&program));
    program
}

#[test]
fn programs_in_c_and_c_plus_plus_count_and_advise_by_the_header() {
    for (compiler, standard, source) in
        [("cc", "-std=gnu11", "program.c"), ("c++", "-std=c++17", "program.cc")]
    {
        let directory = tempfile::tempdir().unwrap();
        let program = compiled(compiler, standard, source, directory.path());
        let [counter, other] = ["counter", "other"].map(|name| directory.path().join(name));
        std::fs::write(&other, "something else").unwrap();
        let advice = Advice { unit: "transaction".to_owned(), ..Advice::default() };
        let all = [
            advice.clone(),
            Advice { class: Class::Batch, ..advice.clone() },
            Advice { bound: Bound::Bandwidth, ..advice.clone() },
            Advice { queue: Queue::Never, ..advice },
        ];
        for (number, advice) in (0..).zip(all) {
            run(Command::new(&program).args([&counter, &other]).arg(number.to_string()));
            let observed = Observed::open(&counter).unwrap();
            let runs = number + 1;
            let units = Units { finished: 2000 * runs, failed: 3 * runs };
            assert_eq!(observed.read().unwrap(), units, "{compiler}");
            assert_eq!(observed.advice(), Some(advice), "{compiler}");
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "something else");
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
