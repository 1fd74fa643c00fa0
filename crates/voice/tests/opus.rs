//! The wrapper around libopus.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::speech;
use voice::opus::{DecodeError, Decoder, EncodeError, Encoder, EncoderConfig, MAX_PACKET_BYTES, packet_samples};

fn encode(encoder: &mut Encoder, pcm: &[i16]) -> Vec<u8> {
    let mut packet = [0; MAX_PACKET_BYTES];
    let length = encoder.encode(pcm, &mut packet).unwrap();
    packet[..length].to_vec()
}

fn energy(pcm: &[i16]) -> f64 {
    pcm.iter().map(|&x| f64::from(x).powi(2)).sum()
}

#[test]
fn durations_are_read_from_the_packet() {
    let cases: [(&[u8], Option<u32>); 13] = [
        (&[], None),
        (&[0], Some(480)),
        (&[1 << 3], Some(960)),
        (&[3 << 3], Some(2880)),
        (&[12 << 3], Some(480)),
        (&[13 << 3], Some(960)),
        (&[28 << 3], Some(120)),
        (&[31 << 3], Some(960)),
        (&[3 << 3 | 1], Some(5760)),
        (&[1 << 3 | 3, 3], Some(2880)),
        (&[1 << 3 | 3, 0], None),
        (&[1 << 3 | 3, 7], None),
        (&[0xff], None),
    ];
    for (packet, samples) in cases {
        assert_eq!(packet_samples(packet), samples, "{packet:02x?}");
    }
}

#[test]
fn speech_survives_at_every_rate() {
    for rate in [16_000_usize, 24_000, 48_000] {
        let config = EncoderConfig { bitrate: 32_000, ..EncoderConfig::default() };
        let mut encoder = Encoder::new(config).unwrap();
        let mut decoder = Decoder::new(rate as u32).unwrap();
        let tone = |index: usize, rate: usize| {
            ((index as f64 * 440.0 * std::f64::consts::TAU / rate as f64).sin() * 8000.0) as i16
        };
        let input: Vec<i16> = (0..48_000).map(|index| tone(index, 48_000)).collect();
        let mut output = Vec::new();
        let mut buffer = [0; 5760];
        for frame in input.chunks_exact(960) {
            let length = decoder.decode(&encode(&mut encoder, frame), &mut buffer).unwrap();
            assert_eq!(length, rate / 50);
            output.extend_from_slice(&buffer[..length]);
        }
        let wanted: Vec<i16> = (0..rate / 4).map(|index| tone(index, rate)).collect();
        let correlation = speech::correlation(&wanted, &output[rate / 2..], rate / 100);
        assert!(correlation > 0.95, "{rate}: {correlation}");
    }
}

#[test]
fn a_lost_frame_from_its_copy_is_better_than_a_concealed_one() {
    let config = EncoderConfig { rate: 16_000, bitrate: 32_000, loss_percent: 20, ..EncoderConfig::default() };
    let pcm = speech::speech(4000, 3);
    let mut errors = [0.0; 2];
    for (fec, error) in errors.iter_mut().enumerate() {
        let mut encoder = Encoder::new(config).unwrap();
        let mut whole = Decoder::new(16_000).unwrap();
        let mut lossy = Decoder::new(16_000).unwrap();
        let packets: Vec<Vec<u8>> = pcm.chunks_exact(320).map(|frame| encode(&mut encoder, frame)).collect();
        let (mut wanted, mut got) = ([0; 320], [0; 320]);
        for (index, packet) in packets.iter().enumerate() {
            whole.decode(packet, &mut wanted).unwrap();
            if index % 5 != 4 {
                lossy.decode(packet, &mut got).unwrap();
                continue;
            }
            let length = match packets.get(index + 1).filter(|_| fec == 1) {
                Some(next) => lossy.decode_fec(next, &mut got).unwrap(),
                None => lossy.conceal(&mut got).unwrap(),
            };
            assert_eq!(length, 320);
            let difference: Vec<i16> = wanted.iter().zip(&got).map(|(a, b)| a.saturating_sub(*b)).collect();
            *error += energy(&difference);
        }
    }
    let gain = 10.0 * (errors[0] / errors[1]).log10();
    println!("{gain:.1} dB");
    assert!(gain > 3.0, "{gain} dB");
}

#[test]
fn concealment_fades() {
    let mut encoder = Encoder::new(EncoderConfig { rate: 16_000, ..EncoderConfig::default() }).unwrap();
    let mut decoder = Decoder::new(16_000).unwrap();
    let mut out = [0; 320];
    for frame in speech::speech(600, 4).chunks_exact(320) {
        decoder.decode(&encode(&mut encoder, frame), &mut out).unwrap();
    }
    let before = energy(&out);
    let mut last = [0; 320];
    for _ in 0..10 {
        decoder.conceal(&mut last).unwrap();
    }
    assert!(energy(&last) < before / 10.0, "{} after {before}", energy(&last));
}

