//! Description of a machine: its distinguishing and unusual facts, the other facts folded, and the
//! uncontrolled sources of error.

use assay_quantity::{Description, Fact};
use assay_report::{Block, Cell, Column, Table};
use assay_statistics::disturbance::LOST_MAX;

use crate::journal::{NOISE_AFTER, NOISE_BEFORE};

/// Returns the facts and the sources of error.
pub fn blocks(description: &Description) -> Vec<Block> {
    let (usual, shown): (Vec<&Fact>, Vec<&Fact>) = description.facts.iter().partition(|fact| is_usual(fact));
    let rows = shown.iter().chain(&usual).map(|fact| [Cell::text(&fact.name), Cell::text(&fact.value)]);
    let facts = Table::of("Description of the machine", ["fact", "value"].map(Column::words), rows)
        .with_last_folded(usual.len(), "Other facts");
    let mut blocks = vec![Block::Table(facts)];
    if !description.uncontrolled.is_empty() {
        let sentences = description.uncontrolled.iter().map(|sentence| [Cell::text(sentence)]);
        let columns = [Column::words("source of error")];
        blocks.push(Block::Table(Table::of("Uncontrolled sources of error", columns, sentences)));
    }
    blocks
}

/// The usual values of a fact.
enum Usual {
    /// All values.
    Any,
    /// Any of these values.
    AnyOf(&'static [&'static str]),
    /// Shares below the share of its time that a batch may lose without being excluded.
    Small,
}

use Usual::{Any, AnyOf, Small};

/// The facts that are folded if their value is usual.
const USUAL: [(&str, Usual); 24] = [
    ("assay", Any),
    ("smt", AnyOf(&["on", "not reported"])),
    ("microcode", Any),
    ("page", AnyOf(&["4 KiB"])),
    ("huge pages", Any),
    ("libc", Any),
    ("clocksource", AnyOf(&["tsc", "arch_sys_counter"])),
    ("batch clock", Any),
    ("governor", AnyOf(&["performance", "not reported"])),
    ("turbo", AnyOf(&["on", "not reported"])),
    ("aslr", AnyOf(&["on (2)"])),
    ("autogroup", Any),
    ("cgroup cpu limit", AnyOf(&["none"])),
    ("file system", Any),
    ("load", Any),
    (NOISE_BEFORE, Small),
    (NOISE_AFTER, Small),
    ("page protection change", Any),
    ("tasks elsewhere", Small),
    ("memory pressure", Small),
    ("stolen time", Small),
    // Most of them belong to the operations.
    ("interrupts", Any),
    ("major faults", Any),
    // Batches that lost time to other tasks are counted with the costs.
    ("preemption", Any),
];

fn is_usual(fact: &Fact) -> bool {
    USUAL.iter().any(|(name, usual)| {
        *name == fact.name
            && match usual {
                Any => true,
                AnyOf(values) => values.contains(&fact.value.as_str()),
                Small => share(&fact.value).is_some_and(|percent| percent < 100.0 * LOST_MAX),
            }
    })
}

/// Returns the first share in a sentence, in per cent.
fn share(sentence: &str) -> Option<f64> {
    sentence.split_once(" %")?.0.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_bench::{calibrate, describe};
    use assay_quantity::Evidence;
    use assay_quantity::evidence::{MEMORY_PRESSURE, RUNNABLE_ELSEWHERE, STOLEN};
    use assay_report::{Colour, Style, Symbols};
    use assay_statistics::aspect;

    fn fact(name: &str, value: &str) -> Fact {
        Fact { name: name.to_owned(), value: value.to_owned() }
    }

    /// Returns the facts about the conditions of a run in which each of them had this share.
    fn facts_of_shares(share: f64) -> Vec<Fact> {
        let kinds = [RUNNABLE_ELSEWHERE, MEMORY_PRESSURE, STOLEN];
        aspect::facts(&[&kinds.map(|kind| (kind, vec![share])).into_iter().collect::<Evidence>()])
    }

    #[test]
    fn values_are_usual_or_not() {
        let usual = [
            ("aslr", "on (2)"),
            ("governor", "not reported"),
            ("load", "any"),
            (NOISE_BEFORE, "processor 0: 2.388 % of 100 ms lost in 269 gaps"),
        ];
        assert!(usual.iter().all(|(name, value)| is_usual(&fact(name, value))));
        let unusual = [
            ("aslr", "off (0)"),
            ("aslr", "not reported"),
            ("governor", "powersave"),
            (NOISE_BEFORE, "processor 0: 75.0 % of 40 ms lost in 2 gaps"),
            (NOISE_BEFORE, "unknown: processor 0 cannot be used"),
            ("cpu", "a processor"),
            ("unicorns", "any"),
        ];
        assert!(unusual.iter().all(|(name, value)| !is_usual(&fact(name, value))));
        assert!(facts_of_shares(0.0).iter().all(is_usual));
        let shared = facts_of_shares(0.5);
        let names: Vec<&str> =
            shared.iter().filter(|fact| !is_usual(fact)).map(|fact| fact.name.as_str()).collect();
        assert_eq!(names, ["tasks elsewhere", "memory pressure", "stolen time"]);
    }

    #[test]
    fn every_fact_is_in_the_table_and_the_usual_ones_come_last() {
        let facts = [("aslr", "on (2)"), ("cpu", "a processor"), ("page", "4 KiB"), ("kernel", "Linux")];
        let description = Description {
            facts: facts.iter().map(|(name, value)| fact(name, value)).collect(),
            uncontrolled: vec!["A control group limits the processor time.".to_owned()],
        };
        let blocks = blocks(&description);
        let [Block::Table(facts), Block::Table(uncontrolled)] = blocks.as_slice() else {
            panic!("{blocks:?}")
        };
        let names: Vec<&Cell> = facts.cells(0).collect();
        assert_eq!(names, ["cpu", "kernel", "aslr", "page"].map(Cell::text).each_ref());
        assert_eq!(uncontrolled.rows().len(), 1);
        let style = Style { width: u16::MAX, symbols: Symbols::Ascii, colour: Colour::Plain };
        let shown = assay_report::text::table(facts, &style);
        assert!(shown.contains("a processor") && !shown.contains("on (2)"), "{shown}");
        assert!(shown.contains("Other facts (values: --format html, json or csv): aslr, page"), "{shown}");
    }

    #[test]
    fn every_name_is_one_that_machines_have() {
        let facts = describe(&calibrate(), &std::env::temp_dir()).facts;
        let is_known = |name: &str| facts.iter().any(|fact| fact.name == name) || aspect::is_condition(name);
        let others: Vec<&str> = USUAL.iter().map(|(name, _)| *name).filter(|name| !is_known(name)).collect();
        assert_eq!(others, [NOISE_BEFORE, NOISE_AFTER]);
    }
}
