//! What we know of the stream that we send.

use std::time::{Duration, Instant};

use super::{NtpClock, ReportBlock, SenderInfo, middle};

/// Counts for sender reports, and what the client reports back.
#[derive(Debug, Clone)]
pub(crate) struct SendStats {
    ssrc: u32,
    clock_rate: u32,
    packets: u32,
    octets: u32,
    last: Option<(Instant, u32)>,
    /// Packets sent in this reporting interval and in the one before.
    interval: [u32; 2],
    reported_lost: u32,
    rtt: Option<Duration>,
}

impl SendStats {
    /// Our stream `ssrc` with an RTP clock of `clock_rate` Hz.
    pub(crate) fn new(ssrc: u32, clock_rate: u32) -> Self {
        Self { ssrc, clock_rate, packets: 0, octets: 0, last: None, interval: [0; 2], reported_lost: 0, rtt: None }
    }

    /// Counts a packet as it leaves.
    pub(crate) fn on_packet(&mut self, now: Instant, rtp_timestamp: u32, payload_len: usize) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(u32::try_from(payload_len).unwrap_or(u32::MAX));
        self.last = Some((now, rtp_timestamp));
        self.interval[0] = self.interval[0].saturating_add(1);
    }

    /// Takes a block of the client's; blocks about other streams change nothing (RFC 3550 §6.4.1).
    pub(crate) fn on_block(&mut self, now: Instant, clock: &NtpClock, block: &ReportBlock) {
        if block.ssrc != self.ssrc {
            return;
        }
        self.reported_lost = u32::try_from(block.cumulative_lost).unwrap_or(0);
        if block.last_sr != 0 {
            let trip = middle(clock.ntp(now)).wrapping_sub(block.last_sr).wrapping_sub(block.delay_since_last_sr);
            // The upper half of the range is a trip that ended before it began: clocks that round, or a client that lies.
            let trip = if trip < 1 << 31 { trip } else { 0 };
            self.rtt = Some(Duration::from_nanos((u64::from(trip) * 1_000_000_000) >> 16));
        }
    }

    /// Which stream this is.
    pub(crate) fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Our packets that the client lost since the beginning, by its last report.
    pub(crate) fn reported_lost(&self) -> u32 {
        self.reported_lost
    }

    /// Round trip of the last report that allowed to tell.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// The sender's part of a report, if we sent in the interval that ends here or in the one before (RFC 3550 §6.4).
    pub(super) fn begin_interval(&mut self, now: Instant, clock: &NtpClock) -> Option<SenderInfo> {
        let active = self.interval != [0; 2];
        self.interval = [0, self.interval[0]];
        let (at, timestamp) = self.last.filter(|_| active)?;
        let ticks = now.saturating_duration_since(at).as_nanos() * u128::from(self.clock_rate) / 1_000_000_000;
        #[expect(clippy::cast_possible_truncation, reason = "RTP timestamps are modulo 2^32")]
        let rtp_timestamp = timestamp.wrapping_add(ticks as u32);
        Some(SenderInfo { ntp: clock.ntp(now), rtp_timestamp, packets: self.packets, octets: self.octets })
    }
}
