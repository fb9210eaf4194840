//! Arithmetic: the core clock, and the time of an operation that waits for the previous one (latency) and of
//! an independent operation (throughput). This corresponds to `lat_ops` and `par_ops` of lmbench 3, whose
//! integer add was reported as 0.00 ns because the compiler had folded it. Here every block is written in
//! machine instructions, and the expected result of n operations is computed in another way and compared
//! after every batch.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod closed;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as block;
#[cfg(target_arch = "x86_64")]
use x86_64 as block;

use std::io;

use assay_quantity::{Key, PrimitiveId};
use rand_pcg::Pcg64Mcg;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use closed::{Form, Registers, Type};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["cpu.cycle"],
        about: "one cycle of the core clock, which is not the counter that times batches: an integer \
                addition that waits for the previous one",
        source: "lmbench 3, mhz, as a period",
        ..LATENCY
    },
    Row {
        quick: &["cpu.bit{type=int64}"],
        full: &["cpu.bit{type=int32|int64}"],
        about: "exclusive or, latency",
        ..LATENCY
    },
    Row {
        quick: &["cpu.add{type=int64|float64}"],
        full: &["cpu.add{type=*}"],
        about: "addition, latency",
        ..LATENCY
    },
    Row {
        quick: &["cpu.mul{type=int64|float64}"],
        full: &["cpu.mul{type=*}"],
        about: "multiplication, latency",
        ..LATENCY
    },
    Row {
        quick: &["cpu.div{type=int64|float64}"],
        full: &["cpu.div{type=*}"],
        about: "division, latency; signed for integers, with a divisor and a quotient of half of the bits",
        ..LATENCY
    },
    Row {
        quick: &["cpu.mod{type=int64}"],
        full: &["cpu.mod{type=int32|int64}"],
        about: "signed remainder, latency, less the addition that keeps the dividend large (the sample's \
                baseline)",
        ..LATENCY
    },
    Row { full: &["cpu.add_throughput{type=*}"], about: "addition, throughput", ..THROUGHPUT },
    Row { full: &["cpu.mul_throughput{type=*}"], about: "multiplication, throughput", ..THROUGHPUT },
    Row { full: &["cpu.div_throughput{type=*}"], about: "division, throughput", ..THROUGHPUT },
];

/// What the rows of latencies have in common.
const LATENCY: Row = Row {
    quick: &[],
    full: &[],
    cost: Per::Operation,
    calls: &[],
    about: "",
    source: "lmbench 3, lat_ops, with the results checked",
    prepare,
};

/// What the rows of throughputs have in common.
const THROUGHPUT: Row = Row { source: "lmbench 3, par_ops", ..LATENCY };

/// Operations without a branch between them, repeated the given number of times.
type Block = fn(&mut Registers, u64);

/// A block and what it computes.
#[derive(Clone, Copy)]
struct Body {
    operation: &'static str,
    of: Type,
    block: Block,
    form: Form,
    /// Number of registers, from 1 on, over which the operations are distributed.
    chains: usize,
    /// Operations of one block.
    operations: u64,
}

const fn one(operation: &'static str, of: Type, block: Block, form: Form) -> Body {
    Body { operation, of, block, form, chains: 1, operations: 128 }
}

const fn eight(operation: &'static str, of: Type, block: Block, form: Form) -> Body {
    Body { operation, of, block, form, chains: 8, operations: 256 }
}

const fn twelve(operation: &'static str, of: Type, block: Block, form: Form) -> Body {
    Body { operation, of, block, form, chains: 12, operations: 192 }
}

/// Every block.
const BODIES: &[Body] = &[
    one("bit", Type::Int32, block::bit_int32, Form::Bit),
    one("bit", Type::Int64, block::bit_int64, Form::Bit),
    one("add", Type::Int32, block::add_int32, Form::Sum),
    one("add", Type::Int64, block::add_int64, Form::Sum),
    one("add", Type::Float32, block::add_float32, Form::FloatSum),
    one("add", Type::Float64, block::add_float64, Form::FloatSum),
    one("mul", Type::Int32, block::mul_int32, Form::Product),
    one("mul", Type::Int64, block::mul_int64, Form::Product),
    one("mul", Type::Float32, block::mul_float32, Form::FloatProduct),
    one("mul", Type::Float64, block::mul_float64, Form::FloatProduct),
    one("div", Type::Int32, block::div_int32, Form::Quotient),
    one("div", Type::Int64, block::div_int64, Form::Quotient),
    one("div", Type::Float32, block::div_float32, Form::FloatQuotient),
    one("div", Type::Float64, block::div_float64, Form::FloatQuotient),
    one("mod", Type::Int32, block::mod_int32, Form::Remainder),
    one("mod", Type::Int64, block::mod_int64, Form::Remainder),
    eight("add_throughput", Type::Int32, block::adds_int32, Form::Sum),
    eight("add_throughput", Type::Int64, block::adds_int64, Form::Sum),
    twelve("add_throughput", Type::Float32, block::adds_float32, Form::FloatSum),
    twelve("add_throughput", Type::Float64, block::adds_float64, Form::FloatSum),
    eight("mul_throughput", Type::Int32, block::muls_int32, Form::Product),
    eight("mul_throughput", Type::Int64, block::muls_int64, Form::Product),
    twelve("mul_throughput", Type::Float32, block::muls_float32, Form::FloatProduct),
    twelve("mul_throughput", Type::Float64, block::muls_float64, Form::FloatProduct),
    one("div_throughput", Type::Int32, block::divs_int32, Form::Quotients),
    one("div_throughput", Type::Int64, block::divs_int64, Form::Quotients),
    twelve("div_throughput", Type::Float32, block::divs_float32, Form::FloatQuotient),
    twelve("div_throughput", Type::Float64, block::divs_float64, Form::FloatQuotient),
];

