//! RTP packets (RFC 3550 §5.1) with header extensions (RFC 8285), read in place and written.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |V=2|P|X|  CC   |M|     PT      |       sequence number         |
//! |                           timestamp                           |
//! |                             SSRC                              |
//! |                     CSRC, CC of them                          |
//! |      0xBEDE or 0x1000..0x100F |       length in words         |  with X
//! |                       extension elements                      |
//! |                          payload                 | pad | count |  count with P
//! ```
//!
//! A packet whose bounds contradict each other is refused whole. A header extension that does so only loses
//! the elements from the contradiction on: the audio behind it is still good.

#[cfg(test)]
mod tests;

use crate::Discard;

/// Length of the fixed header.
pub(crate) const FIXED_HEADER: usize = 12;

/// One RTP packet, borrowed from its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) marker: bool,
    pub(crate) payload_type: u8,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    pub(crate) ssrc: u32,
    /// Without padding. Empty for a packet that is all padding: it counts for sequence and loss and is never decoded.
    pub(crate) payload: &'a [u8],
    extension: Extension<'a>,
}

/// The elements of a header extension, unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension<'a> {
    None,
    /// RFC 8285 §4.2.
    OneByte(&'a [u8]),
    /// RFC 8285 §4.3.
    TwoByte(&'a [u8]),
}

impl<'a> Packet<'a> {
    /// Reads a plain packet.
    pub(crate) fn parse(packet: &'a [u8]) -> Result<Self, Discard> {
        let header = header_len(packet)?;
        let fixed = packet.first_chunk::<FIXED_HEADER>().ok_or(Discard::RtpMalformed)?;
        let body = packet.get(header..).ok_or(Discard::RtpMalformed)?;
        let payload = if fixed[0] & 0x20 == 0 {
            body
        } else {
            // RFC 3550 §5.1: the count includes itself, so 0 is as wrong as one that reaches into the header.
            let count = usize::from(*body.last().ok_or(Discard::RtpMalformed)?);
            match body.len().checked_sub(count) {
                Some(length) if count > 0 => &body[..length],
                _ => return Err(Discard::RtpMalformed),
            }
        };
        Ok(Self {
            marker: fixed[1] & 0x80 != 0,
            payload_type: fixed[1] & 0x7f,
            seq: u16::from_be_bytes([fixed[2], fixed[3]]),
            timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            payload,
            extension: Extension::of(packet, header),
        })
    }

    /// The data of the first extension element `id`, e.g. the mid (RFC 9143 §15).
    pub(crate) fn extension(&self, id: u8) -> Option<&'a [u8]> {
        Elements(self.extension).find(|element| element.0 == id).map(|element| element.1)
    }

    /// RFC 6464 §3: the level in -dBov, 0 loud, 127 silent. The voice activity bit is the client's opinion and left out.
    pub(crate) fn audio_level(&self, id: u8) -> Option<u8> {
        self.extension(id)?.first().map(|level| level & 0x7f)
    }
}

impl<'a> Extension<'a> {
    /// `header` is what [`header_len`] found for `packet`.
    fn of(packet: &'a [u8], header: usize) -> Self {
        if packet[0] & 0x10 == 0 {
            return Self::None;
        }
        let start = FIXED_HEADER + csrc_len(packet[0]);
        match packet.get(start..header) {
            Some([0xbe, 0xde, _, _, elements @ ..]) => Self::OneByte(elements),
            // The low four bits of the profile are for the application (RFC 8285 §4.3).
            Some([0x10, 0x00..=0x0f, _, _, elements @ ..]) => Self::TwoByte(elements),
            _ => Self::None,
        }
    }
}

/// Walks the elements; ends at the first that is reserved or runs past the block.
struct Elements<'a>(Extension<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Extension::None => None,
            Extension::OneByte(rest) => {
                let [first, tail @ ..] = skip_padding(rest) else { return None };
                let (id, length) = (first >> 4, usize::from(first & 0x0f) + 1);
                // RFC 8285 §4.2: 15 ends the block, and 0 is padding, which has no length.
                if id == 0 || id == 15 || tail.len() < length {
                    *rest = &[];
                    return None;
                }
                let (data, next) = tail.split_at(length);
                *rest = next;
                Some((id, data))
            }
            Extension::TwoByte(rest) => {
                let [id, length, tail @ ..] = skip_padding(rest) else { return None };
                if tail.len() < usize::from(*length) {
                    *rest = &[];
                    return None;
                }
                let (data, next) = tail.split_at(usize::from(*length));
                *rest = next;
                Some((*id, data))
            }
        }
    }
}

fn skip_padding(elements: &[u8]) -> &[u8] {
    let start = elements.iter().position(|byte| *byte != 0).unwrap_or(elements.len());
    &elements[start..]
}

fn csrc_len(first: u8) -> usize {
    usize::from(first & 0x0f) * 4
}

/// How many bytes in front of the payload are sent in the clear: fixed header, CSRCs and extension block.
pub(crate) fn header_len(packet: &[u8]) -> Result<usize, Discard> {
    let first = *packet.first().ok_or(Discard::RtpMalformed)?;
    if first >> 6 != 2 {
        return Err(Discard::RtpMalformed);
    }
    let mut length = FIXED_HEADER + csrc_len(first);
    if first & 0x10 != 0 {
        let [_, _, high, low, ..] = packet.get(length..).ok_or(Discard::RtpMalformed)? else {
            return Err(Discard::RtpMalformed);
        };
        length += 4 + usize::from(u16::from_be_bytes([*high, *low])) * 4;
    }
    if packet.len() < length { Err(Discard::RtpMalformed) } else { Ok(length) }
}

/// A transport-wide sequence number and the id of its header extension, 1 to 14
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransportSeq {
    pub(crate) id: u8,
    pub(crate) seq: u16,
}

/// The header of a packet of ours: no CSRC, no padding, and one extension element at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) marker: bool,
    pub(crate) payload_type: u8,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    pub(crate) ssrc: u32,
    pub(crate) transport_seq: Option<TransportSeq>,
}

impl Header {
    /// Appends the header to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut bytes = [0; FIXED_HEADER];
        bytes[0] = 0x80;
        bytes[1] = u8::from(self.marker) << 7 | self.payload_type & 0x7f;
        bytes[2..4].copy_from_slice(&self.seq.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[8..].copy_from_slice(&self.ssrc.to_be_bytes());
        out.extend_from_slice(&bytes);
        if let Some(TransportSeq { id, seq }) = self.transport_seq {
            out[start] |= 0x10;
            let [high, low] = seq.to_be_bytes();
            // RFC 8285 §4.2: one word, of which the element has two bytes of data and one of padding behind it.
            out.extend_from_slice(&[0xbe, 0xde, 0, 1, id << 4 | 1, high, low, 0]);
        }
    }
}
