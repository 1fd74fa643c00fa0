//! What is missing comes again: in RED, after a NACK, or too late.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its numbers fit")]

mod common;

use std::time::Duration;

use common::speech::Random;
use common::stream::{Got, Stream, WIDEBAND_20_MS};
use voice::{Codec, RepairConfig};

fn nack() -> RepairConfig {
    RepairConfig { nack: true, ..RepairConfig::default() }
}

#[test]
fn red_without_loss_is_its_packets() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    for name in 2..20_u8 {
        stream.send_red(name.into(), 960 * u32::from(name - 1), &[name - 1, name]);
        stream.wait_ms(20);
    }
    let expected: Vec<Got> = (1..20).map(Got::Packet).collect();
    assert_eq!(stream.taken(), expected);
    let stats = stream.repair.stats();
    assert_eq!((stats.red, stats.duplicates, stats.late), (0, 0, 0));
}

#[test]
fn a_red_copy_fills_a_hole_at_once() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    stream.send_red(3, 1920, &[2, 3]);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2), Got::Packet(3)]);
    assert_eq!(stream.repair.stats().red, 960);
    // And it is no sign of packets out of order: the next loss waits for nothing.
    stream.send(5, 3840, 5);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(5)]);
}

#[test]
fn a04_of_a_burst_longer_than_the_copies_the_rest_is_filled_before_them() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    stream.send_red(6, 4800, &[4, 5, 6]);
    let filled = [Got::Conceal(960), Got::Fec(960), Got::Packet(4), Got::Packet(5), Got::Packet(6)];
    assert_eq!(stream.taken()[1..], filled);
}

#[test]
fn a_packet_that_comes_after_its_copy_is_a_duplicate() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    stream.send_red(3, 1920, &[2, 3]);
    stream.send_red(2, 960, &[1, 2]);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2), Got::Packet(3)]);
    assert_eq!(stream.repair.stats().duplicates, 1);
}

#[test]
fn a_copy_from_before_silence_is_no_copy_of_what_is_missing() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    // 2 is a key; 3 repeats the audio before it, as the sender knows no other.
    let mut red = (0x80_u32 << 24 | 111 << 24 | 960 << 10 | 3).to_be_bytes().to_vec();
    red.extend_from_slice(&[111, WIDEBAND_20_MS, 1, 0, WIDEBAND_20_MS, 3, 0]);
    stream.send_coded(Codec::Red, 3, 960, &red);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(3)]);
}

#[test]
fn red_that_contradicts_itself_is_counted() {
    let mut stream = Stream::new();
    stream.send_red(1, 0, &[1]);
    for bad in [&[][..], &[0x80 | 111], &[0x80 | 111, 0, 0, 9, 111, 1], &[111]] {
        stream.send_coded(Codec::Red, 2, 960, bad);
    }
    assert_eq!(stream.repair.stats().malformed, 4);
    stream.send_red(2, 960, &[1, 2]);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2)]);
}

#[test]
fn with_nack_a_hole_waits_60_ms_until_it_is_known_how_long_sending_again_takes() {
    let mut stream = Stream::with(nack());
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.wait_ms(59);
    assert_eq!(stream.taken(), [Got::Packet(1)]);
    stream.wait_ms(1);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(3)]);
}

#[test]
fn with_nack_what_is_sent_again_fills_the_hole_and_the_next_waits_half_as_long_again() {
    let mut stream = Stream::with(nack());
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.wait_ms(20);
    stream.send(2, 960, 2);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2), Got::Packet(3)]);
    stream.send(5, 3840, 5);
    stream.wait_ms(29);
    assert_eq!(stream.taken(), []);
    stream.wait_ms(1);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(5)]);
}

#[test]
fn without_loss_nack_costs_nothing() {
    let mut stream = Stream::with(nack());
    for name in 0..50 {
        stream.send(name.into(), 960 * u32::from(name), name);
        assert_eq!(stream.taken(), [Got::Packet(name)]);
        assert_eq!(stream.repair.poll_timeout(), None);
        stream.wait_ms(20);
    }
}

#[test]
fn a_client_that_never_sends_again_is_waited_for_four_times() {
    let mut stream = Stream::with(nack());
    let mut waits = 0;
    stream.send(0, 0, 0);
    for hole in 1..10_u16 {
        stream.send(hole * 2, 1920 * u32::from(hole), 7);
        waits += u32::from(stream.repair.poll_timeout().is_some());
        stream.wait_ms(100);
    }
    assert_eq!(waits, 4);
}