/// What a decoder makes of speech that is cut off in the middle and of the silence behind it: how much louder than the speech its
/// high frequencies are within 30 ms behind the cut, in dB, at worst; and how far below the speech it is from 20 ms on.
fn cut_off(rate: u32, silence: &[u8]) -> (f64, f64) {
    let sharpness = |pcm: &[i16]| {
        let bends = pcm.windows(3).map(|x| f64::from(i32::from(x[0]) - 2 * i32::from(x[1]) + i32::from(x[2])).powi(2));
        bends.sum::<f64>() / (pcm.len() - 2) as f64
    };
    let (mut worst, mut rest) = (f64::MIN, f64::MIN);
    for seed in 1..=4 {
        for frames in 20..40 {
            let mut encoder = Encoder::new(EncoderConfig { rate: 16_000, ..EncoderConfig::default() }).unwrap();
            let mut decoder = Decoder::new(rate).unwrap();
            let said = speech::speech(1000, seed);
            let packets = said.chunks_exact(320).take(frames).map(|pcm| encode(&mut encoder, pcm));
            let packets = packets.chain(std::iter::repeat_n(silence.to_vec(), 3));
            let (mut out, mut heard) = ([0; 960], Vec::new());
            for packet in packets {
                let length = decoder.decode(&packet, &mut out).unwrap();
                heard.extend_from_slice(&out[..length]);
            }
            let ms = rate as usize / 1000;
            let cut = frames * 20 * ms;
            let before = sharpness(&heard[cut - 20 * ms..cut]);
            // Windows of 1 ms, each half a window behind the one before.
            let behind = (0..60).map(|half| sharpness(&heard[cut - 2 + half * ms / 2..][..ms]));
            worst = behind.map(|after| 10.0 * (after / before).log10()).fold(worst, f64::max);
            let level = |pcm: &[i16]| energy(pcm) / pcm.len() as f64 + 1e-3;
            let after = level(&heard[cut + 20 * ms..]) / level(&heard[cut - 20 * ms..cut]);
            rest = rest.max(10.0 * after.log10());
        }
    }
    (worst, rest)
}

/// The edge's coded silence. `--no-capture` prints the steps; the last packet is silence as the speech codec itself has it.
#[test]
fn speech_falls_into_the_silence_of_the_other_codec_without_a_step() {
    const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];
    const SPEECH_SILENCE: [u8; 8] = [0x48, 0x07, 0xc9, 0x79, 0xc5, 0x12, 0xf7, 0xbc];
    for rate in [16_000, 48_000] {
        let (step, rest) = cut_off(rate, &SILENCE);
        let (same, same_rest) = cut_off(rate, &SPEECH_SILENCE);
        println!(
            "{rate} Hz: a step of {step:+.1} dB, then {rest:+.1} dB; in the same mode {same:+.1} and {same_rest:+.1} dB"
        );
        assert!(step <= 8.0 && rest <= -60.0, "{rate}: {step} dB, then {rest}");
        assert!(step < same, "{rate}: silence in the speech codec's own mode would be softer: {same} dB");
    }
}

#[test]
fn dtx_sends_next_to_nothing_in_silence() {
    let config = EncoderConfig { rate: 16_000, dtx: true, ..EncoderConfig::default() };
    let mut encoder = Encoder::new(config).unwrap();
    let sizes: Vec<usize> = (0..100).map(|_| encode(&mut encoder, &[0; 320]).len()).collect();
    assert!(sizes[50..].iter().filter(|&&size| size <= 2).count() > 40, "{sizes:?}");
}

#[test]
fn wrong_sizes_are_errors() {
    let mut encoder = Encoder::new(EncoderConfig::default()).unwrap();
    let mut packet = [0; MAX_PACKET_BYTES];
    for size in [0, 1, 959, 1000, 5760] {
        assert_eq!(encoder.encode(&vec![0; size], &mut packet), Err(EncodeError::FrameSize(size)));
    }
    let mut decoder = Decoder::new(48_000).unwrap();
    assert_eq!(decoder.decode(&[1 << 3, 0, 0], &mut [0; 959]), Err(DecodeError::OutputSize(960)));
    assert_eq!(decoder.conceal(&mut [0; 100]), Err(DecodeError::OutputSize(100)));
    assert_eq!(decoder.conceal(&mut []), Err(DecodeError::OutputSize(0)));
    assert!(Decoder::new(44_100).is_err());
    assert!(Encoder::new(EncoderConfig { complexity: 11, ..EncoderConfig::default() }).is_err());
}

#[test]
fn junk_never_panics_and_decodes_to_its_duration() {
    let seed = 20_261_130;
    println!("seed {seed}");
    let mut random = speech::Random(seed);
    for rate in [16_000_u32, 48_000] {
        let mut decoder = Decoder::new(rate).unwrap();
        let mut out = vec![0; 48_000];
        let (mut decoded, mut refused) = (0, 0);
        for _ in 0..4000 {
            let length = random.below(80) as usize;
            let packet: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            match (decoder.decode(&packet, &mut out), packet_samples(&packet)) {
                (Ok(written), Some(samples)) => {
                    assert_eq!(written as u32, samples / (48_000 / rate));
                    decoded += 1;
                }
                (Ok(_), None) => panic!("decoded without a duration: {packet:02x?}"),
                (Err(_), _) => refused += 1,
            }
            if random.below(4) == 0 {
                let samples = (1 + random.below(80) as usize) * rate as usize / 400;
                let _ = decoder.decode_fec(&packet, &mut out[..samples]);
            }
            if random.below(8) == 0 {
                let samples = (1 + random.below(80) as usize) * rate as usize / 400;
                decoder.conceal(&mut out[..samples]).unwrap();
            }
        }
        println!("{rate}: {decoded} decoded, {refused} refused");
        assert!(decoded > 1000 && refused > 100);
    }
}
