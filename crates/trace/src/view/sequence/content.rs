//! The contents of arguments in the notation of strace: paths as strings in C, socket addresses by their
//! fields.

use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::{
    record::Content,
    syscall::{FAMILY, Kind},
};

/// Adds the content of an argument of this kind.
pub(super) fn push(text: &mut String, kind: Kind, content: &Content) {
    match kind {
        Kind::Address | Kind::AddressOut => text.push_str(&address(&content.bytes)),
        _ => push_string(text, &content.bytes),
    }
    if content.is_cut {
        text.push_str("...");
    }
}

/// Adds the bytes as they are between the quotes of a string in C.
pub(super) fn push_escaped(text: &mut String, bytes: &[u8]) {
    for (position, byte) in bytes.iter().enumerate() {
        let digit_follows = bytes.get(position + 1).is_some_and(u8::is_ascii_digit);
        // Writing to a string cannot fail.
        let _ = match byte {
            b'"' | b'\\' => write!(text, "\\{}", char::from(*byte)),
            b'\t' => write!(text, "\\t"),
            b'\n' => write!(text, "\\n"),
            0x0b => write!(text, "\\v"),
            0x0c => write!(text, "\\f"),
            b'\r' => write!(text, "\\r"),
            0x20..0x7f => text.write_char(char::from(*byte)),
            // Otherwise the digit would be part of the octal number.
            _ if digit_follows => write!(text, "\\{byte:03o}"),
            _ => write!(text, "\\{byte:o}"),
        };
    }
}

/// Adds the bytes as a string in C.
fn push_string(text: &mut String, bytes: &[u8]) {
    text.push('"');
    push_escaped(text, bytes);
    text.push('"');
}

/// Returns the bytes as a string in C.
fn string(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_string(&mut text, bytes);
    text
}

/// Returns the bytes of a `struct sockaddr`. An address of another family, or that is shorter than its family
/// requires, has its bytes as a string.
fn address(bytes: &[u8]) -> String {
    let Some((family, data)) = bytes.split_first_chunk() else { return string(bytes) };
    let family = u16::from_le_bytes(*family);
    let fields = match i32::from(family) {
        _ if data.is_empty() => Some(String::new()),
        libc::AF_UNIX => Some(unix(data)),
        libc::AF_INET => inet(data),
        libc::AF_INET6 => inet6(data),
        libc::AF_NETLINK => netlink(data),
        _ => None,
    };
    let mut name = String::new();
    FAMILY.push(&mut name, family.into());
    let fields = fields.unwrap_or_else(|| format!(", sa_data={}", string(data)));
    format!("{{sa_family={name}{fields}}}")
}

/// A name that begins with a zero is abstract and has all bytes of the address.
fn unix(data: &[u8]) -> String {
    if let Some((0, name)) = data.split_first() {
        return format!(", sun_path=@{}", string(name));
    }
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    format!(", sun_path={}", string(&data[..end]))
}

fn inet(data: &[u8]) -> Option<String> {
    let (port, rest) = data.split_first_chunk()?;
    let address = Ipv4Addr::from(*rest.first_chunk()?);
    let port = u16::from_be_bytes(*port);
    Some(format!(", sin_port=htons({port}), sin_addr=inet_addr(\"{address}\")"))
}

/// The address may end before its scope.
fn inet6(data: &[u8]) -> Option<String> {
    let (port, rest) = data.split_first_chunk()?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let (port, flow, address) =
        (u16::from_be_bytes(*port), u32::from_be_bytes(*flow), Ipv6Addr::from(*address));
    let scope = rest.first_chunk().map(|scope| format!(", sin6_scope_id={}", u32::from_le_bytes(*scope)));
    Some(format!(
        ", sin6_port=htons({port}), sin6_flowinfo=htonl({flow}), inet_pton(AF_INET6, \"{address}\", &sin6_addr){}",
        scope.unwrap_or_default()
    ))
}

