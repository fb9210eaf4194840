//! kill -9 at random times.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use assay_store::RunId;

use crate::child::{self, Report};
use crate::{assert_intact, numbered, open};

/// Number of kills. Each happens at a different point: before, in or after a transaction, a checkpoint, the
/// opening.
const KILLS: u32 = 200;

/// Longest wait between the awaited report and the kill: a few transactions.
const WAIT_MAX_US: u64 = 3000;

#[test]
fn everything_that_a_killed_process_committed_is_complete() {
    if child::was_child() {
        return;
    }
    let seed = RandomState::new().build_hasher().finish();
    writeln!(std::io::stderr(), "seed {seed:#x}").unwrap();
    let mut moments = SplitMix(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let mut committed_at_all = 0;
    for kill in 0..KILLS {
        let awaited = moments.below(30);
        let mut child =
            child::spawn("kill::everything_that_a_killed_process_committed_is_complete", &path, None);
        let mut reports = child::reports(&mut child);
        let mut run = None;
        let mut committed = 0;
        let mut note = |report: Report| match report {
            Report::Run(id) => run = Some(RunId(id)),
            Report::Committed(number) => committed = number + 1,
        };
        reports.by_ref().take(usize::try_from(awaited).unwrap()).for_each(&mut note);
        thread::sleep(Duration::from_micros(moments.below(WAIT_MAX_US)));
        child.kill().unwrap();
        // The reports in the pipe were written before the kill.
        reports.for_each(&mut note);
        assert_eq!(child.wait().unwrap().signal(), Some(9), "seed {seed:#x}, kill {kill}");

        let store = open(&path);
        assert_intact(&path);
        if let Some(run) = run {
            let series = store.samples(run).unwrap();
            let stored = series.first().map_or(&[][..], |series| &series.samples);
            // The kill can happen between the commit of another sample and its report.
            let possible = committed..=committed + 1;
            let stored_count = u32::try_from(stored.len()).unwrap();
            assert!(
                possible.contains(&stored_count),
                "seed {seed:#x}, kill {kill}: {stored_count} of {committed}"
            );
            for (number, sample) in (0..).zip(stored) {
                assert_eq!(*sample, numbered(number), "seed {seed:#x}, kill {kill}");
            }
            assert_eq!(store.run(run).unwrap().outcome, None);
        }
        committed_at_all += committed;
    }
    assert!(committed_at_all > KILLS, "the kills happened before enough samples were committed");
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
