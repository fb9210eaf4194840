//! `assay trace export`: prints a trace in a format of other tools.

mod chrome;

use std::io::{self, Write};

use assay_trace::view::look;
use assay_trace::view::stacks::{CollectStacks, Stack};
use assay_trace::{Reader, view::Filter};

use crate::cli::{ExportArgs, ExportFormat};
use crate::output;
use crate::phase::tracing::open;

/// Runs the subcommand.
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    args.filter.check()?;
    let reader = open(&args.trace)?;
    let filter = args.filter.since(reader.manifest().start_monotonic_ns);
    match args.format {
        ExportFormat::Chrome => chrome::print(reader, filter),
        ExportFormat::Folded => folded(reader, filter),
    }
}

/// Prints one line per stack: its frames, with semicolons in between, and its time in ns. This is the input
/// of `flamegraph.pl`, inferno and Speedscope, which take a number before the time for another time: no last
/// frame may end in one.
fn folded(reader: Reader, filter: Filter) -> anyhow::Result<()> {
    let origin = reader.manifest().origin;
    let stacks = look(reader, CollectStacks::of(filter, origin))?;
    say_losses(stacks.lost);
    let mut stdout = output::stdout();
    let printed = stacks.iter().try_for_each(|stack| line(&mut stdout, &stack));
    output::printed(printed.and_then(|()| stdout.flush()))
}

fn say_losses(records: u64) {
    if records > 0 {
        output::say(&format!(
            "{records} records were LOST: times are missing, or are those of another program"
        ));
    }
}

fn line(to: &mut impl Write, stack: &Stack<'_>) -> io::Result<()> {
    let frames = stack.frames.iter().map(|frame| assay_report::visible(frame).replace(';', "\\u{3b}"));
    writeln!(to, "{} {}", frames.collect::<Vec<_>>().join(";"), stack.time_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_does_not_end_at_a_semicolon_or_line_feed_in_its_name() {
        let stack = Stack { frames: vec!["a;b\n".into(), "read".into()], time_ns: 7 };
        let mut text = Vec::new();
        line(&mut text, &stack).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a\\u{3b}b\\n;read 7\n");
    }
}
