//! Packets of all kinds into a conversation: what its backend hears.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::Duration;

use common::{Bench, speech};
use voice::g711::{self, Law};
use voice::opus::{Encoder, EncoderConfig};
use voice::{BackendInput, Codec, Config, Event, MediaFrame, Output, RepairConfig, TurnConfig};

/// Everything is one turn, so that the backend hears each sample.
fn whole() -> Config {
    Config { turn: TurnConfig { server_vad: None }, ..Config::default() }
}

/// Packets of `ms` each with copies for what gets lost.
fn packets(pcm: &[i16], ms: usize) -> Vec<Vec<u8>> {
    let config = EncoderConfig { rate: 16_000, bitrate: 32_000, loss_percent: 20, ..EncoderConfig::default() };
    let mut encoder = Encoder::new(config).unwrap();
    let encode = |pcm: &[i16]| {
        let mut packet = [0; 4000];
        let length = encoder.encode(pcm, &mut packet).unwrap();
        packet[..length].to_vec()
    };
    // What is shorter than 2.5 ms at the end is left out.
    pcm.chunks_exact(if ms == 0 { 40 } else { ms * 16 }).map(encode).collect()
}

fn send(bench: &mut Bench, codec: Codec, payload: &[u8], samples: u32) {
    let frame = MediaFrame { codec, ..MediaFrame::opus(bench.seq, bench.timestamp, payload) };
    bench.conversation.handle_media(bench.now, frame, 0);
    bench.drain();
    bench.seq = bench.seq.wrapping_add(1);
    bench.timestamp = bench.timestamp.wrapping_add(samples);
    bench.now += Duration::from_millis(u64::from(samples / 48));
}

/// What the backend hears of 20 ms packets of which some are lost, and how many samples were made up.
fn heard(packets: &[Vec<u8>], red: bool, lost: impl Fn(usize) -> bool) -> (Vec<i16>, u64) {
    let mut bench = Bench::new(whole());
    for (index, packet) in packets.iter().enumerate() {
        if lost(index) {
            bench.seq = bench.seq.wrapping_add(1);
            bench.timestamp = bench.timestamp.wrapping_add(960);
            continue;
        }
        if red && index >= 3 {
            send(&mut bench, Codec::Red, &with_copies(&packets[index - 3..=index]), 960);
        } else {
            send(&mut bench, Codec::Opus, packet, 960);
        }
    }
    (bench.backend.heard, bench.conversation.stats().repair.concealed)
}

/// RFC 2198, as a client with a distance of three packets sends it.
fn with_copies(packets: &[Vec<u8>]) -> Vec<u8> {
    let (packet, copies) = packets.split_last().unwrap();
    let mut red = Vec::new();
    for (index, copy) in copies.iter().enumerate() {
        let offset = ((copies.len() - index) * 960) as u32;
        red.extend_from_slice(&(0x80 << 24 | 111 << 24 | offset << 10 | copy.len() as u32).to_be_bytes());
    }
    red.push(111);
    copies.iter().for_each(|copy| red.extend_from_slice(copy));
    red.extend_from_slice(packet);
    red
}

/// Signal to noise of `got` in the packets chosen, in dB.
fn snr(wanted: &[i16], got: &[i16], chosen: impl Fn(usize) -> bool) -> f64 {
    let (mut signal, mut noise) = (1.0, 1.0);
    for (index, (wanted, got)) in
        wanted.chunks(320).zip(got.chunks(320)).enumerate().filter(|(index, _)| chosen(*index))
    {
        assert_eq!(wanted.len(), got.len(), "packet {index}");
        for (&wanted, &got) in wanted.iter().zip(got) {
            signal += f64::from(wanted).powi(2);
            noise += (f64::from(wanted) - f64::from(got)).powi(2);
        }
    }
    10.0 * f64::log10(signal / noise)
}

#[test]
fn a04_of_three_lost_in_a_row_the_last_comes_from_its_copy_and_time_is_kept() {
    let packets = packets(&speech::speech(10_000, 7), 20);
    let (whole, _) = heard(&packets, false, |_| false);
    let lost = |index: usize| index % 50 >= 40 && index % 50 < 43;
    let (got, concealed) = heard(&packets, false, lost);
    assert_eq!(got.len(), whole.len(), "duration");
    assert_eq!(concealed, 10 * 2 * 960, "two of each three are made up");
    let copied = snr(&whole, &got, |index| index % 50 == 42);
    let made_up = snr(&whole, &got, |index| index % 50 == 40 || index % 50 == 41);
    let (got, _) = heard(&packets, false, |index| index % 25 == 20);
    let alone = snr(&whole, &got, |index| index % 25 == 20);
    println!("concealed {made_up:.1} dB, from the copy behind two concealed {copied:.1} dB, alone {alone:.1} dB");
    assert!(copied > made_up + 1.5, "a copy decoded from a concealed past: {copied:.1} and {made_up:.1} dB");
    assert!(alone > made_up + 5.0, "{alone:.1} and {made_up:.1} dB");
}

