//! The certificate that all sessions of a key id share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use dimpl::certificate::generate_self_signed_certificate;
use dimpl::{Config, DtlsCertificate};

use super::key::{self, Loaded};

/// Datagrams of the handshake stay under 1000 bytes, so that they pass any tunnel (case D02), and a flight fits
/// a STUN attribute.
const MTU: usize = 960;

/// Times to the first resend of a flight, doubled for each further one; the engine varies each by a quarter. Engines of
/// one time share a configuration, so a time asked for is rounded up to one of these.
const FIRST_RESENDS: [Duration; 12] = [
    Duration::from_millis(50),
    Duration::from_millis(75),
    Duration::from_millis(100),
    Duration::from_millis(125),
    Duration::from_millis(150),
    Duration::from_millis(200),
    Duration::from_millis(250),
    Duration::from_millis(300),
    Duration::from_millis(400),
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(1000),
];

/// 50 ms doubled eleven times lasts 204 s: the session's own setup timeout ends the handshake, not the engine.
const FLIGHT_RETRIES: usize = 11;

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
    /// For the engines to find.
    _key: Option<Arc<Loaded>>,
    fingerprint: String,
    /// One for each of [`FIRST_RESENDS`].
    configs: [Arc<Config>; FIRST_RESENDS.len()],
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
        let configs = FIRST_RESENDS.map(|first_resend| {
            let config = Config::builder()
                .mtu(MTU)
                .use_server_cookie(false)
                .flight_start_rto(first_resend)
                .flight_retries(FLIGHT_RETRIES)
                .handshake_timeout(HANDSHAKE_TIMEOUT)
                .max_queue_tx(MAX_QUEUE_TX)
                .with_crypto_provider(key::provider())
                .build()
                .expect("constants are in range");
            Arc::new(config)
        });
        let fingerprint = certificate.fingerprint_str();
        let key = Loaded::new(&certificate.private_key);
        Self { inner: Arc::new(Inner { certificate, _key: key, fingerprint, configs }) }
    }

    /// `AA:BB:...` SHA-256 of the certificate, for `a=fingerprint:sha-256`.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.inner.fingerprint
    }

    /// What an engine is made of that waits so long before it sends a flight again.
    pub(super) fn engine_parts(&self, first_resend: Duration) -> (Arc<Config>, DtlsCertificate) {
        let [.., longest] = &self.inner.configs;
        let fits = |at: &usize| first_resend <= FIRST_RESENDS[*at];
        let config = (0..FIRST_RESENDS.len()).find(fits).map_or(longest, |at| &self.inner.configs[at]);
        (config.clone(), self.inner.certificate.clone())
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
