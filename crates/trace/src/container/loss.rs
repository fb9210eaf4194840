//! Turns three sources of one truth into gaps that are counted once.
//!
//! The number of records that a CPU lost is known from the `lost` field of the next record that was kept, from the
//! counter marks that the recorder writes while a gap lasts, and from the final counters in the manifest, which
//! alone know of the gap after the last kept record.

/// What has been told of one CPU's losses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossTrack {
    /// Sum of the `lost` fields.
    from_fields: u64,
    /// Sum of the gaps handed out.
    told: u64,
}

impl LossTrack {
    /// A kept record says that `lost` went missing before it. Returns what was not told yet.
    pub fn field(&mut self, lost: u32) -> u64 {
        self.from_fields = self.from_fields.saturating_add(u64::from(lost));
        self.counter(self.from_fields)
    }

    /// The CPU has lost `so_far` records in all. Returns what was not told yet.
    pub fn counter(&mut self, so_far: u64) -> u64 {
        let news = so_far.saturating_sub(self.told);
        self.told += news;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_seen_by_mark_then_field_then_final_counter_is_told_once() {
        let mut track = LossTrack::default();
        assert_eq!(track.counter(100), 100, "a mark inside the gap");
        assert_eq!(track.counter(100), 0, "the same mark again");
        assert_eq!(track.field(250), 150, "the gap went on until the next record");
        assert_eq!(track.field(5), 5, "another gap, no mark in between");
        assert_eq!(track.counter(260), 5, "the tail after the last record");
        assert_eq!(track.counter(u64::MAX), u64::MAX - 260);
    }
}
