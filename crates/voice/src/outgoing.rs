//! The reply on its way out, and the ledger of where it is.
//!
//! PCM of a backend waits here, where an interruption throws it away for free; frames of 20 ms are encoded only up to the
//! credit that the edge gives. Positions are 48 kHz item samples, rising, and `sent <= encoded`, `sent <= generated`:
//! `generated` counts what the backend gave, `encoded` what left here, `sent` what the edge says it put on the wire. The silence
//! that fills the last frame is in none of them but `encoded`.
//!
//! One utterance at a time is open at the edge; the next opens when the last frame of the former is out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::opus::{CreateError, Encoder, EncoderConfig, MAX_PACKET_BYTES};
use crate::types::{FlushReason, Output, ResponseId, Utterance};

/// A packet lasts 20 ms.
const FRAME_MEDIA: u64 = 960;
/// Frames encoded per turn of the caller's loop: 3 x 0.3 ms.
pub(crate) const FRAMES_PER_TURN: usize = 3;
/// Time until the next of them: a reply of a minute is encoded up to the credit 60 times faster than it plays.
const TURN: Duration = Duration::from_millis(1);
/// More than this ahead of the encoder, and a backend that can wait should: 10 s.
const AHEAD: u64 = 10 * 48_000;
/// Replies at once: one plays, one waits, and one more.
pub(crate) const MAX_ITEMS: usize = 3;
/// A cut that the edge does not confirm is taken as confirmed where it was last seen.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// An edge that plays reports each 100 ms.
const SILENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Before the first frame the client's path may still have to be proven.
const START_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not at the edge.
    Waiting,
    /// Its stream is open.
    Open,
    /// All of it is sent.
    Ended,
}

#[derive(Debug)]
struct Item {
    response: ResponseId,
    utterance: Utterance,
    stage: Stage,
    pcm: VecDeque<i16>,
    generated: u64,
    encoded: u64,
    sent: u64,
    limit: u64,
    complete: bool,
    started: bool,
    /// When the edge last said something of it, or it was opened.
    news: Instant,
}

/// What was cut, waiting for the edge to say where.
#[derive(Debug)]
struct Cut {
    response: ResponseId,
    utterance: Utterance,
    generated: u64,
    sent: u64,
    due: Instant,
}

/// Counts of what did not go as it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutgoingStats {
    /// Packets given to the edge.
    pub frames: u64,
    /// Samples, at the backend's rate, dropped because more than `max_turn_ms` of one reply waited.
    pub overflow: u64,
    /// Samples of silence, at the backend's rate, in last frames.
    pub padding: u64,
    /// Times the edge ran out of frames.
    pub underruns: u64,
    /// Frames the encoder refused.
    pub encode_errors: u64,
    /// Replies given up because the edge said nothing of them.
    pub stalled: u64,
}

/// The replies of one conversation.
#[derive(Debug)]
pub(crate) struct Outgoing {
    encoder: Encoder,
    items: VecDeque<Item>,
    cuts: VecDeque<Cut>,
    last_utterance: u32,
    /// Samples of one frame at the backend's rate, and 48 kHz samples of one of them.
    frame: usize,
    factor: u64,
    ahead: u64,
    /// A whole reply waits here when the backend gives it at once: 60 s at 16 kHz are 1.9 MB, for as long as it plays.
    max_pcm: usize,
    again: Option<Instant>,
    /// The caller's loop turn, as far as time tells it: its end and the frames encoded in it.
    turn_end: Option<Instant>,
    turn_frames: usize,
    paused: bool,
    scratch: Vec<i16>,
    packet: [u8; MAX_PACKET_BYTES],
    pub(crate) stats: OutgoingStats,
}

/// What a playout report means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Started(ResponseId),
    Finished(ResponseId),
    /// The cut of a reply is known.
    Cleared(ResponseId, u64),
}

impl Outgoing {
    pub(crate) fn new(config: &crate::config::Config) -> Result<Self, CreateError> {
        let encoder = Encoder::new(EncoderConfig {
            rate: config.backend_rate,
            bitrate: config.bitrate,
            complexity: config.complexity,
            ..EncoderConfig::default()
        })?;
        let frame = (config.backend_rate / 50) as usize;
        let max_ms = u64::from(config.max_turn_ms) + 1000;
        Ok(Self {
            encoder,
            items: VecDeque::new(),
            cuts: VecDeque::new(),
            last_utterance: 0,
            frame,
            factor: u64::from(48_000 / config.backend_rate),
            ahead: u64::from(config.ahead_ms) * 48,
            max_pcm: usize::try_from(max_ms * u64::from(config.backend_rate) / 1000).unwrap_or(usize::MAX),
            again: None,
            turn_end: None,
            turn_frames: 0,
            paused: false,
            scratch: Vec::with_capacity(frame),
            packet: [0; MAX_PACKET_BYTES],
            stats: OutgoingStats::default(),
        })
    }

