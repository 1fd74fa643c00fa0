//! Whether what the microphone hears is our own reply: loudspeaker, room, and back.
//!
//! What is sent is kept at 2 kHz and played along here as the edge reports it. A frame that may be the onset of an interruption is
//! compared with what played in the 500 ms before: where the last 160 ms correlate at some delay it is perhaps ours, and neither
//! holds the reply nor cuts it. Two voices of one pitch do that for 100 ms by chance; [`AGREE`] searches that agree on the delay are
//! no chance, and **echo is suspected** from there on: the delay and the level are known, and
//! a frame is ours as well when the echo's level explains its level. Speech over the echo is louder, or does not
//! correlate, and is heard.
//!
//! Cost: a search is 320,000 multiplications, 0.1 ms with optimization, at most once per two frames and only while a reply
//! plays and the detector hears speech that is not explained yet; otherwise one multiplication per sample at 2 kHz.
//! Memory: 22 kB per conversation. A reply that a backend gives as Opus is not known here, and nothing is vetoed over it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::vad::FRAME;

/// Samples per millisecond of everything here.
const PER_MS: usize = 2;
/// One frame of the detector.
const STEP: usize = 16 * PER_MS;
/// What is compared.
const WINDOW: usize = 160 * PER_MS;
/// Longest way of a sound from here to here.
const MAX_LAG: usize = 500 * PER_MS;
const PLAYED: usize = WINDOW + MAX_LAG;
/// What is sent and not played: 1 s is the edge's room, and as much again for reports that come late.
const AHEAD: usize = 2000 * PER_MS;
/// 48 kHz samples of one sample here.
const MEDIA: u64 = 24;
/// Correlation that makes a frame ours: by chance, two voices reach 0.6 at some delay of 500 ms.
const OURS: f32 = 0.68;
/// And at a delay that was found before.
const OURS_THERE: f32 = 0.5;
/// Searches that agree, in 32 ms each.
const AGREE: u32 = 7;
/// Delays closer than this are one: 2 ms.
const SAME: usize = 2 * PER_MS;
/// A known echo explains levels up to 6 dB above its own.
const LOUDER: f32 = 4.0;
/// The room rings this long.
const TAIL: usize = 100 * PER_MS;
/// Clocks that differ more than this are set anew: 60 ms.
const JUMP: u64 = 60 * PER_MS as u64;
/// Loud frames of the reply of which nothing comes back, and the echo is gone: 3 s of them.
const GONE: u32 = 190;
/// Power of a window of the reply that must come back if there is an echo: about -40 dBFS.
const LOUD: f32 = (300.0 * 300.0) * STEP as f32;

/// Whether a frame is our own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Own {
    /// It is not, or nothing of ours plays.
    #[default]
    No,
    Perhaps,
    Ours,
}

/// What is suspected changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspicion {
    Begins,
    Ends,
}

/// An echo that is known.
#[derive(Debug, Clone, Copy)]
struct Path {
    lag: usize,
    /// Power that comes back, of the power sent.
    gain: f32,
}

/// From any rate that is a multiple of 4 kHz to 2 kHz, without the lowest sounds, in which all voices are alike.
#[derive(Debug, Default)]
struct Down {
    sum: f32,
    count: usize,
    quarter: [f32; 2],
    odd: bool,
    before: f32,
}

impl Down {
    /// `every`: samples per sample at 4 kHz.
    fn push(&mut self, pcm: &[i16], every: usize, mut out: impl FnMut(f32)) {
        for &sample in pcm {
            self.sum += f32::from(sample);
            self.count += 1;
            if self.count < every {
                continue;
            }
            let mean = self.sum / every as f32;
            (self.sum, self.count) = (0.0, 0);
            self.odd = !self.odd;
            if !self.odd {
                let low = 0.25 * self.quarter[0] + 0.5 * self.quarter[1] + 0.25 * mean;
                out(low - 0.9 * self.before);
                self.before = low;
            }
            self.quarter = [self.quarter[1], mean];
        }
    }
}

