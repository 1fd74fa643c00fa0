//! The reply on its way out.
//!
//! What a backend gives waits here, where an interruption throws it away for free; frames of 20 ms are encoded only up to the
//! credit that the edge gives. Positions are 48 kHz item samples; the ledger of each reply keeps them (`ledger.rs`). The silence
//! that fills the last frame is in none of them but `encoded`, which counts what left here.
//!
//! One utterance at a time is open at the edge; the next opens when the last frame of the former is out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::adapt::{Adapt, Coding};
use crate::backend::{AgentAudio, ResponseId, WordTime};
use crate::contour::Contour;
use crate::echo::Echo;
use crate::intake::{Intake, Next, Piece};
use crate::label::Label;
use crate::ledger::{Ledger, Way};
use crate::opus::{CreateError, Encoder, EncoderConfig, MAX_PACKET_BYTES};
use crate::preroll::{Arrival, Preroll};
use crate::script::{Pace, Script};
use crate::types::{Balance, ClientView, FlushReason, Output, Received, Utterance};

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
/// A pause after which a reply is not taken up in the middle of a word.
const LONG_PAUSE: Duration = Duration::from_millis(300);
/// How far back a reply may be taken up again after a long pause: 300 ms.
const STEP_BACK: u64 = 300 * 48;

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
    intake: Intake,
    ledger: Ledger,
    contour: Contour,
    script: Script,
    arrival: Arrival,
    label: Label,
    encoded: u64,
    limit: u64,
    complete: bool,
    started: bool,
    /// Nothing is sent before this, unless all of it is there.
    hold: Option<Instant>,
    /// How long it waited at its begin.
    preroll: Duration,
    underruns: u32,
    heard_at: Option<u64>,
    /// When the edge last said something of it, or it was opened.
    news: Instant,
}

/// What was cut, waiting for the edge to say where.
#[derive(Debug)]
struct Cut {
    item: Item,
    due: Instant,
}

/// Counts of what did not go as it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutgoingStats {
    /// Packets given to the edge.
    pub frames: u64,
    /// 48 kHz samples dropped because more than `max_turn_ms` of one reply waited.
    pub overflow: u64,
    /// Samples of silence, at the rate they were encoded at, in last frames.
    pub padding: u64,
    /// Times the edge ran out of frames.
    pub underruns: u64,
    /// Frames the encoder refused.
    pub encode_errors: u64,
    /// Replies given up because the edge said nothing of them.
    pub stalled: u64,
    /// Pieces of audio that made no sense: of another kind or rate than their reply began with, no rate, no packet.
    pub refused: u64,
    /// Pieces that were their whole reply once more.
    pub repeated: u64,
    /// Replies whose audio seems to have another rate than its label says.
    pub mislabeled: u64,
}

/// The replies of one conversation.
#[derive(Debug)]
pub(crate) struct Outgoing {
    encoder: Encoder,
    encoder_rate: u32,
    complexity: i32,
    adapt: Adapt,
    coding: Coding,
    items: VecDeque<Item>,
    cuts: VecDeque<Cut>,
    /// Words of a reply that came before its sound.
    early: Option<(ResponseId, Script)>,
    /// Told by nobody's report.
    news: VecDeque<News>,
    last_utterance: u32,
    backend_rate: u32,
    ahead: u64,
    /// 48 kHz samples of one reply that may wait: all of it waits when the backend gives it at once. 60 s at 16 kHz are 1.9 MB,
    /// freed as they are encoded.
    most: u64,
    pace: Pace,
    preroll: Preroll,
    again: Option<Instant>,
    /// The caller's loop turn, as far as time tells it: its end and the frames encoded in it.
    turn_end: Option<Instant>,
    turn_frames: usize,
    /// Since when the edge is paused.
    paused: Option<Instant>,
    scratch: Vec<i16>,
    packet: [u8; MAX_PACKET_BYTES],
    /// Knows what is played, for what comes back of it.
    pub(crate) echo: Echo,
    pub(crate) stats: OutgoingStats,
}

