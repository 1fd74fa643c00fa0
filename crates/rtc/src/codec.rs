//! What an RTP payload type stands for.

/// What codes a packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 7587.
    Opus,
    /// Opus with copies of what came before (RFC 2198).
    Red,
    /// G.711 µ-law (RFC 3551 §4.5.14).
    Pcmu,
    /// G.711 A-law (RFC 3551 §4.5.14).
    Pcma,
    /// Keys pressed and tones (RFC 4733).
    TelephoneEvent,
}

/// One payload type of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// As in the m-line.
    pub payload_type: u8,
    /// What it stands for.
    pub codec: Codec,
    /// RTP clock in Hz: a divisor of [`MEDIA_CLOCK`].
    pub clock_rate: u32,
}

/// The clock of all timestamps at this crate's border, in Hz: that of Opus (RFC 7587 §4.1).
pub const MEDIA_CLOCK: u32 = 48_000;

impl Codec {
    /// By its encoding name and clock rate in `a=rtpmap` (RFC 7587 §7, RFC 2198 §5, RFC 3551 §6, RFC 4733 §7.1).
    pub(crate) fn named(name: &str, clock_rate: u32) -> Option<Self> {
        let known = [
            ("opus", Self::Opus),
            ("red", Self::Red),
            ("PCMU", Self::Pcmu),
            ("PCMA", Self::Pcma),
            ("telephone-event", Self::TelephoneEvent),
        ];
        let (_, codec) = known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known))?;
        let possible = match codec {
            Self::Opus | Self::Red => clock_rate == 48_000,
            Self::Pcmu | Self::Pcma => clock_rate == 8000,
            Self::TelephoneEvent => [8000, 16_000, 48_000].contains(&clock_rate),
        };
        possible.then_some(codec)
    }

    /// Its name in `a=rtpmap`.
    pub(crate) fn encoding(self) -> &'static str {
        match self {
            Self::Opus => "opus",
            Self::Red => "red",
            Self::Pcmu => "PCMU",
            Self::Pcma => "PCMA",
            Self::TelephoneEvent => "telephone-event",
        }
    }
}

impl Format {
    /// Opus under this payload type.
    #[must_use]
    pub fn opus(payload_type: u8) -> Self {
        Self { payload_type, codec: Codec::Opus, clock_rate: MEDIA_CLOCK }
    }

    /// A timestamp of its clock on [`MEDIA_CLOCK`]. Exact across the wrap, as 2^32 ticks of either are a multiple of 2^32.
    pub(crate) fn to_media_clock(self, rtp_timestamp: u32) -> u32 {
        rtp_timestamp.wrapping_mul(MEDIA_CLOCK.checked_div(self.clock_rate).unwrap_or(1))
    }
}

/// Timestamps of [`MEDIA_CLOCK`] on another one. Division does not survive the wrap, so each is measured from the last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticks {
    /// One instant on both clocks.
    anchor: Option<(u32, u32)>,
}

impl Ticks {
    /// `first` is what the first timestamp becomes.
    pub(crate) fn at(&mut self, media: u32, clock_rate: u32, first: u32) -> u32 {
        let factor = MEDIA_CLOCK.checked_div(clock_rate).unwrap_or(1).max(1).cast_signed();
        let (from, ticks) = self.anchor.unwrap_or((media, first));
        let passed = media.wrapping_sub(from).cast_signed() / factor;
        // Moved by whole ticks, so that no remainder is lost.
        let anchor = (from.wrapping_add_signed(passed * factor), ticks.wrapping_add_signed(passed));
        self.anchor = Some(anchor);
        anchor.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_clock_is_read_without_a_step_across_its_wrap() {
        let format = Format { payload_type: 0, codec: Codec::Pcmu, clock_rate: 8000 };
        let before = format.to_media_clock(u32::MAX - 159);
        assert_eq!(format.to_media_clock(0).wrapping_sub(before), 960);
    }

    #[test]
    fn a_slower_clock_is_written_without_a_step_across_the_wrap_and_without_drift() {
        let mut ticks = Ticks::default();
        let mut media = u32::MAX - 10_000;
        assert_eq!(ticks.at(media, 8000, 77), 77);
        for frame in 1..1000 {
            // 20 ms, a sample of 48 kHz late each second time.
            media = media.wrapping_add(if frame % 2 == 1 { 961 } else { 959 });
            assert_eq!(ticks.at(media, 8000, 0), 77 + 160 * frame, "frame {frame}");
        }
    }

    #[test]
    fn names_are_read_in_any_case_and_other_clocks_are_others() {
        assert_eq!(Codec::named("pcmu", 8000), Some(Codec::Pcmu));
        assert_eq!(Codec::named("Telephone-Event", 48_000), Some(Codec::TelephoneEvent));
        assert_eq!(Codec::named("opus", 16_000), None);
        assert_eq!(Codec::named("telephone-event", 44_100), None);
    }
}