/// The addition that every processor executes in one cycle.
const ADDITION: Body = one("add", Type::Int64, block::add_int64, Form::Sum);

/// One operation of the id's kind on the id's type.
fn prepare(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let of_id = |body: &&Body| body.operation == id.operation() && body.of.name() == id.word(Key::Type);
    let body = match id.operation() {
        "cycle" => ADDITION,
        _ => *BODIES.iter().find(of_id).ok_or_else(|| {
            Refusal::Unavailable(format!("{id} does not exist on any processor; see 'assay bench --list'"))
        })?,
    };
    // The addition that keeps the dividend large is not part of a remainder.
    let baseline = (body.form == Form::Remainder)
        .then(|| -> Box<dyn Operation> { Box::new(Chains::new(ADDITION, &mut setting.rng)) });
    let operation = Box::new(Chains::new(body, &mut setting.rng));
    Ok(Prepared { operation, baseline, sharing: Sharing::Alone })
}

/// Additions, each of which waits for the previous one, so that their time depends only on the core clock.
pub(crate) fn additions(rng: &mut Pcg64Mcg) -> impl Operation + use<> {
    Chains::new(ADDITION, rng)
}

/// Multiplications, each of which waits only for the previous one, so that the processor can execute other
/// work during them. They keep a unit busy for only a fraction of the time, so that a hardware thread that
/// shares the core hardly delays them.
#[derive(Clone, Copy)]
pub(super) struct Multiplications {
    start: Registers,
    registers: Registers,
}

impl Multiplications {
    /// Number of multiplications in one block.
    pub(super) const BLOCK: u64 = 128;

    /// Returns multiplications that begin with a random number.
    pub(super) fn new(rng: &mut Pcg64Mcg) -> Self {
        let start = Form::FloatProduct.start(Type::Float64, rng);
        Self { start, registers: start }
    }

    /// Resets the registers to their initial values.
    pub(super) fn begin(&mut self) {
        self.registers = self.start;
    }

    /// Executes the next blocks.
    #[inline]
    pub(super) fn go_on(&mut self, blocks: u64) {
        block::mul_float64(&mut self.registers, blocks);
    }

    /// Checks that this number of blocks has been executed since the beginning.
    pub(super) fn expect(&self, blocks: u64) -> io::Result<()> {
        let due = Form::FloatProduct.after(Type::Float64, &self.start, 1, blocks * Self::BLOCK);
        if self.registers == due {
            return Ok(());
        }
        Err(io::Error::other(format!("{blocks} blocks of multiplications did not give the expected result")))
    }
}

/// Chains of dependent operations.
struct Chains {
    body: Body,
    start: Registers,
    registers: Registers,
    done: u64,
}

impl Chains {
    fn new(body: Body, rng: &mut Pcg64Mcg) -> Self {
        let start = body.form.start(body.of, rng);
        Self { body, start, registers: start, done: 0 }
    }
}

impl Operation for Chains {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.registers = self.start;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        (self.body.block)(&mut self.registers, operations / self.body.operations);
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let Body { operation, of, form, chains, .. } = self.body;
        let due = form.after(of, &self.start, chains, operations);
        if self.registers == due {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{operations} operations {operation} of {} gave {:x?} instead of {due:x?}",
            of.name(),
            self.registers
        )))
    }

    fn max_batch(&self) -> u64 {
        self.body.form.longest(self.body.of).saturating_mul(self.body.chains as u64)
    }

    fn granule(&self) -> u64 {
        self.body.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::Pattern;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    fn chains(body: &Body) -> Chains {
        Chains::new(*body, &mut Pcg64Mcg::seed_from_u64(11))
    }

    fn batch(chains: &mut Chains, operations: u64) -> io::Result<()> {
        chains.arm(operations)?;
        chains.run(operations)?;
        chains.disarm(operations)
    }

    #[test]
    fn every_block_computes_its_closed_form() {
        for body in BODIES {
            for blocks in [1, 2, 3, 64] {
                let done = batch(&mut chains(body), blocks * body.operations);
                assert!(done.is_ok(), "{} {}: {done:?}", body.operation, body.of.name());
            }
        }
    }

    #[test]
    fn one_missing_operation_in_any_chain_is_rejected() {
        for body in BODIES {
            let (mut chains, operations) = (chains(body), 2 * body.operations);
            for chain in 1..=body.chains {
                chains.arm(operations).unwrap();
                chains.run(operations).unwrap();
                let fewer =
                    body.form.after(body.of, &chains.start, body.chains, operations - body.chains as u64);
                chains.registers[chain] = fewer[chain];
                // The operands of a remainder or a quotient are in register 2.
                chains.registers[2] = if body.chains == 1 { fewer[2] } else { chains.registers[2] };
                let error = chains.disarm(operations).unwrap_err().to_string();
                assert!(error.contains(body.operation) && error.contains("instead of"), "{error}");
            }
        }
    }

    #[test]
    fn every_id_of_the_table_has_a_block_of_its_own_and_every_block_an_id() {
        let of_body = |body: &Body| format!("cpu.{}{{type={}}}", body.operation, body.of.name());
        let mut blocks: BTreeSet<String> = BODIES.iter().map(of_body).collect();
        blocks.insert("cpu.cycle".to_owned());
        let patterns = ROWS.iter().flat_map(|row| [row.quick, row.full].concat());
        let ids = patterns.flat_map(|pattern| pattern.parse::<Pattern>().unwrap().ids());
        assert_eq!(ids.map(|id| id.to_string()).collect::<BTreeSet<_>>(), blocks);
    }
}
