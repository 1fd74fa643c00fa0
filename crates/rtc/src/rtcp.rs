//! RTCP (RFC 3550 §6): our compound reports and what is read of the client's.
//!
//! Each second a session sends one compound packet: a sender report while it sends, else a receiver report, with a
//! block about each stream heard since the last one, and an SDES packet with our CNAME.
//!
//! Incoming compound packets are read part by part. They are authentic, which is not the same as well formed: a part
//! that contradicts itself is counted, the parts in front of it hold.

mod feedback;
mod nack;
mod parse;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub(crate) use feedback::Feedback;
pub(crate) use nack::Missing;
pub(crate) use parse::{Item, SenderInfo, parse};
pub(crate) use receive::ReceiveStats;
pub(crate) use send::SendStats;

/// Packet types (RFC 3550 §12.1).
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SDES: u8 = 202;
const BYE: u8 = 203;
/// Transport layer feedback (RFC 4585 §6.1).
const TRANSPORT_FEEDBACK: u8 = 205;

/// The count field of a report has five bits.
const MAX_BLOCKS: usize = 31;
/// SDES item type of the canonical name (RFC 3550 §6.5.1).
const CNAME: u8 = 1;

/// Seconds between 1900 (NTP) and 1970 (Unix).
const NTP_UNIX_OFFSET: u64 = 2_208_988_800;

/// Maps instants to NTP time (RFC 3550 §4). The base is an argument, because a session reads no clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtpClock {
    at: Instant,
    unix: Duration,
}

impl NtpClock {
    /// At instant `at` it was `unix` since 1970. Without a wall clock any base serves: round trips need differences only,
    /// and lip sync relates streams of one sender.
    pub(crate) fn new(at: Instant, unix: Duration) -> Self {
        Self { at, unix }
    }

    /// 32 bits of seconds, 32 bits of fraction. Instants before the base count as the base.
    pub(crate) fn ntp(&self, now: Instant) -> u64 {
        let unix = self.unix.saturating_add(now.saturating_duration_since(self.at));
        let fraction = (u64::from(unix.subsec_nanos()) << 32) / 1_000_000_000;
        unix.as_secs().wrapping_add(NTP_UNIX_OFFSET) << 32 | fraction
    }
}

/// The middle 32 bits of NTP time: 16 of seconds, 16 of fraction.
#[expect(clippy::cast_possible_truncation, reason = "the middle 32 bits are what is asked for")]
fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// What a receiver says about one stream (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportBlock {
    /// The stream's SSRC.
    pub(crate) ssrc: u32,
    /// Lost of those expected since the previous report, in 1/256.
    pub(crate) fraction_lost: u8,
    /// Lost since the beginning; negative with duplicates. 24 bits on the wire.
    pub(crate) cumulative_lost: i32,
    /// Sequence number cycles and the highest sequence number.
    pub(crate) highest_seq: u32,
    /// In units of the RTP timestamp.
    pub(crate) jitter: u32,
    /// Middle of the NTP time of the last sender report heard, 0 without one.
    pub(crate) last_sr: u32,
    /// Since that was heard, in 1/65536 s.
    pub(crate) delay_since_last_sr: u32,
}

impl ReportBlock {
    const LEN: usize = 24;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ssrc.to_be_bytes());
        let lost = self.cumulative_lost.clamp(-0x80_0000, 0x7f_ffff).to_be_bytes();
        out.extend_from_slice(&[self.fraction_lost, lost[1], lost[2], lost[3]]);
        for word in [self.highest_seq, self.jitter, self.last_sr, self.delay_since_last_sr] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }

    fn read(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            ssrc: word(0),
            fraction_lost: bytes[4],
            // Shifted up and down again for the sign of the 24 bits.
            cumulative_lost: i32::from_be_bytes([bytes[5], bytes[6], bytes[7], 0]) >> 8,
            highest_seq: word(8),
            jitter: word(12),
            last_sr: word(16),
            delay_since_last_sr: word(20),
        }
    }
}

/// Appends our compound report to `out`: SR or RR with a block for each of `received` that was heard since its last
/// report (31 at most), then SDES with `cname` (255 bytes at most). Begins the next reporting interval of all of them.
pub(crate) fn write_report<'a>(
    out: &mut Vec<u8>,
    now: Instant,
    clock: &NtpClock,
    cname: &str,
    sent: &mut SendStats,
    received: impl IntoIterator<Item = &'a mut ReceiveStats>,
) {
    let start = out.len();
    let sender_info = sent.begin_interval(now, clock);
    out.extend_from_slice(&[0x80, RECEIVER_REPORT, 0, 0]);
    out.extend_from_slice(&sent.ssrc().to_be_bytes());
    if let Some(info) = sender_info {
        out[start + 1] = SENDER_REPORT;
        info.write(out);
    }
    let blocks = received.into_iter().filter_map(|stream| stream.report(now)).take(MAX_BLOCKS);
    for block in blocks {
        block.write(out);
        out[start] += 1;
    }
    set_length(out, start);
    write_cname(out, sent.ssrc(), cname);
}

/// Appends an empty receiver report and SDES to `out`: what a compound packet begins with (RFC 3550 §6.1) that has something
/// else to say, and does not end an interval of anybody's.
pub(crate) fn write_empty_report(out: &mut Vec<u8>, ssrc: u32, cname: &str) {
    let start = out.len();
    out.extend_from_slice(&[0x80, RECEIVER_REPORT, 0, 0]);
    out.extend_from_slice(&ssrc.to_be_bytes());
    set_length(out, start);
    write_cname(out, ssrc, cname);
}

fn write_cname(out: &mut Vec<u8>, ssrc: u32, cname: &str) {
    let start = out.len();
    out.extend_from_slice(&[0x81, SDES, 0, 0]);
    out.extend_from_slice(&ssrc.to_be_bytes());
    let name = &cname.as_bytes()[..cname.len().min(255)];
    out.extend_from_slice(&[CNAME, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
    out.extend_from_slice(name);
    // RFC 3550 §6.5: at least one zero ends the chunk's items, more fill its last word.
    let padding = 4 - (out.len() - start) % 4;
    out.resize(out.len() + padding, 0);
    set_length(out, start);
}

/// Writes the length field of the packet from `start` to the end: words less one (RFC 3550 §6.4.1).
fn set_length(out: &mut [u8], start: usize) {
    let words = u16::try_from((out.len() - start) / 4 - 1).unwrap_or(u16::MAX);
    out[start + 2..start + 4].copy_from_slice(&words.to_be_bytes());
}
