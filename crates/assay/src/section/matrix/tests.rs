//! Reports on a matrix and on two of them, as text.

use std::collections::BTreeMap;

use assay_quantity::{Description, Fact, Pair};
use assay_report::{Colour, Style, Symbols};
use expect_test::expect;

use super::*;

fn estimate(point: f64, half: f64, unit: Unit) -> Estimate {
    let interval = Interval { low: point - half, high: point + half, confidence: 0.95 };
    Estimate { point, interval, unit, method: Method::TrimmedMean, values: 3 }
}

/// Of a primitive its instructions of both modes, half of the interval of those of the kernel, and page
/// faults.
type Row<'a> = (&'a str, f64, f64, f64, f64);

fn matrix(kernel: &str, rows: &[Row<'_>], uncounted: &[(&str, &str)]) -> Matrix {
    let row = |&(primitive, user, kernel, half, page_faults): &Row<'_>| {
        let executed = Executed {
            user: estimate(user, 0.0, Unit::Count),
            kernel: estimate(kernel, half, Unit::Count),
            page_faults: estimate(page_faults, 0.0, Unit::Count),
        };
        (primitive.parse().unwrap(), executed)
    };
    let missing = |&(primitive, reason): &(&str, &str)| Unmeasured {
        primitive: primitive.parse().unwrap(),
        reason: reason.to_owned(),
    };
    Matrix {
        kernel: kernel.to_owned(),
        memory_mib: 512,
        source: "a test".to_owned(),
        rows: rows.iter().map(row).collect(),
        uncounted: uncounted.iter().map(missing).collect(),
    }
}

fn old() -> Matrix {
    let rows = [
        ("call.null", 18.0, 182.0, 0.0, 0.0),
        ("file.read{size=4KiB,buffer=reused}", 40.0, 960.0, 20.0, 0.0),
        ("page_fault.anonymous", -4.25, 3004.25, 0.0, 1.0),
        ("process.yield{processes=2,cpus=same}", 18.0, 5000.0, 300.0, 0.0),
        ("tcp.connect", 56.0, 36_000.0, 0.0, 0.0),
    ];
    matrix("6.1", &rows, &[("tlb.shootdown{cpus=different}", "two processors are required")])
}

fn text(report: &Report) -> String {
    let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
    assay_report::text::report(report, &style)
}

#[test]
fn a_matrix_is_shown_beside_the_costs_of_a_machine() {
    let cost = |point: f64, half: f64, unit| Cost::from(estimate(point, half, unit));
    let unmeasured =
        Unmeasured { primitive: "tcp.connect".parse().unwrap(), reason: "no address is free".to_owned() };
    let machine = Machine {
        name: "m".to_owned(),
        description: Description {
            facts: vec![Fact { name: "kernel".to_owned(), value: "Linux 6.18".to_owned() }],
            uncontrolled: Vec::new(),
        },
        costs: BTreeMap::from([
            ("call.null".parse().unwrap(), cost(100.0, 2.0, Unit::Nanoseconds)),
            (
                "file.read{size=4KiB,buffer=reused}".parse().unwrap(),
                cost(0.25, 0.01, Unit::NanosecondsPerByte),
            ),
            ("page_fault.anonymous".parse().unwrap(), cost(5.0, 6.0, Unit::Nanoseconds)),
        ]),
        unmeasured: vec![unmeasured],
        ..Machine::default()
    };
    expect![[r#"
        Primitives on Linux 6.1
        =======================

        Instructions and page faults of one operation
         primitive                             user               kernel  page faults            cost on m  instructions per ns
        ------------------------------------------------------------------------------------------------------------------------
         call.null                               18     182                         0  100.0   +- 2.0   ns  2.000 +- 0.041
         file.read{size=4KiB,buffer=reused}      40     960    +- 20                0    1.024 +- 0.041 us  0.977 +0.061/-0.056
         page_fault.anonymous                    -4   3,004                         1    5.0   +- 6.0   ns                - (1)
         process.yield{processes=2,cpus=same}    18       5.00 +- 0.30 k            0                - (2)
         tcp.connect                             56  36,000                         0                - (3)
         (1) its cost is not certainly above 0
         (2) it was not measured on m
         (3) no address is free
         +- is the interval that covers the true value with 95 % confidence.
         Work that is not part of a primitive is subtracted; it can execute more in one mode.
         The instructions are those of Linux 6.1, the costs those of Linux 6.18.

        Not counted
         primitive                      reason
        ------------------------------------------------------------
         tlb.shootdown{cpus=different}  two processors are required
    "#]].assert_eq(&text(&report(&old(), Some(&machine))));
}

#[test]
fn the_primitives_of_two_kernels_are_compared_by_their_change() {
    let rows = [
        ("call.null", 18.0, 282.0, 0.0, 0.0),
        ("file.read{size=4KiB,buffer=reused}", 40.0, 464.0, 20.0, 0.0),
        ("page_fault.anonymous", -4.25, 3010.25, 0.0, 1.0),
        ("pipe.round_trip{size=1B,cpus=same}", 122.0, 11_566.0, 0.0, 0.0),
        ("process.yield{processes=2,cpus=same}", 18.0, 5500.0, 300.0, 0.0),
    ];
    let new = matrix("6.12", &rows, &[("tcp.connect", "it did not end within 20 s")]);
    let names = Pair { a: "old.json".to_owned(), b: "new.json".to_owned() };
    expect![[r#"
        B compared with A
        =================

        What is compared
                 A         B
        ----------------------------
         matrix  old.json  new.json
         source  a test    a test
         kernel  6.1       6.12
         memory  512 MiB   512 MiB

        Instructions of one operation
         primitive                                            A          B             B/A  page faults A  page faults B
        -----------------------------------------------------------------------------------------------------------------
         file.read{size=4KiB,buffer=reused}    1.000 +- 0.020 k  504 +- 20   50.4 +- 3.1 %              0              0
         call.null                           200                 300        150          %              0              0
         Primitives whose instructions differ by less than 1 %, or have overlapping intervals (values: --format html, json or csv): process.yield{processes=2,cpus=same}, page_fault.anonymous
         +- is the interval that covers the true value with 95 % confidence.

        Only in A
         primitive    reason
        -----------------------------------------
         tcp.connect  it did not end within 20 s

        Only in B
         primitive                           reason
        ---------------------------------------------------------
         pipe.round_trip{size=1B,cpus=same}  it was not selected
    "#]].assert_eq(&text(&difference::report(&Pair { a: old(), b: new }, &names)));
}
