//! The value of an argument in the notation of strace.

use std::fmt::Write;

use super::number::{push_decimal, push_hexadecimal};
use crate::syscall::{Kind, NOT_SHOWN};

/// Adds the value of an argument of this kind.
pub(super) fn push(text: &mut String, kind: Kind, value: u64) {
    let [a, b, c, d, ..] = value.to_le_bytes();
    let low = u32::from_le_bytes([a, b, c, d]);
    let int = low.cast_signed();
    match kind {
        _ if value == NOT_SHOWN => text.push_str("..."),
        Kind::Descriptor if int == libc::AT_FDCWD => text.push_str("AT_FDCWD"),
        Kind::Int | Kind::Descriptor => push_decimal(text, int),
        Kind::Unsigned => push_decimal(text, low),
        Kind::Size => push_decimal(text, value),
        Kind::Offset => push_decimal(text, value.cast_signed()),
        Kind::Mode => {
            // Writing to a string cannot fail.
            let _ = write!(text, "0{low:02o}");
        }
        Kind::Named(names) => names.push(text, value),
        Kind::Hexadecimal if value == 0 => text.push('0'),
        Kind::Pointer | Kind::Path | Kind::Program | Kind::Address | Kind::AddressOut if value == 0 => {
            text.push_str("NULL");
        }
        Kind::Hexadecimal | Kind::Pointer | Kind::Path | Kind::Program | Kind::Address | Kind::AddressOut => {
            push_hexadecimal(text, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall;

    /// Returns the last argument of the call with this value.
    fn last(name: &str, value: u64) -> String {
        let mut text = String::new();
        push(&mut text, *syscall::arguments(syscall::number(name).unwrap()).last().unwrap(), value);
        text
    }

    #[test]
    fn a_value_has_the_notation_of_its_kind() {
        let minus_one = u64::MAX;
        assert_eq!(last("close", 0xffff_ffff_0000_0003), "3", "only the lower half counts");
        assert_eq!(last("close", minus_one), "-1");
        assert_eq!(last("fchdir", 0xffff_ff9c), "AT_FDCWD");
        assert_eq!(last("exit", 0xffff_fffe), "-2");
        assert_eq!(last("alarm", 0xffff_fffe), "4294967294");
        assert_eq!(last("read", 1 << 33), "8589934592");
        assert_eq!([last("read", minus_one), last("pread64", minus_one)], ["18446744073709551615", "-1"]);
        assert_eq!([last("umask", 0), last("umask", 0o22), last("mkdir", 0o1755)], ["000", "022", "01755"]);
        assert_eq!([last("brk", 0), last("brk", 0x7f00)], ["NULL", "0x7f00"]);
        assert_eq!([last("chdir", 0), last("chdir", 0x7f00)], ["NULL", "0x7f00"]);
        assert_eq!([last("mlockall", 0), last("mlockall", 3)], ["0", "0x3"]);
    }

    fn clone(flags: u64) -> String {
        let mut text = String::new();
        push(&mut text, syscall::arguments(syscall::number("clone").unwrap())[0], flags);
        text
    }

    #[test]
    fn constants_have_names_and_the_rest_is_a_number() {
        let minus_one = u64::MAX;
        assert_eq!([last("lseek", 2), last("lseek", 9)], ["SEEK_END", "0x9"]);
        assert_eq!([last("access", 0), last("access", 6)], ["F_OK", "R_OK|W_OK"]);
        assert_eq!([last("mprotect", 0), last("mprotect", 5)], ["PROT_NONE", "PROT_READ|PROT_EXEC"]);
        assert_eq!([last("dup3", 0o2_000_000), last("dup3", 1 << 31 | 1)], ["O_CLOEXEC", "0x80000001"]);
        assert_eq!([last("accept4", 0), last("accept4", 0x80800)], ["0", "SOCK_CLOEXEC|SOCK_NONBLOCK"]);
        assert_eq!([last("kill", 0), last("kill", 9), last("kill", 40)], ["0", "SIGKILL", "0x28"]);
        assert_eq!(last("kill", minus_one), "0xffffffff");
        assert_eq!(clone(0x1_0000_0000 | 17 | 0x1200000), "SIGCHLD|CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID");
    }
}
