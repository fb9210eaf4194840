//! Socket addresses in the notation of strace, as the kernel defines them.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{
    notation::{Quoted, find, quoted},
    value::{Value, combined, number},
};

/// Returns the `struct sockaddr` of a text such as `{sa_family=AF_INET, sin_port=htons(80),
/// sin_addr=inet_addr("127.0.0.1")}`; `None` if it is not one of a Unix, IP or netlink socket.
pub(super) fn parse(text: &[u8]) -> Option<Quoted> {
    let family = family(text)?;
    let mut bytes = u16::try_from(family).ok()?.to_le_bytes().to_vec();
    let mut is_cut = false;
    match i32::try_from(family).ok()? {
        libc::AF_UNIX => {
            if let Some(at) = find(text, b"sun_path=") {
                let path = &text[at + b"sun_path=".len()..];
                let (path, is_abstract) = path.strip_prefix(b"@").map_or((path, false), |path| (path, true));
                let path = quoted(path)?;
                bytes.extend(is_abstract.then_some(0));
                bytes.extend(path.bytes);
                is_cut = path.is_cut;
            }
        }
        libc::AF_INET => {
            bytes.extend(u16::try_from(number(after(text, b"sin_port=htons(")?)?).ok()?.to_be_bytes());
            bytes.extend(string(text, b"inet_addr(")?.parse::<Ipv4Addr>().ok()?.octets());
            bytes.extend([0; 8]);
        }
        libc::AF_INET6 => {
            bytes.extend(u16::try_from(number(after(text, b"sin6_port=htons(")?)?).ok()?.to_be_bytes());
            let flow = after(text, b"sin6_flowinfo=htonl(").and_then(number).unwrap_or_default();
            bytes.extend(u32::try_from(flow).ok()?.to_be_bytes());
            bytes.extend(string(text, b"inet_pton(AF_INET6, ")?.parse::<Ipv6Addr>().ok()?.octets());
            // A scope may be the name of an interface, whose number is not in the log.
            let scope = after(text, b"sin6_scope_id=").and_then(number);
            bytes.extend(
                scope.and_then(|scope| u32::try_from(scope).ok()).into_iter().flat_map(u32::to_le_bytes),
            );
        }
        libc::AF_NETLINK => {
            bytes.extend([0; 2]);
            bytes.extend(u32::try_from(number(after(text, b"nl_pid=")?)?).ok()?.to_le_bytes());
            let groups = std::str::from_utf8(after(text, b"nl_groups=")?).ok()?;
            let groups = u32::from_str_radix(groups.trim_start_matches("0x"), 16).ok()?;
            bytes.extend(groups.to_le_bytes());
        }
        _ => return None,
    }
    Some(Quoted { bytes, is_cut })
}

/// Returns the family of an address.
pub(super) fn family(text: &[u8]) -> Option<u64> {
    let (Value::Known(family) | Value::Unnamed(family)) = combined(after(text, b"{sa_family=")?);
    Some(family)
}

/// Returns the word after a label.
fn after<'a>(text: &'a [u8], label: &[u8]) -> Option<&'a [u8]> {
    let rest = &text[find(text, label)? + label.len()..];
    rest.split(|byte| b",)}<".contains(byte)).next()
}

/// Returns the string after a label.
fn string(text: &[u8], label: &[u8]) -> Option<String> {
    String::from_utf8(quoted(&text[find(text, label)? + label.len()..])?.bytes).ok()
}
