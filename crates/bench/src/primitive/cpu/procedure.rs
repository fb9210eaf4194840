//! The call of a function: the cheapest boundary (lmbench 3, `lat_proc procedure`).

use std::arch::asm;
use std::io;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["cpu.call"],
    full: &[],
    cost: Per::Operation,
    calls: &[],
    about: "call of a function that adds one to its argument; the result is the next argument",
    source: "lmbench 3, lat_proc procedure",
    prepare: call,
}];

/// Prepares a call that the compiler neither inlines nor computes.
fn call(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Calls { value: 0, expected: 0 }))
}

/// Its argument plus one.
#[inline(never)]
extern "C" fn successor(mut value: u64) -> u64 {
    // SAFETY: the block is a comment. It is opaque to the compiler, which therefore must make every call and
    // cannot compute any result.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value.wrapping_add(1)
}

struct Calls {
    value: u64,
    expected: u64,
}

impl Operation for Calls {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut value = self.value;
        for _ in 0..operations {
            value = successor(value);
        }
        self.value = value;
        Ok(())
    }

    /// Checks that the chain of all calls so far has reached their number.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.expected = self.expected.wrapping_add(operations);
        if self.value == self.expected {
            return Ok(());
        }
        Err(io::Error::other(format!("{} calls returned {}", self.expected, self.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_counts_the_calls_and_one_that_is_too_short_is_an_error() {
        let mut calls = Calls { value: 0, expected: 0 };
        for operations in [1, 1000, 64] {
            calls.run(operations).unwrap();
            calls.disarm(operations).unwrap();
        }
        calls.run(9).unwrap();
        assert_eq!(calls.disarm(10).unwrap_err().to_string(), "1075 calls returned 1074");
    }
}
