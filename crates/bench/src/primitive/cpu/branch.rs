//! A mispredicted branch: the discarded and repeated work of the processor (own; none of the examined suites
//! measures it, although it occurs in every interpreter, parser and sort).

use std::io;

use assay_quantity::PrimitiveId;
use rand::RngExt;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["cpu.branch_mispredict"],
    full: &[],
    cost: Per::Operation,
    calls: &[],
    about: "one mispredicted branch: two random branches, of which any predictor mispredicts one on average, \
            less two that always go the same way",
    source: "own: the cost of a data-dependent branch",
    prepare,
}];

/// Branches per operation: any predictor mispredicts half of the branches that go either way at random.
const BRANCHES: u64 = 2;

/// The bit of the generator that determines the branch: the highest bit, which is the most random.
const RANDOM: u64 = 1 << 63;

/// No bit, so that the branch always goes the same way.
const CONSTANT: u64 = 0;

/// One mispredicted branch.
fn prepare(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let state = setting.rng.random();
    Ok(Prepared {
        operation: Box::new(Branches { state, bit: RANDOM, ran: None }),
        baseline: Some(Box::new(Branches { state, bit: CONSTANT, ran: None })),
        sharing: Sharing::Alone,
    })
}

/// A linear congruential generator. One step determines each branch, without a table that a predictor could
/// learn, and with the same work in both directions of the branch.
struct Branches {
    state: u64,
    bit: u64,
    /// State of the generator after a batch, and the number of branches that were not taken.
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
            // The next batch continues where this one ended, so that no sequence of branches is repeated.
            Some(ran) if ran == due => {
                self.state = ran.0;
                Ok(())
            }
            ran => Err(io::Error::other(format!(
                "{operations} operations ended with {ran:x?} instead of {due:x?}"
            ))),
        }
    }
}

/// Returns the state of the generator after `branches` branches, and the number of branches whose bit was
/// set.
fn in_plain_words(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0;
    for _ in 0..branches {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        set += u64::from(state & bit != 0);
    }
    (state, set)
}

/// Computes the same with a branch, in machine instructions, because a compiler would count without a branch.
#[cfg(target_arch = "x86_64")]
fn branches(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0_u64;
    // SAFETY: arithmetic on the registers named here, without access to memory or the stack.
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

/// Computes the same with a branch, in machine instructions, because a compiler would count without a branch.
#[cfg(target_arch = "aarch64")]
fn branches(mut state: u64, bit: u64, branches: u64) -> (u64, u64) {
    let mut set = 0_u64;
    // SAFETY: arithmetic on the registers named here, without access to memory or the stack.
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
    fn the_instructions_compute_the_same_as_the_plain_code() {
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
    fn a_batch_that_was_not_run_or_is_too_short_is_rejected() {
        let mut branches = Branches { state: 1, bit: RANDOM, ran: None };
        assert!(branches.disarm(10).is_err());
        branches.run(9).unwrap();
        assert!(branches.disarm(10).is_err());
        branches.run(10).unwrap();
        assert!(branches.disarm(10).is_ok());
    }
}
