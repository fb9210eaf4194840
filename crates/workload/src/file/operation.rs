//! The operations of a workload file: which keys each client takes, and their values.

use std::num::NonZeroU64;

use toml::Spanned;

use super::format::{self, Client as Name};
use super::{Problem, positive, problem, seconds, url_path, words};
use crate::workload::{
    Client, ClosedLoop, Expect, ExpectedContent, ExpectedReply, ExpectedResult, Operation, Request, Reuse,
    ScratchFile, WrkOperation,
};

/// Checks one operation of a server with `files`.
pub(super) fn operation(
    mut operation: format::Operation,
    files: &[ScratchFile],
) -> Result<Operation, Problem> {
    if operation.name.get_ref().is_empty() {
        return Err(problem(&operation.name, "the name of an operation is empty"));
    }
    only_known_keys(&operation)?;
    let client = match operation.client {
        Name::Http => closed_loop(http(&mut operation, files)?, &operation)?,
        Name::Redis => closed_loop(redis(&mut operation)?, &operation)?,
        Name::Postgres => closed_loop(postgres(&mut operation)?, &operation)?,
        Name::Wrk => wrk(&mut operation)?,
    };
    Ok(Operation { name: operation.name.into_inner(), about: operation.about, client })
}

/// Refuses the keys that the client of `operation` does not take.
fn only_known_keys(operation: &format::Operation) -> Result<(), Problem> {
    let client = operation.client;
    let allowed: &[&str] = match client {
        Name::Http => &["requests", "timeout_s", "path", "keep_alive"],
        Name::Redis => &["requests", "timeout_s", "command"],
        Name::Postgres => &["requests", "timeout_s", "user", "database", "query"],
        Name::Wrk => &["duration_s", "path", "keep_alive"],
    };
    let present = [
        ("requests", operation.requests.is_some()),
        ("duration_s", operation.duration_s.is_some()),
        ("timeout_s", operation.timeout_s.is_some()),
        ("path", operation.path.is_some()),
        ("keep_alive", operation.keep_alive.is_some()),
        ("command", operation.command.is_some()),
        ("user", operation.user.is_some()),
        ("database", operation.database.is_some()),
        ("query", operation.query.is_some()),
    ];
    match present.iter().find(|(key, present)| *present && !allowed.contains(key)) {
        Some((key, _)) => {
            let text = format!("client \"{client}\" has no key {key}, only {}", allowed.join(", "));
            Err(problem(&operation.name, text))
        }
        None => Ok(()),
    }
}

/// Returns the value of a key that the client of `operation` needs; `example` shows the key.
fn needed<T>(operation: &format::Operation, value: Option<T>, example: &str) -> Result<T, Problem> {
    value.ok_or_else(|| problem(&operation.name, format!("client \"{}\" needs {example}", operation.client)))
}

fn closed_loop(request: Request, operation: &format::Operation) -> Result<Client, Problem> {
    let requests = needed(operation, operation.requests.as_ref(), "requests = NUMBER")?;
    let Some(count) = NonZeroU64::new(*requests.get_ref()) else {
        return Err(problem(requests, "requests must be at least 1"));
    };
    let timeout = match &operation.timeout_s {
        Some(timeout_s) => seconds(timeout_s, "timeout_s")?,
        None => format::REQUEST_TIMEOUT,
    };
    let connections = positive(&operation.connections, "connections")?;
    Ok(Client::ClosedLoop(ClosedLoop { connections, requests: count, timeout, request }))
}

fn http(operation: &mut format::Operation, files: &[ScratchFile]) -> Result<Request, Problem> {
    let path = path(operation)?;
    let reuse = reuse(operation)?;
    let at = &operation.expect;
    let expect = at.get_ref();
    let format::Expect { status: Some(status), reply: None, rows: None, tag: None, .. } = *expect else {
        return Err(problem(
            at,
            "client \"http\" expects { status = NUMBER, file = PATH or bytes = NUMBER }",
        ));
    };
    if !(200..600).contains(&status) {
        return Err(problem(at, format!("status {status} is not a final HTTP status (200 to 599)")));
    }
    let content = match (&expect.file, expect.bytes) {
        (Some(path), None) if files.iter().any(|file| file.path == *path) => {
            ExpectedContent::File(path.clone())
        }
        (Some(path), None) => {
            let text = format!("expect refers to the file '{path}', but no [[file]] has this path");
            return Err(problem(at, text));
        }
        (None, Some(bytes)) => ExpectedContent::Bytes(bytes),
        _ => return Err(problem(at, "expect needs either file or bytes")),
    };
    Ok(Request::Http { path, reuse, expect: Expect { status, content } })
}

