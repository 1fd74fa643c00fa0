//! What we know of a stream that we receive (RFC 3550 §6.4.1, appendices A.1, A.3 and A.8).

use std::time::{Duration, Instant};

use super::{ReportBlock, SenderInfo, middle};

/// A sequence number this far ahead is still a gap; beyond it, the numbering may have restarted.
const MAX_DROPOUT: u16 = 3000;
/// One this far behind is still a late packet.
const MAX_MISORDER: u16 = 100;
/// A change of the transit time beyond this many seconds is a new time base (a client that mutes may stop its
/// timestamps for minutes), not jitter.
const MAX_TRANSIT_STEP_S: u32 = 2;

/// Sequence, loss and jitter of one SSRC.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveStats {
    ssrc: u32,
    clock_rate: u32,
    /// Absent until the first packet: every authenticated packet counts, so there is no probation.
    sequence: Option<Sequence>,
    /// Arrival times are relative to this.
    epoch: Instant,
    /// Arrival less timestamp of the previous packet, in ticks.
    transit: u32,
    /// Sixteen times the jitter.
    jitter: u32,
    last_sr: Option<(u32, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct Sequence {
    base: u32,
    /// Cycles in the upper half.
    highest: u32,
    received: u32,
    /// Where a restarted numbering would go on.
    restart: Option<u16>,
    expected_prior: u32,
    received_prior: u32,
}

impl ReceiveStats {
    /// The client's stream `ssrc` with an RTP clock of `clock_rate` Hz, first heard at `now`.
    pub(crate) fn new(now: Instant, ssrc: u32, clock_rate: u32) -> Self {
        Self { ssrc, clock_rate, sequence: None, epoch: now, transit: 0, jitter: 0, last_sr: None }
    }

    /// Counts a packet of this stream after it was authenticated.
    pub(crate) fn on_packet(&mut self, now: Instant, seq: u16, rtp_timestamp: u32) {
        let transit = ticks(now.saturating_duration_since(self.epoch), self.clock_rate).wrapping_sub(rtp_timestamp);
        match &mut self.sequence {
            Some(sequence) => {
                if !sequence.update(seq) {
                    return;
                }
                // RFC 3550 A.8: J += (|D| - J) / 16, with J kept sixteenfold.
                let step = transit.wrapping_sub(self.transit).cast_signed().unsigned_abs();
                if step <= self.clock_rate.saturating_mul(MAX_TRANSIT_STEP_S) {
                    self.jitter = self.jitter + step - ((self.jitter + 8) >> 4);
                }
            }
            sequence @ None => *sequence = Some(Sequence::new(seq)),
        }
        self.transit = transit;
    }

    /// Counts a packet whose timestamp is not that of its sending: an event, comfort noise.
    pub(crate) fn on_untimed(&mut self, seq: u16) {
        match &mut self.sequence {
            Some(sequence) => {
                sequence.update(seq);
            }
            sequence @ None => *sequence = Some(Sequence::new(seq)),
        }
    }

    /// Takes the sender report of this stream (RFC 3550 §6.4.1: LSR, DLSR).
    pub(crate) fn on_sender_report(&mut self, now: Instant, info: &SenderInfo) {
        self.last_sr = Some((middle(info.ntp), now));
    }

    /// Which stream this is.
    pub(crate) fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Cycles and the highest sequence number, once a packet came.
    pub(crate) fn highest_seq(&self) -> Option<u32> {
        self.sequence.map(|sequence| sequence.highest)
    }

    /// Expected less received (RFC 3550 A.3); negative with duplicates.
    pub(crate) fn cumulative_lost(&self) -> i32 {
        self.sequence.map_or(0, |sequence| sequence.expected().wrapping_sub(sequence.received).cast_signed())
    }

    /// In ticks of the RTP clock (RFC 3550 A.8).
    pub(crate) fn jitter(&self) -> u32 {
        self.jitter >> 4
    }

    /// The block for our next report, and the start of its next interval. None when nothing came since the last one.
    pub(super) fn report(&mut self, now: Instant) -> Option<ReportBlock> {
        let (cumulative_lost, jitter) = (self.cumulative_lost(), self.jitter());
        let sequence = self.sequence.as_mut()?;
        if sequence.received == sequence.received_prior {
            return None;
        }
        let fraction_lost = sequence.begin_interval();
        let (last_sr, delay_since_last_sr) = self.last_sr.map_or((0, 0), |(last_sr, at)| {
            let delay = (now.saturating_duration_since(at).as_nanos() << 16) / 1_000_000_000;
            (last_sr, u32::try_from(delay).unwrap_or(u32::MAX))
        });
        Some(ReportBlock {
            ssrc: self.ssrc,
            fraction_lost,
            cumulative_lost,
            highest_seq: sequence.highest,
            jitter,
            last_sr,
            delay_since_last_sr,
        })
    }
}

/// So long in ticks of a clock of so many Hz, modulo 2^32 as RTP timestamps are.
#[expect(clippy::cast_possible_truncation, reason = "RTP timestamps are modulo 2^32")]
fn ticks(elapsed: Duration, clock_rate: u32) -> u32 {
    let rate = u64::from(clock_rate);
    let whole = elapsed.as_secs().wrapping_mul(rate);
    whole.wrapping_add(u64::from(elapsed.subsec_nanos()) * rate / 1_000_000_000) as u32
}

impl Sequence {
    fn new(seq: u16) -> Self {
        let base = u32::from(seq);
        Self { base, highest: base, received: 1, restart: None, expected_prior: 0, received_prior: 0 }
    }

    /// RFC 3550 A.1 without probation. False for the first packet of what may be a restart.
    fn update(&mut self, seq: u16) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the sequence number")]
        let delta = seq.wrapping_sub(self.highest as u16);
        if delta < MAX_DROPOUT {
            self.highest = self.highest.wrapping_add(u32::from(delta));
        } else if delta <= u16::MAX - MAX_MISORDER {
            // Two in a row after a large jump: the client restarted without telling.
            if self.restart != Some(seq) {
                self.restart = Some(seq.wrapping_add(1));
                return false;
            }
            *self = Self { received: 0, ..Self::new(seq) };
        }
        self.restart = None;
        self.received = self.received.wrapping_add(1);
        true
    }

    fn expected(&self) -> u32 {
        self.highest.wrapping_sub(self.base).wrapping_add(1)
    }

    /// The fraction lost since the last call (RFC 3550 A.3).
    fn begin_interval(&mut self) -> u8 {
        let expected = self.expected().wrapping_sub(self.expected_prior);
        let received = self.received.wrapping_sub(self.received_prior);
        self.expected_prior = self.expected();
        self.received_prior = self.received;
        let lost = expected.saturating_sub(received);
        if expected == 0 { 0 } else { u8::try_from(u64::from(lost) * 256 / u64::from(expected)).unwrap_or(u8::MAX) }
    }
}
