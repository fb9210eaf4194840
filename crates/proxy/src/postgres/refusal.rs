//! Errors in the protocol's own terms, and other messages of our own to a client.

use super::frame::message;

/// An error of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Whether the session goes on.
    pub severity: Severity,
    /// Its SQLSTATE (PostgreSQL's manual, *Error Codes*).
    pub code: &'static str,
}

/// Whether a session goes on after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It does.
    Error,
    /// It ends.
    Fatal,
}

impl Refusal {
    /// The transaction waited too long, or was cancelled while it waited (`query_canceled`).
    pub const CANCELLED: Self = Self { severity: Severity::Error, code: "57014" };
    /// There is no connection to the server for this transaction, or too many others wait
    /// (`too_many_connections`).
    pub const FULL: Self = Self { severity: Severity::Error, code: "53300" };
    /// The server has no room for this session (`too_many_connections`).
    pub const NO_ROOM: Self = Self { severity: Severity::Fatal, code: "53300" };
    /// There is no connection to the server for this session (`connection_failure`).
    pub const NO_SERVER: Self = Self { severity: Severity::Fatal, code: "08006" };
    /// The client has not proved that it has the password of its role (`invalid_password`).
    pub const NOT_PROVED: Self = Self { severity: Severity::Fatal, code: "28P01" };
    /// The client has to use TLS (`invalid_authorization_specification`).
    pub const UNENCRYPTED: Self = Self { severity: Severity::Fatal, code: "28000" };
    /// The client does not keep to the protocol (`protocol_violation`).
    pub const VIOLATION: Self = Self { severity: Severity::Fatal, code: "08P01" };
    /// It asks for something that is not relayed (`feature_not_supported`).
    pub const UNSUPPORTED: Self = Self { severity: Severity::Fatal, code: "0A000" };
    /// The guard ends (`admin_shutdown`).
    pub const SHUTDOWN: Self = Self { severity: Severity::Fatal, code: "57P01" };

    /// Returns the message `ErrorResponse`.
    #[must_use]
    pub fn message(self, text: &str) -> Vec<u8> {
        let severity = match self.severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        // A zero byte would end the text.
        let text = text.replace('\0', " ");
        let body = format!("S{severity}\0V{severity}\0C{}\0M{text}\0\0", self.code);
        message(b'E', body.as_bytes())
    }
}

/// Returns the SQLSTATE of an error of the server, from the body of its message.
#[must_use]
pub fn code(body: &[u8]) -> Option<&[u8]> {
    field(b'C', body)
}

/// Returns the text of an error of the server, from the body of its message.
#[must_use]
pub fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(field(b'M', body).unwrap_or_default()).into_owned()
}

/// Whether a prepared statement does not return any more what it did when it was prepared, from the body of
/// an error of the server. Only the function of the server that found it distinguishes this error.
#[must_use]
pub fn is_changed_statement(body: &[u8]) -> bool {
    field(b'R', body) == Some(b"RevalidateCachedQuery")
}

/// Returns a field (PostgreSQL's manual, *Error and Notice Message Fields*).
fn field(kind: u8, body: &[u8]) -> Option<&[u8]> {
    body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(&[kind]))
}

/// `ReadyForQuery`, outside of a transaction.
pub const READY: [u8; 6] = *b"Z\0\0\0\x05I";

/// `Terminate`, which ends a session in good order.
pub const TERMINATE: [u8; 5] = *b"X\0\0\0\x04";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_severity_code_and_text() {
        let message = Refusal::CANCELLED.message("too\0late");
        assert_eq!(message, b"E\0\0\0\x24SERROR\0VERROR\0C57014\0Mtoo late\0\0");
        assert_eq!(code(&message[5..]), Some(&b"57014"[..]));
        assert_eq!((code(b"SERROR\0"), text(&message[5..])), (None, "too late".to_owned()));
    }
}
