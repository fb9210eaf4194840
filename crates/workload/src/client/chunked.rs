//! The chunked transfer coding (RFC 9112, section 7.1), decoded as it arrives: pure, without a buffer, all
//! limits constant. Chunk extensions and trailers are skipped.

/// Maximum number of characters of a chunk's size line or of all trailers together.
const LINE_BYTES_MAX: usize = 4096;

/// Description of a violation of the coding.
pub(crate) type Violation = &'static str;

/// Position of the next byte in the coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Size { digits: u8 },
    Extension,
    SizeLineFeed,
    Body,
    BodyCarriageReturn,
    BodyLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    End,
}

/// A decoder of one body.
#[derive(Debug)]
pub(crate) struct Chunked {
    place: Place,
    /// For the current chunk: its size while the size is read, then the number of its remaining bytes.
    left: u64,
    /// Bytes of the current line, or of the trailers so far.
    line_bytes: usize,
}

/// The result of decoding a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Number of input bytes that belong to the body.
    pub(crate) used: usize,
    /// Whether the body has ended.
    pub(crate) end: bool,
}

impl Chunked {
    /// Creates a decoder for a new body.
    pub(crate) fn new() -> Chunked {
        Chunked { place: Place::Size { digits: 0 }, left: 0, line_bytes: 0 }
    }

    /// Decodes `bytes` and passes the pieces of the content to `content`, which may reject them.
    pub(crate) fn feed<E: From<Violation>>(
        &mut self,
        bytes: &[u8],
        mut content: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Decoded, E> {
        let mut used = 0;
        while used < bytes.len() && self.place != Place::End {
            if self.place == Place::Body {
                let rest = &bytes[used..];
                let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                content(&rest[..length])?;
                used += length;
                self.left -= length as u64;
                if self.left == 0 {
                    self.place = Place::BodyCarriageReturn;
                }
            } else {
                self.place = self.after(bytes[used])?;
                used += 1;
            }
        }
        Ok(Decoded { used, end: self.place == Place::End })
    }

    /// Returns the position after `byte`, which is not part of the content.
    fn after(&mut self, byte: u8) -> Result<Place, Violation> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err("a chunk's size line or the trailers are too long");
        }
        match (self.place, byte) {
            (Place::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.left = self.left << 4 | u64::from(digit);
                Ok(Place::Size { digits: digits + 1 })
            }
            (Place::Size { digits: 1.. }, b';') => Ok(Place::Extension),
            (Place::Size { digits: 1.. } | Place::Extension, b'\r') => Ok(Place::SizeLineFeed),
            (Place::Size { .. }, _) => Err("a chunk's size is not a hexadecimal number"),
            (Place::Extension, b'\n') => Err("a bare line feed ends a chunk's size"),
            (Place::Extension, _) => Ok(Place::Extension),
            (Place::SizeLineFeed, b'\n') => {
                self.line_bytes = 0;
                Ok(if self.left == 0 { Place::TrailerStart } else { Place::Body })
            }
            (Place::BodyCarriageReturn, b'\r') => Ok(Place::BodyLineFeed),
            (Place::BodyLineFeed, b'\n') => {
                self.line_bytes = 0;
                Ok(Place::Size { digits: 0 })
            }
            (Place::BodyCarriageReturn | Place::BodyLineFeed, _) => Err("a chunk is longer than its size"),
            (Place::TrailerStart, b'\r') => Ok(Place::LastLineFeed),
            (Place::TrailerStart | Place::Trailer, b'\n') => Err("a bare line feed ends a trailer"),
            (Place::Trailer, b'\r') => Ok(Place::TrailerLineFeed),
            (Place::TrailerStart | Place::Trailer, _) => Ok(Place::Trailer),
            (Place::TrailerLineFeed, b'\n') => Ok(Place::TrailerStart),
            (Place::LastLineFeed, b'\n') => Ok(Place::End),
            (Place::SizeLineFeed | Place::TrailerLineFeed | Place::LastLineFeed, _) => {
                Err("a carriage return without a line feed")
            }
            (Place::Body | Place::End, _) => Err("a byte of the content was parsed as part of the coding"),
        }
    }
}