/// Compares what is heard with what is played.
#[derive(Debug)]
pub(crate) struct Echo {
    utterance: u32,
    /// Sent and not played; the first lies at item position `base`.
    ahead: VecDeque<f32>,
    base: u64,
    far: Down,
    /// Where the edge was, and when.
    clock: Option<(u64, Instant)>,
    paused: bool,
    /// The last 660 ms that played and the last 160 ms heard, newest last.
    played: [f32; PLAYED],
    near: [f32; WINDOW],
    near_down: Down,
    candidate: Option<(usize, u32)>,
    path: Option<Path>,
    /// Frames until the next search.
    rest: u32,
    /// Loud frames of which nothing came back.
    missing: u32,
    news: Option<Suspicion>,
}

impl Echo {
    pub(crate) fn new() -> Self {
        Self {
            utterance: 0,
            ahead: VecDeque::new(),
            base: 0,
            far: Down::default(),
            clock: None,
            paused: false,
            played: [0.0; PLAYED],
            near: [0.0; WINDOW],
            near_down: Down::default(),
            candidate: None,
            path: None,
            rest: 0,
            missing: 0,
            news: None,
        }
    }

    /// The next samples of an utterance on their way to the edge, `rate` of them a second.
    pub(crate) fn send(&mut self, utterance: u32, pcm: &[i16], rate: u32) {
        if utterance != self.utterance {
            self.utterance = utterance;
            self.ahead.clear();
            self.base = 0;
            self.clock = None;
        }
        let (ahead, base) = (&mut self.ahead, &mut self.base);
        self.far.push(pcm, (rate / 4000).max(1) as usize, |sample| {
            if ahead.len() == AHEAD {
                ahead.pop_front();
                *base += 1;
            }
            ahead.push_back(sample);
        });
    }

    /// The edge has put this much of it on the wire, in 48 kHz item samples.
    pub(crate) fn report(&mut self, now: Instant, utterance: u32, sent: u64) {
        if utterance == self.utterance {
            self.clock = Some((sent / MEDIA, now));
        }
    }

    pub(crate) fn set_paused(&mut self, now: Instant, paused: bool) {
        if let Some((position, at)) = &mut self.clock
            && !self.paused
        {
            *position += samples(now.saturating_duration_since(*at));
            *at = now;
        }
        if let Some((_, at)) = &mut self.clock {
            *at = now;
        }
        self.paused = paused;
    }

    /// Nothing of it plays any more.
    pub(crate) fn stop(&mut self) {
        self.ahead.clear();
        self.paused = false;
        self.clock = None;
    }

    /// One frame of the user's; `voiced`: it may begin an interruption. Whether it is our own.
    pub(crate) fn frame(&mut self, now: Instant, pcm: &[i16; FRAME], voiced: bool) -> Own {
        self.play(now);
        self.near.copy_within(STEP.., 0);
        let mut at = WINDOW - STEP;
        let near = &mut self.near;
        self.near_down.push(pcm, 4, |sample| {
            if let Some(place) = near.get_mut(at) {
                *place = sample;
            }
            at += 1;
        });
        self.rest = self.rest.saturating_sub(1);
        self.watch();
        if voiced && self.played.iter().any(|sample| *sample != 0.0) { self.whose() } else { Own::No }
    }

    /// Echo is suspected.
    pub(crate) fn is_suspected(&self) -> bool {
        self.path.is_some()
    }

    /// Whether that has changed.
    pub(crate) fn poll(&mut self) -> Option<Suspicion> {
        self.news.take()
    }

    /// Plays 16 ms along.
    fn play(&mut self, now: Instant) {
        self.played.copy_within(STEP.., 0);
        let fresh = &mut self.played[PLAYED - STEP..];
        fresh.fill(0.0);
        let Some((position, at)) = self.clock else { return };
        if self.paused {
            return;
        }
        let there = position + samples(now.saturating_duration_since(at));
        if there > self.base + JUMP {
            // Late: what lies before was not played here.
            let skipped = usize::try_from(there - self.base).unwrap_or(usize::MAX).min(self.ahead.len());
            self.ahead.drain(..skipped);
            self.base += skipped as u64;
        } else if there + JUMP < self.base {
            return;
        }
        for sample in fresh {
            *sample = self.ahead.pop_front().unwrap_or(0.0);
            self.base += 1;
        }
    }

