//! The recordings and voices that `corpus.py` made, and where in them somebody speaks.

use std::path::Path;

use anyhow::{Context as _, ensure};

/// Samples of a frame of labels: 16 ms at 16 kHz, as the detector's.
pub(crate) const FRAME: usize = 256;
/// Of a frame below the loudest tenth of its clip, in dB, when it still counts as speech.
const SPEECH_DB: f32 = 30.0;
/// Mean power of speech after leveling, as a ratio to full scale in dB: what microphones of calls deliver.
const LEVEL_DB: f32 = -26.0;

/// One recording, mono at 16 kHz, leveled.
#[derive(Debug, Clone)]
pub(crate) struct Clip {
    /// The file's name without its end.
    pub(crate) name: String,
    /// Samples.
    pub(crate) pcm: Vec<i16>,
}

/// Everything there is to say.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// Prompts of one real speaker.
    pub(crate) prompts: Vec<Clip>,
    /// Sentences of synthetic voices.
    pub(crate) voices: Vec<Clip>,
    /// "Mm-hm" and its like, by synthetic voices.
    pub(crate) hums: Vec<Clip>,
}

impl Corpus {
    /// Reads `prompts`, `voices` and `hums` of `directory`.
    ///
    /// # Errors
    /// A folder is missing or empty, or a file is not 16 kHz mono.
    pub(crate) fn load(directory: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| clips(&directory.join(name));
        Ok(Self { prompts: read("prompts")?, voices: read("voices")?, hums: read("hums")? })
    }

    /// Prompts and voices in turn, so that any number of them has both.
    pub(crate) fn speech(&self) -> impl Iterator<Item = &Clip> {
        let every = (self.prompts.len() / self.voices.len()).max(1);
        let voices = self.voices.iter().map(Some).chain(std::iter::repeat(None));
        self.prompts.chunks(every.min(4)).zip(voices).flat_map(|(prompts, voice)| prompts.iter().chain(voice))
    }
}

fn clips(directory: &Path) -> anyhow::Result<Vec<Clip>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("no corpus in {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wav"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} is empty", directory.display());
    paths.iter().map(|path| clip(path).with_context(|| path.display().to_string())).collect()
}

fn clip(path: &Path) -> anyhow::Result<Clip> {
    let mut reader = hound::WavReader::open(path)?;
    let spec = reader.spec();
    ensure!(spec.sample_rate == 16_000 && spec.channels == 1, "not mono at 16 kHz");
    let pcm = reader.samples::<i16>().collect::<Result<Vec<_>, _>>()?;
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Clip { name, pcm: level(&pcm) })
}

/// Brings the mean power of its speech to [`LEVEL_DB`].
fn level(pcm: &[i16]) -> Vec<i16> {
    let power = speech_power(pcm);
    let wanted = 10_f32.powf(LEVEL_DB / 10.0) * 32_768.0_f32.powi(2);
    let gain = if power > 0.0 { (wanted / power).sqrt() } else { 1.0 };
    pcm.iter().map(|&sample| to_i16(f32::from(sample) * gain)).collect()
}

/// Mean power of the frames in which somebody speaks.
pub(crate) fn speech_power(pcm: &[i16]) -> f32 {
    let spoken = labels(pcm);
    let frames = pcm.chunks_exact(FRAME).zip(&spoken).filter(|(_, spoken)| **spoken);
    let (sum, count) = frames.fold((0.0, 0_u32), |(sum, count), (frame, _)| (sum + power(frame), count + 1));
    if count == 0 { 0.0 } else { sum / count as f32 }
}

/// For each whole frame of clean sound whether somebody speaks: no more than [`SPEECH_DB`] below its loudest tenth.
pub(crate) fn labels(pcm: &[i16]) -> Vec<bool> {
    let powers: Vec<f32> = pcm.chunks_exact(FRAME).map(power).collect();
    let mut sorted = powers.clone();
    sorted.sort_by(f32::total_cmp);
    let loud = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or_default();
    let least = loud * 10_f32.powf(-SPEECH_DB / 10.0);
    powers.iter().map(|&power| power > least.max(1.0)).collect()
}

/// Mean power of a frame.
pub(crate) fn power(frame: &[i16]) -> f32 {
    frame.iter().map(|&sample| f32::from(sample).powi(2)).sum::<f32>() / frame.len().max(1) as f32
}

/// The nearest sample.
pub(crate) fn to_i16(sample: f32) -> i16 {
    #[expect(clippy::cast_possible_truncation, reason = "clamped to what an i16 holds")]
    let sample = sample.round().clamp(-32_768.0, 32_767.0) as i16;
    sample
}
