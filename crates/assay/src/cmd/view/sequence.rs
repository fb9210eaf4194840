//! The view sequence: prints the rows as text, JSON or CSV.

use std::io::{self, Write};

use anyhow::bail;
use assay_trace::Reader;
use assay_trace::view::sequence::SequenceRow;
use serde::Serialize;

use super::filter;
use crate::cli::ViewArgs;
use crate::output;
use crate::phase::tracing::print_rows;

/// The fields of a row in JSON and CSV: those of [`Line`].
pub const FIELDS: [&str; 9] =
    ["begin_ns", "elapsed_ns", "program", "process", "thread", "cpu", "number", "descriptor", "event"];

/// Prints the rows until the reader of stdout closes it.
pub fn print(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let stdout = output::stdout();
    let mut printer = match args.print.format().name {
        "text" => Printer::Text(stdout, String::new()),
        "json" => Printer::Json(stdout),
        "csv" => Printer::Csv(comma_separated(stdout)),
        other => {
            bail!("the view sequence is a stream and cannot be printed as {other}; choose text, json or csv")
        }
    };
    let filter = filter(&reader, args);
    output::printed(printer.head())?;
    let (printed, read) = print_rows(reader, filter, |_, row, since_ns| printer.row(row, since_ns));
    output::end(output::printed(printed.and_then(|()| printer.flush())), read)
}

/// Prints rows in a format.
enum Printer<W: Write> {
    /// With the buffer of a line.
    Text(W, String),
    Json(W),
    Csv(Box<csv::Writer<W>>),
}

/// A row as it is printed, with the time since the beginning of the trace.
#[derive(Serialize)]
struct Line<'a> {
    begin_ns: u64,
    elapsed_ns: Option<u64>,
    program: &'a str,
    process: u32,
    thread: u32,
    cpu: Option<u16>,
    number: Option<u16>,
    descriptor: &'a str,
    event: &'a str,
}

impl<W: Write> Printer<W> {
    fn head(&mut self) -> io::Result<()> {
        match self {
            Self::Text(..) | Self::Json(_) => Ok(()),
            Self::Csv(writer) => writer.write_record(FIELDS).map_err(cause),
        }
    }

    fn row(&mut self, row: &SequenceRow, since_ns: u64) -> io::Result<()> {
        let line = Line {
            begin_ns: since_ns,
            elapsed_ns: row.elapsed_ns,
            program: &row.program,
            process: row.process,
            thread: row.thread,
            cpu: row.cpu,
            number: row.number,
            descriptor: row.descriptor.name(),
            event: &row.text,
        };
        match self {
            Self::Text(stdout, text) => {
                text.clear();
                line.push_to(text);
                stdout.write_all(text.as_bytes())
            }
            Self::Json(stdout) => {
                serde_json::to_writer(&mut *stdout, &line)?;
                stdout.write_all(b"\n")
            }
            Self::Csv(writer) => writer.serialize(&line).map_err(cause),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(stdout, _) | Self::Json(stdout) => stdout.flush(),
            Self::Csv(writer) => writer.flush(),
        }
    }
}

fn comma_separated<W: Write>(stdout: W) -> Box<csv::Writer<W>> {
    let mut builder = csv::WriterBuilder::new();
    Box::new(builder.has_headers(false).terminator(csv::Terminator::CRLF).from_writer(stdout))
}

