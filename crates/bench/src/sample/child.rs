//! The measuring process: prepares one benchmark from one seed and times it once.

use std::io::{self, Write};

use assay_process::cpus;
use assay_quantity::{Counted, Key};

use super::cold::Eviction;
use super::copies::{Copies, Crowd};
use super::counter;
use super::evidence::{NoWitness, Watch, Witness};
use super::free_lists::shuffle_free_lists;
use super::harness::{self, Batches, Schedule};
use super::sabotage::{Sabotage, delayed, sabotaged};
use super::seed::{self, Purpose};
use super::snapshot::Snapshots;
use super::wire::{Answer, Request, WireBatch, WireSample};
use crate::benchmark::{Benchmark, Participants, Prepared, Refusal, Setting, Sharing, Timing};
use crate::catalogue;
use crate::platform::clock::Source;
use crate::platform::describe::{self, CacheSizes};
use crate::platform::{kernel, layout};

/// A request that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The text is not a request of this version.
    #[error("'{0}' is not a sample request ({1}); 'sample' is for internal use, run 'assay bench'")]
    Request(String, serde_json::Error),
    /// The answer cannot be written.
    #[error("cannot write the sample: {0}; run 'assay bench', which reads it")]
    Write(#[from] io::Error),
}

/// Measures one sample in this process as a [`Spawner`](super::Spawner) requests, and writes the answer to
/// `out`.
///
/// Binds the calling thread to one processor and makes the process end with its parent. Call it only in a
/// dedicated process with one thread.
///
/// # Errors
/// Returns [`SampleError`] if the request is invalid or the answer cannot be written. A failed measurement is
/// an answer.
pub fn sample_main(request: &str, out: &mut impl Write) -> Result<(), SampleError> {
    answer_with(request, out, &mut |_, prepared| prepared)
}

/// Does the same as [`sample_main`] with every operation made `delay_ns` longer: a slowdown of known size, to
/// test whether a comparison finds it.
///
/// # Errors
/// See [`sample_main`].
pub fn delayed_sample_main(request: &str, delay_ns: f64, out: &mut impl Write) -> Result<(), SampleError> {
    answer_with(request, out, &mut |clock, prepared| delayed(prepared, delay_ns, clock))
}

