//! What clients say, and how like it is what they hear. All PCM is 16 kHz mono.

use voice::opus::Decoder;

#[allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "the sounds that the crate `voice` is tested with; only a part is said here"
)]
#[path = "../../../crates/voice/tests/common/speech.rs"]
mod sounds;

/// 200 ms at a quarter of the rate.
const WINDOW: usize = 800;
/// 20 ms.
const EARLIEST: usize = 80;
/// 160 ms: what a reply begins with before the first voiced frame, and the delay of two codecs.
const LAGS: usize = 640;

/// `ms` of something that the voice activity detector takes for speech; each seed says something else.
#[must_use]
pub fn speech(ms: usize, seed: u32) -> Vec<i16> {
    sounds::speech(ms, seed)
}

/// `ms` of "mm": speech to the detector, and no word.
#[must_use]
pub fn hum(ms: usize) -> Vec<i16> {
    sounds::hum(ms, 130.0)
}

/// How like `said` the begin of `heard` is, from 0 to 1: the median over windows of 200 ms of their best normalized
/// correlation, each within 160 ms around its place. What lies above 2 kHz does not count.
///
/// # Panics
/// When less than 400 ms were said.
#[must_use]
pub fn likeness(said: &[i16], heard: &[i16]) -> f64 {
    let (said, heard) = (quarter(said), quarter(heard));
    let windows = said.chunks_exact(WINDOW).enumerate().skip(1);
    let around = |index: usize| heard.get(index * WINDOW - EARLIEST..).unwrap_or_default();
    let mut likeness: Vec<f64> = windows.map(|(index, window)| correlation(window, around(index))).collect();
    likeness.sort_by(f64::total_cmp);
    likeness[likeness.len() / 2]
}

/// The best of the first [`LAGS`].
fn correlation(window: &[f32], around: &[f32]) -> f64 {
    let energy = dot(window, window);
    let lags = around.windows(window.len()).take(LAGS);
    lags.map(|part| dot(part, window) / (dot(part, part) * energy).sqrt().max(1.0)).fold(0.0, f64::max)
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sum = 0.0;
    let mut index = 0;
    // The plainest of loops: this runs unoptimized, and millions of times.
    while index < b.len() {
        sum += a[index] * b[index];
        index += 1;
    }
    f64::from(sum)
}

/// A quarter of the rate, and of that the differences: Opus takes the lowest tones out of speech and shifts the phase of
/// those beside them, which is nothing that one hears.
fn quarter(pcm: &[i16]) -> Vec<f32> {
    let quarter = pcm.chunks_exact(4).map(|samples| samples.iter().map(|&sample| f32::from(sample)).sum::<f32>());
    let mut before = 0.0;
    quarter.map(|sample| sample - std::mem::replace(&mut before, sample)).collect()
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
