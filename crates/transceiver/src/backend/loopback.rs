//! `loopback`: every packet of the user's goes back as it came, in one endless utterance. For benches and tests: what it
//! adds to the way is the way itself.

use voice::opus;

/// Returns packets.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    begun: bool,
}

/// What becomes of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Echo {
    /// The utterance begins with it.
    pub(crate) first: bool,
    /// 48 kHz samples it lasts.
    pub(crate) samples: u32,
}

impl Loopback {
    /// Takes one packet; `None`: it is no Opus packet.
    pub(crate) fn echo(&mut self, payload: &[u8]) -> Option<Echo> {
        let samples = opus::packet_samples(payload)?;
        let first = !std::mem::replace(&mut self.begun, true);
        Some(Echo { first, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_begins_the_utterance_and_garbage_does_not() {
        let mut loopback = Loopback::default();
        assert_eq!(loopback.echo(&[]), None);
        // Configuration 1 (SILK, 20 ms), one frame.
        assert_eq!(loopback.echo(&[1 << 3, 7]), Some(Echo { first: true, samples: 960 }));
        assert_eq!(loopback.echo(&[1 << 3, 8]), Some(Echo { first: false, samples: 960 }));
    }
}
