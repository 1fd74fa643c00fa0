//! `loopback`: every packet of the user's goes back as it came, in one endless utterance. For benches and tests: what it
//! adds to the way is the way itself.

use voice::red::Red;
use voice::{Codec, MediaFrame, g711, opus};

/// Returns packets.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    begun: bool,
}

/// What becomes of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Echo<'a> {
    /// The utterance begins with it.
    pub(crate) first: bool,
    /// 48 kHz samples it lasts.
    pub(crate) samples: u32,
    /// What goes back: the packet itself, without copies of others.
    pub(crate) payload: &'a [u8],
}

impl Loopback {
    /// Takes one packet; `None`: it is no sound.
    pub(crate) fn echo<'a>(&mut self, frame: &MediaFrame<'a>) -> Option<Echo<'a>> {
        let payload = if frame.codec == Codec::Red { Red::parse(frame.payload)?.primary } else { frame.payload };
        let samples = match frame.codec {
            Codec::Opus | Codec::Red => opus::packet_samples(payload)?,
            Codec::Pcmu | Codec::Pcma => u32::try_from(payload.len()).ok()? * g711::FACTOR,
            Codec::TelephoneEvent => return None,
        };
        let first = !std::mem::replace(&mut self.begun, true);
        Some(Echo { first, samples, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_begins_the_utterance_and_garbage_does_not() {
        let mut loopback = Loopback::default();
        let opus = |payload| MediaFrame::opus(1, 0, payload);
        assert_eq!(loopback.echo(&opus(&[])), None);
        // Configuration 1 (SILK, 20 ms), one frame.
        let payload = &[1 << 3, 7];
        assert_eq!(loopback.echo(&opus(payload)), Some(Echo { first: true, samples: 960, payload }));
        let red = MediaFrame { codec: Codec::Red, ..opus(&[111, 1 << 3, 7]) };
        assert_eq!(loopback.echo(&red), Some(Echo { first: false, samples: 960, payload }));
    }
}
