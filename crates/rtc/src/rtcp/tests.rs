//! RTCP facts, with time given and another implementation as the reader.

mod feedback;
mod incoming;
mod statistics;

use rtc_rtcp::packet::Packet;
use rtc_rtcp::receiver_report::ReceiverReport;
use rtc_rtcp::sender_report::SenderReport;
use rtc_rtcp::source_description::{SdesType, SourceDescription};

use super::*;

const RATE: u32 = 48_000;
const OURS: u32 = 0x0a0b_0c0d;
const THEIRS: u32 = 0x1122_3344;

/// 100 s and a half after 1970 at `start`.
fn clock(start: Instant) -> NtpClock {
    NtpClock::new(start, Duration::from_millis(100_500))
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What another implementation reads in a report of ours.
fn read(bytes: &[u8]) -> Vec<Box<dyn Packet>> {
    rtc_rtcp::packet::unmarshal(&mut &bytes[..]).unwrap()
}

#[test]
fn a_report_of_a_sender_reads_elsewhere_as_sr_and_sdes() {
    let start = Instant::now();
    let mut sent = SendStats::new(OURS, RATE);
    sent.on_packet(start, 5_000, 100);
    sent.on_packet(start + ms(20), 5_960, 60);
    let mut received = ReceiveStats::new(start, THEIRS, RATE);
    received.on_packet(start, 65_535, 0);
    received.on_packet(start + ms(40), 1, 1_920);

    let mut out = vec![0xee; 3];
    write_report(&mut out, start + ms(120), &clock(start), "cname", &mut sent, [&mut received]);

    let parts = read(&out[3..]);
    assert_eq!(parts.len(), 2);
    let report = parts[0].as_any().downcast_ref::<SenderReport>().unwrap();
    assert_eq!(report.ssrc, OURS);
    assert_eq!(report.ntp_time >> 32, 2_208_988_800 + 100);
    assert_eq!(((report.ntp_time & 0xffff_ffff) * 1000) >> 32, 619, "620 ms, cut");
    assert_eq!(report.rtp_time, 5_960 + 100 * 48, "the last packet's, 100 ms later");
    assert_eq!((report.packet_count, report.octet_count), (2, 160));
    assert_eq!(report.reports.len(), 1);
    assert_eq!(report.reports[0].ssrc, THEIRS);
    assert_eq!(report.reports[0].last_sequence_number, 0x1_0001);
    assert_eq!((report.reports[0].total_lost, report.reports[0].fraction_lost), (1, 85));

    let sdes = parts[1].as_any().downcast_ref::<SourceDescription>().unwrap();
    assert_eq!(sdes.chunks.len(), 1);
    assert_eq!(sdes.chunks[0].source, OURS);
    assert_eq!(sdes.chunks[0].items[0].sdes_type, SdesType::SdesCname);
    assert_eq!(&sdes.chunks[0].items[0].text[..], b"cname");
}

#[test]
fn a_cname_of_any_length_ends_on_a_word() {
    let start = Instant::now();
    for length in 0..=300 {
        let cname = "c".repeat(length);
        let mut out = Vec::new();
        write_report(&mut out, start, &clock(start), &cname, &mut SendStats::new(OURS, RATE), []);
        assert_eq!(out.len() % 4, 0);
        let parts = read(&out);
        let sdes = parts[1].as_any().downcast_ref::<SourceDescription>().unwrap();
        assert_eq!(sdes.chunks[0].items[0].text.len(), length.min(255));
    }
}

#[test]
fn who_sent_nothing_for_two_intervals_writes_receiver_reports() {
    let start = Instant::now();
    let mut sent = SendStats::new(OURS, RATE);
    let mut kinds = Vec::new();
    for second in 0..5 {
        if second == 1 {
            sent.on_packet(start + ms(1000), 0, 10);
        }
        let mut out = Vec::new();
        write_report(&mut out, start + ms(second * 1000 + 500), &clock(start), "c", &mut sent, []);
        kinds.push(out[1]);
        let parts = read(&out);
        assert_eq!(parts[0].as_any().is::<ReceiverReport>(), out[1] == 201);
    }
    assert_eq!(kinds, [201, 200, 200, 201, 201]);
}

#[test]
fn streams_not_heard_since_the_last_report_are_left_out() {
    let start = Instant::now();
    let mut sent = SendStats::new(OURS, RATE);
    let (mut silent, mut heard) = (ReceiveStats::new(start, 1, RATE), ReceiveStats::new(start, 2, RATE));
    silent.on_packet(start, 1, 0);
    let mut blocks = |now, silent: &mut ReceiveStats, heard: &mut ReceiveStats| {
        let mut out = Vec::new();
        write_report(&mut out, now, &clock(start), "c", &mut sent, [silent, heard]);
        parse(&out)
            .filter_map(|item| if let Ok(Item::Block(block)) = item { Some(block.ssrc) } else { None })
            .collect::<Vec<_>>()
    };
    heard.on_packet(start, 1, 0);
    assert_eq!(blocks(start + ms(1000), &mut silent, &mut heard), [1, 2]);
    heard.on_packet(start + ms(1500), 2, 960);
    assert_eq!(blocks(start + ms(2000), &mut silent, &mut heard), [2]);
}

#[test]
fn thirty_one_blocks_fit_and_the_rest_waits() {
    let start = Instant::now();
    let mut streams: Vec<_> = (0..40).map(|ssrc| ReceiveStats::new(start, ssrc, RATE)).collect();
    for stream in &mut streams {
        stream.on_packet(start, 1, 0);
    }
    let mut sent = SendStats::new(OURS, RATE);
    for expected in [31, 9, 0] {
        let mut out = Vec::new();
        write_report(&mut out, start, &clock(start), "c", &mut sent, &mut streams);
        assert_eq!(parse(&out).filter(|item| matches!(item, Ok(Item::Block(_)))).count(), expected);
    }
}
