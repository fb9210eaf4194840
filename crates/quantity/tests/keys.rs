//! The keys of ids as documented in `docs/formats.md`.

use assay_quantity::Kind;
use assay_quantity::primitive::KEYS;

#[test]
fn the_documentation_has_every_key_with_its_values_in_the_order_of_writing() {
    let documentation = include_str!("../../../docs/formats.md");
    let rows = KEYS.map(|row| {
        let values = match row.kind {
            Kind::Bytes => "a number of bytes".to_owned(),
            Kind::Count => "a number".to_owned(),
            Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        };
        format!("| `{}` | {values} | {} |", row.name, row.about)
    });
    let table = rows.join("\n");
    assert!(documentation.contains(&table), "docs/formats.md should hold\n{table}");
}
