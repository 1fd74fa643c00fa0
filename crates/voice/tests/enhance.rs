//! Noise suppression and automatic gain in a conversation.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::Bench;
use common::speech::{noise, speech};
use voice::{Config, EnhanceConfig};

/// A sentence in noise with these options and this backend's rate: the turn's bounds and what the backend heard of it.
fn turn(noise_suppression: bool, auto_gain: bool, backend_rate: u32) -> ((u64, u64), Vec<i16>) {
    let enhance = EnhanceConfig { noise_suppression, auto_gain };
    let mut bench = Bench::new(Config { enhance, backend_rate, ..Config::default() });
    bench.backend.rate = u64::from(backend_rate);
    let mut said = [noise(600, 200, 1), noise(1200, 200, 2), noise(1200, 200, 3)].concat();
    for (sample, voice) in said[9600..].iter_mut().zip(speech(1200, 5)) {
        *sample = sample.saturating_add(voice / 4);
    }
    bench.say(&said);
    bench.run_ms(3000);
    assert_eq!(bench.backend.turns.len(), 1);
    (bench.backend.spans[0], bench.backend.turns[0].clone())
}

#[test]
fn options_change_the_sound_but_neither_turns_nor_their_length() {
    for rate in [16_000, 24_000] {
        let (span, plain) = turn(false, false, rate);
        for (suppress, gain) in [(true, false), (false, true), (true, true)] {
            let (bounds, heard) = turn(suppress, gain, rate);
            // Suppression is 10 ms late, and lets through less of a soft end.
            let near = |a: u64, b: u64| a.abs_diff(b) <= 3 * 768;
            assert!(near(bounds.0, span.0) && near(bounds.1, span.1), "{bounds:?}, plain {span:?}");
            assert!(heard.len().abs_diff(plain.len()) <= 6 * rate as usize * 16 / 1000);
            assert_ne!(heard, plain);
        }
    }
}
