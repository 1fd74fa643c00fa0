//! Reading compound packets (RFC 3550 §6.1, reduced size too: RFC 5506).

use super::feedback::{self, Feedback};
use super::{BYE, RECEIVER_REPORT, ReportBlock, SENDER_REPORT, TRANSPORT_FEEDBACK};
use crate::Discard;

/// The sender's part of a sender report (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SenderInfo {
    /// 32 bits of seconds since 1900, 32 bits of fraction.
    pub(crate) ntp: u64,
    /// The same instant on the stream's clock.
    pub(crate) rtp_timestamp: u32,
    /// RTP packets sent.
    pub(crate) packets: u32,
    /// Payload bytes sent.
    pub(crate) octets: u32,
}

impl SenderInfo {
    const LEN: usize = 20;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ntp.to_be_bytes());
        for word in [self.rtp_timestamp, self.packets, self.octets] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    fn read(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            ntp: u64::from(word(0)) << 32 | u64::from(word(4)),
            rtp_timestamp: word(8),
            packets: word(12),
            octets: word(16),
        }
    }
}

/// One thing that a compound packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A sender report's own part; its blocks follow as items of their own.
    SenderReport {
        /// Who sends.
        ssrc: u32,
        /// Its clock and counts.
        info: SenderInfo,
    },
    /// A block of a sender or receiver report.
    Block(ReportBlock),
    /// Which of our packets came, and when.
    Feedback(Feedback<'a>),
    /// This stream ends, and no other.
    Bye {
        /// Which.
        ssrc: u32,
    },
}

/// Reads a plain compound packet: its items in order, with an error for each part that contradicts itself.
/// SDES, APP, XR, other feedback and types unknown here are skipped by their length.
pub(crate) fn parse(compound: &[u8]) -> Parse<'_> {
    Parse { rest: compound, words: Words::None }
}

/// See [`parse`].
#[derive(Debug, Clone)]
pub(crate) struct Parse<'a> {
    rest: &'a [u8],
    words: Words<'a>,
}

/// What is left of the list in the part being read.
#[derive(Debug, Clone)]
enum Words<'a> {
    None,
    Blocks(&'a [[u8; ReportBlock::LEN]]),
    Byes(&'a [[u8; 4]]),
}

impl<'a> Iterator for Parse<'a> {
    type Item = Result<Item<'a>, Discard>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.words {
                Words::Blocks([block, rest @ ..]) => {
                    self.words = Words::Blocks(rest);
                    return Some(Ok(Item::Block(ReportBlock::read(block))));
                }
                Words::Byes([ssrc, rest @ ..]) => {
                    self.words = Words::Byes(rest);
                    return Some(Ok(Item::Bye { ssrc: u32::from_be_bytes(*ssrc) }));
                }
                _ => {}
            }
            if self.rest.is_empty() {
                return None;
            }
            match self.part() {
                Ok(None) => {}
                Ok(Some(item)) => return Some(Ok(item)),
                Err(discard) => return Some(Err(discard)),
            }
        }
    }
}

impl<'a> Parse<'a> {
    /// Takes the next part off the front.
    fn part(&mut self) -> Result<Option<Item<'a>>, Discard> {
        self.words = Words::None;
        let rest = std::mem::take(&mut self.rest);
        let [first, kind, high, low, ..] = *rest else { return Err(Discard::RtpMalformed) };
        let length = 4 + usize::from(u16::from_be_bytes([high, low])) * 4;
        // Without a version or an end that can be trusted there is no next part to go on with.
        if first >> 6 != 2 || rest.len() < length {
            return Err(Discard::RtpMalformed);
        }
        let (part, next) = rest.split_at(length);
        self.rest = next;

        let count = usize::from(first & 0x1f);
        let body = &part[4..];
        match kind {
            SENDER_REPORT => {
                let (ssrc, body) = body.split_first_chunk::<4>().ok_or(Discard::RtpMalformed)?;
                let (info, body) = body.split_first_chunk::<{ SenderInfo::LEN }>().ok_or(Discard::RtpMalformed)?;
                self.words = Words::Blocks(take(body, count)?);
                Ok(Some(Item::SenderReport { ssrc: u32::from_be_bytes(*ssrc), info: SenderInfo::read(info) }))
            }
            RECEIVER_REPORT => {
                let (_, body) = body.split_first_chunk::<4>().ok_or(Discard::RtpMalformed)?;
                self.words = Words::Blocks(take(body, count)?);
                Ok(None)
            }
            BYE => {
                self.words = Words::Byes(take(body, count)?);
                Ok(None)
            }
            // The count field is the type of a feedback message.
            TRANSPORT_FEEDBACK if count == usize::from(feedback::TRANSPORT_WIDE) => {
                Feedback::read(body, first & 0x20 != 0).map(|feedback| Some(Item::Feedback(feedback)))
            }
            _ => Ok(None),
        }
    }
}

/// The first `count` entries of a list; what follows them is a profile's extension or a reason text.
fn take<const N: usize>(body: &[u8], count: usize) -> Result<&[[u8; N]], Discard> {
    body.as_chunks::<N>().0.get(..count).ok_or(Discard::RtpMalformed)
}
