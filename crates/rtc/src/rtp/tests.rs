//! RTP facts, with packets written out as bytes and by another implementation.

use rtc_shared::marshal::Marshal;

use super::*;

const AUDIO_LEVEL: u8 = 1;
const MID: u8 = 4;

/// A packet with the extension block `extension` and the payload `payload`, P bit set with `padded`.
fn packet(extension: &[u8], payload: &[u8], padded: bool) -> Vec<u8> {
    let first = 0x80 | u8::from(padded) << 5 | u8::from(!extension.is_empty()) << 4;
    let mut packet = vec![first, 0x80 | 111, 0x12, 0x34, 0, 0, 3, 0xc0, 0xde, 0xad, 0xbe, 0xef];
    packet.extend_from_slice(extension);
    packet.extend_from_slice(payload);
    packet
}

/// The m= line a packet names (RFC 9143 §15).
fn mid<'a>(packet: &Packet<'a>) -> Option<&'a str> {
    packet.extension(MID).map(|mid| str::from_utf8(mid).unwrap())
}

#[test]
fn a_transport_wide_sequence_number_is_one_word_behind_the_fixed_header() {
    let transport_seq = Some(TransportSeq { id: 5, seq: 0xfe02 });
    let header = Header { marker: false, payload_type: 111, seq: 1, timestamp: 2, ssrc: 3, transport_seq };
    let mut packet = vec![0xee];
    header.write(&mut packet);
    assert_eq!(packet[1..], [0x90, 111, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xbe, 0xde, 0, 1, 0x51, 0xfe, 0x02, 0]);
    packet.extend_from_slice(b"opus");
    let read = Packet::parse(&packet[1..]).unwrap();
    assert_eq!((read.extension(5), read.payload), (Some(&[0xfe, 0x02][..]), &b"opus"[..]));
}

#[test]
fn the_fixed_header_is_read() {
    let bytes = packet(&[], b"opus", false);
    let read = Packet::parse(&bytes).unwrap();
    let expected = Packet {
        marker: true,
        payload_type: 111,
        seq: 0x1234,
        timestamp: 960,
        ssrc: 0xdead_beef,
        payload: b"opus",
        extension: Extension::None,
    };
    assert_eq!(read, expected);
}

#[test]
fn a_written_header_reads_back() {
    let header =
        Header { marker: true, payload_type: 109, seq: 65_535, timestamp: u32::MAX, ssrc: 1, transport_seq: None };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes.push(7);
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!((read.marker, read.payload_type, read.seq, read.timestamp, read.ssrc), (true, 109, 65_535, u32::MAX, 1));
    assert_eq!(read.payload, [7]);
}

// R01
#[test]
fn a_packet_that_is_all_padding_has_an_empty_payload() {
    let bytes = packet(&[], &[0, 0, 0, 4], true);
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!((read.seq, read.payload), (0x1234, &[][..]));
}

// R01
#[test]
fn padding_is_cut_off_the_payload() {
    let bytes = packet(&[], b"opus\0\0\x03", true);
    assert_eq!(Packet::parse(&bytes).unwrap().payload, b"opus");
}

// R01
#[test]
fn a_padding_count_of_zero_or_beyond_the_payload_or_absent_is_malformed() {
    for payload in [&b"opus\0"[..], b"opus\x06", b"\xff", b""] {
        assert_eq!(Packet::parse(&packet(&[], payload, true)), Err(Discard::RtpMalformed), "{payload:?}");
        let extension = [0xbe, 0xde, 0, 1, 0x10, 0x7f, 0, 0];
        assert_eq!(Packet::parse(&packet(&extension, payload, true)), Err(Discard::RtpMalformed), "{payload:?}");
    }
}

// R02
#[test]
fn reserved_ids_and_overlong_elements_end_the_extension_and_leave_the_payload() {
    let level = [0x10, 0x85];
    for tail in [[0x01, 0x40], [0xf0, 0x40], [0x47, 0x40], [0x4f, 0x30]] {
        let extension = [&[0xbe, 0xde, 0, 1][..], &level, &tail].concat();
        let bytes = packet(&extension, b"opus", false);
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!(read.audio_level(AUDIO_LEVEL), Some(5), "{tail:02x?}: what came before holds");
        assert_eq!(mid(&read), None, "{tail:02x?}");
        assert_eq!(read.payload, b"opus", "{tail:02x?}");

        let extension = [&[0xbe, 0xde, 0, 1][..], &tail, &level].concat();
        let bytes = packet(&extension, b"opus", false);
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!(read.audio_level(AUDIO_LEVEL), None, "{tail:02x?}: what comes after is not read");
        assert_eq!(read.payload, b"opus", "{tail:02x?}");
    }
}

// R02
#[test]
fn a_two_byte_element_past_the_block_ends_the_extension() {
    let extension = [0x10, 0x00, 0, 2, 1, 1, 0x85, 4, 200, b'0', b'0', b'0'];
    let bytes = packet(&extension, b"opus", false);
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!((read.audio_level(AUDIO_LEVEL), mid(&read), read.payload), (Some(5), None, &b"opus"[..]));
}

