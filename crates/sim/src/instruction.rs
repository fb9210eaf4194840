//! Instructions that mean something by themselves, in any kernel and any program.

/// The instruction that marks the beginning of what is observed: `nopl X(%rax,%rax,1)`, with an X that no
/// compiler writes.
pub const BEGIN: [u8; 8] = *b"\x0f\x1f\x84\x00asy\x01";

/// The instruction that marks its end.
pub const END: [u8; 8] = *b"\x0f\x1f\x84\x00asy\x02";

/// The instruction that asks for a snapshot of the counts, whose number is in `rdi`.
pub const SNAPSHOT: [u8; 8] = *b"\x0f\x1f\x84\x00asy\x03";

/// Whether an instruction is a repeated string instruction: prefixes with one of the two for repetition, and
/// the opcode of `ins`, `outs`, `movs`, `cmps`, `stos`, `lods` or `scas` (Intel SDM volume 2, chapter 2 and
/// appendix A).
#[must_use]
pub fn is_repeated(instruction: &[u8]) -> bool {
    let mut repeated = false;
    for byte in instruction {
        match byte {
            0xf2 | 0xf3 => repeated = true,
            // Segments, sizes of operands and addresses, REX.
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0x40..=0x4f => {}
            0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => return repeated,
            _ => return false,
        }
    }
    false
}

/// Whether an instruction is a return within a privilege level: `ret`, also with a prefix or the number of
/// bytes to remove from the stack.
#[must_use]
pub fn is_return(instruction: &[u8]) -> bool {
    matches!(instruction, [0xc3] | [0xf2 | 0xf3, 0xc3] | [0xc2, _, _])
}

/// Whether an instruction reads the time stamp counter: `rdtsc`, `rdtscp`.
#[must_use]
pub fn reads_clock(instruction: &[u8]) -> bool {
    matches!(instruction, [0x0f, 0x31] | [0x0f, 0x01, 0xf9])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_string_instructions_are_found_by_their_prefix_and_opcode() {
        let repeated: [&[u8]; 8] = [
            b"\xf3\xaa",             // rep stosb
            b"\xf3\x48\xab",         // rep stosq
            b"\xf3\xa4",             // rep movsb
            b"\x66\xf3\xa5",         // rep movsw
            b"\x65\x67\xf3\x48\xa5", // rep movsq %gs:(%esi),%es:(%edi)
            b"\xf2\xae",             // repne scasb
            b"\xf3\xa6",             // repe cmpsb
            b"\xf3\x6e",             // rep outsb
        ];
        assert!(repeated.into_iter().all(is_repeated));
        let others: [&[u8]; 9] = [
            b"\xf3\x90",             // pause
            b"\xf3\x0f\x1e\xfa",     // endbr64
            b"\xf3\x48\x0f\xb8\xc0", // popcnt
            b"\xf3\xc3",             // ret with a prefix
            b"\xf3\x0f\x6f\x07",     // movdqu
            b"\xf2\xe8\0\0\0\0",     // call with a prefix
            b"\xa4",                 // movsb, once
            b"\xa8\xf3",             // test
            b"\xf3",                 // cut
        ];
        assert!(!others.into_iter().any(is_repeated));
    }

    #[test]
    fn returns_are_found_with_and_without_prefix_and_number() {
        let returns: [&[u8]; 3] = [b"\xc3", b"\xf3\xc3", b"\xc2\x08\0"];
        assert!(returns.into_iter().all(is_return));
        let others: [&[u8]; 3] = [b"\xcb", b"\x48\xcf", b"\xc3\xc3"];
        assert!(!others.into_iter().any(is_return));
    }

    #[test]
    fn the_clock_is_read_by_two_instructions() {
        assert!(reads_clock(b"\x0f\x31") && reads_clock(b"\x0f\x01\xf9"));
        assert!(!reads_clock(b"\x0f\x01\xf8")); // swapgs
    }
}
