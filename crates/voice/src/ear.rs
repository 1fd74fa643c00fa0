//! The user's audio as samples: decodes pieces, or takes samples as they are, keeps what a turn may reach back to, feeds the detector.

use std::collections::VecDeque;

use crate::enhance::{EnhanceConfig, Enhancer, SUPPRESSION_RATE};
use crate::g711::{self, Law};
use crate::opus::{CreateError, Decoder};
use crate::repair::{Late, Piece, Source};
use crate::resample::{Decimator, Interpolator};
use crate::vad::Vad;

/// The longest packet, in ms.
const MAX_PACKET_MS: u32 = 120;
/// Audio kept ahead of an onset, in 48 kHz samples: 500 ms. At 16 kHz 16 kB per conversation.
const KEEP: u64 = 500 * 48;
/// Audio kept while it is in doubt whether a turn has begun: [`KEEP`], the longest doubt of 3 s and 2 s for late words, 176 kB at
/// 16 kHz. Rules that ask for more speech keep twice that speech.
const KEEP_MAX: u64 = 5500 * 48;

/// Decodes and remembers.
#[derive(Debug)]
pub(crate) struct Ear {
    /// `None`: the audio comes as samples.
    decoder: Option<Decoder>,
    /// From G.711's rate; made when there is some.
    telephone: Option<Interpolator>,
    /// For packets that came late, on their own.
    late: Option<Box<LateEar>>,
    decode_rate: u32,
    /// To the backend's rate and to the detector's; `None` where the decoder gives it.
    to_backend: Option<Decimator>,
    to_vad: Option<Decimator>,
    pub(crate) vad: Vad,
    /// Suppression ahead of the detector, gain behind it.
    enhancer: Option<Enhancer>,
    /// Recent audio at the backend's rate; its end is `end`.
    ring: VecDeque<i16>,
    /// 48 kHz media time behind the last sample.
    end: u64,
    /// 48 kHz samples per sample of the ring.
    factor: u64,
    keep: u64,
    keep_max: u64,
    /// Scratch, so that a packet allocates nothing.
    decoded: Vec<i16>,
    backend: Vec<i16>,
    pub(crate) detect: Vec<i16>,
    /// Pieces that could not be decoded and became silence.
    pub(crate) undecodable: u64,
}

impl Ear {
    /// For packets.
    pub(crate) fn new(backend_rate: u32, enhance: EnhanceConfig) -> Result<Self, CreateError> {
        let mut ear = Self::of_samples(backend_rate, enhance);
        ear.decoder = Some(Decoder::new(ear.decode_rate)?);
        // One piece: at most 1 s of filled silence, 200 ms of concealment, 120 ms of a packet. 32 kB at 16 kHz.
        ear.decoded = vec![0; ear.decode_rate as usize];
        Ok(ear)
    }

    /// For samples at [`Ear::rate`].
    pub(crate) fn of_samples(backend_rate: u32, enhance: EnhanceConfig) -> Self {
        let decode_rate = if backend_rate == 16_000 && !enhance.noise_suppression { 16_000 } else { SUPPRESSION_RATE };
        let decimator = |to: u32| (to != decode_rate).then(|| Decimator::new((decode_rate / to) as usize));
        Self {
            decoder: None,
            telephone: None,
            late: None,
            decode_rate,
            to_backend: decimator(backend_rate),
            to_vad: decimator(crate::vad::RATE),
            vad: Vad::new(),
            enhancer: Enhancer::new(enhance, decode_rate),
            ring: VecDeque::new(),
            end: 0,
            factor: u64::from(48_000 / backend_rate),
            keep: KEEP,
            keep_max: KEEP_MAX,
            decoded: Vec::new(),
            backend: Vec::new(),
            detect: Vec::new(),
            undecodable: 0,
        }
    }

    /// Of the samples it takes: 16 or 48 kHz.
    pub(crate) fn rate(&self) -> u32 {
        self.decode_rate
    }

    /// Keeps enough for this much prefix padding and an onset: 160 ms that led up to it and the frames that made it.
    pub(crate) fn set_padding(&mut self, prefix_padding_ms: u32) {
        self.keep = KEEP.max(u64::from(prefix_padding_ms + 300) * 48);
    }

    /// Keeps the longest doubt that ends with this much speech.
    pub(crate) fn set_longest_doubt(&mut self, speech_ms: u32) {
        self.keep_max = KEEP_MAX.max((u64::from(speech_ms) * 2 + 2500) * 48);
    }

    /// 48 kHz media time behind the last sample.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Decodes a piece into the ring; the samples for the detector are in [`Ear::detect`]. `false`: the clock jumped and
    /// what was kept is gone.
    pub(crate) fn hear(&mut self, piece: &Piece<'_>) -> bool {
        if piece.source == Source::Skip {
            self.ring.clear();
            self.end = piece.media_time + u64::from(piece.samples);
            self.vad.discard_partial();
            self.detect.clear();
            return false;
        }
        let length = (piece.samples / (48_000 / self.decode_rate)) as usize;
        let length = length.min(self.decoded.len());
        let out = &mut self.decoded[..length];
        let written = match (piece.source, &mut self.decoder) {
            (Source::Packet(packet), Some(decoder)) => decoder.decode(packet, out),
            (Source::G711(law, bytes), Some(decoder)) => {
                telephone(&mut self.telephone, self.decode_rate, (law, bytes), &mut self.backend, out);
                decoder.heard(out);
                Ok(out.len())
            }
            (Source::Fec(next), Some(decoder)) => decoder.decode_fec(next, out),
            (Source::Conceal, Some(decoder)) => decoder.conceal(out),
            _ => {
                out.fill(0);
                Ok(out.len())
            }
        };
        // The piece lasts as long as its packet says, whatever the decoder makes of it.
        let written = written.unwrap_or_else(|_| {
            self.undecodable += 1;
            0
        });
        out[written.min(length)..].fill(0);
        self.remember(length);
        self.end = piece.media_time + u64::from(piece.samples);
        true
    }