/// What a playout report means, or became of a reply without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    Started(ResponseId),
    Finished(Balance),
    /// The cut of a reply is known, and its words up to there if it had any.
    Cleared(Balance, Option<String>),
    /// It was dropped before anything of it was sent.
    Unheard(Balance),
    /// Its audio seems to have another rate than its label says.
    Mislabeled {
        response: ResponseId,
        declared: u32,
        likely: u32,
    },
}

impl Outgoing {
    pub(crate) fn new(config: &crate::config::Config) -> Result<Self, CreateError> {
        let adapt = Adapt::new(config.bitrate);
        let coding = adapt.coding();
        Ok(Self {
            encoder: encoder(config.backend_rate, config.complexity, coding)?,
            encoder_rate: config.backend_rate,
            complexity: config.complexity,
            adapt,
            coding,
            items: VecDeque::new(),
            cuts: VecDeque::new(),
            early: None,
            news: VecDeque::new(),
            last_utterance: 0,
            backend_rate: config.backend_rate,
            ahead: u64::from(config.ahead_ms) * 48,
            most: (u64::from(config.max_turn_ms) + 1000) * 48,
            pace: Pace::default(),
            preroll: Preroll::default(),
            again: None,
            turn_end: None,
            turn_frames: 0,
            paused: None,
            scratch: Vec::with_capacity(960),
            packet: [0; MAX_PACKET_BYTES],
            echo: Echo::new(),
            stats: OutgoingStats::default(),
        })
    }

    /// The link between edge and transceiver is congested, or no longer.
    pub(crate) fn set_congested(&mut self, congested: bool) {
        self.adapt.set_congested(congested);
        self.follow();
    }

    /// What is lost of what goes to the client.
    pub(crate) fn loss(&mut self, now: Instant, view: &ClientView) {
        self.adapt.loss(now, view.loss, view.told);
        self.follow();
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
        self.items.iter().map(|item| item.intake.waiting()).sum::<u64>() < AHEAD
    }

    /// The reply that the edge plays or will play next.
    pub(crate) fn current(&self) -> Option<ResponseId> {
        self.items.front().map(|item| item.response)
    }

    /// The first audio of a response.
    pub(crate) fn begin(&mut self, now: Instant, response: ResponseId) -> Utterance {
        self.last_utterance += 1;
        let utterance = Utterance(self.last_utterance);
        let preroll = self.preroll.wanted();
        let early = self.early.take_if(|(early, _)| *early <= response);
        let script = early.filter(|(early, _)| *early == response).map(|(_, script)| script).unwrap_or_default();
        self.items.push_back(Item {
            response,
            utterance,
            stage: Stage::Waiting,
            intake: Intake::new(),
            ledger: Ledger::default(),
            contour: Contour::default(),
            script,
            arrival: Arrival::new(now),
            label: Label::new(now),
            encoded: 0,
            limit: self.ahead,
            complete: false,
            started: false,
            hold: (!preroll.is_zero()).then_some(now + preroll),
            preroll,
            underruns: 0,
            heard_at: None,
            news: now,
        });
        utterance
    }

    /// More of it.
    pub(crate) fn push(&mut self, now: Instant, response: ResponseId, audio: AgentAudio) {
        let Some(item) = self.items.iter_mut().find(|item| item.response == response) else { return };
        let before = duration(item.ledger.generated());
        let taken =
            item.intake.push(audio, self.backend_rate, self.most, &mut |piece| measure(&mut item.contour, &piece));
        item.ledger.generate(taken.samples);
        self.stats.overflow += taken.overflow;
        self.stats.refused += u64::from(taken.refused);
        self.stats.repeated += u64::from(taken.repeated);
        if taken.samples == 0 {
            return;
        }
        item.arrival.piece(now, before);
        if let Some(declared) = item.intake.declared()
            && let Some(likely) = item.label.piece(now, before, declared)
        {
            self.stats.mislabeled += 1;
            self.news.push_back(News::Mislabeled { response, declared, likely });
        }
    }

    /// More of its words.
    pub(crate) fn text(&mut self, response: ResponseId, delta: &str, words: &[WordTime]) {
        if let Some(item) = self.items.iter_mut().find(|item| item.response == response) {
            item.script.push(delta, words);
        } else if self.cuts.iter().all(|cut| cut.item.response != response) {
            let early = self.early.take_if(|(early, _)| *early == response);
            let (_, script) = self.early.insert(early.unwrap_or_else(|| (response, Script::default())));
            script.push(delta, words);
        }
    }

