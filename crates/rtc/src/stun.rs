//! STUN Binding requests and their answers (RFC 8489), as far as an ICE-lite agent needs them.
//!
//! A lite agent only answers: [`Check::parse`] reads a request without allocating or hashing, so that a router can
//! look at its USERNAME; [`Check::verify`] hashes it once, with a key prepared per session; then either
//! [`write_success`] or, when [`Check::refusal`] says so, [`write_refusal`] answers it.
//!
//! ```text
//!  0        2        4                8                          20
//!  | type   | length | magic cookie   | transaction id (96 bits) | attributes ...
//!                                                                | type | length | value | 0-3 padding
//!  request:  USERNAME .. any order .. MESSAGE-INTEGRITY [ignored ..] FINGERPRINT
//!  response: XOR-MAPPED-ADDRESS [more] | ERROR-CODE [UNKNOWN-ATTRIBUTES], MESSAGE-INTEGRITY, FINGERPRINT
//! ```
//!
//! Not implemented: retransmission, requests of ours, long-term credentials and REALM/NONCE (RFC 8489 §9.2),
//! MESSAGE-INTEGRITY-SHA256 (§14.6; a request that carries both kinds is verified by the SHA-1 one, which ICE
//! prescribes, RFC 8445 §7.1), and answers to unauthenticated requests: a check that does not verify is dropped
//! rather than answered 400 or 401 (RFC 8489 §9.1.3), so that a forged source address gains nothing.

pub(crate) mod response;

use aws_lc_rs::{constant_time, hmac};

use crate::Discard;

pub use response::{write_refusal, write_success, write_success_with};

pub(crate) const HEADER: usize = 20;
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xA4, 0x42];
const BINDING_REQUEST: [u8; 2] = [0x00, 0x01];
/// RFC 8489 §14.7.
const FINGERPRINT_XOR: u32 = 0x5354_554E;
/// RFC 8489 §14.3: USERNAME is shorter than 513 bytes.
const USERNAME_MAX: usize = 512;
/// How many unknown attributes one 420 names. A request that carries more learns of the rest after it dropped these.
const UNKNOWN_MAX: usize = 8;

/// Attribute types (RFC 8489 §18.3, RFC 8445 §16.1).
pub(crate) mod attribute {
    pub(super) const MAPPED_ADDRESS: u16 = 0x0001;
    pub(super) const USERNAME: u16 = 0x0006;
    pub(super) const MESSAGE_INTEGRITY: u16 = 0x0008;
    pub(super) const ERROR_CODE: u16 = 0x0009;
    pub(super) const UNKNOWN_ATTRIBUTES: u16 = 0x000A;
    pub(super) const REALM: u16 = 0x0014;
    pub(super) const NONCE: u16 = 0x0015;
    pub(super) const XOR_MAPPED_ADDRESS: u16 = 0x0020;
    pub(super) const PRIORITY: u16 = 0x0024;
    pub(super) const USE_CANDIDATE: u16 = 0x0025;
    /// DTLS inside STUN ([`crate::sped`]): one DTLS datagram, and hashes of those received.
    pub(crate) const SPED_DATA: u16 = 0xC070;
    pub(crate) const SPED_ACK: u16 = 0xC071;
    pub(super) const FINGERPRINT: u16 = 0x8028;
    pub(super) const ICE_CONTROLLED: u16 = 0x8029;

    /// Types from here on may be ignored by who does not know them (RFC 8489 §14).
    pub(super) const COMPREHENSION_OPTIONAL: u16 = 0x8000;
}

/// The key of MESSAGE-INTEGRITY for one password, hashed once (RFC 8489 §14.5, short-term credentials).
#[derive(Clone)]
pub struct IntegrityKey(hmac::Key);

impl IntegrityKey {
    /// Prepares the key of an ICE password.
    #[must_use]
    pub fn new(password: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes()))
    }

    /// HMAC over a message that ends before its MESSAGE-INTEGRITY, with the header's length counting that attribute
    /// (RFC 8489 §14.5). The context is a copy of the keyed one: two SHA-1 blocks fewer than from the password.
    fn sign(&self, message: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&message[..2]);
        context.update(&length(message.len() - HEADER + 24));
        context.update(&message[4..]);
        context.sign()
    }
}

impl std::fmt::Debug for IntegrityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IntegrityKey")
    }
}

/// Why an authenticated check is answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 420: the request carries attributes that must be understood and are not (RFC 8489 §6.3.1).
    UnknownAttributes,
    /// 487: the client says ICE-CONTROLLED, but a lite agent never controls (RFC 8445 §7.3.1.1). The client switches.
    RoleConflict,
}

/// An ICE connectivity check: a Binding request whose shape was checked but not yet its integrity.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    datagram: &'a [u8],
    local_ufrag: &'a str,
    remote_ufrag: &'a str,
    /// Where the MESSAGE-INTEGRITY attribute begins; it is 24 bytes long.
    integrity_at: usize,
    nominates: bool,
    controlled: bool,
    sped_data: Option<&'a [u8]>,
    sped_acks: Option<&'a [u8]>,
    unknown: [u16; UNKNOWN_MAX],
    unknown_count: usize,
}

