//! The tables of `docs/primitives.md`, made from the rows. A line `<!-- primitives of file/sync -->` on that
//! page stands before the table of one or several files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use assay_quantity::{Pattern, PrimitiveId};

use super::topology::Topology;
use super::{FILES, example, on_machine};
use crate::benchmark::{Profile, Row};

const BEFORE_FILES: &str = "<!-- primitives of ";
const AFTER_FILES: &str = " -->";
const HEAD: [&str; 2] = ["| primitive | quick | unit | one operation |", "|---|---|---|---|"];

/// Returns the files that a line names.
fn files_of(line: &str) -> Option<Vec<&str>> {
    let names = line.strip_prefix(BEFORE_FILES)?.strip_suffix(AFTER_FILES)?;
    Some(names.split(", ").collect())
}

/// Returns a page with the table below each line that names files.
fn page(old: &str) -> String {
    let mut new = Vec::new();
    let mut lines = old.lines().peekable();
    while let Some(line) = lines.next() {
        new.push(line.to_owned());
        let Some(names) = files_of(line) else { continue };
        while lines.next_if(|line| line.starts_with('|')).is_some() {}
        new.extend(HEAD.map(str::to_owned));
        new.extend(names.into_iter().flat_map(rows_of).map(table_row));
    }
    new.join("\n") + "\n"
}

fn rows_of(name: &str) -> &'static [Row] {
    let file = FILES.iter().find(|file| file.name == name);
    file.unwrap_or_else(|| panic!("docs/primitives.md names the file {name}, which has no rows")).rows
}

fn table_row(row: &Row) -> String {
    let all = on_machine(row, &Topology::example());
    let quick = match all.iter().filter(|benchmark| benchmark.profile == Profile::Quick).count() {
        0 => "none".to_owned(),
        number if number == all.len() => "all".to_owned(),
        number => format!("{number} of {}", all.len()),
    };
    assert!(!row.about.contains('|'), "a table cannot contain: {}", row.about);
    let patterns = shown(row).iter().map(cell).collect::<Vec<_>>().join("<br>");
    format!("| {patterns} | {quick} | {} | {} |", all[0].unit.symbol(), row.about)
}

/// Returns the patterns of a row without those whose ids are a part of another one's. (No two have the same
/// ids, which a test of the catalogue excludes.)
fn shown(row: &Row) -> Vec<Pattern> {
    let patterns = [row.quick, row.full].concat();
    let all: Vec<Pattern> = patterns.into_iter().flat_map(example).collect();
    let ids = |pattern: &Pattern| pattern.ids().into_iter().collect::<BTreeSet<PrimitiveId>>();
    let is_part = |one: &&Pattern| all.iter().any(|other| other != *one && ids(other).is_superset(&ids(one)));
    all.iter().filter(|pattern| !is_part(pattern)).cloned().collect()
}

/// Returns up to two ids, or the first one and the alternatives of each key.
fn cell(pattern: &Pattern) -> String {
    let ids: Vec<String> = pattern.ids().iter().map(|id| format!("`{id}`")).collect();
    if ids.len() <= 2 {
        return ids.join(", ");
    }
    let several = pattern.keys().iter().filter(|(_, values)| values.len() > 1).map(|(key, values)| {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("; {} {}", key.row().name, values.join(", "))
    });
    ids[0].clone() + &several.collect::<String>()
}

#[test]
fn the_tables_are_those_of_the_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/primitives.md");
    let old = fs::read_to_string(path).unwrap();
    let new = page(&old);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return fs::write(path, new).unwrap();
    }
    let added = new.lines().find(|line| !old.lines().any(|old| old == *line));
    assert!(
        new == old,
        "docs/primitives.md is outdated; 'UPDATE_EXPECT=1 cargo test -p assay-bench --lib catalogue' writes \
         it; the first new line: {added:#?}"
    );
}

#[test]
fn every_file_has_its_rows_in_one_table() {
    let page = include_str!("../../../../docs/primitives.md");
    let named: Vec<&str> = page.lines().filter_map(files_of).flatten().collect();
    for file in FILES {
        let times = named.iter().filter(|name| **name == file.name).count();
        assert_eq!(
            times, 1,
            "one marker on docs/primitives.md should contain {}: {BEFORE_FILES}FILE, FILE{AFTER_FILES}",
            file.name
        );
    }
}

#[test]
fn every_file_with_rows_is_in_the_catalogue() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/primitive");
    let inside = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut with_rows = BTreeSet::new();
    for directory in inside(&folder).filter(|path| path.is_dir()) {
        for path in inside(&directory) {
            let source = if path.is_dir() { path.join("mod.rs") } else { path.clone() };
            if fs::read_to_string(source).is_ok_and(|text| text.contains("const ROWS: &[Row]")) {
                with_rows.insert(format!("{}/{}", name(&directory), name(&path)));
            }
        }
    }
    let listed = FILES.iter().map(|file| file.name.to_owned()).collect();
    let missing: Vec<&String> = with_rows.difference(&listed).collect();
    assert!(missing.is_empty(), "add to FILES and to the mod.rs of the directory: {missing:?}");
    assert_eq!(with_rows, listed);
}

#[test]
fn a_line_has_the_patterns_of_a_row_without_parts_of_others() {
    let row = |quick, full| table_row(&Row { quick, full, ..FILES[0].rows[0] });
    let about = FILES[0].rows[0].about;
    assert_eq!(row(&["cpu.cycle"], &[]), format!("| `cpu.cycle` | all | ns | {about} |"));
    assert_eq!(
        row(&["cpu.add{type=int64|float64}"], &[]),
        format!("| `cpu.add{{type=int64}}`, `cpu.add{{type=float64}}` | all | ns | {about} |")
    );
    assert_eq!(
        row(&["cpu.add{type=int64}", "cpu.cycle"], &["cpu.add{type=*}"]),
        format!(
            "| `cpu.cycle`<br>`cpu.add{{type=int32}}`; type int32, int64, float32, float64 | 2 of 5 | ns | {about} |"
        )
    );
}
