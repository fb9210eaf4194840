//! Combines three sources of loss counts so that every gap is counted once.
//!
//! The number of records that a CPU lost is known from the `lost` field of the next kept record, from the
//! counter marks that the recorder writes during a gap, and from the final counters in the manifest. Only the
//! final counters cover the gap after the last kept record.

/// Reported losses of one CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossTrack {
    /// Sum of the `lost` fields.
    from_fields: u64,
    /// Sum of the gaps returned.
    reported: u64,
}

impl LossTrack {
    /// Processes a kept record with `lost` missing records before it. Returns the number of losses not yet
    /// reported.
    pub fn field(&mut self, lost: u32) -> u64 {
        self.from_fields = self.from_fields.saturating_add(u64::from(lost));
        self.counter(self.from_fields)
    }

    /// Processes a total of `so_far` lost records. Returns the number of losses not yet reported.
    pub fn counter(&mut self, so_far: u64) -> u64 {
        let news = so_far.saturating_sub(self.reported);
        self.reported += news;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_a_mark_a_field_and_the_final_counter_is_reported_once() {
        let mut track = LossTrack::default();
        assert_eq!(track.counter(100), 100, "a mark inside the gap");
        assert_eq!(track.counter(100), 0, "the same mark again");
        assert_eq!(track.field(250), 150, "the gap continued until the next record");
        assert_eq!(track.field(5), 5, "another gap, no mark in between");
        assert_eq!(track.counter(260), 5, "the tail after the last record");
        assert_eq!(track.counter(u64::MAX), u64::MAX - 260);
    }
}
