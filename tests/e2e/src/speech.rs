//! What clients say, and how like it is what they hear. All PCM is 16 kHz mono.

use voice::opus::Decoder;

#[allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "the sounds that the crate `voice` is tested with; only a part is said here"
)]
#[path = "../../../crates/voice/tests/common/speech.rs"]
mod sounds;

/// 200 ms.
const WINDOW: usize = 3200;
/// 20 ms.
const EARLIEST: usize = 320;
/// 160 ms: what a reply begins with before the first voiced frame, and the delay of two codecs.
const LAGS: usize = 2560;

/// `ms` of something that the voice activity detector takes for speech; each seed says something else.
#[must_use]
pub fn speech(ms: usize, seed: u32) -> Vec<i16> {
    sounds::speech(ms, seed)
}

/// How like `said` the begin of `heard` is, from 0 to 1: the median over windows of 200 ms of their best normalized
/// correlation, each within 160 ms around its place.
///
/// # Panics
/// When less than 400 ms were said.
#[must_use]
pub fn likeness(said: &[i16], heard: &[i16]) -> f64 {
    let windows = said.chunks_exact(WINDOW).enumerate().skip(1);
    let mut likeness: Vec<f64> = windows
        .map(|(index, window)| {
            let around = heard.get(index * WINDOW - EARLIEST..).unwrap_or_default();
            if around.len() < window.len() { 0.0 } else { sounds::correlation(window, around, LAGS) }
        })
        .collect();
    likeness.sort_by(f64::total_cmp);
    likeness[likeness.len() / 2]
}

/// The PCM of Opus packets; `None` stands for a lost one and is concealed.
///
/// # Panics
/// When a packet is not Opus.
pub fn decode<'a>(packets: impl IntoIterator<Item = Option<&'a [u8]>>) -> Vec<i16> {
    let mut decoder = Decoder::new(16_000).expect("libopus runs at 16 kHz");
    let mut pcm = [0; 1920];
    let mut heard = Vec::new();
    for packet in packets {
        let samples = match packet {
            Some(packet) => decoder.decode(packet, &mut pcm).expect("an Opus packet"),
            None => decoder.conceal(&mut pcm[..320]).expect("a concealed packet"),
        };
        heard.extend_from_slice(&pcm[..samples]);
    }
    heard
}
