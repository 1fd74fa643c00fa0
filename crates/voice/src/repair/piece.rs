//! What repair gives, and what it counts.

use std::time::Instant;

use crate::g711::Law;

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
    /// An Opus packet, or a RED copy of one.
    Packet(&'a [u8]),
    /// A G.711 packet.
    G711(Law, &'a [u8]),
    /// The copy of a lost frame that this Opus packet carries.
    Fec(&'a [u8]),
    /// Nothing: conceal.
    Conceal,
    /// The sender was silent.
    Silence,
    /// The sender was silent for so long that only the clock moves.
    Skip,
}

/// A packet that came after its time had been filled with something made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late<'a> {
    /// 48 kHz media time of its first sample.
    pub media_time: u64,
    /// How long it is.
    pub samples: u32,
    /// What it says: [`Source::Packet`] or [`Source::G711`].
    pub source: Source<'a>,
}

/// What became of the packets. All counts are of packets or 48 kHz samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Packets released.
    pub released: u64,
    /// Packets that are no Opus, no RED or no G.711.
    pub malformed: u64,
    /// Packets that came after their time had been filled.
    pub late: u64,
    /// Of these, those that came soon enough to correct what was made up.
    pub corrections: u64,
    /// Packets that came twice.
    pub duplicates: u64,
    /// Packets that belong to no stream.
    pub strays: u64,
    /// Samples from RED copies.
    pub red: u64,
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
