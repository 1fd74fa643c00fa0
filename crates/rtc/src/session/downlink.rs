//! What is known of the way to the client: which of our packets came, how long they took, and so what the client plays.
//!
//! Two sources. Transport-wide feedback tells each packet ([`crate::rtcp::Feedback`], each 50 to 250 ms). Receiver reports tell
//! the highest sequence number that came and the share that did not (RFC 3550 §6.4.1; Chromium sends one each 5 s); they count
//! as long as no feedback has come, agreed or not. The packets that either may speak of are remembered in a log of fixed size,
//! made once when media can be sent. A packet has one number in all of them: its transport-wide one is that of its RTP header.
//!
//! What a client got of an item is told by place, not by number: what was lost lies where it was sent, however late that is
//! known.
//!
//! # Invariant
//!
//! Media costs no allocation, and whatever a client reports changes nothing but these figures: packets that were never sent
//! are not spoken of, and of an item nothing is known beyond what was sent.
//!
//! # The playout delay
//!
//! A browser's jitter buffer (NetEq) aims at the delay that 95 % of the largest lateness of each half second stay under, in
//! steps of 20 ms and one step more. The same is computed here from the arrivals that the client tells; with receiver
//! reports alone, three times the jitter stands for the lateness, and half a step more for what rounding to steps takes away.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::rtcp::{Feedback, ReportBlock};

/// Packets that a client may speak of: 2.5 s of 20 ms packets, where feedback comes within 250 ms and a round trip. 128
/// entries of 6 bytes are 768 bytes per session, and with the counts beside them 1 KiB.
const LOG: u16 = 128;

/// Grain of places in an item, in samples: Opus' 2.5 ms.
const GRAIN: u64 = 120;

/// A packet that a report does not speak of, sent by a round trip and so much before it came, is late at least.
const REPORT_SLACK_MS: u32 = 20;

/// Ticks of the log's clock and of the client's: 250 us.
const TICK_US: u32 = 250;

/// The loss that is told moves by 1/64 with each packet: about the last second of speech.
const LOSS_WEIGHT: i32 = 64;

/// Lateness is relative to the quickest packet of the last one to two of these.
const FLOOR_TICKS: u32 = 2000 * 4;

/// The shortest round trip of the last one to two of these counts, as routes change.
const ROUND_TRIP_TICKS: u32 = 10_000 * 4;

/// Steps of the jitter buffer.
const STEP_MS: u32 = 20;

const TICKS_PER_MS: u32 = 1000 / TICK_US;

const TICKS_PER_STEP: u32 = STEP_MS * 1000 / TICK_US;

/// Lateness up to 640 ms is told apart.
const STEPS: u8 = 32;

/// The largest lateness of so long makes one sample.
const SAMPLE_TICKS: u32 = 500 * 4;

/// Weight of what was before, and quantile, of NetEq's delay manager.
const FORGET: f32 = 0.983;
const QUANTILE: f32 = 0.95;

/// What is known of the way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownlinkView {
    /// Round trip in microseconds; 0 until known.
    pub rtt_us: u32,
    /// From a packet's arrival at the client to its sound, in microseconds.
    pub delay_us: Option<u32>,
    /// Of the label asked for, the sample behind the last packet that is known to have arrived.
    pub arrived: u64,
    /// Samples of it that were sent behind that one and are known not to have.
    pub lost: u64,
    /// The part that is lost now, in 1/256.
    pub loss: u8,
    /// How often the client has told of loss, low 8 bits: what is seen again under the same number was told once.
    pub told: u8,
    /// Told packet by packet.
    pub transport_wide: bool,
}

/// The counts of one session's downlink.
#[derive(Debug, Default)]
pub(super) struct Downlink {
    log: Option<Box<Log>>,
    /// What is sent, and what was sent before it.
    items: [Item; 2],
    /// In 1/65536.
    loss: i32,
    told: u8,
    /// Jitter in microseconds, of the last receiver report.
    jitter_us: Option<u32>,
}

/// The samples of one label.
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    label: u32,
    sent: u64,
    /// Behind the last packet that arrived.
    arrived: u64,
    /// Up to here it is known what arrived; `arrived` at least.
    known: u64,
}

impl Downlink {
    /// Media can be sent.
    pub(super) fn start(&mut self, now: Instant) {
        self.log.get_or_insert_with(|| Box::new(Log::new(now)));
    }

    /// The packet with this sequence number leaves. `label` 0 is nothing that anyone asks for.
    pub(super) fn on_sent(&mut self, now: Instant, seq: u16, label: u32, samples: u16) {
        if label != 0 && self.items[0].label != label {
            self.items = [Item { label, ..Item::default() }, self.items[0]];
        }
        let Some(log) = &mut self.log else { return };
        let mut end = 0;
        if label != 0 {
            self.items[0].sent += u64::from(samples);
            end = self.items[0].sent;
        }
        log.push(now, seq, label, end);
    }