/// Measures a benchmark that `alter` may change after its preparation, and writes the answer.
fn answer_with(
    request: &str,
    out: &mut impl Write,
    alter: &mut dyn FnMut(Source, Prepared) -> Prepared,
) -> Result<(), SampleError> {
    let answer = match at_depth(request, &mut |request| measure_here(request, alter))? {
        Ok(sample) => Answer::Sample(sample),
        Err(Refusal::Unavailable(reason)) => Answer::Unavailable(reason),
        Err(Refusal::Failed(error)) => Answer::Failed(error.to_string()),
    };
    let mut line = serde_json::to_vec(&answer).map_err(io::Error::from)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

/// Measures a benchmark whose work is sabotaged, and returns whether it yields a sample despite that. `None`
/// if the benchmark cannot be prepared.
///
/// Writes nothing: the calls that write may be sabotaged too.
///
/// # Errors
/// Returns [`SampleError`] if the request cannot be parsed.
pub fn yields_sample_despite_sabotage(
    request: &str,
    sabotage: Sabotage,
) -> Result<Option<bool>, SampleError> {
    let mut prepared_at_all = true;
    let outcome = at_depth(request, &mut |request| {
        let bench = Bench::set_up(request)?;
        let Ok((prepared, _)) = bench.prepare() else {
            prepared_at_all = false;
            return Err(Refusal::Unavailable(String::new()));
        };
        let mut prepared = sabotaged(prepared, sabotage, bench.benchmark.calls);
        harness::sample(&bench.clock, &mut NoWitness, bench.schedule, &mut prepared)?;
        Ok(())
    })?;
    Ok(prepared_at_all.then_some(outcome.is_ok()))
}

/// Calls `then` at a random stack depth.
fn at_depth<T>(
    request: &str,
    then: &mut dyn FnMut(&Request) -> Result<T, Refusal>,
) -> Result<Result<T, Refusal>, SampleError> {
    let parsed: Request =
        serde_json::from_str(request).map_err(|error| SampleError::Request(request.to_owned(), error))?;
    let mut outcome = None;
    let mut depth = seed::stream(parsed.seed, Purpose::Depth);
    layout::at_random_depth(&mut depth, &mut || outcome = Some(then(&parsed)));
    let never = || Err(Refusal::Failed(io::Error::other("the measurement did not start")));
    Ok(outcome.unwrap_or_else(never))
}

fn measure_here(
    request: &Request,
    alter: &mut dyn FnMut(Source, Prepared) -> Prepared,
) -> Result<WireSample, Refusal> {
    let bench = Bench::set_up(request)?;
    let mut watch = Watch::begin(bench.clock)?;
    shuffle_free_lists(&request.directory, &mut seed::stream(request.seed, Purpose::Kernel));
    let copies = bench.start_copies()?;
    let (prepared, cpu) = bench.prepare()?;
    let mut prepared = alter(bench.clock, prepared);
    if copies.crowded {
        prepared.sharing = Sharing::Many { others: Vec::new() };
    }
    if let Some(lengths) = request.counted {
        return bench.count(prepared, lengths);
    }
    if let Some(first) = request.snapshots {
        return bench.take_snapshots(prepared, first);
    }
    watch.open(&Participants { sharing: prepared.sharing.clone(), cpu, copies: copies.beside() })?;
    let mut batches = bench.time(&mut watch, &mut prepared)?;
    watch.close(&mut batches.evidence)?;
    let counted = if request.counters { bench.events(&mut prepared)? } else { Vec::new() };
    copies.check_running()?;
    let counted = counted.into_iter().map(|counted| (counted.event, counted.batches)).collect();
    Ok(WireSample { counted, ..WireSample::from(batches) })
}

impl From<Batches> for WireSample {
    fn from(Batches { observations, baseline, refused, evidence }: Batches) -> Self {
        let [observations, baseline] =
            [observations, baseline].map(|batches| batches.into_iter().map(WireBatch::from).collect());
        let evidence = evidence.iter().map(|(kind, readings)| (kind.to_owned(), rounded(readings))).collect();
        Self { observations, baseline, refused, evidence, counted: Vec::new() }
    }
}

/// Returns readings with six significant digits, more than any of them is exact to; numbers of events remain.
/// With all digits, a stored sample of 14 batches takes 1370 bytes instead of 1020.
fn rounded(readings: &[f64]) -> Vec<f64> {
    let rounded = |reading: f64| format!("{reading:.5e}").parse().unwrap_or(reading);
    readings.iter().map(|reading| if reading.fract() == 0.0 { *reading } else { rounded(*reading) }).collect()
}

/// Why no events are counted for a primitive with a baseline.
const DIFFERENCE: &str = "its cost is the difference of two operations, and events are not subtracted";

/// A benchmark in the measuring process, before its preparation.
struct Bench<'a> {
    request: &'a Request,
    benchmark: Benchmark,
    clock: Source,
    schedule: Schedule,
    cpus: Vec<usize>,
}

impl<'a> Bench<'a> {
    fn set_up(request: &'a Request) -> Result<Self, Refusal> {
        kernel::die_with_parent()?;
        let cpus = cpus::allowed()?;
        kernel::raise_descriptor_limit();
        let benchmark = request.primitive.parse().ok().and_then(|id| catalogue::find(&id));
        let benchmark = benchmark.ok_or_else(|| Refusal::Unavailable("unknown benchmark".to_owned()))?;
        let clock = match request.ticks_per_ns {
            Some(ticks_per_ns) => Source::Counter { ticks_per_ns },
            None => Source::MonotonicRaw,
        };
        let schedule = Schedule::for_resolution(request.resolution_ns);
        if benchmark.primitive.word(Key::Placement) != "free" {
            cpus::pin(request.cpu)?;
        }
        Ok(Self { request, benchmark, clock, schedule, cpus })
    }

