//! Fuzzes all parsers with damaged input: one list of targets, one mutator, and a canary.
//!
//! `make test` runs each target for half a second; `make fuzz SECONDS=3600` sets the total time. A failure
//! prints the seed and the input. The canary has a planted bug: if the mutator does not find it, the fuzzer
//! is useless, which is also a failure.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]
#![expect(clippy::print_stdout, reason = "with --nocapture, a passing test shows its number of inputs")]
#![expect(clippy::disallowed_methods, reason = "fuzzing is bounded by time, not by a number of inputs")]

mod clients;
mod proxy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use assay_bench::simulated::{self, Totals};
use assay_bench::{Benchmark, catalogue};
use assay_quantity::format::{
    demand_from_json, demand_to_json, machine_from_json, machine_to_json, matrix_from_json, matrix_to_json,
};
use assay_quantity::{Pattern, PrimitiveId};
use assay_sim::{
    Attribution, Counts, Event, Moment, Plan, Profile, Routines, Run, Service, Snapshots, btf, symbols,
};
use assay_trace::container::{Closing, Origin};
use assay_trace::{Opening, Reader, Writer};
use assay_workload::Workload;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A parser and valid inputs, which are mutated.
struct Target {
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    /// Panics if the parser violates an invariant; rejected input is not a failure.
    parse: fn(&[u8]),
}

const TARGETS: [Target; 25] = [
    Target { name: "machine file", seeds: machines, parse: parse_machine },
    Target { name: "demand file", seeds: demands, parse: parse_demand },
    Target { name: "matrix file", seeds: matrices, parse: parse_matrix },
    Target { name: "primitive id", seeds: ids, parse: parse_id },
    Target { name: "workload file", seeds: workloads, parse: parse_workload },
    Target { name: "HTTP answer", seeds: clients::http_answers, parse: clients::parse_http_answer },
    Target { name: "reply of Redis", seeds: clients::redis_replies, parse: clients::parse_redis_reply },
    Target {
        name: "answer of PostgreSQL",
        seeds: clients::postgres_answers,
        parse: clients::parse_postgres_answer,
    },
    Target { name: "trace manifest", seeds: manifests, parse: parse_manifest },
    Target { name: "trace spool", seeds: spools, parse: parse_spool },
    Target { name: "trace segment", seeds: segments, parse: parse_segment },
    Target { name: "answer of a guest", seeds: guest_answers, parse: parse_guest_answer },
    Target { name: "samples of a guest", seeds: guest_samples, parse: parse_guest_samples },
    Target { name: "BTF of a kernel", seeds: btfs, parse: parse_btf },
    Target { name: "symbols of a kernel", seeds: kernel_symbols, parse: parse_kernel_symbols },
    Target { name: "profile of a guest", seeds: profiles, parse: parse_profile },
    Target { name: "snapshots of a guest", seeds: snapshots, parse: parse_snapshots },
    Target { name: "run of a guest", seeds: runs, parse: parse_run },
    Target { name: "header of a kernel", seeds: kernel_headers, parse: parse_kernel_header },
    Target { name: "superblock of an image", seeds: superblocks, parse: parse_superblock },
    Target {
        name: "first packet of a session",
        seeds: proxy::first_packets,
        parse: proxy::parse_first_packet,
    },
    Target { name: "messages of a session", seeds: proxy::conversations, parse: proxy::parse_conversation },
    Target { name: "messages of a login", seeds: proxy::logins, parse: proxy::parse_login },
    Target { name: "list of users", seeds: proxy::users, parse: proxy::parse_users },
    Target { name: "answer to a lookup", seeds: proxy::lookups, parse: proxy::parse_lookup },
];

#[test]
fn no_parser_panics_or_changes_what_it_accepts() {
    let seed = env::var("FUZZ_SEED").map_or_else(|_| rand::rng().random(), |seed| seed.parse().unwrap());
    let seconds = env::var("FUZZ_SECONDS").map_or(8, |seconds| seconds.parse().unwrap());
    let each = Duration::from_secs(seconds) / u32::try_from(TARGETS.len()).unwrap();
    for target in &TARGETS {
        match fuzz(target, seed, each) {
            Ok(inputs) => println!("{}: {inputs} inputs, seed {seed}", target.name),
            Err(input) => {
                panic!("{} fails with FUZZ_SEED={seed} on {:?}", target.name, String::from_utf8_lossy(&input))
            }
        }
    }
}

