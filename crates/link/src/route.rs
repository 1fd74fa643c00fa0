//! The route token: the ICE ufrag as an encrypted, authenticated, expiring address (docs/LINK.md).
//!
//! ```text
//! ufrag := head | base64(AES-128-GCM-SIV(plain)) | anything
//!          1      47 characters                    up to 208 more, ignored here
//! head  := version:2 (=1) | key id:4, as one base64 character; it is the associated data
//! plain := kind:u8 (=1) | edge:u16 | transceiver:u32 | session:u64 | minted:u32          19 bytes, big endian
//! ```
//!
//! The password of a ufrag is the first 24 characters of base64(HMAC-SHA256(K, its first 48 characters)), under a key
//! of its own: who can only open tokens can route, but not answer.
//!
//! [`ticket`]s are longer and open as routes, too; everything here holds for both.
//!
//! AES-GCM-SIV (RFC 8452) is deterministic and keeps its promises under a repeated nonce for distinct plaintexts, so
//! one fixed nonce serves; equal routes give equal tokens.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM_SIV, AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::ids::{EdgeId, SessionId, TransceiverId};

pub mod ephemeral;
pub mod forward;
#[cfg(test)]
mod tests;
pub mod ticket;

/// Characters of a token: 1 + ceil((19 + 16) * 8 / 6). RFC 8839 §5.4 allows 4 to 256.
pub const TOKEN_CHARS: usize = 1 + SEALED_BYTES.div_ceil(3) * 4 - 1;
/// Characters of a password: 18 bytes, 144 bits. RFC 8839 §5.4 asks for at least 22.
pub const PASSWORD_CHARS: usize = 24;
/// Keys that can be held at once: what 4 bits name.
pub const KEY_SLOTS: usize = 16;

const PLAIN_BYTES: usize = 1 + 2 + 4 + 8 + 4;
const TAG_BYTES: usize = 16;
const SEALED_BYTES: usize = PLAIN_BYTES + TAG_BYTES;
const PASSWORD_BYTES: usize = PASSWORD_CHARS / 4 * 3;
const VERSION: u8 = 1;
/// The edge that minted the token terminates the call.
const KIND_TERMINATED: u8 = 1;
const NONCE: [u8; 12] = *b"fronthaul/1\0";

/// The base64 alphabet of RFC 4648 §4, which is that of ICE (RFC 8839 §5.4).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What a ufrag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Which edge answered.
    pub edge: EdgeId,
    /// Which transceiver was chosen at set-up: a hint for tools.
    pub transceiver: TransceiverId,
    /// Which session.
    pub session: SessionId,
    /// Unix seconds at which the token was made.
    pub minted: u32,
}

/// Sixteen key slots: sign with the newest, accept all that are filled. Cheap to clone, `Send + Sync`, redacted in `Debug`.
#[derive(Clone)]
pub struct RouteKeys {
    ring: Arc<Ring>,
}

struct Ring {
    /// Always the index of a filled slot.
    newest: u8,
    slots: [Option<SlotKeys>; KEY_SLOTS],
}

struct SlotKeys {
    route: LessSafeKey,
    password: hmac::Key,
    /// Of what the edges of a PoP send each other.
    peer: hmac::Key,
    /// Of what follows from a ticket.
    derived: hmac::Key,
    /// Of what clients hold for a while.
    ephemeral: LessSafeKey,
}

/// Why a set of secrets is no key ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// There has to be one key to sign with.
    #[error("there is no route key")]
    Empty,
    /// Key ids are 0 to 15.
    #[error("route key id {0} is not between 0 and 15")]
    KeyId(u8),
    /// Each key id names one key.
    #[error("route key id {0} is given twice")]
    Duplicate(u8),
}