fn redis(operation: &mut format::Operation) -> Result<Request, Problem> {
    let command = operation.command.take();
    let command = words(needed(operation, command, "command = \"NAME ARGUMENTS\"")?)?;
    let expect = match operation.expect.get_ref() {
        format::Expect {
            reply: Some(text),
            status: None,
            file: None,
            bytes: None,
            rows: None,
            tag: None,
        } => ExpectedReply::Text(text.clone()),
        format::Expect {
            bytes: Some(bytes),
            status: None,
            file: None,
            reply: None,
            rows: None,
            tag: None,
        } => ExpectedReply::Bytes(*bytes),
        _ => {
            let text = "client \"redis\" expects { reply = TEXT } or { bytes = NUMBER }";
            return Err(problem(&operation.expect, text));
        }
    };
    Ok(Request::Redis { command, expect })
}

fn postgres(operation: &mut format::Operation) -> Result<Request, Problem> {
    let (user, database, query) = (operation.user.take(), operation.database.take(), operation.query.take());
    let user = without_null(needed(operation, user, "user = NAME")?)?;
    let database = without_null(needed(operation, database, "database = NAME")?)?;
    let query = without_null(needed(operation, query, "query = SQL")?)?;
    let at = &operation.expect;
    let format::Expect { rows, tag, status: None, file: None, bytes: None, reply: None } = at.get_ref()
    else {
        return Err(problem(
            at,
            "client \"postgres\" expects { rows = [[TEXT OF EACH COLUMN], ...], tag = TEXT }",
        ));
    };
    let expect = ExpectedResult { rows: rows.clone().unwrap_or_default(), tag: tag.clone() };
    if expect.rows.is_empty() && expect.tag.is_none() {
        let text = "a result without rows needs the tag of the command, for example tag = \"UPDATE 1\"";
        return Err(problem(at, text));
    }
    Ok(Request::Postgres { user, database, query, expect })
}

fn wrk(operation: &mut format::Operation) -> Result<Client, Problem> {
    let path = path(operation)?;
    let reuse = reuse(operation)?;
    let duration_s = needed(operation, operation.duration_s.as_ref(), "duration_s = NUMBER")?;
    let duration_s = positive(duration_s, "duration_s")?;
    let format::Expect {
        status: Some(200),
        bytes: Some(expect_bytes),
        file: None,
        reply: None,
        rows: None,
        tag: None,
    } = *operation.expect.get_ref()
    else {
        let text = "client \"wrk\" can only expect { status = 200, bytes = NUMBER }";
        return Err(problem(&operation.expect, text));
    };
    let connections = positive(&operation.connections, "connections")?;
    Ok(Client::Wrk(WrkOperation { path, connections, duration_s, reuse, expect_bytes }))
}

fn path(operation: &mut format::Operation) -> Result<String, Problem> {
    let path = operation.path.take();
    url_path(needed(operation, path, "path = \"/PATH\"")?)
}

fn reuse(operation: &format::Operation) -> Result<Reuse, Problem> {
    let keep_alive = needed(operation, operation.keep_alive, "keep_alive = true or false")?;
    Ok(if keep_alive { Reuse::KeepAlive } else { Reuse::NewConnection })
}

/// Returns a text of PostgreSQL, whose messages end texts with a null character.
fn without_null(text: Spanned<String>) -> Result<String, Problem> {
    if text.get_ref().contains('\0') {
        return Err(problem(&text, "a text for PostgreSQL cannot contain a null character"));
    }
    Ok(text.into_inner())
}
