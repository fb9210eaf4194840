//! Plan files: which primitives to measure and how precisely, stored with the measured project.
//!
//! The command line takes precedence over the file, so that one plan serves many runs.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::cli::{BenchArgs, budget, share};
use crate::journal::read;

/// Contents of the file: TOML with optional entries, named as on the command line.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    #[serde(default)]
    primitives: Vec<String>,
    profile: Option<ProfileName>,
    precision: Option<String>,
    budget: Option<String>,
    seed: Option<u64>,
    copies: Option<u64>,
    #[serde(default)]
    free: bool,
    #[serde(default)]
    cold: bool,
    #[serde(default)]
    counters: bool,
    #[serde(default)]
    strict: bool,
    tolerance: Option<String>,
    peer: Option<std::net::SocketAddr>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProfileName {
    Quick,
    Full,
}

impl PlanFile {
    /// Reads the file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&read(path)?).with_context(|| format!("{} is not a valid plan file", path.display()))
    }

    /// Parses the file's text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let plan: PlanFile = toml::from_str(text)?;
        let texts =
            [("precision", &plan.precision), ("budget", &plan.budget), ("tolerance", &plan.tolerance)];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            let checked = if name == "budget" { budget(text).map(drop) } else { share(text).map(drop) };
            checked.map_err(|problem| anyhow::anyhow!("{name} is '{text}': {problem}"))?;
        }
        ensure!(
            plan.copies.is_none_or(|copies| (1..=1024).contains(&copies)),
            "copies must be between 1 and 1024"
        );
        ensure!(
            !plan.free || plan.copies.is_some_and(|copies| copies > 1),
            "free placement requires at least two copies; give their number with 'copies'"
        );
        Ok(plan)
    }

    /// Returns the command line, completed with the options of the plan.
    pub fn complete(self, args: &BenchArgs) -> BenchArgs {
        let mut whole = args.clone();
        if whole.primitives.is_empty() {
            whole.primitives = self.primitives;
        }
        let full = self.profile == Some(ProfileName::Full);
        whole.full |= full && !whole.quick;
        let effort = &mut whole.effort;
        effort.precision = effort.precision.or_else(|| share(self.precision.as_deref()?).ok());
        effort.budget = effort.budget.or_else(|| budget(self.budget.as_deref()?).ok());
        effort.seed = effort.seed.or(self.seed);
        whole.free |= self.free && whole.copies.is_none();
        whole.copies = whole.copies.or(self.copies);
        whole.cold |= self.cold;
        whole.counters |= self.counters;
        whole.strict |= self.strict;
        whole.tolerance = whole.tolerance.or_else(|| share(self.tolerance.as_deref()?).ok());
        whole.peer = whole.peer.or(self.peer);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use proptest::prelude::*;
    use std::time::Duration;

    fn args(words: &[&str]) -> BenchArgs {
        match Cli::try_parse_from([&["assay", "bench"], words].concat()).unwrap().command {
            Command::Bench(args) => args,
            other => panic!("{other:?}"),
        }
    }

    const TEXT: &str =
        "primitives = ['tcp', 'file.read']\nprofile = 'full'\nprecision = '2%'\nbudget = '3m'\ncopies = 4\n";

    #[test]
    fn a_plan_completes_the_command_line() {
        let whole = PlanFile::parse(TEXT).unwrap().complete(&args(&[]));
        assert_eq!(whole.primitives, ["tcp", "file.read"]);
        assert!(whole.full);
        assert_eq!(whole.effort.budget, Some(Duration::from_secs(180)));
        assert_eq!((whole.effort.precision, whole.copies), (Some(0.02), Some(4)));
    }

    #[test]
    fn the_command_line_takes_precedence() {
        let whole =
            PlanFile::parse(TEXT).unwrap().complete(&args(&["udp", "--quick", "--budget", "9s", "-P", "2"]));
        assert_eq!(whole.primitives, ["udp"]);
        assert!(!whole.full);
        assert_eq!((whole.effort.budget, whole.copies), (Some(Duration::from_secs(9)), Some(2)));
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_is_rejected_with_a_reason(
            lines in prop::collection::vec("(primitives|budget|copies|free|profile|x) ?= ?[\\[\\]'a-z0-9%, ]{0,12}", 0..4)
        ) {
            if let Err(refusal) = PlanFile::parse(&lines.join("\n")) {
                let reason = format!("{refusal:#}");
                prop_assert!(!reason.is_empty());
            }
        }
    }

    #[test]
    fn an_invalid_plan_is_rejected_with_the_reason() {
        let complaint = |text: &str| format!("{:#}", PlanFile::parse(text).unwrap_err());
        assert!(complaint("colour = 1").contains("colour"));
        assert!(complaint("budget = 'long'").contains("budget is 'long': give a time"));
        assert!(complaint("precision = '0'").contains("precision is '0': give a share"));
        assert!(complaint("tolerance = '2'").contains("tolerance is '2': give a share"));
        assert!(complaint("copies = 0").contains("between 1 and 1024"));
        assert!(complaint("free = true").contains("at least two copies"));
    }
}