fn netlink(data: &[u8]) -> Option<String> {
    let (_padding, rest) = data.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (port, groups) = (u32::from_le_bytes(*port), u32::from_le_bytes(*rest.first_chunk()?));
    let groups = if groups == 0 { "00000000".to_owned() } else { format!("{groups:#08x}") };
    Some(format!(", nl_pid={port}, nl_groups={groups}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(kind: Kind, bytes: &[u8]) -> String {
        text(kind, &Content { argument: 1, is_cut: false, bytes: bytes.to_vec() })
    }

    fn text(kind: Kind, content: &Content) -> String {
        let mut text = String::new();
        push(&mut text, kind, content);
        text
    }

    #[test]
    fn a_path_is_a_string_in_c() {
        assert_eq!(shown(Kind::Path, b"/etc/passwd"), r#""/etc/passwd""#);
        assert_eq!(shown(Kind::Path, b""), r#""""#);
        assert_eq!(
            shown(Kind::Path, b"\t\n\r\x0b\x0c\x07\x1b7\"\\ \xc3\xa9"),
            r#""\t\n\r\v\f\7\0337\"\\ \303\251""#
        );
        let cut = Content { argument: 0, is_cut: true, bytes: b"/long".to_vec() };
        assert_eq!(text(Kind::Path, &cut), r#""/long"..."#);
    }

    #[test]
    fn a_socket_address_has_the_fields_of_its_family() {
        let shown = |bytes: &[u8]| shown(Kind::Address, bytes);
        let inet = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            shown(&inet),
            r#"{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr("127.0.0.1")}"#
        );
        let mut inet6 = [0; 28];
        (inet6[0], inet6[3], inet6[7], inet6[23], inet6[24]) = (10, 9, 3, 1, 2);
        assert_eq!(
            shown(&inet6),
            "{sa_family=AF_INET6, sin6_port=htons(9), sin6_flowinfo=htonl(3), \
             inet_pton(AF_INET6, \"::1\", &sin6_addr), sin6_scope_id=2}"
        );
        assert_eq!(shown(b"\x01\0/run/x\0rest"), r#"{sa_family=AF_UNIX, sun_path="/run/x"}"#);
        assert_eq!(shown(b"\x01\0\0abs\0x"), r#"{sa_family=AF_UNIX, sun_path=@"abs\0x"}"#);
        assert_eq!(shown(b"\x01\0"), "{sa_family=AF_UNIX}");
        assert_eq!(shown(&inet6[..24]).split(", ").last(), Some("&sin6_addr)}"));
        let netlink = [16, 0, 9, 9, 0xfe, 0x78, 0, 0, 0x11, 0, 0, 0];
        assert_eq!(shown(&netlink), "{sa_family=AF_NETLINK, nl_pid=30974, nl_groups=0x000011}");
        assert_eq!(shown(&[0, 0, 1]), r#"{sa_family=AF_UNSPEC, sa_data="\1"}"#);
        assert_eq!(shown(&inet[..7]), r#"{sa_family=AF_INET, sa_data="\37\220\177\0\0"}"#);
        assert_eq!(shown(&[99, 0, b'x']), r#"{sa_family=0x63, sa_data="x"}"#);
        assert_eq!(shown(b"\x02"), r#""\2""#);
        let cut = Content { argument: 1, is_cut: true, bytes: b"\x01\0/long".to_vec() };
        assert_eq!(text(Kind::AddressOut, &cut), r#"{sa_family=AF_UNIX, sun_path="/long"}..."#);
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line_of_ascii(
            bytes in prop::collection::vec(any::<u8>(), 0..40), family in prop::sample::select(vec![0, 1, 2, 10, 16, 17]),
            kind in prop::sample::select(vec![Kind::Path, Kind::AddressOut]),
        ) {
            let mut bytes = bytes;
            bytes.first_mut().into_iter().for_each(|first| *first = family);
            bytes.get_mut(1).into_iter().for_each(|second| *second = 0);
            let text = shown(kind, &bytes);
            prop_assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text}");
        }
    }
}
