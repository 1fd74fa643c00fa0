//! Words lost: prompts through loss and repair, written for a recognizer to read, with what had to be made up.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::corpus::{Clip, Corpus};
use crate::figure::{Figure, rounded, told};
use crate::noise::Random;
use crate::uplink::{Heard, PACKET, deliver, encode};

/// Silence around a prompt, in packets: a stream lasts longer than speech, so what is lost at an end is known as lost.
const MARGIN: usize = 10;
/// The loss that an encoder is told of, in percent.
const LOSS: i32 = 10;

/// How packets get lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Each of ten, by chance.
    Random,
    /// Three bursts of 60 ms in each 10 s.
    Bursts,
}

/// What repairs them.
#[derive(Debug, Clone, Copy)]
enum Repair {
    /// Concealment alone.
    None,
    /// In-band copies.
    Fec,
    /// One copy of the packet before, as Chromium sends.
    Red,
}

/// And whether words are counted, which takes long.
const CONDITIONS: [(&str, Loss, Repair, bool); 5] = [
    ("random loss, RED", Loss::Random, Repair::Red, true),
    ("random loss, FEC", Loss::Random, Repair::Fec, true),
    ("random loss, concealment alone", Loss::Random, Repair::None, false),
    ("bursts, RED", Loss::Bursts, Repair::Red, true),
    ("bursts, FEC", Loss::Bursts, Repair::Fec, false),
];

/// One condition with one seed.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Which condition.
    pub(crate) condition: &'static str,
    /// Of the loss.
    pub(crate) seed: u64,
    /// Packets lost, in percent.
    pub(crate) lost: f64,
    /// Samples from copies, in-band or RED, per minute of stream, in ms.
    pub(crate) repaired_ms: f64,
    /// Samples made up, per minute of stream, in ms.
    pub(crate) concealed_ms: f64,
    /// Of what was lost: the undamaged signal over the difference to it.
    pub(crate) snr_db: f64,
}

/// One file for the recognizer.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    /// Name of the prompt.
    pub(crate) prompt: String,
    /// `None`: nothing lost.
    pub(crate) condition: Option<&'static str>,
    /// Of the loss.
    pub(crate) seed: u64,
    /// Raw 16 kHz i16 in the output folder; the same file when nothing differs.
    pub(crate) file: String,
}

/// Sends `prompts` prompts with each condition and each of `seeds` seeds; writes what is heard to `out`.
pub(crate) fn measure(
    corpus: &Corpus,
    prompts: usize,
    seeds: u64,
    out: &Path,
) -> anyhow::Result<(Vec<Figure>, Vec<Row>, Vec<Said>)> {
    let mut said = Vec::new();
    let mut sent = Vec::new();
    for (index, clip) in corpus.prompts.iter().take(prompts).enumerate() {
        let plain = padded(clip);
        let (plain, copied) = (encode(&plain, 0)?, encode(&plain, LOSS)?);
        let whole = |packets: &[Vec<u8>]| deliver(packets, &vec![false; packets.len()], 0);
        let undamaged = [whole(&plain)?.pcm, whole(&copied)?.pcm];
        let file = format!("{index}.pcm");
        write(&out.join(&file), &undamaged[0])?;
        said.push(Said { prompt: clip.name.clone(), condition: None, seed: 0, file });
        sent.push((clip, [plain, copied], undamaged));
    }
    let mut rows = Vec::new();
    for (number, &(condition, loss, repair, counted)) in CONDITIONS.iter().enumerate() {
        for seed in 1..=seeds {
            let mut tally = Tally::default();
            let mut channel = Channel::new(loss, seed);
            for (index, (clip, packets, undamaged)) in sent.iter().enumerate() {
                let which = usize::from(matches!(repair, Repair::Fec));
                let lost = channel.next(packets[which].len());
                let copies = usize::from(matches!(repair, Repair::Red));
                let heard = deliver(&packets[which], &lost, copies)?;
                tally.add(&lost, &heard, &undamaged[which]);
                if !counted {
                    continue;
                }
                let file = if heard.pcm == undamaged[0] {
                    format!("{index}.pcm")
                } else {
                    let file = format!("{index}-{number}-{seed}.pcm");
                    write(&out.join(&file), &heard.pcm)?;
                    file
                };
                said.push(Said { prompt: clip.name.clone(), condition: Some(condition), seed, file });
            }
            rows.push(tally.row(condition, seed));
        }
    }
    let mut figures = Vec::new();
    for (condition, ..) in CONDITIONS {
        let of = rows.iter().filter(|row| row.condition == condition);
        let (concealed, snr): (Vec<_>, Vec<_>) = of.map(|row| (row.concealed_ms, row.snr_db)).unzip();
        let name = condition.replace([',', ' '], "_").replace("__", "_");
        let mean = crate::figure::mean;
        figures.push(told(&format!("{name}.concealed_ms_per_minute"), mean(&concealed), "ms", condition));
        figures.push(told(&format!("{name}.snr_db"), mean(&snr), "dB", "of lost frames against the undamaged signal"));
    }
    Ok((figures, rows, said))
}

