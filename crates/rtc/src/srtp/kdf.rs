//! Key derivation (RFC 3711 §4.3, with a derivation rate of 0).

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};

/// Labels of one protocol's session keys (RFC 3711 §4.3.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Labels {
    pub(super) encryption: u8,
    pub(super) authentication: u8,
    pub(super) salt: u8,
}

pub(super) const RTP: Labels = Labels { encryption: 0, authentication: 1, salt: 2 };
pub(super) const RTCP: Labels = Labels { encryption: 3, authentication: 4, salt: 5 };

/// The master key and salt of one direction.
pub(super) struct Direction {
    key: EncryptingKey,
    /// 14 bytes of salt; a 12-byte salt (RFC 7714 §11) is followed by zeros.
    salt: [u8; 14],
}

impl Direction {
    /// None unless the key has 16 or 32 bytes and the salt 14 at most.
    pub(super) fn new(key: &[u8], salt: &[u8]) -> Option<Self> {
        let algorithm = if key.len() == 32 { &AES_256 } else { &AES_128 };
        let key = EncryptingKey::ctr(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
        let mut padded = [0; 14];
        padded.get_mut(..salt.len())?.copy_from_slice(salt);
        Some(Self { key, salt: padded })
    }

    /// Fills `out` with the session key of `label`: the keystream for label and salt (RFC 3711 §4.3.1, §4.3.3).
    pub(super) fn derive(&self, label: u8, out: &mut [u8]) -> Option<()> {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        iv[7] ^= label;
        out.fill(0);
        self.key.less_safe_encrypt(out, EncryptionContext::Iv128(iv.into())).ok().map(drop)
    }
}