impl RouteKeys {
    /// Derives route and password key of key id 0 from a 32-byte secret.
    #[must_use]
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let mut slots = [const { None }; KEY_SLOTS];
        slots[0] = Some(SlotKeys::derive(secret));
        Self { ring: Arc::new(Ring { newest: 0, slots }) }
    }

    /// A ring of several secrets, each with its key id; the first one signs.
    ///
    /// # Errors
    /// No secret, an id above 15, or an id given twice.
    pub fn from_secrets(secrets: &[(u8, [u8; 32])]) -> Result<Self, KeyRingError> {
        let (newest, _) = *secrets.first().ok_or(KeyRingError::Empty)?;
        let mut slots = [const { None }; KEY_SLOTS];
        for (key_id, secret) in secrets {
            let slot = slots.get_mut(usize::from(*key_id)).ok_or(KeyRingError::KeyId(*key_id))?;
            if slot.replace(SlotKeys::derive(secret)).is_some() {
                return Err(KeyRingError::Duplicate(*key_id));
            }
        }
        Ok(Self { ring: Arc::new(Ring { newest, slots }) })
    }

    /// Seals a route into a ufrag.
    #[must_use]
    pub fn seal(&self, route: &Route) -> String {
        let mut sealed = [0; SEALED_BYTES];
        sealed[..PLAIN_BYTES].copy_from_slice(&encode_fields(KIND_TERMINATED, route));
        self.seal_in_place(VERSION, &mut sealed)
    }

    /// The ufrag of a plain text, behind which there is room for the tag.
    fn seal_in_place(&self, version: u8, sealed: &mut [u8]) -> String {
        let key_id = self.ring.newest;
        let head = head_char(version, key_id);
        let mut ufrag = String::with_capacity(1 + (sealed.len() * 4).div_ceil(3));
        // A ring's newest slot is filled by construction, and sealing some bytes cannot exceed a limit of the cipher; an
        // empty ufrag is refused by every reader.
        let Some(keys) = &self.ring.slots[usize::from(key_id)] else { return ufrag };
        let Some((plain, tag_out)) = sealed.split_last_chunk_mut::<TAG_BYTES>() else { return ufrag };
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let Ok(tag) = keys.route.seal_in_place_separate_tag(nonce, Aad::from([head]), plain) else { return ufrag };
        tag_out.copy_from_slice(tag.as_ref());
        ufrag.push(char::from(head));
        STANDARD_NO_PAD.encode_string(sealed, &mut ufrag);
        ufrag
    }

    /// Opens the token at the start of a ufrag, a ticket or another; what follows it is ignored. `None`: not one of ours.
    /// Allocates nothing.
    #[must_use]
    pub fn open(&self, ufrag: &str) -> Option<Route> {
        if ticket::is_ticket(ufrag) {
            return self.open_ticket(ufrag).map(|ticket| ticket.route);
        }
        let token = ufrag.as_bytes().get(..TOKEN_CHARS)?;
        let (head, body) = token.split_first()?;
        let keys = self.keys_of(*head)?;
        let mut sealed = [0; SEALED_BYTES];
        if STANDARD_NO_PAD.decode_slice(body, &mut sealed).ok()? != SEALED_BYTES {
            return None;
        }
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let plain = keys.route.open_in_place(nonce, Aad::from([*head]), &mut sealed).ok()?;
        decode_fields(KIND_TERMINATED, plain).map(|(route, _)| route)
    }

    /// The ICE password that belongs to a ufrag made by [`RouteKeys::seal`].
    ///
    /// `None`: no token, or of a key that is not held. Whether the token is one of ours is for [`RouteKeys::open`] to say.
    #[must_use]
    pub fn password(&self, ufrag: &str) -> Option<String> {
        self.password_bytes(ufrag).map(|password| password.iter().copied().map(char::from).collect())
    }

    /// [`RouteKeys::password`] without an allocation.
    #[must_use]
    pub fn password_bytes(&self, ufrag: &str) -> Option<[u8; PASSWORD_CHARS]> {
        let token = ufrag.as_bytes().get(..token_chars(ufrag))?;
        let keys = self.keys_of(*token.first()?)?;
        let mac = hmac::sign(&keys.password, token);
        let mut password = [0; PASSWORD_CHARS];
        STANDARD_NO_PAD.encode_slice(&mac.as_ref()[..PASSWORD_BYTES], &mut password).ok()?;
        Some(password)
    }

    /// Whether this is the password of a ufrag, in constant time.
    #[must_use]
    pub fn is_password(&self, ufrag: &str, password: &str) -> bool {
        let own = self.password_bytes(ufrag);
        own.is_some_and(|own| constant_time::verify_slices_are_equal(&own, password.as_bytes()).is_ok())
    }

    /// The key id that seals.
    #[must_use]
    pub fn newest(&self) -> u8 {
        self.ring.newest
    }

    /// The keys that a token's first character names.
    fn keys_of(&self, head: u8) -> Option<&SlotKeys> {
        self.ring.slots[usize::from(key_id_in(head)?)].as_ref()
    }
}

