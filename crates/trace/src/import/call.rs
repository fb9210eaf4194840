//! One call in the notation of strace: `openat(AT_FDCWD, "x", O_RDONLY) = 3</tmp/x> <0.000036>`.

use std::borrow::Cow;

use super::{
    address,
    notation::{Arguments, Quoted, find, object, quoted, unescaped},
    object::{Object, Objects, of_domain, of_mode, of_peer},
    value::{Value, combined, errno, number},
};
use crate::{
    descriptor::Descriptor,
    record::Content,
    syscall::{self, Argument, Kind, NOT_SHOWN, Outcome},
};

/// A call of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub number: u16,
    pub args: [u64; 6],
    /// Its paths and socket addresses.
    pub contents: Vec<Content>,
    /// A negative errno if it failed; `None` if it did not return.
    pub result: Option<i64>,
    pub object: Object,
    /// `None` if the log has no elapsed times.
    pub elapsed_ns: Option<u64>,
    /// The thread that it created.
    pub child: Option<Child>,
    /// Arguments with a constant whose value is not known.
    pub unnamed: u64,
}

/// A new thread, or the thread of a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub thread: u32,
    /// Whether its process is that of the thread that created it.
    pub is_thread: bool,
    /// Whether it uses the memory of its parent.
    pub borrows: bool,
}

/// Reads a call; `None` if the text is none.
pub(super) fn parse(text: &[u8], objects: &mut Objects) -> Option<Parsed> {
    let open = find(text, b"(")?;
    let (name, number) = (&text[..open], number_of(&text[..open])?);
    let (arguments, rest) = Arguments::split(&text[open + 1..])?;
    let (result, elapsed_ns) = elapsed(rest.trim_ascii().strip_prefix(b"=")?.trim_ascii());
    let mut call = Parsed { number, elapsed_ns, result: self::result(result)?, ..Parsed::default() };
    match arguments.named("flags") {
        Some(_) if name == b"clone" => call.args = clone(&arguments),
        _ => call.arguments(&arguments),
    }
    call.learn(name, &arguments, result, objects);
    call.object = call.used(&arguments, result, objects);
    call.child = call.created(name, &arguments, result);
    Some(call)
}

/// Returns the number of a call; a call without a name is shown as `syscall_0x1f5`.
fn number_of(name: &[u8]) -> Option<u16> {
    let name = std::str::from_utf8(name).ok()?;
    syscall::number(name).or_else(|| {
        let number = number(name.strip_prefix("syscall_")?.as_bytes())?;
        u16::try_from(number).ok().filter(|number| usize::from(*number) < syscall::CALLS)
    })
}

/// Splits the elapsed time, `<0.000036>`, from the end of a result.
fn elapsed(text: &[u8]) -> (&[u8], Option<u64>) {
    let split = || {
        let (rest, time) = text.split_at_checked(text.iter().rposition(|byte| *byte == b'<')?)?;
        let elapsed_ns = nanoseconds(time.strip_prefix(b"<")?.strip_suffix(b">")?)?;
        Some((rest.trim_ascii_end(), elapsed_ns))
    };
    split().map_or((text, None), |(rest, elapsed_ns)| (rest, Some(elapsed_ns)))
}

/// Returns seconds with a fraction, `1.000036`, in ns.
pub(super) fn nanoseconds(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = text.split_at_checked(find(text, b".")?)?;
    let (seconds, fraction) = (digits(seconds)?, &fraction[1..]);
    let unit = 10_u64.checked_pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(digits(fraction)? * unit)
}

