//! The counts in `/proc/interrupts`: the evidence that a processor was interrupted, and for what.

use std::io;

use assay_statistics::disturbance::LOST_MAX;

use crate::benchmark::Disturbed;

/// Interrupts of one kind that a processor must take, one per operation.
#[derive(Debug)]
pub(crate) struct Due {
    description: &'static str,
    cpu: usize,
    /// The count when the batch was armed.
    before: u64,
}

impl Due {
    /// Interrupts with this description on a processor; `None` if the kernel does not count them. Lines are
    /// found by their description, because their names differ between architectures.
    pub(crate) fn counted(description: &'static str, cpu: usize) -> io::Result<Option<Self>> {
        let due = Self { description, cpu, before: 0 };
        Ok(parse(&table()?, description, cpu).map(|before| Self { before, ..due }))
    }

    /// Records the count before a batch.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.before = self.count()?;
        Ok(())
    }

    /// Checks that each operation of a batch has interrupted the processor. The share of missing interrupts
    /// may be as large as the share of time that a batch may lose ([`LOST_MAX`]): while another task runs on
    /// the processor, the kernel does not have to interrupt the thread there.
    pub(crate) fn settle(&mut self, operations: u64) -> io::Result<()> {
        let taken = self.count()?.saturating_sub(self.before);
        self.check(operations, taken)
    }

    #[expect(clippy::cast_precision_loss, reason = "batches hold far fewer than 2^52 operations")]
    fn check(&self, operations: u64, taken: u64) -> io::Result<()> {
        if operations.saturating_sub(taken) as f64 <= LOST_MAX * operations as f64 {
            return Ok(());
        }
        Err(Disturbed::error(format!(
            "{operations} operations should have interrupted processor {}, but it counts {taken} {}",
            self.cpu, self.description
        )))
    }

    fn count(&self) -> io::Result<u64> {
        let count = parse(&table()?, self.description, self.cpu);
        count.ok_or_else(|| {
            io::Error::other(format!("/proc/interrupts no longer counts {}", self.description))
        })
    }
}

fn table() -> io::Result<String> {
    std::fs::read_to_string("/proc/interrupts")
}

/// Parses a table whose head names the processors and whose lines contain a name, a count for each processor,
/// and a description.
fn parse(table: &str, description: &str, cpu: usize) -> Option<u64> {
    let (head, lines) = table.split_once('\n')?;
    let name = format!("CPU{cpu}");
    let column = head.split_ascii_whitespace().position(|column| column == name)?;
    let line = lines.lines().find(|line| line.trim_end().ends_with(description))?;
    line.split_ascii_whitespace().nth(column + 1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
CAL:    3756130    4549831   Function call interrupts
TLB:     394695     393594   TLB shootdowns
ERR:          0
";

    #[test]
    fn counts_are_found_by_description_and_processor_and_nowhere_else() {
        assert_eq!(parse(TABLE, "TLB shootdowns", 0), Some(394_695));
        assert_eq!(parse(TABLE, "Function call interrupts", 2), Some(4_549_831));
        assert_eq!(parse(TABLE, "Function call interrupts", 1), None);
        assert_eq!(parse(TABLE, "Rescheduling interrupts", 0), None);
        assert_eq!(parse("", "TLB shootdowns", 0), None);
    }

    #[test]
    fn function_calls_are_counted_here_and_unicorns_are_not() {
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let mut due = Due::counted("Function call interrupts", cpu).unwrap().unwrap();
        due.begin().unwrap();
        due.settle(0).unwrap();
        assert!(Due::counted("Unicorns", cpu).unwrap().is_none());
    }

    #[test]
    fn a_batch_is_disturbed_if_more_than_a_twentieth_of_its_interrupts_are_missing() {
        let due = Due { description: "TLB shootdowns", cpu: 1, before: 0 };
        due.check(100, 101).unwrap();
        due.check(100, 95).unwrap();
        let error = due.check(100, 94).unwrap_err();
        assert!(Disturbed::is(&error));
        let message = "100 operations should have interrupted processor 1, but it counts 94 TLB shootdowns";
        assert_eq!(error.to_string(), message);
        assert!(due.check(1, 0).is_err());
    }
}