    fn whose(&mut self) -> Own {
        if let Some(path) = self.path {
            let (correlation, lag) = self.search_around(path.lag);
            let (level, most) = (self.level(), LOUDER * self.expected(path));
            if correlation >= OURS && level <= LOUDER * most {
                // Speech that begins over the echo must not count as a louder echo.
                let gain = self.gain_at(lag).min(2.0 * path.gain);
                self.path = Some(Path { lag, gain: 0.9 * path.gain + 0.1 * gain });
                self.missing = 0;
                return Own::Ours;
            }
            if level <= most {
                return Own::Ours;
            }
        }
        let perhaps = |candidate: Option<(usize, u32)>| if candidate.is_some() { Own::Perhaps } else { Own::No };
        if self.rest > 0 {
            // Between two searches the last one holds.
            return perhaps(self.candidate);
        }
        self.rest = 2;
        let (correlation, lag) = self.search(0, MAX_LAG);
        self.candidate = match self.candidate {
            Some((before, agree)) if correlation >= OURS && before.abs_diff(lag) <= SAME => Some((lag, agree + 1)),
            // A moment in which another delay looks better, or none.
            Some((before, agree)) if self.search_around(before).0 >= OURS_THERE => Some((before, agree)),
            _ => (correlation >= OURS).then_some((lag, 1)),
        };
        let Some((lag, _)) = self.candidate.filter(|(_, agree)| *agree >= AGREE) else {
            return perhaps(self.candidate);
        };
        if self.path.is_none() {
            self.news = Some(Suspicion::Begins);
        }
        self.path = Some(Path { lag, gain: self.gain_at(lag) });
        self.candidate = None;
        self.missing = 0;
        Own::Ours
    }

    /// Power that comes back of what played then.
    fn gain_at(&self, lag: usize) -> f32 {
        power(&self.near) / power(self.played_at(lag, WINDOW)).max(1.0)
    }

    fn search_around(&self, lag: usize) -> (f32, usize) {
        self.search(lag.saturating_sub(SAME), (lag + SAME).min(MAX_LAG))
    }

    /// Whether what should come back still does.
    fn watch(&mut self) {
        let Some(path) = self.path else { return };
        if power(self.played_at(path.lag, STEP)) < LOUD {
            return;
        }
        self.missing = if self.level() * 10.0 < self.expected(path) { self.missing + 1 } else { 0 };
        if self.missing >= GONE {
            self.path = None;
            self.candidate = None;
            self.missing = 0;
            self.news = Some(Suspicion::Ends);
        }
    }

    /// Power of the last 32 ms heard.
    fn level(&self) -> f32 {
        power(&self.near[WINDOW - 2 * STEP..])
    }

    /// Most power that an echo has now.
    fn expected(&self, path: Path) -> f32 {
        let at = |back: usize| power(self.played_at((path.lag + back).min(MAX_LAG), 2 * STEP));
        path.gain * (0..=TAIL).step_by(STEP).map(at).fold(0.0, f32::max)
    }

    /// What played `lag` samples ago and before.
    fn played_at(&self, lag: usize, length: usize) -> &[f32] {
        let end = PLAYED - lag.min(MAX_LAG);
        &self.played[end - length..end]
    }

    /// Best correlation of what is heard with what played, and its delay.
    fn search(&self, from: usize, to: usize) -> (f32, usize) {
        let near = power(&self.near);
        let mut far = power(self.played_at(from, WINDOW));
        let mut best = (0.0, from);
        for lag in from..=to {
            let window = self.played_at(lag, WINDOW);
            let correlation = dot(&self.near, window).abs() / (near * far.max(0.0)).sqrt().max(1.0);
            if correlation > best.0 {
                best = (correlation, lag);
            }
            // One sample earlier.
            if lag < MAX_LAG {
                let (gone, come) = (window[WINDOW - 1], self.played[PLAYED - WINDOW - lag - 1]);
                far += come * come - gone * gone;
            }
        }
        best
    }
}

/// Samples here in a time.
fn samples(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / (1000 / PER_MS as u64)
}

fn power(pcm: &[f32]) -> f32 {
    dot(pcm, pcm)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight sums, which the compiler adds at once.
    let mut sums = [0.0_f32; 8];
    let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}
