//! SRTP and SRTCP (RFC 3711, RFC 7714), sealed and opened in place.
//!
//! ```text
//! | RTP header, CSRC, extension | payload, encrypted | tag 10 or 16 |
//! |       authenticated         |    authenticated   |               then, for AES-CM, the rollover counter unsent
//!
//! | RTCP header, SSRC | rest, encrypted | E | index | tag 10 |       AES-CM
//! | RTCP header, SSRC | rest, encrypted | tag 16 | E | index |       AES-GCM
//! ```
//!
//! # Invariants
//!
//! - What a packet claims changes nothing before its tag is verified: no stream, no rollover counter, no window.
//! - An index is never used twice for a stream of ours, so no keystream is.
//! - A media packet costs no allocation, and one opening whatever it claims.
//!
//! Not here: a master key identifier (MKI), key derivation rates other than 0, encrypted header extensions (RFC 6904),
//! SRTCP in the clear (RFC 8827 §6.5 forbids it).

mod cm;
mod gcm;
mod kdf;
mod replay;
mod rollover;
mod streams;
#[cfg(test)]
mod tests;

use crate::{Discard, rtp};
use cm::Cm;
use gcm::Gcm;
use kdf::Direction;
use streams::Streams;

/// SRTP protection profiles (RFC 5764 §4.1.2, RFC 7714 §14.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// SRTP_AEAD_AES_256_GCM.
    AeadAes256Gcm,
    /// SRTP_AEAD_AES_128_GCM.
    AeadAes128Gcm,
    /// SRTP_AES128_CM_HMAC_SHA1_80.
    Aes128CmSha1_80,
}

impl Profile {
    /// Bytes of a master key.
    fn key_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm => 32,
            Self::AeadAes128Gcm | Self::Aes128CmSha1_80 => 16,
        }
    }

    /// Bytes of a master salt (RFC 3711 §8.2, RFC 7714 §12).
    fn salt_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm | Self::AeadAes128Gcm => 12,
            Self::Aes128CmSha1_80 => 14,
        }
    }
}

/// Splits the exported keying material into both directions (RFC 5764 §4.2):
///
/// ```text
/// | client key | server key | client salt | server salt |
/// ```
///
/// `dtls_active`: we are the DTLS client. None when the material is not of the profile's length.
pub fn contexts(profile: Profile, keying_material: &[u8], dtls_active: bool) -> Option<(Sender, Receiver)> {
    let (key, salt) = (profile.key_len(), profile.salt_len());
    if keying_material.len() != 2 * (key + salt) {
        return None;
    }
    let (keys, salts) = keying_material.split_at(2 * key);
    let (client, server) =
        (Direction::new(&keys[..key], &salts[..salt])?, Direction::new(&keys[key..], &salts[salt..])?);
    let (ours, theirs) = if dtls_active { (client, server) } else { (server, client) };
    let sender = Sender {
        rtp: Cipher::new(profile, &ours, kdf::RTP)?,
        rtcp: Cipher::new(profile, &ours, kdf::RTCP)?,
        streams: Vec::new(),
        rtcp_index: 0,
    };
    let receiver = Receiver {
        rtp: Cipher::new(profile, &theirs, kdf::RTP)?,
        rtcp: Cipher::new(profile, &theirs, kdf::RTCP)?,
        rtp_streams: Streams::default(),
        rtcp_streams: Streams::default(),
        refused_in_a_row: 0,
    };
    Some((sender, receiver))
}

/// The session keys of one direction and one protocol.
enum Cipher {
    Gcm(Gcm),
    /// Boxed, or an AES-GCM session would carry its 1.7 KB four times for nothing.
    Cm(Box<Cm>),
}

impl Cipher {
    fn new(profile: Profile, direction: &Direction, labels: kdf::Labels) -> Option<Self> {
        match profile {
            Profile::AeadAes256Gcm | Profile::AeadAes128Gcm => {
                Gcm::derive(profile.key_len(), direction, labels).map(Self::Gcm)
            }
            Profile::Aes128CmSha1_80 => Cm::derive(direction, labels).map(|cm| Self::Cm(Box::new(cm))),
        }
    }
}

/// Bit that says that an SRTCP packet is encrypted (RFC 3711 §3.4).
const E: u32 = 1 << 31;
/// RTCP header and SSRC, which stay in the clear.
const RTCP_HEADER: usize = 8;

/// The index of a packet's E and index word. Packets in the clear are refused.
fn encrypted_index(word: [u8; 4]) -> Result<u64, Discard> {
    let word = u32::from_be_bytes(word);
    if word & E == 0 { Err(Discard::RtpMalformed) } else { Ok(u64::from(word & !E)) }
}

fn ssrc_at(packet: &[u8], at: usize) -> Option<u32> {
    packet.get(at..)?.first_chunk().map(|ssrc| u32::from_be_bytes(*ssrc))
}

/// An authentic RTCP packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenedRtcp {
    /// Of the plain packet, at the start of the sealed one.
    pub(crate) length: usize,
    /// No packet of its sender's is ahead of it.
    pub(crate) newest: bool,
}

