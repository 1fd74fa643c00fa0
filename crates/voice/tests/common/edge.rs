//! The edge as a conversation sees it: a queue that plays in real time behind a link with delay.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use voice::{ClientView, Output, Playout, Utterance};

const FRAME: Duration = Duration::from_millis(20);
const REPORT: Duration = Duration::from_millis(100);

/// A playing edge.
pub(crate) struct Edge {
    delay: Duration,
    /// From the conversation, due at the edge.
    inbound: VecDeque<(Instant, Inbound)>,
    /// To the conversation, due there.
    outbound: VecDeque<(Instant, Playout)>,
    /// One at a time: id, samples received, samples sent, all received, announced.
    utterance: Option<Playing>,
    paused: bool,
    next_frame: Option<Instant>,
    next_report: Option<Instant>,
    flushed: u32,
    /// Time of each frame put on the wire, and its payload.
    pub(crate) wire: Vec<(Instant, Vec<u8>)>,
    /// Most that was ever queued, in samples.
    pub(crate) deepest: u64,
    /// What it says of the client.
    pub(crate) client: Option<ClientView>,
    /// Says nothing.
    pub(crate) dead: bool,
    pub(crate) lenient: bool,
}

struct Playing {
    id: Utterance,
    queue: VecDeque<(u32, Vec<u8>)>,
    received: u64,
    sent: u64,
    ended: bool,
    started: bool,
    /// It ran out of frames, and that was told.
    dry: bool,
}

enum Inbound {
    Start(Utterance),
    Frame(Utterance, u32, Vec<u8>),
    End(Utterance),
    Pause,
    Resume,
    Flush(Utterance),
}

