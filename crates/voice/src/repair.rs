//! Uplink repair: packets in, in the order of arrival; pieces of audio out, in the order of media time.
//!
//! **A listener that is a model needs no even clock**, so nothing is held back to make one: a packet that is next in sequence
//! leaves in the call that brought it. Only a hole can cost time:
//!
//! * A RED copy in a packet behind it fills it at once, and costs nothing.
//! * NACK agreed: what is behind the hole waits 1.5 times as long as a packet sent again takes, 60 ms at most (`waiting.rs`).
//! * Otherwise, no reordering seen in the last 10 s: a hole is a loss. It is filled at once, its end from the in-band copy in
//!   the packet behind it (that packet is the look-ahead that a copy needs, and is there when the hole is seen), the rest by
//!   concealment.
//! * Reordering by no more than a ptime seen: the packets behind the hole wait one ptime for what is missing, then the hole is
//!   filled.
//!
//! A packet that comes within 400 ms after its time was filled is handed out beside the pieces, with its place ([`Late`]).
//!
//! How long a hole is says the RTP timestamp, never the sequence number alone: other payload types share the sequence space
//! (RFC 4733 events, comfort noise) and take no time of their own. A timestamp gap beyond what the missing packets can have
//! lasted is silence: a sender with DTX, a muted microphone. Concealment is bounded to 200 ms (it has faded by then), filled
//! silence to 1 s; what is longer moves the media clock without samples.
//!
//! Cold start: the first packet is the stream. A sequence number outside of RFC 3550 A.1's window (3000 ahead, 100 behind) or a
//! timestamp more than 30 s off is a stray until three consecutive packets agree; then the stream starts over at the first of
//! them, none lost, and media time goes on without a gap. Clock skew needs no care: there is no clock here.

mod filled;
mod piece;
mod waiting;

use std::time::{Duration, Instant};

use crate::config::RepairConfig;
use crate::g711::{self, Law};
use crate::opus;
use crate::red::Red;
use crate::types::{Codec, MediaFrame};
use filled::{Filled, Holes};
pub use piece::{Late, Piece, RepairStats, Source};
use waiting::Waiting;

/// RFC 3550 A.1: how far ahead a sequence number may be without being another stream's.
const MAX_DROPOUT: i64 = 3000;
/// RFC 3550 A.1: how far behind.
const MAX_MISORDER: i64 = 100;
/// Packets that must agree before a stream starts over.
const PROBATION: usize = 3;
/// A timestamp further off is not this stream's, if the sequence number has a gap too: 30 s.
const MAX_TIMESTAMP_JUMP: i64 = 30 * 48_000;
/// Packets behind a hole. 60 ms of waiting bring 6 of 10 ms and their copies; bursts after a stall bring more. 24 x 1275 bytes.
const MAX_HELD: usize = 24;
/// Concealment fades within 100 ms; 200 ms is generous.
const MAX_CONCEAL: u32 = 9600;
/// Silence that is filled with samples: 1 s, longer than the ring ahead of an onset.
const MAX_FILL: u32 = 48_000;
/// Grain of Opus: 2.5 ms. Smaller timestamp errors are the sender's rounding.
const GRAIN: u32 = 120;
/// Longest G.711 packet taken: 120 ms, as of Opus.
const MAX_G711: usize = 960;

/// One user's stream. The invariant: the pieces' media times are without gap or overlap.
#[derive(Debug, Default)]
pub struct Repair {
    config: RepairConfig,
    stream: Option<Stream>,
    /// 48 kHz media time of the next piece.
    media_time: u64,
    /// Behind a hole, by sequence number.
    held: Vec<Held>,
    hold_until: Option<Instant>,
    /// Candidates for a stream that starts over, consecutive.
    probation: Vec<Held>,
    /// Buffers of released packets, for the next that must be held.
    spare: Vec<Vec<u8>>,
    waiting: Waiting,
    holes: Holes,
    stats: RepairStats,
    /// Latest instant given.
    now: Option<Instant>,
}

