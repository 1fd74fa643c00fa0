//! Ephemeral keys: what an edge gives to a client instead of a lasting key, sealed so that every edge of the PoP opens it.
//!
//! ```text
//! key   := "ek_" | base64url(head:u8 | nonce:12 | AES-256-GCM-SIV(plain))
//! head  := version:4 (=1) | key id:4; it is the associated data
//! plain := whatever the edge puts there
//! ```
//!
//! They rotate with the route keys, and nothing is kept of them anywhere.

use aws_lc_rs::aead::{Aad, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{RouteKeys, TAG_BYTES};

/// What every ephemeral key begins with.
pub const PREFIX: &str = "ek_";

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;

const VERSION: u8 = 1;

/// Characters of the key for this many bytes of plain text.
#[must_use]
pub const fn chars(plain_bytes: usize) -> usize {
    PREFIX.len() + ((1 + NONCE_BYTES + plain_bytes + TAG_BYTES) * 4).div_ceil(3)
}

impl RouteKeys {
    /// Seals `plain` under the newest key. A nonce is drawn by chance; two that are equal would tell whether their plain texts
    /// are equal, and nothing else (RFC 8452 §9).
    #[must_use]
    pub fn seal_ephemeral(&self, nonce: [u8; NONCE_BYTES], plain: &[u8]) -> String {
        let head = VERSION << 4 | self.newest();
        let mut key = String::from(PREFIX);
        let mut sealed = plain.to_vec();
        // As with routes: the newest slot is filled, and no key of ours is long enough to meet a limit of the cipher.
        let Some(keys) = &self.ring.slots[usize::from(self.newest())] else { return key };
        let taken = Nonce::assume_unique_for_key(nonce);
        if keys.ephemeral.seal_in_place_append_tag(taken, Aad::from([head]), &mut sealed).is_err() {
            return key;
        }
        let whole = [&[head], nonce.as_slice(), &sealed].concat();
        URL_SAFE_NO_PAD.encode_string(whole, &mut key);
        key
    }

    /// What is in an ephemeral key. `None`: it is none of ours, or of a key that is held no more.
    #[must_use]
    pub fn open_ephemeral(&self, key: &str) -> Option<Vec<u8>> {
        let whole = URL_SAFE_NO_PAD.decode(key.strip_prefix(PREFIX)?).ok()?;
        let (head, rest) = whole.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        if head >> 4 != VERSION {
            return None;
        }
        let keys = self.ring.slots[usize::from(head & 0x0f)].as_ref()?;
        let mut sealed = sealed.to_vec();
        let taken = Nonce::assume_unique_for_key(*nonce);
        keys.ephemeral.open_in_place(taken, Aad::from([*head]), &mut sealed).ok().map(|plain| plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_at_every_edge_that_holds_its_secret_and_nowhere_else() {
        let (one, other) = (RouteKeys::from_secret(&[1; 32]), RouteKeys::from_secret(&[2; 32]));
        let key = one.seal_ephemeral([7; 12], b"plain");
        assert_eq!(key.len(), chars(5));
        assert_eq!(RouteKeys::from_secret(&[1; 32]).open_ephemeral(&key).as_deref(), Some(&b"plain"[..]));
        assert_eq!(other.open_ephemeral(&key), None);
        assert!(!format!("{one:?}").contains("ephemeral"));
    }

    #[test]
    fn a_key_outlives_a_rotation_and_not_its_own_secret() {
        let before = RouteKeys::from_secrets(&[(3, [1; 32])]).unwrap();
        let key = before.seal_ephemeral([7; 12], b"plain");
        let rotated = RouteKeys::from_secrets(&[(4, [2; 32]), (3, [1; 32])]).unwrap();
        assert!(rotated.open_ephemeral(&key).is_some());
        assert_eq!(RouteKeys::from_secrets(&[(4, [2; 32])]).unwrap().open_ephemeral(&key), None);
    }

    #[test]
    fn no_changed_or_cut_key_opens() {
        let keys = RouteKeys::from_secret(&[1; 32]);
        let key = keys.seal_ephemeral([7; 12], b"");
        for at in PREFIX.len()..key.len() {
            let mut changed = key.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(keys.open_ephemeral(&changed).is_none(), "{changed}");
            assert!(keys.open_ephemeral(&key[..at]).is_none());
        }
        assert_eq!(keys.open_ephemeral(&key).as_deref(), Some(&b""[..]));
    }
}
