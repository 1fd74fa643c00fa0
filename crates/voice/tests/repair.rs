//! Packets in any order in, audio in the order of media time out.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::Duration;

use common::stream::{Got, Stream, WIDEBAND_20_MS};

#[test]
fn packets_in_order_leave_at_once() {
    let mut stream = Stream::new();
    for index in 0..50_u8 {
        stream.send(
            65_500_u16.wrapping_add(u16::from(index)),
            (u32::MAX - 24_000).wrapping_add(960 * u32::from(index)),
            index,
        );
        assert_eq!(stream.taken(), [Got::Packet(index)]);
        stream.wait_ms(20);
    }
    assert_eq!(stream.repair.media_time(), 50 * 960);
}

#[test]
fn the_first_packets_are_not_lost() {
    let mut stream = Stream::new();
    for index in 0..3 {
        stream.send(7 + u16::from(index), 960 * u32::from(index), index);
    }
    assert_eq!(stream.taken(), [Got::Packet(0), Got::Packet(1), Got::Packet(2)]);
}

#[test]
fn a_lost_packet_comes_from_the_copy_in_the_next() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Fec(960), Got::Packet(3)]);
}

#[test]
fn of_a_burst_the_last_comes_from_the_copy_and_the_others_are_concealed() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(5, 3840, 5);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Conceal(1920), Got::Fec(960), Got::Packet(5)]);
}

#[test]
fn without_a_copy_a_lost_packet_is_concealed() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send_toc(3, 1920, &[WIDEBAND_20_MS, 3, 0]);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Conceal(960), Got::Packet(3)]);
}

#[test]
fn loss_over_the_wrap_of_the_sequence_keeps_media_time() {
    let mut stream = Stream::new();
    for seq in 65_530..=65_532_u16 {
        stream.send(seq, 960 * u32::from(seq - 65_530), 0);
    }
    stream.taken();
    // 65533..=3 are lost: 7 packets.
    stream.send(4, 960 * 10, 4);
    assert_eq!(stream.taken(), [Got::Conceal(960 * 6), Got::Fec(960), Got::Packet(4)]);
    stream.send(5, 960 * 11, 5);
    assert_eq!(stream.repair.media_time(), 960 * 12);
}

#[test]
fn a_long_outage_is_concealed_for_200_ms_and_filled_for_a_second() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(252, 960 * 251, 2);
    let gap = 960 * 250;
    let (concealed, copy, filled) = (9600, 960, 48_000);
    assert_eq!(
        stream.taken(),
        [
            Got::Packet(1),
            Got::Conceal(concealed),
            Got::Skip(gap - concealed - copy - filled),
            Got::Silence(filled),
            Got::Fec(copy),
            Got::Packet(2)
        ]
    );
}

#[test]
fn after_reordering_a_hole_waits_one_ptime() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.send(2, 960, 2);
    assert_eq!(stream.repair.stats().late, 1);
    stream.taken();
    stream.send(5, 3840, 5);
    assert_eq!(stream.taken(), [], "held");
    stream.wait_ms(10);
    stream.send(4, 2880, 4);
    assert_eq!(stream.taken(), [Got::Packet(4), Got::Packet(5)]);
    assert_eq!(stream.repair.poll_timeout(), None);
}

#[test]
fn a_hole_that_waited_is_filled() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.send(2, 960, 2);
    stream.taken();
    stream.send(5, 3840, 5);
    stream.wait_ms(19);
    assert_eq!(stream.taken(), []);
    stream.wait_ms(1);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(5)]);
}

#[test]
fn reordering_is_forgotten_after_10_s() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(3, 1920, 3);
    stream.send(2, 960, 2);
    stream.taken();
    stream.wait_ms(10_001);
    stream.send(5, 3840, 5);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(5)]);
}

#[test]
fn a_duplicate_is_dropped_and_is_no_reordering() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(2, 960, 2);
    stream.send(1, 0, 1);
    stream.send(2, 960, 2);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2)]);
    assert_eq!((stream.repair.stats().duplicates, stream.repair.stats().late), (2, 0));
    stream.send(4, 2880, 4);
    assert_eq!(stream.taken(), [Got::Fec(960), Got::Packet(4)]);
}

#[test]
fn a02_a_timestamp_gap_without_a_sequence_gap_is_silence() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    for index in 0..10_u8 {
        let timestamp = 960 + 19_200 * u32::from(index);
        stream.send_toc(2 + u16::from(index), timestamp, &[WIDEBAND_20_MS, 2]);
    }
    assert_eq!(stream.repair.stats().concealed + stream.repair.stats().fec, 0);
    assert_eq!(stream.repair.stats().silence, 9 * (19_200 - 960));
    assert_eq!(stream.repair.media_time(), 960 + 9 * 19_200 + 960);
}

