//! Packets that nobody with the keys made.

use super::super::*;
use super::{PROFILES, Random, open, open_rtcp, packet, pair, sealed, sealed_rtcp};

#[test]
fn a_changed_byte_anywhere_is_refused() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        let (rtp, rtcp) = (sealed(&mut tx, 1, 10), sealed_rtcp(&mut tx, &[0x80, 201, 0, 1, 0, 0, 0, 9]));
        for at in 0..rtp.len() {
            let mut changed = rtp.clone();
            changed[at] ^= 1;
            assert!(open(&mut rx, &changed).is_err(), "{profile:?}, byte {at}");
        }
        for at in 0..rtcp.len() {
            let mut changed = rtcp.clone();
            changed[at] ^= 1;
            assert!(open_rtcp(&mut rx, &changed).is_err(), "{profile:?}, byte {at}");
        }
        assert_eq!(open(&mut rx, &rtp), Ok(packet(1, 10)), "{profile:?}: nothing of it held against the real one");
        assert!(open_rtcp(&mut rx, &rtcp).is_ok(), "{profile:?}");
    }
}

#[test]
fn forged_packets_move_no_counter_and_displace_no_stream() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        open(&mut rx, &sealed(&mut tx, 1, 40_000)).unwrap();
        for ssrc in 0..1000_u32 {
            let mut forged = packet(ssrc, 60_000);
            forged.extend([0; 16]);
            assert_eq!(open(&mut rx, &forged), Err(Discard::SrtpAuthentication), "{profile:?}");
            // E and an index where each profile looks for it.
            let mut forged = [0x80, 201, 0, 1, 0, 0, 0, 9].to_vec();
            forged.extend([0x80; 32]);
            assert_eq!(open_rtcp(&mut rx, &forged), Err(Discard::SrtpAuthentication), "{profile:?}");
        }
        assert_eq!(rx.rtp_streams.highest(1), Some(40_000), "{profile:?}");
        assert_eq!(rx.rtp_streams.highest(2), None, "{profile:?}");
        assert_eq!(rx.rtcp_streams.highest(9), None, "{profile:?}");
    }
}

#[test]
fn rtcp_in_the_clear_is_refused() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        let mut report = sealed_rtcp(&mut tx, &[0x80, 201, 0, 1, 0, 0, 0, 9]);
        let word = if profile == Profile::Aes128CmSha1_80 { report.len() - 14 } else { report.len() - 4 };
        report[word] &= 0x7f;
        assert_eq!(open_rtcp(&mut rx, &report), Err(Discard::RtpMalformed), "{profile:?}");
    }
}

#[test]
fn every_cut_of_a_packet_is_refused() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        let (rtp, rtcp) = (sealed(&mut tx, 1, 10), sealed_rtcp(&mut tx, &[0x80, 201, 0, 1, 0, 0, 0, 9]));
        for length in 0..rtp.len() {
            assert!(open(&mut rx, &rtp[..length]).is_err(), "{profile:?}, {length} bytes");
        }
        for length in 0..rtcp.len() {
            assert!(open_rtcp(&mut rx, &rtcp[..length]).is_err(), "{profile:?}, {length} bytes");
        }
    }
}

#[test]
fn noise_never_opens() {
    for (seed, profile) in (1..).zip(PROFILES) {
        let mut random = Random::new(seed);
        let (_, mut rx) = pair(profile);
        for _ in 0..20_000 {
            let length = random.below(80);
            let mut noise = random.bytes(length);
            if let Some(first) = noise.first_mut() {
                *first = 0x80 | *first & 0x3f;
            }
            assert!(open(&mut rx, &noise).is_err(), "{profile:?}, seed {seed}: {noise:02x?}");
            assert!(open_rtcp(&mut rx, &noise).is_err(), "{profile:?}, seed {seed}: {noise:02x?}");
        }
    }
}
