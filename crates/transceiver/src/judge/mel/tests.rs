//! Against what transformers 5.24.0 makes of the same samples:
//! `WhisperFeatureExtractor(chunk_length=8)(x, sampling_rate=16000, padding="max_length", max_length=128000, do_normalize=True)`.

use super::*;

/// Two seconds of nothing, then a tone of 440 Hz that rises over a little noise.
pub(in super::super) fn samples() -> Vec<f32> {
    let mut state = 1_u32;
    let sample = |place: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let noise = (f64::from(state >> 16) - 32_768.0) / 32_768.0;
        let since = place.checked_sub(32_000)?;
        let tone = (2.0 * PI * ((since * 440) % 16_000) as f64 / 16_000.0).sin();
        Some(single(0.02 * noise + 0.3 * tone * since as f64 / 96_000.0))
    };
    (0..SAMPLES).map(sample).map(Option::unwrap_or_default).collect()
}

fn features(mut samples: Vec<f32>) -> Vec<f32> {
    let mut features = Vec::new();
    LogMel::new().features(&mut samples, &mut features);
    features
}

#[test]
fn features_are_those_of_transformers() {
    const PLACES: [usize; 7] = [0, 100, 199, 200, 201, 400, 799];
    let features = features(samples());
    assert_eq!(features.len(), 80 * 800);
    for (band, wanted) in [
        (0, [-0.1863, -0.1863, -0.1863, 0.3973, 0.5833, 0.7364, 0.7663]),
        (5, [-0.1863, -0.1863, -0.1863, 0.5854, 0.6712, 0.6049, 0.9211]),
        (11, [-0.1863, -0.1863, -0.1863, 0.6018, 0.6627, 1.5747, 1.8103]),
        (12, [-0.1863, -0.1863, -0.1863, 0.6649, 0.5984, 1.4357, 1.6700]),
        (40, [-0.1863, -0.1863, -0.0358, 0.6389, 0.6132, 0.6631, 0.8156]),
        (60, [-0.1863, -0.1863, -0.0674, 0.6599, 0.6227, 0.6409, 0.6153]),
        (79, [-0.1863, -0.1863, -0.1024, 0.5936, 0.6651, 0.6116, 0.6547]),
    ] {
        let got = PLACES.map(|frame| features[band * FRAMES + frame]);
        let off = got.iter().zip(wanted).map(|(got, wanted): (&f32, f32)| (got - wanted).abs()).fold(0.0, f32::max);
        assert!(off < 3e-4, "band {band}: {got:?}");
    }
    let mean = features.iter().sum::<f32>() / features.len() as f32;
    assert!((mean - 0.457_101).abs() < 1e-4, "{mean}");
}

#[test]
fn the_same_sound_louder_has_the_same_features() {
    let louder = samples().into_iter().map(|sample| sample * 3.0).collect();
    let pairs = features(samples()).into_iter().zip(features(louder));
    let off = pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(off < 1e-3, "{off}");
}

#[test]
fn silence_has_features_too() {
    assert!(features(vec![0.0; SAMPLES]).iter().all(|feature| (feature + 1.5).abs() < 1e-6));
}
