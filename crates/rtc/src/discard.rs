//! Which protocol a datagram belongs to, and why one was dropped.

/// What the first byte of a datagram says it is (RFC 7983 §7, RFC 5761 §4).
///
/// ```text
///   0..=3    STUN
///  20..=63   DTLS
/// 128..=191  RTP, or RTCP when the second byte is 192..=223
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A STUN message.
    Stun,
    /// A DTLS record.
    Dtls,
    /// An SRTP packet.
    Rtp,
    /// An SRTCP packet.
    Rtcp,
    /// None of them.
    Unknown,
}

/// Tells what a datagram is by its first two bytes.
#[must_use]
pub fn classify(datagram: &[u8]) -> Class {
    match datagram {
        [0..=3, ..] => Class::Stun,
        [20..=63, ..] => Class::Dtls,
        [128..=191, 192..=223, ..] => Class::Rtcp,
        [128..=191, _, ..] => Class::Rtp,
        _ => Class::Unknown,
    }
}

/// Why a datagram was dropped. Each variant is a counter; none is ever an error to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Discard {
    /// First byte belongs to no protocol spoken here.
    UnknownProtocol,
    /// STUN that is cut short, has a wrong length or magic cookie.
    StunMalformed,
    /// STUN that is not a Binding request.
    StunUnexpected,
    /// A Binding request without USERNAME or MESSAGE-INTEGRITY, or with a wrong FINGERPRINT.
    StunIncomplete,
    /// MESSAGE-INTEGRITY does not match.
    StunIntegrity,
    /// DTLS, SRTP or SRTCP from an address that passed no check.
    UncheckedPath,
    /// DTLS that the engine refused or that came before it could be used.
    Dtls,
    /// SRTP or SRTCP before keys are there, beyond what is held.
    BeforeKeys,
    /// RTP or RTCP that is cut short or inconsistent.
    RtpMalformed,
    /// SRTP or SRTCP that fails authentication.
    SrtpAuthentication,
    /// SRTP or SRTCP seen before, or older than the replay window.
    SrtpReplay,
    /// A payload type that was not negotiated.
    PayloadType,
    /// SCTP that is cut short or inconsistent.
    Sctp,
    /// DCEP OPEN for a channel that is open already. It is answered and changes nothing.
    DcepAgain,
    /// A message on a stream without a channel, beyond what is held for an OPEN that may be late.
    UnknownStream,
    /// The session is closed.
    Closed,
}

impl Discard {
    /// Every variant, in the order of the counters.
    pub const ALL: [Self; 16] = [
        Self::UnknownProtocol,
        Self::StunMalformed,
        Self::StunUnexpected,
        Self::StunIncomplete,
        Self::StunIntegrity,
        Self::UncheckedPath,
        Self::Dtls,
        Self::BeforeKeys,
        Self::RtpMalformed,
        Self::SrtpAuthentication,
        Self::SrtpReplay,
        Self::PayloadType,
        Self::Sctp,
        Self::DcepAgain,
        Self::UnknownStream,
        Self::Closed,
    ];

    /// The value of the metric's label `reason`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::UnknownProtocol => "unknown_protocol",
            Self::StunMalformed => "stun_malformed",
            Self::StunUnexpected => "stun_unexpected",
            Self::StunIncomplete => "stun_incomplete",
            Self::StunIntegrity => "stun_integrity",
            Self::UncheckedPath => "unchecked_path",
            Self::Dtls => "dtls",
            Self::BeforeKeys => "before_keys",
            Self::RtpMalformed => "rtp_malformed",
            Self::SrtpAuthentication => "srtp_authentication",
            Self::SrtpReplay => "srtp_replay",
            Self::PayloadType => "payload_type",
            Self::Sctp => "sctp",
            Self::DcepAgain => "dcep_again",
            Self::UnknownStream => "unknown_stream",
            Self::Closed => "closed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        let class = |first: u8, second: u8| classify(&[first, second, 0]);
        for first in 0..=255 {
            let expected = match first {
                0..=3 => Class::Stun,
                20..=63 => Class::Dtls,
                128..=191 => Class::Rtp,
                _ => Class::Unknown,
            };
            assert_eq!(class(first, 111), expected, "{first}");
        }
        for second in 0..=255 {
            let expected = if (192..=223).contains(&second) { Class::Rtcp } else { Class::Rtp };
            assert_eq!(class(0x80, second), expected, "{second}");
        }
        assert_eq!(classify(&[]), Class::Unknown);
        assert_eq!(classify(&[0x80]), Class::Unknown);
    }

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        for (at, reason) in Discard::ALL.iter().enumerate() {
            assert!(Discard::ALL[..at].iter().all(|other| other.label() != reason.label()), "{reason:?}");
        }
    }
}
