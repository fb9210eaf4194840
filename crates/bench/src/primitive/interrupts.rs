//! What the kernel counts in `/proc/interrupts`: the evidence that a processor was interrupted, and for what.

use std::io;

/// Interrupts of one kind that a processor must take, one for each operation.
#[derive(Debug)]
pub(super) struct Due {
    description: &'static str,
    cpu: usize,
    /// Count when the batch was armed.
    before: u64,
    /// Operations of all batches so far.
    operations: u64,
    /// Interrupts taken in them.
    taken: u64,
}

/// At least one in so many operations of a sample must have interrupted the processor. Every one of them does while
/// a thread of the process runs there; that others keep it from running for a while is disturbance, which the
/// sample's witness sees and tells.
const ONE_IN: u64 = 10;

impl Due {
    /// Interrupts with this description on a processor, `None` where the kernel does not count them. Lines are
    /// known by their description, because their names differ between architectures.
    pub(super) fn counted(description: &'static str, cpu: usize) -> io::Result<Option<Self>> {
        let due = Self { description, cpu, before: 0, operations: 0, taken: 0 };
        Ok(parse(&table()?, description, cpu).map(|before| Self { before, ..due }))
    }

    /// Before a batch.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.before = self.count()?;
        Ok(())
    }

    /// That the operations of a batch, and of all before it, have interrupted the processor.
    pub(super) fn settle(&mut self, operations: u64) -> io::Result<()> {
        let now = self.count()?;
        self.add(operations, now.saturating_sub(self.before))
    }

    fn add(&mut self, operations: u64, taken: u64) -> io::Result<()> {
        self.operations += operations;
        self.taken += taken;
        if self.taken >= self.operations / ONE_IN {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} operations should have interrupted processor {} and it counts {} {}",
            self.operations, self.cpu, self.taken, self.description
        )))
    }

    fn count(&self) -> io::Result<u64> {
        let count = parse(&table()?, self.description, self.cpu);
        count.ok_or_else(|| io::Error::other(format!("/proc/interrupts has lost its {}", self.description)))
    }
}

fn table() -> io::Result<String> {
    std::fs::read_to_string("/proc/interrupts")
}

/// Reads a table whose head names the processors, and whose lines hold a name, a count for each of them, and a
/// description.
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
        let cpu = crate::kernel::allowed_cpus().unwrap()[0];
        let mut due = Due::counted("Function call interrupts", cpu).unwrap().unwrap();
        due.begin().unwrap();
        due.settle(0).unwrap();
        assert!(Due::counted("Unicorns", cpu).unwrap().is_none());
    }

    #[test]
    fn a_batch_without_interrupts_is_forgiven_and_a_sample_without_is_not() {
        let mut due = Due { description: "TLB shootdowns", cpu: 1, before: 0, operations: 0, taken: 0 };
        due.add(100, 100).unwrap();
        due.add(100, 0).unwrap();
        let error = due.add(900, 5).unwrap_err().to_string();
        assert_eq!(
            error,
            "1100 operations should have interrupted processor 1 and it counts 105 TLB shootdowns"
        );
    }
}
