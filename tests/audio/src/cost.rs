//! CPU of what runs for each packet, in wall time of this thread.

use std::hint::black_box;
use std::time::Instant;

use voice::vad::Vad;

use crate::corpus::Corpus;
use crate::figure::{Figure, held, percentile, told};
use crate::uplink::PACKET;

/// Microseconds of each call of `step` with 20 ms of speech.
pub(crate) fn timed(pcm: &[i16], packet: usize, mut step: impl FnMut(&[i16])) -> Vec<f64> {
    let one = |pcm: &[i16]| {
        let start = Instant::now();
        step(pcm);
        start.elapsed().as_secs_f64() * 1e6
    };
    pcm.chunks_exact(packet).map(one).collect()
}

/// The detector's decision, for 20 ms.
pub(crate) fn measure(corpus: &Corpus, seconds: usize) -> Vec<Figure> {
    let pcm: Vec<i16> = corpus.speech().flat_map(|clip| clip.pcm.iter().copied()).take(seconds * 16_000).collect();
    let mut vad = Vad::new();
    let mut each = timed(&pcm, PACKET, |mut rest| {
        while !rest.is_empty() {
            let (taken, probability) = vad.push(black_box(rest));
            black_box(probability);
            rest = &rest[taken..];
        }
    });
    let note = format!("{} packets of 20 ms", each.len());
    vec![
        held("vad.decision_p99_us", percentile(&mut each, 0.99), "us", 1000.0, note),
        told("vad.decision_p50_us", percentile(&mut each, 0.5), "us", "the same"),
    ]
}
