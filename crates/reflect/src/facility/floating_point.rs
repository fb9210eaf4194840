//! Floating-point operations. No event of `perf_event_open` has one meaning on all processors, so each family
//! has its own; a processor that is not listed has none here, as the same code may mean something else there.
//!
//! These count an element of a vector as one operation, and a multiplication with addition as two. They do
//! not count x87, nor half precision and matrices on Intel (Linux, `tools/perf/pmu-events/arch/x86`; Intel,
//! *Software Developer's Manual*, volume 3, `FP_ARITH_INST_RETIRED`; AMD, *Processor Programming Reference*,
//! PMCx003).

use std::fs;
use std::hint::black_box;

use assay_process::counter::{Count, Counter, Event, Reading, Target};

use super::counter::counted;
use super::{Opened, Subject};

/// Name of the measure and of its events.
pub const NAME: &str = "floating-point operations";

/// Opens counters of them.
pub fn open(subject: &Subject) -> Opened {
    let text = fs::read_to_string("/proc/cpuinfo").map_err(|error| format!("/proc/cpuinfo: {error}"))?;
    let events = events(&text).ok_or("no counter of them is known on this model of processor")?;
    check(events)?;
    Ok(Box::new(counted(subject, events)?))
}

/// Counts additions of this thread by their event, which is the first: a hypervisor may accept one that it
/// does not count.
fn check(events: &[(Event, u64)]) -> Result<(), String> {
    const ADDITIONS: u32 = 100_000;
    let counter = Counter::open(events[0].0, Target::ThisThread).map_err(|error| error.to_string())?;
    let sum = (0..ADDITIONS).fold(0.0, |sum, term| black_box(sum + f64::from(term)));
    black_box(sum);
    match counter.read().map_err(|error| error.to_string())?.since(Reading::default()) {
        Count::Exact(count) if count < u64::from(ADDITIONS) => {
            Err(format!("the processor or the hypervisor counted {count} of {ADDITIONS} additions"))
        }
        // If other counters had its place, it cannot be judged.
        Count::Exact(_) | Count::Scaled { .. } | Count::NoTurn => Ok(()),
    }
}

/// Models of Intel's family 6 with the event `0xc7`, from Broadwell to Granite Rapids. Processors with two
/// kinds of cores are not among them: their smaller cores count something else.
const INTEL_MODELS: [u64; 23] = [
    0x3d, 0x47, 0x4e, 0x4f, 0x55, 0x56, 0x5e, 0x66, 0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0x8e, 0x8f, 0x9e,
    0xa5, 0xa6, 0xa7, 0xad, 0xae, 0xcf,
];

/// Intel's event counts instructions, the first one those without a vector. The higher byte of a code selects
/// their precision and the length of their vectors, and so the number of operations of each.
static INTEL: [(Event, u64); 5] = [
    (Event::raw(NAME, 0x03c7), 1),
    (Event::raw(NAME, 0x04c7), 2),
    (Event::raw(NAME, 0x18c7), 4),
    (Event::raw(NAME, 0x60c7), 8),
    (Event::raw(NAME, 0x80c7), 16),
];

/// AMD's event counts operations. The higher byte of its code selects all of their kinds.
static ZEN_1_TO_3: [(Event, u64); 1] = [(Event::raw(NAME, 0xff03), 1)];
static ZEN_4: [(Event, u64); 1] = [(Event::raw(NAME, 0x1f03), 1)];
static ZEN_5: [(Event, u64); 1] = [(Event::raw(NAME, 0x0f03), 1)];

/// The events of the first processor in `/proc/cpuinfo`, each with the operations that it stands for.
fn events(cpuinfo: &str) -> Option<&'static [(Event<'static>, u64)]> {
    let field = |name: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .map(|(key, value)| (key.trim(), value.trim()))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    let number = |name| field(name)?.parse::<u64>().ok();
    match (field("vendor_id")?, number("cpu family")?, number("model")?) {
        ("GenuineIntel", 6, model) if INTEL_MODELS.contains(&model) => Some(&INTEL),
        ("AuthenticAMD", 0x17, _) | ("AuthenticAMD", 0x19, 0x00..=0x0f | 0x20..=0x2f | 0x40..=0x5f) => {
            Some(&ZEN_1_TO_3)
        }
        ("AuthenticAMD", 0x19, _) => Some(&ZEN_4),
        ("AuthenticAMD", 0x1a, _) => Some(&ZEN_5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use assay_process::counter;

    use super::*;

    #[test]
    fn the_event_is_that_of_the_model_and_an_unknown_model_has_none() {
        let cpuinfo = |vendor: &str, family: u64, model: u64| {
            format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
                 model name\t: A: B\n\nprocessor\t: 1\nvendor_id\t: Other\n"
            )
        };
        let of = |vendor, family, model| events(&cpuinfo(vendor, family, model));
        for (vendor, family, model, expected) in [
            ("GenuineIntel", 6, 0x55, Some(INTEL.as_slice())),
            // Zen 2, Zen 3, Zen 4 and Zen 5.
            ("AuthenticAMD", 23, 0x31, Some(&ZEN_1_TO_3)),
            ("AuthenticAMD", 25, 0x01, Some(&ZEN_1_TO_3)),
            ("AuthenticAMD", 25, 0x11, Some(&ZEN_4)),
            ("AuthenticAMD", 26, 0x02, Some(&ZEN_5)),
            // Haswell, Alder Lake, Sierra Forest, Bulldozer, and a family without a vendor.
            ("GenuineIntel", 6, 0x3c, None),
            ("GenuineIntel", 6, 0x97, None),
            ("GenuineIntel", 6, 0xaf, None),
            ("AuthenticAMD", 21, 0x01, None),
            ("", 6, 0x55, None),
        ] {
            assert_eq!(of(vendor, family, model), expected, "{vendor} {family} {model}");
        }
        assert_eq!(events(""), None);
    }

    #[test]
    fn a_counter_that_counts_less_than_was_done_is_refused() {
        // Additions touch few pages.
        let said = check(&[(counter::PAGE_FAULTS, 1)]).unwrap_err();
        assert!(said.ends_with(" of 100000 additions"), "{said}");
    }
}
