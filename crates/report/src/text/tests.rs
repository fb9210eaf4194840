//! What a terminal shows, at every width.

use super::*;
use crate::sample;
use crate::{Cell, Column};
use expect_test::expect_file;

fn style(width: u16, symbols: Symbols) -> Style {
    Style { width, symbols, colour: Colour::Plain }
}

#[test]
fn the_sample_report_in_a_wide_terminal() {
    expect_file!["../golden/wide.txt"].assert_eq(&report(&sample::report(), &style(120, Symbols::Unicode)));
}

#[test]
fn the_sample_report_in_80_columns_of_ascii() {
    let text = report(&sample::report(), &style(80, Symbols::Ascii));
    assert!(text.is_ascii());
    expect_file!["../golden/narrow.txt"].assert_eq(&text);
}

#[test]
fn a_table_of_numbers_too_wide_for_the_terminal_becomes_records() {
    expect_file!["../golden/records.txt"].assert_eq(&table(&sample::table(), &style(44, Symbols::Unicode)));
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_ends_in_a_space() {
    for width in [NARROWEST, 60, 80, 100, 200] {
        for report in [sample::report(), sample::hostile()] {
            let text = self::report(&report, &style(width, Symbols::Unicode));
            for line in text.lines() {
                assert!(grid::width(line) <= usize::from(width), "{width}: {line}");
                assert_eq!(line.trim_end(), line);
            }
        }
    }
}

#[test]
fn bars_end_where_lines_do_not() {
    let text = report(&sample::report(), &style(u16::MAX, Symbols::Unicode));
    let longest = text.lines().filter(|line| line.contains('█')).map(grid::width).max();
    assert!(longest.is_some_and(|longest| longest < 200), "{longest:?} in\n{text}");
}

#[test]
fn no_number_is_broken_at_80_columns() {
    let text = report(&sample::report(), &style(80, Symbols::Unicode));
    for number in ["1.249 ± 0.013 us", "1.042 ± 0.013 ms", "48.20  ± 0.31  ns", "31.4   %"] {
        assert!(text.contains(number), "{number} in\n{text}");
    }
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let text = report(&sample::hostile(), &style(80, Symbols::Ascii));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}'));
}

#[test]
fn escape_sequences_are_written_only_when_asked_for_and_change_no_word() {
    let plain = report(&sample::report(), &style(100, Symbols::Unicode));
    let ansi = Style { colour: Colour::Ansi, ..style(100, Symbols::Unicode) };
    let ansi = report(&sample::report(), &ansi);
    assert!(!plain.contains('\u{1b}'));
    assert!(ansi.contains("\u{1b}[1m"));
    let stripped = ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"].iter().fold(ansi, |text, s| text.replace(s, ""));
    assert_eq!(stripped, plain);
}

#[test]
fn a_table_without_rows_still_shows_its_header() {
    let empty = Table::of("nothing", [Column::words("name"), Column::numbers("cost")], [] as [[Cell; 2]; 0]);
    let text = table(&empty, &style(80, Symbols::Ascii));
    assert!(text.contains("name") && text.contains("cost"), "{text}");
}

#[test]
fn of_many_folded_rows_the_first_are_named_and_the_others_counted() {
    let folded = |rows: usize| {
        let cells = (0..rows).map(|row| [Cell::text(format!("r{row}"))]);
        let all = Table::of("Rows", [Column::words("row")], cells).with_last_folded(rows, "Folded");
        table(&all, &style(u16::MAX, Symbols::Ascii))
    };
    assert!(folded(50).contains(" r48, r49\n"));
    assert!(folded(51).contains(" r48, r49 and 1 more\n"));
    assert!(folded(1050).contains(" r48, r49 and 1,000 more\n"));
}