/// Returns a decimal number without a sign, which may begin with zeros.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Returns the result of a call: `None` in `Some` if it did not return.
fn result(text: &[u8]) -> Option<Option<i64>> {
    let end = text.iter().position(|byte| b" <".contains(byte)).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    let rest = rest.trim_ascii();
    let errno = match rest.strip_prefix(b"(errno ").and_then(|rest| rest.strip_suffix(b")")) {
        Some(unnamed) => digits(unnamed).and_then(|errno| u16::try_from(errno).ok()),
        None => rest.split(|byte| *byte == b' ').next().and_then(errno),
    };
    match (first, errno) {
        (b"?", None) => Some(None),
        (b"-1" | b"?", Some(errno)) => Some(Some(-i64::from(errno))),
        // An error without a number.
        (b"-1", None) if !rest.is_empty() => None,
        _ => number(first).map(|value| Some(value.cast_signed())),
    }
}

/// Returns the arguments of `clone` in the order of the registers: strace shows them by name.
fn clone(arguments: &Arguments<'_>) -> [u64; 6] {
    let value = |name| match arguments.named(name) {
        Some([b'[', ..]) => NOT_SHOWN,
        Some(text) => value(text),
        None => 0,
    };
    #[cfg(target_arch = "x86_64")]
    let order = ["flags", "child_stack", "parent_tid", "child_tidptr", "tls"];
    #[cfg(not(target_arch = "x86_64"))]
    let order = ["flags", "child_stack", "parent_tid", "tls", "child_tidptr"];
    let mut args = [0; 6];
    args.iter_mut().zip(order).for_each(|(arg, name)| *arg = value(name));
    args
}

impl Parsed {
    fn arguments(&mut self, arguments: &Arguments<'_>) {
        let mut shown = 0;
        for (position, kind) in syscall::arguments(self.number).iter().enumerate() {
            // strace does not show an argument that has no meaning for the operation of the call.
            if syscall::uses(self.number, &self.args, position) {
                self.argument(position, *kind, arguments.get(shown));
                shown += 1;
            }
        }
    }

    fn argument(&mut self, position: usize, kind: Kind, text: &[u8]) {
        let content = match kind {
            Kind::Path | Kind::Program => quoted(text),
            Kind::Address | Kind::AddressOut => address::parse(text),
            _ => None,
        };
        if let Some(Quoted { bytes, is_cut }) = content {
            let argument = u8::try_from(position).unwrap_or_default();
            self.contents.push(Content { argument, is_cut, bytes });
        }
        self.args[position] = match kind {
            Kind::Pointer | Kind::Path | Kind::Program | Kind::Address | Kind::AddressOut => {
                if text == b"NULL" { 0 } else { number(text).unwrap_or(NOT_SHOWN) }
            }
            // A structure, a string, or nothing.
            _ if text.first().is_none_or(|first| b"{[\"".contains(first)) => NOT_SHOWN,
            _ => match combined(text) {
                Value::Known(value) => value,
                Value::Unnamed(value) => {
                    self.unnamed += 1;
                    value
                }
            },
        };
    }

    /// Returns the object that the call used or, if it succeeded, returned.
    fn used(&self, arguments: &Arguments<'_>, result: &[u8], objects: &Objects) -> Object {
        let rule = syscall::rule(self.number);
        let succeeded = self.result.is_some_and(|result| result >= 0);
        let (text, number) = match rule.descriptor {
            _ if succeeded && rule.result == Outcome::Descriptor => (result, 0),
            Argument::None => return Object::default(),
            Argument::At(index) | Argument::Maybe(index) => {
                (arguments.get(index.into()), self.args[usize::from(index)])
            }
        };
        // A descriptor is an `int`.
        let is_negative = number >> 31 & 1 == 1;
        match shown(text) {
            _ if is_negative && matches!(rule.descriptor, Argument::Maybe(_)) => Object::default(),
            _ if is_negative => Object { kind: Descriptor::Bad, inode: 0 },
            Some(object) => objects.object(&object),
            None if self.result == Some(-i64::from(libc::EBADF)) => {
                Object { kind: Descriptor::Bad, inode: 0 }
            }
            None => Object { kind: Descriptor::Unknown, inode: 0 },
        }
    }

