//! `assay reflect watch`: shows productivity and overhead while they are counted.

use std::env;
use std::time::Duration;

use anyhow::{Context, bail};
use assay_database::{self as database, Address};
use assay_reflect::Cgroup;
use assay_reflect::facility::{
    FLOATING_POINT, Facility, Measure, NoFacility, Request, Side, Subject, Unavailable,
};
use assay_reflect::observation::Observation;

use super::endpoint::Endpoint;
use super::lines;
use crate::cli::{ReflectWatchArgs, Selected};
use crate::interrupt::Interrupt;
use crate::{open_files, output, section};

/// Time between two drawings in a terminal.
const REDRAWN: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub fn run(args: &ReflectWatchArgs) -> anyhow::Result<()> {
    // Until the database has answered, an interrupt ends the process at once.
    let request = request(args)?;
    let interrupt = Interrupt::listen()?;
    let (subject, name) = subject(args)?;
    open_files::raise_limit();
    let mut facility = match Facility::open(&subject, request) {
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
        let course = [productivity, overhead].map(|place| &facility.measures()[place]);
        if !goes_on_without(&facility.unavailable()[before..], course) {
            break;
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

/// Reports what can no longer be read, and returns whether that leaves both measures of the course.
fn goes_on_without(lost: &[Unavailable], course: [&Measure; 2]) -> bool {
    for group in lost.chunk_by(|one, other| one.reason == other.reason) {
        let names: Vec<&str> = group.iter().map(|one| &*one.measure.name).collect();
        let reason = assay_report::visible(&group[0].reason);
        output::say(&format!("{} can no longer be read: {reason}", names.join(", ")));
    }
    !lost.iter().any(|one| course.contains(&&one.measure))
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

/// What is counted beside the measures that always are: the database, which is connected to, and each event
/// once, of the side that it is selected for.
fn request(args: &ReflectWatchArgs) -> anyhow::Result<Request> {
    let mut request = Request { progress: args.progress.clone(), ..Request::default() };
    if let Some(address) = &args.postgres {
        let password = env::var_os("PGPASSWORD");
        let address = Address::parse(address, password.as_ref().map(|password| password.as_encoded_bytes()))?;
        request.provided.push(database::connect(address)?);
    }
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
    Ok(request)
}

/// The places of the two measures of the course among those that are available.
fn axes(facility: &Facility, args: &ReflectWatchArgs) -> anyhow::Result<(usize, usize)> {
    let place = |selected: &Selected| {
        let name = selected.to_string();
        if let Some(place) = facility.measures().iter().position(|known| known.name == name) {
            return Ok(place);
        }
        let mut unavailable = facility.unavailable().iter();
        let reason = unavailable.find(|one| one.measure.name == name);
        // The facility does not list what it was not provided with.
        let reason = reason.map_or("no database was given; give --postgres", |one| &one.reason);
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
