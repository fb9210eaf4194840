//! How `scripts/setup` handles the installed Rust, and which Rust builds this. Nothing is installed: neither
//! apt-get nor curl is in the script's PATH.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Tools that the script uses before it installs anything.
const TOOLS: [&str; 9] = ["sh", "dirname", "sed", "id", "dpkg-query", "grep", "cut", "sort", "head"];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn toml(file: &str) -> toml::Table {
    fs::read_to_string(repository().join(file)).unwrap().parse().unwrap()
}

/// Returns the oldest Rust that builds this, and the one that rustup installs.
fn oldest_and_pinned() -> [String; 2] {
    let oldest = &toml("Cargo.toml")["workspace"]["package"]["rust-version"];
    let pinned = &toml("rust-toolchain.toml")["toolchain"]["channel"];
    [oldest, pinned].map(|version| version.as_str().unwrap().to_owned())
}

/// Runs the script with only these programs, each a name and a shell script, and returns its stderr and exit
/// code.
fn setup(what: &str, programs: &[(&str, &str)]) -> (String, Option<i32>) {
    let directory = TempDir::new().unwrap();
    for tool in TOOLS.into_iter().filter(|tool| !programs.iter().any(|(name, _)| name == tool)) {
        let path = std::env::var("PATH").unwrap();
        let found =
            path.split(':').map(|directory| PathBuf::from(directory).join(tool)).find(|path| path.exists());
        symlink(found.unwrap(), directory.path().join(tool)).unwrap();
    }
    for (name, script) in programs {
        let program = directory.path().join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(repository().join("scripts/setup"));
    let output =
        command.arg(what).env_clear().env("PATH", directory.path()).env("HOME", directory.path()).output();
    let output = output.unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// Asserts that the script fails with this first line, and that its last line ends like this.
fn refuses(what: &str, programs: &[(&str, &str)], first: &str, last: &str) {
    let (said, code) = setup(what, programs);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.lines().next(), Some(format!("scripts/setup: {first}").as_str()));
    let said = said.lines().last().unwrap();
    assert!(said.starts_with("scripts/setup: ") && said.ends_with(last), "{said}");
}

#[test]
fn a_missing_or_old_cargo_is_named_before_anything_is_installed() {
    let [oldest, pinned] = oldest_and_pinned();
    let then = format!("; installing Rust {pinned} with rustup");
    let is_root = rustix::process::geteuid().is_root();
    let last = if is_root { "check the machine's package sources" } else { "apt-get install curl" };
    refuses("run", &[], &format!("cargo is missing{then}"), last);
    let old = ("cargo", "echo cargo 1.85.1 '(d73d2caf9 2024-12-31)'");
    refuses("run", &[old], &format!("cargo is 1.85.1, older than {oldest}{then}"), last);
    let no_clippy = ("cargo", "[ $1 != clippy ] && echo cargo 1.96.1");
    assert_eq!(setup("run", &[no_clippy]), (String::new(), Some(0)));
    refuses("test", &[no_clippy, ("node", ""), ("npm", "")], &format!("cargo clippy is missing{then}"), last);
}

#[test]
fn a_toolchain_that_rustup_cannot_install_is_an_error() {
    let [oldest, pinned] = oldest_and_pinned();
    let then = format!("; installing Rust {pinned} with rustup");
    let cargo = ("cargo", "echo cargo 1.80.0");
    let empty = ("rustup", "[ $2 = list ] && echo stable-x86_64-unknown-linux-gnu");
    let last = format!("rustup cannot install Rust {pinned}; see its message above");
    refuses("run", &[cargo, empty], &format!("rustup has no Rust {pinned}{then}"), &last);
    // rustup has it, but another cargo is found first.
    let full = format!("[ $2 = install ] || echo {pinned}-x86_64-unknown-linux-gnu");
    let first = format!("cargo is 1.80.0, older than {oldest}{then}");
    let last = "/cargo); remove that, or put rustup's cargo before it in PATH";
    refuses("run", &[cargo, ("rustup", &full)], &first, last);
}

#[test]
fn platforms_that_cannot_be_downloaded_are_an_error_that_says_why() {
    let [_, pinned] = oldest_and_pinned();
    let cargo = format!("echo cargo {pinned}");
    let rustup = format!("echo {pinned}-x86_64-unknown-linux-gnu");
    let mut programs = vec![
        ("cargo", cargo.as_str()),
        ("rustup", rustup.as_str()),
        ("uname", "echo riscv64"),
        ("dpkg-query", "echo installed"),
    ];
    let refused = |programs: &[_], message: &str| {
        let (said, code) = setup("simulate", programs);
        assert_eq!(said.lines().last(), Some(format!("scripts/platforms: {message}").as_str()), "{said}");
        assert_eq!(code, Some(1));
    };
    refused(&programs, "guests are x86-64 machines; on riscv64, 'assay sim' is not available");

    programs[2].1 = "echo x86_64";
    for name in ["mkdir", "flock", "rm", "cat", "tail", "awk"] {
        programs.push((name, "PATH=/usr/bin:/bin exec ${0##*/} \"$@\""));
    }
    let offline = ". /etc/os-release; case $* in
        indextargets*) echo \"$VERSION_CODENAME|stable|Debian|file:/none\" ;;
        *) echo 'W: no index' >&2; echo 'E: no network' >&2; exit 1 ;;
        esac";
    programs.push(("apt-get", offline));
    refused(&programs, "apt-get update failed: E: no network");
    programs.last_mut().unwrap().1 = "echo 'another|another|Debian|file:/none'";
    let codename = Command::new("sh").args(["-c", ". /etc/os-release; printf $VERSION_CODENAME"]).output();
    let codename = String::from_utf8(codename.unwrap().stdout).unwrap();
    refused(
        &programs,
        &format!("the package sources have no entry for Debian {codename}; add one, or run apt-get update"),
    );
}

