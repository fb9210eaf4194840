//! Tests of house rules, to save comments in reviews.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Maximum number of lines of a file.
const LINES: usize = 600;

/// Extensions of source files, and the directory of scripts without an extension.
const SOURCES: [&str; 7] = ["rs", "c", "h", "awk", "css", "py", "js"];
const SCRIPTS: &str = "scripts/";

/// Forbidden text in two halves, so that this file does not contain it; the ending of the files in which it
/// is forbidden; and the reason.
const FORBIDDEN: [(&str, &str, &str, &str); 10] = [
    ("TO", "DO", "", "finish it, or write an issue"),
    ("FIX", "ME", "", "mend it, or write an issue"),
    ("todo", "!(", ".rs", "finish it"),
    ("dbg", "!(", ".rs", "a trace of debugging"),
    ("#[ig", "nore", ".rs", "a test that is not run is not a test"),
    ("#[all", "ow(", ".rs", "write #[expect(lint, reason)]"),
    ("/ro", "ot/", "", "a path of one machine"),
    ("/wo", "rk/", "", "a path of one machine"),
    ("deb.deb", "ian.org", "", "an address of a package server"),
    ("static.crates", ".io", "", "an address of a package server"),
];

/// Crates that may contain `unsafe`; a lint requires a `SAFETY:` line for each block.
const UNSAFE: [&str; 5] = ["bench", "process", "reflect", "sim-plugin", "trace-probe"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files that git tracks or would track, with their text; files that are not text are skipped.
fn files() -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let files: Vec<_> = names
        .lines()
        .filter_map(|name| Some((name.to_owned(), fs::read_to_string(root().join(name)).ok()?)))
        .collect();
    assert!(files.len() > 30, "git lists only {} files", files.len());
    files
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.ends_with(&format!(".{extension}"))
}

#[test]
fn no_file_contains_forbidden_text() {
    for (name, text) in files().iter().filter(|(name, _)| name != "Cargo.lock") {
        for (front, back, ending, why) in FORBIDDEN {
            let forbidden = format!("{front}{back}");
            if name.ends_with(ending) {
                assert!(!text.contains(&forbidden), "{name} contains '{forbidden}': {why}");
            }
        }
    }
}

#[test]
fn no_source_file_is_too_long() {
    for (name, text) in files() {
        let is_source = SOURCES.iter().any(|extension| has_extension(&name, extension));
        if is_source || name.starts_with(SCRIPTS) {
            let lines = text.lines().count();
            assert!(lines <= LINES, "{name} has {lines} lines; split it");
        }
    }
}

#[test]
fn lines_end_in_no_blanks_and_files_in_one_newline() {
    for (name, text) in files() {
        if has_extension(&name, "snap") || name == "LICENSE-APACHE" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let golden = name.contains("/golden/");
            assert!(golden || line == line.trim_end(), "{name}:{}: blanks at the end", number + 1);
        }
        assert!(text.is_empty() || text.ends_with('\n'), "{name} does not end in a newline");
        assert!(!text.ends_with("\n\n"), "{name} ends in empty lines");
    }
}

#[test]
fn unsafe_is_only_in_crates_that_the_architecture_allows() {
    for (name, text) in files() {
        let Some(part) = name.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/src/lib.rs"))
        else {
            continue;
        };
        let forbids = text.contains("#![forbid(unsafe_code)]");
        assert_ne!(forbids, UNSAFE.contains(&part), "{part}: 'forbid(unsafe_code)' contradicts UNSAFE");
    }
}

#[test]
fn every_module_begins_with_a_doc_comment() {
    for (name, text) in files() {
        if has_extension(&name, "rs") {
            assert!(text.starts_with("//!"), "{name} does not begin with a doc comment");
        }
    }
}

#[test]
fn comments_and_markdown_wrap() {
    for (name, text) in files() {
        // Comments wrap at the width of the code (`max_width` in rustfmt.toml).
        let (beginning, width) = match name.rsplit_once('.') {
            Some((_, "rs" | "js")) => ("//", 110),
            Some((_, "py")) => ("#", 110),
            Some((_, "md")) => ("", 120),
            _ => continue,
        };
        for (number, line) in text.lines().enumerate() {
            // Rows of tables and code in Markdown cannot be wrapped.
            let is_code = beginning.is_empty() && line.starts_with("    ");
            let wraps = line.trim_start().starts_with(beginning) && !line.ends_with('|') && !is_code;
            let is_too_wide = wraps && line.chars().count() > width;
            assert!(!is_too_wide, "{name}:{}: the line has more than {width} columns", number + 1);
        }
    }
}

/// Files of the program that write to stdout or stderr; see invariant 8 in ARCHITECTURE.md.
const PRINTING: [(&str, &str); 4] = [
    ("crates/assay/src/output.rs", "all that users read"),
    ("crates/assay/src/cmd/sample.rs", "a sample, for the process that started this one"),
    ("crates/assay/src/progress.rs", "bars, by a library"),
    ("crates/sim-plugin/src/lib.rs", "why the plugin cannot be loaded, for QEMU, which has no other way"),
];

/// Names of the streams and of the macros and types that write to them.
const STREAMS: [&str; 7] =
    ["println!(", "print!(", "eprintln!(", "eprint!(", "io::stdout()", "io::stderr()", "ProgressBar::"];

#[test]
fn the_program_prints_in_the_files_that_the_architecture_names() {
    let prints = |text: &str| {
        let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        // Duplicating a descriptor does not write to it.
        code.any(|line| STREAMS.iter().any(|stream| line.contains(stream)) && !line.contains("dup("))
    };
    let is_program = |name: &str| {
        name.starts_with("crates/")
            && name.contains("/src/")
            && has_extension(name, "rs")
            && !name.contains("/tests")
    };
    let mut printing: Vec<String> = files()
        .into_iter()
        .filter(|(name, text)| is_program(name) && prints(text.split("#[cfg(test)]").next().unwrap()))
        .map(|(name, _)| name)
        .collect();
    printing.sort();
    let mut expected = PRINTING.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(printing, expected);
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for name in expected {
        assert!(page.contains(name.strip_prefix("crates/").unwrap()), "ARCHITECTURE.md does not name {name}");
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let table = table.split("\n[").next().unwrap();
    let users: String = files()
        .into_iter()
        .filter(|(name, _)| name.starts_with("crates/") && name.ends_with("Cargo.toml"))
        .map(|(_, text)| text)
        .collect();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with("assay-")) {
        let name = line.split(' ').next().unwrap();
        assert!(line.contains(" # "), "{name} has no comment with its reason");
        assert!(users.contains(&format!("\n{name}.workspace")), "{name} is used by no crate");
    }
}

#[test]
fn every_page_of_the_documentation_is_linked_from_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (name, _) in files() {
        if name.starts_with("docs/") && has_extension(&name, "md") {
            assert!(readme.contains(&name), "README.md does not link to {name}");
        }
    }
}

#[test]
fn the_changelog_begins_with_the_current_version() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let first = changelog.lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(first.starts_with(&format!("## {version}")), "CHANGELOG.md begins with '{first}'");
}
