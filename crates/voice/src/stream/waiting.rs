//! What the client sent and nobody has heard yet: audio, and what was asked behind it, in order.
//!
//! Clients append at any pace, up to a file at once; it is heard some milliseconds at a time, so that one client's file does not
//! make others wait. A commit or a response that was asked for behind appended audio means that audio, so it waits here with it.

use std::collections::VecDeque;
use std::time::Instant;

use super::SampleFormat;
use crate::backend::Request;
use crate::config::TurnConfig;
use crate::g711;

/// Audio that waits, in bytes. The API takes 3 MiB at once (4 MiB of base64) and 1.5 MiB a second behind them; heard is 40 times the speed
/// of speech, so 1.9 MiB a second of PCM16, of which therefore nothing is dropped, and 0.3 MiB of G.711, of which a client would have to
/// send at 40 times the speed of speech for 3 s. What is beyond is dropped and counted, and the clock goes on.
const MAX_BYTES: usize = 4 << 20;

/// Pieces smaller than this are put together: a client that appends sample by sample costs no allocation for each.
const SMALL: usize = 16 << 10;

/// Things that wait: 256 pieces of audio are all there can be, and as many requests between them.
const MAX_ENTRIES: usize = 512;

/// Audio heard at once: a frame of the detector, 16 ms.
const STEP_MS: u32 = 16;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: VecDeque<Entry>,
    /// Of all audio that waits.
    bytes: usize,
    /// 48 kHz samples that had no room.
    pub(super) overflow: u64,
}

#[derive(Debug)]
enum Entry {
    Audio {
        format: SampleFormat,
        data: Vec<u8>,
        /// Of it, what was heard.
        at: usize,
        arrived: Instant,
    },
    /// 48 kHz samples that are not to be heard.
    Skip(u64),
    Commit,
    Clear,
    Turn(TurnConfig),
    Respond(Request),
}

/// The next thing.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// A little audio, in the buffer given.
    Audio {
        format: SampleFormat,
        arrived: Instant,
    },
    /// 48 kHz samples that are not to be heard.
    Skip(u64),
    Commit,
    Clear,
    Turn(TurnConfig),
    Respond(Request),
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// No room for another request.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }

    /// Nothing was appended behind the last commit or clear that waits.
    pub(super) fn ends_empty(&self) -> bool {
        matches!(self.entries.back(), Some(Entry::Commit | Entry::Clear))
    }

    /// A response is asked for.
    pub(super) fn asks(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Respond(_)))
    }

    /// More audio.
    pub(super) fn append(&mut self, now: Instant, format: SampleFormat, data: &[u8]) {
        if self.bytes + data.len() > MAX_BYTES || self.is_full() {
            let samples = format.media(data.len());
            self.overflow += samples;
            return self.skip(samples);
        }
        self.bytes += data.len();
        match self.entries.back_mut() {
            Some(Entry::Audio { format: last, data: kept, .. }) if *last == format && kept.len() < SMALL => {
                kept.extend_from_slice(data);
            }
            _ => self.entries.push_back(Entry::Audio { format, data: data.to_vec(), at: 0, arrived: now }),
        }
    }

    pub(super) fn commit(&mut self) {
        self.entries.push_back(Entry::Commit);
    }

    pub(super) fn respond(&mut self, request: Request) {
        self.entries.push_back(Entry::Respond(request));
    }

    /// Other rules for what comes behind it. Where there is no room, for all that waits.
    pub(super) fn turn(&mut self, turn: TurnConfig) {
        let last = self.entries.iter().rposition(|entry| matches!(entry, Entry::Turn(_))).filter(|_| self.is_full());
        match last.and_then(|last| self.entries.get_mut(last)) {
            Some(last) => *last = Entry::Turn(turn),
            None => self.entries.push_back(Entry::Turn(turn)),
        }
    }

    /// What was appended since the last commit is forgotten; its time passed all the same.
    pub(super) fn clear(&mut self) {
        let open = self.entries.iter_mut().rev().take_while(|entry| !matches!(entry, Entry::Commit | Entry::Clear));
        for entry in open {
            if let Entry::Audio { format, data, at, .. } = entry {
                let rest = data.len() - *at;
                self.bytes -= rest;
                *entry = Entry::Skip(format.media(rest));
            }
        }
        if !self.ends_empty() {
            self.entries.push_back(Entry::Clear);
        }
    }

    /// Takes the next thing; audio is put into `pcm`, at its format's rate.
    pub(super) fn next(&mut self, pcm: &mut Vec<i16>) -> Option<Step> {
        if let Some(Entry::Audio { format, data, at, arrived }) = self.entries.front_mut() {
            let (format, arrived) = (*format, *arrived);
            let begin = *at;
            let end = data.len().min(begin + format.bytes(STEP_MS));
            pcm.clear();
            format.decode(&data[begin..end], pcm);
            *at = end;
            self.bytes -= end - begin;
            if end == data.len() {
                self.entries.pop_front();
            }
            return Some(Step::Audio { format, arrived });
        }
        Some(match self.entries.pop_front()? {
            Entry::Skip(samples) => Step::Skip(samples),
            Entry::Commit => Step::Commit,
            Entry::Turn(turn) => Step::Turn(turn),
            Entry::Respond(request) => Step::Respond(request),
            Entry::Clear | Entry::Audio { .. } => Step::Clear,
        })
    }

    fn skip(&mut self, samples: u64) {
        match self.entries.back_mut() {
            Some(Entry::Skip(last)) => *last += samples,
            _ => self.entries.push_back(Entry::Skip(samples)),
        }
    }
}

