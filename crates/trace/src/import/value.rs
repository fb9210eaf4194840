//! The values of arguments: numbers, and constants by name.

use std::{collections::HashMap, sync::LazyLock};

use super::notation::find;
use crate::syscall;

/// Returns the number with which a text consists, in the notation of C; `None` if it is none.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (radix, digits) = match digits {
        [b'0', b'x', hexadecimal @ ..] => (16, hexadecimal),
        [b'0', octal @ ..] if !octal.is_empty() => (8, octal),
        decimal => (10, decimal),
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(radix)?;
        value.checked_mul(radix.into())?.checked_add(digit.into())
    })?;
    Some(if is_negative { value.wrapping_neg() } else { value })
}

/// A value of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// It is in the text.
    Known(u64),
    /// The text has a constant that has no value here; the other constants are in the number.
    Unnamed(u64),
}

/// Returns the value of constants and numbers that are combined, `O_RDONLY|O_CLOEXEC`.
pub(super) fn combined(text: &[u8]) -> Value {
    let text = find(text, b"/*").map_or(text, |comment| text[..comment].trim_ascii_end());
    let object = find(text, b"<").filter(|object| text.get(object + 1) != Some(&b'<'));
    let text = object.map_or(text, |object| &text[..object]);
    if let Some(value) = number(text) {
        return Value::Known(value);
    }
    let values = text.split(|byte| *byte == b'|').map(|word| number(word).or_else(|| constant(word)));
    values.fold(Value::Known(0), |sum, value| match (sum, value) {
        (Value::Known(sum), Some(value)) => Value::Known(sum | value),
        (Value::Unnamed(sum), value) => Value::Unnamed(sum | value.unwrap_or_default()),
        (Value::Known(sum), None) => Value::Unnamed(sum),
    })
}

/// Returns the value of a constant, or the number of a real-time signal, `SIGRT_2`.
pub(super) fn constant(name: &[u8]) -> Option<u64> {
    const FIRST_REAL_TIME_SIGNAL: u64 = 32;
    if let Some(signal) = name.strip_prefix(b"SIGRT_").and_then(number) {
        return FIRST_REAL_TIME_SIGNAL.checked_add(signal);
    }
    static CONSTANTS: LazyLock<HashMap<&'static str, u64>> =
        LazyLock::new(|| syscall::constants().map(|(value, name)| (name, value)).collect());
    CONSTANTS.get(std::str::from_utf8(name).ok()?).copied()
}

/// Returns the number of an errno.
pub(super) fn errno(name: &[u8]) -> Option<u16> {
    static ERRNOS: LazyLock<HashMap<&'static str, u16>> = LazyLock::new(|| {
        let named = |errno: u16| Some((syscalls::Errno::new(errno.into()).name()?, errno));
        (1..4096).filter_map(named).collect()
    });
    ERRNOS.get(std::str::from_utf8(name).ok()?).copied()
}
