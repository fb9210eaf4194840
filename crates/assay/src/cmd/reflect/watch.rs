//! `assay reflect watch`: shows productivity and overhead while they are counted.

use std::time::Duration;

use anyhow::{Context, bail};
use assay_reflect::Cgroup;
use assay_reflect::facility::{FLOATING_POINT, Facility, NoFacility, Request, Side, Subject};
use assay_reflect::observation::Observation;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::endpoint::Endpoint;
use super::lines;
use crate::cli::{ReflectWatchArgs, Selected};
use crate::interrupt::Interrupt;
use crate::{output, section};

/// Time between two drawings in a terminal.
const REDRAWN: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub fn run(args: &ReflectWatchArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let (subject, name) = subject(args)?;
    raise_file_limit();
    let mut facility = match Facility::open(&subject, &request(args)) {
        Err(NoFacility::Ended(_)) => bail!("{name} does not exist"),
        facility => facility?,
    };
    let (productivity, overhead) = axes(&facility, args)?;
    let mut observation = Observation::new(facility.measures().len(), productivity, overhead);
    let endpoint = args.listen.map(Endpoint::listen).transpose()?;
    if let Some(endpoint) = &endpoint {
        endpoint.publish(facility.measures(), &observation);
        output::say(&format!("listening at http://{}/metrics", endpoint.address()));
    }
    if args.lines {
        lines::print(&lines::head(&name, &facility))?;
    }
    let report = |facility: &Facility, observation: &Observation| {
        section::reflection::watch::report(&name, facility, observation)
    };
    let mut drawn = Duration::ZERO;
    let mut goes_on = true;
    while goes_on {
        facility.sleep(args.period, args.duration);
        goes_on =
            !interrupt.is_raised() && args.duration.is_none_or(|duration| facility.elapsed() < duration);
        let before = facility.unavailable().len();
        let Ok(period) = (if goes_on { facility.period() } else { facility.whole_period() }) else {
            output::say(&format!("{name} has ended"));
            break;
        };
        for lost in &facility.unavailable()[before..] {
            output::say(&format!("{} is no longer available: {}", lost.measure.name, lost.reason));
        }
        observation.add(&period);
        if args.lines {
            lines::print(&lines::line(&facility, &observation, &period))?;
        } else if args.print.is_text() && observation.length().saturating_sub(drawn) >= REDRAWN {
            drawn = observation.length();
            output::redraw(|| report(&facility, &observation))?;
        }
        if let Some(endpoint) = &endpoint {
            endpoint.publish(facility.measures(), &observation);
        }
    }
    if args.lines { Ok(()) } else { output::show(&report(&facility, &observation)?, args.print.format()) }
}

/// Allows as many open files as the system permits: the counters of a process take one for each thread.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer files, counters are not available, which the report or an error states.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What is watched, and its name.
fn subject(args: &ReflectWatchArgs) -> anyhow::Result<(Subject, String)> {
    Ok(match (args.pid, &args.cgroup) {
        (Some(pid), _) => (Subject::Process(pid), format!("process {pid}")),
        (None, Some(path)) => {
            let group = Cgroup::open(path)?;
            let name = format!("control group {}", group.path().display());
            (Subject::Group(group), name)
        }
        (None, None) => (Subject::Machine, "this machine".to_owned()),
    })
}

/// What is counted beside the measures that always are: each event once, of the side that it is selected for.
fn request(args: &ReflectWatchArgs) -> Request {
    let mut request = Request { progress: args.progress.clone(), ..Request::default() };
    let others = args.event.iter().cloned().map(Selected::Event);
    let overheads = std::iter::once(args.overhead.clone()).chain(others).map(|one| (one, Side::Overhead));
    for (selected, side) in
        args.productivity.iter().cloned().map(|one| (one, Side::Productivity)).chain(overheads)
    {
        match selected {
            Selected::Measure(measure) => request.floating_point |= measure.name == FLOATING_POINT,
            Selected::Event(event) => {
                if !request.events.iter().any(|(known, _)| *known == event) {
                    request.events.push((event, side));
                }
            }
        }
    }
    request
}

/// The places of the two measures of the course among those that are available.
fn axes(facility: &Facility, args: &ReflectWatchArgs) -> anyhow::Result<(usize, usize)> {
    let place = |selected: &Selected| {
        let name = selected.to_string();
        if let Some(place) = facility.measures().iter().position(|known| known.name == name) {
            return Ok(place);
        }
        let mut unavailable = facility.unavailable().iter();
        let reason = unavailable.find(|one| one.measure.name == name).map_or("", |one| &one.reason);
        bail!("{name} is not available: {reason}")
    };
    let productivity = match &args.productivity {
        Some(selected) => place(selected)?,
        // The measures are in the order in which they are preferred.
        None => (facility.measures().iter().position(|measure| measure.side == Side::Productivity))
            .context("no measure of productivity is available; give --progress")?,
    };
    let overhead = place(&args.overhead)?;
    if overhead == productivity {
        bail!("{} cannot be both productivity and overhead; give another one", args.overhead);
    }
    Ok((productivity, overhead))
}
