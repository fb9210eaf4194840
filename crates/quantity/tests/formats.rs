//! The formats on disk: what is written reads back the same, and what is wrong is named.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::BTreeMap;

use assay_quantity::format::{
    demand_from_json, demand_to_json, is_matrix, machine_from_json, machine_to_json, matrix_from_json,
    matrix_to_json,
};
use assay_quantity::{
    CallCount, Coefficient, Conditions, Cost, Demand, Description, Estimate, Executed, Fact, Interval,
    Machine, Mapping, Matrix, Method, Mode, OperationDemand, Unit, Unmeasured, Use, Verdict,
};
use expect_test::{expect, expect_file};
use proptest::prelude::*;

fn estimate(point: f64, half: f64, unit: Unit) -> Estimate {
    let interval = Interval { low: point - half, high: point + half, confidence: 0.95 };
    Estimate { point, interval, unit, method: Method::TrimmedMean, values: 12 }
}

fn machine() -> Machine {
    let cost = |point, unit, verdict| Cost {
        calm: Some(Estimate {
            method: Method::Median,
            values: 5,
            ..estimate(point * 0.875, point / 128.0, unit)
        }),
        rejected: 1,
        verdict: Some(verdict),
        ..Cost::from(estimate(point, point / 64.0, unit))
    };
    let mode = |weight, point| Mode { weight, estimate: estimate(point, 1.0, Unit::Nanoseconds) };
    let several = Cost {
        again: Some(Estimate {
            method: Method::MeanOfRuns,
            values: 6,
            ..estimate(110.0, 8.0, Unit::Nanoseconds)
        }),
        batches: 168,
        disturbed: 2,
        outliers: 1,
        modes: vec![mode(0.75, 100.0), mode(0.25, 150.0)],
        depends_on: Some("core sharing".to_owned()),
        linearity: Some(estimate(1.0, 0.0625, Unit::Ratio)),
        ..cost(112.5, Unit::Nanoseconds, Verdict::Modes(2))
    };
    let disturbed = Verdict::Disturbed(0.25);
    Machine {
        name: "bench-1".to_owned(),
        source: "assay 0.1.0: assay bench".to_owned(),
        description: Description {
            facts: vec![Fact { name: "cpu".to_owned(), value: "an x86-64".to_owned() }],
            uncontrolled: vec!["the governor is unknown".to_owned()],
        },
        conditions: Conditions { shared: Some(0.625), cycle_ns: Some(0.25) },
        costs: BTreeMap::from([
            ("call.null".parse().unwrap(), cost(112.5, Unit::Nanoseconds, Verdict::Steady)),
            (
                "tcp.send{size=4KiB,buffer=reused}".parse().unwrap(),
                cost(0.5, Unit::NanosecondsPerByte, Verdict::Disturbed(0.3125)),
            ),
            ("file.stat".parse().unwrap(), several),
            ("file.open".parse().unwrap(), cost(900.0, Unit::Nanoseconds, disturbed)),
        ]),
        unmeasured: vec![Unmeasured {
            primitive: "memory.load{level=l3}".parse().unwrap(),
            reason: "the machine reports no level-3 cache".to_owned(),
        }],
    }
}

fn demand() -> Demand {
    Demand {
        name: "nginx".to_owned(),
        source: "assay 0.1.0: assay run workloads/nginx.toml".to_owned(),
        operations: vec![OperationDemand {
            name: "page".to_owned(),
            unit_of_work: "request".to_owned(),
            units: 1000.0,
            user: Some(estimate(2500.0, 31.25, Unit::Nanoseconds)),
            system: None,
            lost_records: 0,
            coefficients: vec![Coefficient {
                primitive: "tcp.send{buffer=reused}".parse().unwrap(),
                mapping: Mapping::Own,
                uses: vec![Use { calls: 1.0, bytes: Some(8433.0) }],
                kernel_ns: 4096.5,
                calls: vec![CallCount {
                    call: "writev".to_owned(),
                    descriptor: "tcp".to_owned(),
                    calls: 1.0,
                }],
            }],
        }],
    }
}

fn matrix() -> Matrix {
    let executed = |user, kernel, page_faults| Executed {
        user: estimate(user, 0.0, Unit::Count),
        kernel: estimate(kernel, 2.5, Unit::Count),
        page_faults: estimate(page_faults, 0.0, Unit::Count),
    };
    Matrix {
        kernel: "6.12.95".to_owned(),
        memory_mib: 512,
        source: "assay 0.1.0: assay sim matrix".to_owned(),
        rows: BTreeMap::from([
            ("call.null".parse().unwrap(), executed(18.0, 320.0, 0.0)),
            ("page_fault.anonymous".parse().unwrap(), executed(-0.5, 3089.25, 1.0)),
        ]),
        uncounted: vec![Unmeasured {
            primitive: "interrupt.ipi{cpus=different}".parse().unwrap(),
            reason: "two processors are required".to_owned(),
        }],
    }
}

