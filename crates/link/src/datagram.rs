//! The media datagram: one batch of entries of many sessions, all from one turn of the sender's loop (docs/LINK.md).
//!
//! ```text
//! batch   := b0 | clock32 | entry*
//! b0      := version:4 (=1) | kind:4    0 media-up, 1 media-down, 2 heartbeat, 3 acknowledgement, 4 playout report
//! clock32 := the sender's monotonic microseconds at send, low 32 bits
//! frame   := slot:varint | flags:u8 | epoch:u8 | seq:u16 | rtp_ts:u32 | age:u16 (10 us) | ext? | len:varint | payload
//! flags   := 0x10 marker | 0x20 EXT | codec:4    0 Opus, 1 RED, 2 PCMU, 3 PCMA, 4 telephone-event; others are skipped
//! heartbeat := flags:u8 | (clock32 | held:u32)?    0x01 congested, 0x02 echo follows
//! ext     := len:u8 | (type:u8 | len:u8 | value)*    only with flag EXT; unknown types are skipped
//! report  := slot:varint | epoch:u8 | utterance:varint | sent:varint | limit:varint | queue_ms:u16 | client?:1 underruns:15
//!            | client?
//! client  := len:u8 | flags:u8 | loss:u8 | told:u8 | rtt:varint | arrived:varint | lost:varint | delay:varint?
//!            0x01 transport-wide, 0x02 delay follows
//! ```
//!
//! Integers are big endian, varints those of RFC 9000 §16. A batch that is cut short yields the entries before the cut.
//! Kind 3 is reserved: nobody sends it, and it is dropped as unknown.

use bytes::{BufMut, Bytes, BytesMut};

use crate::ids::{Slot, UtteranceId};

mod client;
mod codec;
mod heartbeat;
mod repeat;
#[cfg(test)]
mod tests;

pub use client::ClientView;
pub use codec::Codec;
pub use heartbeat::{Echo, Heartbeat};
pub use repeat::{Previous, Seen};

/// Largest batch: fits every path that carries QUIC, before MTU discovery.
///
/// 1200 (least UDP payload, RFC 9000 §14) - 1 (flags) - 8 (connection id) - 4 (packet number) - 16 (AEAD tag)
/// - 9 (frame type and longest length, and what quinn reserves) = 1162.
pub const MAX_BATCH_BYTES: usize = 1162;

/// b0 and clock32.
const HEAD_BYTES: usize = 5;
const VERSION: u8 = 1;
const KIND_MEDIA_UP: u8 = 0;
const KIND_MEDIA_DOWN: u8 = 1;
const KIND_HEARTBEAT: u8 = 2;
const KIND_PLAYOUT: u8 = 4;

const FLAGS_CODEC: u8 = 0x0f;
const FLAG_MARKER: u8 = 0x10;
const FLAG_EXT: u8 = 0x20;
const EXT_AUDIO_LEVEL: u8 = 1;

/// In the `underruns` of a report: its client part follows.
const FLAG_CLIENT: u16 = 0x8000;

/// Batches come out of blocks of this size, so that there is one allocation for at least 28 of them, and none when the
/// former ones have been sent by then: 32 KiB / 1162 = 28.
const BLOCK_BYTES: usize = 32 * 1024;

/// One audio frame from the edge, or to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaUp<'a> {
    /// Session on this connection.
    pub slot: Slot,
    /// Low byte of the session's epoch.
    pub epoch: u8,
    /// What codes the payload.
    pub codec: Codec,
    /// First packet of a talkspurt (RTP marker).
    pub marker: bool,
    /// RTP sequence number of the client; to the edge: counts the frames of the session.
    pub seq: u16,
    /// RTP timestamp of the client, 48 kHz; to the edge: sample of the utterance, low 32 bits.
    pub rtp_timestamp: u32,
    /// RFC 6464 level in -dBov, if sent (flag EXT).
    pub audio_level: Option<u8>,
    /// Microseconds since the packet reached the edge, or since the backend gave it (10 us units on the wire, saturating).
    pub age_us: u32,
    /// One packet of it.
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
    /// Times the queue ran empty in this utterance; saturates at 32767 on the wire.
    pub underruns: u16,
    /// What the edge knows of the client's end.
    pub client: Option<ClientView>,
}

/// A received batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch<'a> {
    /// Iterate with [`Frames`].
    MediaUp {
        /// Sender's clock.
        clock32: u32,
        /// Entries.
        frames: Frames<'a>,
    },
    /// Frames for clients; iterate with [`Frames`].
    MediaDown {
        /// Sender's clock.
        clock32: u32,
        /// Entries.
        frames: Frames<'a>,
    },
    /// The clocks and the path.
    Heartbeat(Heartbeat),
    /// Iterate with [`Reports`].
    Playout {
        /// Sender's clock.
        clock32: u32,
        /// Entries.
        reports: Reports<'a>,
    },
}

/// Why a datagram, or the rest of it, was dropped: a counter's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drop {
    /// Cut short.
    Truncated,
    /// Not version 1.
    Version,
    /// A kind not known here.
    Kind,
    /// A number out of its range.
    Range,
    /// A frame of a codec not known here.
    Codec,
}

