//! Reads a workload file (`docs/workload.md`) and rejects every error: an unknown or missing key, a value out
//! of range, a reference to an undefined name. Every error contains the file and the line. Accesses no other
//! file and starts no program.

mod format;
mod operation;

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Component, Path};
use std::time::Duration;
use std::{fs, io};

use assay_process::StopRequest;
use rustix::process::Signal;
use thiserror::Error;
use toml::Spanned;

use crate::placement::Placement;
use crate::workload::{
    CommandProgram, Content, Operation, Program, Ready, ReadySign, ScratchFile, ServerProgram, Workload,
};

/// A workload file could not be read or is invalid.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The file could not be read.
    #[error("cannot read workload file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Its text is invalid.
    #[error("{origin}:{line}: {problem}; see docs/workload.md")]
    Invalid {
        /// Name of the file, as specified.
        origin: String,
        /// Line of the problem, counted from 1.
        line: usize,
        /// Description of the problem.
        problem: String,
    },
}

impl Workload {
    /// Reads the workload file at `path`.
    pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
        let origin = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Workload::parse(&text, &origin),
            Err(source) => Err(WorkloadError::Read { path: origin, source }),
        }
    }

    /// Parses the text of a workload file; errors refer to it as `origin`.
    pub fn parse(text: &str, origin: &str) -> Result<Workload, WorkloadError> {
        let read = toml::from_str::<format::Workload>(text)
            .map_err(|error| Problem {
                span: error.span().unwrap_or(0..0),
                text: error.message().lines().collect::<Vec<_>>().join(" "),
            })
            .and_then(workload);
        read.map_err(|problem| {
            let line = 1 + text.bytes().take(problem.span.start).filter(|&byte| byte == b'\n').count();
            WorkloadError::Invalid { origin: origin.to_owned(), line, problem: problem.text }
        })
    }
}

/// A problem and its position in the text.
#[derive(Debug)]
struct Problem {
    span: Range<usize>,
    text: String,
}

fn problem<T>(at: &Spanned<T>, text: impl Into<String>) -> Problem {
    Problem { span: at.span(), text: text.into() }
}

fn workload(file: format::Workload) -> Result<Workload, Problem> {
    if file.name.get_ref().is_empty() {
        return Err(problem(&file.name, "the name of a workload is empty"));
    }
    let format::Workload {
        name,
        about,
        packages,
        server_cpus,
        client_cpus,
        server,
        command,
        file,
        operation,
    } = file;
    let program = match (server, command) {
        (Some(server), None) => {
            let placements = [server_cpus, client_cpus].map(Option::unwrap_or_default);
            Program::Server(Box::new(server_program(server, file, operation, placements)?))
        }
        (None, Some(command)) => {
            if let Some(operation) = operation.first() {
                return Err(problem(
                    &operation.name,
                    "a [command] cannot have an [[operation]]: its unit is one run",
                ));
            }
            if let Some(file) = file.first() {
                return Err(problem(
                    &file.path,
                    "a [command] cannot have a [[file]]: it runs in the caller's directory",
                ));
            }
            if server_cpus.is_some() || client_cpus.is_some() {
                return Err(problem(&name, "a [command] cannot have server_cpus or client_cpus"));
            }
            Program::Command(CommandProgram { command: words(command.run)? })
        }
        _ => return Err(problem(&name, "a workload needs either [server] or [command]")),
    };
    Ok(Workload { name: name.into_inner(), about, packages, program })
}

fn server_program(
    server: format::Server,
    files: Vec<format::File>,
    operations: Vec<format::Operation>,
    [server_cpus, client_cpus]: [format::Cpus; 2],
) -> Result<ServerProgram, Problem> {
    if operations.is_empty() {
        return Err(problem(&server.command, "a [server] needs at least one [[operation]]"));
    }
    let files = scratch_files(files)?;
    let mut checked: Vec<Operation> = Vec::with_capacity(operations.len());
    for operation in operations {
        if checked.iter().any(|other| other.name == *operation.name.get_ref()) {
            let name = operation.name.get_ref();
            return Err(problem(&operation.name, format!("there are two operations named '{name}'")));
        }
        checked.push(operation::operation(operation, &files)?);
    }
    let concurrency = match server.concurrency {
        Some(count) => Some(positive(&count, "concurrency")?),
        None => None,
    };
    Ok(ServerProgram {
        command: words(server.command)?,
        environment: server.environment.into_iter().collect(),
        user: server.user,
        prepare: server.prepare.into_iter().map(words).collect::<Result<_, _>>()?,
        files,
        port: server.port,
        ready: ready(server.ready)?,
        populate: server.populate.into_iter().map(words).collect::<Result<_, _>>()?,
        stop: StopRequest {
            signal: signal(&server.stop.signal)?,
            grace: seconds(&server.stop.grace_s, "grace_s")?,
        },
        concurrency,
        server_cpus: placement(server_cpus),
        client_cpus: placement(client_cpus),
        operations: checked,
    })
}