#[test]
fn the_fuzzer_finds_a_planted_bug() {
    let canary = Target {
        name: "canary",
        seeds: || vec![b"{\"count\": 12}".to_vec()],
        parse: |input| assert!(!input.windows(2).any(|pair| pair == b"::"), "the planted bug"),
    };
    assert!(fuzz(&canary, 1, Duration::from_secs(60)).is_err(), "the planted bug was not found");
}

#[test]
fn every_parser_accepts_its_own_seeds_and_has_a_unique_name() {
    for target in &TARGETS {
        assert_eq!(TARGETS.iter().filter(|other| other.name == target.name).count(), 1);
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in seeds {
            (target.parse)(&seed);
        }
    }
}

/// Runs a target with damaged seeds until the time is up. Returns the number of inputs, or the input that
/// failed.
fn fuzz(target: &Target, seed: u64, time: Duration) -> Result<u64, Vec<u8>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let seeds = (target.seeds)();
    let end = Instant::now() + time;
    let mut inputs = 0;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = loop {
        let input = damaged(&seeds, &mut rng);
        inputs += 1;
        if catch_unwind(AssertUnwindSafe(|| (target.parse)(&input))).is_err() {
            break Err(input);
        }
        if Instant::now() >= end {
            break Ok(inputs);
        }
    };
    std::panic::set_hook(hook);
    found
}

/// Returns one of the seeds with one to eight mutations.
fn damaged(seeds: &[Vec<u8>], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut input = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..=8) {
        let at = rng.random_range(0..=input.len());
        let to = rng.random_range(at..=input.len()).min(at + 64);
        match rng.random_range(0..6) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..to)),
            2 => input.insert(at, rng.random()),
            3 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            4 => {
                let piece = input[at..to].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let token = TOKENS[rng.random_range(0..TOKENS.len())];
                input.splice(at..to, token.iter().copied());
            }
        }
    }
    input
}

/// Tokens that break parsers: extreme numbers, and the punctuation of the formats.
const TOKENS: [&[u8]; 16] = [
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551616",
    b"NaN",
    b"null",
    b"\"",
    b"{",
    b"}",
    b"[",
    b",",
    b"=",
    b"\0",
    b"\r\n\r\n",
    b"\xff\xfe",
    b"../",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(paths: &[&str]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fs::read(root().join(path)).unwrap()).collect()
}

fn machines() -> Vec<Vec<u8>> {
    files(&["crates/quantity/tests/golden/machine.json", "examples/thesis-1997/pro-200.machine.json"])
}

fn parse_machine(input: &[u8]) {
    if let Ok(machine) = machine_from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(machine_from_json(&machine_to_json(&machine)), Ok(machine));
    }
}

fn demands() -> Vec<Vec<u8>> {
    files(&["crates/quantity/tests/golden/demand.json", "examples/thesis-1997/apache.demand.json"])
}

fn parse_demand(input: &[u8]) {
    if let Ok(demand) = demand_from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(demand_from_json(&demand_to_json(&demand)), Ok(demand));
    }
}

fn matrices() -> Vec<Vec<u8>> {
    files(&["crates/quantity/tests/golden/matrix.json"])
}

fn parse_matrix(input: &[u8]) {
    if let Ok(matrix) = matrix_from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(matrix_from_json(&matrix_to_json(&matrix)), Ok(matrix));
    }
}

fn ids() -> Vec<Vec<u8>> {
    ["call.null", "tcp.send{size=4KiB,buffer=reused}", "process.context_switch{processes=2,cpus=same}"]
        .map(|id| id.as_bytes().to_vec())
        .to_vec()
}

fn parse_id(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pattern = text.parse::<Pattern>();
    if let Ok(id) = text.parse::<PrimitiveId>() {
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!(pattern.map(|pattern| pattern.ids()), Ok(vec![id]));
    }
}

fn workloads() -> Vec<Vec<u8>> {
    files(&["workloads/nginx.toml", "workloads/postgres.toml", "workloads/redis.toml"])
}

fn parse_workload(input: &[u8]) {
    if let Err(refusal) = Workload::parse(&String::from_utf8_lossy(input), "fuzzed.toml") {
        assert!(!refusal.to_string().is_empty());
    }
}

fn guest_answers() -> Vec<Vec<u8>> {
    vec![b"started 1.50\nended 12.25 3\noutput 6\nhello\nerrors 4\nok\n\ncomplete\n".to_vec()]
}

