//! Transport-wide feedback, well formed and not.

use sim::Random;

use super::*;
use crate::Discard;

/// A message with these chunks and deltas, padded as libwebrtc does it.
fn message(base: u16, count: u16, reference: u32, chunks: &[u16], deltas: &[u8]) -> Vec<u8> {
    let mut body = [THEIRS.to_be_bytes(), OURS.to_be_bytes()].concat();
    body.extend_from_slice(&base.to_be_bytes());
    body.extend_from_slice(&count.to_be_bytes());
    body.extend_from_slice(&reference.to_be_bytes()[1..]);
    body.push(0);
    chunks.iter().for_each(|chunk| body.extend_from_slice(&chunk.to_be_bytes()));
    body.extend_from_slice(deltas);
    let padding = (4 - body.len() % 4) % 4;
    let mut first = 0x80 | 15;
    if padding > 0 {
        first |= 0x20;
        body.resize(body.len() + padding, 0);
        *body.last_mut().unwrap() = u8::try_from(padding).unwrap();
    }
    let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
    [&[first, 205, words[0], words[1]][..], &body].concat()
}

fn statuses(packet: &[u8]) -> Result<Vec<(u16, Option<u32>)>, Discard> {
    let items: Vec<_> = parse(packet).collect();
    match items[..] {
        [Ok(Item::Feedback(feedback))] => Ok(feedback.statuses().map(|s| (s.seq, s.arrived)).collect()),
        [Err(discard)] => Err(discard),
        _ => panic!("{items:?}"),
    }
}

#[test]
fn runs_and_vectors_are_read_with_their_deltas() {
    // Two small, one lost, two of two bits (large, lost, small), then 14 bits of which 4 count.
    let chunks = [0x2002, 0x0001, 0xc000 | 0b10_0001_0000_0000, 0x8000 | 0b10_0100_0000_0000];
    let deltas = [4, 8, 0xff, 0xfc, 1, 2, 3];
    let told = statuses(&message(65_534, 3 + 7 + 4, 2, &chunks, &deltas)).unwrap();
    let arrived: Vec<_> = told.iter().map(|status| status.1).collect();
    assert_eq!(told.iter().map(|status| status.0).collect::<Vec<_>>()[..4], [65_534, 65_535, 0, 1]);
    let (one, two) = (512 + 4, 512 + 12);
    let expected = [
        Some(one),
        Some(two),
        None,
        Some(two - 4),
        None,
        Some(two - 3),
        None,
        None,
        None,
        None,
        Some(two - 1),
        None,
        None,
        Some(two + 2),
    ];
    assert_eq!(arrived, expected);
}

#[test]
fn the_clock_runs_over_its_end() {
    let told = statuses(&message(7, 2, 0xff_ffff, &[0x4001, 0x2001], &[0x01, 0x00, 5])).unwrap();
    assert_eq!(told, [(7, Some(0)), (8, Some(5))]);
}

#[test]
fn what_contradicts_itself_is_refused_whole() {
    for (what, packet) in [
        ("no status", message(0, 0, 0, &[0x2001], &[1])),
        ("fewer statuses than told", message(0, 3, 0, &[0x2002], &[1, 1])),
        ("a delta is missing", message(0, 9, 0, &[0x2009], &[1; 8])),
        ("half of a large delta", message(0, 1, 0, &[0x4001], &[1])),
        ("the reserved symbol", message(0, 1, 0, &[0x6001], &[1; 4])),
        ("an empty run", message(0, 1, 0, &[0x2000, 0x2001], &[1])),
        ("more than anybody sends", message(0, 2049, 0, &[0x1fff], &[])),
        ("bytes of no meaning", message(0, 1, 0, &[0x2001], &[1; 12])),
    ] {
        assert_eq!(statuses(&packet), Err(Discard::RtpMalformed), "{what}");
    }
    let mut padding = message(0, 1, 0, &[0x2001], &[1]);
    let last = padding.len() - 1;
    padding[0] |= 0x20;
    for count in [0, 200] {
        padding[last] = count;
        assert_eq!(statuses(&padding), Err(Discard::RtpMalformed), "{count} bytes of padding");
    }
}