    /// The client told packet by packet.
    pub(super) fn on_feedback(&mut self, now: Instant, feedback: &Feedback<'_>) {
        let Some(log) = &mut self.log else { return };
        let clock_ms = log.clock_ms(now);
        let clock = clock_ms.wrapping_mul(TICKS_PER_MS);
        let (mut newest, mut news) = (None, false);
        for status in feedback.statuses() {
            let Some(entry) = log.entry(status.seq) else { continue };
            let item = self.items.iter_mut().find(|item| mark(item.label) == entry.mark && entry.mark != 0);
            match (entry.state, status.arrived) {
                (State::Sent, None) => {
                    entry.state = State::Lost;
                    news = true;
                    self.loss += ((1 << 16) - self.loss) / LOSS_WEIGHT;
                    item.into_iter().for_each(|item| item.lost(*entry));
                }
                (State::Sent, Some(arrived)) => {
                    entry.state = State::Arrived;
                    news = true;
                    let age_ms = low16(clock_ms).wrapping_sub(entry.sent);
                    let sent = clock.wrapping_sub(u32::from(age_ms) * TICKS_PER_MS);
                    self.loss -= self.loss / LOSS_WEIGHT;
                    item.into_iter().for_each(|item| item.arrived(*entry));
                    newest = Some(sent);
                    log.lateness.arrived(arrived, sent);
                }
                // It was late, and said to be lost meanwhile.
                (State::Lost, Some(_)) => {
                    entry.state = State::Arrived;
                    item.into_iter().for_each(|item| item.arrived(*entry));
                }
                (State::Lost, None) | (State::Arrived, _) => {}
            }
        }
        self.told = self.told.wrapping_add(news.into());
        if let Some(sent) = newest {
            log.told = true;
            log.round_trip.add(clock, clock.wrapping_sub(sent), ROUND_TRIP_TICKS);
        }
    }

    /// A block of the client's about our stream, whose RTP clock has this rate; `rtt`: as it is known by it.
    pub(super) fn on_report(&mut self, now: Instant, block: &ReportBlock, clock_rate: u32, rtt: Option<Duration>) {
        let jitter_us =
            u32::try_from(u64::from(block.jitter) * 1_000_000 / u64::from(clock_rate.max(1))).unwrap_or(u32::MAX);
        self.jitter_us = Some(jitter_us);
        let Some(log) = self.log.as_mut().filter(|log| !log.told) else { return };
        self.loss = i32::from(block.fraction_lost) << 8;
        self.told = self.told.wrapping_add(1);
        let patience_ms = rtt.map(|rtt| {
            let rtt_ms = u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX);
            rtt_ms.saturating_add(REPORT_SLACK_MS.max(jitter_us.saturating_mul(3) / 1000))
        });
        let (clock_ms, highest) = (low16(log.clock_ms(now)), low16(block.highest_seq));
        let next = log.next;
        for seq in (1..=LOG).map(|age| next.wrapping_sub(age)) {
            let Some(entry) = log.entry(seq).filter(|entry| entry.mark != 0) else { continue };
            let Some(item) = self.items.iter_mut().find(|item| mark(item.label) == entry.mark) else { continue };
            if highest.wrapping_sub(seq) < 1 << 15 {
                item.arrived(*entry);
            } else if patience_ms.is_some_and(|patience| u32::from(clock_ms.wrapping_sub(entry.sent)) > patience) {
                item.lost(*entry);
            }
        }
    }

    /// What is known, once anything is. `rtt` is that of receiver reports.
    pub(super) fn view(&self, label: u32, rtt: Option<Duration>) -> Option<DownlinkView> {
        let told = self.log.as_ref().filter(|log| log.told);
        if told.is_none() && self.jitter_us.is_none() {
            return None;
        }
        let reported_us = rtt.map(|rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
        // Feedback waits for its interval, so its shortest round trip is a little long.
        let told_us = told.and_then(|log| log.round_trip.least()).map(|ticks| ticks.saturating_mul(TICK_US));
        let lateness_us = match told {
            Some(log) => log.lateness.steps().map(|steps| steps * STEP_MS * 1000),
            None => self.jitter_us.map(|jitter_us| {
                let steps = (jitter_us.saturating_mul(3) / (STEP_MS * 1000)).min(STEPS.into());
                (2 * steps + 1) * STEP_MS * 500
            }),
        };
        let item = self.items.iter().find(|item| item.label == label).copied().unwrap_or_default();
        Some(DownlinkView {
            rtt_us: reported_us.into_iter().chain(told_us).min().unwrap_or(0),
            delay_us: lateness_us.map(|lateness| lateness + STEP_MS * 1000),
            arrived: item.arrived,
            lost: item.known - item.arrived,
            loss: u8::try_from(self.loss >> 8).unwrap_or(u8::MAX),
            told: self.told,
            transport_wide: told.is_some(),
        })
    }
}

impl Item {
    fn arrived(&mut self, entry: Entry) {
        self.arrived = self.arrived.max(self.place(entry));
        self.known = self.known.max(self.arrived);
    }

    fn lost(&mut self, entry: Entry) {
        self.known = self.known.max(self.place(entry));
    }