/// What is accepted announces all bytes that it contains.
fn parse_guest_answer(input: &[u8]) {
    if let Ok(finished) = assay_guest::answer::parse(input) {
        assert!(finished.output.len() + finished.errors.len() < input.len());
    }
}

/// A structure `a` with a member `b` at the offset 8.
fn btfs() -> Vec<Vec<u8>> {
    let words = [24, 0, 24, 24, 5, 1, 4 << 24 | 1, 16, 3, 0, 64];
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    btf.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
    btf.extend(b"\0a\0b\0");
    assert_eq!(btf::offset(&btf, "a", "b"), Ok(8));
    vec![btf]
}

fn parse_btf(input: &[u8]) {
    if let Ok(offset) = btf::offset(input, "a", "b") {
        // The format has 32 bits for an offset in bits.
        assert!(offset < 1 << 29, "{offset}");
    }
}

fn kernel_symbols() -> Vec<Vec<u8>> {
    vec![b"ffffffff81000000 T entry_SYSCALL_64\nffffffff81000010 t asm_exc_page_fault\n".to_vec()]
}

fn parse_kernel_symbols(input: &[u8]) {
    let symbols = symbols::parse(&String::from_utf8_lossy(input));
    assert!(symbols.iter().all(|(name, addresses)| !name.is_empty() && !addresses.contains(&0)));
    assert!(Plan::new(&symbols, &[]).is_err());
    let routines = Routines::new(&symbols);
    for address in [0, u64::MAX].into_iter().chain(symbols.into_values().flatten()) {
        assert!(routines.position(address).is_none_or(|position| position < routines.len()));
    }
}

fn profiles() -> Vec<Vec<u8>> {
    let mut plan = Plan::empty();
    plan.services = vec![Service::Exception("page_fault".to_owned()), Service::Softirq("softirq".to_owned())];
    plan.routines = Routines::new(&[("only".to_owned(), vec![1])].into());
    let mut attribution = Attribution::new(&plan);
    let mut profile = None;
    for (kernel, event) in [
        (0, Event::Begin),
        (1, Event::Call(0)),
        (5, Event::Trap { service: 0, frame: 8 }),
        (7, Event::Function { service: 1, frame: 4 }),
        (9, Event::End),
    ] {
        attribution.take_routines(&[0, kernel, 0]);
        profile = attribution.take(Moment::of(Counts { user: 3, kernel }), event);
    }
    vec![profile.unwrap().to_json().into_bytes()]
}

fn parse_profile(input: &[u8]) {
    if let Ok(profile) = Profile::from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
    }
}

fn guest_samples() -> Vec<Vec<u8>> {
    let sample = |position: u64| {
        let first = position << 16;
        let batches = "[1,1.0],[2,1.0]";
        format!(
            "{{\"sample\":{{\"observations\":[{batches}],\"baseline\":[{batches}],\"refused\":0,\"evidence\":"
        ) + &format!("{{\"snapshot before\":[{first},{},{},{}]}}", first + 2, first + 4, first + 6)
            + &format!(",\"counted\":[]}}}}\nended {position} 0\n")
    };
    vec![(0..3).map(sample).collect::<String>().into_bytes()]
}

fn parse_guest_samples(input: &[u8]) {
    static CATALOGUE: LazyLock<Vec<Benchmark>> = LazyLock::new(catalogue);
    let at = |number: u64| {
        let count = f64::from(u16::try_from(number % 100).unwrap());
        Some(Totals { user: count * count, kernel: 0.0, page_faults: count })
    };
    let executed = simulated::executed(&CATALOGUE[..1], input, &at);
    assert_eq!(executed.len(), 1);
    if let Ok(executed) = executed[0] {
        assert!(executed.instructions().point.is_finite());
    }
}

fn snapshots() -> Vec<Vec<u8>> {
    let mut attribution = Attribution::new(&Plan::empty());
    for (user, event) in [(0, Event::Begin), (10, Event::Snapshot(0)), (25, Event::Snapshot(1))] {
        attribution.take(Moment::of(Counts { user, kernel: 7 }), event);
    }
    vec![attribution.snapshots().to_json().into_bytes()]
}

fn parse_snapshots(input: &[u8]) {
    if let Ok(snapshots) = Snapshots::from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(Snapshots::from_json(&snapshots.to_json()).unwrap(), snapshots);
    }
}

