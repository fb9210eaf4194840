//! What the kernel counts in `/proc/interrupts`: the evidence that a processor was interrupted, and for what.

use std::io;

/// Interrupts of one kind that a processor has taken; `None` where the kernel does not count that kind.
///
/// Lines are known by their description, because their names differ between architectures.
pub(super) fn taken(description: &str, cpu: usize) -> io::Result<Option<u64>> {
    Ok(parse(&std::fs::read_to_string("/proc/interrupts")?, description, cpu))
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
    fn the_kernel_counts_function_calls_of_this_processor() {
        let cpu = crate::kernel::allowed_cpus().unwrap()[0];
        assert!(taken("Function call interrupts", cpu).unwrap().is_some());
    }
}