#[test]
fn drivers_that_cannot_be_installed_are_an_error_also_the_next_time() {
    let copy = TempDir::new().unwrap();
    let versions = Path::new("crates/assay/tests/guard/driver");
    fs::create_dir_all(copy.path().join(versions)).unwrap();
    for name in ["package.json", "package-lock.json", "requirements.txt"].map(|name| versions.join(name)) {
        fs::copy(repository().join(&name), copy.path().join(&name)).unwrap();
    }
    let script = copy.path().join("scripts/drivers");
    fs::create_dir(script.parent().unwrap()).unwrap();
    fs::copy(repository().join("scripts/drivers"), &script).unwrap();
    let npm = copy.path().join("npm");
    fs::write(&npm, "#!/bin/sh\necho 'npm error: no network' >&2; exit 1\n").unwrap();
    fs::set_permissions(npm, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", copy.path().display());
    for _ in 0..2 {
        let output = Command::new(&script).env("PATH", &path).output().unwrap();
        let expected = "scripts/drivers: installing drivers of PostgreSQL into target/drivers\n\
                        npm error: no network\n\
                        scripts/drivers: npm cannot install pg; see its message above\n";
        assert_eq!(
            (String::from_utf8(output.stderr).unwrap().as_str(), output.status.code()),
            (expected, Some(1))
        );
    }
}

/// Parses the numbers of a version, for comparison.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn the_oldest_rust_is_the_one_that_the_dependencies_need() {
    let [oldest, pinned] = oldest_and_pinned();
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform", &platform]);
    let output = command.current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // External packages have a source.
    let dependencies = packages.iter().filter(|package| package["source"].is_string());
    let needs = dependencies.filter_map(|package| package["rust_version"].as_str().map(version));
    let needed = needs.max().unwrap();
    assert_eq!(version(&oldest), needed[..2], "rust-version in Cargo.toml");
    assert!(version(&pinned) > needed, "{pinned}");
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(
        readme.contains(&format!("any Rust from {oldest}")),
        "README.md names another Rust than {oldest}"
    );
    assert!(readme.contains(&format!("with Rust {}", pinned.trim_end_matches(".0"))), "nor {pinned}");
}