#[test]
fn where_sending_again_takes_longer_than_may_be_waited_nothing_waits() {
    let mut stream = Stream::with(nack());
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.wait_ms(60);
    stream.wait_ms(90);
    stream.send(2, 960, 2);
    assert_eq!(stream.late, [(960, 2)], "150 ms after it was missed");
    // It was asked for, and is no sign of packets out of order.
    stream.send(5, 3840, 5);
    assert_eq!(stream.taken()[2..], [Got::Packet(3), Got::Fec(960), Got::Packet(5)]);
}

/// One of each `every` packets is lost and comes again `answer` ms after the hole was seen, one of each 13 is overtaken by the
/// next and comes 3 ms behind it: how often a hole waited, for how long, and what came in time of what was lost.
fn answered(rtt_ms: u64, answer: u64, every: u32, overtaken: bool) -> (Vec<u64>, u64) {
    let mut stream = Stream::with(nack());
    stream.repair.set_round_trip(Duration::from_millis(rtt_ms));
    let mut due: Vec<(u64, u32)> = Vec::new();
    let (mut waits, mut since) = (Vec::new(), None);
    for ms in 0..20_000_u64 {
        if ms.is_multiple_of(20) {
            let seq = u32::try_from(ms / 20).unwrap();
            if seq > 0 && seq.is_multiple_of(every) {
                due.push((ms + 20 + answer, seq));
            } else if overtaken && seq % 13 == 5 {
                due.push((ms + 23, seq));
            } else {
                stream.send(seq as u16, seq * 960, 7);
            }
        }
        due.retain(|(at, seq)| {
            if *at == ms {
                stream.send(*seq as u16, *seq * 960, 7);
            }
            *at > ms
        });
        stream.wait_ms(1);
        match (since, stream.repair.poll_timeout()) {
            (None, Some(_)) => since = Some(ms),
            (Some(from), None) => {
                waits.push(ms - from);
                since = None;
            }
            _ => {}
        }
    }
    (waits, stream.repair.stats().concealed + stream.repair.stats().fec)
}

#[test]
fn slow_answers_in_an_orderly_network_cost_the_first_hole_its_wait_and_no_other_one() {
    let (waits, made_up) = answered(120, 120, 20, false);
    assert_eq!((waits.as_slice(), made_up), (&[59][..], 49 * 960));
    // Nor where the round trip is not known.
    assert_eq!(answered(0, 120, 20, false).0, [59]);
}

#[test]
fn packets_that_are_overtaken_say_nothing_of_how_long_sending_again_takes() {
    let (waits, made_up) = answered(40, 40, 20, true);
    assert_eq!(made_up, 0, "each was waited for long enough: {waits:?}");
    assert!(waits.iter().all(|wait| (2..=43).contains(wait)), "{waits:?}");
}

#[test]
fn beside_slow_answers_what_is_overtaken_is_waited_for_and_no_longer() {
    // 100 ms are more than may be waited; what is overtaken is worth one ptime.
    let (waits, made_up) = answered(100, 100, 20, true);
    // Two were overtaken before the first was lost, which nobody knew how long to wait for.
    assert!(waits.iter().skip(3).all(|wait| *wait <= 21), "{waits:?}");
    assert_eq!(made_up, 49 * 960, "what is overtaken is not made up");
}

#[test]
fn a_packet_within_400_ms_of_its_concealment_has_its_place_and_a_later_one_has_none() {
    for (wait, late) in [(400, vec![(960, 2), (1920, 3)]), (401, vec![])] {
        let mut stream = Stream::new();
        stream.send(1, 0, 1);
        stream.send(4, 2880, 4);
        stream.wait_ms(wait);
        stream.send(2, 960, 2);
        stream.send(3, 1920, 3);
        stream.send(3, 1920, 3);
        assert_eq!(stream.late, late);
        assert_eq!((stream.repair.stats().late, stream.repair.stats().duplicates), (2, 1));
        assert_eq!(stream.repair.media_time(), 3840);
    }
}

