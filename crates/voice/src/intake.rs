//! The sound of one reply as the backend gave it, on its way to the encoder.
//!
//! Whatever a backend sends becomes frames of 20 ms at a rate that Opus codes, or packets that pass as they are. Odd input is ordinary
//! input: pieces that end inside a sample (the byte waits for the next piece of the same reply, and is dropped at its end), empty
//! ones, any rate from 8 to 96 kHz, the whole reply once more at its end. What a reply began with, samples or packets, it stays.
//!
//! Pieces are kept as they came and freed as they are coded: a reply holds what waits of it, and no more.

use std::collections::VecDeque;

use crate::backend::AgentAudio;
use crate::opus::packet_samples;
use crate::rate::{self, Resampler};

/// Pieces shorter than this are put together: a backend that gives one sample at a time costs no allocation for each.
const SMALL: usize = 480;

/// The largest packet passed on, as RFC 6716 §3.2.1 bounds a frame.
const MAX_PACKET: usize = 1275;

/// The longest one: a frame of 60 ms and more would make a pause at a frame border too coarse.
const MAX_PACKET_SAMPLES: u32 = 2880;

/// What waits of one reply.
#[derive(Debug)]
pub(crate) struct Intake {
    sound: Sound,
    /// 48 kHz samples that wait.
    waiting: u64,
    /// Of all pieces of samples so far: how many, their samples, and their hash, to know a repeated clip by.
    pieces: u64,
    given: u64,
    hash: u64,
}

#[derive(Debug)]
enum Sound {
    /// Nothing came yet.
    Unknown,
    Samples(Samples),
    Packets(VecDeque<(Vec<u8>, u32)>),
}

#[derive(Debug)]
struct Samples {
    /// As coded: 16000, 24000 or 48000.
    rate: u32,
    /// As the backend says.
    declared: u32,
    pieces: VecDeque<Vec<i16>>,
    /// Of the first piece, what is gone.
    at: usize,
    resampler: Option<Box<Resampler>>,
    /// The first byte of a sample.
    odd: Option<u8>,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// 48 kHz samples of the item.
    pub(crate) samples: u64,
    /// 48 kHz samples that had no room.
    pub(crate) overflow: u64,
    /// Nothing of it was taken: packets among samples, samples among packets, a rate that is none, no packet.
    pub(crate) refused: bool,
    /// It was all of the reply once more.
    pub(crate) repeated: bool,
}

