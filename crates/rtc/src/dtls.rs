//! DTLS 1.2/1.3 over `dimpl`. CONTRACT skeleton.

/// The PoP's certificate and key: ECDSA P-256, self-signed, shared by all sessions of a key id. Cheap to clone, `Send + Sync`.
#[derive(Clone)]
pub struct Identity { /* private */ }

impl Identity {
    /// Makes a fresh certificate.
    #[must_use]
    pub fn generate() -> Self { todo!() }

    /// `AA:BB:...` SHA-256 of the certificate, for `a=fingerprint:sha-256`.
    #[must_use]
    pub fn fingerprint(&self) -> &str { todo!() }
}
