//! The notation of strace: arguments between commas, strings in C, descriptors with what they refer to.

/// The most arguments that a call of Linux takes.
pub(super) const ARGUMENTS_MAX: usize = 6;

/// The arguments of a call as text.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    texts: [&'a [u8]; ARGUMENTS_MAX],
    count: usize,
}

impl<'a> Arguments<'a> {
    /// Splits the arguments from the rest of a call after its opening parenthesis. Returns them and the text
    /// after the closing one; `None` if there is none.
    pub fn split(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut arguments = Self::default();
        let (mut at, mut begin, mut depth) = (0, 0, 0_usize);
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => at += string(&text[at..])? - 1,
                b'/' if text[at..].starts_with(b"/*") => at += find(&text[at..], b"*/")? + 1,
                b'<' if text.get(at + 1) == Some(&b'<') => at += 1,
                b'<' => at += object(&text[at..])?.len() + 1,
                b'(' | b'[' | b'{' => depth += 1,
                b')' if depth == 0 => {
                    arguments.push(&text[begin..at]);
                    return Some((arguments, &text[at + 1..]));
                }
                b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
                b',' if depth == 0 => {
                    arguments.push(&text[begin..at]);
                    begin = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Returns an argument; empty if there is none.
    pub fn get(&self, position: usize) -> &'a [u8] {
        self.texts.get(position).copied().unwrap_or_default()
    }

    /// Returns the value of an argument that strace shows with its name, `flags=SIGCHLD`.
    pub fn named(&self, name: &str) -> Option<&'a [u8]> {
        self.texts.iter().find_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    fn push(&mut self, text: &'a [u8]) {
        // A call has no more; what a damaged line has after them is not an argument.
        if let Some(place) = self.texts.get_mut(self.count) {
            *place = text.trim_ascii();
            self.count += 1;
        }
    }
}

/// The content of a string in C.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    pub bytes: Vec<u8>,
    /// Whether dots after it show that it continues.
    pub is_cut: bool,
}

/// Reads the string with which `text` begins; `None` if there is none or it does not end.
pub(super) fn quoted(text: &[u8]) -> Option<Quoted> {
    let length = string(text)?;
    Some(Quoted { bytes: unescaped(&text[1..length - 1]), is_cut: text[length..].starts_with(b"...") })
}

/// Returns the length of the string with which `text` begins, with its quotes.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    (text.first() == Some(&b'"')).then_some(())?;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Replaces the escapes of a string in C by what they mean.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let Some((escape, after)) = rest.split_first() else { break };
        let (byte, used) = match escape {
            b't' => (b'\t', 1),
            b'n' => (b'\n', 1),
            b'v' => (0x0b, 1),
            b'f' => (0x0c, 1),
            b'r' => (b'\r', 1),
            b'x' => digits(after, 16, 2).map_or((b'x', 1), |(byte, length)| (byte, length + 1)),
            b'0'..=b'7' => digits(rest, 8, 3).unwrap_or((*escape, 1)),
            other => (*other, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    bytes
}

/// Reads up to `most` digits. Returns the low byte of the number and how many there are.
fn digits(text: &[u8], radix: u32, most: usize) -> Option<(u8, usize)> {
    let digits = text.iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix));
    let (length, value) = digits.fold((0, 0), |(length, value), digit| (length + 1, value * radix + digit));
    (length > 0).then(|| (value.to_le_bytes()[0], length))
}

/// Returns what a descriptor refers to, of `</etc/passwd>` what is between the angle brackets; `None` if
/// `text` does not begin with one that is closed.
pub(super) fn object(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"<")?;
    let name = inside.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
    // The addresses of a connection are between square brackets, with an arrow.
    if inside[name..].starts_with(b":[") {
        return find(inside, b"]>").map(|end| &inside[..=end]);
    }
    let mut depth = 1;
    let end = inside.iter().position(|byte| {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some(&inside[..end])
}

/// Returns the position of the first occurrence.
pub(super) fn find(text: &[u8], sought: &[u8]) -> Option<usize> {
    text.windows(sought.len()).position(|window| window == sought)
}