#[test]
fn a04_a_hole_fades_to_silence_within_100_ms() {
    let packets = packets(&speech::speech(3000, 8), 20);
    let (got, _) = heard(&packets, false, |index| (60..75).contains(&index));
    let loudest = |from_ms: usize, to_ms: usize| got[from_ms * 16..to_ms * 16].iter().map(|x| x.unsigned_abs()).max();
    assert_eq!(loudest(1200 + 105, 1500 - 25), Some(0));
    assert_eq!(got.len(), packets.len() * 320);
}

#[test]
fn with_red_three_lost_in_a_row_are_heard_as_if_nothing_was_lost() {
    let packets = packets(&speech::speech(4000, 9), 20);
    let (whole, _) = heard(&packets, true, |_| false);
    let (got, concealed) = heard(&packets, true, |index| index % 50 >= 40 && index % 50 < 43);
    assert_eq!((got == whole, concealed), (true, 0));
}

#[test]
fn a01_frames_of_a_packet_are_heard_whole_whatever_their_number_and_length() {
    let said = speech::speech(1800, 3);
    for ms in [0, 5, 10, 20, 40, 60] {
        let mut bench = Bench::new(whole());
        let packets = packets(&said, ms);
        let samples = if ms == 0 { 120 } else { ms as u32 * 48 };
        packets.iter().for_each(|packet| send(&mut bench, Codec::Opus, packet, samples));
        assert_eq!(bench.backend.heard.len(), packets.len() * samples as usize / 3, "{ms} ms");
        assert_eq!(bench.conversation.stats().undecodable, 0);
        let likeness = speech::correlation(&said[8000..16_000], &bench.backend.heard[7500..], 1000);
        assert!(likeness > 0.8, "{ms} ms: {likeness}");
    }
}

/// RFC 6716 §3.2.5: frames of different lengths, their lengths before them, padding behind.
fn code_3(frames: &[Vec<u8>], padding: usize) -> Vec<u8> {
    let mut packet = vec![frames[0][0] & !3 | 3, 0xc0 | frames.len() as u8, padding as u8];
    for frame in &frames[..frames.len() - 1] {
        let length = frame.len() - 1;
        if length < 252 {
            packet.push(length as u8);
        } else {
            packet.extend_from_slice(&[252 + (length & 3) as u8, ((length - 252) >> 2) as u8]);
        }
    }
    frames.iter().for_each(|frame| packet.extend_from_slice(&frame[1..]));
    packet.resize(packet.len() + padding, 0);
    packet
}

#[test]
fn a01_three_and_six_frames_of_20_ms_in_a_padded_packet_are_60_and_120_ms() {
    let single = packets(&speech::speech(2400, 4), 20);
    let (whole_pcm, _) = heard(&single, false, |_| false);
    for count in [3, 6] {
        let mut bench = Bench::new(whole());
        for frames in single.chunks(count) {
            send(&mut bench, Codec::Opus, &code_3(frames, 9), 960 * count as u32);
        }
        assert_eq!(bench.backend.heard, whole_pcm, "{count} frames");
    }
}

#[test]
fn a01_a_packet_of_an_impossible_duration_is_counted_and_takes_no_time() {
    let mut bench = Bench::new(whole());
    send(&mut bench, Codec::Opus, &[0xff, 0xff, 1, 2, 3], 0);
    send(&mut bench, Codec::Opus, &[0xff], 0);
    assert_eq!(bench.conversation.stats().repair.malformed, 2);
    assert_eq!(bench.backend.heard, []);
}

