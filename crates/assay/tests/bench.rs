//! `assay bench` and `assay compare` from outside: the real binary on the real machine.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use assay_quantity::PrimitiveId;
use tempfile::TempDir;

/// Polling interval for the state of another process.
const PAUSE: Duration = Duration::from_millis(1);

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        for (name, text) in files {
            fs::write(place.path().join(name), text).unwrap();
        }
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn assay(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.args(arguments.split(' ')).current_dir(self.path()).env("XDG_DATA_HOME", self.path());
        command
    }

    /// Returns the exit code, stdout and stderr of a command line.
    fn said(&self, arguments: &str) -> (i32, String, String) {
        self.ended(&mut self.assay(arguments))
    }

    /// Returns the same for a given command.
    fn ended(&self, command: &mut Command) -> (i32, String, String) {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Returns the log of the commands that enter states, one letter each.
    fn states(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default().replace('\n', "")
    }
}

/// Returns the ids at the beginning of lines of a CSV, each once: a primitive with several modes is in two
/// tables.
fn ids(csv: &str) -> BTreeSet<&str> {
    let is_id = |field: &&str| field.parse::<PrimitiveId>().is_ok();
    csv.lines().filter_map(|line| line.split(',').next()).filter(is_id).collect()
}

/// Processes that are killed on drop.
struct Running(Vec<Child>);

