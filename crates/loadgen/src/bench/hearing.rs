//! What one caller hears, by RTP time: how late each packet is against the sender's clock, how evenly they come, and what
//! is missing.

use std::time::Instant;

use super::media::Opened;

/// Nanoseconds of 48,000 ticks of the RTP clock, over 48,000: 62,500/3.
const NANOS_PER_3_TICKS: i64 = 62_500;

/// Ticks of one frame.
const FRAME_TICKS: i64 = 960;

/// What was heard inside the measured window.
#[derive(Debug, Default, Clone)]
pub(crate) struct Heard {
    pub(crate) received: u64,
    /// Sequence numbers that never came.
    pub(crate) lost: u64,
    /// Frames of 20 ms for which no packet was sent, from the window's first packet to its last.
    pub(crate) silent: u64,
    /// Arrival less RTP time, in nanoseconds from an origin of its own.
    pub(crate) offsets: Vec<i64>,
    /// By how much the time between two packets of one stretch of sound differs from that of their timestamps, in nanoseconds.
    pub(crate) spacing: Vec<u32>,
    /// From the last frame of a turn of ours to the first sound of the reply, in nanoseconds.
    pub(crate) replies: Vec<u32>,
    /// Turns of ours that ended.
    pub(crate) turns: u64,
}

#[derive(Clone, Copy)]
struct Last {
    seq: u16,
    timestamp: u32,
    arrived: Instant,
}

/// One caller's ear.
pub(crate) struct Hearing {
    origin: Instant,
    /// RTP time of the last packet since the first.
    ticks: i64,
    last: Option<Last>,
    /// Our turn ended then, and nothing was said since.
    waiting: Option<Instant>,
    heard: Heard,
}

impl Hearing {
    pub(crate) fn new(now: Instant) -> Self {
        Self { origin: now, ticks: 0, last: None, waiting: None, heard: Heard::default() }
    }

    /// The last frame of a turn leaves now.
    pub(crate) fn turn_ended(&mut self, now: Instant, measured: bool) {
        self.waiting = measured.then_some(now);
        self.heard.turns += u64::from(measured);
    }

    /// A packet. What is older than the last one, or is it again, changes nothing.
    pub(crate) fn packet(&mut self, now: Instant, packet: &Opened, measured: bool) {
        let last = self.last;
        let steps = last.map_or(1, |last| i64::from(signed16(packet.seq.wrapping_sub(last.seq))));
        if steps <= 0 {
            return;
        }
        let ticks = last.map_or(0, |last| i64::from(packet.timestamp.wrapping_sub(last.timestamp)));
        self.ticks += ticks;
        self.last = Some(Last { seq: packet.seq, timestamp: packet.timestamp, arrived: now });
        if !packet.silence
            && let Some(since) = self.waiting.take()
        {
            self.heard.replies.push(nanos32(now.saturating_duration_since(since).as_nanos()));
        }
        if !measured {
            return;
        }
        let heard = &mut self.heard;
        let first = heard.received == 0;
        heard.received += 1;
        let since = i64::try_from(now.saturating_duration_since(self.origin).as_nanos()).unwrap_or(i64::MAX);
        heard.offsets.push(since - nanos(self.ticks));
        let (Some(last), false) = (last, first) else { return };
        let slots = ticks / FRAME_TICKS;
        heard.lost += u64::try_from(steps - 1).unwrap_or(0);
        heard.silent += u64::try_from(slots - steps).unwrap_or(0);
        if steps == 1 && slots == 1 {
            let took = i64::try_from(now.saturating_duration_since(last.arrived).as_nanos()).unwrap_or(i64::MAX);
            heard.spacing.push(nanos32((took - nanos(ticks)).unsigned_abs().into()));
        }
    }

    /// What was heard, starting anew.
    pub(crate) fn take_heard(&mut self) -> Heard {
        std::mem::take(&mut self.heard)
    }
}

