//! The blocks in x86-64 instructions: scalar SSE2 for floating point, as every compiler emits it.

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
                    $(concat!($mnemonic, " {", stringify!($x), $width, "}, {a", $width, "}"),)*
                    ".endr",
                    "dec {n}",
                    "jnz 2b",
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
    (xmm_reg, $mnemonic:literal, $one:ident, $many:ident) => {
        chains!($one, xmm_reg, $mnemonic, "", 128, [b = 1]);
        chains!($many, xmm_reg, $mnemonic, "", 16,
            [b = 1 c = 2 d = 3 e = 4 f = 5 g = 6 h = 7 i = 8 j = 9 k = 10 l = 11 m = 12]);
    };
}

latency_and_throughput!(reg, "add", ":e", add_int32, adds_int32);
latency_and_throughput!(reg, "add", ":r", add_int64, adds_int64);
latency_and_throughput!(reg, "imul", ":e", mul_int32, muls_int32);
latency_and_throughput!(reg, "imul", ":r", mul_int64, muls_int64);
latency_and_throughput!(xmm_reg, "addss", add_float32, adds_float32);
latency_and_throughput!(xmm_reg, "addsd", add_float64, adds_float64);
latency_and_throughput!(xmm_reg, "mulss", mul_float32, muls_float32);
latency_and_throughput!(xmm_reg, "mulsd", mul_float64, muls_float64);
latency_and_throughput!(xmm_reg, "divss", div_float32, divs_float32);
latency_and_throughput!(xmm_reg, "divsd", div_float64, divs_float64);

/// Exclusive or of two registers, alternately into each of them.
macro_rules! bit {
    ($name:ident, $width:literal) => {
        #[inline]
        pub(super) fn $name(registers: &mut Registers, blocks: u64) {
            // SAFETY: arithmetic on the registers named here, without access to memory or the stack.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    ".rept 64",
                    concat!("xor {x", $width, "}, {y", $width, "}"),
                    concat!("xor {y", $width, "}, {x", $width, "}"),
                    ".endr",
                    "dec {n}",
                    "jnz 2b",
                    x = inout(reg) registers[1],
                    y = inout(reg) registers[2],
                    n = inout(reg) blocks => _,
                    options(nomem, nostack),
                );
            }
        }
    };
}

bit!(bit_int32, ":e");
bit!(bit_int64, ":r");

/// Signed division of register 0 by register 1, and the sum of the quotients in register 2. In a chain the
/// quotient becomes the next divisor, by a move that this instruction set requires.
macro_rules! div {
    ($name:ident, $width:literal, $dividend:literal, $extend:literal, [$($next:literal)?]) => {
        #[inline]
        pub(super) fn $name(registers: &mut Registers, blocks: u64) {
            // SAFETY: arithmetic on the registers named here, without access to memory or the stack. The
            // divisors are positive and the quotients fit, by the choice of the starting values.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    ".rept 128",
                    concat!("mov ", $dividend, ", {c", $width, "}"),
                    $extend,
                    concat!("idiv {x", $width, "}"),
                    $(concat!($next, " {x", $width, "}, ", $dividend),)?
                    concat!("add {sum", $width, "}, ", $dividend),
                    ".endr",
                    "dec {n}",
                    "jnz 2b",
                    c = in(reg) registers[0],
                    x = inout(reg) registers[1],
                    sum = inout(reg) registers[2],
                    n = inout(reg) blocks => _,
                    out("rax") _,
                    out("rdx") _,
                    options(nomem, nostack),
                );
            }
        }
    };
}

div!(div_int32, ":e", "eax", "cdq", ["mov"]);
div!(div_int64, ":r", "rax", "cqo", ["mov"]);
div!(divs_int32, ":e", "eax", "cdq", []);
div!(divs_int64, ":r", "rax", "cqo", []);

/// Signed remainder of register 1 plus register 0 by register 2, which becomes register 1.
macro_rules! remainder {
    ($name:ident, $width:literal, $add:literal, $extend:literal) => {
        #[inline]
        pub(super) fn $name(registers: &mut Registers, blocks: u64) {
            // SAFETY: arithmetic on the registers named here, without access to memory or the stack. The
            // divisor is positive and the quotients fit, by the choice of the starting values.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    ".rept 128",
                    $add,
                    $extend,
                    concat!("idiv {d", $width, "}"),
                    ".endr",
                    "dec {n}",
                    "jnz 2b",
                    c = in(reg) registers[0],
                    d = in(reg) registers[2],
                    n = inout(reg) blocks => _,
                    out("rax") _,
                    inout("rdx") registers[1],
                    options(nomem, nostack),
                );
            }
        }
    };
}

remainder!(mod_int32, ":e", "lea eax, [rdx + {c:r}]", "cdq");
remainder!(mod_int64, ":r", "lea rax, [rdx + {c:r}]", "cqo");
