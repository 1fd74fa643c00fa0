use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;

fn frame(payload: &[u8]) -> MediaUp<'_> {
    MediaUp {
        slot: Slot(5),
        epoch: 1,
        codec: Codec::Opus,
        marker: false,
        seq: 7,
        rtp_timestamp: 960,
        audio_level: None,
        age_us: 120,
        payload,
    }
}

fn report() -> PlayoutReport {
    PlayoutReport {
        slot: Slot(300),
        epoch: 2,
        utterance: UtteranceId(9),
        sent: 96_000,
        limit: 144_000,
        queue_ms: 980,
        underruns: 1,
        client: None,
    }
}

fn frames(batch: &[u8]) -> Vec<Result<MediaUp<'_>, Drop>> {
    match parse(batch) {
        Ok(Batch::MediaUp { frames, .. }) => frames.collect(),
        other => panic!("not a batch of frames: {other:?}"),
    }
}

fn reports(batch: &[u8]) -> Vec<Result<PlayoutReport, Drop>> {
    match parse(batch) {
        Ok(Batch::Playout { reports, .. }) => reports.collect(),
        other => panic!("not a batch of reports: {other:?}"),
    }
}

#[test]
fn a_frame_has_the_bytes_of_the_picture() {
    let mut writer = BatchWriter::media_up();
    let full = MediaUp {
        slot: Slot(0x1234),
        epoch: 0xee,
        codec: Codec::TelephoneEvent,
        marker: true,
        seq: 0xabcd,
        rtp_timestamp: 0x0102_0304,
        audio_level: Some(30),
        age_us: 2570,
        payload: b"opus",
    };
    assert!(writer.push_frame(&full));
    let batch = writer.take(0xdead_beef);
    let expected = [
        0x10, 0xde, 0xad, 0xbe, 0xef, // version 1, kind 0, clock
        0x52, 0x34, 0x34, 0xee, 0xab, 0xcd, 1, 2, 3, 4, 0x01,
        0x01, // slot, MARKER | EXT | telephone-event, epoch, seq, timestamp, age
        3, 1, 1, 30, // extensions: audio level
        4, b'o', b'p', b'u', b's',
    ];
    assert_eq!(batch[..], expected);
    assert_eq!(frames(&batch), [Ok(full)]);
}

#[test]
fn a_frame_of_an_unknown_codec_does_not_silence_those_behind_it() {
    let mut writer = BatchWriter::media_up();
    assert!(writer.push_frame(&frame(b"x")) && writer.push_frame(&frame(b"y")));
    let mut batch = writer.take(1).to_vec();
    batch[6] |= 0x0f;
    assert_eq!(frames(&batch), [Err(Drop::Codec), Ok(frame(b"y"))]);
}

#[test]
fn each_codec_has_a_number_of_its_own() {
    for number in 0..16 {
        assert!(Codec::numbered(number).is_none_or(|codec| codec.number() == number));
    }
    assert_eq!((0..16).filter_map(Codec::numbered).count(), 5);
}

#[test]
fn a_report_has_the_bytes_of_the_picture() {
    let mut writer = BatchWriter::playout();
    assert!(writer.push_report(&report()));
    let batch = writer.take(1);
    let expected = [
        0x14, 0, 0, 0, 1, // version 1, kind 4, clock
        0x41, 0x2c, 2, 9, // slot 300, epoch, utterance
        0x80, 0x01, 0x77, 0x00, 0x80, 0x02, 0x32, 0x80, // sent, limit
        0x03, 0xd4, 0, 1, // queue, underruns
    ];
    assert_eq!(batch[..], expected);
    assert_eq!(reports(&batch), [Ok(report())]);
}

