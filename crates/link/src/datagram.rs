//! The media datagram: one batch of frames of many sessions (docs/LINK.md).
//! CONTRACT skeleton.
//!
//! ```text
//! batch := b0 | clock32 | entry*
//! b0      version:4 (=1) | kind:4    0 media-up, 1 media-down, 2 heartbeat, 4 playout report
//! clock32 sender's monotonic microseconds, low 32 bits, big endian
//! frame   := slot:varint | flags:u8 | epoch:u8 | seq:u16 | rtp_ts:u32 | age:u16 (10 us) | len:varint | payload
//! report  := slot:varint | epoch:u8 | utterance:varint | sent:varint | limit:varint | queue_ms:u16 | underruns:u16
//! ```

use crate::ids::{Slot, UtteranceId};

/// Largest batch: fits every path that carries QUIC, before MTU discovery.
pub const MAX_BATCH_BYTES: usize = 1162;

/// One audio frame from the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaUp<'a> {
    /// Session on this connection.
    pub slot: Slot,
    /// Low byte of the session's epoch.
    pub epoch: u8,
    /// First packet of a talkspurt (RTP marker).
    pub marker: bool,
    /// RTP sequence number of the client.
    pub seq: u16,
    /// RTP timestamp of the client, 48 kHz.
    pub rtp_timestamp: u32,
    /// RFC 6464 level in -dBov, if sent (flag EXT).
    pub audio_level: Option<u8>,
    /// Microseconds since the packet reached the edge (10 us units on the wire, saturating).
    pub age_us: u32,
    /// One Opus packet.
    pub payload: &'a [u8],
}

/// Where a session's playout stands, each 100 ms while it plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayoutReport {
    /// Session on this connection.
    pub slot: Slot,
    /// Low byte of the session's epoch.
    pub epoch: u8,
    /// The utterance that plays.
    pub utterance: UtteranceId,
    /// Item samples (48 kHz) on the wire.
    pub sent: u64,
    /// Item sample up to which the transceiver may send.
    pub limit: u64,
    /// Audio in the queue.
    pub queue_ms: u16,
    /// Times the queue ran empty in this utterance.
    pub underruns: u16,
}

/// A received batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch<'a> {
    /// Iterate with [`Frames`].
    MediaUp { /// Sender's clock.
        clock32: u32, /// Entries.
        frames: Frames<'a> },
    /// Nothing but the clock.
    Heartbeat { /// Sender's clock.
        clock32: u32 },
    /// Iterate with [`Reports`].
    Playout { /// Sender's clock.
        clock32: u32, /// Entries.
        reports: Reports<'a> },
}

/// Why a datagram, or the rest of it, was dropped: a counter's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drop { /// Cut short.
    Truncated, /// Not version 1.
    Version, /// A kind not known here.
    Kind }

/// Frames of a batch; yields `Err` once, at a cut entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames<'a> { _rest: &'a [u8] }
/// Reports of a batch; yields `Err` once, at a cut entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reports<'a> { _rest: &'a [u8] }

/// Reads the head of a batch.
///
/// # Errors
/// The reason to drop it.
pub fn parse(datagram: &[u8]) -> Result<Batch<'_>, Drop> { todo!() }

impl<'a> Iterator for Frames<'a> { type Item = Result<MediaUp<'a>, Drop>; fn next(&mut self) -> Option<Self::Item> { todo!() } }
impl Iterator for Reports<'_> { type Item = Result<PlayoutReport, Drop>; fn next(&mut self) -> Option<Self::Item> { todo!() } }

/// Collects entries of one kind into batches of at most [`MAX_BATCH_BYTES`].
#[derive(Debug)]
pub struct BatchWriter { /* Vec<u8> with capacity MAX_BATCH_BYTES */ }

impl BatchWriter {
    /// An empty batch of frames, or of reports.
    #[must_use]
    pub fn media_up() -> Self { todo!() }
    /// An empty batch of playout reports.
    #[must_use]
    pub fn playout() -> Self { todo!() }
    /// Appends a frame; `false` when it does not fit: take the batch and push again. A frame alone larger than a batch
    /// never fits an empty one: send it as OversizeFrame.
    #[must_use]
    pub fn push_frame(&mut self, frame: &MediaUp<'_>) -> bool { todo!() }
    /// Appends a report; `false` when it does not fit.
    #[must_use]
    pub fn push_report(&mut self, report: &PlayoutReport) -> bool { todo!() }
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool { todo!() }
    /// Stamps the clock and hands the batch out, leaving an empty one.
    pub fn take(&mut self, clock32: u32) -> bytes::Bytes { todo!() }
}