#[test]
fn g711_is_heard_as_the_speech_it_is_and_loss_is_filled() {
    for (codec, law) in [(Codec::Pcmu, Law::Mu), (Codec::Pcma, Law::A)] {
        let said = speech::speech(2000, 12);
        let narrow: Vec<i16> =
            said.chunks_exact(2).map(|pair| ((i32::from(pair[0]) + i32::from(pair[1])) / 2) as i16).collect();
        let mut bench = Bench::new(Config::default());
        for rate in [16_000, 24_000, 48_000] {
            bench = Bench::new(Config { backend_rate: rate, ..whole() });
            bench.backend.rate = rate.into();
            for (index, pcm) in narrow.chunks(160).enumerate() {
                let bytes: Vec<u8> = pcm.iter().map(|&sample| g711::encode(law, sample)).collect();
                if index % 20 == 19 {
                    bench.seq = bench.seq.wrapping_add(1);
                    bench.timestamp = bench.timestamp.wrapping_add(960);
                } else {
                    send(&mut bench, codec, &bytes, 960);
                }
            }
            let expected = narrow.len() * rate as usize / 8000;
            assert!(
                expected - bench.backend.heard.len() <= rate as usize / 50,
                "{rate}: {}",
                bench.backend.heard.len()
            );
            assert_eq!(bench.conversation.stats().undecodable, 0);
            if rate == 16_000 {
                let likeness = speech::correlation(&said[8000..11_000], &bench.backend.heard[7900..], 400);
                assert!(likeness > 0.9, "{codec:?}: {likeness}");
            }
        }
        assert_eq!(bench.conversation.stats().repair.concealed, 4 * 960);
    }
}

#[test]
fn a_key_is_told_once_and_takes_no_turn() {
    let mut bench = Bench::new(Config::default());
    bench.run_ms(200);
    for (duration, flags) in [(400, 0), (800, 0), (1200, 0x80), (1200, 0x80), (1200, 0x80)] {
        let [high, low] = u16::to_be_bytes(duration);
        send(&mut bench, Codec::TelephoneEvent, &[11, flags, high, low], 0);
    }
    let keys: Vec<Event> =
        bench.events().into_iter().filter(|event| matches!(event, Event::KeyPressed { .. })).collect();
    assert_eq!(keys, [Event::KeyPressed { key: '#', audio_ms: 220 }]);
    let key = |output: &Output| matches!(output, Output::Backend(BackendInput::Key { key: '#', media_time: 10_560 }));
    assert_eq!(bench.count(key), 1, "the backend hears of it as well");
    assert!(bench.events().iter().all(|event| !matches!(event, Event::SpeechStarted { .. })));
}

/// Loses the packet of 800 ms, which comes 100 ms late.
fn late_packet(config: Config) -> Bench {
    let mut bench = Bench::new(config);
    let packets = packets(&speech::speech(2000, 21), 20);
    for (index, packet) in packets.iter().enumerate() {
        let (seq, timestamp) = (bench.seq, bench.timestamp);
        if index == 40 {
            bench.seq = seq.wrapping_add(1);
            bench.timestamp = timestamp.wrapping_add(960);
        } else {
            send(&mut bench, Codec::Opus, packet, 960);
        }
        if index == 45 {
            bench.seq = seq.wrapping_sub(5);
            bench.timestamp = timestamp.wrapping_sub(5 * 960);
            send(&mut bench, Codec::Opus, &packets[40], 0);
            bench.seq = seq.wrapping_add(1);
            bench.timestamp = timestamp.wrapping_add(960);
        }
    }
    bench
}

#[test]
fn a_backend_that_can_go_back_is_told_what_came_late() {
    let repair = RepairConfig { corrections: true, ..RepairConfig::default() };
    let bench = late_packet(Config { repair, ..whole() });
    assert_eq!(bench.backend.corrections, [(40 * 960, 320)]);
    assert_eq!(bench.conversation.stats().repair.corrections, 1);
}

#[test]
fn a_backend_that_cannot_go_back_is_told_nothing() {
    let bench = late_packet(whole());
    assert_eq!(bench.backend.corrections, []);
    assert!(bench.log.iter().all(|(_, output)| !matches!(output, Output::Backend(BackendInput::Correction { .. }))));
}

#[test]
fn a10_a_microphone_switched_five_times_in_2_s_adds_no_delay() {
    for runs_on in [true, false] {
        let mut bench = Bench::new(whole());
        let packets = packets(&speech::speech(4000, 30), 20);
        let mut sent = 0_u64;
        for (index, packet) in packets.iter().enumerate() {
            let muted = index < 100 && index % 20 >= 10;
            if muted {
                bench.now += Duration::from_millis(20);
                bench.timestamp = bench.timestamp.wrapping_add(if runs_on { 960 } else { 0 });
                sent += u64::from(runs_on) * 960;
            } else {
                send(&mut bench, Codec::Opus, packet, 960);
                sent += 960;
                assert_eq!(bench.backend.end, sent, "packet {index} waits");
            }
        }
        assert_eq!(bench.conversation.stats().repair.concealed, 0);
    }
}
