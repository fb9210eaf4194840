//! TLS on both sides of the relay: what it needs to encrypt connections, from the text of files.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::postgres::channel::EndPoint;

/// How connections are encrypted.
#[derive(Debug, Clone, Default)]
pub struct Encryption {
    /// Those of clients, if they ask for it.
    pub clients: Option<Identity>,
    /// Whether they have to.
    pub clients_must: MustEncrypt,
    /// Those to the server, all of them.
    pub server: Option<Trust>,
}

/// Whether clients have to encrypt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MustEncrypt {
    /// They may do without it.
    #[default]
    No,
    /// Others are refused.
    Yes,
}

/// By what the guard shows its clients that it is the server they look for.
#[derive(Debug, Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    end_point: Option<EndPoint>,
}

/// By what the guard knows the server.
#[derive(Debug, Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Files from which no connection can be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum NoEncryption {
    /// There is no certificate.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// There is no key.
    #[error("there is no private key in PEM; one that is encrypted itself cannot be read")]
    NoKey,
    /// The key is another one.
    #[error("the key is not that of the certificate")]
    OtherKey,
    /// The host of the server cannot be in a certificate.
    #[error("no certificate can be for that name")]
    Name(#[from] InvalidDnsNameError),
    /// They are not understood.
    #[error(transparent)]
    Unusable(#[from] Error),
}

impl Identity {
    /// From a certificate, which the certificates of its authorities may follow, and its key, both in PEM.
    ///
    /// # Errors
    /// If one of them is missing, or they do not belong together.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, NoEncryption> {
        let certificates = certificates_of(certificates)?;
        let end_point = certificates.first().and_then(|certificate| EndPoint::of(certificate));
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| NoEncryption::NoKey)?;
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_single_cert(certificates, key);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(_) => NoEncryption::OtherKey,
            error => NoEncryption::Unusable(error),
        })?;
        // Clients of PostgreSQL do not resume sessions of TLS, and its server does not let them.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), end_point })
    }

    /// The guard's side of a connection of a client, and to what it can be bound.
    pub(crate) fn accept(&self) -> Result<(ServerConnection, Option<EndPoint>), Error> {
        Ok((ServerConnection::new(Arc::clone(&self.config))?, self.end_point.clone()))
    }
}

impl Trust {
    /// In a server at this host, with a certificate for it that one of these authorities has signed, which
    /// are in PEM.
    ///
    /// # Errors
    /// If there is no authority, or the host has no name that can be in a certificate.
    pub fn in_authorities(authorities: &[u8], host: &str) -> Result<Self, NoEncryption> {
        let mut roots = RootCertStore::empty();
        // Those of other kinds than the server can have are of no use.
        roots.add_parsable_certificates(certificates_of(authorities)?);
        if roots.is_empty() {
            return Err(NoEncryption::NoCertificate);
        }
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: name(host)? })
    }

    /// In any server that answers at this host. Those that can read along in the network cannot do so any
    /// more; those that can redirect connections can.
    ///
    /// # Errors
    /// If the host has no name that can be in a certificate.
    pub fn in_any(host: &str) -> Result<Self, NoEncryption> {
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let any = Arc::new(AnyServer(provider()));
        let config = config.dangerous().with_custom_certificate_verifier(any).with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: name(host)? })
    }

    /// The guard's side of a connection to the server.
    pub(crate) fn connect(&self) -> Result<ClientConnection, Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, NoEncryption> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.ok().filter(|certificates| !certificates.is_empty()).ok_or(NoEncryption::NoCertificate)
}

fn name(host: &str) -> Result<ServerName<'static>, NoEncryption> {
    Ok(ServerName::try_from(host.to_owned())?)
}

/// Accepts each certificate, and requires that the server has its key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
