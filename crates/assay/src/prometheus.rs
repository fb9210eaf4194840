//! Pages over HTTP for Prometheus, and for checks of whether a process works.

use std::fmt::{Display, Write};
use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tiny_http::{Header, Method, Request, Response, Server};

/// Media type of a page (Prometheus, *Exposition formats*, version 0.0.4).
const MEDIA_TYPE: &str = "Content-Type: text/plain; version=0.0.4";

/// What is answered to a request.
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The text.
    pub body: String,
}

/// Time after which a client is accepted again, if there were too many files.
const PAUSE: Duration = Duration::from_secs(1);

/// Answers requests for paths, in a thread of its own, until the process ends.
pub fn serve(
    listener: TcpListener,
    answer: impl Fn(&str) -> Option<Answer> + Send + 'static,
) -> anyhow::Result<()> {
    listener.set_nonblocking(false).context("cannot wait for Prometheus")?;
    thread::spawn(move || {
        loop {
            // It ends if it cannot accept a client.
            let server =
                listener.try_clone().ok().and_then(|listener| Server::from_listener(listener, None).ok());
            for request in server.iter().flat_map(Server::incoming_requests) {
                let path = request.url().split('?').next().filter(|_| is_read(request.method()));
                let answer = path.and_then(&answer);
                // A client that has gone needs no answer.
                let _ = respond(request, answer);
            }
            thread::sleep(PAUSE);
        }
    });
    Ok(())
}

fn is_read(method: &Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

fn respond(request: Request, answer: Option<Answer>) -> io::Result<()> {
    let Answer { status, body } =
        answer.unwrap_or_else(|| Answer { status: 404, body: "see /metrics\n".to_owned() });
    let response = Response::from_string(body).with_status_code(status);
    request.respond(MEDIA_TYPE.parse::<Header>().into_iter().fold(response, Response::with_header))
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
