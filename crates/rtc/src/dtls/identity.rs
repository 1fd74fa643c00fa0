//! The certificate that all sessions of a key id share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use dimpl::certificate::generate_self_signed_certificate;
use dimpl::{Config, DtlsCertificate};

/// Datagrams of the handshake stay under 1000 bytes, so that they pass any tunnel (case D02), and a flight fits
/// a STUN attribute.
const MTU: usize = 960;

/// Time to the first resend of a flight, doubled for each further one. Twice the round trip where it is up to 75 ms; a
/// longer path gets one flight (700 bytes) twice, which costs less than the whole second of RFC 6347 §4.2.4.1 on a lossy one.
const FLIGHT_START_RTO: Duration = Duration::from_millis(150);

/// 150 ms doubled nine times lasts 77 s: the session's own setup timeout ends the handshake, not the engine.
const FLIGHT_RETRIES: usize = 9;

/// Longer than any sensible setup timeout, for the same reason.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// Records queued in the engine. A flight of ours is at most 5; application data is drained after each packet.
const MAX_QUEUE_TX: usize = 64;

/// The PoP's certificate and key: ECDSA P-256, self-signed, shared by all sessions of a key id. Cheap to clone,
/// `Send + Sync`.
#[derive(Clone)]
pub struct Identity {
    inner: Arc<Inner>,
}

struct Inner {
    certificate: DtlsCertificate,
    fingerprint: String,
    /// One engine configuration serves all sessions.
    config: Arc<Config>,
}

impl Identity {
    /// Makes a fresh certificate, valid for a year.
    ///
    /// # Panics
    ///
    /// If the system has no randomness, or the crypto library misses an algorithm it was built with.
    #[must_use]
    pub fn generate() -> Self {
        Self::new(generate_self_signed_certificate().expect("a P-256 key needs only randomness"))
    }

    /// Takes a certificate that several edges share: DER, its P-256 key as PKCS #8.
    ///
    /// # Errors
    /// The key is none of that kind, or the certificate's is another one.
    pub fn from_der(certificate: &[u8], private_key: &[u8]) -> Result<Self, IdentityMismatch> {
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private_key).map_err(|_| IdentityMismatch)?;
        // The uncompressed point, 65 bytes, stands in the certificate as it is (RFC 5480 §2.2).
        let point = key.public_key().as_ref();
        if !certificate.windows(point.len()).any(|part| part == point) {
            return Err(IdentityMismatch);
        }
        Ok(Self::new(DtlsCertificate { certificate: certificate.to_vec(), private_key: private_key.to_vec() }))
    }

    fn new(certificate: DtlsCertificate) -> Self {
        // Reachability was proven by the check's integrity, so no cookie round trip.
        let config = Config::builder()
            .mtu(MTU)
            .use_server_cookie(false)
            .flight_start_rto(FLIGHT_START_RTO)
            .flight_retries(FLIGHT_RETRIES)
            .handshake_timeout(HANDSHAKE_TIMEOUT)
            .max_queue_tx(MAX_QUEUE_TX)
            .build()
            .expect("constants are in range");
        let fingerprint = certificate.fingerprint_str();
        Self { inner: Arc::new(Inner { certificate, fingerprint, config: Arc::new(config) }) }
    }

    /// `AA:BB:...` SHA-256 of the certificate, for `a=fingerprint:sha-256`.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.inner.fingerprint
    }

    pub(super) fn engine_parts(&self) -> (Arc<Config>, DtlsCertificate) {
        (self.inner.config.clone(), self.inner.certificate.clone())
    }
}

/// A certificate and a key that do not belong together, or are not what DTLS takes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("certificate and key are not a P-256 pair in DER")]
pub struct IdentityMismatch;

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.inner.fingerprint).finish_non_exhaustive()
    }
}
