//! Asking for packets again (RFC 4585 §6.2.1).
//!
//! ```text
//! |V=2|P| FMT=1 |   PT=205      |          length               |
//! |                  SSRC of the sender: ours                   |
//! |                  SSRC of the media: the client's            |
//! |            PID                |             BLP             |  for each: a packet, and the 16 behind it
//! ```
//!
//! A gap in the sequence is asked for in the turn that shows it, once more when what was asked for should have come, and
//! then no more: a listener that waits at most 60 ms, and takes corrections for 400, has no use for a third time.

use std::time::{Duration, Instant};

use super::set_length;

/// RTPFB (RFC 4585 §6.1).
const TRANSPORT_FEEDBACK: u8 = 205;
/// FMT of generic NACK.
const GENERIC: u8 = 1;

/// Times that a packet is asked for.
const REQUESTS: u8 = 2;
/// Packets missing at once. 64 of 20 ms are 1.3 s; a longer gap is an outage, and nobody waits for what it held.
const MISSING_MAX: usize = 64;
/// After this long a packet is not waited for any more: later than any correction is taken.
const FORGET: Duration = Duration::from_millis(500);
/// Between two requests until it is known how long an answer takes, and the least from then on.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_MIN: Duration = Duration::from_millis(20);

/// What is missing of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Missing {
    ssrc: u32,
    highest: Option<u16>,
    /// In the order of their numbers.
    packets: Vec<Packet>,
    /// From the request to the packet, smoothed.
    repair_time: Option<Duration>,
    /// To the client and back, once it is known.
    round_trip: Option<Duration>,
    requested: u64,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    seq: u16,
    since: Instant,
    requests: u8,
    due: Option<Instant>,
}

impl Missing {
    /// To the client and back, as it was measured last.
    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// A packet came. Another stream begins anew.
    pub(crate) fn on_packet(&mut self, now: Instant, ssrc: u32, seq: u16) {
        if self.ssrc != ssrc {
            (self.ssrc, self.highest) = (ssrc, None);
            self.packets.clear();
        }
        let Some(highest) = self.highest else {
            self.highest = Some(seq);
            return;
        };
        let ahead = seq.wrapping_sub(highest);
        if ahead == 0 || ahead >= 1 << 15 {
            self.found(now, seq);
            return;
        }
        self.highest = Some(seq);
        if usize::from(ahead) > MISSING_MAX {
            self.packets.clear();
            return;
        }
        for step in 1..ahead {
            if self.packets.len() == MISSING_MAX {
                self.packets.remove(0);
            }
            self.packets.push(Packet { seq: highest.wrapping_add(step), since: now, requests: 0, due: Some(now) });
        }
    }

    /// A packet came after all, out of order or sent again.
    pub(crate) fn found(&mut self, now: Instant, seq: u16) {
        let Some(at) = self.packets.iter().position(|packet| packet.seq == seq) else { return };
        let packet = self.packets.remove(at);
        let took = now.saturating_duration_since(packet.since);
        // Sooner than a round trip, a quarter of it taken for measuring, nothing is answered: it was only overtaken. Of a packet
        // that was asked for twice nobody knows which request it answers.
        if packet.requests == 1 && self.round_trip.is_none_or(|round_trip| took >= round_trip * 3 / 4) {
            self.repair_time = Some(self.repair_time.map_or(took, |smoothed| (smoothed * 3 + took) / 4));
        }
    }

    /// When the next request is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.packets.iter().filter_map(|packet| packet.due).min()
    }

    /// Packets asked for so far, each time counted.
    pub(crate) fn requested(&self) -> u64 {
        self.requested
    }

    /// Appends the request that is due to `out`, as from `sender`. Whether there is one.
    pub(crate) fn write(&mut self, now: Instant, sender: u32, out: &mut Vec<u8>) -> bool {
        self.packets.retain(|packet| now.saturating_duration_since(packet.since) < FORGET);
        let least = self.round_trip.map_or(PATIENCE_MIN, |round_trip| PATIENCE_MIN.max(round_trip * 3 / 2));
        let patience = self.repair_time.map_or(PATIENCE, |took| took * 3 / 2).max(least);
        let start = out.len();
        let mut entry: Option<(u16, u16)> = None;
        for packet in &mut self.packets {
            if packet.due.is_none_or(|due| due > now) {
                continue;
            }
            packet.requests += 1;
            packet.due = (packet.requests < REQUESTS).then(|| now + patience);
            self.requested += 1;
            if out.len() == start {
                out.extend_from_slice(&[0x80 | GENERIC, TRANSPORT_FEEDBACK, 0, 0]);
                out.extend_from_slice(&sender.to_be_bytes());
                out.extend_from_slice(&self.ssrc.to_be_bytes());
            }
            match &mut entry {
                Some((first, bits)) if (1..=16).contains(&packet.seq.wrapping_sub(*first)) => {
                    *bits |= 1 << (packet.seq.wrapping_sub(*first) - 1);
                }
                full => {
                    put(out, full.replace((packet.seq, 0)));
                }
            }
        }
        put(out, entry);
        let any = out.len() > start;
        if any {
            set_length(out, start);
        }
        any
    }
}

