//! The counts of an observation as a page that Prometheus reads.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use anyhow::anyhow;
use assay_quantity::Unit;
use assay_reflect::facility::Measure;
use assay_reflect::observation::Observation;
use assay_reflect::region::Region;
use tiny_http::{Header, Method, Request, Response, Server};

/// Media type of the page (Prometheus, *Exposition formats*, version 0.0.4).
const MEDIA_TYPE: &str = "Content-Type: text/plain; version=0.0.4";

/// A server of the page, in a thread of its own: no client delays the readings.
pub struct Endpoint {
    address: String,
    page: Arc<Mutex<String>>,
}

impl Endpoint {
    /// Listens at an address, until the process ends.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let server = Server::http(address)
            .map_err(|error| anyhow!("cannot listen at {address}: {error}; give another address"))?;
        let page = Arc::new(Mutex::new(String::new()));
        let endpoint = Self { address: server.server_addr().to_string(), page: Arc::clone(&page) };
        thread::spawn(move || {
            for request in server.incoming_requests() {
                let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that has gone needs no answer.
                let _ = answer(request, page);
            }
        });
        Ok(endpoint)
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Replaces the page.
    pub fn publish(&self, measures: &[&Measure], observation: &Observation) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page(measures, observation);
    }
}

fn answer(request: Request, page: String) -> io::Result<()> {
    if *request.method() != Method::Get || request.url() != "/metrics" {
        return request.respond(Response::from_string("see /metrics\n").with_status_code(404));
    }
    let media_type = MEDIA_TYPE.parse::<Header>();
    request.respond(media_type.into_iter().fold(Response::from_string(page), Response::with_header))
}

/// The page: a counter for each measure that was read, and whether the subject is in each region.
fn page(measures: &[&Measure], observation: &Observation) -> String {
    let mut page = String::new();
    for (measure, counted) in measures.iter().zip(observation.counted()) {
        let Some(total) = counted.total else { continue };
        let name = metric(measure);
        let value = match measure.unit {
            Unit::Nanoseconds => format!("{}.{:09}", total / 1_000_000_000, total % 1_000_000_000),
            _ => total.to_string(),
        };
        // Writing to a string does not fail.
        let _ = write!(page, "# HELP {name} {}.\n# TYPE {name} counter\n{name} {value}\n", measure.about);
    }
    page.push_str(
        "# HELP assay_region 1 for the region that the subject is in.\n# TYPE assay_region gauge\n",
    );
    let now = observation.region();
    for region in Region::ALL {
        let is_in = u8::from(now == Some(region));
        let _ = writeln!(page, "assay_region{{region=\"{}\"}} {is_in}", region.name());
    }
    page
}

/// The name of a metric, with its base unit and the ending of counters, as Prometheus recommends.
fn metric(measure: &Measure) -> String {
    let unit = match measure.unit {
        Unit::Nanoseconds => "_seconds",
        Unit::Bytes if !measure.name.ends_with("bytes") => "_bytes",
        _ => "",
    };
    let name = measure.name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("assay_{name}{unit}_total")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use assay_reflect::facility::{Period, measures};
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_page_has_base_units_and_the_region() {
        let time = measures().find(|measure| measure.name == "processor time").unwrap();
        let progress = measures().find(|measure| measure.name == "progress").unwrap();
        let never = measures().find(|measure| measure.name == "run-queue wait").unwrap();
        let mut observation = Observation::new(3, 0, 1);
        let counts = vec![Some(7), Some(1_500_000_000), None];
        observation.add(&Period { length: Duration::from_secs(1), counts, fallen: 0 });
        expect![[r#"
            # HELP assay_progress_total units of work that the application finished, by its own count.
            # TYPE assay_progress_total counter
            assay_progress_total 7
            # HELP assay_processor_time_seconds_total time on a processor, in both modes.
            # TYPE assay_processor_time_seconds_total counter
            assay_processor_time_seconds_total 1.500000000
            # HELP assay_region 1 for the region that the subject is in.
            # TYPE assay_region gauge
            assay_region{region="steady"} 0
            assay_region{region="load rises"} 0
            assay_region{region="saturated"} 0
            assay_region{region="overload"} 0
            assay_region{region="load falls"} 0
            assay_region{region="recovers"} 0
        "#]]
        .assert_eq(&page(&[progress, time, never], &observation));
    }

    #[test]
    fn every_measure_has_a_metric_of_its_own_with_a_name_that_prometheus_accepts() {
        let names: Vec<String> = measures().map(metric).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let accepted = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(names.iter().all(|name| name.chars().all(accepted)), "{names:?}");
    }
}
