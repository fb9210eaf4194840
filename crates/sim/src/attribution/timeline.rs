//! What a processor did over time (Rosenblum et al., figure 4.1), in a fixed number of intervals: when the
//! run is longer than they are, each two become one of twice the length.

use std::mem;

use crate::profile::{Interval, Timeline};

const INTERVALS: usize = Timeline::INTERVALS;

/// Length of the first ones: some thousand instructions, the shortest phase that is worth a picture.
const SHORTEST_NS: u64 = 1024;

/// What the processor does.
#[derive(Debug, Clone, Copy)]
pub enum Mode {
    User,
    Kernel,
    Idle,
}

/// Divides the time of a machine into intervals, from the first mark on.
#[derive(Debug, Clone)]
pub struct Recorder {
    length_ns: u64,
    intervals: Vec<Interval>,
    /// All time in them.
    total_ns: u64,
    /// What has happened after a halt whose length is not known yet, in any order: it is short.
    after_halt: Interval,
}

impl Recorder {
    /// Begins now.
    pub fn new() -> Self {
        Self {
            length_ns: SHORTEST_NS,
            intervals: Vec::with_capacity(INTERVALS),
            total_ns: 0,
            after_halt: Interval::default(),
        }
    }

    /// The processor has done this for some time.
    pub fn add(&mut self, mode: Mode, mut time_ns: u64) {
        while time_ns > 0 {
            let used_ns = self.total_ns % self.length_ns;
            if used_ns == 0 {
                self.begin_interval();
            }
            let part_ns = time_ns.min(self.length_ns - used_ns);
            let last = self.intervals.last_mut().expect("an interval has begun");
            *last.of(mode) += part_ns;
            self.total_ns += part_ns;
            time_ns -= part_ns;
        }
    }

    /// The processor has done this after a halt whose length is not known yet.
    pub fn add_after_halt(&mut self, mode: Mode, time_ns: u64) {
        *self.after_halt.of(mode) += time_ns;
    }

    /// The last halt had this length; 0 if it stays unknown.
    pub fn end_halt(&mut self, length_ns: u64) {
        let Interval { user_ns, kernel_ns, idle_ns } = mem::take(&mut self.after_halt);
        self.add(Mode::Idle, length_ns + idle_ns);
        self.add(Mode::Kernel, kernel_ns);
        self.add(Mode::User, user_ns);
    }

    /// What the processor did until now.
    pub fn timeline(&self) -> Timeline {
        let mut now = self.clone();
        now.end_halt(0);
        Timeline { interval_ns: now.length_ns, intervals: now.intervals }
    }

    /// Adds an interval, all of which are full.
    fn begin_interval(&mut self) {
        if self.intervals.len() == INTERVALS {
            for position in 0..INTERVALS / 2 {
                let [mut both, second] = [2 * position, 2 * position + 1].map(|at| self.intervals[at]);
                both += second;
                self.intervals[position] = both;
            }
            self.intervals.truncate(INTERVALS / 2);
            self.length_ns *= 2;
        }
        self.intervals.push(Interval::default());
    }
}

impl Interval {
    fn of(&mut self, mode: Mode) -> &mut u64 {
        match mode {
            Mode::User => &mut self.user_ns,
            Mode::Kernel => &mut self.kernel_ns,
            Mode::Idle => &mut self.idle_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_with_the_run_and_hold_all_of_its_time() {
        let mut recorder = Recorder::new();
        let mut sums = Interval::default();
        for turn in 0..1000 {
            for (mode, time_ns) in [(Mode::User, 700), (Mode::Kernel, 20 * turn), (Mode::Idle, 3)] {
                recorder.add(mode, time_ns);
                *sums.of(mode) += time_ns;
            }
        }
        let Timeline { interval_ns, intervals } = recorder.timeline();
        let all = intervals.iter().map(|one| one.user_ns + one.kernel_ns + one.idle_ns).collect::<Vec<_>>();
        let (last, full) = all.split_last().unwrap();
        assert!(full.iter().all(|time_ns| *time_ns == interval_ns) && *last <= interval_ns, "{all:?}");
        assert!((INTERVALS / 2..=INTERVALS).contains(&all.len()), "{}", all.len());
        let mut sum = Interval::default();
        intervals.iter().for_each(|interval| sum += *interval);
        assert_eq!(sum, sums);
        assert!(intervals[0].user_ns > intervals[1].user_ns, "{intervals:?}");
    }

    #[test]
    fn what_follows_a_halt_is_behind_it() {
        let mut recorder = Recorder::new();
        recorder.add(Mode::User, SHORTEST_NS);
        recorder.add_after_halt(Mode::Kernel, 10);
        recorder.add_after_halt(Mode::User, 5);
        recorder.end_halt(SHORTEST_NS);
        let interval = |user_ns, kernel_ns, idle_ns| Interval { user_ns, kernel_ns, idle_ns };
        let expected = [interval(SHORTEST_NS, 0, 0), interval(0, 0, SHORTEST_NS), interval(5, 10, 0)];
        assert_eq!(recorder.timeline().intervals, expected);
    }
}
