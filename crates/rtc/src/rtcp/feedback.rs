//! Transport-wide feedback (draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1): which packets of ours reached the
//! client, and when.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |V=2|P|   15    |   PT = 205    |           length              |
//! |                     SSRC of packet sender                     |
//! |                      SSRC of media source                     |
//! |      base sequence number     |      packet status count      |
//! |                 reference time                | fb pkt. count |
//! |          packet chunk         |  ...                          |
//! |  recv delta   |  ...                                          |
//!
//! run length  |0| S |       run length        |    S: 0 not received, 1 small delta, 2 large or negative delta
//! vector      |1|0|  14 symbols of one bit    |    0 not received, 1 small delta
//! vector      |1|1|  7 symbols of two bits    |    as S
//! ```
//!
//! The reference time counts 64 ms (24 bits), deltas count 250 us: unsigned in one byte when small, signed in two when
//! large. In ticks of 250 us the client's clock therefore has 32 bits, and is read modulo 2^32 here.
//!
//! A message that contradicts itself is refused whole, before anything is read out of it.

use crate::Discard;

/// Type of the feedback message (RFC 4585 §6.1).
pub(super) const TRANSPORT_WIDE: u8 = 15;

/// Statuses in one message: 40 s of 20 ms packets, where a client tells at least each 250 ms. What claims more costs nothing.
const MAX_STATUSES: u16 = 2048;

/// Ticks of the client's clock in one unit of the reference time.
const REFERENCE_TICKS: u32 = 256;

/// One message, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Feedback<'a> {
    base: u16,
    count: u16,
    /// In ticks.
    reference: u32,
    chunks: &'a [[u8; 2]],
    deltas: &'a [u8],
}

/// What became of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// Its transport-wide sequence number.
    pub(crate) seq: u16,
    /// The client's clock at its arrival, in ticks of 250 us modulo 2^32. None: it had not come.
    pub(crate) arrived: Option<u32>,
}

impl<'a> Feedback<'a> {
    /// Reads what follows the common header. `padded`: the header says that there is padding (RFC 3550 §6.4.1).
    pub(super) fn read(body: &'a [u8], padded: bool) -> Result<Self, Discard> {
        let body = if padded {
            let padding = usize::from(*body.last().ok_or(Discard::RtpMalformed)?);
            let length = body.len().checked_sub(padding).filter(|_| padding > 0).ok_or(Discard::RtpMalformed)?;
            &body[..length]
        } else {
            body
        };
        let (_ssrcs, body) = body.split_first_chunk::<8>().ok_or(Discard::RtpMalformed)?;
        let (head, mut rest) = body.split_first_chunk::<8>().ok_or(Discard::RtpMalformed)?;
        let count = u16::from_be_bytes([head[2], head[3]]);
        if count == 0 || count > MAX_STATUSES {
            return Err(Discard::RtpMalformed);
        }
        let (all, mut left, mut bytes) = (rest, count, 0);
        while left > 0 {
            let (chunk, after) = rest.split_first_chunk::<2>().ok_or(Discard::RtpMalformed)?;
            rest = after;
            let mut chunk = Chunk::read(*chunk);
            // An empty run says nothing, and many would say it at length.
            let mut symbols = 0;
            while left > 0
                && let Some(symbol) = chunk.next()
            {
                bytes += symbol.delta_bytes().ok_or(Discard::RtpMalformed)?;
                left -= 1;
                symbols += 1;
            }
            if symbols == 0 {
                return Err(Discard::RtpMalformed);
            }
        }
        let chunks = &all[..all.len() - rest.len()];
        let (deltas, padding) = rest.split_at_checked(bytes).ok_or(Discard::RtpMalformed)?;
        // Some senders fill the last word without saying so.
        if padding.len() > 3 {
            return Err(Discard::RtpMalformed);
        }
        Ok(Self {
            base: u16::from_be_bytes([head[0], head[1]]),
            count,
            reference: u32::from_be_bytes([0, head[4], head[5], head[6]]).wrapping_mul(REFERENCE_TICKS),
            chunks: chunks.as_chunks().0,
            deltas,
        })
    }

    /// The statuses, by rising sequence number.
    pub(crate) fn statuses(&self) -> Statuses<'a> {
        Statuses {
            chunk: Chunk::Run { symbol: Symbol(0), left: 0 },
            chunks: self.chunks,
            deltas: self.deltas,
            clock: self.reference,
            seq: self.base,
            left: self.count,
        }
    }
}

/// See [`Feedback::statuses`].
#[derive(Debug, Clone)]
pub(crate) struct Statuses<'a> {
    chunk: Chunk,
    chunks: &'a [[u8; 2]],
    deltas: &'a [u8],
    clock: u32,
    seq: u16,
    left: u16,
}

impl Iterator for Statuses<'_> {
    type Item = Status;

    fn next(&mut self) -> Option<Status> {
        self.left = self.left.checked_sub(1)?;
        let symbol = loop {
            if let Some(symbol) = self.chunk.next() {
                break symbol;
            }
            let (chunk, rest) = self.chunks.split_first()?;
            self.chunk = Chunk::read(*chunk);
            self.chunks = rest;
        };
        let (delta, rest) = self.deltas.split_at_checked(symbol.delta_bytes()?)?;
        self.deltas = rest;
        let arrived = match *delta {
            [small] => Some(u32::from(small)),
            [high, low] => Some(i32::from(i16::from_be_bytes([high, low])).cast_unsigned()),
            _ => None,
        };
        let arrived = arrived.map(|delta| {
            self.clock = self.clock.wrapping_add(delta);
            self.clock
        });
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        Some(Status { seq, arrived })
    }
}

/// How one packet is told, 0 to 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Symbol(u8);

impl Symbol {
    /// Length of its delta; None for the reserved symbol.
    fn delta_bytes(self) -> Option<usize> {
        Some(usize::from(self.0)).filter(|bytes| *bytes < 3)
    }
}

/// What is left of a packet chunk.
#[derive(Debug, Clone, Copy)]
enum Chunk {
    Run { symbol: Symbol, left: u16 },
    Vector { bits: u16, width: u32, left: u16 },
}

impl Chunk {
    fn read(bytes: [u8; 2]) -> Self {
        let word = u16::from_be_bytes(bytes);
        match word >> 14 {
            0 | 1 => Self::Run { symbol: Symbol(bytes[0] >> 5 & 3), left: word & 0x1fff },
            2 => Self::Vector { bits: word << 2, width: 1, left: 14 },
            _ => Self::Vector { bits: word << 2, width: 2, left: 7 },
        }
    }

    fn next(&mut self) -> Option<Symbol> {
        match self {
            Self::Run { symbol, left } => {
                *left = left.checked_sub(1)?;
                Some(*symbol)
            }
            Self::Vector { bits, width, left } => {
                *left = left.checked_sub(1)?;
                let [high, _] = bits.to_be_bytes();
                *bits <<= *width;
                Some(Symbol(high >> (8 - *width)))
            }
        }
    }
}