fn runs() -> Vec<Vec<u8>> {
    vec![include_bytes!("../../../sim/tests/golden/run.sim.json").to_vec()]
}

fn parse_run(input: &[u8]) {
    if let Ok(run) = Run::from_json(&String::from_utf8_lossy(input)) {
        assert_eq!(Run::from_json(&run.to_json()).unwrap(), run);
        // The sums of a report.
        let spent = || run.profile.images.iter().flat_map(|image| &image.services);
        let kernel: u64 = spent().map(|spent| spent.instructions).sum();
        assert_eq!(kernel, run.profile.total.kernel);
        let _: u64 = run.profile.routines.values().sum();
        let _: u64 = spent().map(|spent| spent.calls).sum();
        let _: u64 = spent().filter_map(|spent| spent.latency).map(|latency| latency.total_ns()).sum();
    }
}

fn kernel_headers() -> Vec<Vec<u8>> {
    let mut header = vec![0; 0x202];
    header.extend(b"HdrS\x0f\x02");
    header.resize(0x20e, 0);
    header.extend([0x20, 0x00]);
    header.resize(0x220, 0);
    header.extend(b"6.12.95+deb12-cloud-amd64 (debian-kernel) #1 SMP\0");
    vec![header]
}

fn parse_kernel_header(input: &[u8]) {
    if let Some(release) = assay_guest::kernel::release(input) {
        assert!(release.bytes().all(|byte| byte.is_ascii_graphic()), "{release:?}");
    }
}

fn superblocks() -> Vec<Vec<u8>> {
    let mut start = vec![0; 2048];
    for (at, word) in [(0x4, 8_u32), (0x18, 2), (0x38, 0xef53), (0x60, 0xc0), (0x150, 1)] {
        start[1024 + at..1028 + at].copy_from_slice(&word.to_le_bytes());
    }
    vec![start]
}

fn parse_superblock(input: &[u8]) {
    if let Some(length) = assay_guest::image::length(input) {
        assert!(length.is_multiple_of(1024), "{length}");
    }
}

/// Writes the container of a killed recorder, and of one that ended normally.
fn container() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["killed", "closed"] {
        let opening = Opening {
            origin: Origin::Probe,
            host: "here".to_owned(),
            kernel: "6.18".to_owned(),
            architecture: "x86_64".to_owned(),
            command: vec!["true".to_owned()],
            roots: vec![1],
            cpus: 1,
            monotonic_ns: 1,
            realtime_ns: 1,
        };
        let mut writer = Writer::create(&directory.path().join(name), opening).unwrap();
        for lost in 0..100 {
            writer.mark(0, lost + 1, lost).unwrap();
        }
        writer.flush().unwrap();
        if name == "closed" {
            let closing = Closing {
                monotonic_ns: 9,
                drained: true,
                untracked_threads: 0,
                counters: Vec::new(),
                skipped_lines: 0,
            };
            writer.close(closing).unwrap();
        }
    }
    directory
}

/// Returns the files of a container with `part` in their path.
fn files_of(container: &Path, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(container).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = entries.filter(|path| path.to_string_lossy().contains(part)).collect();
    assert!(!files.is_empty(), "a container has no '{part}' file");
    files
}

fn contents(container_name: &str, part: &str) -> Vec<Vec<u8>> {
    let directory = container();
    files_of(&directory.path().join(container_name), part)
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect()
}

fn manifests() -> Vec<Vec<u8>> {
    contents("closed", "manifest")
}

fn parse_manifest(input: &[u8]) {
    read_with("closed", "manifest", input);
}

fn spools() -> Vec<Vec<u8>> {
    contents("killed", "spool")
}

fn parse_spool(input: &[u8]) {
    read_with("killed", "spool", input);
}

fn segments() -> Vec<Vec<u8>> {
    contents("closed", "parquet")
}

fn parse_segment(input: &[u8]) {
    read_with("closed", "parquet", input);
}

/// Reads a container with one replaced file, to its end or its first error.
fn read_with(container_name: &str, part: &str, input: &[u8]) {
    let directory = container();
    let path = directory.path().join(container_name);
    fs::write(&files_of(&path, part)[0], input).unwrap();
    let refusal = match Reader::open(&path) {
        Ok(mut reader) => reader.find_map(Result::err),
        Err(refusal) => Some(refusal),
    };
    assert!(refusal.is_none_or(|refusal| !refusal.to_string().is_empty()));
}
