//! Tables as CSV (RFC 4180, by crate `csv`): for spreadsheets and statistics packages.
//!
//! A column of the table becomes one column of text, or as many as its cells need: `cost` with the point
//! or the number, `cost_low`, `cost_high` and `cost_confidence` if any cell is an estimate, `cost_unit` if
//! any cell has a unit, `cost_missing` with the reason if any cell is missing. Numbers are in the unit
//! next to them and are not rounded; a number that is not finite is an empty field.

use assay_quantity::Unit;

use crate::Report;
use crate::table::{Cell, Table};

/// Every table of a report. If there are several, each follows a line with its title, and empty lines
/// separate them. Headings, text and figures are omitted.
#[must_use]
pub fn report(report: &Report) -> String {
    let tables: Vec<&Table> = report.tables().collect();
    match tables.as_slice() {
        [only] => table(only),
        several => several.iter().map(|table| titled(table)).collect::<Vec<_>>().join("\r\n"),
    }
}

fn titled(table: &Table) -> String {
    let mut title = writer();
    title.write_record([table.title()]).expect("memory takes every record");
    text(title) + &self::table(table)
}

/// One table: a line of headers, then one line per row.
#[must_use]
pub fn table(table: &Table) -> String {
    let aspects: Vec<Vec<&Aspect>> = (0..table.columns().len())
        .map(|c| ASPECTS.iter().filter(|aspect| (aspect.is_needed)(table, c)).collect())
        .collect();
    let mut writer = writer();
    let mut write = |record: Vec<String>| {
        writer.write_record(record).expect("memory takes every record, and all are of one length");
    };
    let columns = table.columns().iter().zip(&aspects);
    write(
        columns
            .flat_map(|(column, aspects)| {
                aspects.iter().map(move |aspect| format!("{}{}", column.header, aspect.suffix))
            })
            .collect(),
    );
    for row in table.rows() {
        let cells = row.iter().zip(&aspects);
        write(cells.flat_map(|(cell, aspects)| aspects.iter().map(|a| (a.field)(cell))).collect());
    }
    text(writer)
}

fn writer() -> csv::Writer<Vec<u8>> {
    csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new())
}

fn text(writer: csv::Writer<Vec<u8>>) -> String {
    let bytes = writer.into_inner().expect("memory takes every flush");
    String::from_utf8(bytes).expect("every field was text")
}

/// One of the columns of text that a column of the table becomes.
struct Aspect {
    suffix: &'static str,
    is_needed: fn(&Table, usize) -> bool,
    field: fn(&Cell) -> String,
}

const ASPECTS: [Aspect; 6] = [
    Aspect { suffix: "", is_needed: |_, _| true, field: value },
    Aspect {
        suffix: "_low",
        is_needed: has_estimate,
        field: |cell| match cell {
            Cell::Quantity(estimate) => digits(estimate.interval.low),
            _ => String::new(),
        },
    },
    Aspect {
        suffix: "_high",
        is_needed: has_estimate,
        field: |cell| match cell {
            Cell::Quantity(estimate) => digits(estimate.interval.high),
            _ => String::new(),
        },
    },
    Aspect {
        suffix: "_confidence",
        is_needed: has_estimate,
        field: |cell| match cell {
            Cell::Quantity(estimate) => digits(estimate.interval.confidence),
            _ => String::new(),
        },
    },
    Aspect {
        suffix: "_unit",
        is_needed: |table, column| table.cells(column).any(|cell| unit(cell).is_some()),
        field: |cell| unit(cell).map_or(String::new(), |unit| unit.symbol().to_owned()),
    },
    Aspect {
        suffix: "_missing",
        is_needed: |table, column| table.cells(column).any(|cell| matches!(cell, Cell::Missing(_))),
        field: |cell| match cell {
            Cell::Missing(reason) => reason.clone(),
            _ => String::new(),
        },
    },
];

fn has_estimate(table: &Table, column: usize) -> bool {
    table.cells(column).any(|cell| matches!(cell, Cell::Quantity(_)))
}

fn value(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Quantity(estimate) => digits(estimate.point),
        Cell::Number { value, .. } => digits(*value),
        Cell::Count(count) => count.to_string(),
        Cell::Difference(difference) => difference.to_string(),
        Cell::Share(share) => digits(*share),
        Cell::Missing(_) => String::new(),
    }
}

fn unit(cell: &Cell) -> Option<Unit> {
    match cell {
        Cell::Quantity(estimate) => Some(estimate.unit),
        Cell::Number { unit, .. } => Some(*unit),
        Cell::Count(_) | Cell::Difference(_) => Some(Unit::Count),
        Cell::Share(_) => Some(Unit::Ratio),
        Cell::Text(_) | Cell::Missing(_) => None,
    }
}

fn digits(number: f64) -> String {
    if number.is_finite() { number.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::table::Column;
    use expect_test::expect_file;
    use proptest::prelude::*;

    #[test]
    fn the_sample_table_as_csv() {
        let written = table(&sample::table());
        assert_eq!(written.matches('\n').count(), written.matches("\r\n").count());
        // The golden file has line ends that version control does not touch.
        expect_file!["golden/table.csv"].assert_eq(&written.replace("\r\n", "\n"));
    }

    #[test]
    fn several_tables_follow_one_another_each_after_its_title() {
        let several = sample::report();
        let written = report(&several);
        let parts: Vec<&str> = written.split("\r\n\r\n").collect();
        assert_eq!(parts.len(), 3, "{written}");
        for (part, shown) in parts.iter().zip(several.tables()) {
            let body = table(shown);
            assert_eq!(part.lines().next(), Some(shown.title()));
            assert!(part.trim_end().ends_with(body.trim_end()), "{part}");
        }
    }

    proptest! {
        #[test]
        fn any_words_and_numbers_read_back(words in ".*", value in prop::num::f64::NORMAL) {
            let number = Cell::Number { value, unit: Unit::PerSecond };
            let written = table(&Table::of(
                "t",
                [Column::words("name"), Column::numbers("rate")],
                [[Cell::text(words.clone()), number]],
            ));
            let mut reader = csv::Reader::from_reader(written.as_bytes());
            prop_assert_eq!(reader.headers().unwrap(), vec!["name", "rate", "rate_unit"]);
            let record = reader.records().next().unwrap().unwrap();
            prop_assert_eq!(&record[0], &words);
            prop_assert_eq!(record[1].parse::<f64>().unwrap().to_bits(), value.to_bits());
            prop_assert_eq!(&record[2], "1/s");
        }
    }
}
