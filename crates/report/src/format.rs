//! The formats of a report. A new one is one row of [`FORMATS`].

use crate::{Report, Style, csv, html, json, text};

/// One format.
#[derive(Debug)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, one line, for `--help`.
    pub about: &'static str,
    /// Renders the report in this format. Only text uses the style, which is that of the terminal.
    pub render: fn(&Report, &Style) -> String,
}

/// Every format.
pub const FORMATS: [Format; 4] = [
    Format {
        name: "text",
        about: "for a terminal: tables as wide as it, bars of characters",
        render: |report, style| text::report(report, style),
    },
    Format {
        name: "html",
        about: "one file with tables and figures, for a browser or to print; needs nothing else",
        render: |report, _| html::report(report),
    },
    Format {
        name: "json",
        about: "everything, unrounded, for programs (assay.report/1)",
        render: |report, _| json::report(report),
    },
    Format {
        name: "csv",
        about: "its tables one after another, unrounded, for spreadsheets",
        render: |report, _| csv::report(report),
    },
];

impl Format {
    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Colour, Symbols, sample};

    const STYLE: Style = Style { width: 100, symbols: Symbols::Unicode, colour: Colour::Plain };

    #[test]
    fn every_format_has_a_name_of_its_own_and_says_what_it_is_for() {
        for format in &FORMATS {
            assert_eq!(FORMATS.iter().filter(|other| other.name == format.name).count(), 1);
            assert!(format.name.bytes().all(|b| b.is_ascii_lowercase()));
            assert!(!format.about.is_empty() && !format.about.contains('\n'), "{}", format.name);
            assert_eq!(Format::named(format.name).unwrap().name, format.name);
        }
        assert!(Format::named("pdf").is_none());
    }

    #[test]
    fn every_format_shows_each_cell_of_a_table_with_low_and_high_or_an_interval() {
        let report = sample::one_table();
        for format in &FORMATS {
            let rendered = (format.render)(&report, &STYLE).replace("<wbr>", "");
            for shown in ["tcp.transfer{size=4KiB,buffer=reused}", "needs root"] {
                assert!(rendered.contains(shown), "{}: {shown}", format.name);
            }
            let has_interval = rendered.contains('±')
                || (rendered.contains("low") && rendered.contains("high") && rendered.contains("1236.25"));
            assert!(has_interval, "{}", format.name);
            assert!(!rendered.contains("NaN"), "{}", format.name);
        }
    }

    #[test]
    fn every_format_but_csv_holds_every_kind_of_block() {
        let report = sample::report();
        for format in FORMATS.iter().filter(|format| format.name != "csv") {
            let rendered = (format.render)(&report, &STYLE);
            for shown in sample::LANDMARKS {
                assert!(rendered.contains(shown), "{}: {shown}", format.name);
            }
        }
    }
}