/// Returns the error of the output: the conversion of `csv` hides its kind.
fn cause(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

impl Line<'_> {
    /// Adds the line for people: its time, the program with the process and, if it is another one, the
    /// thread, the event, and its duration.
    fn push_to(&self, text: &mut String) {
        let mut digits = itoa::Buffer::new();
        text.push_str(digits.format(self.begin_ns / 1_000_000_000));
        align_right(text, 0, 5); // seconds of a day
        text.push('.');
        // The leading 1 keeps the zeros, and is cut off.
        text.push_str(&digits.format(1_000_000_000 + self.begin_ns % 1_000_000_000)[1..]);
        text.push(' ');
        let begin = text.len();
        if self.process > 0 {
            let visible = assay_report::visible(self.program);
            text.push_str(if self.program.is_empty() { "?" } else { &visible });
            text.push('/');
            text.push_str(digits.format(self.process));
        }
        if self.thread != self.process {
            text.push('/');
            text.push_str(digits.format(self.thread));
        }
        align_right(text, begin, BLANKS.len());
        text.push(' ');
        text.push_str(self.event);
        if let Some(elapsed_ns) = self.elapsed_ns {
            text.push_str(" <");
            text.push_str(digits.format(elapsed_ns));
            text.push_str(" ns>");
        }
        text.push('\n');
    }
}

/// The width of most programs with their process. A longer one moves the rest of its line.
const BLANKS: &str = "                ";

/// Fills what was added since the position `begin` up to `width` with blanks at its left.
fn align_right(text: &mut String, begin: usize, width: usize) {
    let missing = width.saturating_sub(text.len() - begin);
    text.insert_str(begin, &BLANKS[..missing]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_trace::descriptor::Descriptor;
    use serde_json::{Value, json};

    fn read() -> SequenceRow {
        SequenceRow {
            begin_ns: 0,
            program: "cat".into(),
            process: 7,
            thread: 8,
            cpu: Some(1),
            number: Some(0),
            text: "read(3, \"a,b\", 512) = 512".to_owned(),
            elapsed_ns: Some(431),
            descriptor: Descriptor::File,
        }
    }

    fn shown(make: fn(Vec<u8>) -> Printer<Vec<u8>>, row: &SequenceRow) -> String {
        let mut printer = make(Vec::new());
        printer.row(row, 1_000_000_002).unwrap();
        let bytes = match printer {
            Printer::Text(bytes, _) | Printer::Json(bytes) => bytes,
            Printer::Csv(writer) => writer.into_inner().unwrap(),
        };
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_row_is_a_line_in_every_format() {
        let text = |row| shown(|bytes| Printer::Text(bytes, String::new()), row);
        let json = |row| shown(Printer::Json, row);
        let csv = |row| shown(|bytes| Printer::Csv(comma_separated(bytes)), row);
        let (thread, main) = (read(), SequenceRow { thread: 7, ..read() });
        assert_eq!(text(&thread), "    1.000000002          cat/7/8 read(3, \"a,b\", 512) = 512 <431 ns>\n");
        assert_eq!(text(&main), "    1.000000002            cat/7 read(3, \"a,b\", 512) = 512 <431 ns>\n");
        let unnamed = SequenceRow { program: "".into(), ..main.clone() };
        assert!(text(&unnamed).starts_with("    1.000000002              ?/7 read("));
        let hostile = SequenceRow { program: "a\x1b[2J".into(), ..main.clone() };
        assert!(text(&hostile).starts_with("    1.000000002     a\\u{1b}[2J/7 read("), "{}", text(&hostile));
        let line = json(&thread);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({"begin_ns": 1_000_000_002, "elapsed_ns": 431, "program": "cat", "process": 7, "thread": 8,
                "cpu": 1, "number": 0, "descriptor": "file", "event": "read(3, \"a,b\", 512) = 512"})
        );
        let positions = FIELDS.map(|field| line.find(&format!("\"{field}\":")).unwrap());
        assert!(line.ends_with("}\n") && positions.is_sorted(), "{line}");
        let event = "\"read(3, \"\"a,b\"\", 512) = 512\"";
        assert_eq!(csv(&thread), format!("1000000002,431,cat,7,8,1,0,file,{event}\r\n"));
        let gap = SequenceRow { cpu: Some(1), text: "3 records lost".to_owned(), ..SequenceRow::default() };
        assert_eq!(text(&gap), "    1.000000002                  3 records lost\n");
        assert_eq!(csv(&gap), "1000000002,,,0,0,1,,none,3 records lost\r\n");
        assert!(json(&gap).contains("\"elapsed_ns\":null"));
    }
}
