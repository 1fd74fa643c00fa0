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
fn gain_changes_the_sound_and_no_turn() {
    for rate in [16_000, 24_000] {
        let (span, plain) = turn(false, false, rate);
        let (bounds, heard) = turn(false, true, rate);
        assert_eq!((bounds, heard.len()), (span, plain.len()));
        assert_ne!(heard, plain);
    }
}

#[test]
fn a_turn_behind_suppression_begins_on_time_and_ends_within_the_hangover() {
    for rate in [16_000, 24_000] {
        let (span, plain) = turn(false, false, rate);
        let (bounds, heard) = turn(true, true, rate);
        // Of a soft end in noise less is left; three frames are an onset.
        assert!(bounds.0.abs_diff(span.0) <= 3 * 768, "{bounds:?}, plain {span:?}");
        assert!(bounds.1.abs_diff(span.1) <= 200 * 48, "{bounds:?}, plain {span:?}");
        assert_ne!(heard, plain);
    }
}