    /// Nothing more of it.
    pub(crate) fn complete(&mut self, response: ResponseId) {
        let Some(item) = self.items.iter_mut().find(|item| item.response == response && !item.complete) else { return };
        item.complete = true;
        let rest = item.intake.complete(&mut |piece| measure(&mut item.contour, &piece));
        item.ledger.generate(rest);
        self.preroll.learn(&item.arrival);
        let speech = item.contour.speech(item.ledger.generated());
        let likely = self.pace.expected(&item.script).and_then(|expected| {
            let declared = item.intake.declared()?;
            Some((declared, item.label.text(duration(speech), expected, declared)?))
        });
        match likely {
            Some((declared, likely)) => {
                self.stats.mislabeled += 1;
                self.news.push_back(News::Mislabeled { response, declared, likely });
            }
            None => self.pace.learn(&item.script, speech),
        }
    }

    /// 48 kHz samples the backend gave of a reply that is not over.
    pub(crate) fn generated(&self, response: ResponseId) -> u64 {
        self.items.iter().find(|item| item.response == response).map_or(0, |item| item.ledger.generated())
    }

    /// The edge's clock of silence stands still while it is paused.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused = Some(now);
        self.echo.set_paused(now, true);
        self.touch(now);
    }

    /// The pause is over: where to take the reply up, if not at the first sample not sent. After a long pause nobody knows the
    /// beginning of the word any more.
    pub(crate) fn resume(&mut self, now: Instant) -> Option<u64> {
        self.echo.set_paused(now, false);
        let since = self.paused.take()?;
        self.touch(now);
        let sent = self.items.front().filter(|_| now.saturating_duration_since(since) > LONG_PAUSE)?.ledger.sent();
        self.border(sent).filter(|border| *border < sent)
    }

    fn touch(&mut self, now: Instant) {
        if let Some(item) = self.items.front_mut() {
            item.news = now;
        }
    }

    /// The user began to speak at `at`: how far they had heard the reply that plays.
    pub(crate) fn speech(&mut self, at: Option<Instant>, way: Way) {
        if let Some(item) = self.items.front_mut().filter(|item| item.stage != Stage::Waiting) {
            item.heard_at = Some(at.map_or(0, |at| item.ledger.heard_at(at, way)));
        }
    }

    /// The end of a word, or else where it is quietest, at most 300 ms before the item sample `before` of the reply that plays.
    fn border(&self, before: u64) -> Option<u64> {
        let item = self.items.front().filter(|item| item.stage != Stage::Waiting)?;
        let from = before.saturating_sub(STEP_BACK);
        let word = item.script.word_border(before).filter(|end| *end >= from);
        word.or_else(|| item.contour.quietest(from, before))
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
            item.hold.take_if(|due| *due <= now || item.complete);
            let Some(samples) = item.intake.ready(item.complete) else {
                if item.complete && item.stage == Stage::Open {
                    item.stage = Stage::Ended;
                    item.news = now;
                    out.push_back(Output::UtteranceEnd { utterance: item.utterance });
                } else if item.complete {
                    // Never opened and empty: nothing was ever to be heard of it.
                    self.news.extend(self.items.pop_front().map(|item| News::Unheard(item.balance(0))));
                    continue;
                }
                return first;
            };
            if item.encoded + samples > item.limit || item.hold.is_some() {
                return first;
            }
            if item.stage == Stage::Waiting {
                item.stage = Stage::Open;
                item.news = now;
                out.push_back(Output::UtteranceStart { utterance: item.utterance, response: item.response });
                first = Some(item.response);
                let rate = item.intake.rate();
                self.prepare(rate);
                continue;
            }
            let (utterance, rate) = (item.utterance, item.intake.rate());
            item.encoded += samples;
            match item.intake.next(&mut self.scratch) {
                Some(Next::Packet { payload, samples }) => {
                    self.stats.frames += 1;
                    out.push_back(Output::Frame { utterance, samples, payload });
                }
                Some(Next::Frame { padding }) => {
                    if let Some(rate) = rate {
                        self.echo.send(utterance.0, &self.scratch, rate);
                    }
                    self.stats.padding += padding as u64;
                    self.turn_frames += 1;
                    match self.encoder.encode(&self.scratch, &mut self.packet) {
                        Ok(length) => {
                            self.stats.frames += 1;
                            let payload = self.packet[..length].to_vec();
                            out.push_back(Output::Frame { utterance, samples: 960, payload });
                        }
                        Err(_) => self.stats.encode_errors += 1,
                    }
                }
                None => {}
            }
        }
        self.again = self.turn_end;
        first
    }

    /// Throws all replies away; what the edge has of them is flushed. `false`: it has nothing. Each of them is
    /// [`News::Cleared`] later: by [`Self::flushed`] or, at once where the edge has nothing of it, by [`Self::overdue_cut`].
    pub(crate) fn flush(&mut self, now: Instant, reason: FlushReason, out: &mut VecDeque<Output>) -> bool {
        self.again = None;
        self.paused = None;
        self.echo.stop();
        let mut up_to = None;
        self.early = None;
        for mut item in self.items.drain(..) {
            // Of a reply that the edge never had there is nothing to wait for.
            let at_edge = item.stage != Stage::Waiting;
            up_to = at_edge.then_some((item.utterance, item.stage)).or(up_to);
            item.intake = Intake::new();
            self.cuts.push_back(Cut { item, due: if at_edge { now + FLUSH_TIMEOUT } else { now } });
        }
        let Some((utterance, stage)) = up_to else { return false };
        out.push_back(Output::Flush { up_to: utterance, reason });
        if stage == Stage::Open {
            out.push_back(Output::UtteranceReset { utterance });
        }
        true
    }

    /// A response that ends before it gave any sound.
    pub(crate) fn unheard(&mut self, response: ResponseId) {
        self.early.take_if(|(early, _)| *early == response);
        let zero =
            Balance { response, generated: 0, sent: 0, played_end: 0, heard_at: None, underruns: 0, preroll_us: 0 };
        self.news.push_back(News::Unheard(zero));
    }

    /// How far the edge is; news of an utterance that is no more is ignored. `at`: by the edge's clock.
    pub(crate) fn report(&mut self, now: Instant, at: Instant, utterance: Utterance, report: Report) {
        let cut = self.cuts.iter_mut().find(|cut| cut.item.utterance == utterance);
        if let Some(cut) = cut {
            cut.item.ledger.report(at, report.sent.min(cut.item.encoded), true);
            cut.item.ledger.receive(report.received);
        }
        self.echo.report(at, utterance.0, report.sent);
        if let Some(item) = self.at_edge(utterance) {
            item.news = now;
            item.limit = item.limit.max(report.limit.unwrap_or(0));
            item.ledger.report(at, report.sent.min(item.encoded), report.still);
            item.ledger.receive(report.received);
        }
    }

    /// The first frame is on the wire.
    pub(crate) fn started(&mut self, now: Instant, at: Instant, utterance: Utterance) -> Option<News> {
        self.echo.report(at, utterance.0, 0);
        let item = self.at_edge(utterance)?;
        item.news = now;
        item.ledger.begin(at);
        (!std::mem::replace(&mut item.started, true)).then_some(News::Started(item.response))
    }

    /// The last frame is on the wire.
    pub(crate) fn finished(&mut self, utterance: Utterance) -> Option<News> {
        self.at_edge(utterance).filter(|item| item.stage == Stage::Ended)?;
        let item = self.items.pop_front()?;
        Some(News::Finished(item.balance(item.ledger.sent())))
    }

    /// The edge says where it cut.
    pub(crate) fn flushed(&mut self, at: Instant, utterance: Utterance, sent: u64, received: Received) -> Option<News> {
        let mut cut = self.cuts.pop_front_if(|cut| cut.item.utterance <= utterance)?;
        if cut.item.utterance == utterance {
            cut.item.ledger.report(at, sent.min(cut.item.encoded), true);
            cut.item.ledger.receive(received);
        }
        Some(cut.item.cleared(self.pace))
    }

    /// The queue at the edge ran empty at `sent`.
    pub(crate) fn underrun(&mut self, now: Instant, at: Instant, utterance: Utterance, sent: u64) {
        let preroll = self.preroll;
        let Some(item) = self.at_edge(utterance) else { return };
        item.news = now;
        item.underruns += 1;
        item.ledger.report(at, sent.min(item.encoded), false);
        // What left meanwhile plays already.
        if sent >= item.encoded {
            item.hold = Some(now + preroll.after_hole(&item.arrival));
        }
        self.stats.underruns += 1;
    }

    /// A cut that the edge has not confirmed in time.
    pub(crate) fn overdue_cut(&mut self, now: Instant) -> Option<News> {
        let cut = self.cuts.pop_front_if(|cut| cut.due <= now)?;
        Some(cut.item.cleared(self.pace))
    }

    /// What nobody reported.
    pub(crate) fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// The edge has been silent about a reply for too long.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.silence_due().is_some_and(|due| due <= now)
    }

    /// When more is to be done here.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let cut = self.cuts.front().map(|cut| cut.due);
        let hold = self.items.front().and_then(|item| item.hold);
        [self.again, cut, hold, self.silence_due()].into_iter().flatten().min()
    }

    fn silence_due(&self) -> Option<Instant> {
        let item = self.items.front().filter(|item| item.stage != Stage::Waiting && self.paused.is_none())?;
        Some(item.news + if item.started { SILENT_TIMEOUT } else { START_TIMEOUT })
    }

    fn at_edge(&mut self, utterance: Utterance) -> Option<&mut Item> {
        self.items.front_mut().filter(|item| item.utterance == utterance && item.stage != Stage::Waiting)
    }

    /// An encoder of this rate that begins a stream. `None`: nothing is to be encoded.
    fn prepare(&mut self, rate: Option<u32>) {
        match rate {
            Some(rate) if rate != self.encoder_rate => {
                // The rates are libopus' own; only its allocation could fail, and then its frames are counted as errors.
                if let Ok(encoder) = encoder(rate, self.complexity, self.coding) {
                    self.encoder = encoder;
                    self.encoder_rate = rate;
                }
            }
            Some(_) => self.encoder.reset(),
            None => {}
        }
    }

    /// Tells the encoder what has changed. What libopus refuses changes nothing.
    fn follow(&mut self) {
        let coding = self.adapt.coding();
        if coding.bitrate != self.coding.bitrate {
            let _ = self.encoder.set_bitrate(coding.bitrate);
        }
        if coding.loss_percent != self.coding.loss_percent {
            let _ = self.encoder.set_loss_percent(coding.loss_percent);
        }
        if coding.dtx != self.coding.dtx {
            let _ = self.encoder.set_dtx(coding.dtx);
        }
        self.coding = coding;
    }
}

