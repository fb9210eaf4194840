//! What one operation of each primitive executes in a simulated machine.

use std::cmp::Ordering::Equal;

use assay_quantity::{
    Cost, Estimate, Executed, Interval, Machine, Matrix, Method, Pair, PrimitiveId, Unit, Unmeasured,
};
use assay_report::{Block, Cell, Column, Report, Table};

/// Returns the report on a matrix, beside the costs of a machine if one is given.
pub fn report(matrix: &Matrix, machine: Option<&Machine>) -> Report {
    let mut columns = vec![
        Column::words("primitive"),
        Column::numbers("user"),
        Column::numbers("kernel"),
        Column::numbers("page faults"),
    ];
    if let Some(machine) = machine {
        columns.extend([Column::numbers(&format!("cost on {}", machine.name)), Column::numbers(PER_NS)]);
    }
    let row = |(primitive, executed): (&PrimitiveId, &Executed)| {
        let counts =
            [instructions(executed.user), instructions(executed.kernel), quantity(executed.page_faults)];
        let costs = machine.into_iter().flat_map(|machine| costs(primitive, executed, machine));
        [Cell::text(primitive.to_string())].into_iter().chain(counts).chain(costs).collect()
    };
    let rows = matrix.rows.iter().map(row).collect();
    // Each row is made from the same parts as the columns.
    let table = Table::new("Instructions and page faults of one operation", columns, rows).ok();
    let table = table.map(|table| notes(matrix, machine).into_iter().fold(table, Table::with_note));
    let blocks = table.into_iter().chain(uncounted(&matrix.uncounted, "Not counted"));
    let title = format!("Primitives on Linux {}", matrix.kernel);
    Report { title, blocks: blocks.map(Block::Table).collect() }
}

const PER_NS: &str = "instructions per ns";

/// What the reader of the table must know.
fn notes(matrix: &Matrix, machine: Option<&Machine>) -> Vec<String> {
    let is_negative = |executed: &Executed| executed.user.point < 0.0 || executed.kernel.point < 0.0;
    let subtracted = matrix.rows.values().any(is_negative).then(|| {
        "Work that is not part of a primitive is subtracted; it can execute more in one mode.".to_owned()
    });
    let kernel =
        |machine: &Machine| machine.description.fact("kernel").unwrap_or("an unknown kernel").to_owned();
    let is_other = |kernel: &String| !kernel.split_ascii_whitespace().any(|word| word == matrix.kernel);
    let other = machine.map(kernel).filter(is_other).map(|kernel| {
        format!("The instructions are those of Linux {}, the costs those of {kernel}.", matrix.kernel)
    });
    subtracted.into_iter().chain(other).collect()
}

/// Instructions, rounded and without their interval if that contains no other whole number.
#[expect(clippy::cast_possible_truncation, reason = "a matrix has no counts above 1e15")]
fn instructions(estimate: Estimate) -> Cell {
    let whole = estimate.point.round();
    let Interval { low, high, .. } = estimate.interval;
    if low <= whole - 1.0 || high >= whole + 1.0 {
        return estimate.into();
    }
    let whole = whole as i64;
    u64::try_from(whole).map_or(Cell::Difference(whole), Cell::Count)
}

/// A quantity, without its interval if that has no width.
fn quantity(estimate: Estimate) -> Cell {
    match estimate.interval.half_width() {
        0.0 => Cell::Number { value: estimate.point, unit: estimate.unit },
        _ => estimate.into(),
    }
}

/// The cost of one operation on a machine, and how many instructions it executes in a nanosecond of it.
fn costs(primitive: &PrimitiveId, executed: &Executed, machine: &Machine) -> [Cell; 2] {
    let unknown = || {
        let known = machine.unmeasured.iter().find(|missing| missing.primitive == *primitive);
        known.map_or_else(|| format!("it was not measured on {}", machine.name), |known| known.reason.clone())
    };
    let cost = machine.costs.get(primitive).ok_or_else(unknown);
    match cost.and_then(|cost| of_operation(primitive, cost)) {
        Ok(cost) => {
            let per_ns = quotient(&executed.instructions(), &cost, Unit::Count);
            let reason = || Cell::Missing("its cost is not certainly above 0".to_owned());
            [cost.into(), per_ns.map_or_else(reason, Cell::from)]
        }
        Err(reason) => [Cell::Missing(reason), Cell::text("")],
    }
}

/// The time of one operation.
fn of_operation(primitive: &PrimitiveId, cost: &Cost) -> Result<Estimate, String> {
    match cost.typical.unit {
        Unit::NanosecondsPerByte => {
            let bytes = assay_bench::find(primitive).and_then(|benchmark| benchmark.bytes);
            let bytes = bytes.ok_or("the size of one operation is unknown")?;
            #[expect(clippy::cast_precision_loss, reason = "an operation moves far fewer than 2^52 bytes")]
            Ok(cost.typical.scaled(bytes as f64, Unit::Nanoseconds))
        }
        _ => Ok(cost.typical),
    }
}