#[derive(Debug)]
struct Stream {
    /// Extended by the number of wraps.
    next_seq: u64,
    next_timestamp: u32,
    /// Of the last packet.
    ptime: u32,
    /// Bit i: `next_seq - 1 - i` came.
    came: u128,
    /// Packets missing before an event: how long they were shows the timestamp of the next audio.
    unfilled: u64,
}

#[derive(Debug)]
struct Held {
    seq: u64,
    /// A RED copy, whose number is an inference.
    copied: bool,
    codec: Codec,
    timestamp: u32,
    samples: u32,
    payload: Vec<u8>,
    arrived: Instant,
    age_us: u32,
}

/// A packet, borrowed or held.
#[derive(Clone, Copy)]
struct Packet<'a> {
    codec: Codec,
    timestamp: u32,
    /// 0 for an event, which takes no time.
    samples: u32,
    payload: &'a [u8],
    arrived: Instant,
    age_us: u32,
}

impl Repair {
    /// Waits for the first packet.
    #[must_use]
    pub fn new(config: RepairConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> RepairStats {
        self.stats
    }

    /// 48 kHz media time up to which pieces were released.
    #[must_use]
    pub fn media_time(&self) -> u64 {
        self.media_time
    }

    /// Takes a packet and gives what can leave; the packet itself, if its time was filled a short while ago.
    pub fn handle<'a>(
        &mut self,
        now: Instant,
        frame: &MediaFrame<'a>,
        age_us: u32,
        out: &mut impl FnMut(Piece<'_>),
    ) -> Option<Late<'a>> {
        self.now = Some(now);
        let red = (frame.codec == Codec::Red).then(|| Red::parse(frame.payload));
        let red = match red {
            Some(None) => {
                self.stats.malformed += 1;
                return None;
            }
            Some(red) => red,
            None => None,
        };
        let payload = red.map_or(frame.payload, |red| red.primary);
        let Some(packet) = Packet::new(now, frame, payload, age_us) else {
            self.stats.malformed += 1;
            return None;
        };
        let Some(stream) = &self.stream else {
            if packet.samples > 0 {
                self.start(u64::from(frame.seq), packet.timestamp, packet.samples);
                self.release(packet, out);
            }
            return None;
        };
        let ahead = distance(frame.seq, stream.next_seq);
        let jump = i64::from(packet.timestamp.wrapping_sub(stream.next_timestamp).cast_signed());
        // An event's clock may be another than the audio's, and begin elsewhere.
        let elsewhere = ahead != 0 && packet.samples > 0 && jump.abs() > MAX_TIMESTAMP_JUMP;
        if !(-MAX_MISORDER..=MAX_DROPOUT).contains(&ahead) || elsewhere {
            self.probe(frame.seq, packet, out);
            return None;
        }
        let Some(seq) = stream.next_seq.checked_add_signed(ahead) else {
            self.stats.strays += 1;
            return None;
        };
        if ahead < 0 {
            return self.late(now, ahead.unsigned_abs(), packet);
        }
        self.drop_probation();
        if ahead == 0 && self.held.is_empty() {
            self.release(packet, out);
            return None;
        }
        let copied = ahead > 0 && red.is_some_and(|red| self.take_copies(seq, packet, &red));
        if !copied && self.held.is_empty() && self.wait(now).is_none() {
            self.fill(seq, packet, out);
            self.release(packet, out);
        } else {
            self.hold(seq, packet);
            self.advance(now, out);
        }
        None
    }