    /// Remembers the kinds of objects that this call shows.
    fn learn(&self, name: &[u8], arguments: &Arguments<'_>, result: &[u8], objects: &mut Objects) {
        if self.result.is_none_or(|result| result < 0) {
            return;
        }
        let first = arguments.get(0);
        let path = self.contents.first().map(|path| path.bytes.as_slice()).unwrap_or_default();
        let accepts = name.starts_with(b"accept").then(|| {
            let listening = shown(first).map(|text| objects.object(&text).kind);
            let peer = address::family(arguments.get(1)).map(of_peer);
            listening.filter(|kind| *kind != Descriptor::Unknown).or(peer)
        });
        let mut learn = |text, kind: Option<Descriptor>| {
            if let (Some(object), Some(kind)) = (shown(text), kind) {
                objects.learn(&object, kind);
            }
        };
        let domain = || Some(of_domain(self.args[0], self.args[1]));
        let opened = |flags: usize| {
            let is_directory = self.args[flags] & u64::from(libc::O_DIRECTORY.cast_unsigned()) != 0;
            is_directory.then_some(Descriptor::Directory)
        };
        match name {
            b"socket" => learn(result, domain()),
            b"socketpair" => {
                let pair = arguments.get(3).split(|byte| *byte == b',');
                pair.for_each(|socket| learn(socket, domain()));
            }
            b"accept" | b"accept4" => {
                learn(first, accepts.flatten());
                learn(result, accepts.flatten());
            }
            b"getdents" | b"getdents64" | b"fchdir" => learn(first, Some(Descriptor::Directory)),
            b"open" => learn(result, opened(1)),
            b"openat" => learn(result, opened(2)),
            b"fstat" => learn(first, of_mode(arguments.get(1))),
            b"newfstatat" if path.is_empty() => learn(first, of_mode(arguments.get(2))),
            b"statx" if path.is_empty() => learn(first, of_mode(arguments.get(4))),
            _ => {}
        }
        // The path begins at the descriptor.
        let is_relative = !path.is_empty() && path[0] != b'/' && name != b"inotify_add_watch";
        if is_relative && matches!(syscall::arguments(self.number), [Kind::Descriptor, Kind::Path, ..]) {
            learn(first, Some(Descriptor::Directory));
        }
    }

    /// Returns the thread that the call created.
    fn created(&self, name: &[u8], arguments: &Arguments<'_>, result: &[u8]) -> Option<Child> {
        let thread = u32::try_from(self.result?).ok().filter(|thread| *thread > 0)?;
        let thread = in_namespace(result).unwrap_or(thread);
        let flags = match name {
            b"fork" => 0,
            b"vfork" => libc::CLONE_VM,
            b"clone" => flags(self.args[0]),
            b"clone3" => flags(value(arguments.get(0).strip_prefix(b"{flags=")?)),
            _ => return None,
        };
        let has = |flag| flags & flag != 0;
        Some(Child { thread, is_thread: has(libc::CLONE_THREAD), borrows: has(libc::CLONE_VM) })
    }
}

/// Returns the value of the constants before the next comma or brace.
fn value(text: &[u8]) -> u64 {
    let end = text.iter().position(|byte| b",}".contains(byte)).unwrap_or(text.len());
    let (Value::Known(value) | Value::Unnamed(value)) = combined(&text[..end]);
    value
}

/// Returns flags as far as an `int` has them.
fn flags(value: u64) -> libc::c_int {
    libc::c_int::try_from(value & 0x7fff_ffff).unwrap_or_default()
}

/// Returns what the descriptor in `text` refers to, if strace shows it. With `-xx`, it is escaped.
fn shown(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let object = object(&text[find(text, b"<")?..])?;
    Some(if object.contains(&b'\\') { unescaped(object).into() } else { object.into() })
}

/// Returns the number that a new thread has for strace, if it has another one for its parent.
fn in_namespace(result: &[u8]) -> Option<u32> {
    let number = &result[find(result, b"/* ")? + b"/* ".len()..];
    let end = find(number, b" in strace's PID NS")?;
    u32::try_from(digits(&number[..end])?).ok()
}