impl Drop {
    /// The label of the counter.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "link_truncated",
            Self::Version => "link_version",
            Self::Kind => "link_kind",
            Self::Range => "link_range",
            Self::Codec => "link_codec",
        }
    }
}

/// Frames of a batch; yields `Err` for a frame of an unknown codec, and once at a cut entry, which ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames<'a> {
    rest: Reader<'a>,
}

/// Reports of a batch; yields `Err` once, at a cut entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reports<'a> {
    rest: Reader<'a>,
}

/// Reads the head of a batch.
///
/// # Errors
/// The reason to drop it.
pub fn parse(datagram: &[u8]) -> Result<Batch<'_>, Drop> {
    let mut rest = Reader(datagram);
    let b0 = rest.u8()?;
    if b0 >> 4 != VERSION {
        return Err(Drop::Version);
    }
    let kind = b0 & 0x0f;
    let clock32 = rest.u32()?;
    match kind {
        KIND_MEDIA_UP => Ok(Batch::MediaUp { clock32, frames: Frames { rest } }),
        KIND_MEDIA_DOWN => Ok(Batch::MediaDown { clock32, frames: Frames { rest } }),
        KIND_HEARTBEAT => Heartbeat::parse(clock32, rest).map(Batch::Heartbeat),
        KIND_PLAYOUT => Ok(Batch::Playout { clock32, reports: Reports { rest } }),
        _ => Err(Drop::Kind),
    }
}

/// Whether this is a heartbeat, which the link keeps for itself.
#[must_use]
pub fn is_heartbeat(datagram: &[u8]) -> bool {
    datagram.first() == Some(&(VERSION << 4 | KIND_HEARTBEAT))
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<MediaUp<'a>, Drop>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest.entry(Reader::frame)
    }
}

impl Iterator for Reports<'_> {
    type Item = Result<PlayoutReport, Drop>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest.entry(Reader::report)
    }
}

/// Collects entries of one kind into batches of at most [`MAX_BATCH_BYTES`].
#[derive(Debug)]
pub struct BatchWriter {
    kind: u8,
    /// The batch, its head included once there is an entry; at the front of a block that later batches use too.
    batch: BytesMut,
}

impl BatchWriter {
    /// An empty batch of frames from clients.
    #[must_use]
    pub fn media_up() -> Self {
        Self::new(KIND_MEDIA_UP)
    }

    /// An empty batch of frames for clients.
    #[must_use]
    pub fn media_down() -> Self {
        Self::new(KIND_MEDIA_DOWN)
    }

    /// An empty batch of playout reports.
    #[must_use]
    pub fn playout() -> Self {
        Self::new(KIND_PLAYOUT)
    }

    fn new(kind: u8) -> Self {
        Self { kind, batch: BytesMut::with_capacity(BLOCK_BYTES) }
    }

    /// Appends a frame; `false` when it does not fit: take the batch and push again. A frame alone larger than a batch
    /// never fits an empty one: send it as OversizeFrame. A batch of reports takes no frame.
    #[must_use]
    pub fn push_frame(&mut self, frame: &MediaUp<'_>) -> bool {
        debug_assert_ne!(self.kind, KIND_PLAYOUT, "frames go into a batch of frames");
        let ext_bytes = if frame.audio_level.is_some() { 4 } else { 0 };
        let payload_bytes = frame.payload.len() as u64;
        let bytes = varint_len(frame.slot.0.into()) + 10 + ext_bytes + varint_len(payload_bytes) + frame.payload.len();
        if self.kind == KIND_PLAYOUT || !self.begin(bytes) {
            return false;
        }
        let out = &mut self.batch;
        put_varint(out, frame.slot.0.into());
        let marker = if frame.marker { FLAG_MARKER } else { 0 };
        let ext = if frame.audio_level.is_some() { FLAG_EXT } else { 0 };
        out.put_u8(marker | ext | frame.codec.number());
        out.put_u8(frame.epoch);
        out.put_u16(frame.seq);
        out.put_u32(frame.rtp_timestamp);
        out.put_u16(u16::try_from(frame.age_us / 10).unwrap_or(u16::MAX));
        if let Some(level) = frame.audio_level {
            out.put_slice(&[3, EXT_AUDIO_LEVEL, 1, level]);
        }
        put_varint(out, payload_bytes);
        out.put_slice(frame.payload);
        true
    }