#[test]
fn other_feedback_is_stepped_over() {
    let mut nack = message(0, 1, 0, &[0x2001], &[1]);
    nack[0] = 0x81;
    assert_eq!(parse(&nack).count(), 0);
}

fn byte(rng: &mut Random) -> u8 {
    u8::try_from(rng.below(256)).unwrap()
}

/// Written as libwebrtc might: any mix of chunks that says the same.
fn write(rng: &mut Random, base: u16, reference: u32, symbols: &[(u8, i16)]) -> Vec<u8> {
    let (mut chunks, mut deltas, mut rest) = (Vec::new(), Vec::new(), symbols);
    while let Some((first, _)) = rest.first() {
        let run = rest.iter().take_while(|(symbol, _)| symbol == first).count();
        let small = rest.iter().take(14).all(|(symbol, _)| *symbol < 2);
        let taken = match rng.below(3) {
            0 => {
                chunks.push(u16::from(*first) << 13 | u16::try_from(run).unwrap());
                run
            }
            1 if small => {
                let bits = |at: usize| rest.get(at).map_or(0, |(symbol, _)| u16::from(*symbol));
                chunks.push((0..14).fold(0x8000, |chunk, at| chunk | bits(at) << (13 - at)));
                14
            }
            _ => {
                let bits = |at: usize| rest.get(at).map_or(0, |(symbol, _)| u16::from(*symbol));
                chunks.push((0..7).fold(0xc000, |chunk, at| chunk | bits(at) << (12 - 2 * at)));
                7
            }
        };
        rest = &rest[taken.min(rest.len())..];
    }
    for (symbol, delta) in symbols {
        match symbol {
            1 => deltas.push(u8::try_from(*delta).unwrap()),
            2 => deltas.extend_from_slice(&delta.to_be_bytes()),
            _ => {}
        }
    }
    message(base, u16::try_from(symbols.len()).unwrap(), reference, &chunks, &deltas)
}

#[test]
fn whatever_is_written_is_read() {
    for seed in 0..2000 {
        let mut rng = Random::new(seed, 0);
        let symbols: Vec<(u8, i16)> = (0..=rng.below(99))
            .map(|_| match rng.below(8) {
                0 | 1 => (0, 0),
                2 => (2, i16::from_be_bytes([byte(&mut rng), byte(&mut rng)])),
                _ => (1, byte(&mut rng).into()),
            })
            .collect();
        let base = u16::from_be_bytes([byte(&mut rng), byte(&mut rng)]);
        let reference = u32::try_from(rng.below(1 << 24)).unwrap();
        let packet = write(&mut rng, base, reference, &symbols);
        let mut clock = reference.wrapping_mul(256);
        let expected: Vec<_> = (0u16..)
            .zip(&symbols)
            .map(|(at, (symbol, delta))| {
                clock = clock.wrapping_add(i32::from(*delta).cast_unsigned());
                (base.wrapping_add(at), (*symbol > 0).then_some(clock))
            })
            .collect();
        assert_eq!(statuses(&packet), Ok(expected), "seed {seed}");
    }
}

#[test]
fn random_bytes_are_read_or_refused_and_never_more_than_they_say() {
    for seed in 0..20_000 {
        let mut rng = Random::new(seed, 0);
        let mut body: Vec<u8> = (0..rng.below(60) * 4).map(|_| byte(&mut rng)).collect();
        if let (Some(high), true) = (body.get_mut(10), rng.chance(0.5)) {
            *high &= 0x03;
        }
        let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
        let padded = if rng.chance(0.5) { 0x20 } else { 0 };
        let packet = [&[0x8f | padded, 205, words[0], words[1]][..], &body].concat();
        if let Ok(told) = statuses(&packet) {
            let count = u16::from_be_bytes([body[10], body[11]]);
            assert_eq!(told.len(), usize::from(count), "seed {seed}");
        }
    }
}
