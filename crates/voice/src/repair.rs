//! Uplink repair: packets in, in the order of arrival; pieces of audio out, in the order of media time.
//!
//! **A listener that is a model needs no even clock**, so nothing is held back to make one: a packet that is next in sequence
//! leaves in the call that brought it. Only a hole can cost time:
//!
//! * No reordering seen in the last 10 s: a hole is a loss. It is filled at once, its end from the in-band copy in the packet
//!   behind it, the rest by concealment.
//! * Reordering seen: the packets behind the hole wait one ptime for what is missing, then the hole is filled. A copy that
//!   comes later is counted and dropped.
//!
//! How long a hole is says the RTP timestamp, never the sequence number alone: other payload types share the sequence space
//! (RFC 4733 events, comfort noise) and take no time of their own. A timestamp gap beyond what the missing packets can have
//! lasted is silence: a sender with DTX, a muted microphone. Concealment is bounded to 200 ms (it has faded by then), filled
//! silence to 1 s; what is longer moves the media clock without samples.
//!
//! Cold start: the first packet is the stream. A sequence number outside of RFC 3550 A.1's window (3000 ahead, 100 behind) or a
//! timestamp more than 30 s off is a stray until three consecutive packets agree; then the stream starts over at the first of
//! them, none lost, and media time goes on without a gap. Clock skew needs no care: there is no clock here.
//!
//! Not built: RED, NACK, late repair of the recognizer's input.

use std::time::{Duration, Instant};

use crate::opus;

/// RFC 3550 A.1: how far ahead a sequence number may be without being another stream's.
const MAX_DROPOUT: i64 = 3000;
/// RFC 3550 A.1: how far behind.
const MAX_MISORDER: i64 = 100;
/// Packets that must agree before a stream starts over.
const PROBATION: usize = 3;
/// A timestamp further off is not this stream's, if the sequence number has a gap too: 30 s.
const MAX_TIMESTAMP_JUMP: i64 = 30 * 48_000;
/// Reordering is remembered for this long.
const REORDER_MEMORY: Duration = Duration::from_secs(10);
/// Packets behind a hole. One ptime of waiting brings one packet; bursts after a stall bring more. 16 x 1275 bytes.
const MAX_HELD: usize = 16;
/// Concealment fades within 100 ms; 200 ms is generous.
const MAX_CONCEAL: u32 = 9600;
/// Silence that is filled with samples: 1 s, longer than the ring ahead of an onset.
const MAX_FILL: u32 = 48_000;
/// Grain of Opus: 2.5 ms. Smaller timestamp errors are the sender's rounding.
const GRAIN: u32 = 120;

/// One stretch of audio, next in media time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// 48 kHz media time of its first sample.
    pub media_time: u64,
    /// How long it is.
    pub samples: u32,
    /// Where its samples come from.
    pub source: Source<'a>,
    /// When the packet that released it came.
    pub arrived: Instant,
    /// How old that packet was then.
    pub age_us: u32,
}

/// Where the samples of a piece come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// A packet.
    Packet(&'a [u8]),
    /// The copy of a lost frame that this packet carries.
    Fec(&'a [u8]),
    /// Nothing: conceal.
    Conceal,
    /// The sender was silent.
    Silence,
    /// The sender was silent for so long that only the clock moves.
    Skip,
}

/// What became of the packets. All counts are of packets or 48 kHz samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Packets released.
    pub released: u64,
    /// Packets that are no Opus.
    pub malformed: u64,
    /// Packets that came after their time had been filled.
    pub late: u64,
    /// Packets that came twice.
    pub duplicates: u64,
    /// Packets that belong to no stream.
    pub strays: u64,
    /// Samples from in-band copies.
    pub fec: u64,
    /// Samples made up.
    pub concealed: u64,
    /// Samples of filled silence.
    pub silence: u64,
    /// Samples by which the clock moved alone.
    pub skipped: u64,
    /// Times the stream started over.
    pub resets: u64,
}

/// One user's stream. The invariant: the pieces' media times are without gap or overlap.
#[derive(Debug, Default)]
pub struct Repair {
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
    last_reorder: Option<Instant>,
    stats: RepairStats,
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
}

#[derive(Debug)]
struct Held {
    seq: u64,
    timestamp: u32,
    samples: u32,
    payload: Vec<u8>,
    arrived: Instant,
    age_us: u32,
}

/// A packet, borrowed or held.
#[derive(Clone, Copy)]
struct Packet<'a> {
    timestamp: u32,
    samples: u32,
    payload: &'a [u8],
    arrived: Instant,
    age_us: u32,
}

impl Repair {
    /// Waits for the first packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    /// Takes a packet and gives what can leave.
    pub fn handle(
        &mut self,
        now: Instant,
        (seq, timestamp): (u16, u32),
        payload: &[u8],
        age_us: u32,
        out: &mut impl FnMut(Piece<'_>),
    ) {
        let Some(samples) = opus::packet_samples(payload) else {
            self.stats.malformed += 1;
            return;
        };
        let packet = Packet { timestamp, samples, payload, arrived: now, age_us };
        let Some(stream) = &self.stream else {
            self.start(u64::from(seq), timestamp, samples);
            self.release(packet, out);
            return;
        };
        let ahead = distance(seq, stream.next_seq);
        let jump = i64::from(timestamp.wrapping_sub(stream.next_timestamp).cast_signed());
        let foreign = !(-MAX_MISORDER..=MAX_DROPOUT).contains(&ahead) || (ahead > 0 && jump.abs() > MAX_TIMESTAMP_JUMP);
        if foreign {
            self.probe(seq, packet, out);
            return;
        }
        let Some(extended) = stream.next_seq.checked_add_signed(ahead) else {
            self.stats.strays += 1;
            return;
        };
        if ahead < 0 {
            self.count_late(now, ahead.unsigned_abs());
            return;
        }
        self.drop_probation();
        if ahead == 0 {
            self.release(packet, out);
            self.drain(now, out);
        } else if self.held.is_empty() && !self.reorders(now) {
            self.fill(extended, packet, out);
            self.release(packet, out);
        } else {
            self.hold(extended, packet);
            if self.held.len() > MAX_HELD {
                self.fill_first(out);
            }
            self.drain(now, out);
        }
    }

    /// Fills the hole that has waited long enough.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut impl FnMut(Piece<'_>)) {
        while self.hold_until.is_some_and(|until| until <= now) {
            self.fill_first(out);
            self.drain(now, out);
        }
    }

