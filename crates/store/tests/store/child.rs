//! A second process: this test binary, executed again with only one test to run, which appends samples to
//! a store and reports each on its standard output as soon as it is committed.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assay_quantity::Unit;
use assay_store::Outcome;

use crate::{numbered, open, primitive, start};

/// Names the store, and by being set makes the executed test the child.
const STORE: &str = "ASSAY_STORE_TEST_APPEND_TO";

/// How many samples; without it, until the process is killed.
const SAMPLES: &str = "ASSAY_STORE_TEST_SAMPLES";

/// Begins the reports among the lines that the test harness prints.
const RUN: &str = "run ";
const COMMITTED: &str = "committed ";

/// What a child reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It has begun this run.
    Run(i64),
    /// The sample of this number is committed.
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

/// The reports of a child, as they come; ends when the child does.
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

/// One write, so that a killed child leaves no half of a line. The harness may have left a line unended.
fn report(line: &str) {
    let mut stdout = io::stdout().lock();
    stdout.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}
