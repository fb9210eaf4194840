//! The layout of a kernel's structures, from its own description in BTF (Documentation/bpf/btf.rst of the
//! kernel's source), which it shows in `/sys/kernel/btf/vmlinux`.

use thiserror::Error;

/// Why there is no offset.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BtfError {
    /// It is not BTF, or ends early.
    #[error("the description of the kernel's structures (BTF) is damaged")]
    Damaged,
    /// The structure or its member is missing.
    #[error("the description of the kernel's structures (BTF) has no {structure}.{member}")]
    Missing {
        /// Name of the structure.
        structure: String,
        /// Name of the member.
        member: String,
    },
}

const STRUCT: u32 = 4;

/// Bytes after the three words of a type: fixed, and for each of its `vlen` elements. `None` for a kind that
/// is not known, whose length is therefore not known either.
fn length(kind: u32, vlen: usize) -> Option<usize> {
    match kind {
        // Pointer, forward declaration, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => Some(0),
        // Integer, variable, declaration tag.
        1 | 14 | 17 => Some(4),
        // Array.
        3 => Some(12),
        // Structure, union.
        STRUCT | 5 | 15 | 19 => Some(12 * vlen),
        // Enumeration, prototype.
        6 | 13 => Some(8 * vlen),
        _ => None,
    }
}

/// Returns the offset of a member in a structure, in bytes. Members of anonymous members are not searched.
///
/// # Errors
/// [`BtfError`].
pub fn offset(btf: &[u8], structure: &str, member: &str) -> Result<u64, BtfError> {
    search(btf, structure, member)
        .ok_or(BtfError::Damaged)?
        .ok_or_else(|| BtfError::Missing { structure: structure.to_owned(), member: member.to_owned() })
}

/// The outer `None` means damaged, the inner one missing.
fn search(btf: &[u8], structure: &str, member: &str) -> Option<Option<u64>> {
    if btf.get(..2)? != 0xeb9f_u16.to_le_bytes() {
        return None;
    }
    let word = |at: usize| Some(u32::from_le_bytes(btf.get(at..at + 4)?.try_into().ok()?));
    let place = |at: usize| usize::try_from(word(at)?).ok();
    let header = place(4)?;
    let section = |at: usize| {
        let begin = header.checked_add(place(at)?)?;
        Some((begin, begin.checked_add(place(at + 4)?)?))
    };
    let ((mut at, types_end), (strings, strings_end)) = (section(8)?, section(16)?);
    let is_named = |offset: u32, name: &str| {
        let begin = strings.checked_add(usize::try_from(offset).ok()?)?;
        let text = btf.get(begin..strings_end)?;
        Some(text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0))
    };
    while at < types_end {
        let (name, info) = (word(at)?, word(at + 4)?);
        let (kind, vlen) = (info >> 24 & 0x1f, usize::try_from(info & 0xffff).ok()?);
        let elements = at + 12;
        at = elements + length(kind, vlen)?;
        if kind == STRUCT && is_named(name, structure)? {
            // With this flag, the upper byte of an offset is the size of a bit field.
            let mask = if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
            for element in (elements..at).step_by(12) {
                if is_named(word(element)?, member)? {
                    return Some(Some(u64::from(word(element + 8)? & mask) / 8));
                }
            }
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer, then `struct task { int pid; int flags:1; int tgid; }` with flagged offsets.
    fn btf() -> Vec<u8> {
        let strings = b"\0int\0task\0pid\0flags\0tgid\0";
        let types: Vec<u32> = [
            [1, 1 << 24, 4, 32].as_slice(),
            &[5, 1 << 31 | STRUCT << 24 | 3, 12],
            &[10, 1, 64, 14, 1, 1 << 24 | 96, 20, 1, 128],
        ]
        .concat();
        let types_bytes = u32::try_from(types.len() * 4).unwrap();
        let mut btf = Vec::from(0xeb9f_u16.to_le_bytes());
        btf.extend([1, 0]);
        for word in [24, 0, types_bytes, types_bytes, u32::try_from(strings.len()).unwrap()] {
            btf.extend(word.to_le_bytes());
        }
        btf.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn the_offset_of_a_member_is_found() {
        assert_eq!(offset(&btf(), "task", "pid"), Ok(8));
        assert_eq!(offset(&btf(), "task", "tgid"), Ok(16));
        let missing = offset(&btf(), "task", "tgi").unwrap_err().to_string();
        assert_eq!(missing, "the description of the kernel's structures (BTF) has no task.tgi");
        assert!(offset(&btf(), "int", "pid").is_err());
    }

    #[test]
    fn no_part_of_a_description_is_one() {
        for length in 0..btf().len() {
            // The last name may end early without being asked for.
            let found = offset(&btf()[..length], "task", "tgid");
            assert_eq!(found, Err(BtfError::Damaged), "{length}");
        }
    }
}