#[test]
fn a_matrix_is_written_as_documented_and_reads_back_the_same() {
    let text = matrix_to_json(&matrix());
    expect_file!["golden/matrix.json"].assert_eq(&text);
    assert_eq!(matrix_from_json(&text), Ok(matrix()));
    assert!(is_matrix(&text) && is_matrix(&text.replace("matrix/1", "matrix/9")));
    assert!(!is_matrix(&machine_to_json(&machine())));
}

#[test]
fn a_damaged_matrix_file_says_where_and_what() {
    let text = matrix_to_json(&matrix());
    let complaint = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        matrix_from_json(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let all = [
        complaint("assay.matrix/1", "assay.matrix/9"),
        complaint("\"point\": 18.0", "\"point\": 1e999"),
        complaint("\"low\": 317.5", "\"low\": 320.5"),
        complaint("\"low\": 317.5", "\"low\": -1e16"),
        complaint("\"point\": 18.0,\n        \"low\": 18.0", "\"point\": -500.0,\n        \"low\": -500.0"),
        complaint("\"unit\": \"count\"", "\"unit\": \"ns\""),
        complaint("call.null", "null"),
        complaint("call.null", "page_fault.anonymous"),
        complaint("interrupt.ipi{cpus=different}", "interrupt"),
        complaint("interrupt.ipi{cpus=different}", "call.null"),
        complaint("\"uncounted\"", "\"unmeasured\""),
    ];
    expect![[r#"
        its format is 'assay.matrix/9', but 'assay.matrix/1' is required; if the file is newer, update assay
        number out of range at line 10 column 22
        primitive 'call.null': interval 320.5..322.5 does not hold 320
        primitive 'call.null': a count is beyond 1e15
        primitive 'call.null': its number of instructions is below 0
        primitive 'call.null': what is executed is a count, not in ns
        rows: primitive name 'null' is not family.operation{key=value,...}; see 'assay bench --list'
        primitive 'page_fault.anonymous': it occurs twice
        uncounted: primitive name 'interrupt' is not family.operation{key=value,...}; see 'assay bench --list'
        primitive 'call.null': it occurs twice
        unknown field `unmeasured`, expected one of `format`, `kernel`, `memory_mib`, `source`, `rows`, `uncounted` at line 68 column 14"#]].assert_eq(&all.join("\n"));
}

#[test]
fn a_machine_is_written_as_documented_and_reads_back_the_same() {
    let text = machine_to_json(&machine());
    expect_file!["golden/machine.json"].assert_eq(&text);
    assert_eq!(machine_from_json(&text), Ok(machine()));
}

#[test]
fn a_machine_file_of_version_1_still_reads() {
    let old = r#"{"format": "assay.machine/1", "name": "m", "source": "s", "facts": [], "uncontrolled": [],
        "costs": [{"primitive": "call.null", "minimum": 8.0, "rejected": 1, "contaminated": 3,
            "verdict": {"contaminated": 0.25},
            "estimate": {"point": 9.0, "low": 8.5, "high": 9.5, "confidence": 0.95, "unit": "ns",
                "method": "trimmed_mean", "values": 12}}],
        "unmeasured": []}"#;
    let machine = machine_from_json(old).unwrap();
    let cost = &machine.costs[&"call.null".parse().unwrap()];
    assert_eq!((cost.batches, cost.disturbed, cost.outliers, cost.modes.len()), (0, 0, 0, 0));
    assert!((cost.typical.point - 9.0).abs() < 1e-12 && cost.calm.is_none(), "{cost:?}");
    assert_eq!(machine.conditions, Conditions::default());
    assert_eq!(cost.verdict, Some(Verdict::Disturbed(0.25)));
}

#[test]
fn a_demand_is_written_as_documented_and_reads_back_the_same() {
    let text = demand_to_json(&demand());
    expect_file!["golden/demand.json"].assert_eq(&text);
    assert_eq!(demand_from_json(&text), Ok(demand()));
}

#[test]
fn a_damaged_machine_file_says_where_and_what() {
    let text = machine_to_json(&machine());
    let complaint = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        machine_from_json(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let all = [
        complaint("assay.machine/2", "assay.machine/9"),
        complaint("\"point\": 112.5", "\"point\": -1.0"),
        complaint("\"point\": 112.5", "\"point\": 900.0"),
        complaint("\"unit\": \"ns\"", "\"unit\": \"ms\""),
        complaint("\"unit\": \"ns\"", "\"unit\": \"1/s\""),
        complaint("\"confidence\": 0.95", "\"confidence\": 0.0"),
        complaint("trimmed_mean", "guess"),
        complaint("call.null", "null"),
        complaint("call.null", "tcp.send{size=4KiB,buffer=reused}"),
        complaint("size=4KiB", "size=0"),
        complaint("\"facts\"", "\"fax\""),
        complaint("\"weight\": 0.75", "\"weight\": 0.5"),
        complaint("\"weight\": 0.75", "\"weight\": -0.75"),
        complaint("\"unit\": \"ratio\"", "\"unit\": \"ns\""),
        complaint(
            "\"unit\": \"ns\",\n        \"method\": \"median\"",
            "\"unit\": \"ns/B\",\n        \"method\": \"median\"",
        ),
        complaint(
            "\"unit\": \"ns\",\n        \"method\": \"mean_of_runs\"",
            "\"unit\": \"ns/B\",\n        \"method\": \"mean_of_runs\"",
        ),
        complaint("\"shared\": 0.625", "\"shared\": 1.5"),
        complaint("\"cycle_ns\": 0.25", "\"cycle_ns\": 0.0"),
    ];
    expect![[r#"
        its format is 'assay.machine/9', but 'assay.machine/2' is required; if the file is newer, update assay
        primitive 'call.null': point -1 is below 0
        primitive 'call.null': interval 110.7421875..114.2578125 does not hold 900
        primitive 'call.null': unit 'ms' is unknown; use one of ns, ns/B, 1/s, B/s, ratio, count, B
        primitive 'call.null': a cost is in ns or ns/B, not in 1/s
        primitive 'call.null': confidence 0 is not in (0, 1]
        primitive 'call.null': method 'guess' is unknown
        costs: primitive name 'null' is not family.operation{key=value,...}; see 'assay bench --list'
        primitive 'tcp.send{size=4KiB,buffer=reused}': it occurs twice
        primitive 'tcp.send{size=0,buffer=reused}': a size of 0 bytes has no cost
        unknown field `fax`, expected one of `format`, `name`, `source`, `facts`, `uncontrolled`, `conditions`, `costs`, `unmeasured` at line 5 column 7
        primitive 'file.stat': the weights of its modes are not shares of a whole: they add up to 0.75
        primitive 'file.stat': the weights of its modes are not shares of a whole: they add up to -0.5
        primitive 'file.stat': a linearity is a ratio, not in ns
        primitive 'call.null': its calm cost is in ns/B, its typical cost in ns
        primitive 'file.stat': its cost of a later run is in ns/B, its typical cost in ns
        conditions: shared 1.5 is not a share from 0 to 1
        conditions: cycle_ns 0 is not above 0"#]]
    .assert_eq(&all.join("\n"));
}

#[test]
fn a_damaged_demand_file_says_where_and_what() {
    let text = demand_to_json(&demand());
    let complaint = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        demand_from_json(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let all = [
        complaint("\"units\": 1000.0", "\"units\": 0.0"),
        complaint("\"bytes\": 8433.0", "\"bytes\": -1.0"),
        complaint("\"bytes\": 8433.0", "\"bytes\": 1e999"),
        complaint("tcp.send{buffer=reused}", "tcp.send{size=4KiB}"),
        complaint("\"own\"", "\"mine\""),
        complaint("{", "["),
    ];
    expect![[r#"
        operation 'page': 0 units of work make no demand
        operation 'page', primitive 'tcp.send{buffer=reused}': bytes -1 is not a finite number of at least 0
        number out of range at line 27 column 28
        operation 'page', primitive 'tcp.send{size=4KiB}': a demand leaves the key size free and gives bytes in 'uses'
        unknown variant `mine`, expected `own` or `lower_bound` at line 23 column 27
        trailing characters at line 2 column 11"#]]
    .assert_eq(&all.join("\n"));
}

proptest! {
    #[test]
    fn no_damage_to_a_file_makes_reading_panic_or_changes_what_is_accepted(
        at in 0usize..2000, byte: u8, cut in 0usize..2000,
    ) {
        for text in [machine_to_json(&machine()), demand_to_json(&demand())] {
            let mut bytes = text.into_bytes();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % 3 * (cut % length) / 2);
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(machine) = machine_from_json(&text) {
                prop_assert_eq!(machine_from_json(&machine_to_json(&machine)), Ok(machine));
            }
            if let Ok(demand) = demand_from_json(&text) {
                prop_assert_eq!(demand_from_json(&demand_to_json(&demand)), Ok(demand));
            }
        }
    }
}