impl Edge {
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            utterance: None,
            paused: false,
            next_frame: None,
            next_report: None,
            flushed: 0,
            wire: Vec::new(),
            deepest: 0,
            client: None,
            dead: false,
            lenient: false,
        }
    }

    /// What a client hears, at 16 kHz, without the silences between frames.
    pub(crate) fn heard(&self) -> Vec<i16> {
        let mut decoder = voice::opus::Decoder::new(16_000).unwrap();
        let mut out = [0; 1920];
        let decode = |(_, payload): &(Instant, Vec<u8>)| {
            let length = decoder.decode(payload, &mut out).unwrap();
            out[..length].to_vec()
        };
        self.wire.iter().flat_map(decode).collect()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.utterance.is_none() && self.inbound.is_empty()
    }

    pub(crate) fn handle(&mut self, now: Instant, output: &Output) {
        let inbound = match output {
            Output::UtteranceStart { utterance, .. } => Inbound::Start(*utterance),
            Output::Frame { utterance, samples, payload } => Inbound::Frame(*utterance, *samples, payload.clone()),
            Output::UtteranceEnd { utterance } => Inbound::End(*utterance),
            Output::Pause => Inbound::Pause,
            Output::Resume { .. } => Inbound::Resume,
            Output::Flush { up_to, .. } => Inbound::Flush(*up_to),
            _ => return,
        };
        self.inbound.push_back((now + self.delay, inbound));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let inbound = self.inbound.front().map(|(due, _)| *due);
        let outbound = self.outbound.front().map(|(due, _)| *due);
        let frame = self.next_frame.filter(|_| !self.paused && self.has_frame());
        let dry = self.next_frame.filter(|_| self.is_dry());
        [inbound, outbound, frame, dry, self.next_report].into_iter().flatten().min()
    }

    /// What arrives at the conversation.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<Playout> {
        while let Some((_, inbound)) = self.inbound.pop_front_if(|(due, _)| *due <= now) {
            self.take(now, inbound);
        }
        while !self.paused && self.has_frame() && self.next_frame.is_none_or(|due| due <= now) {
            self.play(now);
        }
        if self.is_dry()
            && self.next_frame.is_some_and(|due| due <= now)
            && let Some(playing) = &mut self.utterance
        {
            playing.dry = true;
            let (utterance, sent) = (playing.id, playing.sent);
            self.tell(now, Playout::Underrun { utterance, sent });
        }
        if self.next_report.is_some_and(|due| due <= now) {
            self.next_report = self.utterance.as_ref().map(|_| now + REPORT);
            if let Some(Playing { id, sent, .. }) = self.utterance {
                self.tell(now, Playout::Report { utterance: id, sent, limit: sent + 48_000, client: self.client });
            }
        }
        let mut news = Vec::new();
        while let Some((_, playout)) = self.outbound.pop_front_if(|(due, _)| *due <= now) {
            news.push(playout);
        }
        if self.dead { Vec::new() } else { news }
    }

    fn has_frame(&self) -> bool {
        self.utterance.as_ref().is_some_and(|playing| !playing.queue.is_empty())
    }

    /// Nothing is left of an utterance that goes on, which was not told.
    fn is_dry(&self) -> bool {
        let dry = |playing: &Playing| playing.started && !playing.ended && !playing.dry && playing.queue.is_empty();
        !self.paused && self.utterance.as_ref().is_some_and(dry)
    }

    fn tell(&mut self, now: Instant, playout: Playout) {
        self.outbound.push_back((now + self.delay, playout));
    }

    fn take(&mut self, now: Instant, inbound: Inbound) {
        let (utterance, sent) = self.utterance.as_ref().map_or((Utterance(0), 0), |playing| (playing.id, playing.sent));
        match inbound {
            Inbound::Start(id) => {
                assert!(self.lenient || self.utterance.is_none(), "two utterances at once");
                assert!(id.0 > self.flushed, "an utterance that is flushed");
                self.utterance = Some(Playing {
                    id,
                    queue: VecDeque::new(),
                    received: 0,
                    sent: 0,
                    ended: false,
                    started: false,
                    dry: false,
                });
                self.next_report = Some(now + REPORT);
            }
            Inbound::Frame(id, samples, payload) => {
                let Some(playing) = self.utterance.as_mut().filter(|playing| playing.id == id) else { return };
                assert!(!playing.ended, "a frame behind the end");
                playing.received += u64::from(samples);
                playing.queue.push_back((samples, payload));
                let depth = playing.received - playing.sent;
                assert!(self.lenient || depth <= 48_000 + 4800, "beyond the credit: {depth}");
                self.deepest = self.deepest.max(depth);
            }
            Inbound::End(id) => {
                if let Some(playing) = self.utterance.as_mut().filter(|playing| playing.id == id) {
                    playing.ended = true;
                }
                self.retire(now);
            }
            Inbound::Pause => {
                assert!(!self.paused, "paused twice");
                self.paused = true;
                self.tell(now, Playout::Paused { utterance, sent });
            }
            Inbound::Resume => {
                assert!(self.paused, "resumed without a pause");
                self.paused = false;
                self.tell(now, Playout::Resumed { utterance, sent });
            }
            Inbound::Flush(up_to) => {
                self.flushed = up_to.0;
                self.paused = false;
                self.utterance.take_if(|playing| playing.id <= up_to);
                self.tell(
                    now,
                    Playout::Flushed {
                        utterance: up_to,
                        sent,
                        received: self.client.map(|client| client.received).unwrap_or_default(),
                    },
                );
            }
        }
    }

    fn play(&mut self, now: Instant) {
        let Some(playing) = &mut self.utterance else { return };
        let Some((samples, payload)) = playing.queue.pop_front() else { return };
        playing.sent += u64::from(samples);
        playing.dry = false;
        let (id, first) = (playing.id, !std::mem::replace(&mut playing.started, true));
        self.wire.push((now, payload));
        self.next_frame = Some(now + FRAME);
        if first {
            self.tell(now, Playout::Started { utterance: id });
        }
        self.retire(now);
    }

    fn retire(&mut self, now: Instant) {
        if let Some(playing) = self.utterance.take_if(|playing| playing.ended && playing.queue.is_empty()) {
            self.tell(now, Playout::Finished { utterance: playing.id, sent: playing.sent });
        }
    }
}
