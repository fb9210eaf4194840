//! Units of work: the sequence of steps of one, and the variants in which all of one kind occur.

use foldhash::HashMap;

use super::{Side, StepRow, UnitsOfWork, Variant, step::Step};
use crate::{descriptor::Descriptor, histogram::Histogram, record::Call, view::Tally};

/// Longest sequence whose repetition counts once. Nine calls answer a request in nginx, and so a pipelined
/// one repeats nine.
const PERIOD_MAX: usize = 16;

/// Steps of a unit of work that are kept.
const STEPS_MAX: usize = 512;

/// Variants of one kind that are kept, for a trace in which no two units of work are the same.
const VARIANTS_MAX: usize = 1_000;

/// Variants that are shown; the others are shown together.
const VARIANTS_SHOWN: usize = 10;

/// Is after the steps of a thread.
const BOUNDARY: usize = usize::MAX;

/// A unit of work that goes on.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// Its threads and their steps as positions in the list of its kind, without those that depend on timing.
    /// Each thread has its own steps, because the order among threads depends on timing.
    parts: Vec<(u32, Vec<usize>)>,
    /// It has more steps.
    is_cut: bool,
    calls: u64,
    kernel_ns: u64,
    /// When the request was there.
    pub(super) asked_ns: Option<u64>,
    /// When the latest part of the answer was.
    pub(super) answered_ns: Option<u64>,
}

impl Unit {
    /// Adds a step. A sequence that repeats itself at once is kept once, because a loop often depends on
    /// sizes and on timing: a file is read in one or many calls.
    fn push(&mut self, thread: u32, step: usize) {
        if self.parts.iter().map(|(_, steps)| steps.len()).sum::<usize>() == STEPS_MAX {
            self.is_cut = true;
            return;
        }
        let part = self.parts.iter().position(|(other, _)| *other == thread).unwrap_or_else(|| {
            self.parts.push((thread, Vec::new()));
            self.parts.len() - 1
        });
        let steps = &mut self.parts[part].1;
        steps.push(step);
        let length = steps.len();
        let repeated = (1..=PERIOD_MAX.min(length / 2)).find(|period| {
            let (before, last) = steps[length - 2 * period..].split_at(*period);
            before == last
        });
        if let Some(period) = repeated {
            steps.truncate(length - period);
        }
    }

    /// Returns the steps of all threads, those of the first one first, each followed by [`BOUNDARY`].
    fn steps(&self) -> Vec<usize> {
        self.parts.iter().flat_map(|(_, steps)| steps.iter().chain([&BOUNDARY])).copied().collect()
    }
}

/// Units of work with the same steps.
#[derive(Debug, Default)]
struct Group {
    units: u64,
    calls: u64,
    kernel_ns: u64,
    time: Histogram,
}

impl Group {
    fn add(&mut self, unit: &Unit) {
        self.units += 1;
        self.calls = self.calls.saturating_add(unit.calls);
        self.kernel_ns = self.kernel_ns.saturating_add(unit.kernel_ns);
        if let (Some(asked_ns), Some(answered_ns)) = (unit.asked_ns, unit.answered_ns) {
            self.time.add(answered_ns.saturating_sub(asked_ns));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.units += other.units;
        self.calls = self.calls.saturating_add(other.calls);
        self.kernel_ns = self.kernel_ns.saturating_add(other.kernel_ns);
        for (low, _, count) in other.time.buckets() {
            self.time.add_times(low, count);
        }
    }

    fn variant(&self, steps: Vec<Step>) -> Variant {
        Variant {
            steps,
            units: self.units,
            calls: self.calls,
            kernel_ns: self.kernel_ns,
            time_ns: self.time.quantile(1, 2),
            time_p99_ns: self.time.quantile(99, 100),
        }
    }
}

/// All units of work of one kind.
#[derive(Debug)]
pub(super) struct UnitKind {
    pub(super) side: Side,
    pub(super) descriptor: Descriptor,
    positions: HashMap<Step, usize>,
    steps: Vec<(Step, Tally)>,
    variants: HashMap<Vec<usize>, Group>,
    /// Units of work that are in no variant: rare ones, and those that are cut.
    rest: Group,
    /// Those without a request.
    idle: Group,
}

impl UnitKind {
    pub(super) fn new(side: Side, descriptor: Descriptor) -> Self {
        Self {
            side,
            descriptor,
            positions: HashMap::default(),
            steps: Vec::new(),
            variants: HashMap::default(),
            rest: Group::default(),
            idle: Group::default(),
        }
    }

