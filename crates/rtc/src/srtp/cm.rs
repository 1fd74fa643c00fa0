//! AES in counter mode with HMAC-SHA1 cut to 80 bits (RFC 3711 §4.1.1, §4.2.1).

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::{constant_time, hmac};

use super::kdf::{Direction, Labels};
use super::{E, RTCP_HEADER, encrypted_index};
use crate::Discard;

const TAG: usize = 10;

/// Session keys and salt of one direction and one protocol.
pub(super) struct Cm {
    key: EncryptingKey,
    authentication: hmac::Key,
    salt: [u8; 14],
}

impl Cm {
    pub(super) fn derive(direction: &Direction, labels: Labels) -> Option<Self> {
        let (mut key, mut authentication, mut salt) = ([0; 16], [0; 20], [0; 14]);
        direction.derive(labels.encryption, &mut key)?;
        direction.derive(labels.authentication, &mut authentication)?;
        direction.derive(labels.salt, &mut salt)?;
        Self::new(&key, &authentication, salt)
    }

    pub(super) fn new(key: &[u8; 16], authentication: &[u8; 20], salt: [u8; 14]) -> Option<Self> {
        let key = EncryptingKey::ctr(UnboundCipherKey::new(&AES_128, key).ok()?).ok()?;
        Some(Self { key, authentication: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, authentication), salt })
    }

    /// Opens in place; the length of the plain packet. A refused packet is left as it came.
    pub(super) fn open_rtp(&self, packet: &mut [u8], header: usize, ssrc: u32, index: u64) -> Result<usize, Discard> {
        let length = packet.len().checked_sub(TAG).filter(|length| *length >= header).ok_or(Discard::RtpMalformed)?;
        let (plain, tag) = packet.split_at_mut(length);
        constant_time::verify_slices_are_equal(&self.rtp_tag(plain, index), tag)
            .map_err(|_| Discard::SrtpAuthentication)?;
        self.apply_keystream(&mut plain[header..], ssrc, index).ok_or(Discard::SrtpAuthentication)?;
        Ok(length)
    }

    /// Seals in place and appends the tag.
    pub(super) fn seal_rtp(&self, packet: &mut Vec<u8>, header: usize, ssrc: u32, index: u64) -> Option<()> {
        self.apply_keystream(&mut packet[header..], ssrc, index)?;
        let tag = self.rtp_tag(packet, index);
        packet.extend_from_slice(&tag);
        Some(())
    }

    /// Opens in place (RFC 3711 §3.4); the length of the plain packet.
    pub(super) fn open_rtcp(&self, packet: &mut [u8], ssrc: u32, index: u64) -> Result<usize, Discard> {
        let (authenticated, tag) = packet.split_last_chunk_mut::<TAG>().ok_or(Discard::RtpMalformed)?;
        let length = authenticated.len().checked_sub(4).filter(|length| *length >= RTCP_HEADER);
        let length = length.ok_or(Discard::RtpMalformed)?;
        constant_time::verify_slices_are_equal(&self.tag(authenticated, &[]), tag)
            .map_err(|_| Discard::SrtpAuthentication)?;
        self.apply_keystream(&mut authenticated[RTCP_HEADER..length], ssrc, index)
            .ok_or(Discard::SrtpAuthentication)?;
        Ok(length)
    }

    /// Seals in place and appends E, index and tag.
    pub(super) fn seal_rtcp(&self, packet: &mut Vec<u8>, ssrc: u32, index: u32) -> Option<()> {
        self.apply_keystream(packet.get_mut(RTCP_HEADER..)?, ssrc, u64::from(index))?;
        packet.extend_from_slice(&(index | E).to_be_bytes());
        let tag = self.tag(packet, &[]);
        packet.extend_from_slice(&tag);
        Some(())
    }

    /// The tag covers the rollover counter, which is not sent (RFC 3711 §4.2).
    fn rtp_tag(&self, packet: &[u8], index: u64) -> [u8; TAG] {
        let [_, _, a, b, c, d, _, _] = index.to_be_bytes();
        self.tag(packet, &[a, b, c, d])
    }

    fn tag(&self, data: &[u8], suffix: &[u8]) -> [u8; TAG] {
        let mut context = hmac::Context::with_key(&self.authentication);
        context.update(data);
        context.update(suffix);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&context.sign().as_ref()[..TAG]);
        tag
    }

    /// RFC 3711 §4.1.1: the counter begins at salt, SSRC and index, each shifted to its place.
    ///
    /// ```text
    /// 0        4        8              14       16
    /// |        |  SSRC  |     index    | blocks |
    /// |             salt               |
    /// ```
    fn apply_keystream(&self, data: &mut [u8], ssrc: u32, index: u64) -> Option<()> {
        let mut iv = [0; 16];
        iv[4..8].copy_from_slice(&ssrc.to_be_bytes());
        iv[8..14].copy_from_slice(&index.to_be_bytes()[2..]);
        for (byte, salt) in iv.iter_mut().zip(self.salt) {
            *byte ^= salt;
        }
        self.key.less_safe_encrypt(data, EncryptionContext::Iv128(iv.into())).ok().map(drop)
    }
}

/// The index in the word in front of the tag (RFC 3711 §3.4).
pub(super) fn rtcp_index(packet: &[u8]) -> Result<u64, Discard> {
    let (authenticated, _) = packet.split_last_chunk::<TAG>().ok_or(Discard::RtpMalformed)?;
    authenticated.last_chunk().ok_or(Discard::RtpMalformed).and_then(|word| encrypted_index(*word))
}