fn padded(clip: &Clip) -> Vec<i16> {
    let margin = vec![0; MARGIN * PACKET];
    [&margin[..], &clip.pcm, &margin].concat()
}

fn write(path: &Path, pcm: &[i16]) -> anyhow::Result<()> {
    let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Ok(File::create(path)?.write_all(&bytes)?)
}

/// Decides what is lost, over all prompts as one stream.
struct Channel {
    loss: Loss,
    random: Random,
    /// Packets so far, and where the bursts of these 10 s begin.
    at: usize,
    bursts: [usize; 3],
}

impl Channel {
    fn new(loss: Loss, seed: u64) -> Self {
        Self { loss, random: Random::new(seed), at: 0, bursts: [0; 3] }
    }

    fn next(&mut self, packets: usize) -> Vec<bool> {
        (0..packets).map(|_| self.loses()).collect()
    }

    fn loses(&mut self) -> bool {
        const SECONDS_10: usize = 500;
        let at = self.at % SECONDS_10;
        if at == 0 {
            // One in each third, so that they do not touch.
            for (third, burst) in self.bursts.iter_mut().enumerate() {
                *burst = third * 166 + self.random.below(166 - 6);
            }
        }
        self.at += 1;
        match self.loss {
            Loss::Random => self.random.unit() < 0.1,
            Loss::Bursts => self.bursts.iter().any(|burst| (*burst..burst + 3).contains(&at)),
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    packets: u64,
    lost: u64,
    repaired: u64,
    concealed: u64,
    signal: f64,
    difference: f64,
}

impl Tally {
    fn add(&mut self, lost: &[bool], heard: &Heard, undamaged: &[i16]) {
        self.packets += lost.len() as u64;
        self.repaired += heard.stats.repair.fec + heard.stats.repair.red;
        self.concealed += heard.stats.repair.concealed;
        let frames = undamaged.chunks(PACKET).zip(heard.pcm.chunks(PACKET));
        for ((wanted, got), _) in frames.zip(lost).filter(|(_, lost)| **lost) {
            self.lost += 1;
            for (&wanted, &got) in wanted.iter().zip(got) {
                self.signal += f64::from(wanted).powi(2);
                self.difference += (f64::from(wanted) - f64::from(got)).powi(2);
            }
        }
    }

    fn row(&self, condition: &'static str, seed: u64) -> Row {
        let minutes = self.packets as f64 / 3000.0;
        Row {
            condition,
            seed,
            lost: rounded(100.0 * self.lost as f64 / self.packets.max(1) as f64),
            repaired_ms: rounded(self.repaired as f64 / 48.0 / minutes),
            concealed_ms: rounded(self.concealed as f64 / 48.0 / minutes),
            snr_db: rounded(10.0 * (self.signal / self.difference.max(1.0)).log10()),
        }
    }
}