    /// Adds a call of a thread to a unit of work of this kind.
    pub(super) fn add(&mut self, unit: &mut Unit, thread: u32, step: Step, call: &Call) {
        let position = self.count(step, call);
        if !step.depends_on_timing() {
            unit.push(thread, position);
        }
        unit.calls += 1;
        unit.kernel_ns = unit.kernel_ns.saturating_add(call.kernel_ns());
    }

    /// Counts a call of no single unit of work, and returns the position of its step.
    pub(super) fn count(&mut self, step: Step, call: &Call) -> usize {
        let position = *self.positions.entry(step).or_insert_with(|| {
            self.steps.push((step, Tally::default()));
            self.steps.len() - 1
        });
        self.steps[position].1.add(call);
        position
    }

    /// Adds a unit of work that ended.
    pub(super) fn finish(&mut self, unit: &Unit) {
        if unit.calls == 0 {
            return;
        }
        if unit.asked_ns.is_none() {
            return self.idle.add(unit);
        }
        if unit.is_cut {
            return self.rest.add(unit);
        }
        let steps = unit.steps();
        if let Some(group) = self.variants.get_mut(&steps) {
            group.add(unit);
            return;
        }
        if self.variants.len() == VARIANTS_MAX {
            self.drop_rare();
        }
        self.variants.entry(steps).or_default().add(unit);
    }

    /// Moves rare variants to the rest until half of the room is free, so that new ones can become frequent.
    fn drop_rare(&mut self) {
        let mut units = 1;
        while self.variants.len() > VARIANTS_MAX / 2 {
            for (_, group) in self.variants.extract_if(|_, group| group.units <= units) {
                self.rest.merge(&group);
            }
            units *= 2;
        }
    }

    /// Returns the units of work; the error is their cost if none of them was answered.
    pub(super) fn into_units(self) -> Result<UnitsOfWork, Tally> {
        let is_answered = |group: &Group| group.time.total() > 0;
        if !self.variants.values().chain([&self.rest]).any(is_answered) {
            let mut total = Tally::default();
            self.steps.iter().for_each(|(_, tally)| total.merge(tally));
            return Err(total);
        }
        let mut groups: Vec<_> = self.variants.iter().collect();
        groups.sort_by_key(|(steps, group)| (std::cmp::Reverse(group.units), *steps));
        let (frequent, rare) = groups.split_at(VARIANTS_SHOWN.min(groups.len()));
        let mut rest = self.rest;
        rare.iter().for_each(|(_, group)| rest.merge(group));
        let variant = |(steps, group): &(&Vec<usize>, &Group)| {
            let steps = steps.iter().filter(|position| **position != BOUNDARY);
            group.variant(steps.map(|position| self.steps[*position].0).collect())
        };
        let some = |group: &Group| (group.units > 0).then(|| group.variant(Vec::new()));
        let variants: Vec<_> = frequent.iter().map(variant).collect();
        let rest = some(&rest);
        let units = variants.iter().chain(&rest).map(|variant| variant.units).sum();
        let row = |(step, tally): &(Step, Tally)| StepRow { step: *step, tally: *tally };
        let mut steps: Vec<_> = self.steps.iter().map(row).collect();
        // Within a phase, steps stay in the order of their first occurrence.
        steps.sort_by_key(|row| row.step.phase);
        let (side, descriptor) = (self.side, self.descriptor);
        Ok(UnitsOfWork { side, descriptor, units, steps, variants, rest, idle: some(&self.idle) })
    }
}
