//! The private key of an identity, loaded once for all of its handshakes.
//!
//! An engine loads the key of its session from DER, as the client twice, and each time AWS-LC computes whether both halves
//! belong together: a tenth of what a set-up costs, for a key that all sessions share. So engines are given a provider that
//! knows the keys of the identities there are.
//!
//! # Invariant
//!
//! A key is here as long as its identity or a session of its, and no longer.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use dimpl::crypto::aws_lc_rs::default_provider;
use dimpl::crypto::{Buf, CryptoProvider, HashAlgorithm, KeyProvider, SignatureAlgorithm, SigningKey};
use dimpl::{CryptoError, CryptoOperation};

/// Written when an identity is made, read once or twice for each session: a handful, as identities are those of key ids.
static LOADED: RwLock<Vec<Weak<Loaded>>> = RwLock::new(Vec::new());

/// A P-256 key, and the PKCS #8 that it was loaded from.
pub(super) struct Loaded {
    der: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl Loaded {
    /// Loads a key for [`provider`] to find. `None`: it is none that belongs here, and the engine says so.
    pub(super) fn new(der: &[u8]) -> Option<Arc<Self>> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der).ok()?;
        let loaded = Arc::new(Self { der: der.to_vec(), pair });
        let mut all = LOADED.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&loaded));
        Some(loaded)
    }

    fn find(der: &[u8]) -> Option<Arc<Self>> {
        let all = LOADED.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).find(|loaded| loaded.der == der)
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// What engines compute with: AWS-LC, and keys that are loaded already.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider { key_provider: &Keys, ..default_provider() }
}

#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError> {
        match Loaded::find(der) {
            Some(loaded) => Ok(Box::new(Shared(loaded))),
            None => default_provider().key_provider.load_private_key(der),
        }
    }
}

#[derive(Debug)]
struct Shared(Arc<Loaded>);

impl SigningKey for Shared {
    fn sign(&mut self, data: &[u8], hash: HashAlgorithm, out: &mut Buf) -> Result<(), CryptoError> {
        if hash != HashAlgorithm::SHA256 {
            return Err(CryptoError::SigningKeyHashMismatch { key_hash: HashAlgorithm::SHA256, requested: hash });
        }
        let signature = self.0.pair.sign(&SystemRandom::new(), data);
        let signature = signature.map_err(|_| CryptoError::OperationFailed(CryptoOperation::Sign))?;
        out.clear();
        out.extend_from_slice(signature.as_ref());
        Ok(())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn supported_hash_algorithms(&self) -> &[HashAlgorithm] {
        &[HashAlgorithm::SHA256]
    }
}

#[cfg(test)]
mod tests {
    use dimpl::certificate::generate_self_signed_certificate;

    use super::*;

    #[test]
    fn a_key_is_loaded_once_and_gone_with_its_last_user() {
        let der = generate_self_signed_certificate().unwrap().private_key;
        assert!(Loaded::find(&der).is_none());
        let loaded = Loaded::new(&der).unwrap();
        let found = Loaded::find(&der).unwrap();
        assert!(Arc::ptr_eq(&loaded, &found));
        let engine = provider().key_provider.load_private_key(&der).unwrap();
        drop((loaded, found));
        assert!(Loaded::find(&der).is_some(), "a session has it");
        drop(engine);
        assert!(Loaded::find(&der).is_none());
        assert!(provider().key_provider.load_private_key(&der).is_ok(), "others are loaded as ever");
        assert!(provider().key_provider.load_private_key(b"no key").is_err());
    }
}
