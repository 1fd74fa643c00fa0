//! Compound packets of clients, well formed and not.

use super::*;
use crate::Discard;

fn report_block(ssrc: u32) -> ReportBlock {
    ReportBlock {
        ssrc,
        fraction_lost: 25,
        cumulative_lost: -3,
        highest_seq: 0x0001_0002,
        jitter: 7,
        last_sr: 8,
        delay_since_last_sr: 9,
    }
}

/// A part with `count` in its header, whose length field fits.
fn part(count: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
    [&[0x80 | count, kind, words[0], words[1]][..], body].concat()
}

fn receiver_report(blocks: &[ReportBlock]) -> Vec<u8> {
    let mut body = THEIRS.to_be_bytes().to_vec();
    blocks.iter().for_each(|block| block.write(&mut body));
    part(u8::try_from(blocks.len()).unwrap(), 201, &body)
}

fn sender_report(blocks: &[ReportBlock]) -> Vec<u8> {
    let mut body = THEIRS.to_be_bytes().to_vec();
    sender_info().write(&mut body);
    blocks.iter().for_each(|block| block.write(&mut body));
    part(u8::try_from(blocks.len()).unwrap(), 200, &body)
}

fn sender_info() -> SenderInfo {
    SenderInfo { ntp: 0x0123_4567_89ab_cdef, rtp_timestamp: 1, packets: 2, octets: 3 }
}

fn items(compound: &[u8]) -> Vec<Result<Item<'_>, Discard>> {
    parse(compound).collect()
}

// R13
#[test]
fn a_receiver_report_may_have_no_blocks() {
    assert_eq!(items(&receiver_report(&[])), []);
}

// R13
#[test]
fn a_sender_report_yields_its_info_and_its_blocks() {
    let compound = sender_report(&[report_block(1), report_block(2)]);
    let expected = [
        Ok(Item::SenderReport { ssrc: THEIRS, info: sender_info() }),
        Ok(Item::Block(report_block(1))),
        Ok(Item::Block(report_block(2))),
    ];
    assert_eq!(items(&compound), expected);
}

// R13
#[test]
fn a_profiles_extension_behind_the_blocks_is_stepped_over() {
    for words in 1..4 {
        let mut compound = sender_report(&[report_block(1)]);
        compound.extend(vec![0xff; words * 4]);
        compound[3] += u8::try_from(words).unwrap();
        compound.extend(part(1, 202, &[0, 0, 0, 1, 1, 1, b'c', 0]));
        compound.extend(receiver_report(&[report_block(2)]));
        let expected = [
            Ok(Item::SenderReport { ssrc: THEIRS, info: sender_info() }),
            Ok(Item::Block(report_block(1))),
            Ok(Item::Block(report_block(2))),
        ];
        assert_eq!(items(&compound), expected, "{words} words");
    }
}

// R13
#[test]
fn a_bye_in_front_ends_its_streams_and_what_follows_is_read() {
    let mut compound = part(2, 203, &[0, 0, 0, 5, 0, 0, 0, 6, 3, b'b', b'y', b'e']);
    compound.extend(receiver_report(&[report_block(1)]));
    let expected = [Ok(Item::Bye { ssrc: 5 }), Ok(Item::Bye { ssrc: 6 }), Ok(Item::Block(report_block(1)))];
    assert_eq!(items(&compound), expected);
    assert_eq!(items(&part(0, 203, &[])), [], "a BYE of nobody");
}

// R13
#[test]
fn unknown_parts_and_feedback_alone_are_skipped() {
    let mut compound = part(0, 204, &[0, 0, 0, 1, b'n', b'a', b'm', b'e']);
    compound.extend(part(0, 207, &[0, 0, 0, 1, 4, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]));
    compound.extend(part(1, 205, &[0; 16]));
    compound.extend(part(1, 223, &[]));
    assert_eq!(items(&compound), []);
    compound.extend(receiver_report(&[report_block(1)]));
    assert_eq!(items(&compound), [Ok(Item::Block(report_block(1)))]);
}

// R14
#[test]
fn lengths_inside_sdes_and_xr_are_not_followed() {
    let mut compound = part(1, 202, &[0, 0, 0, 1, 1, 255, b'c', 0]);
    // DLRR (block type 5) that claims 65535 words.
    compound.extend(part(0, 207, &[0, 0, 0, 1, 5, 0, 0xff, 0xff]));
    compound.extend(receiver_report(&[report_block(1)]));
    assert_eq!(items(&compound), [Ok(Item::Block(report_block(1)))]);
}

// R14
#[test]
fn a_part_too_short_for_what_it_claims_is_counted_and_the_next_one_read() {
    for (broken, kind) in [(part(0, 201, &[]), "RR without SSRC"), (part(0, 200, &[0; 20]), "SR without its info")] {
        let compound = [broken, receiver_report(&[report_block(1)])].concat();
        assert_eq!(items(&compound), [Err(Discard::RtpMalformed), Ok(Item::Block(report_block(1)))], "{kind}");
    }
    let mut counts_too_many = receiver_report(&[report_block(1)]);
    counts_too_many[0] = 0x80 | 31;
    assert_eq!(items(&counts_too_many), [Err(Discard::RtpMalformed)]);
    assert_eq!(items(&part(2, 203, &[0, 0, 0, 1])), [Err(Discard::RtpMalformed)]);
}

// R14
#[test]
fn a_part_past_the_end_ends_the_reading_and_what_came_before_holds() {
    let mut compound = receiver_report(&[report_block(1)]);
    let whole = compound.len();
    compound.extend(receiver_report(&[report_block(2)]));
    for length in whole + 1..compound.len() {
        let expected = [Ok(Item::Block(report_block(1))), Err(Discard::RtpMalformed)];
        assert_eq!(items(&compound[..length]), expected, "{length} bytes");
    }
    compound[whole] = 0x40;
    assert_eq!(items(&compound), [Ok(Item::Block(report_block(1))), Err(Discard::RtpMalformed)], "version 1");
}

// R14
#[test]
fn noise_ends() {
    let mut state = 3_u64;
    for _ in 0..100_000 {
        let mut noise = [0; 64];
        for byte in &mut noise {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        }
        noise[0] = 0x80 | noise[0] & 0x3f;
        noise[1] = 200 + noise[1] % 8;
        noise[2] = 0;
        noise[3] %= 18;
        // Each item takes at least the four bytes of a header or an SSRC.
        assert!(parse(&noise).count() <= 16, "{noise:02x?}");
    }
}
