//! The expected result of n operations of a block, computed without executing them.
//!
//! Every form is chosen so that the result depends on the number of operations. A sum and a power grow with
//! n. Alternate exclusive or of two values repeats after six operations, and no batch (a power of two times
//! its block) is a multiple of six. Divisions add up their quotients. Floating-point operands are chosen so
//! that each operation increases the value by exactly one unit in its last place, which rounding keeps exact.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// The registers of a block: register 0 is the constant operand, the others change.
pub(super) type Registers = [u64; 13];

/// Type of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Int32,
    Int64,
    Float32,
    Float64,
}

/// The computation of a chain. Register 0 is `a`, register 1 is `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `x += a`.
    Sum,
    /// `x *= a`.
    Product,
    /// `x ^= y` and `y ^= x` alternately; register 2 is `y`.
    Bit,
    /// `x = a / x`, and register 2 is the sum of all `x`.
    Quotient,
    /// Register 2 is the sum of `a / x`, once per operation.
    Quotients,
    /// `x = (x + a) % d`; register 2 is `d`.
    Remainder,
    /// `x += a`, where `a` is one unit in the last place of `x`.
    FloatSum,
    /// `x *= a`, where `a` is the next number above 1.
    FloatProduct,
    /// `x /= a`, where `a` is the next number below 1.
    FloatQuotient,
}

impl Type {
    /// Returns the value of the key `type`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            Type::Float32 => "float32",
            Type::Float64 => "float64",
        }
    }

    fn is_narrow(self) -> bool {
        matches!(self, Type::Int32 | Type::Float32)
    }

    /// Returns the bits of a register that the type uses.
    fn mask(self) -> u64 {
        if self.is_narrow() { u64::from(u32::MAX) } else { u64::MAX }
    }

    fn float_bits(self, value: f64) -> u64 {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "every value here is exact in both types")]
            Type::Float32 => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        }
    }

    /// Returns the distance from 1 to the next number above it.
    fn epsilon(self) -> f64 {
        if self.is_narrow() { f64::from(f32::EPSILON) } else { f64::EPSILON }
    }

    /// Returns the count of numbers of a float type between 1 and 2.
    fn floats(self) -> u64 {
        if self.is_narrow() { 1 << 23 } else { 1 << 52 }
    }
}

impl Form {
    /// Returns the initial registers.
    pub(super) fn start(self, of: Type, rng: &mut Pcg64Mcg) -> Registers {
        let mut registers = Registers::default();
        // Divisors and quotients of half the width, so that the dividend has nearly the full width.
        let half = if of.is_narrow() { 1_u64 << 14 } else { 1 << 30 };
        let mut number = |from: u64| rng.random_range(from..2 * from);
        match self {
            Form::Sum | Form::Product | Form::Bit => {
                // Among the odd numbers, the powers of those with this residue have the longest period.
                registers = registers.map(|_| number(1 << 62) & of.mask());
                registers[0] = (registers[0] & !7) | 5;
            }
            Form::Quotient | Form::Quotients => {
                let [divisor, quotient] = [number(half), number(half)];
                registers[..2].copy_from_slice(&[divisor * quotient, divisor]);
            }
            Form::Remainder => {
                let [dividend, divisor] = [number(half * half), number(half)];
                registers[..3].copy_from_slice(&[dividend, dividend % divisor, divisor]);
            }
            Form::FloatSum | Form::FloatProduct | Form::FloatQuotient => {
                // At the lower end, which leaves room for increases.
                let lowest = of.float_bits(1.0);
                registers = registers.map(|_| lowest + number(of.floats() / 32) - of.floats() / 32);
                registers[0] = of.float_bits(match self {
                    Form::FloatSum => of.epsilon(),
                    Form::FloatProduct => 1.0 + of.epsilon(),
                    _ => 1.0 - of.epsilon() / 2.0,
                });
            }
        }
        registers
    }

    /// Returns the registers after `operations` operations, distributed evenly over `chains` chains.
    pub(super) fn after(self, of: Type, start: &Registers, chains: usize, operations: u64) -> Registers {
        let mut registers = *start;
        let [a, x, third, ..] = *start;
        let each = operations / chains as u64;
        match self {
            Form::Sum => {
                registers[1..=chains].iter_mut().for_each(|x| *x = x.wrapping_add(a.wrapping_mul(each)));
            }
            Form::Product => {
                registers[1..=chains].iter_mut().for_each(|x| *x = x.wrapping_mul(power(a, each)));
            }
            Form::Bit => {
                for turn in 0..operations % 6 {
                    let [into, from] = if turn % 2 == 0 { [1, 2] } else { [2, 1] };
                    registers[into] ^= registers[from];
                }
            }
            Form::Quotient => {
                // The divisor and its quotient are swapped by every operation.
                let both = x.wrapping_add(a / x).wrapping_mul(operations / 2);
                let odd = if operations % 2 == 1 { a / x } else { 0 };
                registers[1] = if operations % 2 == 1 { a / x } else { x };
                registers[2] = third.wrapping_add(both).wrapping_add(odd);
            }
            Form::Quotients => registers[2] = third.wrapping_add((a / x).wrapping_mul(operations)),
            Form::Remainder => {
                let [a, x, divisor, times] = [a, x, third, operations].map(u128::from);
                // A remainder is below its divisor, which fits into a register.
                registers[1] = u64::try_from((x + a * times) % divisor).unwrap_or(u64::MAX);
            }
            Form::FloatSum | Form::FloatProduct | Form::FloatQuotient => {
                registers[1..=chains].iter_mut().for_each(|x| *x += each);
            }
        }
        registers.map(|register| register & of.mask())
    }

