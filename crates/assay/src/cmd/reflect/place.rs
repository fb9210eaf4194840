//! `assay reflect place`: moves processes to processors so that they do more.

use std::collections::HashSet;
use std::time::Duration;

use assay_reflect::Cgroup;
use assay_reflect::placement::Placement;
use assay_reflect::placement::live::{Live, NoPlacement, Survey};

use signal_hook::consts::SIGTSTP;

use crate::cli::ReflectPlaceArgs;
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;
use crate::section::reflection::{self, place as section};

/// Runs the subcommand.
pub fn run(args: &ReflectPlaceArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    // Processes must not stay paused while this one is stopped.
    interrupt.at(SIGTSTP)?;
    let mut survey = Survey::of(&processes(args)?)?;
    if args.dry_run {
        let done = survey.period(args.period, interrupt.flag()).map_err(interrupted)?;
        return output::show(&section::found(&survey, &done), args.print.format());
    }
    let time = reflection::time(survey.time(args.period));
    output::say(&format!("measuring for {time}; at first, processes are paused in turns"));
    let mut live = Live::begin(&mut survey, args.period, interrupt.flag())?;
    let placed = place(args, &mut live);
    live.end()?;
    placed?;
    output::say("all processes run as they were found");
    Ok(())
}

/// Places processes for as long as wanted.
fn place(args: &ReflectPlaceArgs, live: &mut Live) -> anyhow::Result<()> {
    let placement = Placement::find(live).map_err(interrupted)?;
    output::show(&section::placed(live.survey(), &placement), args.print.format())?;
    let left = |live: &Live| args.duration.map_or(Duration::MAX, |most| most.saturating_sub(live.elapsed()));
    while placement.is_kept() && left(live) > Duration::ZERO {
        match live.look(left(live)) {
            Ok(()) => {}
            Err(NoPlacement::Interrupted) => break,
            Err(ended @ NoPlacement::Ended(_)) => {
                output::say(&ended.to_string());
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The processes that were given, each once, in their order.
fn processes(args: &ReflectPlaceArgs) -> anyhow::Result<Vec<i32>> {
    let mut processes = match &args.cgroup {
        Some(path) => Cgroup::open(path)?.processes()?,
        None => args.pid.clone(),
    };
    let mut seen = HashSet::new();
    processes.retain(|pid| seen.insert(*pid));
    Ok(processes)
}

/// The error of a measurement, which left the processes as they were found.
fn interrupted(error: NoPlacement) -> anyhow::Error {
    match error {
        NoPlacement::Interrupted => Interrupted::Placing.into(),
        error => error.into(),
    }
}