#[test]
fn a_minute_of_mute_moves_the_clock_without_a_minute_of_samples() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.send(2, 960 + 60 * 48_000, 2);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Skip(59 * 48_000), Got::Silence(48_000), Got::Packet(2)]);
}

#[test]
fn a_mute_whose_timestamps_stand_still_is_filled_with_nothing() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    stream.wait_ms(60_000);
    stream.send(2, 960, 2);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2)]);
}

#[test]
fn other_payloads_in_the_sequence_are_no_loss() {
    let mut stream = Stream::new();
    stream.send(1, 0, 1);
    // 2, 3 and 4 were the end of a telephone event: no time of their own.
    stream.send(5, 960, 5);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(5)]);
}

#[test]
fn a_jump_starts_over_after_three_packets_and_loses_none() {
    let mut stream = Stream::new();
    stream.send(100, 0, 1);
    stream.send(5100, 48_000 * 40, 2);
    stream.send(5101, 48_000 * 40 + 960, 3);
    assert_eq!(stream.taken(), [Got::Packet(1)]);
    stream.send(5102, 48_000 * 40 + 1920, 4);
    assert_eq!(stream.taken(), [Got::Packet(2), Got::Packet(3), Got::Packet(4)]);
    // And back.
    for index in 0..3 {
        stream.send(103 + u16::from(index), 960 * u32::from(index), 5 + index);
    }
    assert_eq!(stream.taken(), [Got::Packet(5), Got::Packet(6), Got::Packet(7)]);
    let stats = stream.repair.stats();
    assert_eq!((stats.resets, stats.strays, stats.concealed, stats.silence), (2, 0, 0, 0));
}

#[test]
fn a_stray_packet_changes_nothing() {
    let mut stream = Stream::new();
    stream.send(100, 0, 1);
    stream.send(40_000, 77, 9);
    stream.send(101, 960, 2);
    assert_eq!(stream.taken(), [Got::Packet(1), Got::Packet(2)]);
    assert_eq!(stream.repair.stats().strays, 1);
}

#[test]
fn a_stray_first_packet_is_overcome() {
    let mut stream = Stream::new();
    stream.send(40_000, 77, 9);
    for index in 0..4 {
        stream.send(100 + u16::from(index), 5_000_000 + 960 * u32::from(index), index);
    }
    assert_eq!(stream.taken(), [Got::Packet(9), Got::Packet(0), Got::Packet(1), Got::Packet(2), Got::Packet(3)]);
}

#[test]
fn ptime_may_change_between_packets() {
    let mut stream = Stream::new();
    let packets: [(&[u8], u32); 5] = [
        (&[WIDEBAND_20_MS, 1, 0], 960),
        (&[WIDEBAND_20_MS | 3, 3, 0, 0, 0], 2880), // code 3, 3 frames: 60 ms
        (&[11 << 3, 3, 0], 2880),                  // one frame of 60 ms
        (&[28 << 3, 4, 0], 120),                   // CELT, 2.5 ms
        (&[11 << 3 | 1, 5, 0], 5760),              // 2 x 60 ms
    ];
    let (mut timestamp, mut seq) = (0, 0);
    for (packet, samples) in packets {
        stream.send_toc(seq, timestamp, packet);
        timestamp += samples;
        seq += 1;
        assert_eq!(stream.repair.media_time(), u64::from(timestamp));
    }
    assert_eq!(stream.repair.stats().silence, 0);
}

#[test]
fn a09_an_hour_of_a_clock_450_ppm_off_adds_no_delay() {
    // The sender's 20 ms, in ns of ours.
    for tick in [19_991_000, 20_009_000] {
        let mut stream = Stream::new();
        for index in 0..180_000_u32 {
            stream.now = stream.start + Duration::from_nanos(u64::from(index) * tick);
            #[expect(clippy::cast_possible_truncation, reason = "wraps as RTP does")]
            stream.send(index as u16, index.wrapping_mul(960), 0);
            assert_eq!(stream.taken(), [Got::Packet(0)]);
        }
        assert_eq!(stream.repair.media_time(), 180_000 * 960);
    }
}

#[test]
fn garbage_is_counted() {
    let mut stream = Stream::new();
    for packet in [&[][..], &[WIDEBAND_20_MS | 3], &[0xff, 0x00], &[0xff, 0x3f]] {
        stream.send_toc(1, 0, packet);
    }
    assert_eq!(stream.taken(), []);
    assert_eq!(stream.repair.stats().malformed, 4);
}
