//! The numbers of a row as text, in less time than `fmt`: six arguments and a result.

/// Adds a number.
pub(super) fn push_decimal(text: &mut String, value: impl itoa::Integer) {
    text.push_str(itoa::Buffer::new().format(value));
}

/// Adds a number with the prefix `0x`.
pub(super) fn push_hexadecimal(text: &mut String, value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 16];
    let (mut rest, mut begin) = (value, digits.len());
    while begin == digits.len() || rest > 0 {
        let [low, ..] = rest.to_le_bytes();
        begin -= 1;
        digits[begin] = DIGITS[usize::from(low & 15)];
        rest >>= 4;
    }
    text.push_str("0x");
    text.push_str(std::str::from_utf8(&digits[begin..]).expect("the digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hexadecimal(value: u64) -> String {
        let mut text = String::new();
        push_hexadecimal(&mut text, value);
        text
    }

    proptest! {
        #[test]
        fn a_hexadecimal_number_is_that_of_fmt(value in any::<u64>(), zeros in 0..64) {
            let value = value >> zeros;
            prop_assert_eq!(hexadecimal(value), format!("{value:#x}"));
        }
    }

    #[test]
    fn zero_has_one_digit() {
        assert_eq!(hexadecimal(0), "0x0");
    }
}
