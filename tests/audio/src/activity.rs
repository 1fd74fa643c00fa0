//! Voice activity: what the turn machine takes for speech, against what is known to be speech, in noise.
//!
//! Labels and decisions are smoothed alike: three frames begin speech, 200 ms of anything else end it. So a frame counts as
//! false positive when speech is decided where none is and none was within 200 ms, and as false negative the other way round.

use std::time::{Duration, Instant};

use serde::Serialize;
use voice::opus::Decoder;
use voice::{Config, Conversation, Event, Output, ServerVad};

use crate::corpus::{Corpus, FRAME, labels, power, speech_power};
use crate::figure::{Figure, held, mean, percentile, rounded, told};
use crate::noise::{Noise, Random, mix, pink};
use crate::uplink::{PACKET, encode, frame};

/// Silence that ends speech, in ms and in frames of 16 ms.
const HANGOVER_MS: u32 = 200;
const HANGOVER: usize = 12;
/// Frames that begin it.
const ONSET: usize = 3;
/// A frame in 48 kHz samples.
const FRAME_MEDIA: u64 = 768;
/// Onsets and ends of labels and decisions further apart than this are not the same: 500 ms.
const NEAR: i64 = 500;
const SNRS: [i32; 3] = [20, 10, 5];

/// One kind of noise at one level.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Which noise.
    pub(crate) noise: &'static str,
    /// Speech over noise. `None`: without noise.
    pub(crate) snr_db: Option<i32>,
    /// Frames of no speech that were taken for speech, in percent.
    pub(crate) false_positive: f64,
    /// Frames of speech that were not, in percent.
    pub(crate) false_negative: f64,
    /// From the first sample of speech to the decision, p50 and p95, in ms.
    pub(crate) onset_ms: [f64; 2],
    /// From the last sample of speech to where its end is said to be, p50 and p95 of the distance, in ms.
    pub(crate) end_ms: [f64; 2],
}

/// Measures all noises over `seconds` of speech and pauses with each of `seeds` seeds.
pub(crate) fn measure(corpus: &Corpus, seconds: usize, seeds: u64) -> anyhow::Result<(Vec<Figure>, Vec<Row>)> {
    let mut rows = Vec::new();
    let conditions = Noise::ALL.into_iter().flat_map(|noise| SNRS.map(|snr| Some((noise, snr))));
    for condition in std::iter::once(None).chain(conditions) {
        let mut sum = Tally::default();
        for seed in 1..=seeds {
            sum.add(one(corpus, seconds, condition, seed, |pcm| Ok(pcm.to_vec()))?);
        }
        rows.push(sum.row(condition));
    }
    let over = |of: fn(&Row) -> f64| {
        let known = rows.iter().filter(|row| row.noise != Noise::Babble.name());
        mean(&known.map(of).collect::<Vec<_>>())
    };
    let note = "mean over clean, white, pink, hum and key clicks at 20, 10 and 5 dB, 13 conditions";
    let clean = rows.first().map_or([0.0; 2], |row| row.onset_ms);
    let mut figures = vec![
        held("vad.false_positive", over(|row| row.false_positive), "%", 5.0, note),
        held("vad.false_negative", over(|row| row.false_negative), "%", 5.0, note),
        told("vad.onset_p50_ms", clean[0], "ms", "first sample of clean speech to the decision that a turn begins"),
        told("vad.onset_p95_ms", clean[1], "ms", "the same"),
    ];
    for row in rows.iter().filter(|row| row.noise == Noise::Babble.name()) {
        let name = format!("vad.babble_{}db_false_positive", row.snr_db.unwrap_or_default());
        figures.push(told(&name, row.false_positive, "%", "babble of eight voices, as measured"));
    }
    Ok((figures, rows))
}