impl fmt::Debug for RouteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: Vec<usize> =
            self.ring.slots.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(key_id, _)| key_id).collect();
        f.debug_struct("RouteKeys").field("newest", &self.ring.newest).field("held", &held).finish_non_exhaustive()
    }
}

impl SlotKeys {
    /// HKDF (RFC 5869) with one label per key, so that no key tells anything of another.
    fn derive(secret: &[u8; 32]) -> Self {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"fronthaul route 1").extract(secret);
        // The lengths are constants that the algorithms accept: expanding fails above 255 hashes alone.
        let route =
            prk.expand(&[b"route".as_slice()], &AES_128_GCM_SIV).map(UnboundKey::from).expect("16 bytes of key");
        let password =
            prk.expand(&[b"password".as_slice()], hmac::HMAC_SHA256).map(hmac::Key::from).expect("32 bytes of key");
        let peer = prk.expand(&[b"peer".as_slice()], hmac::HMAC_SHA256).map(hmac::Key::from).expect("32 bytes of key");
        let derived =
            prk.expand(&[b"ticket".as_slice()], hmac::HMAC_SHA256).map(hmac::Key::from).expect("32 bytes of key");
        let ephemeral =
            prk.expand(&[b"ephemeral".as_slice()], &AES_256_GCM_SIV).map(UnboundKey::from).expect("32 bytes of key");
        Self { route: LessSafeKey::new(route), password, peer, derived, ephemeral: LessSafeKey::new(ephemeral) }
    }
}

/// The key id that a ufrag names, held or not. `None`: it begins like no token of this version.
#[must_use]
pub fn key_id(ufrag: &str) -> Option<u8> {
    key_id_in(*ufrag.as_bytes().first()?)
}

/// Characters of the token that a ufrag begins with.
#[must_use]
pub fn token_chars(ufrag: &str) -> usize {
    if ticket::is_ticket(ufrag) { ticket::TICKET_CHARS } else { TOKEN_CHARS }
}

fn key_id_in(head: u8) -> Option<u8> {
    version_and_key_id(head).filter(|(version, _)| matches!(*version, VERSION | ticket::VERSION)).map(|(_, id)| id)
}

fn version_and_key_id(head: u8) -> Option<(u8, u8)> {
    let value = match head {
        b'A'..=b'Z' => head - b'A',
        b'a'..=b'z' => head - b'a' + 26,
        // The rest of the alphabet is above version 2.
        _ => return None,
    };
    Some((value >> 4, value & 0x0f))
}

fn head_char(version: u8, key_id: u8) -> u8 {
    ALPHABET[usize::from(version << 4 | key_id & 0x0f)]
}

fn encode_fields(kind: u8, route: &Route) -> [u8; PLAIN_BYTES] {
    let mut plain = [0; PLAIN_BYTES];
    plain[0] = kind;
    plain[1..3].copy_from_slice(&route.edge.0.to_be_bytes());
    plain[3..7].copy_from_slice(&route.transceiver.0.to_be_bytes());
    plain[7..15].copy_from_slice(&route.session.0.to_be_bytes());
    plain[15..19].copy_from_slice(&route.minted.to_be_bytes());
    plain
}

/// The route, and what stands behind it.
fn decode_fields(kind: u8, plain: &[u8]) -> Option<(Route, &[u8])> {
    let (found, rest) = plain.split_first()?;
    if *found != kind {
        return None;
    }
    let (edge, rest) = rest.split_first_chunk()?;
    let (transceiver, rest) = rest.split_first_chunk()?;
    let (session, rest) = rest.split_first_chunk()?;
    let (minted, rest) = rest.split_first_chunk()?;
    let route = Route {
        edge: EdgeId(u16::from_be_bytes(*edge)),
        transceiver: TransceiverId(u32::from_be_bytes(*transceiver)),
        session: SessionId(u64::from_be_bytes(*session)),
        minted: u32::from_be_bytes(*minted),
    };
    Some((route, rest))
}
