//! AES-GCM (RFC 7714).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::kdf::{Direction, Labels};
use super::{E, RTCP_HEADER, encrypted_index};
use crate::Discard;

const TAG: usize = 16;

/// Session key and salt of one direction and one protocol.
pub(super) struct Gcm {
    key: LessSafeKey,
    salt: [u8; 12],
}

impl Gcm {
    /// `key_len` is 16 or 32.
    pub(super) fn derive(key_len: usize, direction: &Direction, labels: Labels) -> Option<Self> {
        let (mut key, mut salt) = ([0; 32], [0; 12]);
        let key = key.get_mut(..key_len)?;
        direction.derive(labels.encryption, key)?;
        direction.derive(labels.salt, &mut salt)?;
        Self::new(key, salt)
    }

    pub(super) fn new(key: &[u8], salt: [u8; 12]) -> Option<Self> {
        let algorithm = if key.len() == 32 { &AES_256_GCM } else { &AES_128_GCM };
        Some(Self { key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?), salt })
    }

    /// Opens in place; the length of the plain packet.
    pub(super) fn open_rtp(&self, packet: &mut [u8], header: usize, ssrc: u32, index: u64) -> Result<usize, Discard> {
        let length = packet.len().checked_sub(TAG).filter(|length| *length >= header).ok_or(Discard::RtpMalformed)?;
        let (plain, tag) = packet.split_at_mut(length);
        let (header, payload) = plain.split_at_mut(header);
        self.key
            .open_in_place_separate_tag(self.nonce(ssrc, index), Aad::from(header), tag, payload)
            .map_err(|_| Discard::SrtpAuthentication)?;
        Ok(length)
    }

    /// Seals in place and appends the tag.
    pub(super) fn seal_rtp(&self, packet: &mut Vec<u8>, header: usize, ssrc: u32, index: u64) -> Option<()> {
        let (header, payload) = packet.split_at_mut(header);
        let tag = self.key.seal_in_place_separate_tag(self.nonce(ssrc, index), Aad::from(header), payload).ok()?;
        packet.extend_from_slice(tag.as_ref());
        Some(())
    }

    /// Opens in place (RFC 7714 §9.3); the length of the plain packet.
    pub(super) fn open_rtcp(&self, packet: &mut [u8], ssrc: u32, index: u64) -> Result<usize, Discard> {
        let (sealed, trailer) = packet.split_last_chunk_mut::<4>().ok_or(Discard::RtpMalformed)?;
        let length = sealed.len().checked_sub(TAG).filter(|length| *length >= RTCP_HEADER);
        let length = length.ok_or(Discard::RtpMalformed)?;
        let (plain, tag) = sealed.split_at_mut(length);
        let (header, body) = plain.split_at_mut(RTCP_HEADER);
        let aad = Aad::from(rtcp_aad(header, trailer));
        self.key
            .open_in_place_separate_tag(self.nonce(ssrc, index), aad, tag, body)
            .map_err(|_| Discard::SrtpAuthentication)?;
        Ok(length)
    }

    /// Seals in place and appends tag, E and index.
    pub(super) fn seal_rtcp(&self, packet: &mut Vec<u8>, ssrc: u32, index: u32) -> Option<()> {
        let trailer = (index | E).to_be_bytes();
        let (header, body) = packet.split_at_mut_checked(RTCP_HEADER)?;
        let aad = Aad::from(rtcp_aad(header, &trailer));
        let tag = self.key.seal_in_place_separate_tag(self.nonce(ssrc, u64::from(index)), aad, body).ok()?;
        packet.extend_from_slice(tag.as_ref());
        packet.extend_from_slice(&trailer);
        Some(())
    }

    /// RFC 7714 §8.1 and §9.1: zeros, SSRC and the 48-bit index, blinded by the salt. An SRTCP index has 31 bits, so
    /// the upper two of these six bytes are the zeros that §9.1 puts there.
    fn nonce(&self, ssrc: u32, index: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[2..6].copy_from_slice(&ssrc.to_be_bytes());
        nonce[6..].copy_from_slice(&index.to_be_bytes()[2..]);
        for (byte, salt) in nonce.iter_mut().zip(self.salt) {
            *byte ^= salt;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The index in the last word (RFC 7714 §9.2).
pub(super) fn rtcp_index(packet: &[u8]) -> Result<u64, Discard> {
    packet.last_chunk().ok_or(Discard::RtpMalformed).and_then(|word| encrypted_index(*word))
}

/// RFC 7714 §9.2: the clear header and the word of E and index.
fn rtcp_aad(header: &[u8], trailer: &[u8; 4]) -> [u8; RTCP_HEADER + 4] {
    let mut aad = [0; RTCP_HEADER + 4];
    aad[..RTCP_HEADER].copy_from_slice(header);
    aad[RTCP_HEADER..].copy_from_slice(trailer);
    aad
}