#[derive(Debug, Default)]
struct Tally {
    /// Frames of no speech, and of these taken for speech; frames of speech, and of these not.
    counts: [u64; 4],
    onsets: Vec<f64>,
    ends: Vec<f64>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.onsets.extend(other.onsets);
        self.ends.extend(other.ends);
    }

    fn row(mut self, condition: Option<(Noise, i32)>) -> Row {
        let [quiet, positive, spoken, negative] = self.counts.map(|count| count as f64);
        let mut both = |values: fn(&mut Self) -> &mut Vec<f64>| {
            [0.5, 0.95].map(|part| rounded(percentile(values(&mut self), part)))
        };
        let (onset_ms, end_ms) = (both(|sum| &mut sum.onsets), both(|sum| &mut sum.ends));
        Row {
            noise: condition.map_or("none", |(noise, _)| noise.name()),
            snr_db: condition.map(|(_, snr)| snr),
            false_positive: rounded(100.0 * positive / quiet.max(1.0)),
            false_negative: rounded(100.0 * negative / spoken.max(1.0)),
            onset_ms,
            end_ms,
        }
    }
}

/// Clips with pauses of 0.6 to 2 s between them, and the frames in which somebody speaks.
fn scene(corpus: &Corpus, seconds: usize, seed: u64) -> (Vec<i16>, Vec<bool>) {
    let mut random = Random::new(seed);
    let clips: Vec<_> = corpus.speech().collect();
    let mut pcm: Vec<i16> = vec![0; 16_000];
    while pcm.len() < seconds * 16_000 {
        let clip = clips[random.below(clips.len())];
        pcm.extend(&clip.pcm);
        let pause = 9600 + random.below(22_400);
        pcm.extend(std::iter::repeat_n(0, pause));
    }
    pcm.truncate(pcm.len() / PACKET * PACKET);
    // A quiet room, 40 dB below the speech: digital silence is found in no call.
    let room = pink(pcm.len(), seed);
    let spoken = labels(&through_codec(&pcm).unwrap_or_else(|_| pcm.clone()));
    let quiet = speech_power(&pcm) * 1e-4;
    mix(&mut pcm, &room, quiet);
    (pcm, spoken)
}

/// The same as a receiver has it, with the codec's delay: labels and decisions lie on one clock.
fn through_codec(pcm: &[i16]) -> anyhow::Result<Vec<i16>> {
    let mut decoder = Decoder::new(16_000)?;
    let mut out = Vec::with_capacity(pcm.len());
    let mut decoded = [0; PACKET];
    for packet in encode(pcm, 0)? {
        decoder.decode(&packet, &mut decoded)?;
        out.extend(decoded);
    }
    Ok(out)
}

/// One condition with one seed, when `through` comes before the codec.
pub(crate) fn behind(
    corpus: &Corpus,
    seconds: usize,
    condition: (Noise, i32),
    through: impl Fn(&[i16]) -> anyhow::Result<Vec<i16>>,
) -> anyhow::Result<Row> {
    Ok(one(corpus, seconds, Some(condition), 1, through)?.row(Some(condition)))
}

fn one(
    corpus: &Corpus,
    seconds: usize,
    condition: Option<(Noise, i32)>,
    seed: u64,
    through: impl Fn(&[i16]) -> anyhow::Result<Vec<i16>>,
) -> anyhow::Result<Tally> {
    let (mut pcm, spoken) = scene(corpus, seconds, seed);
    if let Some((noise, snr)) = condition {
        let wanted = speech_power(&pcm) / 10_f32.powf(snr as f32 / 10.0);
        let noise = noise.samples(corpus, pcm.len(), seed);
        mix(&mut pcm, &noise, wanted);
    }
    let (turns, decided_at) = decide(&through(&pcm)?)?;
    let mut decided = vec![false; spoken.len()];
    for &(from, to) in &turns {
        let index = |time: u64| usize::try_from(time / FRAME_MEDIA).unwrap_or(usize::MAX).min(decided.len());
        let (from, to) = (index(from), index(to));
        decided[from..to].fill(true);
    }
    let (spoken, decided) = (smooth(&spoken), smooth(&decided));
    let mut tally = Tally::default();
    for (&spoken, &decided) in spoken.iter().zip(&decided) {
        tally.counts[0] += u64::from(!spoken);
        tally.counts[1] += u64::from(!spoken && decided);
        tally.counts[2] += u64::from(spoken);
        tally.counts[3] += u64::from(spoken && !decided);
    }
    let edges = |wanted: bool| {
        let changes = spoken.windows(2).enumerate().filter(move |(_, pair)| pair[0] != wanted && pair[1] == wanted);
        changes.map(|(index, _)| i64::try_from((index + 1) * FRAME / 16).unwrap_or_default())
    };
    let ms = |media: u64| i64::try_from(media / 48).unwrap_or_default();
    for onset in edges(true) {
        let begun = turns.iter().zip(&decided_at).find(|((from, _), _)| (ms(*from) - onset).abs() < NEAR);
        tally.onsets.extend(begun.map(|(_, at)| (ms(*at) - onset) as f64));
    }
    for end in edges(false) {
        // The label holds for the hangover longer.
        let end = end - i64::from(HANGOVER_MS);
        let ended = turns.iter().map(|(_, to)| (ms(*to) - end).abs()).min();
        tally.ends.extend(ended.filter(|distance| *distance < NEAR).map(|distance| distance as f64));
    }
    Ok(tally)
}