// R03
#[test]
fn level_and_mid_are_read_from_both_forms_in_one_stream() {
    let one_byte = [0xbe, 0xde, 0, 2, 0x10, 0x85, 0, 0x41, b'a', b'0', 0, 0];
    let two_byte = |profile: u8| [0x10, profile, 0, 3, 9, 0, 1, 1, 0x85, 0, 4, 2, b'a', b'0', 0, 0];
    for extension in [&one_byte[..], &two_byte(0), &one_byte, &two_byte(3), &two_byte(15)] {
        let bytes = packet(extension, b"opus", false);
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!((read.audio_level(AUDIO_LEVEL), mid(&read)), (Some(5), Some("a0")), "{extension:02x?}");
        assert_eq!(read.payload, b"opus");
    }
    let bytes = packet(&two_byte(0), b"opus", false);
    assert_eq!(Packet::parse(&bytes).unwrap().extension(9), Some(&[][..]), "an element of length 0");
    assert_eq!(Packet::parse(&bytes).unwrap().audio_level(9), None, "an element of length 0 holds no level");
}

#[test]
fn an_extension_of_another_profile_is_stepped_over() {
    let bytes = packet(&[0xab, 0xac, 0, 1, 0x10, 0x85, 0, 0], b"opus", false);
    let read = Packet::parse(&bytes).unwrap();
    assert_eq!((read.audio_level(AUDIO_LEVEL), read.payload), (None, &b"opus"[..]));
}

#[test]
fn a_header_that_runs_past_the_packet_is_malformed() {
    let whole = packet(&[0xbe, 0xde, 0, 1, 0x10, 0x85, 0, 0], b"", false);
    for length in 0..whole.len() {
        assert_eq!(Packet::parse(&whole[..length]), Err(Discard::RtpMalformed), "{length} bytes");
    }
    assert!(Packet::parse(&whole).is_ok());
    let mut csrc = packet(&[], &[0; 11], false);
    csrc[0] |= 3;
    assert_eq!(Packet::parse(&csrc), Err(Discard::RtpMalformed), "three CSRCs in 11 bytes");
}

#[test]
fn another_version_is_malformed() {
    for version in [0x00, 0x40, 0xc0] {
        let mut bytes = packet(&[], b"opus", false);
        bytes[0] = version;
        assert_eq!(Packet::parse(&bytes), Err(Discard::RtpMalformed));
    }
}

// R11
#[test]
fn telephone_event_and_comfort_noise_are_told_from_opus_by_their_payload_type() {
    for payload_type in [13, 110, 126] {
        let mut bytes = packet(&[], &[5, 0x8a, 3, 0x20], false);
        bytes[1] = 0x80 | payload_type;
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!((read.payload_type, read.marker), (payload_type, true));
    }
}

#[test]
fn packets_of_another_implementation_read_the_same() {
    for csrcs in 0..=15_u32 {
        let mut theirs = rtc_rtp::Header {
            version: 2,
            marker: csrcs % 2 == 0,
            payload_type: 111,
            sequence_number: 5,
            timestamp: 6,
            ssrc: 7,
            csrc: (0..csrcs).collect(),
            ..Default::default()
        };
        theirs.set_extension(AUDIO_LEVEL, vec![0x80 | 30].into()).unwrap();
        theirs.set_extension(MID, b"mid"[..].to_vec().into()).unwrap();
        let mut bytes = theirs.marshal().unwrap().to_vec();
        assert_eq!(header_len(&bytes), Ok(bytes.len()), "{csrcs} CSRCs");
        bytes.extend_from_slice(b"opus");
        let read = Packet::parse(&bytes).unwrap();
        assert_eq!((read.marker, read.seq, read.timestamp, read.ssrc), (csrcs % 2 == 0, 5, 6, 7));
        assert_eq!((read.audio_level(AUDIO_LEVEL), mid(&read)), (Some(30), Some("mid")), "{csrcs} CSRCs");
        assert_eq!(read.payload, b"opus", "{csrcs} CSRCs");
    }
}

#[test]
fn noise_is_read_within_its_bounds() {
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut noise = [0; 40];
        for byte in &mut noise {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        }
        noise[0] = 0x80 | noise[0] & 0x3f;
        // Extension blocks that fit are rare in noise, so half of them are made to.
        if noise[1] & 1 == 0 {
            noise[0] &= 0xf0;
            let block = if noise[2] & 1 == 0 { [0xbe, 0xde, 0, 4] } else { [0x10, 0, 0, 4] };
            noise[12..16].copy_from_slice(&block);
        }
        if let Ok(read) = Packet::parse(&noise) {
            assert!(read.payload.len() <= noise.len() - FIXED_HEADER, "{noise:02x?}");
            for id in 0..=u8::MAX {
                assert!(read.extension(id).is_none_or(|data| data.len() <= 16), "{noise:02x?}");
            }
        }
    }
}
