//! SRTP facts, on both sides of a pair keyed like one after a DTLS handshake.

mod hostile;
mod oracle;
mod streams;
mod vectors;

use super::*;

pub(super) const PROFILES: [Profile; 3] = [Profile::AeadAes256Gcm, Profile::AeadAes128Gcm, Profile::Aes128CmSha1_80];

/// xorshift64*: enough to vary packets by a seed that a failure prints.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from((self.next() >> 33) % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

pub(super) fn material(profile: Profile) -> Vec<u8> {
    Random::new(7).bytes(2 * (profile.key_len() + profile.salt_len()))
}

/// What the client sends with, and what we open it with.
pub(super) fn pair(profile: Profile) -> (Sender, Receiver) {
    let material = material(profile);
    (contexts(profile, &material, true).unwrap().0, contexts(profile, &material, false).unwrap().1)
}

pub(super) fn packet(ssrc: u32, seq: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    rtp::Header { marker: false, payload_type: 111, seq, timestamp: u32::from(seq) * 960, ssrc, transport_seq: None }
        .write(&mut packet);
    packet.extend_from_slice(b"some opus frame");
    packet
}

pub(super) fn sealed(sender: &mut Sender, ssrc: u32, seq: u16) -> Vec<u8> {
    let mut packet = packet(ssrc, seq);
    sender.seal_rtp(&mut packet);
    packet
}

pub(super) fn sealed_rtcp(sender: &mut Sender, plain: &[u8]) -> Vec<u8> {
    let mut packet = plain.to_vec();
    sender.seal_rtcp(&mut packet);
    packet
}

pub(super) fn open(receiver: &mut Receiver, packet: &[u8]) -> Result<Vec<u8>, Discard> {
    let mut packet = packet.to_vec();
    let length = receiver.open_rtp(&mut packet)?;
    packet.truncate(length);
    Ok(packet)
}

// D06
/// The plain packet.
fn open_rtcp(rx: &mut Receiver, packet: &[u8]) -> Result<Vec<u8>, Discard> {
    let mut packet = packet.to_vec();
    let opened = rx.open_rtcp(&mut packet)?;
    packet.truncate(opened.length);
    Ok(packet)
}

#[test]
fn keying_material_of_another_profiles_length_is_refused() {
    for profile in PROFILES {
        for length in 0..=100 {
            let accepted = contexts(profile, &vec![1; length], true).is_some();
            let right = match profile {
                Profile::AeadAes256Gcm => 2 * (32 + 12),
                Profile::AeadAes128Gcm => 2 * (16 + 12),
                Profile::Aes128CmSha1_80 => 2 * (16 + 14),
            };
            assert_eq!(accepted, length == right, "{profile:?} with {length} bytes");
        }
    }
}

// D06
#[test]
fn both_dtls_roles_key_both_directions() {
    for profile in PROFILES {
        let material = material(profile);
        let (mut client_tx, mut client_rx) = contexts(profile, &material, true).unwrap();
        let (mut server_tx, mut server_rx) = contexts(profile, &material, false).unwrap();
        let (up, down) = (sealed(&mut client_tx, 1, 10), sealed(&mut server_tx, 2, 20));
        assert_eq!(open(&mut server_rx, &up), Ok(packet(1, 10)), "{profile:?}");
        assert_eq!(open(&mut client_rx, &down), Ok(packet(2, 20)), "{profile:?}");
        let report = [0x80, 201, 0, 1, 0, 0, 0, 9];
        assert_eq!(
            open_rtcp(&mut server_rx, &sealed_rtcp(&mut client_tx, &report)),
            Ok(report.to_vec()),
            "{profile:?}"
        );
        assert_eq!(
            open_rtcp(&mut client_rx, &sealed_rtcp(&mut server_tx, &report)),
            Ok(report.to_vec()),
            "{profile:?}"
        );
    }
}

#[test]
fn each_direction_has_keys_of_its_own() {
    for profile in PROFILES {
        let (mut tx, mut rx) = contexts(profile, &material(profile), true).unwrap();
        let own = sealed(&mut tx, 1, 10);
        assert_eq!(open(&mut rx, &own), Err(Discard::SrtpAuthentication), "{profile:?}");
    }
}

#[test]
fn what_is_no_rtp_is_never_sent_in_the_clear() {
    for profile in PROFILES {
        let (mut tx, _) = pair(profile);
        let mut cut = packet(1, 1)[..11].to_vec();
        tx.seal_rtp(&mut cut);
        assert_eq!(cut, Vec::<u8>::new(), "{profile:?}");
        assert_eq!(sealed_rtcp(&mut tx, &[0x80, 201, 0, 1, 0, 0, 0]), Vec::<u8>::new(), "{profile:?}");
    }
}

// R05, R15: nothing is lost to finding out about the stream, whatever waited for the keys.
#[test]
fn the_first_ten_packets_of_an_unannounced_stream_open_in_order() {
    for profile in PROFILES {
        let (mut tx, _) = pair(profile);
        let held: Vec<_> = (0..10).map(|seq| sealed(&mut tx, 77, seq)).collect();
        let (_, mut rx) = pair(profile);
        for (seq, held) in (0..10).zip(&held) {
            assert_eq!(open(&mut rx, held), Ok(packet(77, seq)), "{profile:?}");
        }
    }
}
