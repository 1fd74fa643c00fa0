//! Clocks: when something happened at the edge, when the user said something, and how far behind the edge they hear.
//!
//! Reports and media come over the same link, so what media frames say of their age holds for reports too. The user's sound keeps
//! an even clock: the frame with the least delay tells when its first sample was, and a later frame is never earlier than that.

use std::time::{Duration, Instant};

use crate::ledger::{DEFAULT_CLIENT_DELAY, Way};
use crate::types::ClientView;

/// How fast the least delay seen is let go: 1 ms/s, twice the skew of the worst sound card, per packet of 20 ms.
const CREEP: Duration = Duration::from_micros(20);

/// A clock that is further off than this is another clock.
const OTHER_CLOCK: Duration = Duration::from_secs(1);

/// What is known of the ways.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    /// Edge to here; the least of late.
    link: Duration,
    /// When media time 0 would have reached the edge.
    origin: Option<Instant>,
    /// As the edge knows them.
    rtt: Duration,
    delay: Option<Duration>,
}

impl Ways {
    /// A packet of the user's that ends at `end` came at `arrived`, `age` after it had reached the edge.
    pub(crate) fn media(&mut self, arrived: Instant, age: Duration, end: u64) {
        self.link = if age < self.link { age } else { self.link + (age - self.link) / 16 };
        let Some(origin) = arrived.checked_sub(age).and_then(|at| at.checked_sub(duration(end))) else { return };
        self.origin = Some(match self.origin {
            Some(known) if origin > known && origin - known < OTHER_CLOCK => known + CREEP.min(origin - known),
            _ => origin,
        });
    }

    /// What the edge says of the client.
    pub(crate) fn client(&mut self, view: &ClientView) {
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        if view.rtt_us > 0 {
            self.rtt = micros(view.rtt_us);
        }
        self.delay = view.delay_us.map(micros).or(self.delay);
    }

    /// Between edge and client; zero until known.
    pub(crate) fn round_trip(&self) -> Duration {
        self.rtt
    }

    /// The edge's time of what arrives here now.
    pub(crate) fn at_edge(&self, now: Instant) -> Instant {
        now.checked_sub(self.link).unwrap_or(now)
    }

    /// When the user made the sound of this media time.
    pub(crate) fn said(&self, media_time: u64) -> Option<Instant> {
        (self.origin? + duration(media_time)).checked_sub(self.rtt / 2)
    }

    /// To the client and through it, whose own word on its playout delay is `told`.
    pub(crate) fn way(&self, told: Option<Duration>) -> Way {
        Way::new(self.rtt, told.or(self.delay).unwrap_or(DEFAULT_CLIENT_DELAY))
    }
}

fn duration(samples: u64) -> Duration {
    Duration::from_micros(samples.saturating_mul(125) / 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Received;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_packet_with_the_least_delay_tells_when_a_sound_was_made() {
        let start = Instant::now();
        let mut ways = Ways::default();
        for packet in 1..=500_u64 {
            // Up to 40 ms of jitter on the way to the edge, 5 ms of link.
            let late = 30 + packet * 17 % 41;
            ways.media(start + ms(packet * 20 + late + 5), ms(5), packet * 960);
        }
        ways.client(&ClientView {
            rtt_us: 60_000,
            delay_us: None,
            received: Received::default(),
            loss: 0,
            told: 1,
            transport_wide: true,
        });
        let said = ways.said(480_000).unwrap();
        let off = said.saturating_duration_since(start + ms(10_000));
        assert!(off <= ms(2) && said >= start + ms(10_000), "{off:?}");
        let now = start + ms(20_000);
        let link = now - ways.at_edge(now);
        assert!(link > ms(4) && link <= ms(5), "{link:?}");
    }

    #[test]
    fn a_clock_that_starts_over_is_followed_at_once() {
        let start = Instant::now();
        let mut ways = Ways::default();
        ways.media(start + ms(20), ms(0), 960);
        ways.media(start + ms(5020), ms(0), 1920);
        assert_eq!(ways.said(1920), Some(start + ms(5020)));
    }

    #[test]
    fn the_client_knows_its_delay_better_than_the_edge() {
        let mut ways = Ways::default();
        assert_eq!(ways.way(None), Way::new(ms(0), ms(80)));
        ways.client(&ClientView {
            rtt_us: 40_000,
            delay_us: Some(70_000),
            received: Received::default(),
            loss: 0,
            told: 1,
            transport_wide: true,
        });
        assert_eq!(ways.way(None), Way::new(ms(40), ms(70)));
        assert_eq!(ways.way(Some(ms(120))), Way::new(ms(40), ms(120)));
    }
}
