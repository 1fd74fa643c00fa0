//! Against somebody else's implementation, over random packets.

use rtc_srtp::context::Context;
use rtc_srtp::protection_profile::ProtectionProfile;

use super::super::*;
use super::{PROFILES, Random, material, open, open_rtcp, sealed_rtcp};

/// The other implementation, keyed as the DTLS client's or the server's sending side.
fn oracle(profile: Profile, client: bool) -> Context {
    let material = material(profile);
    let (key, salt) = (profile.key_len(), profile.salt_len());
    let side = usize::from(!client);
    let theirs = match profile {
        Profile::AeadAes256Gcm => ProtectionProfile::AeadAes256Gcm,
        Profile::AeadAes128Gcm => ProtectionProfile::AeadAes128Gcm,
        Profile::Aes128CmSha1_80 => ProtectionProfile::Aes128CmHmacSha1_80,
    };
    let provider = rtc_srtp::crypto::default_provider().unwrap();
    let (keys, salts) = material.split_at(2 * key);
    Context::new(&keys[side * key..][..key], &salts[side * salt..][..salt], theirs, None, None, provider.crypto())
        .unwrap()
}

/// A random RTP packet: CSRCs, an extension and a payload, each or none.
fn random_packet(random: &mut Random, seq: u16) -> Vec<u8> {
    let csrc = random.below(4);
    let extension = random.below(2);
    let mut packet = vec![0x80 | u8::try_from(extension << 4 | csrc).unwrap(), 111];
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 3, 192, 1, 2, 3, 4]);
    packet.extend(random.bytes(csrc * 4));
    if extension == 1 {
        // One element with id 1 that fills one or two words.
        let words = 1 + random.below(2);
        packet.extend_from_slice(&[0xbe, 0xde, 0, u8::try_from(words).unwrap()]);
        packet.push(0x10 | u8::try_from(words * 4 - 2).unwrap());
        packet.extend(random.bytes(words * 4 - 1));
    }
    let payload = random.below(200);
    packet.extend(random.bytes(payload));
    packet
}

#[test]
fn rtp_is_the_same_on_another_implementation_across_wraps() {
    for (seed, profile) in (1..).zip(PROFILES) {
        let mut random = Random::new(seed);
        let (mut tx, mut rx) = contexts(profile, &material(profile), true).unwrap();
        let (mut their_rx, mut their_tx) = (oracle(profile, true), oracle(profile, false));
        let mut seq = 65_000_u16;
        for _ in 0..1000 {
            let plain = random_packet(&mut random, seq);
            let mut ours = plain.clone();
            tx.seal_rtp(&mut ours);
            let opened = their_rx.decrypt_rtp(&ours).unwrap();
            assert_eq!(opened[..], plain, "{profile:?}, seed {seed}, seq {seq}: sealed here");
            let theirs = their_tx.encrypt_rtp(&plain).unwrap();
            assert_eq!(open(&mut rx, &theirs), Ok(plain), "{profile:?}, seed {seed}, seq {seq}: opened here");
            // 1000 steps of up to 300: some two wraps.
            seq = seq.wrapping_add(1 + u16::try_from(random.below(300)).unwrap());
        }
        assert!(
            rx.rtp_streams.highest(0x0102_0304).unwrap() >> 16 >= 2,
            "{profile:?}, seed {seed}: no wrap was tested"
        );
    }
}

#[test]
fn rtcp_is_the_same_on_another_implementation() {
    for (seed, profile) in (1..).zip(PROFILES) {
        let mut random = Random::new(seed);
        let (mut tx, mut rx) = contexts(profile, &material(profile), true).unwrap();
        let (mut their_rx, mut their_tx) = (oracle(profile, true), oracle(profile, false));
        for words in 1..60_u8 {
            let mut plain = vec![0x80, 201, 0, words, 9, 9, 9, 9];
            plain.extend(random.bytes(usize::from(words - 1) * 4));
            let ours = sealed_rtcp(&mut tx, &plain);
            assert_eq!(their_rx.decrypt_rtcp(&ours).unwrap()[..], plain, "{profile:?}, seed {seed}: sealed here");
            let theirs = their_tx.encrypt_rtcp(&plain).unwrap();
            assert_eq!(open_rtcp(&mut rx, &theirs), Ok(plain), "{profile:?}, seed {seed}: opened here");
        }
    }
}