    /// Fills the hole that has waited long enough.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut impl FnMut(Piece<'_>)) {
        if self.hold_until.is_some_and(|until| until <= now) {
            self.now = Some(now);
            self.advance(now, out);
        }
    }

    /// When [`Repair::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hold_until
    }

    fn start(&mut self, seq: u64, timestamp: u32, samples: u32) {
        // One wrap of head room, so that what came before the first packet has a number too.
        let next_seq = seq + (1 << 16);
        self.stream = Some(Stream { next_seq, next_timestamp: timestamp, ptime: samples, came: 0, unfilled: 0 });
    }

    /// The round trip to the client, as it was measured last: what comes sooner was not sent again.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.waiting.set_round_trip(round_trip);
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        self.waiting.time(now, &self.config, self.ptime())
    }

    fn ptime(&self) -> Duration {
        let ptime = self.stream.as_ref().map_or(0, |stream| stream.ptime);
        Duration::from_micros(u64::from(ptime) * 1_000_000 / 48_000)
    }

    /// A packet `behind` the next one.
    fn late<'a>(&mut self, now: Instant, behind: u64, packet: Packet<'a>) -> Option<Late<'a>> {
        let came = self.stream.as_mut().filter(|_| behind <= 128).is_some_and(|stream| {
            let bit = 1 << (behind - 1);
            let came = stream.came & bit != 0;
            stream.came |= bit;
            came
        });
        if came {
            self.stats.duplicates += 1;
            return None;
        }
        self.stats.late += 1;
        let hole = self.holes.find(packet.timestamp, packet.samples).filter(|_| packet.samples > 0);
        let since = hole.map(|(filled, _)| now.saturating_duration_since(filled.seen));
        self.waiting.came_late(now, &self.config, self.ptime(), since);
        let within = Duration::from_millis(self.config.late_ms.into());
        let (_, media_time) = hole.filter(|(filled, _)| filled.is_fresh(now, within))?;
        self.stats.corrections += 1;
        Some(Late { media_time, samples: packet.samples, source: packet.source()? })
    }

    /// Holds the copies that lie in the hole before the packet numbered `seq`. Whether there were any.
    fn take_copies(&mut self, seq: u64, packet: Packet<'_>, red: &Red<'_>) -> bool {
        let next_seq = self.stream.as_ref().map_or(u64::MAX, |stream| stream.next_seq);
        let mut taken = false;
        for copy in red.copies() {
            let at = seq.saturating_sub(copy.back.into());
            if at < next_seq || self.held.iter().any(|held| held.seq == at) {
                continue;
            }
            let timestamp = packet.timestamp.wrapping_sub(copy.offset.into());
            // A copy that overlaps what follows it is of something else.
            let Some(samples) = opus::packet_samples(copy.payload).filter(|samples| *samples <= copy.offset.into())
            else {
                self.stats.malformed += 1;
                continue;
            };
            let copy = Packet { timestamp, samples, payload: copy.payload, ..packet };
            let held = Held { copied: true, ..self.keep(at, copy) };
            let place = self.held.partition_point(|held| held.seq < at);
            self.held.insert(place, held);
            taken = true;
        }
        taken
    }

    /// A packet of no stream: the first of a new one, or a stray.
    fn probe(&mut self, seq: u16, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        if packet.samples == 0 {
            self.stats.strays += 1;
            return;
        }
        let follows = self.probation.last().is_some_and(|last| {
            let advance = packet.timestamp.wrapping_sub(last.timestamp);
            distance(seq, last.seq) == 1 && advance <= 2 * MAX_FILL
        });
        if !follows {
            self.drop_probation();
        }
        let held = self.keep(u64::from(seq), packet);
        self.probation.push(held);
        if self.probation.len() < PROBATION {
            return;
        }
        while !self.held.is_empty() {
            self.fill_first(out);
        }
        self.hold_until = None;
        self.holes.clear();
        self.stats.resets += 1;
        let agreed = std::mem::take(&mut self.probation);
        if let Some(first) = agreed.first() {
            self.start(first.seq, first.timestamp, first.samples);
        }
        for held in agreed {
            self.release(held.packet(), out);
            self.spare.push(held.payload);
        }
    }

    fn drop_probation(&mut self) {
        self.stats.strays += self.probation.len() as u64;
        for held in self.probation.drain(..) {
            self.spare.push(held.payload);
        }
    }

    fn keep(&mut self, seq: u64, packet: Packet<'_>) -> Held {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(packet.payload);
        let Packet { codec, timestamp, samples, arrived, age_us, .. } = packet;
        Held { seq, copied: false, codec, timestamp, samples, payload, arrived, age_us }
    }

    fn hold(&mut self, seq: u64, packet: Packet<'_>) {
        let at = self.held.partition_point(|held| held.seq < seq);
        // What comes before one that is here is out of order.
        let behind = self.held.get(at..).unwrap_or_default();
        let seen = behind.iter().filter(|held| held.seq > seq && !held.copied).map(|held| held.arrived).min();
        if let Some(seen) = seen {
            let since = Some(packet.arrived.saturating_duration_since(seen));
            self.waiting.came_late(packet.arrived, &self.config, self.ptime(), since);
        }
        match self.held.get_mut(at).filter(|held| held.seq == seq) {
            // The packet itself knows better than a copy where it belongs.
            Some(held) if held.copied => {
                let payload = std::mem::take(&mut held.payload);
                self.spare.push(payload);
                self.held[at] = self.keep(seq, packet);
            }
            Some(_) => self.stats.duplicates += 1,
            None => {
                let kept = self.keep(seq, packet);
                self.held.insert(at, kept);
            }
        }
    }

    /// Releases what is next in sequence, fills what need not be waited for and sets the wait for the rest.
    fn advance(&mut self, now: Instant, out: &mut impl FnMut(Piece<'_>)) {
        self.hold_until = None;
        while let (Some(stream), Some(first)) = (&self.stream, self.held.first()) {
            if first.seq > stream.next_seq && self.held.len() <= MAX_HELD {
                // Whatever came behind a hole shows it.
                let seen = self.held.iter().map(|held| held.arrived).min().unwrap_or(now);
                if let Some(wait) = self.wait(now) {
                    if seen + wait > now {
                        self.hold_until = Some(seen + wait);
                        return;
                    }
                    self.waiting.was_in_vain();
                }
            }
            self.fill_first(out);
        }
    }

    /// Releases the first held packet, whatever is missing before it.
    fn fill_first(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        let Some(stream) = &mut self.stream else { return };
        let back = held.timestamp.wrapping_sub(stream.next_timestamp).cast_signed() < 0;
        if held.seq < stream.next_seq {
            self.stats.duplicates += 1;
        } else if held.copied && back {
            // Of something that was heard: its number was not the one before.
            stream.unfilled += held.seq + 1 - stream.next_seq;
            stream.came = shifted(stream.came, held.seq + 1 - stream.next_seq);
            stream.next_seq = held.seq + 1;
        } else {
            if held.copied {
                self.stats.red += u64::from(held.samples);
            }
            self.fill(held.seq, held.packet(), out);
            self.release(held.packet(), out);
        }
        self.spare.push(held.payload);
    }

    /// Fills the hole before the packet numbered `seq`.
    fn fill(&mut self, seq: u64, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let Some(stream) = &mut self.stream else { return };
        let missing = seq.saturating_sub(stream.next_seq);
        stream.next_seq = seq;
        stream.came = shifted(stream.came, missing);
        let missing = missing + stream.unfilled;
        if packet.samples == 0 {
            stream.unfilled = missing;
            return;
        }
        stream.unfilled = 0;
        if missing == 0 {
            return;
        }
        let gap = packet.timestamp.wrapping_sub(stream.next_timestamp);
        // A step back says nothing about what is missing.
        let gap = if gap.cast_signed() < 0 { 0 } else { gap - gap % GRAIN };
        let lost = u32::try_from(missing * u64::from(stream.ptime)).unwrap_or(u32::MAX).min(gap);
        let lost = lost - lost % GRAIN;
        stream.next_timestamp = packet.timestamp;

        let copy = if packet.codec.is_opus() { opus::copy_samples(packet.payload) } else { 0 };
        let copy = if copy <= lost { copy } else { 0 };
        let concealed = (lost - copy).min(MAX_CONCEAL);
        let at = self.now.unwrap_or(packet.arrived);
        let timestamp = packet.timestamp.wrapping_sub(gap);
        self.holes.keep(Filled { timestamp, samples: gap, media_time: self.media_time, seen: packet.arrived, at });
        self.emit(concealed, Source::Conceal, packet, out);
        self.silence(gap - copy - concealed, packet, out);
        self.emit(copy, Source::Fec(packet.payload), packet, out);
    }

    /// Releases the packet that is next in sequence; a timestamp gap before it is silence.
    fn release(&mut self, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let Some(stream) = &self.stream else { return };
        if stream.unfilled > 0 {
            self.fill(stream.next_seq, packet, out);
        }
        let Some(stream) = &mut self.stream else { return };
        stream.next_seq += 1;
        stream.came = stream.came << 1 | 1;
        let Some(source) = packet.source() else { return };
        let gap = packet.timestamp.wrapping_sub(stream.next_timestamp);
        let gap = if gap.cast_signed() < 0 { 0 } else { gap - gap % GRAIN };
        stream.next_timestamp = packet.timestamp.wrapping_add(packet.samples);
        stream.ptime = packet.samples;
        self.stats.released += 1;
        self.silence(gap, packet, out);
        self.emit(packet.samples, source, packet, out);
    }

    fn silence(&mut self, samples: u32, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let filled = samples.min(MAX_FILL);
        self.emit(samples - filled, Source::Skip, packet, out);
        self.emit(filled, Source::Silence, packet, out);
    }

    fn emit<'a>(&mut self, samples: u32, source: Source<'a>, packet: Packet<'a>, out: &mut impl FnMut(Piece<'_>)) {
        if samples == 0 {
            return;
        }
        let count = match source {
            Source::Packet(_) | Source::G711(..) => None,
            Source::Fec(_) => Some(&mut self.stats.fec),
            Source::Conceal => Some(&mut self.stats.concealed),
            Source::Silence => Some(&mut self.stats.silence),
            Source::Skip => Some(&mut self.stats.skipped),
        };
        if let Some(count) = count {
            *count += u64::from(samples);
        }
        let Packet { arrived, age_us, .. } = packet;
        out(Piece { media_time: self.media_time, samples, source, arrived, age_us });
        self.media_time += u64::from(samples);
    }
}

