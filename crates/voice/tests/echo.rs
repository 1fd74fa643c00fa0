//! T12: the agent hears itself.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::collections::VecDeque;

use common::{Bench, speech};
use voice::opus::Decoder;
use voice::{Config, DecisionKind, InterruptionConfig, Output, State};

fn pause(output: &Output) -> bool {
    matches!(output, Output::Pause)
}

fn flush(output: &Output) -> bool {
    matches!(output, Output::Flush { .. })
}

/// A loudspeaker, a room and a microphone: what leaves the edge comes back later, softer, and reflected.
struct Room {
    decoder: Decoder,
    /// Frames of the wire that were played.
    played: usize,
    /// What reaches the microphone, sample by sample from now.
    air: VecDeque<f32>,
    delay: usize,
    gain: f32,
}

/// Reflections: samples at 16 kHz and their part of the direct sound.
const REFLECTIONS: [(usize, f32); 6] = [(0, 1.0), (53, 0.45), (131, -0.35), (260, 0.3), (517, -0.2), (930, 0.12)];

impl Room {
    fn new(delay_ms: usize, decibels: f32) -> Self {
        Self {
            decoder: Decoder::new(16_000).unwrap(),
            played: 0,
            air: VecDeque::new(),
            delay: delay_ms * 16,
            gain: 10_f32.powf(decibels / 20.0),
        }
    }

    /// 20 ms: the frame that left the edge is played, the microphone hears the room and `said`.
    fn step(&mut self, bench: &mut Bench, said: &[i16]) {
        if let Some((_, payload)) = bench.edge.wire.get(self.played) {
            let mut out = [0; 1920];
            let length = self.decoder.decode(payload, &mut out).unwrap();
            self.played += 1;
            for (index, &sample) in out[..length].iter().enumerate() {
                for (later, part) in REFLECTIONS {
                    let at = self.delay + later + index;
                    if self.air.len() <= at {
                        self.air.resize(at + 1, 0.0);
                    }
                    self.air[at] += f32::from(sample) * self.gain * part;
                }
            }
        }
        let heard: Vec<i16> = (0..320)
            .map(|index| {
                let own = said.get(index).copied().map_or(0.0, f32::from);
                (self.air.pop_front().unwrap_or(0.0) + own).clamp(-32_000.0, 32_000.0) as i16
            })
            .collect();
        bench.say(&heard);
        bench.run_ms(20);
    }

    fn run(&mut self, bench: &mut Bench, ms: usize, said: &[i16]) {
        for index in 0..ms / 20 {
            let from = (index * 320).min(said.len());
            self.step(bench, &said[from..(from + 320).min(said.len())]);
        }
    }
}

/// A voice that is as loud as it gets.
fn loud(ms: usize, seed: u32) -> Vec<i16> {
    speech::speech(ms, seed).iter().map(|sample| sample.saturating_mul(3)).collect()
}

fn asked(config: Config, reply_ms: usize, room: &mut Room, seed: u32) -> Bench {
    let mut bench = Bench::new(config);
    bench.backend.says = Some(loud(reply_ms, seed));
    let question = [speech::silence(600), speech::speech(1000, 22)].concat();
    room.run(&mut bench, 2200, &question);
    bench.log.clear();
    bench
}

#[test]
fn t12_echo_alone_never_interrupts_and_is_suspected() {
    for (delay_ms, decibels, seed) in [
        (180, -20.0, 21),
        (180, -20.0, 71),
        (60, -12.0, 72),
        (350, -20.0, 73),
        (450, -26.0, 74),
        (180, -6.0, 75),
        (120, -9.0, 76),
    ] {
        let mut room = Room::new(delay_ms, decibels);
        let mut bench = asked(Config::default(), 6000, &mut room, seed);
        room.run(&mut bench, 8000, &[]);
        let pauses = bench.count(pause);
        println!("{delay_ms} ms, {decibels} dB: {pauses} pauses, suspected {}", bench.conversation.echo_suspected());
        assert_eq!(bench.count(flush), 0, "{delay_ms} ms, {decibels} dB");
        assert!(pauses <= 1, "{delay_ms} ms, {decibels} dB: {pauses} pauses");
        // What the detector does not hear needs no suspicion.
        if decibels >= -12.0 {
            assert!(bench.conversation.echo_suspected());
            assert_eq!(bench.decided(DecisionKind::EchoVeto), 1);
        }
        assert_eq!(bench.edge.wire.len(), 300, "{delay_ms} ms, {decibels} dB");
        assert_eq!(bench.conversation.state(), State::Listening);
    }
}

#[test]
fn t12_real_speech_over_the_echo_interrupts() {
    for seed in 81..=88 {
        let mut room = Room::new(180, -20.0);
        let mut bench = asked(Config::default(), 12_000, &mut room, seed);
        room.run(&mut bench, 3000, &[]);
        assert!(bench.conversation.echo_suspected(), "seed {seed}");
        assert_eq!(bench.count(flush), 0, "seed {seed}");
        let onset = bench.elapsed_ms();
        bench.log.clear();
        room.run(&mut bench, 1500, &loud(1500, seed + 20));
        let cut = bench.time_of(flush).unwrap_or(u64::MAX) - onset;
        println!("seed {seed}: cut after {cut} ms");
        assert!(cut <= 450, "seed {seed}: {cut}");
    }
}

#[test]
fn speech_without_an_echo_is_not_taken_for_one() {
    let mut late = 0;
    for seed in 1..=12 {
        let mut room = Room::new(180, -90.0);
        let mut bench = asked(Config::default(), 8000, &mut room, seed);
        room.run(&mut bench, 1000, &[]);
        let onset = bench.elapsed_ms();
        bench.log.clear();
        room.run(&mut bench, 1200, &speech::speech(1200, seed + 100));
        let paused = bench.time_of(pause).unwrap_or(u64::MAX) - onset;
        let cut = bench.time_of(flush).unwrap_or(u64::MAX) - onset;
        println!("seed {seed}: paused after {paused} ms, cut after {cut} ms");
        assert!(!bench.conversation.echo_suspected(), "seed {seed}");
        assert!(cut <= 400, "seed {seed}: {cut}");
        late += usize::from(paused > 80);
    }
    assert!(late <= 1, "{late} of 12 pauses came late");
}

#[test]
fn an_echo_that_is_gone_is_not_suspected_any_more_and_the_reflex_follows() {
    let config = Config {
        interruption: InterruptionConfig { reflex: true, ..InterruptionConfig::default() },
        ..Config::default()
    };
    let mut room = Room::new(180, -20.0);
    let mut bench = asked(config, 16_000, &mut room, 91);
    room.run(&mut bench, 3000, &[]);
    assert!(bench.conversation.echo_suspected());
    // A headset.
    room.gain = 0.0;
    room.run(&mut bench, 11_000, &[]);
    assert!(!bench.conversation.echo_suspected());
    let muted: Vec<bool> = bench
        .log
        .iter()
        .filter_map(|(_, output)| if let Output::Reflex { muted, .. } = output { Some(*muted) } else { None })
        .collect();
    assert_eq!(muted, [true, false]);
}