impl SampleFormat {
    /// Samples per second.
    #[must_use]
    pub fn rate(self) -> u32 {
        match self {
            Self::Pcm16 => 24_000,
            Self::G711(_) => g711::RATE,
        }
    }

    fn bytes_per_sample(self) -> usize {
        match self {
            Self::Pcm16 => 2,
            Self::G711(_) => 1,
        }
    }

    /// Bytes of so many milliseconds.
    pub(super) fn bytes(self, ms: u32) -> usize {
        (self.rate() / 1000 * ms) as usize * self.bytes_per_sample()
    }

    /// 48 kHz samples of so many bytes.
    pub(super) fn media(self, bytes: usize) -> u64 {
        (bytes / self.bytes_per_sample()) as u64 * u64::from(48_000 / self.rate())
    }

    fn decode(self, data: &[u8], pcm: &mut Vec<i16>) {
        match self {
            Self::Pcm16 => pcm.extend(data.as_chunks().0.iter().map(|pair| i16::from_le_bytes(*pair))),
            Self::G711(law) => g711::decode(law, data, pcm),
        }
    }

    /// The bytes of samples at the format's rate.
    pub(super) fn encode(self, pcm: &[i16]) -> Vec<u8> {
        match self {
            Self::Pcm16 => pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
            Self::G711(law) => pcm.iter().map(|&sample| g711::encode(law, sample)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::g711::Law;

    /// What comes out, audio by its 48 kHz samples.
    fn drain(waiting: &mut Waiting) -> Vec<String> {
        let (mut pcm, mut seen) = (Vec::new(), Vec::<String>::new());
        let mut audio = 0;
        while let Some(step) = waiting.next(&mut pcm) {
            if let Step::Audio { format, .. } = step {
                audio += pcm.len() * (48_000 / format.rate() as usize);
                assert!(pcm.len() <= 384);
                continue;
            }
            if audio > 0 {
                seen.push(std::mem::take(&mut audio).to_string());
            }
            seen.push(match step {
                Step::Skip(samples) => format!("skip {samples}"),
                step => format!("{step:?}").split('(').next().unwrap().to_owned(),
            });
        }
        if audio > 0 {
            seen.push(audio.to_string());
        }
        seen
    }

    #[test]
    fn what_was_asked_behind_audio_comes_behind_it() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        waiting.append(now, SampleFormat::Pcm16, &[0; 48_000]);
        waiting.append(now, SampleFormat::G711(Law::A), &[0; 800]);
        waiting.commit();
        assert!(waiting.ends_empty() && !waiting.asks());
        waiting.respond(Request::default());
        waiting.append(now, SampleFormat::Pcm16, &[0; 2]);
        assert!(waiting.asks());
        assert_eq!(drain(&mut waiting), ["52800", "Commit", "Respond", "2"]);
        assert_eq!((waiting.bytes, waiting.is_empty()), (0, true));
    }

    #[test]
    fn a_clear_takes_what_was_not_committed_and_not_its_time() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        waiting.append(now, SampleFormat::Pcm16, &[0; 96]);
        waiting.commit();
        waiting.append(now, SampleFormat::Pcm16, &[0; 960]);
        waiting.turn(TurnConfig::default());
        waiting.append(now, SampleFormat::Pcm16, &[0; 480]);
        waiting.clear();
        assert_eq!(drain(&mut waiting), ["96", "Commit", "skip 960", "Turn", "skip 480", "Clear"]);
        assert_eq!(waiting.bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_and_the_clock_goes_on() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        let second = [0; 48_000];
        for _ in 0..200 {
            waiting.append(now, SampleFormat::Pcm16, &second);
        }
        let fits = MAX_BYTES / second.len();
        assert!(waiting.bytes <= MAX_BYTES);
        let dropped = (200 - fits) * 48_000;
        assert_eq!(waiting.overflow, dropped as u64);
        assert_eq!(drain(&mut waiting), [(fits * 48_000).to_string(), format!("skip {dropped}")]);
    }

    #[test]
    fn requests_between_single_samples_are_bounded_too() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        for _ in 0..10_000 {
            waiting.append(now, SampleFormat::Pcm16, &[0, 0]);
            if !waiting.is_full() {
                waiting.commit();
            }
            waiting.turn(TurnConfig::default());
        }
        assert!(waiting.entries.len() <= MAX_ENTRIES + 2, "{}", waiting.entries.len());
    }
}
