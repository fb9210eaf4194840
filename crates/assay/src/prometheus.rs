//! Pages over HTTP for Prometheus, and for checks of whether a process works.

use std::fmt::{Display, Write};
use std::net::TcpListener;

use anyhow::Context;

use crate::http::{self, Answer};

/// Media type of a page (Prometheus, *Exposition formats*, version 0.0.4).
const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// Answers requests for pages, in threads of their own, until the process ends.
pub fn serve(
    listener: TcpListener,
    page: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    listener.set_nonblocking(false).context("cannot wait for Prometheus")?;
    http::serve(
        move || listener.accept().map(|(socket, _)| socket),
        move |request| {
            let path = Some(&*request.path).filter(|_| matches!(&*request.method, "GET" | "HEAD"));
            path.and_then(&page).unwrap_or_else(|| Answer::text(404, "see /metrics\n"))
        },
    );
    Ok(())
}

/// A page of metrics.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Adds a metric with its name, type and help. Its values have their labels, and those of a summary the
    /// endings of their names before them.
    pub fn add<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        values: impl IntoIterator<Item = (String, V)>,
    ) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    /// Returns the text.
    pub fn text(self) -> String {
        self.0
    }

    /// Returns the answer to a request for a page with this text.
    pub fn answer(text: String) -> Answer {
        Answer { status: 200, media_type: MEDIA_TYPE, body: text }
    }
}

/// Returns labels, in their braces.
pub fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// Returns a time in seconds, which is the unit of Prometheus.
pub fn seconds(ns: u128) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
