//! A second process: this test binary, executed again with a single test, which appends samples to a store
//! and reports each one on its standard output after its commit.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assay_quantity::Unit;
use assay_store::Outcome;

use crate::{numbered, open, primitive, start};

/// Path of the store; if set, the executed test is the child.
const STORE: &str = "ASSAY_STORE_TEST_APPEND_TO";

/// Number of samples; if unset, the child runs until it is killed.
const SAMPLES: &str = "ASSAY_STORE_TEST_SAMPLES";

/// Prefixes of the reports, which distinguish them from the output of the test harness.
const RUN: &str = "run ";
const COMMITTED: &str = "committed ";

/// A report of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The child has started this run.
    Run(i64),
    /// The sample with this number is committed.
    Committed(u32),
}

/// Executes `test` of this binary again, as a child that appends to `store`.
pub fn spawn(test: &str, store: &Path, samples: Option<u32>) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(STORE, store).stdout(Stdio::piped());
    if let Some(samples) = samples {
        command.env(SAMPLES, samples.to_string());
    }
    command.spawn().unwrap()
}

/// Returns the reports of a child as they arrive; ends when the child ends.
pub fn reports(child: &mut Child) -> impl Iterator<Item = Report> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.filter_map(|line| {
        let run = line.strip_prefix(RUN).map(|number| Report::Run(number.parse().unwrap()));
        run.or_else(|| line.strip_prefix(COMMITTED).map(|number| Report::Committed(number.parse().unwrap())))
    })
}

/// Appends and returns true if this process is a child.
pub fn was_child() -> bool {
    let Some(store) = env::var_os(STORE) else { return false };
    let samples = env::var(SAMPLES).map_or(u32::MAX, |samples| samples.parse().unwrap());
    let mut store = open(Path::new(&store));
    let run = store.begin_run(&start()).unwrap();
    report(&format!("{RUN}{run}"));
    for number in 0..samples {
        store
            .add_sample(run, &primitive("tcp.send{size=4KiB}"), Unit::Nanoseconds, &numbered(number))
            .unwrap();
        report(&format!("{COMMITTED}{number}"));
    }
    store.finish_run(run, &Outcome::Completed).unwrap();
    true
}

/// Reports a line with one write, so that a killed child leaves no partial line. The harness may have left an
/// unterminated line.
fn report(line: &str) {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}