    /// Hears samples at [`Ear::rate`] that follow the last ones.
    pub(crate) fn hear_samples(&mut self, pcm: &[i16]) {
        self.decoded.clear();
        self.decoded.extend_from_slice(pcm);
        self.remember(pcm.len());
        self.end += pcm.len() as u64 * u64::from(48_000 / self.decode_rate);
    }

    /// The clock goes on by this many 48 kHz samples that are not to be heard, and what was kept is gone.
    pub(crate) fn skip(&mut self, samples: u64) {
        self.ring.clear();
        self.end += samples;
        self.vad.discard_partial();
        self.detect.clear();
    }

    /// What was decoded, for the detector and into the ring.
    fn remember(&mut self, length: usize) {
        let out = &mut self.decoded[..length];
        if let Some(enhancer) = &mut self.enhancer {
            enhancer.suppress(out);
        }
        convert(&mut self.to_vad, out, &mut self.detect);
        if let Some(enhancer) = &mut self.enhancer {
            enhancer.amplify(out);
        }
        convert(&mut self.to_backend, out, &mut self.backend);
        self.ring.extend(&self.backend);
    }

    /// Puts what came late in the place of what was made up, as far as that is still kept; its samples at the backend's rate.
    pub(crate) fn correct(&mut self, late: &Late<'_>) -> Option<&[i16]> {
        let length = (late.samples / (48_000 / self.decode_rate)) as usize;
        let kept = match &mut self.late {
            Some(kept) => kept,
            none => none.insert(Box::new(LateEar {
                decoder: Decoder::new(self.decode_rate).ok()?,
                decoded: vec![0; (self.decode_rate / 1000 * MAX_PACKET_MS) as usize],
                backend: Vec::new(),
            })),
        };
        let out = kept.decoded.get_mut(..length)?;
        match late.source {
            Source::Packet(packet) => {
                let written = kept.decoder.decode(packet, out).ok()?;
                out[written.min(length)..].fill(0);
            }
            // Alone, without the stream's filter: its first samples fade in.
            Source::G711(law, bytes) => telephone(&mut None, self.decode_rate, (law, bytes), &mut kept.backend, out),
            Source::Fec(_) | Source::Conceal | Source::Silence | Source::Skip => return None,
        }
        let mut decimator = self.to_backend.as_ref().map(|_| {
            let factor = u64::from(self.decode_rate) * self.factor / 48_000;
            Decimator::new(usize::try_from(factor).unwrap_or(1))
        });
        convert(&mut decimator, out, &mut kept.backend);
        let start = self.end.saturating_sub(self.ring.len() as u64 * self.factor);
        for (time, sample) in (0..).map(|index| late.media_time + index * self.factor).zip(&kept.backend) {
            let at = time.checked_sub(start).and_then(|into| usize::try_from(into / self.factor).ok());
            if let Some(place) = at.and_then(|at| self.ring.get_mut(at)) {
                *place = *sample;
            }
        }
        Some(&kept.backend)
    }

    /// Forgets what no turn can reach any more.
    pub(crate) fn trim(&mut self, keep_from: Option<u64>) {
        let from = keep_from.map_or(self.end, |from| from.min(self.end)).saturating_sub(self.keep);
        let from = from.max(self.end.saturating_sub(self.keep_max.max(self.keep)));
        let wanted = usize::try_from((self.end - from) / self.factor).unwrap_or(usize::MAX);
        self.ring.drain(..self.ring.len().saturating_sub(wanted));
    }

    /// 48 kHz media time of the oldest sample kept.
    pub(crate) fn start(&self) -> u64 {
        self.end.saturating_sub(self.ring.len() as u64 * self.factor)
    }

    /// The samples from media time `from` to `to`, as far as they are kept.
    pub(crate) fn read(&self, from: u64, to: u64) -> Vec<i16> {
        let start = self.start();
        let index = |time: u64| {
            usize::try_from(time.saturating_sub(start) / self.factor).unwrap_or(usize::MAX).min(self.ring.len())
        };
        let (from, to) = (index(from), index(to));
        if from >= to { Vec::new() } else { self.ring.range(from..to).copied().collect() }
    }
}

/// What decodes packets that came late. Its decoder knows what came late before, not what came between.
#[derive(Debug)]
struct LateEar {
    decoder: Decoder,
    decoded: Vec<i16>,
    backend: Vec<i16>,
}

/// G.711 at the decoder's rate, into all of `out`. `scratch` is of no meaning before or after.
fn telephone(
    filter: &mut Option<Interpolator>,
    rate: u32,
    (law, bytes): (Law, &[u8]),
    scratch: &mut Vec<i16>,
    out: &mut [i16],
) {
    let filter = filter.get_or_insert_with(|| Interpolator::new((rate / g711::RATE) as usize));
    scratch.clear();
    g711::decode(law, bytes, scratch);
    filter.process(scratch, out);
}

fn convert(decimator: &mut Option<Decimator>, pcm: &[i16], out: &mut Vec<i16>) {
    out.clear();
    match decimator {
        None => out.extend_from_slice(pcm),
        Some(decimator) => decimator.process(pcm, out),
    }
}