/// A quantity that is not below 0 over another one; `None` unless that is certainly above 0.
fn quotient(above: &Estimate, below: &Estimate, unit: Unit) -> Option<Estimate> {
    let (a, b) = (above.interval, below.interval);
    (b.low > 0.0).then(|| Estimate {
        point: above.point / below.point,
        interval: Interval {
            low: a.low.max(0.0) / b.high,
            high: a.high / b.low,
            confidence: a.confidence.min(b.confidence),
        },
        unit,
        method: Method::Derived,
        values: above.values.min(below.values),
    })
}

fn uncounted(missing: &[Unmeasured], title: &str) -> Option<Table> {
    let rows = missing
        .iter()
        .map(|Unmeasured { primitive, reason }| [Cell::text(primitive.to_string()), Cell::text(reason)]);
    (!missing.is_empty()).then(|| Table::of(title, ["primitive", "reason"].map(Column::words), rows))
}

/// Returns the report on two matrices, from files of these names.
pub fn difference(matrices: &Pair<Matrix>, names: &Pair<String>) -> Report {
    let both = matrices.a.rows.iter().filter_map(|(primitive, a)| {
        let b = matrices.b.rows.get(primitive)?;
        Some(Compared { primitive, of: Pair { a, b } })
    });
    let mut both: Vec<_> = both.collect();
    both.sort_by(|x, y| (x.is_same(), y.change()).partial_cmp(&(y.is_same(), x.change())).unwrap_or(Equal));
    let same = both.iter().filter(|row| row.is_same()).count();
    let columns = ["A", "B", "B/A", "page faults A", "page faults B"].map(Column::numbers);
    let [a, b, ratio, faults_a, faults_b] = columns;
    let columns = [Column::words("primitive"), a, b, ratio, faults_a, faults_b];
    let table = Table::of("Instructions of one operation", columns, both.iter().map(Compared::cells))
        .with_last_folded(
            same,
            "Primitives whose instructions differ by less than 1 %, or have overlapping intervals",
        );
    let only = [(&matrices.a, &matrices.b, "A"), (&matrices.b, &matrices.a, "B")].map(|(of, other, name)| {
        let missing = of.rows.keys().filter(|primitive| !other.rows.contains_key(*primitive));
        let missing: Vec<Unmeasured> = missing.map(|primitive| reason(primitive, other)).collect();
        uncounted(&missing, &format!("Only in {name}"))
    });
    let tables = [setups(matrices, names), table].into_iter().chain(only.into_iter().flatten());
    Report { title: "B compared with A".to_owned(), blocks: tables.map(Block::Table).collect() }
}

fn setups(matrices: &Pair<Matrix>, names: &Pair<String>) -> Table {
    let row = |name: &str, of: fn(&Matrix) -> Cell| [Cell::text(name), of(&matrices.a), of(&matrices.b)];
    let rows = [
        ["matrix", &names.a, &names.b].map(Cell::text),
        row("source", |matrix| Cell::text(&*matrix.source)),
        row("kernel", |matrix| Cell::text(&*matrix.kernel)),
        row("memory", |matrix| {
            let bytes = f64::from(matrix.memory_mib) * f64::from(1 << 20);
            Cell::Number { value: bytes, unit: Unit::Bytes }
        }),
    ];
    Table::of("What is compared", ["", "A", "B"].map(Column::words), rows)
}

/// A primitive of two matrices.
struct Compared<'a> {
    primitive: &'a PrimitiveId,
    of: Pair<&'a Executed>,
}

/// Change of the instructions below which two primitives count as the same.
const SAME: f64 = 0.01;

impl Compared<'_> {
    fn instructions(&self) -> [Estimate; 2] {
        [self.of.a, self.of.b].map(Executed::instructions)
    }

    /// By how much the larger number of instructions is above the smaller one, as a logarithm.
    fn change(&self) -> f64 {
        let [a, b] = self.instructions().map(|instructions| instructions.point);
        let change = (b / a).ln().abs();
        // Neither has an instruction.
        if change.is_nan() { 0.0 } else { change }
    }

    /// Whether the instructions differ little, or by chance.
    fn is_same(&self) -> bool {
        let [a, b] = self.instructions().map(|instructions| instructions.interval);
        self.change() < SAME || (a.low <= b.high && b.low <= a.high)
    }

    fn cells(&self) -> [Cell; 6] {
        let [a, b] = self.instructions();
        let ratio = quotient(&b, &a, Unit::Ratio);
        let reason = || Cell::Missing("the interval of A contains 0".to_owned());
        [
            Cell::text(self.primitive.to_string()),
            instructions(a),
            instructions(b),
            ratio.map_or_else(reason, quantity),
            quantity(self.of.a.page_faults),
            quantity(self.of.b.page_faults),
        ]
    }
}

/// Why a matrix has no row for a primitive.
fn reason(primitive: &PrimitiveId, matrix: &Matrix) -> Unmeasured {
    let known = matrix.uncounted.iter().find(|missing| missing.primitive == *primitive);
    let unknown = || Unmeasured { primitive: primitive.clone(), reason: "it was not selected".to_owned() };
    known.cloned().unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use assay_quantity::{Description, Fact};
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
        "#]].assert_eq(&text(&difference(&Pair { a: old(), b: new }, &names)));
    }
}