/// [`decide`]'s answer.
type Decisions = (Vec<(u64, u64)>, Vec<u64>);

/// First and last voiced sample of each stretch of speech, and the media time at which its begin was decided.
fn decide(pcm: &[i16]) -> anyhow::Result<Decisions> {
    let start = Instant::now();
    let vad = ServerVad {
        prefix_padding_ms: 0,
        silence_duration_ms: HANGOVER_MS,
        create_response: false,
        ..ServerVad::default()
    };
    let mut config = Config { max_turn_ms: 600_000, ..Config::default() };
    config.turn.server_vad = Some(vad);
    let mut conversation = Conversation::new(start, config);
    let (mut turns, mut decided_at, mut begun) = (Vec::new(), Vec::new(), None);
    for (index, payload) in encode(pcm, 0)?.iter().enumerate() {
        let now = start + Duration::from_millis(20) * u32::try_from(index + 1)?;
        conversation.handle_media(now, frame(index, payload), 0);
        while let Some(output) = conversation.poll_output() {
            match output {
                Output::Event(Event::SpeechStarted { audio_start_ms, .. }) => {
                    begun = Some(audio_start_ms * 48);
                    decided_at.push((index as u64 + 1) * 960);
                }
                Output::Event(Event::SpeechStopped { audio_end_ms, .. }) => {
                    turns.extend(begun.take().map(|from| (from, audio_end_ms * 48)));
                }
                _ => {}
            }
        }
    }
    let end = (pcm.len() * 3) as u64;
    turns.extend(begun.map(|from| (from, end)));
    Ok((turns, decided_at))
}

/// [`ONSET`] frames begin speech, [`HANGOVER`] frames without end it.
fn smooth(frames: &[bool]) -> Vec<bool> {
    let mut out = vec![false; frames.len()];
    let (mut run, mut left) = (0, 0);
    for (index, &speech) in frames.iter().enumerate() {
        run = if speech { run + 1 } else { 0 };
        if run >= ONSET {
            out[index + 1 - ONSET..=index].fill(true);
        }
        out[index] |= left > 0;
        left = if run >= ONSET || (speech && left > 0) { HANGOVER } else { left.saturating_sub(1) };
    }
    out
}

/// Of clean speech: index of the first sample of the first frame in which somebody speaks, and one past that of the last.
pub(crate) fn span(pcm: &[i16]) -> (usize, usize) {
    let spoken = labels(pcm);
    let first = spoken.iter().position(|spoken| *spoken).unwrap_or_default();
    let last = spoken.iter().rposition(|spoken| *spoken).unwrap_or_default();
    (first * FRAME, (last + 1) * FRAME)
}

/// Loudest frame of a sound.
pub(crate) fn peak(pcm: &[i16]) -> f32 {
    pcm.chunks_exact(FRAME).map(power).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::smooth;

    #[test]
    fn three_frames_begin_speech_and_200_ms_end_it() {
        let mut frames = vec![false; 40];
        frames[2..4].fill(true);
        assert_eq!(smooth(&frames), [false; 40], "two frames are none");
        frames[4] = true;
        let smoothed = smooth(&frames);
        assert_eq!(smoothed.iter().position(|on| *on), Some(2));
        assert_eq!(smoothed.iter().rposition(|on| *on), Some(4 + 12));
    }
}
