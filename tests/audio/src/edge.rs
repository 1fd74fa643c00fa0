//! The edge as a conversation sees it: behind a link with delay, a pacer that puts one frame on the wire each 20 ms.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use voice::{Conversation, Output, Playout, Utterance};

const FRAME: Duration = Duration::from_millis(20);
const REPORT: Duration = Duration::from_millis(100);
/// A frame in 48 kHz samples.
const SAMPLES: u64 = 960;
/// What the edge has room for: 1 s.
const CREDIT: u64 = 48_000;

/// Something that happened to playout, as a client would hear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Frame of this number of this utterance left.
    Frame(u32, u64),
    /// A pause began.
    Paused,
    /// It ended.
    Resumed,
    /// What was queued is gone.
    Flushed,
}

/// A playing edge.
#[derive(Debug)]
pub(crate) struct Edge {
    one_way: Duration,
    inbound: VecDeque<(Instant, Output)>,
    outbound: VecDeque<(Instant, Playout)>,
    utterance: Option<Playing>,
    paused: bool,
    slot: Instant,
    report: Instant,
    /// All of it, with its time.
    pub(crate) heard: Vec<(Instant, Heard)>,
}

#[derive(Debug)]
struct Playing {
    id: Utterance,
    received: u64,
    /// Next to play; behind `sent` after a step back.
    at: u64,
    sent: u64,
    ended: bool,
}

impl Edge {
    /// Idle; `one_way` is the link's delay.
    pub(crate) fn new(now: Instant, one_way: Duration) -> Self {
        Self {
            one_way,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            utterance: None,
            paused: false,
            slot: now,
            report: now,
            heard: Vec::new(),
        }
    }

    /// Takes what the conversation says of playout.
    pub(crate) fn send(&mut self, now: Instant, output: Output) {
        self.inbound.push_back((now + self.one_way, output));
    }

    /// When something is due here.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let link = [self.inbound.front().map(|(due, _)| *due), self.outbound.front().map(|(due, _)| *due)];
        link.into_iter().flatten().fold(self.slot.min(self.report), Instant::min)
    }

    /// Does what is due and tells the conversation what arrives there.
    pub(crate) fn handle_timeout(&mut self, now: Instant, conversation: &mut Conversation) {
        while let Some((_, output)) = self.inbound.pop_front_if(|(due, _)| *due <= now) {
            self.take(now, output);
        }
        while self.slot <= now {
            self.slot += FRAME;
            self.play(now);
        }
        while self.report <= now {
            self.report += REPORT;
            if let Some(Playing { id, sent, .. }) = self.utterance {
                self.tell(now, report(id, sent));
            }
        }
        while let Some((_, playout)) = self.outbound.pop_front_if(|(due, _)| *due <= now) {
            conversation.handle_playout(now, playout);
        }
    }

    fn tell(&mut self, now: Instant, playout: Playout) {
        self.outbound.push_back((now + self.one_way, playout));
    }

    fn take(&mut self, now: Instant, output: Output) {
        let (utterance, sent) = self.utterance.as_ref().map_or((Utterance(0), 0), |playing| (playing.id, playing.sent));
        match output {
            Output::UtteranceStart { utterance: id, .. } => {
                self.utterance = Some(Playing { id, received: 0, at: 0, sent: 0, ended: false });
            }
            Output::Frame { utterance: id, samples, .. } => {
                if let Some(playing) = self.utterance.as_mut().filter(|playing| playing.id == id) {
                    playing.received += u64::from(samples);
                }
            }
            Output::UtteranceEnd { utterance: id } => {
                if let Some(playing) = self.utterance.as_mut().filter(|playing| playing.id == id) {
                    playing.ended = true;
                }
            }
            Output::Pause => {
                self.paused = true;
                self.heard.push((now, Heard::Paused));
                self.tell(now, Playout::Paused { utterance, sent });
            }
            Output::Resume { from } => {
                self.paused = false;
                if let (Some(playing), Some(from)) = (&mut self.utterance, from) {
                    playing.at = playing.at.min(from / SAMPLES * SAMPLES);
                }
                self.heard.push((now, Heard::Resumed));
                self.tell(now, Playout::Resumed { utterance, sent });
            }
            Output::Flush { up_to, .. } => {
                self.paused = false;
                self.utterance.take_if(|playing| playing.id <= up_to);
                self.heard.push((now, Heard::Flushed));
                self.tell(now, Playout::Flushed { utterance: up_to, sent, received: voice::Received::default() });
            }
            _ => {}
        }
    }

    /// One slot of the pacer.
    fn play(&mut self, now: Instant) {
        let Some(playing) = self.utterance.as_mut().filter(|_| !self.paused) else { return };
        let id = playing.id;
        if playing.at < playing.received {
            self.heard.push((now, Heard::Frame(id.0, playing.at / SAMPLES)));
            let first = playing.sent == 0;
            playing.at += SAMPLES;
            playing.sent = playing.sent.max(playing.at);
            if first {
                self.tell(now, Playout::Started { utterance: id });
            }
        }
        if let Some(Playing { sent, .. }) = self.utterance.take_if(|p| p.ended && p.at >= p.received) {
            self.tell(now, Playout::Finished { utterance: id, sent });
        }
    }
}

fn report(utterance: Utterance, sent: u64) -> Playout {
    Playout::Report { utterance, sent, limit: sent + CREDIT, client: None }
}
