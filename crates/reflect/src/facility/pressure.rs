//! Pressure stall information (the kernel's PSI): time in which at least one task was stalled.

use std::io;
use std::path::Path;

use assay_process::Reread;
use assay_process::accounting::stalled_ns;
use assay_quantity::Unit;

use super::{Measure, Provider, Source, Subject, opened};

pub static PRESSURE: Provider = Provider {
    measures: &[
        Measure::overhead(
            "processor pressure",
            Unit::Nanoseconds,
            "time in which a task waited for a processor",
        ),
        Measure::overhead(
            "memory pressure",
            Unit::Nanoseconds,
            "time in which a task waited for memory to be reclaimed",
        ),
        Measure::overhead("I/O pressure", Unit::Nanoseconds, "time in which a task waited for storage"),
    ],
    open: |subject| {
        let directory = match subject {
            Subject::Machine => Path::new("/proc/pressure"),
            Subject::Group(group) => group.path(),
            Subject::Process(_) => {
                return Err(
                    "the kernel counts pressure by control group; watch that of the process".to_owned()
                );
            }
        };
        let suffix = if matches!(subject, Subject::Machine) { "" } else { ".pressure" };
        let open = |name| opened(&directory.join(format!("{name}{suffix}")));
        Ok(Box::new(Pressure([open("cpu")?, open("memory")?, open("io")?])))
    },
};

#[derive(Debug)]
struct Pressure([Reread; 3]);

impl Source for Pressure {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds since boot")]
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        for file in &mut self.0 {
            totals.push(stalled_ns(file.text()?).map(|ns| ns as u64));
        }
        Ok(())
    }
}
