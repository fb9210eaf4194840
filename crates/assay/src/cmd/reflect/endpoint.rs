//! The counts of an observation as a page that Prometheus reads.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use assay_quantity::Unit;
use assay_reflect::facility::Measure;
use assay_reflect::observation::Observation;
use assay_reflect::region::Region;

use crate::prometheus::{self, Page, labels, seconds};

/// A server of the page: no client delays the readings.
pub struct Endpoint {
    address: SocketAddr,
    page: Arc<Mutex<String>>,
}

impl Endpoint {
    /// Listens at an address, until the process ends.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .map_err(|error| anyhow!("cannot listen at {address}: {error}; give another address"))?;
        let address = listener.local_addr().context("cannot find the port")?;
        let page = Arc::new(Mutex::new(String::new()));
        let endpoint = Self { address, page: Arc::clone(&page) };
        let answer = move |path: &str| {
            let body = || page.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (path == "/metrics").then(|| Page::answer(body()))
        };
        prometheus::serve(listener, answer)?;
        Ok(endpoint)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the page.
    pub fn publish(&self, measures: &[Measure], observation: &Observation) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page(measures, observation);
    }
}

/// The page: a counter for each measure that was read, and whether the subject is in each region.
fn page(measures: &[Measure], observation: &Observation) -> String {
    let read = measures.iter().zip(observation.counted()).filter_map(|(measure, counted)| {
        let total = counted.total?;
        let value = match measure.unit {
            Unit::Nanoseconds => seconds(total.into()),
            _ => total.to_string(),
        };
        Some((metric(measure), value))
    });
    let mut read: Vec<_> = read.collect();
    // The lines of a metric follow each other.
    read.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let mut page = Page::default();
    for group in read.chunk_by(|(one, _), (other, _)| one.name == other.name) {
        let Metric { name, help, .. } = &group[0].0;
        let values = group.iter().map(|(metric, value)| (metric.labels.clone(), value));
        page.add((name, "counter", help), values);
    }
    let now = observation.region();
    let regions = Region::ALL.into_iter();
    let regions = regions.map(|region| (labels(&[("region", region.name())]), u8::from(now == Some(region))));
    page.add(("assay_region", "gauge", "1 for the region that the subject is in"), regions);
    page.text()
}

/// A metric of Prometheus.
struct Metric {
    name: String,
    labels: String,
    help: &'static str,
}

/// The metric of a measure: its name has the base unit and the ending of counters, as Prometheus recommends.
/// All events of the kernel of one unit are one metric.
fn metric(measure: &Measure) -> Metric {
    let unit = match measure.unit {
        Unit::Nanoseconds => "_seconds",
        Unit::Bytes if !measure.name.ends_with("bytes") => "_bytes",
        _ => "",
    };
    if measure.is_kernel_event() {
        return Metric {
            name: format!("assay_kernel_events{unit}_total"),
            labels: labels(&[("event", &measure.name)]),
            help: "what events of the kernel add up to",
        };
    }
    let name = measure.name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    Metric { name: format!("assay_{name}{unit}_total"), labels: String::new(), help: measure.about }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use assay_reflect::facility::{Period, Side, measures};
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_page_has_base_units_and_the_region() {
        let known = |name: &str| measures().find(|measure| measure.name == name).unwrap().clone();
        let event = |name: &str| Measure::of(&name.parse().unwrap(), Side::Overhead);
        let measures = [
            known("progress"),
            event("sched:sched_switch"),
            event("sched:sched_stat_runtime"),
            event("kprobe:vfs_read"),
            known("processor time"),
            known("run-queue wait"),
        ];
        let mut observation = Observation::new(6, 0, 4);
        let counts = vec![Some(7), Some(8), Some(5), Some(9), Some(1_500_000_000), None];
        observation.add(&Period { length: Duration::from_secs(1), counts, fallen: 0 });
        expect![[r##"
            # HELP assay_kernel_events_seconds_total what events of the kernel add up to.
            # TYPE assay_kernel_events_seconds_total counter
            assay_kernel_events_seconds_total{event="sched:sched_stat_runtime"} 0.000000005
            # HELP assay_kernel_events_total what events of the kernel add up to.
            # TYPE assay_kernel_events_total counter
            assay_kernel_events_total{event="sched:sched_switch"} 8
            assay_kernel_events_total{event="kprobe:vfs_read"} 9
            # HELP assay_processor_time_seconds_total time on a processor, in both modes.
            # TYPE assay_processor_time_seconds_total counter
            assay_processor_time_seconds_total 1.500000000
            # HELP assay_progress_total units of work that the application finished, by its own count.
            # TYPE assay_progress_total counter
            assay_progress_total 7
            # HELP assay_region 1 for the region that the subject is in.
            # TYPE assay_region gauge
            assay_region{region="steady"} 0
            assay_region{region="load rises"} 0
            assay_region{region="saturated"} 0
            assay_region{region="overload"} 0
            assay_region{region="load falls"} 0
            assay_region{region="recovers"} 0
        "##]]
        .assert_eq(&page(&measures, &observation));
    }

    #[test]
    fn every_measure_has_a_metric_of_its_own_with_a_name_that_prometheus_accepts() {
        let measures = measures().chain(&assay_database::MEASURES);
        let names: Vec<String> = measures.map(|measure| metric(measure).name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let accepted = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(names.iter().all(|name| name.chars().all(accepted)), "{names:?}");
    }
}