/// What the edge says of an utterance.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) received: Received,
    /// It does not play on.
    pub(crate) still: bool,
}

impl Item {
    fn balance(&self, played_end: u64) -> Balance {
        Balance {
            response: self.response,
            generated: self.ledger.generated(),
            sent: self.ledger.sent(),
            played_end,
            heard_at: self.heard_at,
            underruns: self.underruns,
            preroll_us: u64::try_from(self.preroll.as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn cleared(&self, pace: Pace) -> News {
        let played_end = self.ledger.played_end();
        let whole = self.complete.then(|| self.ledger.generated());
        let said = || self.script.said(played_end, whole, &self.contour, pace).to_owned();
        News::Cleared(self.balance(played_end), (!self.script.is_empty()).then(said))
    }
}

fn encoder(rate: u32, complexity: i32, coding: Coding) -> Result<Encoder, CreateError> {
    let Coding { bitrate, loss_percent, dtx } = coding;
    Encoder::new(EncoderConfig { rate, bitrate, complexity, loss_percent, dtx, ..EncoderConfig::default() })
}

fn measure(contour: &mut Contour, piece: &Piece<'_>) {
    match piece {
        Piece::Samples(pcm, frame) => contour.push(pcm, *frame),
        Piece::Packet { bytes, samples } => contour.push_packet(*bytes, *samples),
    }
}

fn duration(samples: u64) -> Duration {
    Duration::from_micros(samples.saturating_mul(125) / 6)
}