    /// When [`Repair::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hold_until
    }

    fn start(&mut self, seq: u64, timestamp: u32, samples: u32) {
        // One wrap of head room, so that what came before the first packet has a number too.
        self.stream = Some(Stream { next_seq: seq + (1 << 16), next_timestamp: timestamp, ptime: samples, came: 0 });
    }

    fn reorders(&self, now: Instant) -> bool {
        self.last_reorder.is_some_and(|last| now.saturating_duration_since(last) < REORDER_MEMORY)
    }

    fn count_late(&mut self, now: Instant, behind: u64) {
        let came = self.stream.as_ref().is_some_and(|stream| behind <= 128 && stream.came >> (behind - 1) & 1 == 1);
        if came {
            self.stats.duplicates += 1;
        } else {
            self.stats.late += 1;
            self.last_reorder = Some(now);
            if let Some(stream) = self.stream.as_mut().filter(|_| behind <= 128) {
                stream.came |= 1 << (behind - 1);
            }
        }
    }

    /// A packet of no stream: the first of a new one, or a stray.
    fn probe(&mut self, seq: u16, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
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
        let Packet { timestamp, samples, arrived, age_us, .. } = packet;
        Held { seq, timestamp, samples, payload, arrived, age_us }
    }

    fn hold(&mut self, seq: u64, packet: Packet<'_>) {
        match self.held.binary_search_by_key(&seq, |held| held.seq) {
            Ok(_) => self.stats.duplicates += 1,
            Err(at) => {
                if at < self.held.len() {
                    self.last_reorder = Some(packet.arrived);
                }
                let held = self.keep(seq, packet);
                self.held.insert(at, held);
            }
        }
    }

    /// Releases the first held packet, whatever is missing before it.
    fn fill_first(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        self.fill(held.seq, held.packet(), out);
        self.release(held.packet(), out);
        self.spare.push(held.payload);
    }

    /// Releases what is next in sequence and sets the wait for what is not.
    fn drain(&mut self, now: Instant, out: &mut impl FnMut(Piece<'_>)) {
        while let (Some(stream), Some(first)) = (&self.stream, self.held.first()) {
            if first.seq > stream.next_seq {
                let wait = Duration::from_micros(u64::from(stream.ptime) * 1_000_000 / 48_000);
                // Without a hold yet, a past arrival has already waited its part.
                self.hold_until = Some((first.arrived + wait).max(now));
                return;
            }
            if first.seq == stream.next_seq {
                self.last_reorder = Some(now);
                self.fill_first(out);
            } else {
                self.stats.duplicates += 1;
                let held = self.held.remove(0);
                self.spare.push(held.payload);
            }
        }
        self.hold_until = None;
    }

    /// Fills the hole before the packet numbered `seq`.
    fn fill(&mut self, seq: u64, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let Some(stream) = &mut self.stream else { return };
        let missing = seq.saturating_sub(stream.next_seq);
        let gap = packet.timestamp.wrapping_sub(stream.next_timestamp);
        // A step back says nothing about what is missing.
        let gap = if gap.cast_signed() < 0 { 0 } else { gap - gap % GRAIN };
        let lost = u32::try_from(missing * u64::from(stream.ptime)).unwrap_or(u32::MAX).min(gap);
        stream.next_seq = seq;
        stream.came = if missing >= 128 { 0 } else { stream.came << missing };
        stream.next_timestamp = packet.timestamp;

        let copy = opus::copy_samples(packet.payload);
        let copy = if copy <= lost { copy } else { 0 };
        let concealed = (lost - copy).min(MAX_CONCEAL);
        self.emit(concealed, Source::Conceal, packet, out);
        self.silence(gap - copy - concealed, packet, out);
        self.emit(copy, Source::Fec(packet.payload), packet, out);
    }

    /// Releases the packet that is next in sequence; a timestamp gap before it is silence.
    fn release(&mut self, packet: Packet<'_>, out: &mut impl FnMut(Piece<'_>)) {
        let Some(stream) = &mut self.stream else { return };
        let gap = packet.timestamp.wrapping_sub(stream.next_timestamp);
        let gap = if gap.cast_signed() < 0 { 0 } else { gap - gap % GRAIN };
        stream.next_seq += 1;
        stream.came = stream.came << 1 | 1;
        stream.next_timestamp = packet.timestamp.wrapping_add(packet.samples);
        stream.ptime = packet.samples;
        self.stats.released += 1;
        self.silence(gap, packet, out);
        self.emit(packet.samples, Source::Packet(packet.payload), packet, out);
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
            Source::Packet(_) => None,
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

impl Held {
    fn packet(&self) -> Packet<'_> {
        let Self { timestamp, samples, ref payload, arrived, age_us, .. } = *self;
        Packet { timestamp, samples, payload, arrived, age_us }
    }
}

/// How far `seq` is ahead of the extended `next`, in -32768..=32767.
fn distance(seq: u16, next: u64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits are the RTP sequence number")]
    let low = next as u16;
    i64::from(seq.wrapping_sub(low).cast_signed())
}
