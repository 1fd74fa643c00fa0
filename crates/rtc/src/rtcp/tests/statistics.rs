//! Loss, jitter and round trips.

use super::*;

/// Delivers `seqs` 20 ms apart.
fn deliver(stream: &mut ReceiveStats, start: Instant, seqs: impl IntoIterator<Item = u16>) {
    for (n, seq) in (0..).zip(seqs) {
        stream.on_packet(start + ms(n * 20), seq, u32::try_from(n).unwrap() * 960);
    }
}

// R05: no probation, and no announcement needed.
#[test]
fn the_first_packet_counts() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    assert_eq!(stream.report(start), None);
    deliver(&mut stream, start, [7, 8, 9]);
    let block = stream.report(start).unwrap();
    assert_eq!((block.highest_seq, block.cumulative_lost, block.fraction_lost), (9, 0, 0));
}

#[test]
fn loss_is_counted_over_the_wrap_and_by_the_interval() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, [65_530, 65_531, 65_532, 2, 3, 4]);
    let block = stream.report(start).unwrap();
    assert_eq!((block.highest_seq, block.cumulative_lost, block.fraction_lost), (0x1_0004, 5, 116), "5 of 11");
    deliver(&mut stream, start, [5, 6, 7, 8]);
    let block = stream.report(start).unwrap();
    assert_eq!((block.highest_seq, block.cumulative_lost, block.fraction_lost), (0x1_0008, 5, 0));
}

#[test]
fn duplicates_make_the_loss_negative_and_the_fraction_zero() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, [1, 2, 2, 2, 3]);
    let block = stream.report(start).unwrap();
    assert_eq!((block.cumulative_lost, block.fraction_lost), (-2, 0));
    let mut bytes = Vec::new();
    block.write(&mut bytes);
    assert_eq!(ReportBlock::read(bytes.first_chunk().unwrap()), block, "the sign survives 24 bits");
}

#[test]
fn late_packets_are_not_lost() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, [1, 2, 5, 3, 4, 6]);
    assert_eq!((stream.highest_seq(), stream.cumulative_lost()), (Some(6), 0));
}

// R11: their payload types differ, their sequence numbers do not.
#[test]
fn telephone_events_between_audio_are_no_loss() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    for seq in 0..100_u16 {
        // Events repeat the timestamp of their beginning (RFC 4733 §2.1).
        let timestamp = if (40..60).contains(&seq) { 40 } else { u32::from(seq) };
        stream.on_packet(start + ms(u64::from(seq) * 20), seq, timestamp * 960);
    }
    assert_eq!(stream.report(start).map(|block| (block.cumulative_lost, block.fraction_lost)), Some((0, 0)));
}

#[test]
fn two_packets_of_a_restarted_numbering_begin_the_count_again() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, [1, 2, 3]);
    stream.report(start).unwrap();
    deliver(&mut stream, start, [30_000]);
    assert_eq!(stream.highest_seq(), Some(3), "one may be a stray");
    deliver(&mut stream, start, [30_001, 30_002]);
    assert_eq!((stream.highest_seq(), stream.cumulative_lost()), (Some(30_002), 0));
    assert_eq!(stream.report(start).unwrap().fraction_lost, 0);
}

#[test]
fn a_steady_stream_has_no_jitter_and_an_alternating_one_its_step() {
    let start = Instant::now();
    let mut steady = ReceiveStats::new(start, THEIRS, RATE);
    let mut alternating = ReceiveStats::new(start, THEIRS, RATE);
    for n in 0..500_u16 {
        let (due, timestamp) = (start + ms(u64::from(n) * 20), u32::from(n) * 960);
        steady.on_packet(due, n, timestamp);
        alternating.on_packet(due + ms(u64::from(n % 2) * 5), n, timestamp);
    }
    assert_eq!(steady.jitter(), 0);
    // The mean of |D| is 5 ms, 240 ticks; the filter keeps it but for rounding.
    assert!((236..=241).contains(&alternating.jitter()), "{}", alternating.jitter());
}

#[test]
fn a_clients_new_time_base_is_no_jitter() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, 0..50);
    // 60 s of mute in which the timestamps stood still.
    for n in 50..100_u16 {
        stream.on_packet(start + ms(60_000 + u64::from(n) * 20), n, u32::from(n) * 960);
    }
    assert_eq!(stream.jitter(), 0);
}

#[test]
fn the_delay_since_a_sender_report_is_told_in_65536ths() {
    let start = Instant::now();
    let mut stream = ReceiveStats::new(start, THEIRS, RATE);
    deliver(&mut stream, start, [1]);
    let info = SenderInfo { ntp: 0x1111_2222_3333_4444, rtp_timestamp: 0, packets: 0, octets: 0 };
    stream.on_sender_report(start, &info);
    let block = stream.report(start + ms(1500)).unwrap();
    assert_eq!((block.last_sr, block.delay_since_last_sr), (0x2222_3333, 65_536 + 32_768));
}

#[test]
fn the_round_trip_is_what_the_client_did_not_hold() {
    let start = Instant::now();
    let clock = clock(start);
    let mut sent = SendStats::new(OURS, RATE);
    sent.on_packet(start, 0, 10);
    let mut report = Vec::new();
    write_report(&mut report, start, &clock, "c", &mut sent, []);
    let Some(Ok(Item::SenderReport { info, .. })) = parse(&report).next() else { panic!("no sender report") };

    // 40 ms there, held for 500 ms, 60 ms back.
    let mut theirs = ReceiveStats::new(start, OURS, RATE);
    theirs.on_packet(start + ms(40), 1, 0);
    theirs.on_packet(start + ms(40), 3, 960);
    theirs.on_sender_report(start + ms(40), &info);
    let block = theirs.report(start + ms(540)).unwrap();
    assert_eq!(sent.rtt(), None);
    sent.on_block(start + ms(600), &clock, &block);

    let rtt = sent.rtt().unwrap();
    assert!(rtt.abs_diff(ms(100)) < Duration::from_micros(50), "{rtt:?}");
    assert_eq!(sent.reported_lost(), 1);
}

#[test]
fn blocks_about_other_streams_or_without_a_report_of_ours_tell_no_round_trip() {
    let start = Instant::now();
    let clock = clock(start);
    let mut sent = SendStats::new(OURS, RATE);
    let block = ReportBlock {
        ssrc: THEIRS,
        fraction_lost: 200,
        cumulative_lost: 10,
        highest_seq: 0,
        jitter: 0,
        last_sr: 5,
        delay_since_last_sr: 0,
    };
    sent.on_block(start, &clock, &block);
    assert_eq!((sent.reported_lost(), sent.rtt()), (0, None));
    sent.on_block(start, &clock, &ReportBlock { ssrc: OURS, last_sr: 0, ..block });
    assert_eq!((sent.reported_lost(), sent.rtt()), (10, None));
    // A hold longer than the whole trip.
    let last_sr = middle(clock.ntp(start));
    sent.on_block(start, &clock, &ReportBlock { ssrc: OURS, last_sr, delay_since_last_sr: 65_536, ..block });
    assert_eq!(sent.rtt(), Some(Duration::ZERO));
    // More duplicates than losses are no loss.
    sent.on_block(start, &clock, &ReportBlock { ssrc: OURS, cumulative_lost: -10, ..block });
    assert_eq!(sent.reported_lost(), 0);
}
