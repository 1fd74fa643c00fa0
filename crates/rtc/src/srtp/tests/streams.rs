//! Rollover, replay and the streams of one pair.

use super::super::replay::Window;
use super::super::*;
use super::{PROFILES, Random, open, open_rtcp, packet, pair, sealed, sealed_rtcp};

// R06
#[test]
fn losing_the_packets_around_the_wrap_is_survived() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        for n in 0..200_u16 {
            let seq = 65_530_u16.wrapping_add(n);
            let packet = sealed(&mut tx, 1, seq);
            if !(65_533..=65_535).contains(&seq) && seq > 3 {
                assert!(open(&mut rx, &packet).is_ok(), "{profile:?}, seq {seq}");
            }
        }
        assert_eq!(rx.rtp_streams.highest(1), Some(1 << 16 | 193), "{profile:?}");
    }
}

// R06
#[test]
fn random_loss_and_reordering_over_three_wraps_open_all_that_arrives() {
    for seed in 1..=8 {
        let mut random = Random::new(seed);
        let (mut tx, mut rx) = pair(Profile::AeadAes128Gcm);
        let mut late: Option<(u32, Vec<u8>)> = None;
        let mut seq = 32_000_u16;
        for step in 0..3 * 65_536 / 7 {
            let packet = sealed(&mut tx, 1, seq);
            match random.below(10) {
                0 => {}
                1 if late.is_none() => late = Some((step, packet)),
                _ => assert!(open(&mut rx, &packet).is_ok(), "seed {seed}, seq {seq}"),
            }
            // At most 8 steps of 13 late, which is in the window.
            let arrived = late.take_if(|(sent, _)| random.below(3) == 0 || step - *sent == 8);
            if let Some((_, packet)) = arrived {
                assert!(open(&mut rx, &packet).is_ok(), "seed {seed}, late at seq {seq}");
            }
            // 7 on average, so that the wraps come quickly.
            seq = seq.wrapping_add(1 + u16::try_from(random.below(13)).unwrap());
        }
        assert!(rx.rtp_streams.highest(1).unwrap() >> 16 >= 2, "seed {seed}");
    }
}

// R07
#[test]
fn streams_that_we_send_wrap_each_for_itself() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        for n in 0..100_u16 {
            let (wrapping, other) = (65_500_u16.wrapping_add(n), 100 + n);
            let (a, b) = (sealed(&mut tx, 1, wrapping), sealed(&mut tx, 2, other));
            assert_eq!(open(&mut rx, &a), Ok(packet(1, wrapping)), "{profile:?}");
            assert_eq!(open(&mut rx, &b), Ok(packet(2, other)), "{profile:?}");
        }
        assert_eq!(rx.rtp_streams.highest(1).map(|index| index >> 16), Some(1), "{profile:?}");
        assert_eq!(rx.rtp_streams.highest(2).map(|index| index >> 16), Some(0), "{profile:?}");
    }
}

// R08
#[test]
fn restarted_sequence_numbers_show_as_packets_refused_in_a_row() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        for n in 0..1500_u16 {
            open(&mut rx, &sealed(&mut tx, 1, 65_000_u16.wrapping_add(n))).unwrap();
        }
        assert_eq!(rx.refused_in_a_row(), 0);
        let (mut restarted, _) = pair(profile);
        for seq in 1..=100 {
            assert!(open(&mut rx, &sealed(&mut restarted, 1, seq)).is_err(), "{profile:?}, seq {seq}");
        }
        assert_eq!(rx.refused_in_a_row(), 100, "{profile:?}: 2 s of 20 ms frames");
        open(&mut rx, &sealed(&mut tx, 1, 1000)).unwrap();
        assert_eq!(rx.refused_in_a_row(), 0, "{profile:?}");
    }
}

#[test]
fn a_packet_opens_once() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        let packets: Vec<_> = (0..128).map(|seq| sealed(&mut tx, 1, seq)).collect();
        for packet in packets.iter().rev() {
            assert!(open(&mut rx, packet).is_ok(), "{profile:?}: 127 late is in the window");
        }
        for packet in &packets {
            assert_eq!(open(&mut rx, packet), Err(Discard::SrtpReplay), "{profile:?}");
        }
        let report = sealed_rtcp(&mut tx, &[0x80, 201, 0, 1, 0, 0, 0, 9]);
        assert!(open_rtcp(&mut rx, &report).is_ok());
        assert_eq!(open_rtcp(&mut rx, &report), Err(Discard::SrtpReplay), "{profile:?}");
    }
}

#[test]
fn a_packet_older_than_the_window_is_refused() {
    for profile in PROFILES {
        let (mut tx, mut rx) = pair(profile);
        let old = sealed(&mut tx, 1, 10);
        open(&mut rx, &sealed(&mut tx, 1, 10 + 128)).unwrap();
        assert_eq!(open(&mut rx, &old), Err(Discard::SrtpReplay), "{profile:?}");
    }
}

#[test]
fn the_window_agrees_with_a_set_of_all_indexes() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let mut index = 1000_u64;
        let (mut window, mut seen) = (Window::new(index), std::collections::BTreeSet::from([index]));
        for _ in 0..5000 {
            index = (index + random.next() % 9).saturating_sub(random.next() % 9);
            if random.below(100) == 0 {
                index += random.next() % 300;
            }
            let fresh = !seen.contains(&index) && index + 128 > *seen.last().unwrap();
            assert_eq!(window.is_fresh(index), fresh, "seed {seed}, index {index}");
            if fresh {
                window.accept(index);
                seen.insert(index);
            }
        }
    }
}

#[test]
fn the_guess_is_the_index_nearest_to_the_highest() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        for _ in 0..10_000 {
            let highest = random.next() >> 40;
            let index = (highest + random.next() % 0x8000).saturating_sub(random.next() % 0x8000);
            let guess = rollover::guess(Some(highest), u16::try_from(index & 0xffff).unwrap());
            assert_eq!(guess, index, "seed {seed}, highest {highest}");
        }
    }
    assert_eq!(rollover::guess(Some(100), 65_000), 65_000, "no counter to step back to");
    assert_eq!(rollover::guess(None, 65_000), 65_000);
}

#[test]
fn a_ninth_stream_displaces_the_one_heard_longest_ago() {
    let (mut tx, mut rx) = pair(Profile::AeadAes128Gcm);
    let first = sealed(&mut tx, 1, 10);
    open(&mut rx, &first).unwrap();
    for ssrc in 2..=8 {
        open(&mut rx, &sealed(&mut tx, ssrc, 10)).unwrap();
    }
    open(&mut rx, &sealed(&mut tx, 1, 11)).unwrap();
    open(&mut rx, &sealed(&mut tx, 9, 10)).unwrap();
    assert_eq!(rx.rtp_streams.highest(2), None, "2 was heard longest ago");
    assert_eq!(open(&mut rx, &first), Err(Discard::SrtpReplay), "1 was heard again and stays");
}
