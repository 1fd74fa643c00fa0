//! A caller's audio at speed: 20 ms packets that say who sent them and when they are back.

use anyhow::{Context as _, bail};
use rtc_srtp::context::Context;
use rtc_srtp::protection_profile::ProtectionProfile;
use str0m::crypto::dtls::SrtpProfile;

use super::tap::Keys;

/// Opus bytes of one frame: 40 kbit/s.
const PAYLOAD_BYTES: usize = 100;

/// RTP header without extensions (RFC 3550 §5.1).
const HEADER_BYTES: usize = 12;

/// One datagram before its SRTP tag: the longest Opus frame (RFC 6716 §3.2.1) and its header.
const PACKET_ROOM: usize = HEADER_BYTES + 1276;

/// First byte of an Opus packet that holds one 20 ms mono frame, so that servers which look find nothing odd.
const OPUS_TOC: u8 = 15 << 3;

/// Samples of one frame at 48 kHz.
const FRAME_SAMPLES: u32 = 960;

/// Writes the number of a frame where it comes back from, whatever becomes of the RTP header on the way.
fn stamp(payload: &mut [u8; PAYLOAD_BYTES], count: u32) {
    payload[0] = OPUS_TOC;
    payload[1..5].copy_from_slice(&count.to_be_bytes());
}

/// The number that [`stamp`] wrote.
fn stamped(payload: &[u8]) -> Option<u32> {
    let bytes = payload.get(1..5).filter(|_| payload.len() == PAYLOAD_BYTES)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// What a packet from the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    /// Opus that says nothing: a frame of three bytes.
    pub(crate) silence: bool,
    /// The number of the frame that came back; none when it is no frame of ours.
    pub(crate) count: Option<u32>,
}

/// The sealed way out and the way in of one caller.
pub(crate) struct Media {
    seal: Context,
    open: Context,
    ssrc: u32,
    payload_type: u8,
}

impl Media {
    pub(crate) fn new(keys: &Keys, ssrc: u32, payload_type: u8) -> anyhow::Result<Self> {
        let profile = match keys.profile {
            SrtpProfile::AES128_CM_SHA1_80 => ProtectionProfile::Aes128CmHmacSha1_80,
            SrtpProfile::AEAD_AES_128_GCM => ProtectionProfile::AeadAes128Gcm,
            SrtpProfile::AEAD_AES_256_GCM => ProtectionProfile::AeadAes256Gcm,
            other => bail!("the server chose SRTP profile {other:?}"),
        };
        let (key, salt) = (profile.key_len(), profile.salt_len());
        let material = keys.material.get(..2 * (key + salt)).context("DTLS gave too few key bytes")?;
        let (keys_, salts) = material.split_at(2 * key);
        let client = (&keys_[..key], &salts[..salt]);
        let server = (&keys_[key..], &salts[salt..]);
        let (ours, theirs) = if keys.client { (client, server) } else { (server, client) };
        let provider = rtc_srtp::crypto::default_provider()?;
        let crypto = provider.crypto();
        let context = |(key, salt)| Context::new(key, salt, profile, None, None, crypto);
        Ok(Self { seal: context(ours)?, open: context(theirs)?, ssrc, payload_type })
    }

    /// One that opens what it sealed itself.
    pub(crate) fn mirrored() -> anyhow::Result<Self> {
        let half: [u8; 16] = rand::random();
        let salt: [u8; 12] = rand::random();
        let material = [&half[..], &half, &salt, &salt].concat();
        Self::new(&Keys { profile: SrtpProfile::AEAD_AES_128_GCM, material, client: true }, rand::random(), 111)
    }

    /// The packet of frame `count`, sealed: its number is its payload.
    pub(crate) fn seal(&mut self, count: u32) -> anyhow::Result<bytes::BytesMut> {
        let mut payload = [0; PAYLOAD_BYTES];
        stamp(&mut payload, count);
        self.seal_payload(count, &payload)
    }

    /// The packet of frame `count` with this payload, sealed.
    pub(crate) fn seal_payload(&mut self, count: u32, payload: &[u8]) -> anyhow::Result<bytes::BytesMut> {
        let mut packet = [0; PACKET_ROOM];
        let packet = packet.get_mut(..HEADER_BYTES + payload.len()).context("a frame too long")?;
        packet[0] = 2 << 6;
        packet[1] = self.payload_type;
        packet[2..4].copy_from_slice(&low16(count).to_be_bytes());
        packet[4..8].copy_from_slice(&count.wrapping_mul(FRAME_SAMPLES).to_be_bytes());
        packet[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        packet[HEADER_BYTES..].copy_from_slice(payload);
        Ok(self.seal.encrypt_rtp(packet)?)
    }

    /// What this packet holds; none when it is not authentic.
    pub(crate) fn open(&mut self, packet: &[u8]) -> Option<Opened> {
        let opened = self.open.decrypt_rtp(packet).ok()?;
        let (first, rest) = (*opened.first()?, opened.get(HEADER_BYTES..)?);
        let rest = rest.get(4 * usize::from(first & 0x0f)..)?;
        let payload = if first & 0x10 == 0 {
            rest
        } else {
            let words = u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?);
            rest.get(4 + 4 * usize::from(words)..)?
        };
        Some(Opened {
            seq: u16::from_be_bytes(opened.get(2..4)?.try_into().ok()?),
            timestamp: u32::from_be_bytes(opened.get(4..8)?.try_into().ok()?),
            silence: payload.len() <= 3,
            count: stamped(payload),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "RTP sequence numbers are modulo 2^16")]
fn low16(count: u32) -> u16 {
    count as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(client: bool) -> Keys {
        Keys { profile: SrtpProfile::AEAD_AES_128_GCM, material: (0..56).collect(), client }
    }

    #[test]
    fn a_frame_that_was_sealed_by_one_side_is_told_by_the_other() {
        let mut caller = Media::new(&keys(true), 7, 111).unwrap();
        let mut server = Media::new(&keys(false), 8, 111).unwrap();
        let sealed = caller.seal(70_000).unwrap();
        let opened = server.open(&sealed).unwrap();
        assert_eq!((opened.count, opened.seq, opened.timestamp), (Some(70_000), 4464, 67_200_000));
        assert_eq!(caller.open(&sealed), None, "its own packet is not from the server");
    }

    #[test]
    fn what_is_no_frame_of_ours_has_no_number() {
        assert_eq!(stamped(&[0; PAYLOAD_BYTES - 1]), None);
        assert_eq!(stamped(&[]), None);
    }
}