impl<'a> Packet<'a> {
    /// `None`: the payload is not what its codec says.
    fn new(now: Instant, frame: &MediaFrame<'_>, payload: &'a [u8], age_us: u32) -> Option<Self> {
        let samples = match frame.codec {
            Codec::Opus | Codec::Red => opus::packet_samples(payload)?,
            Codec::Pcmu | Codec::Pcma => {
                let bytes = Some(payload.len()).filter(|bytes| (1..=MAX_G711).contains(bytes))?;
                u32::try_from(bytes).ok()? * g711::FACTOR
            }
            Codec::TelephoneEvent => 0,
        };
        Some(Self { codec: frame.codec, timestamp: frame.rtp_timestamp, samples, payload, arrived: now, age_us })
    }

    /// `None`: an event.
    fn source(&self) -> Option<Source<'a>> {
        Some(match self.codec {
            Codec::Opus | Codec::Red => Source::Packet(self.payload),
            Codec::Pcmu => Source::G711(Law::Mu, self.payload),
            Codec::Pcma => Source::G711(Law::A, self.payload),
            Codec::TelephoneEvent => return None,
        })
    }
}

impl Held {
    fn packet(&self) -> Packet<'_> {
        let Self { codec, timestamp, samples, ref payload, arrived, age_us, .. } = *self;
        Packet { codec, timestamp, samples, payload, arrived, age_us }
    }
}

/// A window of packets moved on by `count`.
fn shifted(came: u128, count: u64) -> u128 {
    u32::try_from(count).ok().and_then(|count| came.checked_shl(count)).unwrap_or(0)
}

/// How far `seq` is ahead of the extended `next`, in -32768..=32767.
fn distance(seq: u16, next: u64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits are the RTP sequence number")]
    let low = next as u16;
    i64::from(seq.wrapping_sub(low).cast_signed())
}
