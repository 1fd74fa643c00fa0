//! What noise suppression and gain cost, and whether the detector would be better off behind them.

use serde::Serialize;
use voice::EnhanceConfig;
use voice::enhance::{Enhancer, SUPPRESSION_RATE};
use voice::opus::Decoder;

use crate::activity;
use crate::corpus::Corpus;
use crate::cost::timed;
use crate::figure::{Figure, percentile, rounded, told};
use crate::noise::Noise;
use crate::uplink::encode;

/// A packet at 48 kHz.
const PACKET: usize = 960;

/// One option.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Which.
    pub(crate) option: &'static str,
    /// CPU for 20 ms, p50 and p99, in microseconds.
    pub(crate) cost_us: [f64; 2],
    /// Of the detector, if it heard what the option makes of white noise, pink noise and hum at 10 and 5 dB, in percent.
    pub(crate) false_positive: f64,
    /// The same.
    pub(crate) false_negative: f64,
    /// That it adds on the way to the backend.
    pub(crate) delay_ms: f64,
}

/// Costs over `seconds` of speech; errors over as much of each noise.
pub(crate) fn measure(corpus: &Corpus, seconds: usize) -> anyhow::Result<(Vec<Figure>, Vec<Row>)> {
    let options = [
        ("off", EnhanceConfig::default(), 0.0),
        ("noise suppression", EnhanceConfig { noise_suppression: true, auto_gain: false }, 10.0),
        ("automatic gain", EnhanceConfig { noise_suppression: false, auto_gain: true }, 0.0),
    ];
    let speech: Vec<i16> = corpus.speech().flat_map(|clip| clip.pcm.iter().copied()).take(seconds * 16_000).collect();
    let wide = wide(&speech)?;
    let mut rows = Vec::new();
    for (option, config, delay_ms) in options {
        let mut cost_us = [0.0; 2];
        if let Some(mut enhancer) = Enhancer::new(config, SUPPRESSION_RATE) {
            let mut pcm = wide.clone();
            let mut parts = pcm.chunks_exact_mut(PACKET);
            let mut each = timed(&wide, PACKET, |_| {
                if let Some(part) = parts.next() {
                    enhancer.suppress(part);
                    enhancer.amplify(part);
                }
            });
            cost_us = [0.5, 0.99].map(|part| rounded(percentile(&mut each, part)));
        }
        let [false_positive, false_negative] = errors(corpus, seconds, config)?;
        rows.push(Row { option, cost_us, false_positive, false_negative, delay_ms });
    }
    let figures = rows.iter().skip(1).map(|row| {
        let name = format!("enhance.{}_p50_us", row.option.replace(' ', "_"));
        told(&name, row.cost_us[0], "us", "CPU for 20 ms at 48 kHz")
    });
    Ok((figures.collect(), rows))
}

/// The detector's errors when noise goes through `config` before it is coded.
fn errors(corpus: &Corpus, seconds: usize, config: EnhanceConfig) -> anyhow::Result<[f64; 2]> {
    let mut sums = [0.0; 2];
    let conditions = [Noise::White, Noise::Pink, Noise::Hum].into_iter().flat_map(|noise| [(noise, 10), (noise, 5)]);
    let conditions: Vec<_> = conditions.collect();
    for &condition in &conditions {
        let row = activity::behind(corpus, seconds, condition, |pcm| enhanced(config, pcm))?;
        sums[0] += row.false_positive / conditions.len() as f64;
        sums[1] += row.false_negative / conditions.len() as f64;
    }
    Ok(sums.map(rounded))
}

/// As a client at 48 kHz would send it, enhanced, and back at 16 kHz on the same clock.
fn enhanced(config: EnhanceConfig, pcm: &[i16]) -> anyhow::Result<Vec<i16>> {
    let Some(mut enhancer) = Enhancer::new(config, SUPPRESSION_RATE) else { return Ok(pcm.to_vec()) };
    let mut wide = wide(pcm)?;
    for part in wide.chunks_mut(PACKET) {
        enhancer.suppress(part);
        enhancer.amplify(part);
    }
    // The codec's 6.5 ms and the suppressor's 10 are taken back, so that labels stay where they are.
    let late = 312 + if config.noise_suppression { 480 } else { 0 };
    let narrow = wide[late..].chunks(3).map(|three| {
        let sum: i32 = three.iter().map(|&sample| i32::from(sample)).sum();
        i16::try_from(sum / 3).unwrap_or_default()
    });
    let mut narrow: Vec<i16> = narrow.collect();
    narrow.resize(pcm.len(), 0);
    Ok(narrow)
}

/// At 48 kHz: the codec decodes to any rate.
fn wide(pcm: &[i16]) -> anyhow::Result<Vec<i16>> {
    let mut decoder = Decoder::new(SUPPRESSION_RATE)?;
    let mut out = Vec::with_capacity(3 * pcm.len());
    let mut decoded = [0; PACKET];
    for packet in encode(pcm, 0)? {
        decoder.decode(&packet, &mut decoded)?;
        out.extend(decoded);
    }
    Ok(out)
}
