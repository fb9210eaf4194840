//! Overhead of tracing for the traced program: two loops of cheap calls, run alternately untraced and traced.
//!
//! The lower limit is the cost of the two tracepoints and two clock reads per call in the kernel. The loops
//! are `dd` with blocks of 512 bytes (two calls each, nothing else) and 1-byte blocks. Run by `make bench`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run aborts")]

use std::ffi::OsString;

use assay_quantity::Unit;
use assay_statistics::estimator;
use assay_trace::Writer;
use assay_trace_probe::{Held, Options, Recorded, Recorder, Streams, opening};

/// Pairs of runs. The ratio is computed per pair, so that a drift of the machine cancels out.
const PAIRS: usize = 10;

/// Blocks that `dd` copies: about a second.
const BLOCKS: u32 = 1_000_000;

fn main() {
    println!(
        "{:<28} {:>22} {:>14} {:>10} {:>12}",
        "loop", "slowdown, median", "records/s", "lost", "recorder CPU"
    );
    for block in [512, 1] {
        let command = [
            "dd".to_owned(),
            "if=/dev/zero".to_owned(),
            "of=/dev/null".to_owned(),
            format!("bs={block}"),
            format!("count={BLOCKS}"),
            "status=none".to_owned(),
        ];
        let command = command.map(OsString::from);
        let (mut ratios, mut rates, mut lost, mut recorder) = (Vec::new(), Vec::new(), 0, Vec::new());
        for _ in 0..PAIRS {
            let untraced_s = run(Held::fork(&command, Streams::Null).unwrap());
            let (traced_s, recorded) = traced(&command);
            ratios.push(traced_s / untraced_s);
            rates.push(f64::from(BLOCKS) * 2.0 / traced_s);
            lost += recorded.lost;
            #[expect(clippy::cast_precision_loss, reason = "seconds of processor time in nanoseconds")]
            recorder.push(recorded.recorder_ns as f64 / 1e9 / traced_s);
        }
        let median = |values: &[f64]| estimator::median(values, Unit::Ratio).unwrap();
        let ratio = median(&ratios);
        println!(
            "{:<28} {:>6.2} [{:.2} .. {:.2}] {:>14.0} {:>10} {:>10.0} %",
            format!("dd bs={block}"),
            ratio.point,
            ratio.interval.low,
            ratio.interval.high,
            median(&rates).point,
            lost,
            median(&recorder).point * 100.0
        );
    }
}

/// Returns the seconds from the release of a held program to its end.
#[expect(clippy::cast_precision_loss, reason = "seconds in nanoseconds")]
fn run(held: Held) -> f64 {
    let ended = held.release().unwrap().wait().unwrap();
    assert!(ended.exit.is_success());
    ended.elapsed_ns as f64 / 1e9
}

fn traced(command: &[OsString]) -> (f64, Recorded) {
    let directory = tempfile::tempdir().unwrap();
    let writer =
        Writer::create(&directory.path().join("slowdown.trace"), opening(Vec::new()).unwrap()).unwrap();
    let held = Held::fork(command, Streams::Null).unwrap();
    let recorder = Recorder::attach(held.process(), Options::default(), writer).unwrap();
    let seconds = run(held);
    (seconds, recorder.stop().unwrap())
}