#[test]
fn the_client_part_of_a_report_has_the_bytes_of_the_picture_and_may_grow() {
    let client = ClientView {
        rtt_us: 42_000,
        delay_us: Some(80_000),
        arrived: 48_000,
        lost: 1920,
        loss: 13,
        told: 200,
        transport_wide: true,
    };
    let full = PlayoutReport { client: Some(client), ..report() };
    let mut writer = BatchWriter::playout();
    assert!(writer.push_report(&full) && writer.push_report(&report()));
    let batch = writer.take(1).to_vec();
    let expected = [
        0x03, 0xd4, 0x80, 1, // queue, client part follows and underruns
        17, 3, 13, 200, // its length, transport-wide and delay, loss, told
        0x80, 0, 0xa4, 0x10, 0x80, 0, 0xbb, 0x80, 0x47, 0x80, 0x80, 1, 0x38,
        0x80, // round trip, arrived, lost, delay
    ];
    assert_eq!(batch[5 + 12..][..expected.len()], expected);
    assert_eq!(reports(&batch), [Ok(full), Ok(report())]);
    // A later release says more, at the end.
    let mut longer = batch;
    longer[5 + 12 + 4] += 2;
    longer.splice(5 + 12 + expected.len()..5 + 12 + expected.len(), [7, 7]);
    assert_eq!(reports(&longer), [Ok(full), Ok(report())]);
    for cut in 5 + 12 + 4..5 + 12 + expected.len() + 2 {
        assert_eq!(reports(&longer[..cut]), [Err(Drop::Truncated)], "cut at {cut}");
    }
}

#[test]
fn underruns_saturate_below_the_flag_of_the_client_part() {
    let mut writer = BatchWriter::playout();
    assert!(writer.push_report(&PlayoutReport { underruns: u16::MAX, ..report() }));
    let batch = writer.take(0);
    assert_eq!(reports(&batch), [Ok(PlayoutReport { underruns: 0x7fff, ..report() })]);
}

#[test]
fn a_heartbeat_has_the_bytes_of_the_picture() {
    let echo = Some(Echo { clock32: 5, held_us: 258 });
    for (heartbeat, expected) in [
        (Heartbeat { clock32: 77, congested: false, echo: None }, &[0x12, 0, 0, 0, 77, 0][..]),
        (Heartbeat { clock32: 77, congested: true, echo }, &[0x12, 0, 0, 0, 77, 3, 0, 0, 0, 5, 0, 0, 1, 2]),
    ] {
        let batch = heartbeat.encode();
        assert_eq!(batch[..], *expected);
        assert!(is_heartbeat(&batch));
        assert_eq!(parse(&batch), Ok(Batch::Heartbeat(heartbeat)));
    }
    let clock_alone = Heartbeat { clock32: 9, congested: false, echo: None };
    assert_eq!(parse(&[0x12, 0, 0, 0, 9]), Ok(Batch::Heartbeat(clock_alone)));
    assert_eq!(parse(&[0x12, 0, 0, 0, 9, 2, 0]), Err(Drop::Truncated));
}