#[test]
fn keys_between_audio_are_no_loss_and_the_time_they_take_is_silence() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    for (seq, duration) in [(2, 2), (3, 4), (4, 6), (5, 6), (6, 6)] {
        let flags = if seq > 3 { 0x80 } else { 0 };
        stream.send_coded(Codec::TelephoneEvent, seq, 960, &[5, flags, duration, 0]);
    }
    stream.send(7, 960 + 4800, 7);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Silence(4800), Got::Packet(7)]);
}

#[test]
fn audio_lost_before_a_key_is_filled_when_the_audio_behind_it_shows_how_long_it_was() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send_coded(Codec::TelephoneEvent, 3, 1920, &[5, 0x80, 1, 0]);
    stream.send_toc(4, 1920, &[WIDEBAND_20_MS, 4, 0]);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Conceal(960), Got::Packet(4)]);
}

#[test]
fn g711_lasts_as_long_as_it_has_bytes_and_has_no_copies() {
    let mut stream = Stream::new();
    stream.send_coded(Codec::Pcmu, 1, 0, &[0xff; 160]);
    stream.send_coded(Codec::Pcmu, 2, 960, &[0xff; 80]);
    stream.send_coded(Codec::Pcma, 4, 2400, &[0xd5; 240]);
    assert_eq!(stream.taken(), [Got::G711(960), Got::G711(480), Got::Conceal(480), Got::Silence(480), Got::G711(1440)]);
    stream.send_coded(Codec::Pcmu, 5, 3840, &[]);
    stream.send_coded(Codec::Pcmu, 5, 3840, &[0; 961]);
    assert_eq!(stream.repair.stats().malformed, 2);
}

/// One of everything that a network and a client can do. The harness asserts that media time has no gap and no overlap.
fn act(stream: &mut Stream, random: &mut Random, at: &mut (u16, u32)) {
    let (seq, timestamp) = *at;
    let name = random.below(64) as u8;
    match random.below(16) {
        // Lost, or sent for later.
        0 | 1 => {}
        2 => {
            let back = random.below(8) as u16;
            stream.send(seq.wrapping_sub(back), timestamp.wrapping_sub(960 * u32::from(back)), name);
            return;
        }
        3 => {
            let ahead = random.below(6) as u16;
            stream.send(seq.wrapping_add(ahead), timestamp.wrapping_add(960 * u32::from(ahead)), name);
            return;
        }
        4 => {
            let garbage: Vec<u8> = (0..random.below(20)).map(|_| random.next() as u8).collect();
            let codec = [Codec::Opus, Codec::Red, Codec::Pcmu, Codec::TelephoneEvent][random.below(4) as usize];
            stream.send_coded(codec, seq.wrapping_add(random.below(5) as u16), timestamp, &garbage);
            return;
        }
        5 => stream.send_coded(Codec::TelephoneEvent, seq, timestamp, &[1, 0x80, 0, 9]),
        6 => {
            let toc = [3 << 3, 11 << 3, 28 << 3, 31 << 3, 8 << 3][random.below(5) as usize];
            stream.send_toc(seq, timestamp, &[toc, name, 0]);
        }
        7 => {
            at.1 = at.1.wrapping_add(random.next() >> random.below(32));
            return;
        }
        8 if random.below(8) == 0 => {
            *at = (random.next() as u16, random.next());
            return;
        }
        9..=12 => {
            let names: Vec<u8> = (0..=random.below(4)).map(|_| random.below(64) as u8).collect();
            stream.send_red(seq, timestamp, &names);
        }
        _ => stream.send(seq, timestamp, name),
    }
    at.0 = seq.wrapping_add(1);
    at.1 = timestamp.wrapping_add(960);
}

#[test]
fn whatever_comes_in_whatever_order_media_time_has_no_gap_and_no_hole_waits_beyond_its_time() {
    for seed in 1..=3000 {
        let mut random = Random(seed);
        let nack = random.below(2) == 0;
        let mut stream = Stream::with(RepairConfig { nack, ..RepairConfig::default() });
        let mut at = (random.next() as u16, random.next());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..200 {
                act(&mut stream, &mut random, &mut at);
                let due = stream.repair.poll_timeout();
                let longest = stream.now + Duration::from_millis(120);
                assert!(due.is_none_or(|due| due <= longest), "waits beyond the longest ptime");
                stream.wait_ms(u64::from(random.below(40)));
            }
        }));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