impl<'a> Check<'a> {
    /// Reads a Binding request and checks FINGERPRINT when there is one.
    ///
    /// Of a repeated attribute the first counts (RFC 8489 §14); what follows MESSAGE-INTEGRITY is not authenticated
    /// and ignored, but for FINGERPRINT, which must be the last (§14.5, §14.7).
    ///
    /// # Errors
    /// The reason to drop the datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Discard> {
        let (header, body) = datagram.split_at_checked(HEADER).ok_or(Discard::StunMalformed)?;
        let stated = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] & 0xC0 != 0 || header[4..8] != MAGIC_COOKIE || stated != body.len() || stated % 4 != 0 {
            return Err(Discard::StunMalformed);
        }
        if header[..2] != BINDING_REQUEST {
            return Err(Discard::StunUnexpected);
        }

        let mut username = None;
        let mut integrity_at = None;
        let mut check = Self {
            datagram,
            local_ufrag: "",
            remote_ufrag: "",
            integrity_at: 0,
            nominates: false,
            controlled: false,
            sped_data: None,
            sped_acks: None,
            unknown: [0; UNKNOWN_MAX],
            unknown_count: 0,
        };
        let mut at = HEADER;
        while at < datagram.len() {
            let (kind, value, next) = attribute_at(datagram, at).ok_or(Discard::StunMalformed)?;
            if kind == attribute::FINGERPRINT {
                let stated = u32::from_be_bytes(value.try_into().map_err(|_| Discard::StunMalformed)?);
                if next != datagram.len() {
                    return Err(Discard::StunMalformed);
                }
                if stated != crc32fast::hash(&datagram[..at]) ^ FINGERPRINT_XOR {
                    return Err(Discard::StunIncomplete);
                }
            } else if integrity_at.is_none() {
                match kind {
                    attribute::MESSAGE_INTEGRITY if value.len() == 20 => integrity_at = Some(at),
                    attribute::MESSAGE_INTEGRITY => return Err(Discard::StunMalformed),
                    attribute::USERNAME => {
                        if username.is_none() {
                            username = Some(value);
                        }
                    }
                    attribute::USE_CANDIDATE => check.nominates = true,
                    attribute::ICE_CONTROLLED => check.controlled = true,
                    attribute::SPED_DATA => _ = check.sped_data.get_or_insert(value),
                    attribute::SPED_ACK => _ = check.sped_acks.get_or_insert(value),
                    attribute::MAPPED_ADDRESS
                    | attribute::ERROR_CODE
                    | attribute::UNKNOWN_ATTRIBUTES
                    | attribute::REALM
                    | attribute::NONCE
                    | attribute::XOR_MAPPED_ADDRESS
                    | attribute::PRIORITY
                    | attribute::COMPREHENSION_OPTIONAL.. => {}
                    unknown => check.note_unknown(unknown),
                }
            }
            at = next;
        }

        let (Some(username), Some(integrity_at)) = (username, integrity_at) else {
            return Err(Discard::StunIncomplete);
        };
        if username.len() > USERNAME_MAX {
            return Err(Discard::StunMalformed);
        }
        let username = std::str::from_utf8(username).map_err(|_| Discard::StunMalformed)?;
        // ufrags may hold '/' and '+', never ':' (RFC 8839 §5.4).
        (check.local_ufrag, check.remote_ufrag) = username.split_once(':').ok_or(Discard::StunIncomplete)?;
        check.integrity_at = integrity_at;
        Ok(check)
    }

    /// The part of USERNAME before the first ':': the ufrag that we handed out.
    #[must_use]
    pub fn local_ufrag(&self) -> &'a str {
        self.local_ufrag
    }

    /// The part of USERNAME after the first ':': the client's ufrag.
    #[must_use]
    pub fn remote_ufrag(&self) -> &'a str {
        self.remote_ufrag
    }

    /// Whether USE-CANDIDATE is present (RFC 8445 §7.1.2).
    #[must_use]
    pub fn nominates(&self) -> bool {
        self.nominates
    }

    /// The DTLS datagram that the check carries, if it has the attribute. As little to be trusted as the rest before
    /// [`Check::verify`].
    #[must_use]
    pub fn sped_data(&self) -> Option<&'a [u8]> {
        self.sped_data
    }

    /// The hashes of DTLS datagrams that the client says it received, if it has the attribute: 4 bytes each.
    #[must_use]
    pub fn sped_acks(&self) -> Option<&'a [u8]> {
        self.sped_acks
    }

    /// Whether MESSAGE-INTEGRITY matches.
    #[must_use]
    pub fn verify(&self, key: &IntegrityKey) -> bool {
        let (message, rest) = self.datagram.split_at(self.integrity_at);
        constant_time::verify_slices_are_equal(key.sign(message).as_ref(), &rest[4..24]).is_ok()
    }

    /// The error that an authenticated check deserves, if any. Ask only after [`Check::verify`]: one forged
    /// ICE-CONTROLLED must not turn a client's role.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        if self.unknown_count > 0 {
            Some(Refusal::UnknownAttributes)
        } else if self.controlled {
            Some(Refusal::RoleConflict)
        } else {
            None
        }
    }

    fn unknown(&self) -> &[u16] {
        &self.unknown[..self.unknown_count]
    }

    fn note_unknown(&mut self, kind: u16) {
        if self.unknown_count < UNKNOWN_MAX && !self.unknown().contains(&kind) {
            self.unknown[self.unknown_count] = kind;
            self.unknown_count += 1;
        }
    }

    fn transaction(&self) -> &'a [u8] {
        &self.datagram[8..HEADER]
    }
}

/// Type and value of the attribute at `at`, and where the next one begins.
fn attribute_at(datagram: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let header = datagram.get(at..at + 4)?;
    let kind = u16::from_be_bytes([header[0], header[1]]);
    let value_at = at + 4;
    let end = value_at + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let next = end.next_multiple_of(4);
    if next > datagram.len() {
        return None;
    }
    Some((kind, &datagram[value_at..end], next))
}

/// A length field. No message here comes near 64 KiB: requests are one UDP datagram, responses under 1300 bytes.
#[expect(clippy::cast_possible_truncation, reason = "a UDP datagram is shorter than 65536 bytes")]
fn length(bytes: usize) -> [u8; 2] {
    (bytes as u16).to_be_bytes()
}