/// Opens what the client sends. One set of keys; a rollover counter and a replay window for each of the 8 SSRCs heard
/// last.
pub struct Receiver {
    rtp: Cipher,
    rtcp: Cipher,
    rtp_streams: Streams,
    rtcp_streams: Streams,
    refused_in_a_row: u32,
}

impl Receiver {
    /// Opens an SRTP packet in place; returns the length of the plain RTP packet at the start of `packet`.
    ///
    /// # Errors
    /// Why it is refused; nothing else changed.
    pub fn open_rtp(&mut self, packet: &mut [u8]) -> Result<usize, Discard> {
        let opened = self.try_open_rtp(packet);
        self.refused_in_a_row = if opened.is_ok() { 0 } else { self.refused_in_a_row.saturating_add(1) };
        opened
    }

    fn try_open_rtp(&mut self, packet: &mut [u8]) -> Result<usize, Discard> {
        let header = rtp::header_len(packet)?;
        let ssrc = ssrc_at(packet, 8).ok_or(Discard::RtpMalformed)?;
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let index = rollover::guess(self.rtp_streams.highest(ssrc), seq);
        if !self.rtp_streams.is_fresh(ssrc, index) {
            return Err(Discard::SrtpReplay);
        }
        let length = match &self.rtp {
            Cipher::Gcm(gcm) => gcm.open_rtp(packet, header, ssrc, index),
            Cipher::Cm(cm) => cm.open_rtp(packet, header, ssrc, index),
        }?;
        self.rtp_streams.accept(ssrc, index);
        Ok(length)
    }

    /// Opens an SRTCP packet in place: of a client that tells packet by packet what it heard, 20 come in a second.
    pub(crate) fn open_rtcp(&mut self, packet: &mut [u8]) -> Result<OpenedRtcp, Discard> {
        let ssrc = ssrc_at(packet, 4).ok_or(Discard::RtpMalformed)?;
        let index = match &self.rtcp {
            Cipher::Gcm(_) => gcm::rtcp_index(packet),
            Cipher::Cm(_) => cm::rtcp_index(packet),
        }?;
        if !self.rtcp_streams.is_fresh(ssrc, index) {
            return Err(Discard::SrtpReplay);
        }
        let length = match &self.rtcp {
            Cipher::Gcm(gcm) => gcm.open_rtcp(packet, ssrc, index),
            Cipher::Cm(cm) => cm.open_rtcp(packet, ssrc, index),
        }?;
        self.rtcp_streams.accept(ssrc, index);
        Ok(OpenedRtcp { length, newest: self.rtcp_streams.highest(ssrc) == Some(index) })
    }

    /// SRTP packets refused since the last that opened. A client that restarts its sequence numbers under one SSRC
    /// (some do after hold) cannot be opened ever again, which is otherwise silence: some 50 in a row, a second of
    /// audio, mean that.
    pub(crate) fn refused_in_a_row(&self) -> u32 {
        self.refused_in_a_row
    }
}

/// Seals what we send. One set of keys and a rollover counter per SSRC.
pub struct Sender {
    rtp: Cipher,
    rtcp: Cipher,
    /// SSRC and highest index. Never displaced: forgetting one would use its keystream again.
    streams: Vec<(u32, u64)>,
    /// One for all SSRCs, so it is unique for each.
    rtcp_index: u32,
}

impl Sender {
    /// Seals the RTP packet in `packet` in place, appending the tag. A sequence number may come again only with the
    /// very same packet (a retransmission). What is no RTP packet is emptied, so that nothing leaves in the clear.
    pub fn seal_rtp(&mut self, packet: &mut Vec<u8>) {
        if self.try_seal_rtp(packet).is_none() {
            packet.clear();
        }
    }

    fn try_seal_rtp(&mut self, packet: &mut Vec<u8>) -> Option<()> {
        let header = rtp::header_len(packet).ok()?;
        let ssrc = ssrc_at(packet, 8)?;
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let at = match self.streams.iter().position(|stream| stream.0 == ssrc) {
            Some(at) => at,
            None => {
                self.streams.push((ssrc, u64::from(seq)));
                self.streams.len() - 1
            }
        };
        let highest = &mut self.streams[at].1;
        let index = rollover::guess(Some(*highest), seq);
        *highest = index.max(*highest);
        match &self.rtp {
            Cipher::Gcm(gcm) => gcm.seal_rtp(packet, header, ssrc, index),
            Cipher::Cm(cm) => cm.seal_rtp(packet, header, ssrc, index),
        }
    }

    /// Seals the RTCP packet in `packet` in place. What is no RTCP packet is emptied, and everything after 2^31 packets (RFC
    /// 3711 §9.2).
    pub(crate) fn seal_rtcp(&mut self, packet: &mut Vec<u8>) {
        if self.try_seal_rtcp(packet).is_none() {
            packet.clear();
        }
    }

    fn try_seal_rtcp(&mut self, packet: &mut Vec<u8>) -> Option<()> {
        let ssrc = ssrc_at(packet, 4)?;
        let index = self.rtcp_index;
        if index >= E {
            return None;
        }
        self.rtcp_index += 1;
        match &self.rtcp {
            Cipher::Gcm(gcm) => gcm.seal_rtcp(packet, ssrc, index),
            Cipher::Cm(cm) => cm.seal_rtcp(packet, ssrc, index),
        }
    }
}
