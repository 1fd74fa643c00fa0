//! Offers of browsers, ways to bend them, and a look at answers.

use rtc::{Accepted, Candidate, LocalDescription, Offer, OfferError};

pub(crate) const CHROMIUM: &str = include_str!("offers/chromium.sdp");
pub(crate) const CHROMIUM_VIDEO_FIRST: &str = include_str!("offers/chromium-video-first.sdp");
pub(crate) const FIREFOX: &str = include_str!("offers/firefox.sdp");
pub(crate) const FIREFOX_MAX_BUNDLE: &str = include_str!("offers/firefox-max-bundle.sdp");
pub(crate) const SIP: &str = include_str!("offers/sip.sdp");
pub(crate) const ALL: [&str; 5] = [CHROMIUM, CHROMIUM_VIDEO_FIRST, FIREFOX, FIREFOX_MAX_BUNDLE, SIP];

/// One audio line that brings all it needs.
pub(crate) const AUDIO: &str = "v=0
o=- 1 1 IN IP4 0.0.0.0
s=-
t=0 0
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuv
a=fingerprint:sha-256 8C:71:B3:8D:A5:38:FD:8F:A4:2E:A2:65:6C:86:52:BC:E0:6E:94:F2:9F:7C:4D:B5:DF:AF:AA:6F:44:90:8D:F4
a=setup:actpass
m=audio 9 UDP/TLS/RTP/SAVPF 111
a=mid:a
a=rtcp-mux
a=rtpmap:111 opus/48000/2
";

pub(crate) const DATA: &str = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel
a=mid:d
a=sctp-port:5000
";

pub(crate) const VIDEO: &str = "m=video 9 UDP/TLS/RTP/SAVPF 96
a=mid:v
a=rtcp-mux
a=rtpmap:96 VP8/90000
";

pub(crate) fn local() -> LocalDescription {
    LocalDescription {
        ufrag: "routetoken".to_owned(),
        password: "0123456789abcdefghijkl".into(),
        fingerprint: "AA:BB".to_owned(),
        candidates: vec![
            Candidate::udp("198.51.100.1:3478".parse().unwrap()),
            Candidate::udp("[2001:db8::1]:3478".parse().unwrap()),
        ],
        session: 0xFEDC_BA98_7654_3210,
        ssrc: 12345,
        sctp_init: rtc::SctpInit::Fresh,
        uplink: rtc::Uplink::default(),
    }
}

pub(crate) fn accept(text: &str) -> Accepted {
    Offer::parse(text).unwrap().accept(&local())
}

pub(crate) fn refuse(text: &str) -> OfferError {
    Offer::parse(text).unwrap_err()
}

/// The offer with CRLF, as it comes from a browser.
pub(crate) fn crlf(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// The offer without the lines that begin so. Panics when there are none, so that a test cannot pass by a typo.
pub(crate) fn without(text: &str, prefix: &str) -> String {
    let kept: Vec<_> = text.lines().filter(|line| !line.starts_with(prefix)).collect();
    assert!(kept.len() < text.lines().count(), "no line begins with {prefix}");
    kept.join("\n") + "\n"
}

/// The offer with `from` replaced, which must be in it.
pub(crate) fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from}");
    text.replace(from, to)
}

/// The 1-based number of the first line that begins so.
pub(crate) fn line_of(text: &str, prefix: &str) -> Option<usize> {
    Some(text.lines().position(|line| line.starts_with(prefix)).unwrap() + 1)
}

/// The answer's m-lines.
pub(crate) fn media(answer: &str) -> Vec<&str> {
    answer.lines().filter(|line| line.starts_with("m=")).collect()
}

/// The lines under the n-th m-line, that one first.
pub(crate) fn section(answer: &str, index: usize) -> Vec<&str> {
    let starts: Vec<_> =
        answer.lines().enumerate().filter(|(_, line)| line.starts_with("m=")).map(|(at, _)| at).collect();
    let end = starts.get(index + 1).copied().unwrap_or_else(|| answer.lines().count());
    answer.lines().skip(starts[index]).take(end - starts[index]).collect()
}

/// The lines above the first m-line.
pub(crate) fn session(answer: &str) -> Vec<&str> {
    answer.lines().take_while(|line| !line.starts_with("m=")).collect()
}

pub(crate) fn group(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("a=group:BUNDLE "))
}