fn ready(ready: Spanned<format::Ready>) -> Result<Ready, Problem> {
    let at = ready.span();
    let format::Ready { path, run, timeout_s } = ready.into_inner();
    let sign = match (path, run) {
        (None, None) => ReadySign::Connection,
        (Some(path), None) => ReadySign::Page(url_path(path)?),
        (None, Some(command)) => ReadySign::Command(words(command)?),
        (Some(_), Some(_)) => {
            return Err(Problem { span: at, text: "ready takes either path or run, not both".to_owned() });
        }
    };
    Ok(Ready { sign, timeout: seconds(&timeout_s, "timeout_s")? })
}

fn scratch_files(files: Vec<format::File>) -> Result<Vec<ScratchFile>, Problem> {
    let mut checked: Vec<ScratchFile> = Vec::with_capacity(files.len());
    for file in files {
        let path = file.path.get_ref();
        let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || path.ends_with('/') || !inside {
            let text = format!(
                "file path '{path}' is not below the scratch directory: use no leading / and no . or .."
            );
            return Err(problem(&file.path, text));
        }
        if checked.iter().any(|other| other.path == *path) {
            return Err(problem(&file.path, format!("there are two files with the path '{path}'")));
        }
        let content = match (file.content, file.size) {
            (Some(text), None) => Content::Text(text),
            (None, Some(bytes)) => Content::Generated { bytes },
            _ => return Err(problem(&file.path, format!("file '{path}' needs either content or size"))),
        };
        checked.push(ScratchFile { path: file.path.into_inner(), content });
    }
    Ok(checked)
}

fn words(command: Spanned<format::Words>) -> Result<Vec<String>, Problem> {
    let words = match command.get_ref() {
        format::Words::Line(line) => shlex::split(line),
        format::Words::List(list) => Some(list.clone()),
    };
    match words {
        None => Err(problem(&command, "the command ends inside a quotation or after a backslash")),
        Some(words) if words.first().is_none_or(String::is_empty) => {
            Err(problem(&command, "the command is empty"))
        }
        Some(words) => Ok(words),
    }
}

fn url_path(path: Spanned<String>) -> Result<String, Problem> {
    let text = path.get_ref();
    if !text.starts_with('/') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = format!("path '{}' must start with / and contain no blanks", text.escape_default());
        return Err(problem(&path, text));
    }
    Ok(path.into_inner())
}

fn positive(count: &Spanned<u32>, key: &str) -> Result<NonZeroU32, Problem> {
    NonZeroU32::new(*count.get_ref()).ok_or_else(|| problem(count, format!("{key} must be at least 1")))
}

fn seconds(count: &Spanned<f64>, key: &str) -> Result<Duration, Problem> {
    let value = *count.get_ref();
    if !(0.001..=3600.0).contains(&value) {
        return Err(problem(count, format!("{key} must be between 0.001 and 3600 seconds, not {value}")));
    }
    Ok(Duration::from_secs_f64(value))
}

/// The signals that servers interpret as a request to stop.
const STOP_SIGNALS: [(&str, Signal); 5] = [
    ("TERM", Signal::TERM),
    ("QUIT", Signal::QUIT),
    ("INT", Signal::INT),
    ("USR1", Signal::USR1),
    ("WINCH", Signal::WINCH),
];

fn signal(name: &Spanned<String>) -> Result<Signal, Problem> {
    STOP_SIGNALS.iter().find(|(known, _)| known == name.get_ref()).map(|&(_, signal)| signal).ok_or_else(
        || {
            let known: Vec<&str> = STOP_SIGNALS.iter().map(|(name, _)| *name).collect();
            problem(name, format!("signal '{}' is not one of {}", name.get_ref(), known.join(", ")))
        },
    )
}

fn placement(cpus: format::Cpus) -> Placement {
    match cpus {
        format::Cpus::Any => Placement::Any,
        format::Cpus::Split => Placement::Split,
        format::Cpus::List(cpus) => Placement::Cpus(cpus),
    }
}