impl Running {
    /// Starts neighbours that keep every processor busy.
    fn neighbours() -> Self {
        let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..2 * available_parallelism().unwrap().get()).map(busy).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn with_busy_neighbours_there_is_a_figure_and_the_description_contains_them() {
    let (place, _neighbours) = (Place::new(), Running::neighbours());
    let (code, shown, said) = place.said("bench call.null --precision 99% --csv");
    assert_eq!(code, 0, "{said}");
    assert!(ids(&shown).contains(&"call.null"), "{shown}");
    assert!(shown.contains("other tasks were runnable during 100 % of samples"), "{shown}");
}

#[test]
fn a_plan_selects_what_is_measured_and_the_command_line_takes_precedence() {
    let place = Place::with(&[
        ("plan.toml", "primitives = [\"null\", \"clock.gettime\"]\nprecision = \"99%\"\nseed = 7\n"),
        ("bad.toml", "primitives = [\"null\"]\nbudgets = \"1s\"\n"),
    ]);
    let (code, shown, said) = place.said("bench --plan plan.toml --csv");
    assert_eq!(code, 0, "{said}");
    for id in ["null.read", "null.write", "clock.gettime"] {
        assert!(
            ids(&shown).iter().any(|measured| measured.trim_matches('"').starts_with(id)),
            "{id}: {shown}"
        );
    }
    assert!(!shown.contains("call.null"), "{shown}");
    let (code, shown, said) = place.said("bench call.null --plan plan.toml --csv");
    assert_eq!(code, 0, "{said}");
    assert!(ids(&shown).contains(&"call.null") && !shown.contains("null.read"), "{shown}");
    let (code, shown, said) = place.said("bench --plan bad.toml");
    assert_eq!((code, shown.as_str()), (1, ""));
    assert!(
        said.starts_with("assay: bad.toml is not a valid plan file") && said.contains("budgets"),
        "{said}"
    );
}

#[test]
fn valgrind_counts_of_an_operation_are_reproducible() {
    let place = Place::new();
    let counted = |ids: &str| {
        let (code, shown, said) = place.said(&format!("bench {ids} --precision 99% --count --csv"));
        assert_eq!(code, 0, "{said}");
        let table = shown.split("Executed by one operation").nth(1).unwrap_or_else(|| panic!("{shown}"));
        table.trim().lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let load = |table: &[String]| {
        let row = table.iter().find_map(|line| line.strip_prefix("memory.load{set=16KiB},")).unwrap();
        [0, 3, 6].map(|column| row.split(',').nth(column).unwrap().parse::<f64>().unwrap())
    };
    let first = counted("memory.load{set=16KiB} call.null");
    let (counts, again) = (load(&first), load(&counted("memory.load{set=16KiB} call.null")));
    // Other work of a process may differ by a few instructions per thousand operations.
    assert!(counts.iter().zip(again).all(|(a, b)| (a - b).abs() < 0.02), "{counts:?}, {again:?}");
    assert!(counts[1] >= 1.0 && counts[0] > counts[1], "{counts:?}");
    assert!(
        first.iter().any(|line| line.starts_with("call.null,") && line.contains("the kernel does its work"))
    );
}

#[test]
fn another_host_is_measured_if_it_serves() {
    let place = Place::new();
    let server = place.assay("bench --serve 127.0.0.1:0").stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Running(vec![server]);
    let mut line = String::new();
    BufReader::new(server.0[0].stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(2).unwrap().trim_end_matches(';');
    let bench = "bench tcp.round_trip{size=1B,peer=remote} --precision 99% --csv";
    // A primitive with a cost has a number after its id; one without a cost has a reason.
    let has_cost = |shown: &str| {
        let rows =
            shown.lines().filter_map(|line| line.strip_prefix("\"tcp.round_trip{size=1B,peer=remote}\","));
        let mut costs = rows.filter_map(|row| row.split(',').next()?.parse::<f64>().ok());
        costs.next().is_some_and(|cost_ns| cost_ns > 0.0)
    };
    let (code, shown, said) = place.said(&format!("{bench} --peer {address}"));
    assert_eq!(code, 0, "{said}");
    assert!(has_cost(&shown), "{shown}");
    let (code, shown, said) = place.said(bench);
    assert_eq!(code, 0, "{said}");
    assert!(!has_cost(&shown) && shown.contains("--peer"), "{shown}");
    let (code, _, said) = place.said(&format!("{bench} --strict"));
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("nothing was measured"), "{said}");
}

#[test]
fn a_strict_run_exits_with_code_3_if_an_interval_is_wider_than_the_tolerance() {
    let place =
        Place::with(&[("plan.toml", "primitives = ['call.null']\nstrict = true\ntolerance = '0.0001%'\n")]);
    let strict = "--precision 99% --csv";
    for wide in ["bench call.null --strict --tolerance 0.0001%", "bench --plan plan.toml"] {
        let (code, shown, said) = place.said(&format!("{wide} {strict}"));
        assert_eq!(code, 3, "{wide}: {said}");
        assert!(shown.contains("call.null,"), "{shown}");
        assert!(said.contains("1 of 1 figures have intervals wider than"), "{said}");
    }
    let (code, shown, said) = place.said("bench call.null --tolerance 5%");
    assert_eq!((code, shown.as_str()), (1, ""), "{said}");
    assert!(said.contains("--strict"), "{said}");
}

/// Returns a machine with two costs, with intervals of 1 %.
fn machine(name: &str, null_ns: f64, read_ns: f64) -> String {
    judged(name, null_ns, read_ns, r#""steady""#)
}

/// Returns the same machine with a verdict on both costs.
fn judged(name: &str, null_ns: f64, read_ns: f64, verdict: &str) -> String {
    let cost = |primitive: &str, ns: f64| {
        format!(
            r#"{{"primitive": "{primitive}", "rejected": 0, "verdict": {verdict}, "estimate": {{"point": {ns},
            "low": {}, "high": {}, "confidence": 0.95, "unit": "ns", "method": "trimmed_mean", "values": 20}}}}"#,
            0.99 * ns,
            1.01 * ns
        )
    };
    format!(
        r#"{{"format": "assay.machine/2", "name": "{name}", "source": "a test", "facts": [], "uncontrolled": [],
        "costs": [{}, {}], "unmeasured": []}}"#,
        cost("call.null", null_ns),
        cost("null.write{size=1B}", read_ns)
    )
}