    /// Appends a report; `false` when it does not fit. A batch of frames takes no report.
    #[must_use]
    pub fn push_report(&mut self, report: &PlayoutReport) -> bool {
        debug_assert_eq!(self.kind, KIND_PLAYOUT, "reports go into a batch of reports");
        let sent = report.sent.min(VARINT_MAX);
        let limit = report.limit.min(VARINT_MAX);
        let bytes = varint_len(report.slot.0.into())
            + 1
            + varint_len(report.utterance.0.into())
            + varint_len(sent)
            + varint_len(limit)
            + 4
            + report.client.map_or(0, |client| client.bytes());
        if self.kind != KIND_PLAYOUT || !self.begin(bytes) {
            return false;
        }
        let out = &mut self.batch;
        put_varint(out, report.slot.0.into());
        out.put_u8(report.epoch);
        put_varint(out, report.utterance.0.into());
        put_varint(out, sent);
        put_varint(out, limit);
        out.put_u16(report.queue_ms);
        let flag = if report.client.is_some() { FLAG_CLIENT } else { 0 };
        out.put_u16(report.underruns.min(!FLAG_CLIENT) | flag);
        if let Some(client) = &report.client {
            client.write(out);
        }
        true
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Stamps the clock and hands the batch out, leaving an empty one.
    pub fn take(&mut self, clock32: u32) -> Bytes {
        if self.batch.is_empty() {
            self.put_head();
        }
        self.batch[1..HEAD_BYTES].copy_from_slice(&clock32.to_be_bytes());
        self.batch.split().freeze()
    }

    /// Makes room for an entry of `bytes`, with the head before the first one.
    fn begin(&mut self, bytes: usize) -> bool {
        if self.batch.len().max(HEAD_BYTES) + bytes > MAX_BATCH_BYTES {
            return false;
        }
        if self.batch.is_empty() {
            self.put_head();
        }
        true
    }

    fn put_head(&mut self) {
        if self.batch.capacity() < MAX_BATCH_BYTES {
            // Takes the block back when every batch cut from it has been sent, and allocates another otherwise.
            self.batch.reserve(BLOCK_BYTES);
        }
        self.batch.put_u8(VERSION << 4 | self.kind);
        self.batch.put_u32(0);
    }
}

/// Largest number of a varint of RFC 9000 §16.
const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes of a varint of RFC 9000 §16.
const fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes a varint of RFC 9000 §16; `value` is at most [`VARINT_MAX`].
fn put_varint(out: &mut BytesMut, value: u64) {
    let bytes = varint_len(value);
    let prefix = u64::from(bytes.trailing_zeros()) << (bytes * 8 - 2);
    out.put_uint(value | prefix, bytes);
}

/// What is left to read. Each read that fails has taken nothing that matters: the reader is emptied by its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next entry; after a cut one there is no next.
    fn entry<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Drop>) -> Option<Result<T, Drop>> {
        if self.0.is_empty() {
            return None;
        }
        let entry = read(self);
        if entry.as_ref().is_err_and(|drop| *drop != Drop::Codec) {
            self.0 = &[];
        }
        Some(entry)
    }

    fn frame(&mut self) -> Result<MediaUp<'a>, Drop> {
        let slot = Slot(self.varint32()?);
        let flags = self.u8()?;
        let epoch = self.u8()?;
        let seq = self.u16()?;
        let rtp_timestamp = self.u32()?;
        let age_us = u32::from(self.u16()?) * 10;
        let audio_level = if flags & FLAG_EXT == 0 { None } else { self.extensions()? };
        let len = usize::try_from(self.varint()?).map_err(|_| Drop::Range)?;
        let payload = self.take(len)?;
        let marker = flags & FLAG_MARKER != 0;
        // Read to its end, so that the frames behind it are heard.
        let codec = Codec::numbered(flags & FLAGS_CODEC).ok_or(Drop::Codec)?;
        Ok(MediaUp { slot, epoch, codec, marker, seq, rtp_timestamp, audio_level, age_us, payload })
    }

    /// The audio level among the extensions, if it is there.
    fn extensions(&mut self) -> Result<Option<u8>, Drop> {
        let len = self.u8()?;
        let mut tlvs = Reader(self.take(len.into())?);
        let mut audio_level = None;
        while !tlvs.0.is_empty() {
            let kind = tlvs.u8()?;
            let len = tlvs.u8()?;
            let value = tlvs.take(len.into())?;
            if let (EXT_AUDIO_LEVEL, [level]) = (kind, value) {
                audio_level = Some(*level);
            }
        }
        Ok(audio_level)
    }

    fn report(&mut self) -> Result<PlayoutReport, Drop> {
        let mut report = PlayoutReport {
            slot: Slot(self.varint32()?),
            epoch: self.u8()?,
            utterance: UtteranceId(self.varint32()?),
            sent: self.varint()?,
            limit: self.varint()?,
            queue_ms: self.u16()?,
            underruns: self.u16()?,
            client: None,
        };
        if report.underruns & FLAG_CLIENT != 0 {
            report.underruns &= !FLAG_CLIENT;
            report.client = Some(ClientView::read(self)?);
        }
        Ok(report)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Drop> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Drop::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Drop> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Drop::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Drop> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Drop> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Drop> {
        self.array().map(u32::from_be_bytes)
    }

    fn varint32(&mut self) -> Result<u32, Drop> {
        u32::try_from(self.varint()?).map_err(|_| Drop::Range)
    }

    /// RFC 9000 §16: the first two bits are the base-2 logarithm of the length.
    fn varint(&mut self) -> Result<u64, Drop> {
        let first = *self.0.first().ok_or(Drop::Truncated)?;
        let bytes = self.take(1 << (first >> 6))?;
        let head = u64::from(first & 0x3f);
        Ok(bytes[1..].iter().fold(head, |value, byte| value << 8 | u64::from(*byte)))
    }
}
