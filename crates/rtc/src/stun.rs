//! STUN Binding requests and their answers (RFC 8489), as far as an ICE-lite agent needs them.
//! CONTRACT skeleton: signatures are fixed, bodies belong to the owner of this file.

use std::net::SocketAddr;

use crate::Discard;

/// The key of MESSAGE-INTEGRITY for one password, hashed once (RFC 8489 §14.5, short-term credentials).
#[derive(Clone)]
pub struct IntegrityKey(/* pre-keyed HMAC-SHA1 */);

impl IntegrityKey {
    /// Prepares the key of an ICE password.
    #[must_use]
    pub fn new(password: &str) -> Self { todo!() }
}

/// An ICE connectivity check: a Binding request whose shape was checked but not yet its integrity.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> { _d: &'a [u8] }

impl<'a> Check<'a> {
    /// Reads a Binding request and checks FINGERPRINT when there is one.
    ///
    /// # Errors
    /// The reason to drop the datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Discard> { todo!() }

    /// The part of USERNAME before the first ':': the ufrag that we handed out.
    #[must_use]
    pub fn local_ufrag(&self) -> &'a str { todo!() }

    /// The part of USERNAME after the first ':': the client's ufrag.
    #[must_use]
    pub fn remote_ufrag(&self) -> &'a str { todo!() }

    /// Whether USE-CANDIDATE is present (RFC 8445 §7.1.2).
    #[must_use]
    pub fn nominates(&self) -> bool { todo!() }

    /// Whether MESSAGE-INTEGRITY matches.
    #[must_use]
    pub fn verify(&self, key: &IntegrityKey) -> bool { todo!() }
}

/// Writes the success response to an authenticated check into `out` (cleared first).
pub fn write_success(check: &Check<'_>, key: &IntegrityKey, mapped: SocketAddr, out: &mut Vec<u8>) { todo!() }