#[test]
fn a_slowdown_beyond_the_limit_is_an_error_that_names_the_primitives() {
    let place = Place::with(&[
        ("old.machine.json", &machine("old", 100.0, 150.0)),
        ("new.machine.json", &machine("new", 110.0, 150.0)),
    ]);
    let (code, shown, said) = place.said("compare old.machine.json new.machine.json --csv");
    assert_eq!(code, 0, "{said}");
    assert!(shown.lines().any(|line| line.starts_with("call.null,") && line.ends_with("slower")), "{shown}");
    let (code, shown, said) = place.said("compare old.machine.json new.machine.json --fail-over 5% --csv");
    assert_eq!(code, 4, "{said}");
    assert!(shown.contains("call.null,"), "the comparison is not shown: {shown}");
    assert!(said.contains("1 of 2 primitives are slower by more than 5.000 %: call.null"), "{said}");
    for fine in [
        "compare old.machine.json new.machine.json --fail-over 15%",
        "compare new.machine.json old.machine.json --fail-over 5%",
        "compare old.machine.json new.machine.json null.write --fail-over 5%",
    ] {
        let (code, _, said) = place.said(fine);
        assert_eq!(code, 0, "{fine}: {said}");
    }
}

#[test]
fn a_slowdown_of_less_than_one_per_cent_fails_only_with_a_smaller_limit() {
    let narrow = |name, ns: f64| {
        let interval = |factor: f64| format!("{}", factor * ns);
        let wide = machine(name, ns, ns);
        wide.replace(&interval(0.99), &interval(0.9999)).replace(&interval(1.01), &interval(1.0001))
    };
    let place = Place::with(&[("old.json", &narrow("old", 100.0)), ("new.json", &narrow("new", 100.8))]);
    for (limit, expected) in [("5%", 0), ("0.5%", 4)] {
        let (code, shown, said) = place.said(&format!("compare old.json new.json --fail-over {limit} --csv"));
        assert_eq!(code, expected, "{limit}: {said} {shown}");
    }
}

