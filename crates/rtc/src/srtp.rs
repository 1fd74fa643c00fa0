//! SRTP and SRTCP (RFC 3711, 7714). CONTRACT skeleton: the owner of `srtp` writes the bodies; `session` uses these.

use crate::Discard;

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

/// Opens what the client sends. One key pair, a rollover counter and a replay window per SSRC (at most 8, oldest displaced).
pub(crate) struct Receiver { }

/// Seals what we send. One rollover counter per SSRC.
pub(crate) struct Sender { }

/// Splits the exported keying material (RFC 5764 §4.2) into both directions. `dtls_active`: we are the DTLS client.
pub(crate) fn contexts(profile: Profile, keying_material: &[u8], dtls_active: bool) -> Option<(Sender, Receiver)> { todo!() }

impl Receiver {
    /// Opens an SRTP packet in place; returns the length of the plain RTP packet at the start of `packet`.
    pub(crate) fn open_rtp(&mut self, packet: &mut [u8]) -> Result<usize, Discard> { todo!() }
    /// Opens an SRTCP packet (the control path: may allocate).
    pub(crate) fn open_rtcp(&mut self, packet: &[u8]) -> Result<Vec<u8>, Discard> { todo!() }
}

impl Sender {
    /// Seals the RTP packet in `packet` in place, appending the tag.
    pub(crate) fn seal_rtp(&mut self, packet: &mut Vec<u8>) { todo!() }
    /// Seals an RTCP packet.
    pub(crate) fn seal_rtcp(&mut self, packet: &[u8]) -> Vec<u8> { todo!() }
}
