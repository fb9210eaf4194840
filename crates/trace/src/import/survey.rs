//! The first reading of a log: the threads that it creates, and whether it can be imported.

use foldhash::HashMap;

use super::{
    ImportError, ONLY_THREAD, call,
    clock::Clock,
    line::{self, Event},
    log::Log,
    object::Objects,
    threads::{Birth, Births},
};

/// What the second reading needs to have read.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub births: Births,
    pub clock: Clock,
    pub calls: u64,
    /// Whether a line has the number of a thread.
    pub is_numbered: bool,
}

impl Survey {
    pub fn of(log: &Log<'_>) -> Result<Self, ImportError> {
        let mut survey = Self::default();
        let mut begun: HashMap<u32, (u64, Vec<u8>)> = HashMap::default();
        log.for_each_line(|number, text| {
            let line = line::parse(text).map_err(|defect| log.defect(number, defect))?;
            let Some(line) = line else { return Ok(()) };
            survey.clock.at(line.stamp);
            survey.is_numbered |= line.thread.is_some();
            let parent = line.thread.unwrap_or(ONLY_THREAD);
            let (line, whole) = match line.event {
                Event::Begins(text) => {
                    survey.calls += 1;
                    if creates(text) {
                        begun.insert(parent, (number, text.to_owned()));
                    }
                    return Ok(());
                }
                Event::Resumes(rest) => match begun.remove(&parent) {
                    Some((line, begin)) => (line, [&begin, rest].concat()),
                    None => return Ok(()),
                },
                Event::Call(text) => {
                    survey.calls += 1;
                    if !creates(text) {
                        return Ok(());
                    }
                    (number, text.to_owned())
                }
                Event::Continues(_) | Event::Ends(_) | Event::Superseded(_) | Event::Signal => return Ok(()),
            };
            let child = call::parse(&whole, &mut Objects::default()).and_then(|call| call.child);
            child.into_iter().for_each(|child| survey.births.add(Birth { line, parent, child }));
            Ok(())
        })?;
        Ok(survey)
    }
}

/// Returns whether a call may create a thread.
fn creates(text: &[u8]) -> bool {
    [&b"clone("[..], b"clone3(", b"fork(", b"vfork("].iter().any(|name| text.starts_with(name))
}
