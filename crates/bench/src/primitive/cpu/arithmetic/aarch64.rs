//! The blocks in AArch64 instructions.

use std::arch::asm;

use super::closed::Registers;

/// A block of `$rounds` rounds. Each round applies one instruction to every listed register, with register 0
/// as the other operand. The instructions on different registers are independent.
macro_rules! chains {
    ($name:ident, $class:ident, $mnemonic:literal, $width:literal, $rounds:literal, [$($x:ident = $at:literal)*]) => {
        #[inline]
        pub(super) fn $name(registers: &mut Registers, blocks: u64) {
            // SAFETY: arithmetic on the registers named here, without access to memory or the stack.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    concat!(".rept ", $rounds),
                    $(concat!(
                        $mnemonic, " {", stringify!($x), $width, "}, {", stringify!($x), $width, "}, {a", $width, "}"
                    ),)*
                    ".endr",
                    "subs {n}, {n}, #1",
                    "b.ne 2b",
                    $($x = inout($class) registers[$at],)*
                    a = in($class) registers[0],
                    n = inout(reg) blocks => _,
                    options(nomem, nostack),
                );
            }
        }
    };
}

/// One chain, and enough chains to keep every unit of today's processors busy: latency times units is at most
/// 8 for integers and 12 for floating point.
macro_rules! latency_and_throughput {
    (reg, $mnemonic:literal, $width:literal, $one:ident, $many:ident) => {
        chains!($one, reg, $mnemonic, $width, 128, [b = 1]);
        chains!($many, reg, $mnemonic, $width, 32, [b = 1 c = 2 d = 3 e = 4 f = 5 g = 6 h = 7 i = 8]);
    };
    (vreg, $mnemonic:literal, $width:literal, $one:ident, $many:ident) => {
        chains!($one, vreg, $mnemonic, $width, 128, [b = 1]);
        chains!($many, vreg, $mnemonic, $width, 16,
            [b = 1 c = 2 d = 3 e = 4 f = 5 g = 6 h = 7 i = 8 j = 9 k = 10 l = 11 m = 12]);
    };
}

latency_and_throughput!(reg, "add", ":w", add_int32, adds_int32);
latency_and_throughput!(reg, "add", ":x", add_int64, adds_int64);
latency_and_throughput!(reg, "mul", ":w", mul_int32, muls_int32);
latency_and_throughput!(reg, "mul", ":x", mul_int64, muls_int64);
latency_and_throughput!(vreg, "fadd", ":s", add_float32, adds_float32);
latency_and_throughput!(vreg, "fadd", ":d", add_float64, adds_float64);
latency_and_throughput!(vreg, "fmul", ":s", mul_float32, muls_float32);
latency_and_throughput!(vreg, "fmul", ":d", mul_float64, muls_float64);
latency_and_throughput!(vreg, "fdiv", ":s", div_float32, divs_float32);
latency_and_throughput!(vreg, "fdiv", ":d", div_float64, divs_float64);

/// A block of `$rounds` rounds of these instructions on registers 0, 1 and 2, called `p`, `q` and `r`.
macro_rules! block {
    ($name:ident, $rounds:literal, [$($instruction:literal)*]) => {
        #[inline]
        pub(super) fn $name(registers: &mut Registers, blocks: u64) {
            // SAFETY: arithmetic on the registers named here, without access to memory or the stack.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    concat!(".rept ", $rounds),
                    $($instruction,)*
                    ".endr",
                    "subs {n}, {n}, #1",
                    "b.ne 2b",
                    "/* {p} {q} {r} {t} */",
                    p = in(reg) registers[0],
                    q = inout(reg) registers[1],
                    r = inout(reg) registers[2],
                    t = out(reg) _,
                    n = inout(reg) blocks => _,
                    options(nomem, nostack),
                );
            }
        }
    };
}

// Exclusive or of two registers, alternately into each of them.
block!(bit_int32, 64, ["eor {q:w}, {q:w}, {r:w}" "eor {r:w}, {r:w}, {q:w}"]);
block!(bit_int64, 64, ["eor {q:x}, {q:x}, {r:x}" "eor {r:x}, {r:x}, {q:x}"]);

// Signed division of register 0 by register 1, and the sum of the quotients in register 2. In a chain the
// quotient becomes the next divisor.
block!(div_int32, 128, ["sdiv {q:w}, {p:w}, {q:w}" "add {r:w}, {r:w}, {q:w}"]);
block!(div_int64, 128, ["sdiv {q:x}, {p:x}, {q:x}" "add {r:x}, {r:x}, {q:x}"]);
block!(divs_int32, 128, ["sdiv {t:w}, {p:w}, {q:w}" "add {r:w}, {r:w}, {t:w}"]);
block!(divs_int64, 128, ["sdiv {t:x}, {p:x}, {q:x}" "add {r:x}, {r:x}, {t:x}"]);

// Signed remainder of register 1 plus register 0 by register 2, which becomes register 1.
block!(mod_int32, 128, ["add {q:w}, {q:w}, {p:w}" "sdiv {t:w}, {q:w}, {r:w}" "msub {q:w}, {t:w}, {r:w}, {q:w}"]);
block!(mod_int64, 128, ["add {q:x}, {q:x}, {p:x}" "sdiv {t:x}, {q:x}, {r:x}" "msub {q:x}, {t:x}, {r:x}, {q:x}"]);
