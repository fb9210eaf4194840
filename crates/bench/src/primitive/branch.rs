//! A branch that the processor predicts wrongly: what is thrown away and begun again (own; it is in none of the
//! suites that were looked at, and in every interpreter, parser and sort).

use std::io;

use assay_quantity::PrimitiveId;
use rand::RngExt;

use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::evidence::Sharing;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    ids: &["cpu.branch_mispredict"],
    profile: Profile::Quick,
    cost: Per::Operation,
    calls: &[],
    about: "one branch predicted wrongly: two random ones, less two that always go the same way",
    source: "own: what a data-dependent branch costs",
    prepare,
}];

/// Of branches that go either way at random, whatever the predictor does, it is wrong half of the time.
const BRANCHES: u64 = 2;

/// The bit of the generator that decides: the highest one, the most random.
const RANDOM: u64 = 1 << 63;

/// No bit at all, so that the branch always goes the same way.
const CONSTANT: u64 = 0;

/// One branch predicted wrongly.
fn prepare(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let state = setting.rng.random();
    Ok(Prepared {
        operation: Box::new(Branches { state, bit: RANDOM, ran: None }),
        baseline: Some(Box::new(Branches { state, bit: CONSTANT, ran: None })),
        sharing: Sharing::Alone,
    })
}

/// A linear congruential generator, one step of which decides each branch: no table that a predictor could
/// learn, and the same work whichever way the branch goes.
struct Branches {
    state: u64,
    bit: u64,
    /// Where a batch has left the generator, and how many branches were not taken.
    ran: Option<(u64, u64)>,
}

/// Knuth's multiplier and increment for 64 bits (The Art of Computer Programming, 3.3.4).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

impl Operation for Branches {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.ran = Some(branches(self.state, self.bit, operations * BRANCHES));
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let due = in_plain_words(self.state, self.bit, operations * BRANCHES);
        match self.ran.take() {
            // The next batch goes on where this one ended, so that no predictor sees a branch twice.
            Some(ran) if ran == due => {
                self.state = ran.0;
                Ok(())
            }
            ran => Err(io::Error::other(format!(
                "{operations} operations ended with {ran:x?} where {due:x?} was due"
            ))),
        }
    }
}

/// The state of the generator after so many branches, and how many found their bit set.
fn in_plain_words(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0;
    for _ in 0..branches {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        set += u64::from(state & bit != 0);
    }
    (state, set)
}

/// The same with a branch, in instructions, because a compiler would count without one.
#[cfg(target_arch = "x86_64")]
fn branches(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0_u64;
    // SAFETY: arithmetic on the registers named here; it touches no memory and no stack.
    unsafe {
        std::arch::asm!(
            ".p2align 6",
            "2:",
            "imul {state}, {multiplier}",
            "add {state}, {increment}",
            "test {state}, {bit}",
            "jz 3f",
            "inc {set}",
            "3:",
            "dec {left}",
            "jnz 2b",
            state = inout(reg) state,
            set = inout(reg) set,
            left = inout(reg) branches => _,
            multiplier = in(reg) MULTIPLIER,
            increment = in(reg) INCREMENT,
            bit = in(reg) bit,
            options(nomem, nostack),
        );
    }
    (state, set)
}

/// The same with a branch, in instructions, because a compiler would count without one.
#[cfg(target_arch = "aarch64")]
fn branches(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0_u64;
    // SAFETY: arithmetic on the registers named here; it touches no memory and no stack.
    unsafe {
        std::arch::asm!(
            ".p2align 6",
            "2:",
            "madd {state}, {state}, {multiplier}, {increment}",
            "tst {state}, {bit}",
            "b.eq 3f",
            "add {set}, {set}, #1",
            "3:",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            state = inout(reg) state,
            set = inout(reg) set,
            left = inout(reg) branches => _,
            multiplier = in(reg) MULTIPLIER,
            increment = in(reg) INCREMENT,
            bit = in(reg) bit,
            options(nomem, nostack),
        );
    }
    (state, set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_count_what_the_plain_words_count() {
        for (bit, length) in [(RANDOM, 1), (RANDOM, 1000), (CONSTANT, 1000), (1 << 62, 77)] {
            assert_eq!(branches(42, bit, length), in_plain_words(42, bit, length), "{bit:x} {length}");
        }
    }

    #[test]
    fn random_branches_go_either_way_and_constant_ones_do_not() {
        let (_, random) = in_plain_words(9, RANDOM, 100_000);
        assert!((49_000..51_000).contains(&random), "{random}");
        assert_eq!(in_plain_words(9, CONSTANT, 100_000).1, 0);
    }

    #[test]
    fn a_batch_that_was_not_run_or_was_too_short_is_refused() {
        let mut branches = Branches { state: 1, bit: RANDOM, ran: None };
        assert!(branches.disarm(10).is_err());
        branches.run(9).unwrap();
        assert!(branches.disarm(10).is_err());
        branches.run(10).unwrap();
        assert!(branches.disarm(10).is_ok());
    }
}
