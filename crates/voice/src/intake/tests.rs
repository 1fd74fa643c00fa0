use super::*;

const ROOM: u64 = 61 * 48_000;

/// A sample that says which it is.
fn ramp(range: std::ops::Range<u16>) -> Vec<i16> {
    range.map(u16::cast_signed).collect()
}

fn bytes(pcm: &[i16]) -> Vec<u8> {
    pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

fn push(intake: &mut Intake, audio: AgentAudio) -> Taken {
    intake.push(audio, 16_000, ROOM, &mut |_| ())
}

/// Everything that comes out of a reply that is over, without the silence in its last frame.
fn drain(intake: &mut Intake) -> Vec<i16> {
    intake.complete(&mut |_| ());
    let (mut all, mut frame) = (Vec::new(), Vec::new());
    while let Some(Next::Frame { padding }) = intake.next(&mut frame) {
        all.extend_from_slice(&frame[..frame.len() - padding]);
    }
    assert_eq!(intake.waiting(), 0);
    all
}

#[test]
fn a06_bytes_cut_inside_a_sample_are_carried_to_the_next_piece() {
    let pcm = ramp(0..8000);
    let data = bytes(&pcm);
    let mut intake = Intake::new();
    let mut rest = &data[..];
    for size in [4063, 1697, 1, 0, 1, 1, 333].into_iter().cycle() {
        let (piece, next) = rest.split_at(rest.len().min(size));
        push(&mut intake, AgentAudio::Bytes { rate: 16_000, data: piece.to_vec() });
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!(drain(&mut intake), pcm);
}

#[test]
fn a06_a_byte_left_at_the_end_of_a_reply_is_dropped() {
    let mut data = bytes(&ramp(0..320));
    data.push(0x7f);
    let mut intake = Intake::new();
    assert_eq!(push(&mut intake, AgentAudio::Bytes { rate: 16_000, data }).samples, 960);
    assert_eq!(drain(&mut intake), ramp(0..320));
    // Another reply has its own.
    let mut other = Intake::new();
    push(&mut other, AgentAudio::Bytes { rate: 16_000, data: bytes(&ramp(0..320)) });
    assert_eq!(drain(&mut other), ramp(0..320));
}

#[test]
fn pieces_of_any_size_are_one_stream() {
    let mut intake = Intake::new();
    let mut at = 0;
    for size in [1, 319, 0, 2031, 848, 1, 1, 1, 5000] {
        push(&mut intake, AgentAudio::Pcm(ramp(at..at + size)));
        at += size;
    }
    assert_eq!(intake.waiting(), u64::from(at) * 3);
    assert_eq!(drain(&mut intake), ramp(0..at));
}

#[test]
fn a05_every_rate_becomes_one_that_opus_codes_and_lasts_as_long() {
    for (rate, coded) in [(8_000, 16_000), (16_000, 16_000), (24_000, 24_000), (44_100, 48_000), (48_000, 48_000)] {
        let mut intake = Intake::new();
        for _ in 0..10 {
            let data = vec![1; rate as usize / 5];
            push(&mut intake, AgentAudio::Bytes { rate, data });
        }
        assert_eq!(intake.rate(), Some(coded));
        let samples = drain(&mut intake).len();
        assert!(samples.abs_diff(coded as usize) <= 1, "{rate}: {samples}");
    }
}

#[test]
fn a_rate_that_is_none_and_one_that_changes_within_a_reply_are_refused() {
    let mut intake = Intake::new();
    assert!(push(&mut intake, AgentAudio::Bytes { rate: 0, data: vec![0; 64] }).refused);
    assert!(push(&mut intake, AgentAudio::Bytes { rate: 192_000, data: vec![0; 64] }).refused);
    assert!(!push(&mut intake, AgentAudio::Bytes { rate: 24_000, data: vec![0; 64] }).refused);
    assert!(push(&mut intake, AgentAudio::Bytes { rate: 16_000, data: vec![0; 64] }).refused);
    assert!(push(&mut intake, AgentAudio::Opus(vec![vec![0xf8, 0xff, 0xfe]])).refused);
}

#[test]
fn the_whole_reply_once_more_at_its_end_is_left_out() {
    let pcm = ramp(0..9000);
    let mut intake = Intake::new();
    for piece in pcm.chunks(1600) {
        push(&mut intake, AgentAudio::Pcm(piece.to_vec()));
    }
    let taken = push(&mut intake, AgentAudio::Pcm(pcm.clone()));
    assert!(taken.repeated && taken.samples == 0, "{taken:?}");
    assert_eq!(drain(&mut intake), pcm);
}

#[test]
fn the_same_length_again_is_no_repeated_clip() {
    let mut intake = Intake::new();
    push(&mut intake, AgentAudio::Pcm(ramp(0..100)));
    push(&mut intake, AgentAudio::Pcm(ramp(100..200)));
    assert!(!push(&mut intake, AgentAudio::Pcm(ramp(200..400))).repeated);
    assert_eq!(drain(&mut intake), ramp(0..400));
}

#[test]
fn packets_pass_as_they_are_and_what_is_none_is_refused() {
    let mut intake = Intake::new();
    // 20 ms of SILK, then 10 ms of CELT, no packet, and 120 ms in one.
    let packets = vec![vec![1 << 3, 7], vec![0xf0, 1, 2], vec![], vec![3 << 3 | 3, 2, 1, 2]];
    let taken = push(&mut intake, AgentAudio::Opus(packets));
    assert_eq!((taken.samples, taken.refused), (960 + 480, true));
    let mut frame = Vec::new();
    assert_eq!(intake.ready(false), Some(960));
    assert_eq!(intake.next(&mut frame), Some(Next::Packet { payload: vec![1 << 3, 7], samples: 960 }));
    assert_eq!(intake.next(&mut frame), Some(Next::Packet { payload: vec![0xf0, 1, 2], samples: 480 }));
    assert_eq!(intake.ready(true), None);
    assert!(push(&mut intake, AgentAudio::Pcm(vec![1; 100])).refused);
}

#[test]
fn what_has_no_room_is_dropped_and_counted() {
    let mut intake = Intake::new();
    let taken = intake.push(AgentAudio::Pcm(vec![1; 1600]), 16_000, 3000, &mut |_| ());
    assert_eq!((taken.samples, taken.overflow), (3000, 1800));
    let mut intake = Intake::new();
    let packets = vec![vec![1 << 3, 7]; 5];
    let taken = intake.push(AgentAudio::Opus(packets), 16_000, 3000, &mut |_| ());
    assert_eq!((taken.samples, taken.overflow), (2880, 1920));
}
