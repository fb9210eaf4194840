//! A floating-point expression over an array: the operations of a numerical loop together, whose cost is not
//! the sum of their separate costs (lmbench 3, `lat_ops`, "bogomflops").

use std::io;
use std::ops::{Add, Div, Mul, Sub};

use assay_quantity::{Key, PrimitiveId};
use rand::RngExt;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &[],
    full: &["cpu.bogomflop{type=float32|float64}"],
    cost: Per::Operation,
    calls: &[],
    about: "load of x, `(1 + x) * (1.5 - x) / x`, store, for the next element of an array of 1024",
    source: "lmbench 3, lat_ops",
    prepare,
}];

/// Elements of the array, as in lmbench, rounded to a power of two: they stay in the first-level cache.
const ELEMENTS: usize = 1024;

/// The expression for one element.
fn prepare(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let mut element = || setting.rng.random_range(1.0..2.0_f64);
    #[expect(clippy::cast_possible_truncation, reason = "any number between 1 and 2 is suitable")]
    let single = |value: f64| value as f32;
    Ok(match id.word(Key::Type) {
        "float32" => Prepared::alone(Loop::over(std::array::from_fn(|_| single(element())), 1.0, 1.5)),
        "float64" => Prepared::alone(Loop::over(std::array::from_fn(|_| element()), 1.0, 1.5)),
        other => {
            return Err(Refusal::Unavailable(format!(
                "the expression does not support operands of type {other}"
            )));
        }
    })
}

/// The operand type of the expression.
trait Float:
    Copy + PartialEq + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
}

impl Float for f32 {}
impl Float for f64 {}

struct Loop<F> {
    elements: Box<[F; ELEMENTS]>,
    results: Box<[F; ELEMENTS]>,
    one: F,
    one_and_a_half: F,
    done: u64,
}

impl<F: Float> Loop<F> {
    fn over(elements: [F; ELEMENTS], one: F, one_and_a_half: F) -> Self {
        Self { results: Box::new(elements), elements: Box::new(elements), one, one_and_a_half, done: 0 }
    }

    #[inline]
    fn expression(&self, x: F) -> F {
        (self.one + x) * (self.one_and_a_half - x) / x
    }
}

impl<F: Float> Operation for Loop<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        *self.results = *self.elements;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations / ELEMENTS as u64 {
            for element in 0..ELEMENTS {
                // A volatile load loads one element. It prevents vectorisation, which would measure the
                // compiler.
                // SAFETY: this is a reference to an element.
                let x = unsafe { (&raw const self.elements[element]).read_volatile() };
                let result = self.expression(x);
                // SAFETY: this is a reference to an element.
                unsafe { (&raw mut self.results[element]).write_volatile(result) };
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let both = self.elements.iter().zip(self.results.iter());
        // Each operation is rounded as specified by IEEE 754, so there is exactly one correct result.
        match both.filter(|(x, result)| self.expression(**x) != **result).count() {
            0 => Ok(()),
            wrong => Err(io::Error::other(format!("{wrong} of {ELEMENTS} elements of the array are wrong"))),
        }
    }

    fn granule(&self) -> u64 {
        ELEMENTS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_was_not_computed_is_rejected() {
        let mut of_array = Loop::over(std::array::from_fn(|_| 1.25_f64), 1.0, 1.5);
        let operations = of_array.granule();
        of_array.arm(operations).unwrap();
        of_array.run(operations).unwrap();
        assert_eq!(of_array.results[7].to_bits(), 0.45_f64.to_bits());
        of_array.results[7] = 1.25;
        let error = of_array.disarm(operations).unwrap_err().to_string();
        assert!(error.contains("1 of 1024 elements"), "{error}");
    }

    #[test]
    fn a_batch_that_was_not_run_is_rejected() {
        let mut of_array = Loop::over(std::array::from_fn(|_| 1.25_f32), 1.0, 1.5);
        of_array.arm(1024).unwrap();
        assert!(of_array.disarm(1024).is_err());
    }
}