    /// Frames encoded from here on have this bitrate. One that libopus refuses changes nothing.
    pub(crate) fn set_bitrate(&mut self, bitrate: i32) {
        let _ = self.encoder.set_bitrate(bitrate);
    }

    /// A reply is on its way that is not over.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Something of a reply is at the edge.
    pub(crate) fn is_audible(&self) -> bool {
        self.items.front().is_some_and(|item| item.stage != Stage::Waiting)
    }

    /// Another reply would wait behind too many.
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= MAX_ITEMS
    }

    /// A backend that can wait may give more.
    pub(crate) fn wants_audio(&self) -> bool {
        let waiting: usize = self.items.iter().map(|item| item.pcm.len()).sum();
        (waiting as u64) * self.factor < AHEAD
    }

    /// The reply that the edge plays or will play next.
    pub(crate) fn current(&self) -> Option<ResponseId> {
        self.items.front().map(|item| item.response)
    }

    /// The first audio of a response.
    pub(crate) fn begin(&mut self, now: Instant, response: ResponseId) -> Utterance {
        self.last_utterance += 1;
        let utterance = Utterance(self.last_utterance);
        self.items.push_back(Item {
            response,
            utterance,
            stage: Stage::Waiting,
            pcm: VecDeque::new(),
            generated: 0,
            encoded: 0,
            sent: 0,
            limit: self.ahead,
            complete: false,
            started: false,
            news: now,
        });
        utterance
    }

    /// More of it.
    pub(crate) fn push(&mut self, response: ResponseId, pcm: &[i16]) {
        let Some(item) = self.items.iter_mut().find(|item| item.response == response) else { return };
        let room = self.max_pcm.saturating_sub(item.pcm.len()).min(pcm.len());
        item.pcm.extend(&pcm[..room]);
        item.generated += room as u64 * self.factor;
        self.stats.overflow += (pcm.len() - room) as u64;
    }

    /// Nothing more of it.
    pub(crate) fn complete(&mut self, response: ResponseId) {
        if let Some(item) = self.items.iter_mut().find(|item| item.response == response) {
            item.complete = true;
        }
    }

    /// 48 kHz samples the backend gave of a reply that is not over.
    pub(crate) fn generated(&self, response: ResponseId) -> u64 {
        self.items.iter().find(|item| item.response == response).map_or(0, |item| item.generated)
    }

    /// The edge's clock of silence stands still while it is paused.
    pub(crate) fn set_paused(&mut self, now: Instant, paused: bool) {
        self.paused = paused;
        if let Some(item) = self.items.front_mut() {
            item.news = now;
        }
    }

    /// Encodes up to the credit, at most [`FRAMES_PER_TURN`] frames. `hold`: opens nothing. The response whose first frame
    /// left, if one did.
    pub(crate) fn pump(&mut self, now: Instant, hold: bool, out: &mut VecDeque<Output>) -> Option<ResponseId> {
        self.again = None;
        if self.turn_end.is_none_or(|end| end <= now) {
            self.turn_end = Some(now + TURN);
            self.turn_frames = 0;
        }
        let mut first = None;
        while self.turn_frames < FRAMES_PER_TURN {
            let Some(item) = self.items.front_mut() else { return first };
            if item.stage == Stage::Ended || (item.stage == Stage::Waiting && hold) {
                return first;
            }
            let ready = item.pcm.len() >= self.frame || (item.complete && !item.pcm.is_empty());
            if !ready {
                if item.complete && item.stage == Stage::Open {
                    item.stage = Stage::Ended;
                    item.news = now;
                    out.push_back(Output::UtteranceEnd { utterance: item.utterance });
                } else if item.complete {
                    // Never opened and empty: nothing was ever to be heard of it.
                    self.items.pop_front();
                    continue;
                }
                return first;
            }
            if item.encoded + FRAME_MEDIA > item.limit {
                return first;
            }
            if item.stage == Stage::Waiting {
                item.stage = Stage::Open;
                item.news = now;
                self.encoder.reset();
                out.push_back(Output::UtteranceStart { utterance: item.utterance, response: item.response });
                first = Some(item.response);
            }
            self.scratch.clear();
            let taken = item.pcm.len().min(self.frame);
            self.scratch.extend(item.pcm.drain(..taken));
            self.scratch.resize(self.frame, 0);
            self.stats.padding += (self.frame - taken) as u64;
            item.encoded += FRAME_MEDIA;
            self.turn_frames += 1;
            match self.encoder.encode(&self.scratch, &mut self.packet) {
                Ok(length) => {
                    self.stats.frames += 1;
                    let payload = self.packet[..length].to_vec();
                    out.push_back(Output::Frame { utterance: item.utterance, samples: 960, payload });
                }
                Err(_) => self.stats.encode_errors += 1,
            }
        }
        self.again = self.turn_end;
        first
    }

    /// Throws all replies away; what the edge has of them is flushed. `false`: it has nothing. Each of them is
    /// [`News::Cleared`] later: by [`Self::flushed`] or, at once where the edge has nothing of it, by [`Self::overdue_cut`].
    pub(crate) fn flush(&mut self, now: Instant, reason: FlushReason, out: &mut VecDeque<Output>) -> bool {
        self.again = None;
        self.paused = false;
        let mut up_to = None;
        for item in self.items.drain(..) {
            let Item { response, utterance, stage, generated, sent, .. } = item;
            // Of a reply that the edge never had there is nothing to wait for.
            let at_edge = stage != Stage::Waiting;
            up_to = at_edge.then_some((utterance, stage)).or(up_to);
            let due = if at_edge { now + FLUSH_TIMEOUT } else { now };
            self.cuts.push_back(Cut { response, utterance, generated, sent, due });
        }
        let Some((utterance, stage)) = up_to else { return false };
        out.push_back(Output::Flush { up_to: utterance, reason });
        if stage == Stage::Open {
            out.push_back(Output::UtteranceReset { utterance });
        }
        true
    }

    /// How far the edge is; news of an utterance that is no more is ignored.
    pub(crate) fn report(&mut self, now: Instant, utterance: Utterance, sent: u64, limit: Option<u64>) {
        if let Some(cut) = self.cuts.iter_mut().find(|cut| cut.utterance == utterance) {
            cut.sent = cut.sent.max(sent);
        }
        if let Some(item) = self.at_edge(utterance) {
            item.news = now;
            item.sent = item.sent.max(sent).min(item.encoded);
            item.limit = item.limit.max(limit.unwrap_or(0));
        }
    }

    /// The first frame is on the wire.
    pub(crate) fn started(&mut self, now: Instant, utterance: Utterance) -> Option<News> {
        let item = self.at_edge(utterance)?;
        item.news = now;
        (!std::mem::replace(&mut item.started, true)).then_some(News::Started(item.response))
    }

    /// The last frame is on the wire.
    pub(crate) fn finished(&mut self, utterance: Utterance) -> Option<News> {
        let item = self.at_edge(utterance)?;
        if item.stage != Stage::Ended {
            return None;
        }
        let response = item.response;
        self.items.pop_front();
        Some(News::Finished(response))
    }

    /// The edge says where it cut.
    pub(crate) fn flushed(&mut self, utterance: Utterance, sent: u64) -> Option<News> {
        let cut = self.cuts.front().filter(|cut| cut.utterance <= utterance)?;
        let sent = if cut.utterance == utterance { sent.max(cut.sent) } else { cut.sent };
        let news = News::Cleared(cut.response, sent.min(cut.generated));
        self.cuts.pop_front();
        Some(news)
    }

    /// The queue at the edge ran empty.
    pub(crate) fn underrun(&mut self, now: Instant, utterance: Utterance) {
        if let Some(item) = self.at_edge(utterance) {
            item.news = now;
            self.stats.underruns += 1;
        }
    }

    /// A cut that the edge has not confirmed in time.
    pub(crate) fn overdue_cut(&mut self, now: Instant) -> Option<News> {
        let cut = self.cuts.front().filter(|cut| cut.due <= now)?;
        let news = News::Cleared(cut.response, cut.sent.min(cut.generated));
        self.cuts.pop_front();
        Some(news)
    }

    /// The edge has been silent about a reply for too long.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.silence_due().is_some_and(|due| due <= now)
    }

    /// When more is to be done here.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let cut = self.cuts.front().map(|cut| cut.due);
        [self.again, cut, self.silence_due()].into_iter().flatten().min()
    }

    fn silence_due(&self) -> Option<Instant> {
        let item = self.items.front().filter(|item| item.stage != Stage::Waiting && !self.paused)?;
        Some(item.news + if item.started { SILENT_TIMEOUT } else { START_TIMEOUT })
    }

    fn at_edge(&mut self, utterance: Utterance) -> Option<&mut Item> {
        self.items.front_mut().filter(|item| item.utterance == utterance && item.stage != Stage::Waiting)
    }
}