#[test]
fn frames_for_clients_are_a_kind_of_their_own() {
    let mut writer = BatchWriter::media_down();
    assert!(writer.push_frame(&frame(b"opus")));
    let batch = writer.take(3);
    assert_eq!(batch[0], 0x11);
    match parse(&batch) {
        Ok(Batch::MediaDown { clock32: 3, frames }) => assert!(frames.eq([Ok(frame(b"opus"))])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_never_exceeds_its_bound_and_reports_a_frame_that_does_not_fit() {
    let payload = [0x5a; 120];
    let mut writer = BatchWriter::media_up();
    let mut pushed = 0;
    while writer.push_frame(&frame(&payload)) {
        pushed += 1;
    }
    let batch = writer.take(0);
    // 1 slot + 10 + 2 length + 120 = 133 bytes a frame: (1162 - 5) / 133 = 8.
    assert_eq!((pushed, batch.len()), (8, 5 + 8 * 133));
    assert!(writer.is_empty());
    assert!(writer.push_frame(&frame(&payload)));
}

#[test]
fn the_largest_frame_that_fits_fills_the_batch_and_one_byte_more_never_fits() {
    let largest = [1; MAX_BATCH_BYTES - 5 - 1 - 10 - 2];
    let mut writer = BatchWriter::media_up();
    assert!(writer.push_frame(&frame(&largest)));
    assert_eq!(writer.take(0).len(), MAX_BATCH_BYTES);
    let larger = [1; MAX_BATCH_BYTES - 5 - 1 - 10 - 2 + 1];
    assert!(!writer.push_frame(&frame(&larger)));
    assert!(writer.is_empty());
}

#[test]
fn sequence_numbers_keep_their_bits_around_the_wrap() {
    let mut writer = BatchWriter::media_up();
    let sent: Vec<(u16, u32)> =
        (0u16..4).map(|n| (65534u16.wrapping_add(n), (u32::MAX - 959).wrapping_add(u32::from(n) * 960))).collect();
    for &(seq, rtp_timestamp) in &sent {
        assert!(writer.push_frame(&MediaUp { seq, rtp_timestamp, ..frame(b"x") }));
    }
    let batch = writer.take(0);
    let received: Vec<(u16, u32)> =
        frames(&batch).into_iter().map(|frame| frame.map(|frame| (frame.seq, frame.rtp_timestamp)).unwrap()).collect();
    assert_eq!(received, sent);
    assert_eq!(sent.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [65534, 65535, 0, 1]);
}

#[test]
fn age_saturates_at_the_largest_that_fits() {
    let mut writer = BatchWriter::media_up();
    assert!(writer.push_frame(&MediaUp { age_us: 5_000_000, ..frame(b"x") }));
    let batch = writer.take(0);
    assert_eq!(frames(&batch)[0].unwrap().age_us, 655_350);
}

#[test]
fn unknown_flags_and_extensions_are_skipped() {
    let batch = [
        0x10, 0, 0, 0, 0, // head
        5, 0xe0, 1, 0, 7, 0, 0, 3, 0xc0, 0, 12, // slot, Opus and every flag but MARKER, ...
        8, 9, 2, 1, 2, 1, 1, 44, 7, // unknown type 9, audio level 44, a lone type without its length
        1, b'x',
    ];
    // The lone type at the end is cut short: what follows cannot be trusted.
    assert_eq!(frames(&batch), [Err(Drop::Truncated)]);
    let mut good = batch.to_vec();
    good[16] = 7;
    good.remove(24);
    assert_eq!(frames(&good), [Ok(MediaUp { audio_level: Some(44), ..frame(b"x") })]);
}

#[test]
fn other_versions_and_kinds_are_dropped_by_name() {
    assert_eq!(parse(&[0x20, 0, 0, 0, 0]), Err(Drop::Version));
    for kind in [3, 5, 15] {
        assert_eq!(parse(&[0x10 | kind, 0, 0, 0, 0]), Err(Drop::Kind));
    }
    assert_eq!(parse(&[]), Err(Drop::Truncated));
}

#[test]
fn a_slot_beyond_32_bits_ends_the_batch() {
    let mut batch = vec![0x10, 0, 0, 0, 0, 0xc0, 0, 0, 1, 0, 0, 0, 0];
    batch.extend_from_slice(&[0; 20]);
    assert_eq!(frames(&batch), [Err(Drop::Range)]);
}

#[test]
fn a_cut_batch_yields_what_came_before_the_cut_and_one_error() {
    let mut writer = BatchWriter::media_up();
    assert!(writer.push_frame(&frame(b"first")));
    let first = 5 + 1 + 10 + 1 + 5;
    assert!(writer.push_frame(&MediaUp { audio_level: Some(1), ..frame(b"second") }));
    let batch = writer.take(0);
    for cut in 0..batch.len() {
        let Ok(Batch::MediaUp { frames, .. }) = parse(&batch[..cut]) else {
            assert!(cut < 5);
            continue;
        };
        let got: Vec<_> = frames.collect();
        let expected: &[Result<MediaUp<'_>, Drop>] = match cut {
            5 => &[],
            _ if cut < first => &[Err(Drop::Truncated)],
            _ if cut == first => &[Ok(frame(b"first"))],
            _ => &[Ok(frame(b"first")), Err(Drop::Truncated)],
        };
        assert_eq!(got, expected, "cut at {cut}");
    }
}

#[test]
fn every_frame_and_report_comes_back_as_it_went() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut payload = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut payload);
        let count = rng.random_range(1..5);
        let sent: Vec<MediaUp<'_>> = (0..count)
            .map(|_| MediaUp {
                slot: Slot(rng.random::<u32>() >> rng.random_range(0..32)),
                epoch: rng.random(),
                codec: Codec::numbered(rng.random_range(0..5)).unwrap(),
                marker: rng.random(),
                seq: rng.random(),
                rtp_timestamp: rng.random(),
                audio_level: rng.random::<bool>().then(|| rng.random_range(0..128)),
                age_us: u32::from(rng.random::<u16>()) * 10,
                payload: &payload,
            })
            .collect();
        let mut writer = BatchWriter::media_up();
        assert!(sent.iter().all(|frame| writer.push_frame(frame)), "seed {seed}");
        let clock = rng.random();
        let batch = writer.take(clock);
        assert!(batch.len() <= MAX_BATCH_BYTES, "seed {seed}");
        let got: Vec<_> = frames(&batch).into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(got, sent, "seed {seed}");
        assert!(matches!(parse(&batch), Ok(Batch::MediaUp { clock32, .. }) if clock32 == clock));

        let sent: Vec<PlayoutReport> = (0..count)
            .map(|_| PlayoutReport {
                slot: Slot(rng.random::<u32>() >> rng.random_range(0..32)),
                epoch: rng.random(),
                utterance: UtteranceId(rng.random::<u32>() >> rng.random_range(0..32)),
                sent: rng.random::<u64>() >> rng.random_range(2..64),
                limit: rng.random::<u64>() >> rng.random_range(2..64),
                queue_ms: rng.random(),
                underruns: rng.random_range(0..0x8000),
                client: rng.random::<bool>().then(|| ClientView {
                    rtt_us: rng.random::<u32>() >> rng.random_range(0..32),
                    delay_us: rng.random::<bool>().then(|| rng.random()),
                    arrived: rng.random::<u64>() >> rng.random_range(2..64),
                    lost: rng.random::<u64>() >> rng.random_range(2..64),
                    loss: rng.random(),
                    told: rng.random(),
                    transport_wide: rng.random(),
                }),
            })
            .collect();
        let mut writer = BatchWriter::playout();
        assert!(sent.iter().all(|report| writer.push_report(report)), "seed {seed}");
        let batch = writer.take(clock);
        let got: Vec<_> = reports(&batch).into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(got, sent, "seed {seed}");
    }
}

#[test]
fn random_bytes_end_in_entries_or_one_error_beside_those_of_codecs() {
    for seed in 0..20_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..300)];
        rng.fill_bytes(&mut bytes);
        if let (Some(b0), true) = (bytes.first_mut(), rng.random()) {
            *b0 = 0x10 | rng.random_range(0..6);
        }
        let errors = match parse(&bytes) {
            Ok(Batch::MediaUp { frames, .. } | Batch::MediaDown { frames, .. }) => {
                frames.filter(|frame| frame.is_err_and(|drop| drop != Drop::Codec)).count()
            }
            Ok(Batch::Playout { reports, .. }) => reports.filter(Result::is_err).count(),
            Ok(Batch::Heartbeat(_)) | Err(_) => 0,
        };
        assert!(errors <= 1, "seed {seed}");
    }
}

#[test]
fn batches_reuse_their_block_once_it_was_sent() {
    let mut writer = BatchWriter::media_up();
    let mut blocks = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        assert!(writer.push_frame(&frame(&[0; 900])));
        let batch = writer.take(0);
        blocks.insert(batch.as_ptr() as usize / BLOCK_BYTES);
    }
    assert!(blocks.len() <= 4, "{} blocks", blocks.len());
}