#[test]
fn a_primitive_that_cannot_be_judged_and_seems_too_slow_is_doubtful() {
    // The first cost was disturbed, the second was not.
    let disturbed = |ns| machine("new", ns, 150.0).replacen(r#""steady""#, r#"{"disturbed": 0.5}"#, 1);
    let place = Place::with(&[
        ("old.json", &machine("old", 100.0, 150.0)),
        ("same.json", &disturbed(100.0)),
        ("slower.json", &disturbed(110.0)),
    ]);
    for (after, expected) in [("same", 0), ("slower", 3)] {
        let (code, _, said) = place.said(&format!("compare old.json {after}.json --fail-over 5%"));
        assert_eq!(code, expected, "{after}: {said}");
        assert!(said.contains("1 of 2 primitives cannot be judged"), "{said}");
        let doubt = "1 of 2 primitives may be slower by more than 5.000 % and cannot be judged: call.null";
        assert_eq!(said.contains(doubt), expected == 3, "{said}");
    }
}

#[test]
fn a_comparison_without_a_cost_that_can_be_judged_does_not_pass() {
    let old = machine("old", 100.0, 150.0);
    let place = Place::with(&[
        ("old.json", &old),
        ("disturbed.json", &judged("new", 100.0, 150.0, r#"{"disturbed": 0.5}"#)),
        ("without.json", &machine("new", 100.0, 150.0).replace("null.write{size=1B}", "null.read{size=1B}")),
        // It is not in the catalogue, so it can have any unit.
        ("mine.json", &old.replace("null.write{size=1B}", "mine.own")),
        (
            "other-unit.json",
            &old.replace("null.write{size=1B}", "mine.own")
                .replacen("\"ns\"", "\"ns/B\"", 2)
                .replacen("\"ns/B\"", "\"ns\"", 1),
        ),
    ]);
    for (pair, reason) in [
        ("old.json disturbed.json", "none of 2 primitives can be judged"),
        ("1996/linux-i686 1996/linux-i586", "primitives can be judged"),
        ("old.json without.json", "1 of 2 primitives have no cost on B: null.write{size=1B}"),
        ("mine.json other-unit.json", "may be slower by more than 5.000 % and cannot be judged: mine.own"),
    ] {
        let (code, _, said) = place.said(&format!("compare {pair} --fail-over 5%"));
        assert_eq!(code, 3, "{pair}: {said}");
        assert!(said.contains(reason), "{pair}: {said}");
    }
    // Primitives of B alone are not a reason.
    let (code, _, said) = place.said("compare old.json without.json call.null --fail-over 5%");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn both_costs_are_compared_and_different_conditions_cause_a_warning() {
    let estimate = |ns: f64| {
        format!(
            r#"{{"point": {ns}, "low": {}, "high": {}, "confidence": 0.97, "unit": "ns", "method": "median", "values": 6}}"#,
            0.999 * ns,
            1.001 * ns
        )
    };
    // With a busy sibling an operation takes half as long again; this share of the samples had one.
    let under = |name: &str, shared: f64| {
        let mode = |weight: f64, ns| format!(r#"{{"weight": {weight}, "estimate": {}}}"#, estimate(ns));
        let modes = format!("[{}, {}]", mode(1.0 - shared, 100.0), mode(shared, 150.0));
        let known = format!(r#""calm": {}, "modes": {modes}, "rejected": 0"#, estimate(100.0));
        let conditions = format!(r#""conditions": {{"shared": {shared}, "cycle_ns": 0.25}}, "costs""#);
        let text = machine(name, 100.0 + 50.0 * shared, 150.0);
        text.replacen(r#""rejected": 0"#, &known, 1).replacen(r#""costs""#, &conditions, 1)
    };
    let place = Place::with(&[
        ("quiet.json", &under("quiet", 0.25)),
        ("busy.json", &under("busy", 0.75)),
        ("unknown.json", &machine("unknown", 100.0, 150.0)),
    ]);
    let (code, shown, said) = place.said("compare quiet.json busy.json --csv");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("during 25 % of the samples of A and 75 % of those of B"), "{said}");
    let of_null: Vec<&str> = shown.lines().filter(|line| line.starts_with("call.null,")).collect();
    let [typical, calm, modes] = of_null[..] else { panic!("{shown}") };
    assert!(typical.ends_with("not comparable: several modes"), "{typical}");
    assert!(calm.ends_with("same within 1 %"), "{calm}");
    assert!(modes.contains("100 ns (75 %), 150 ns (25 %)") && modes.contains("150 ns (75 %)"), "{modes}");
    assert!(shown.contains("another busy hardware thread on the core,0.25,ratio,0.75,ratio"), "{shown}");
    for (a, b) in [("quiet", "quiet"), ("quiet", "unknown")] {
        let (code, shown, said) = place.said(&format!("compare {a}.json {b}.json --csv"));
        assert_eq!((code, said.as_str()), (0, ""), "{a} {b}: {shown}");
    }
}

#[test]
fn a_gate_works_although_its_output_is_not_read() {
    let place = Place::with(&[
        ("old.json", &machine("old", 100.0, 150.0)),
        ("new.json", &machine("new", 110.0, 150.0)),
    ]);
    let mut compare = place.assay("compare old.json new.json --fail-over 5%");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let Output { status, stderr, .. } = compare.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.contains("1 of 2 primitives are slower") && !said.contains("stdout"), "{said}");
    let mut bench = place.assay("bench tcp.round_trip{size=1B,peer=remote} --strict");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = bench.stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(3), "nothing was measured");
}

#[test]
fn a_selected_primitive_on_neither_side_is_an_error_with_the_reason() {
    let place = Place::with(&[("old.json", &machine("old", 100.0, 150.0))]);
    for (name, reason) in [
        ("call.nul", "'call.nul' was measured neither on old.json nor on old.json"),
        ("call.null{set=banana}", "which is not a value of set"),
    ] {
        let (code, shown, said) = place.said(&format!("compare old.json old.json call.null {name}"));
        assert_eq!((code, shown.as_str()), (1, ""), "{said}");
        assert!(said.contains(reason) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn free_placement_requires_copies() {
    let place = Place::with(&[("plan.toml", "copies = 2\nprecision = \"99%\"\n")]);
    for none in ["bench call.null --free", "bench call.null --free -P 1"] {
        let (code, shown, said) = place.said(none);
        assert_eq!((code, shown.as_str()), (1, ""), "{none}: {said}");
        assert!(said.contains("-P"), "{said}");
    }
    let (code, shown, said) = place.said("bench call.null --free --plan plan.toml --csv");
    assert_eq!(code, 0, "{said}");
    assert!(shown.contains("call.null{copies=2,placement=free}"), "{shown}");
}

#[test]
fn a_file_with_another_unit_than_the_catalogue_is_rejected_with_both_units() {
    let per_byte = machine("odd", 100.0, 150.0).replace("\"ns\"", "\"ns/B\"");
    let place = Place::with(&[("odd.json", &per_byte)]);
    let (code, shown, said) = place.said("compare odd.json odd.json");
    assert_eq!((code, shown.as_str()), (1, ""));
    assert!(said.contains("the cost of 'call.null' is in ns/B, but it is measured in ns"), "{said}");
}

#[test]
fn the_run_before_the_latest_has_a_name() {
    let place = Place::new();
    for id in ["call.null", "clock.gettime"] {
        let (code, _, said) = place.said(&format!("bench {id} --precision 99%"));
        assert_eq!(code, 0, "{said}");
    }
    let shown = |name: &str| place.said(&format!("history {name} --csv")).1;
    assert!(shown("latest").contains("clock.gettime") && !shown("latest").contains("call.null"));
    assert!(shown("latest~1").contains("call.null"));
    let (code, compared, said) = place.said("compare latest latest --csv");
    assert_eq!((code, said.as_str()), (0, ""), "{compared}");
    let looked = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    assert_eq!(compared.contains("Conditions during the measurement"), looked, "{compared}");
    let (code, _, said) = place.said("history latest~2");
    assert!(code == 1 && said.contains("has no run 'latest~2'"), "{said}");
    let (code, _, said) = place.said("compare latest~1 latest");
    assert!(code == 1 && said.contains("no selected primitive in common"), "{said}");
}

#[test]
fn two_states_are_entered_alternately_and_their_runs_give_the_same_comparison() {
    let place = Place::new();
    let (code, compared, said) = place.ended(
        place
            .assay("compare --budget 2s call.null code.fetch{level=l1} --between")
            .args(["echo a >> log", "echo b >> log"]),
    );
    assert_eq!(code, 0, "{said}");
    let title = "B, entered by 'echo b >> log', compared with A, entered by 'echo a >> log'\n";
    assert!(compared.starts_with(title), "{compared}");
    assert!(said.ends_with("the raw samples are stored as runs 1 (A) and 2 (B)\n"), "{said}");
    let states = place.states();
    let turns = |state| states.matches(state).count();
    assert!(states.starts_with('a') && states.ends_with('a') && turns('b') > 1, "{states}");
    // Each state is also described before the rounds, and A is restored.
    assert_eq!(turns('a'), turns('b') + 1, "{states}");
    let (code, again, said) = place.said("compare 1 2");
    assert_eq!((code, again.as_str(), said.as_str()), (0, compared.as_str(), ""));
    assert_eq!(
        ids(&place.said("compare 1 2 --csv").1),
        BTreeSet::from(["call.null", "code.fetch{level=l1}"])
    );
    let (_, run, _) = place.said("history 1 --csv");
    assert!(run.contains("state,entered by 'echo a >> log'"), "{run}");
    // Each state has its own sweep for primitives that run in a cache.
    assert!([run, place.said("history 2 --csv").1].iter().all(|run| run.contains("effective caches,")));
}

#[test]
fn processes_are_started_through_the_wrapper_of_their_state() {
    let place = Place::new();
    let wrapper = "sh -c 'echo b >> log; exec \"$@\"' b";
    let (code, compared, said) =
        place.ended(place.assay("compare --csv --budget 2s call.null --between-wrapper").args(["", wrapper]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(ids(&compared), BTreeSet::from(["call.null"]), "{compared}");
    assert!(place.states().len() > 1 && !place.states().contains('a'));
    let (code, compared, said) =
        place.ended(place.assay("compare --budget 2s call.null --between-wrapper").args(["", "exit 7;"]));
    assert_eq!((code, compared.as_str()), (1, ""));
    let reason = "assay: 'true' in the wrapper 'exit 7;' ended with status 7\n";
    assert_eq!(said, reason);
    let fails = "sh -c 'case $2 in sample) exit 7;; esac; echo odd >&2' b";
    let (code, compared, said) =
        place.ended(place.assay("compare --budget 60s call.null --between-wrapper").args(["", fails]));
    assert_eq!((code, compared.as_str()), (1, ""));
    assert!(said.contains("writes to stderr: odd\n"), "{said}");
    let reason =
        "call.null in state B: all 5 processes failed, the last one: its process ended with status 7";
    assert!(said.contains(reason), "{said}");
}

#[test]
fn state_a_is_restored_however_a_comparison_ends() {
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let place = Place::new();
        let held = place.path().join("held");
        assert!(Command::new("mkfifo").arg(&held).status().unwrap().success());
        let mut child = place
            .assay("compare --budget 60s call.null --between")
            .args(["echo a >> log", "echo b >> log; cat held"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !place.states().contains('b') {
            assert!(child.try_wait().unwrap().is_none(), "it ended early");
            sleep(PAUSE);
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        // Until now, state B is being entered.
        fs::write(&held, "").unwrap();
        assert_eq!(child.wait().unwrap().code(), code, "{signal}");
        // After SIGKILL, the shell that restores state A is still running.
        while code.is_none() && !place.states().ends_with('a') {
            sleep(PAUSE);
        }
        assert!(place.states().ends_with('a'), "{signal}: {}", place.states());
    }
    let place = Place::new();
    let (code, shown, said) = place.ended(
        place
            .assay("compare --budget 2s call.null --between")
            .args(["echo a >> log", "echo no knob; exit 9"]),
    );
    assert_eq!((code, shown.as_str()), (1, ""));
    assert_eq!(place.states(), "aa");
    assert!(said.ends_with("assay: 'echo no knob; exit 9' ended with status 9: no knob\n"), "{said}");
}

#[test]
fn a_list_that_is_piped_has_a_line_for_each_primitive() {
    let (code, shown, said) = Place::new().said("bench --list");
    assert_eq!(code, 0, "{said}");
    let table = shown.split("\n\n").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().skip(3).collect();
    assert!(rows.len() > 300 && rows.iter().all(|row| row.trim_start().contains('.')), "{table}");
}

#[test]
fn comparisons_with_historical_machines_are_marked_as_printed() {
    let place = Place::with(&[("new.machine.json", &machine("new", 100.0, 150.0))]);
    let (code, shown, said) = place.said("compare 1996/linux-i686 new.machine.json --csv");
    assert_eq!(code, 0, "{said}");
    assert!(shown.contains("faster, as printed"), "{shown}");
    let (code, shown, said) = place.said("compare 1996/unknown new.machine.json");
    assert_eq!((code, shown.as_str()), (1, ""));
    assert!(said.contains("1996/unknown") && said.lines().count() == 1, "{said}");
}