fn put(out: &mut Vec<u8>, entry: Option<(u16, u16)>) {
    if let Some((first, bits)) = entry {
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&bits.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use rtc_rtcp::transport_feedbacks::transport_layer_nack::TransportLayerNack;

    use super::*;

    const OURS: u32 = 7;
    const THEIRS: u32 = 9;

    /// The packets asked for, as another implementation reads them.
    fn asked(missing: &mut Missing, now: Instant) -> Vec<u16> {
        let mut out = vec![0xee];
        if !missing.write(now, OURS, &mut out) {
            assert_eq!(out, [0xee]);
            return Vec::new();
        }
        let read = rtc_rtcp::packet::unmarshal(&mut &out[1..]).unwrap();
        let nack = read[0].as_any().downcast_ref::<TransportLayerNack>().unwrap();
        assert_eq!((nack.sender_ssrc, nack.media_ssrc), (OURS, THEIRS));
        nack.nacks.iter().flat_map(|pair| pair.packet_list()).collect()
    }

    fn after(now: Instant, ms: u64) -> Instant {
        now + Duration::from_millis(ms)
    }

    #[test]
    fn a_gap_is_asked_for_at_once_and_once_more() {
        let now = Instant::now();
        let mut missing = Missing::default();
        for seq in [65_530, 65_531, 3] {
            missing.on_packet(now, THEIRS, seq);
        }
        assert_eq!(missing.poll_timeout(), Some(now));
        let gap = [65_532, 65_533, 65_534, 65_535, 0, 1, 2];
        assert_eq!(asked(&mut missing, now), gap);
        assert_eq!(asked(&mut missing, after(now, 99)), []);
        assert_eq!(missing.poll_timeout(), Some(after(now, 100)));
        assert_eq!(asked(&mut missing, after(now, 100)), gap);
        assert_eq!(missing.poll_timeout(), None);
        assert_eq!(missing.requested(), 14);
    }

    #[test]
    fn what_came_is_not_asked_for_and_says_how_long_an_answer_takes() {
        let now = Instant::now();
        let mut missing = Missing::default();
        missing.on_packet(now, THEIRS, 1);
        missing.on_packet(now, THEIRS, 4);
        assert_eq!(asked(&mut missing, now), [2, 3]);
        missing.on_packet(after(now, 40), THEIRS, 2);
        assert_eq!(asked(&mut missing, after(now, 100)), [3]);
        missing.on_packet(after(now, 101), THEIRS, 6);
        assert_eq!(asked(&mut missing, after(now, 101)), [5]);
        assert_eq!(missing.poll_timeout(), Some(after(now, 161)), "half as long again as the last answer took");
    }

    #[test]
    fn what_was_only_overtaken_does_not_say_how_long_an_answer_takes() {
        let begin = Instant::now();
        let mut missing = Missing::default();
        missing.set_round_trip(Duration::from_millis(100));
        missing.on_packet(begin, THEIRS, 0);
        let mut asked_twice = 0;
        for n in 1..50_u16 {
            // Every second packet comes 2 ms behind the next; every twentieth is lost, and comes a round trip later.
            let now = after(begin, u64::from(n) * 200);
            missing.on_packet(now, THEIRS, n * 2);
            assert_eq!(asked(&mut missing, now), [n * 2 - 1]);
            if n % 10 != 0 {
                missing.on_packet(after(now, 2), THEIRS, n * 2 - 1);
                continue;
            }
            asked_twice += asked(&mut missing, after(now, 99)).len();
            missing.on_packet(after(now, 100), THEIRS, n * 2 - 1);
        }
        assert_eq!(asked_twice, 0);
        let now = after(begin, 20_000);
        missing.on_packet(now, THEIRS, 100);
        assert_eq!(asked(&mut missing, now), [99]);
        assert_eq!(missing.poll_timeout(), Some(after(now, 150)));
    }

    #[test]
    fn packets_far_apart_are_asked_for_in_one_request() {
        let now = Instant::now();
        let mut missing = Missing::default();
        let came = |seq: &u16| ![10, 12, 26, 27, 50].contains(seq);
        (1..60).filter(came).for_each(|seq| missing.on_packet(now, THEIRS, seq));
        assert_eq!(asked(&mut missing, now), [10, 12, 26, 27, 50]);
    }

    #[test]
    fn an_outage_another_stream_and_what_is_long_gone_are_not_asked_for() {
        let now = Instant::now();
        let mut missing = Missing::default();
        missing.on_packet(now, THEIRS, 1);
        missing.on_packet(now, THEIRS, 100);
        assert_eq!(asked(&mut missing, now), []);
        missing.on_packet(now, THEIRS, 102);
        missing.on_packet(now, THEIRS + 1, 500);
        assert_eq!(asked(&mut missing, now), []);
        missing.on_packet(now, THEIRS, 1);
        missing.on_packet(now, THEIRS, 3);
        assert_eq!(asked(&mut missing, after(now, 500)), []);
        assert_eq!(missing.poll_timeout(), None);
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_comes() {
        let now = Instant::now();
        let mut missing = Missing::default();
        for step in 0..100_000_u32 {
            missing.on_packet(now, THEIRS, (step.wrapping_mul(2_654_435_761) >> 16) as u16);
            assert!(missing.packets.len() <= MISSING_MAX);
        }
    }
}