    /// The sample behind a packet of this label.
    fn place(&self, entry: Entry) -> u64 {
        let grains = self.sent / GRAIN;
        let back = low_grains(grains).wrapping_sub(entry.end);
        grains.saturating_sub(back.into()) * GRAIN
    }
}

/// Packets that a client may still speak of.
#[derive(Debug)]
struct Log {
    base: Instant,
    entries: [Entry; LOG as usize],
    /// Of the next packet.
    next: u16,
    /// Feedback came.
    told: bool,
    lateness: Lateness,
    round_trip: Least,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// In milliseconds since the log's begin, low 16 bits: feedback comes within the minute.
    sent: u16,
    /// The sample of its label behind it, in [`GRAIN`]s, low 16 bits: 163 s.
    end: u16,
    /// See [`mark`].
    mark: u8,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Sent,
    Lost,
    /// Also of places that hold no packet yet: nothing changes them.
    Arrived,
}

impl Log {
    fn new(now: Instant) -> Self {
        let empty = Entry { sent: 0, end: 0, mark: 0, state: State::Arrived };
        Self {
            base: now,
            entries: [empty; LOG as usize],
            next: 0,
            told: false,
            lateness: Lateness::default(),
            round_trip: Least::default(),
        }
    }

    fn push(&mut self, now: Instant, seq: u16, label: u32, end: u64) {
        self.next = seq.wrapping_add(1);
        let (sent, end) = (low16(self.clock_ms(now)), low_grains(end / GRAIN));
        self.entries[usize::from(seq % LOG)] = Entry { sent, end, mark: mark(label), state: State::Sent };
    }

    /// The packet of a sequence number, unless it is forgotten or not sent yet.
    fn entry(&mut self, seq: u16) -> Option<&mut Entry> {
        let age = self.next.wrapping_sub(seq);
        (1..=LOG).contains(&age).then(|| &mut self.entries[usize::from(seq % LOG)])
    }

    #[expect(clippy::cast_possible_truncation, reason = "differences are taken, and all is modulo 2^32")]
    fn clock_ms(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.base).as_millis() as u32
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low16(value: u32) -> u16 {
    value as u16
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low_grains(grains: u64) -> u16 {
    grains as u16
}

/// A label in 8 bits: labels rise, so the two that there are at a time are told apart. 0 is nothing that anyone asks for.
fn mark(label: u32) -> u8 {
    if label == 0 { 0 } else { (label % 255) as u8 + 1 }
}

/// The least value of the last one to two spans.
#[derive(Debug, Clone, Copy, Default)]
struct Least {
    since: u32,
    now: Option<u32>,
    before: Option<u32>,
}

impl Least {
    fn add(&mut self, clock: u32, value: u32, span: u32) {
        if self.now.is_none() || clock.wrapping_sub(self.since) >= span {
            (self.since, self.before, self.now) = (clock, self.now, None);
        }
        self.now = Some(self.now.map_or(value, |least| least.min(value)));
    }

    fn least(&self) -> Option<u32> {
        self.now.into_iter().chain(self.before).min()
    }
}

/// How much later than the quickest packets come.
#[derive(Debug, Default)]
struct Lateness {
    /// Transit time of the first packet: others are relative to it, as the clocks are not the same.
    first: Option<u32>,
    /// Transit times less that of the first, with half the range added so that the quickest is the least.
    floor: Least,
    /// Of the half second that runs: its begin and the largest lateness in ticks.
    sample: Option<(u32, u32)>,
    samples: u32,
    steps: [f32; STEPS as usize],
}

impl Lateness {
    fn arrived(&mut self, arrived: u32, sent: u32) {
        let transit = arrived.wrapping_sub(sent);
        let transit = transit.wrapping_sub(*self.first.get_or_insert(transit)).wrapping_add(1 << 31);
        self.floor.add(sent, transit, FLOOR_TICKS);
        let late = transit.saturating_sub(self.floor.least().unwrap_or(transit));
        let (since, largest) = self.sample.get_or_insert((sent, 0));
        *largest = late.max(*largest);
        if sent.wrapping_sub(*since) >= SAMPLE_TICKS {
            let step = (*largest / TICKS_PER_STEP) as usize;
            self.sample = None;
            self.add(step.min(usize::from(STEPS) - 1));
        }
    }

    fn add(&mut self, step: usize) {
        self.samples = self.samples.saturating_add(1);
        #[expect(clippy::cast_precision_loss, reason = "the first hundred count, the others weigh the same")]
        let kept = FORGET.min(1.0 - 2.0 / (self.samples as f32 + 1.0)).max(0.0);
        for (at, share) in self.steps.iter_mut().enumerate() {
            *share = *share * kept + if at == step { 1.0 - kept } else { 0.0 };
        }
    }

    /// Steps that [`QUANTILE`] of the samples stay under, once there is one.
    fn steps(&self) -> Option<u32> {
        if self.samples == 0 {
            return None;
        }
        let mut sum = 0.0;
        for (at, share) in (0..).zip(self.steps) {
            sum += share;
            if sum >= QUANTILE {
                return Some(at);
            }
        }
        Some(u32::from(STEPS) - 1)
    }
}
