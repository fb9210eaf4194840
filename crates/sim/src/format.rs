//! Files with a version: `{"format": VERSION, "content": CONTENT}`, as JSON.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::profile::Contradiction;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FormatError {
    /// It is not JSON, or has another content.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// It has another version.
    #[error("its format is '{found}', but '{expected}' is required; if the file is newer, update assay")]
    Version {
        /// The one in the file.
        found: String,
        /// The one that is read.
        expected: &'static str,
    },
    /// Its numbers cannot be right.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<F, C> {
    format: F,
    content: C,
}

/// What a file of any version has.
#[derive(Deserialize)]
struct Version {
    format: String,
}

/// Writes a file in one line.
pub fn write(format: &'static str, content: &impl Serialize) -> String {
    serde_json::to_string(&File { format, content }).expect("our types have a form in JSON") + "\n"
}

/// Reads a file, its version before its content.
pub fn read<T: DeserializeOwned>(text: &str, expected: &'static str) -> Result<T, FormatError> {
    let Version { format: found } = serde_json::from_str(text)?;
    if found != expected {
        return Err(FormatError::Version { found, expected });
    }
    Ok(serde_json::from_str::<File<IgnoredAny, T>>(text)?.content)
}