    /// Returns the maximum number of operations of a chain for which the form is valid. A product increases
    /// by one unit only below 1.5, where the rounding of its exact value changes.
    pub(super) fn longest(self, of: Type) -> u64 {
        match self {
            Form::FloatSum | Form::FloatProduct | Form::FloatQuotient => of.floats() / 2 - of.floats() / 16,
            _ => u64::MAX,
        }
    }
}

/// Returns `base` to the power of `exponent`, modulo 2^64.
fn power(base: u64, exponent: u64) -> u64 {
    (0..u64::BITS).rev().fold(1_u64, |power, bit| {
        let squared = power.wrapping_mul(power);
        if (exponent >> bit) & 1 == 1 { squared.wrapping_mul(base) } else { squared }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// Executes one operation.
    #[expect(clippy::cast_possible_truncation, reason = "the registers contain 32-bit numbers for this type")]
    fn step(form: Form, of: Type, registers: &mut Registers, turn: u64) {
        let [a, x, y, ..] = *registers;
        let [f, g] = [a, x].map(f64::from_bits);
        let [p, q] = [a, x].map(|bits| f32::from_bits(bits as u32));
        let narrow = |value: f32| u64::from(value.to_bits());
        match (form, of) {
            (Form::Sum, _) => registers[1] = x.wrapping_add(a) & of.mask(),
            (Form::Product, _) => registers[1] = x.wrapping_mul(a) & of.mask(),
            (Form::Bit, _) if turn.is_multiple_of(2) => registers[1] = x ^ y,
            (Form::Bit, _) => registers[2] = y ^ x,
            (Form::Quotient, _) => {
                registers[1] = a / x;
                registers[2] = y.wrapping_add(a / x) & of.mask();
            }
            (Form::Quotients, _) => registers[2] = y.wrapping_add(a / x) & of.mask(),
            (Form::Remainder, _) => registers[1] = (x + a) % y,
            (Form::FloatSum, Type::Float32) => registers[1] = narrow(q + p),
            (Form::FloatProduct, Type::Float32) => registers[1] = narrow(q * p),
            (Form::FloatQuotient, Type::Float32) => registers[1] = narrow(q / p),
            (Form::FloatSum, _) => registers[1] = (g + f).to_bits(),
            (Form::FloatProduct, _) => registers[1] = (g * f).to_bits(),
            (Form::FloatQuotient, _) => registers[1] = (g / f).to_bits(),
        }
    }

    const INTEGER: [Form; 6] =
        [Form::Sum, Form::Product, Form::Bit, Form::Quotient, Form::Quotients, Form::Remainder];
    const FLOAT: [Form; 3] = [Form::FloatSum, Form::FloatProduct, Form::FloatQuotient];

    fn forms() -> impl Iterator<Item = (Form, Type)> {
        let of = |forms: &'static [Form], types: [Type; 2]| {
            forms.iter().flat_map(move |form| types.map(|of| (*form, of)))
        };
        of(&INTEGER, [Type::Int32, Type::Int64]).chain(of(&FLOAT, [Type::Float32, Type::Float64]))
    }

    #[test]
    fn the_closed_form_equals_executing_one_operation_after_another() {
        for (form, of) in forms() {
            let start = form.start(of, &mut Pcg64Mcg::seed_from_u64(3));
            let mut registers = start;
            for operations in 1..=500 {
                step(form, of, &mut registers, operations - 1);
                assert_eq!(form.after(of, &start, 1, operations), registers, "{form:?} {of:?} {operations}");
            }
        }
    }

    #[test]
    fn single_precision_increases_by_one_unit_up_to_the_longest_batch() {
        for form in FLOAT {
            let start = form.start(Type::Float32, &mut Pcg64Mcg::seed_from_u64(3));
            let mut registers = start;
            let longest = form.longest(Type::Float32);
            (0..longest).for_each(|turn| step(form, Type::Float32, &mut registers, turn));
            assert_eq!(form.after(Type::Float32, &start, 1, longest), registers, "{form:?}");
        }
    }

    #[test]
    fn no_batch_ends_with_its_initial_values() {
        for (form, of) in forms() {
            let start = form.start(of, &mut Pcg64Mcg::seed_from_u64(5));
            for doublings in 0..15 {
                let due = form.after(of, &start, 1, 128 << doublings);
                assert_ne!(due, start, "{form:?} {of:?} {doublings}");
            }
        }
    }
}