    fn setting(&self) -> Setting {
        let (request, caches) = (self.request, describe::caches());
        Setting {
            rng: seed::stream(request.seed, Purpose::Setting),
            cpu: request.cpu,
            cpus: self.cpus.clone(),
            other_cpu: request.other_cpu,
            caches,
            effective: request.effective.map_or(caches, CacheSizes::from),
            directory: request.directory.clone(),
            shared_directory: request.shared_directory.clone(),
            peer: request.peer,
        }
    }

    /// Prepares the benchmark, and returns it with the processor of this process, which the preparation may
    /// change.
    fn prepare(&self) -> Result<(Prepared, usize), Refusal> {
        let mut setting = self.setting();
        let prepared = (self.benchmark.prepare)(&self.benchmark.primitive, &mut setting)?;
        Ok((prepared, setting.cpu))
    }

    fn is_cold(&self) -> bool {
        self.benchmark.primitive.word(Key::Cache) == "cold"
    }

    fn time(&self, witness: &mut impl Witness, prepared: &mut Prepared) -> Result<Batches, Refusal> {
        if !self.is_cold() {
            return Ok(harness::sample(&self.clock, witness, self.schedule, prepared)?);
        }
        let granule = prepared.operation.granule();
        if granule > 1 {
            return Err(Refusal::Unavailable(format!(
                "a batch has at least {granule} operations, and only the first would start with empty caches"
            )));
        }
        let mut setting = self.setting();
        let mut eviction = Eviction::prepare(setting.caches.last(), &mut setting.rng)?;
        Ok(harness::cold_sample(&self.clock, witness, &mut || eviction.evict(), prepared)?)
    }

    /// Counts events in separate batches.
    fn events(&self, prepared: &mut Prepared) -> io::Result<Vec<Counted>> {
        if prepared.baseline.is_some() {
            return Ok(counter::refused(DIFFERENCE));
        }
        if self.is_cold() {
            return Ok(counter::refused("single operations with empty caches are not counted"));
        }
        counter::count(&self.clock, self.schedule, prepared.operation.as_mut())
    }

    /// Runs one batch for a program that counts what is executed.
    fn count(&self, mut prepared: Prepared, lengths: u64) -> Result<WireSample, Refusal> {
        if prepared.baseline.is_some() {
            return Err(Refusal::Unavailable(DIFFERENCE.to_owned()));
        }
        let batch = harness::one_batch(&self.clock, prepared.operation.as_mut(), lengths)?;
        Ok(WireSample { observations: vec![WireBatch::from(batch)], ..WireSample::default() })
    }

    /// Times batches between snapshots of a simulator's counts.
    fn take_snapshots(&self, mut prepared: Prepared, first: u64) -> Result<WireSample, Refusal> {
        if prepared.operation.timing() == Timing::Processor {
            return Err(Refusal::Unavailable(
                "its cost is that of one thread, and the simulator counts what all execute".to_owned(),
            ));
        }
        self.time(&mut Snapshots::from(first), &mut prepared).map(WireSample::from)
    }

    /// Starts the copies that the id requests; this process is one of them.
    fn start_copies(&self) -> Result<Copies, Refusal> {
        let primitive = &self.benchmark.primitive;
        let crowd = Crowd::of(primitive, &self.cpus, self.request.cpu)?;
        Copies::start(crowd, self.clock, self.schedule, &|copy, cpu, other_cpu| {
            let rng = seed::stream(self.request.seed.wrapping_add(copy), Purpose::Setting);
            (self.benchmark.prepare)(primitive, &mut Setting { rng, cpu, other_cpu, ..self.setting() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_is_rejected() {
        let mut out = Vec::new();
        let error = sample_main("{\"primitive\":\"call.null\",\"colour\":1}", &mut out).unwrap_err();
        assert!(error.to_string().contains("run 'assay bench'"), "{error}");
        assert!(out.is_empty());
    }
}
