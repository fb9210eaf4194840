//! Cost of the built-in client compared to wrk: the same nginx, the same page, 16 kept connections, run
//! alternately.
//!
//! The built-in client compares every response byte by byte, wrk checks none; the limit is the three system
//! calls of a request (send, wait, receive). Run by `make bench`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run aborts")]
#![expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a round stay below 2^52")]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use assay_quantity::Unit;
use assay_statistics::median;
use assay_workload::client::Load;
use assay_workload::{Operation, Server, Workload};

/// Pairs of rounds. Ratios are computed per pair, so that a drift of the machine cancels out.
const PAIRS: usize = 10;

fn main() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/nginx.toml");
    let workload = Workload::read(&file).unwrap();
    let server = Server::start(&workload, None, &AtomicBool::new(false)).unwrap();
    let ours = workload.operation("page, 16 at once").unwrap();
    let wrk = workload.operation("page by wrk").unwrap();
    let load =
        |operation: &Operation| server.load(operation, None, &AtomicBool::new(false), &mut |_| {}).unwrap();
    load(ours);
    let pairs: Vec<(Load, Load)> = (0..PAIRS).map(|_| (load(ours), load(wrk))).collect();
    server.stop().unwrap();
    println!("{:<36} {:>8}  interval", "ours / wrk, median of pairs", "ratio");
    row("client processor time per request", &pairs, |load| load.client_cpu_ns as f64 / load.requests as f64);
    row("requests per second", &pairs, |load| load.requests as f64 / load.elapsed_ns as f64);
    row("latency p50", &pairs, |load| load.latency.p50_ns as f64);
}

fn row(name: &str, pairs: &[(Load, Load)], figure: fn(&Load) -> f64) {
    let ratios: Vec<f64> = pairs.iter().map(|(ours, wrk)| figure(ours) / figure(wrk)).collect();
    let ratio = median(&ratios, Unit::Ratio).unwrap();
    println!("{name:<36} {:>8.2}  {:.2} .. {:.2}", ratio.point, ratio.interval.low, ratio.interval.high);
}