impl Heard {
    /// By how much packets are later than the quickest, in nanoseconds.
    pub(crate) fn lateness(&self) -> impl Iterator<Item = u32> + '_ {
        let quickest = self.offsets.iter().min().copied().unwrap_or_default();
        self.offsets.iter().map(move |offset| nanos32((offset - quickest).unsigned_abs().into()))
    }

    /// By how much the sender's clock fell behind ours from the first tenth of the window to the last: medians, in
    /// microseconds. None of too few packets.
    pub(crate) fn drift_us(&self) -> Option<f64> {
        let tenth = self.offsets.len() / 10;
        let median = |part: &[i64]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part.get(part.len() / 2).copied()
        };
        let (first, last) = (median(&self.offsets[..tenth])?, median(&self.offsets[self.offsets.len() - tenth..])?);
        Some((last - first) as f64 / 1000.0)
    }
}

fn nanos(ticks: i64) -> i64 {
    ticks.saturating_mul(NANOS_PER_3_TICKS) / 3
}

fn nanos32(nanos: u128) -> u32 {
    u32::try_from(nanos).unwrap_or(u32::MAX)
}

/// RFC 3550 sequence numbers are modulo 2^16.
fn signed16(difference: u16) -> i16 {
    difference.cast_signed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn opened(seq: u16, timestamp: u32) -> Opened {
        Opened { seq, timestamp, silence: false, count: None }
    }

    #[test]
    fn lateness_and_spacing_are_against_the_senders_clock() {
        let origin = Instant::now();
        let mut hearing = Hearing::new(origin);
        for (n, late_us) in (0_u16..).zip([300, 0, 1000, 0]) {
            let at = origin + Duration::from_millis(20) * u32::from(n) + Duration::from_micros(500 + late_us);
            hearing.packet(
                at,
                &opened(65_534_u16.wrapping_add(n), (u32::MAX - 100).wrapping_add(960 * u32::from(n))),
                true,
            );
        }
        let heard = hearing.take_heard();
        assert_eq!(heard.lateness().collect::<Vec<_>>(), [300_000, 0, 1_000_000, 0]);
        assert_eq!(heard.spacing, [300_000, 1_000_000, 1_000_000]);
        assert_eq!((heard.received, heard.lost, heard.silent), (4, 0, 0));
    }

    #[test]
    fn what_was_lost_and_what_was_never_sent_are_told_apart() {
        let now = Instant::now();
        let mut hearing = Hearing::new(now);
        for (seq, slot) in [(0, 0), (1, 1), (3, 3), (3, 3), (2, 2), (4, 9)] {
            hearing.packet(now, &opened(seq, 960 * slot), true);
        }
        let heard = hearing.take_heard();
        assert_eq!((heard.received, heard.lost, heard.silent), (4, 1, 5));
    }

    #[test]
    fn a_reply_is_timed_from_the_end_of_the_turn_to_its_first_sound() {
        let now = Instant::now();
        let mut hearing = Hearing::new(now);
        hearing.turn_ended(now, true);
        hearing.packet(now + Duration::from_millis(100), &Opened { silence: true, ..opened(0, 0) }, true);
        hearing.packet(now + Duration::from_millis(700), &opened(1, 28_800), true);
        hearing.packet(now + Duration::from_millis(720), &opened(2, 29_760), true);
        let heard = hearing.take_heard();
        assert_eq!((heard.turns, heard.replies), (1, vec![700_000_000]));
    }

    #[test]
    fn a_clock_that_is_slow_by_100_ppm_drifts() {
        let now = Instant::now();
        let mut hearing = Hearing::new(now);
        for n in 0_u16..1000 {
            hearing.packet(now + Duration::from_micros(20_002) * u32::from(n), &opened(n, 960 * u32::from(n)), true);
        }
        let drift = hearing.take_heard().drift_us().unwrap();
        assert!((1700.0..1900.0).contains(&drift), "{drift}");
        assert_eq!(Heard::default().drift_us(), None);
    }
}
