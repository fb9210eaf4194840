//! What a machine is: the facts that tell it from others and those that are unusual, the rest folded, and what could
//! not be controlled.

use assay_quantity::{Description, Fact};
use assay_report::{Block, Cell, Column, Table};

/// The facts and the sources of error.
pub fn blocks(description: &Description) -> Vec<Block> {
    let (usual, shown): (Vec<&Fact>, Vec<&Fact>) = description.facts.iter().partition(|fact| is_usual(fact));
    let sentences = description.uncontrolled.iter().map(|sentence| [Cell::text(sentence)]);
    let uncontrolled =
        Table::of("What could not be controlled", [Column::words("source of error")], sentences);
    let tables =
        [table("What it is", &shown), uncontrolled, table("Other facts, none unusual", &usual).folded()];
    tables.into_iter().filter(|table| !table.rows().is_empty()).map(Block::Table).collect()
}

fn table(title: &str, facts: &[&Fact]) -> Table {
    let rows = facts.iter().map(|fact| [Cell::text(&fact.name), Cell::text(&fact.value)]);
    Table::of(title, ["fact", "value"].map(Column::words), rows)
}

/// What is usual of a fact.
enum Usual {
    /// Every value.
    Any,
    /// These values.
    One(&'static [&'static str]),
    /// A share of less than one per cent.
    BelowOnePercent,
}

use Usual::{Any, BelowOnePercent, One};

/// Facts that readers look for only if they have a reason to; every other fact is always shown.
const USUAL: [(&str, Usual); 23] = [
    ("assay", Any),
    ("smt", Any),
    ("microcode", Any),
    ("page", One(&["4 KiB"])),
    ("huge pages", Any),
    ("libc", Any),
    ("clocksource", One(&["tsc", "arch_sys_counter"])),
    ("batch clock", Any),
    ("governor", One(&["performance", "not reported"])),
    ("turbo", Any),
    ("aslr", One(&["on (2)"])),
    ("autogroup", Any),
    ("cgroup cpu limit", One(&["none"])),
    ("file system", Any),
    ("load", Any),
    ("noise before", Any),
    ("noise after", Any),
    ("page protection change", Any),
    ("tasks elsewhere", BelowOnePercent),
    ("memory pressure", BelowOnePercent),
    ("interrupts", BelowOnePercent),
    ("stolen time", BelowOnePercent),
    // What it took from a batch is among its disturbances.
    ("preemption", Any),
];

fn is_usual(fact: &Fact) -> bool {
    USUAL.iter().any(|(name, usual)| {
        *name == fact.name
            && match usual {
                Any => true,
                One(values) => values.contains(&fact.value.as_str()),
                BelowOnePercent => share(&fact.value).is_some_and(|percent| percent < 1.0),
            }
    })
}

/// The first share in a sentence, in per cent.
fn share(sentence: &str) -> Option<f64> {
    sentence.split_once(" %")?.0.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::Aspect;

    /// The facts that are shown and those that are folded.
    fn names(facts: &[(&str, &str)], uncontrolled: &[&str]) -> Vec<(String, Vec<String>)> {
        let fact =
            |(name, value): &(&str, &str)| Fact { name: (*name).to_owned(), value: (*value).to_owned() };
        let description = Description {
            facts: facts.iter().map(fact).collect(),
            uncontrolled: uncontrolled.iter().map(|sentence| (*sentence).to_owned()).collect(),
        };
        let name = |row: &Vec<Cell>| match &row[0] {
            Cell::Text(name) => name.clone(),
            other => panic!("{other:?}"),
        };
        let tables = blocks(&description).into_iter().map(|block| match block {
            Block::Table(table) => (table.title().to_owned(), table.rows().iter().map(name).collect()),
            other => panic!("{other:?}"),
        });
        tables.collect()
    }

    #[test]
    fn what_is_unusual_or_not_known_is_shown_and_the_rest_is_folded() {
        let usual = [
            ("cpu", "a processor"),
            ("aslr", "on (2)"),
            ("stolen time", "the hypervisor took 0.31 % of the time"),
            ("governor", "not reported"),
            ("noise before", "processor 0: much"),
        ];
        let expected = [
            ("What it is", vec!["cpu"]),
            ("Other facts, none unusual", vec!["aslr", "stolen time", "governor", "noise before"]),
        ];
        let expected =
            expected.map(|(title, names)| (title.to_owned(), names.into_iter().map(str::to_owned).collect()));
        assert_eq!(names(&usual, &[]), expected);
        for unusual in [
            ("aslr", "off (0)"),
            ("aslr", "not reported"),
            ("stolen time", "the hypervisor took 1 % of the time"),
            ("stolen time", "never seen"),
            ("governor", "powersave"),
            ("weather", "fine"),
        ] {
            assert_eq!(names(&[unusual], &[]), [("What it is".to_owned(), vec![unusual.0.to_owned()])]);
        }
        let sentence = "A control group limits the processor time.";
        assert_eq!(
            names(&[], &[sentence]),
            [("What could not be controlled".to_owned(), vec![sentence.to_owned()])]
        );
    }

    #[test]
    fn every_name_is_one_that_machines_have() {
        let mut names: Vec<&str> = USUAL.iter().map(|(name, _)| *name).collect();
        let machine = assay_bench::describe(&assay_bench::calibrate(), &std::env::temp_dir());
        let is_known =
            |name: &str| machine.facts.iter().any(|fact| fact.name == name) || Aspect::named(name).is_some();
        names.retain(|name| !is_known(name));
        assert_eq!(names, ["noise before", "noise after"]);
    }
}
