//! Limits of the numbers in an id. Those in the rows are examples, and any other number can be requested; a
//! number that a benchmark does not support is rejected here with the supported range.

use std::ops::RangeInclusive;

use assay_quantity::{Key, PrimitiveId, Size};

use crate::benchmark::Refusal;

/// Returns the bytes of one operation. Fails if the size is outside of the range.
pub(crate) fn size(id: &PrimitiveId, possible: RangeInclusive<Size>) -> Result<usize, Refusal> {
    let (least, most) = (possible.start().bytes(), possible.end().bytes());
    number(id, Key::Size, least..=most)
        .ok_or_else(|| refused(id, Key::Size, &possible.start().to_string(), &possible.end().to_string()))
}

/// Returns the count that a key specifies. Fails if it is outside of the range.
pub(crate) fn count(id: &PrimitiveId, key: Key, possible: RangeInclusive<u64>) -> Result<usize, Refusal> {
    let (least, most) = (possible.start().to_string(), possible.end().to_string());
    number(id, key, possible).ok_or_else(|| refused(id, key, &least, &most))
}

fn number(id: &PrimitiveId, key: Key, possible: RangeInclusive<u64>) -> Option<usize> {
    let number = id.number(key).filter(|number| possible.contains(number))?;
    usize::try_from(number).ok()
}

fn refused(id: &PrimitiveId, key: Key, least: &str, most: &str) -> Refusal {
    let name = key.row().name;
    Refusal::Unavailable(format!(
        "{name} of {id} must be between {least} and {most}; choose a value in this range"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_within_the_limits_are_accepted_and_others_rejected_with_the_limits() {
        let size = |text: &str| size(&text.parse().unwrap(), Size(1)..=Size::mib(1));
        assert_eq!(size("file.read{size=1B}").unwrap(), 1);
        assert_eq!(size("file.read{size=1MiB}").unwrap(), 1 << 20);
        for text in ["file.read{size=0B}", "file.read{size=1048577B}", "file.read"] {
            let refusal = size(text).unwrap_err().to_string();
            assert!(refusal.contains("must be between 1B and 1MiB"), "{text}: {refusal}");
        }
        let refusal =
            count(&"poll.wait{descriptors=9}".parse().unwrap(), Key::Descriptors, 1..=8).unwrap_err();
        assert!(refusal.to_string().contains("descriptors of poll.wait{descriptors=9}"), "{refusal}");
    }
}