/// A frame to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be coded: it is in the buffer given, with so many samples of silence at its end.
    Frame { padding: usize },
    /// To be sent as it is; 48 kHz samples it lasts.
    Packet { payload: Vec<u8>, samples: u32 },
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self { sound: Sound::Unknown, waiting: 0, pieces: 0, given: 0, hash: FNV }
    }

    /// 48 kHz samples that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The rate its frames are to be coded at. `None`: nothing is to be coded.
    pub(crate) fn rate(&self) -> Option<u32> {
        match &self.sound {
            Sound::Samples(samples) => Some(samples.rate),
            Sound::Unknown | Sound::Packets(_) => None,
        }
    }

    /// The rate the backend says it has. `None`: none.
    pub(crate) fn declared(&self) -> Option<u32> {
        match &self.sound {
            Sound::Samples(samples) => Some(samples.declared),
            Sound::Unknown | Sound::Packets(_) => None,
        }
    }

    /// More of the reply, as far as no more than `room` 48 kHz samples wait then. `native`: the rate of samples that do not
    /// say theirs. `tell` gets each stretch of samples, and each packet's size and duration, as they are kept.
    pub(crate) fn push(&mut self, audio: AgentAudio, native: u32, room: u64, tell: &mut dyn FnMut(Piece<'_>)) -> Taken {
        let refused = Taken { refused: true, ..Taken::default() };
        match audio {
            AgentAudio::Pcm(pcm) if self.samples(native).is_some() => self.push_samples(pcm, room, tell),
            AgentAudio::Bytes { rate, data } if rate::RATES.contains(&rate) => match self.samples(rate) {
                Some(samples) => {
                    let pcm = samples.decode(&data);
                    self.push_samples(pcm, room, tell)
                }
                None => refused,
            },
            AgentAudio::Pcm(_) | AgentAudio::Bytes { .. } => refused,
            AgentAudio::Opus(packets) => self.push_packets(packets, room, tell),
        }
    }

    /// Nothing more comes: what the resampler holds is given, an odd byte is dropped. 48 kHz samples that came to it.
    pub(crate) fn complete(&mut self, tell: &mut dyn FnMut(Piece<'_>)) -> u64 {
        let Sound::Samples(samples) = &mut self.sound else { return 0 };
        samples.odd = None;
        let Some(mut resampler) = samples.resampler.take() else { return 0 };
        let mut rest = Vec::new();
        resampler.finish(&mut rest);
        tell(Piece::Samples(&rest, samples.frame()));
        let length = rest.len() as u64 * samples.factor();
        samples.keep(rest);
        self.waiting += length;
        length
    }

    /// 48 kHz samples of the frame that [`Intake::next`] gives. `None`: none is whole, or nothing waits.
    pub(crate) fn ready(&self, complete: bool) -> Option<u64> {
        match &self.sound {
            Sound::Samples(_) if self.waiting >= 960 || (complete && self.waiting > 0) => Some(960),
            Sound::Packets(packets) => packets.front().map(|(_, samples)| u64::from(*samples)),
            _ => None,
        }
    }

    /// The next frame; what is to be coded is put into `frame`.
    pub(crate) fn next(&mut self, frame: &mut Vec<i16>) -> Option<Next> {
        match &mut self.sound {
            Sound::Unknown => None,
            Sound::Samples(samples) => {
                let padding = samples.fill(frame)?;
                self.waiting -= (frame.len() - padding) as u64 * samples.factor();
                Some(Next::Frame { padding })
            }
            Sound::Packets(packets) => {
                let (payload, samples) = packets.pop_front()?;
                self.waiting -= u64::from(samples);
                Some(Next::Packet { payload, samples })
            }
        }
    }

    /// `None`: the reply is one of packets, or changes its rate.
    fn samples(&mut self, declared: u32) -> Option<&mut Samples> {
        if matches!(self.sound, Sound::Unknown) {
            self.sound = Sound::Samples(Samples::new(declared));
        }
        match &mut self.sound {
            Sound::Samples(samples) if samples.declared == declared => Some(samples),
            _ => None,
        }
    }

    fn push_samples(&mut self, mut pcm: Vec<i16>, room: u64, tell: &mut dyn FnMut(Piece<'_>)) -> Taken {
        let Sound::Samples(samples) = &mut self.sound else { return Taken::default() };
        if pcm.is_empty() {
            return Taken::default();
        }
        let length = pcm.len() as u64;
        if self.pieces > 1 && length == self.given && hash(FNV, &pcm) == self.hash {
            return Taken { repeated: true, ..Taken::default() };
        }
        self.pieces += 1;
        self.given += length;
        self.hash = hash(self.hash, &pcm);
        if let Some(resampler) = &mut samples.resampler {
            let mut coded = Vec::new();
            resampler.process(&pcm, &mut coded);
            pcm = coded;
        }
        let factor = samples.factor();
        let room = usize::try_from(room.saturating_sub(self.waiting) / factor).unwrap_or(usize::MAX);
        let overflow = pcm.len().saturating_sub(room) as u64 * factor;
        pcm.truncate(room);
        tell(Piece::Samples(&pcm, samples.frame()));
        let taken = pcm.len() as u64 * factor;
        samples.keep(pcm);
        self.waiting += taken;
        Taken { samples: taken, overflow, ..Taken::default() }
    }

    fn push_packets(&mut self, packets: Vec<Vec<u8>>, room: u64, tell: &mut dyn FnMut(Piece<'_>)) -> Taken {
        if matches!(self.sound, Sound::Unknown) {
            self.sound = Sound::Packets(VecDeque::new());
        }
        let Sound::Packets(queue) = &mut self.sound else { return Taken { refused: true, ..Taken::default() } };
        let mut taken = Taken::default();
        for payload in packets {
            let samples = packet_samples(&payload).filter(|samples| (1..=MAX_PACKET_SAMPLES).contains(samples));
            let Some(samples) = samples.filter(|_| payload.len() <= MAX_PACKET) else {
                taken.refused = true;
                continue;
            };
            if self.waiting + u64::from(samples) > room {
                taken.overflow += u64::from(samples);
                continue;
            }
            tell(Piece::Packet { bytes: payload.len(), samples });
            self.waiting += u64::from(samples);
            taken.samples += u64::from(samples);
            queue.push_back((payload, samples));
        }
        taken
    }
}

/// What is kept of a piece.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// Samples, and how many of them are 20 ms.
    Samples(&'a [i16], usize),
    Packet {
        bytes: usize,
        samples: u32,
    },
}

impl Samples {
    fn new(declared: u32) -> Self {
        let rate = rate::coded(declared);
        let resampler = (rate != declared).then(|| Box::new(Resampler::new(declared, rate)));
        Self { rate, declared, pieces: VecDeque::new(), at: 0, resampler, odd: None }
    }

    /// 48 kHz samples of one.
    fn factor(&self) -> u64 {
        u64::from(48_000 / self.rate)
    }

    /// Samples of 20 ms.
    fn frame(&self) -> usize {
        (self.rate / 50) as usize
    }

    fn decode(&mut self, data: &[u8]) -> Vec<i16> {
        let mut pcm = Vec::with_capacity(data.len() / 2 + 1);
        let mut rest = data;
        if let (Some(low), [high, ..]) = (self.odd, data) {
            pcm.push(i16::from_le_bytes([low, *high]));
            rest = &data[1..];
            self.odd = None;
        }
        let (pairs, odd) = rest.as_chunks();
        pcm.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        self.odd = odd.first().copied().or(self.odd);
        pcm
    }

    fn keep(&mut self, pcm: Vec<i16>) {
        match self.pieces.back_mut() {
            Some(last) if pcm.len() < SMALL && last.len() < SMALL => last.extend(pcm),
            _ if pcm.is_empty() => {}
            _ => self.pieces.push_back(pcm),
        }
    }

    /// Fills a frame; samples of silence at its end. `None`: nothing waits.
    fn fill(&mut self, frame: &mut Vec<i16>) -> Option<usize> {
        let wanted = self.frame();
        frame.clear();
        while frame.len() < wanted {
            let Some(piece) = self.pieces.front() else { break };
            let end = piece.len().min(self.at + wanted - frame.len());
            frame.extend_from_slice(&piece[self.at..end]);
            self.at = end;
            if end == piece.len() {
                self.pieces.pop_front();
                self.at = 0;
            }
        }
        let padding = wanted - frame.len();
        if padding == wanted {
            return None;
        }
        frame.resize(wanted, 0);
        Some(padding)
    }
}

/// FNV-1a's begin.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, a sample at a time: a clip is only compared with what has its length.
fn hash(hash: u64, pcm: &[i16]) -> u64 {
    pcm.iter().fold(hash, |hash, sample| (hash ^ u64::from(sample.cast_unsigned())).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
