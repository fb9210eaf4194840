//! The layers of the workspace: the allowed dependencies between crates and between files, and the crates
//! without side effects.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod floors;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::floors::FLOORS;

/// Each crate, and the crates of the workspace that it may depend on. A new crate needs a new row.
const LAYERS: [(&str, &[&str]); 17] = [
    ("assay-quantity", &[]),
    ("assay-statistics", &["assay-quantity"]),
    ("assay-process", &[]),
    ("assay-bench", &["assay-process", "assay-quantity", "assay-statistics"]),
    ("assay-trace", &["assay-quantity"]),
    ("assay-trace-probe", &["assay-process", "assay-trace"]),
    ("assay-workload", &["assay-process", "assay-quantity"]),
    ("assay-model", &["assay-quantity"]),
    ("assay-store", &["assay-quantity"]),
    ("assay-report", &["assay-quantity"]),
    ("assay-guest", &["assay-process"]),
    ("assay-sim", &[]),
    ("assay-sim-plugin", &["assay-sim"]),
    ("assay-reflect", &["assay-process", "assay-quantity", "assay-statistics"]),
    ("assay-database", &["assay-process", "assay-quantity", "assay-reflect"]),
    ("assay-proxy", &["assay-process", "assay-reflect"]),
    (
        "assay",
        &[
            "assay-bench",
            "assay-database",
            "assay-guest",
            "assay-model",
            "assay-process",
            "assay-proxy",
            "assay-quantity",
            "assay-reflect",
            "assay-report",
            "assay-sim",
            "assay-statistics",
            "assay-store",
            "assay-trace",
            "assay-trace-probe",
            "assay-workload",
        ],
    ),
];

/// Crates that only compute, but for [`IMPURE_FILES`].
const PURE: [&str; 7] = ["quantity", "statistics", "model", "report", "sim", "reflect", "proxy"];

/// What observes the machine, or uses its network, in a crate that otherwise only computes.
const IMPURE_FILES: [&str; 8] = [
    "proxy/src/relay.rs",
    "proxy/src/relay/",
    "reflect/src/facility.rs",
    "reflect/src/facility/",
    "reflect/src/gate.rs",
    "reflect/src/placement/live.rs",
    "reflect/src/placement/live/",
    "reflect/src/progress.rs",
];

/// Names that a pure crate must not contain.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "rand::rng()",
    "thread_rng",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns each package of the workspace with its dependencies in the workspace, without those for tests
/// only.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of_package = |package: &serde_json::Value| {
        let ours = package["dependencies"].as_array().unwrap().iter();
        let ours = ours.filter(|dependency| dependency["kind"].is_null());
        ours.map(|dependency| text(&dependency["name"])).filter(|name| name.starts_with("assay")).collect()
    };
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(|package| (text(&package["name"]), of_package(package))).collect()
}

#[test]
fn every_part_depends_only_on_what_its_row_allows() {
    let dependencies = dependencies();
    let parts: Vec<&str> = LAYERS.iter().map(|(part, _)| *part).collect();
    for part in dependencies.keys() {
        assert!(parts.contains(&part.as_str()), "{part} has no row in LAYERS");
    }
    for (part, allowed) in LAYERS {
        let found = dependencies.get(part).unwrap_or_else(|| panic!("{part} does not exist"));
        for dependency in found {
            assert!(allowed.contains(&dependency.as_str()), "{part} must not depend on {dependency}");
        }
    }
}

#[test]
fn pure_parts_name_no_clock_file_network_environment_or_random_source() {
    for part in PURE {
        for file in sources(&root().join("crates").join(part).join("src")) {
            if IMPURE_FILES.iter().any(|impure| file.to_string_lossy().contains(impure)) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for impure in IMPURE {
                assert!(!text.contains(impure), "{} names {impure}", file.display());
            }
        }
    }
}

#[test]
fn the_architecture_page_has_a_row_for_every_part_and_floor() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let parts = LAYERS.iter().map(|(part, _)| part.strip_prefix("assay-").unwrap_or(part).to_owned());
    for name in parts.chain(FLOORS.iter().map(|floor| floor.replace("::", "/"))) {
        assert!(page.contains(&format!("| `{name}` |")), "ARCHITECTURE.md has no row for {name}");
    }
}

#[test]
fn every_source_file_that_the_pages_for_contributors_name_exists() {
    for (page, names_at_least) in [("ARCHITECTURE.md", 40), ("CONTRIBUTING.md", 10)] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let is_source = |name: &&str| name.contains("/src/") || name.starts_with("crates/");
        let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_source).collect();
        assert!(named.len() >= names_at_least, "{page}: {named:?}");
        for name in named {
            let path = format!("crates/{}", name.trim_start_matches("crates/"));
            assert!(root().join(path).exists(), "{page} names {name}, which does not exist");
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
