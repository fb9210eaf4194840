//! Filters for the events of a trace.

use assay_trace::descriptor::Descriptor;
use assay_trace::record::{Abi, call_name};
use assay_trace::syscall;
use assay_trace::view::Filter;
use clap::Args;

use super::{TIME_UNITS, time_ns};

/// Conditions for the events of a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filters for events (an event must match all of them)")]
pub struct FilterArgs {
    /// Show only calls with this name, such as read.
    #[arg(long, value_name = "NAME", value_parser = call)]
    call: Option<u16>,
    /// Show only calls on this kind of descriptor, such as file or tcp4.
    #[arg(long, value_name = "KIND")]
    descriptor: Option<Descriptor>,
    /// Show only events of this process.
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Show only events of this thread.
    #[arg(long, value_name = "TID")]
    thread: Option<u32>,
    /// Show only calls that took at least this long, such as 20us or 1ms.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    slower: Option<u64>,
    /// Show only events that begin at least this long after the beginning of the recording, such as 500ms or
    /// 2s.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    from: Option<u64>,
    /// Show only events that begin less than this long after the beginning of the recording.
    #[arg(long, value_name = "TIME", value_parser = time_ns)]
    to: Option<u64>,
}

impl FilterArgs {
    /// Returns whether there is a filter.
    pub fn is_given(&self) -> bool {
        self.since(0) != Filter::default()
    }

    /// Returns the filter as on the command line, each option after a space.
    pub fn words(&self) -> String {
        let Self { call, descriptor, process, thread, slower, from, to } = *self;
        let options = [
            call.map(|number| format!(" --call {}", call_name(Abi::Native, number))),
            descriptor.map(|kind| format!(" --descriptor {kind}")),
            process.map(|process| format!(" --process {process}")),
            thread.map(|thread| format!(" --thread {thread}")),
            slower.map(|time_ns| format!(" --slower {}", shown(time_ns))),
            from.map(|time_ns| format!(" --from {}", shown(time_ns))),
            to.map(|time_ns| format!(" --to {}", shown(time_ns))),
        ];
        options.into_iter().flatten().collect()
    }

    /// Fails if no event can match, because the period ends before it begins.
    pub fn check(&self) -> anyhow::Result<()> {
        let is_empty = self.from.zip(self.to).is_some_and(|(from_ns, to_ns)| from_ns >= to_ns);
        anyhow::ensure!(!is_empty, "--from must be before --to");
        Ok(())
    }

    /// Returns the filter for a trace that begins at `start_ns`; without options, one that accepts every
    /// event.
    pub fn since(&self, start_ns: u64) -> Filter {
        let Self { call, descriptor, process, thread, slower: elapsed_ns_min, from, to } = *self;
        let [from_ns, to_ns] = [from, to].map(|time_ns| Some(start_ns.saturating_add(time_ns?)));
        Filter { call, descriptor, process, thread, elapsed_ns_min, from_ns, to_ns }
    }
}

/// Returns the number of a system call of this architecture.
pub(super) fn call(name: &str) -> Result<u16, String> {
    syscall::number(name)
        .ok_or_else(|| "unknown system call on this architecture; give a name such as read".to_owned())
}

/// Returns a time in the largest unit that gives a whole number.
fn shown(time_ns: u64) -> String {
    let fits = |(_, unit_ns): &&(&str, u64)| time_ns.is_multiple_of(*unit_ns);
    let (unit, unit_ns) = TIME_UNITS.iter().rfind(fits).unwrap_or(&TIME_UNITS[0]);
    format!("{}{unit}", time_ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_words_of_a_filter_are_those_of_the_command_line() {
        for words in [
            "",
            " --call read",
            " --descriptor tcp4 --process 7 --thread 8",
            " --slower 1500ns --from 20ms --to 2s",
            " --slower 17us",
        ] {
            let line = format!("assay view x.trace summary{words}");
            let Command::View(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}");
            };
            assert_eq!(args.filter.words(), words);
        }
    }
}
