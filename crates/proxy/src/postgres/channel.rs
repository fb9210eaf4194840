//! What a login at the server runs over, and the end of a TLS connection to which a login can be bound.

use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;

/// A hash of the certificate of a server (`tls-server-end-point`, RFC 5929, section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndPoint(Vec<u8>);

/// What a login runs over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A network, in which others may read along.
    Open,
    /// This machine.
    Local,
    /// TLS, to this end, if its certificate has a hash.
    Tls(Option<EndPoint>),
}

/// Signatures of certificates, by their hash: with RSA, and with elliptic curves. The two oldest hashes are
/// not safe any more, and SHA-256 takes their place.
const BY_SHA_256: [ObjectIdentifier; 5] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4"),
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"),
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
];
const BY_SHA_384: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"),
];
const BY_SHA_512: [ObjectIdentifier; 2] = [
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"),
];

impl Channel {
    /// To what a login over it can be bound.
    #[must_use]
    pub fn end_point(self) -> Option<EndPoint> {
        match self {
            Self::Open | Self::Local => None,
            Self::Tls(end_point) => end_point,
        }
    }
}

impl EndPoint {
    /// The hash of a certificate in DER; `None` if its signature has none that both sides would agree on.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let signed_by = Certificate::from_der(certificate).ok()?.signature_algorithm().oid;
        if BY_SHA_256.contains(&signed_by) {
            Some(Self(Sha256::digest(certificate).to_vec()))
        } else if BY_SHA_384.contains(&signed_by) {
            Some(Self(Sha384::digest(certificate).to_vec()))
        } else if BY_SHA_512.contains(&signed_by) {
            Some(Self(Sha512::digest(certificate).to_vec()))
        } else {
            None
        }
    }

    #[cfg(test)]
    pub(super) fn with(hash: Vec<u8>) -> Self {
        Self(hash)
    }

    /// Returns the hash.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_that_are_no_certificate_have_no_hash() {
        assert_eq!(EndPoint::of(b"0\x03\x02\x01\x01"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = EndPoint::of(&bytes);
        }
    }
}
