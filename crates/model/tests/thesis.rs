//! The thesis's own figures: its vectors (Figure 12) must give its predictions and its errors (Table 4).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs;
use std::path::PathBuf;

use assay_model::{Measurement, predict, validate};
use assay_quantity::format::{demand_from_json, machine_from_json};

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/thesis-1997").join(name);
    fs::read_to_string(&path).unwrap()
}

/// Machine, product of the printed coefficients in ms, latency that Table 4 prints in ms.
const TABLE_4: [(&str, f64, f64); 5] = [
    ("prem-100", 31.89, 31.88),
    ("endeav-120", 21.42, 21.43),
    ("ss20-75", 16.26, 16.26),
    ("pro-200", 9.91, 10.14),
    ("ss20-75x2", 9.36, 9.33),
];

fn predictions() -> Vec<(String, f64)> {
    let demand = demand_from_json(&example("apache.demand.json")).unwrap();
    TABLE_4
        .iter()
        .map(|(file, _, _)| {
            let machine = machine_from_json(&example(&format!("{file}.machine.json"))).unwrap();
            let prediction = predict(&demand.operations[0], &machine).unwrap();
            (machine.name, prediction.total.point)
        })
        .collect()
}

fn measurements() -> Vec<Measurement> {
    example("measured.csv")
        .lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split(',').map(str::to_owned);
            Measurement {
                machine: fields.next().unwrap(),
                workload: fields.next().unwrap(),
                per_second: fields.next().unwrap().parse().unwrap(),
            }
        })
        .collect()
}

#[test]
fn the_products_are_those_of_the_printed_coefficients() {
    for ((_, product_ms, _), (machine, total_ns)) in TABLE_4.iter().zip(predictions()) {
        assert!((total_ns / 1e6 - product_ms).abs() < 0.005, "{machine}: {total_ns} ns");
    }
}

#[test]
fn four_products_agree_with_table_4_within_the_digits_printed_and_pro_200_does_not() {
    for ((file, _, printed_ms), (machine, total_ns)) in TABLE_4.iter().zip(predictions()) {
        let agrees = (total_ns / 1e6 - printed_ms).abs() / printed_ms < 0.005;
        assert_eq!(agrees, *file != "pro-200", "{machine}: {total_ns} ns against {printed_ms} ms");
    }
}

#[test]
fn the_ranking_is_the_measured_one_and_the_errors_are_16_and_20_per_cent() {
    for (workload, error) in [("netscape", 0.158), ("ncsa", 0.203)] {
        let validation = validate(workload, &predictions(), &measurements()).unwrap();
        assert_eq!(validation.rows.len(), 5);
        assert!((validation.rank_correlation - 1.0).abs() < 1e-12, "{workload}");
        assert!((validation.largest_error - error).abs() < 0.001, "{workload}: {}", validation.largest_error);
    }
}
