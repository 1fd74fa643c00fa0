//! The offers of stock browsers, answered line by line.

use rtc::sdp::{AudioSetup, Fingerprint, SctpSetup};
use rtc::{Codec, Format};
use rtc::{Offer, Setup};

use crate::offers::{CHROMIUM, FIREFOX, FIREFOX_MAX_BUNDLE, accept, crlf, local};

const DIGEST: [u8; 32] = [
    0x8C, 0x71, 0xB3, 0x8D, 0xA5, 0x38, 0xFD, 0x8F, 0xA4, 0x2E, 0xA2, 0x65, 0x6C, 0x86, 0x52, 0xBC, 0xE0, 0x6E, 0x94,
    0xF2, 0x9F, 0x7C, 0x4D, 0xB5, 0xDF, 0xAF, 0xAA, 0x6F, 0x44, 0x90, 0x8D, 0xF4,
];

const ANSWER_TO_CHROMIUM: &str = "v=0
o=- 9182379272246532360 1 IN IP4 0.0.0.0
s=-
t=0 0
a=group:BUNDLE 0 1
a=extmap-allow-mixed
a=msid-semantic:WMS *
a=ice-lite
m=audio 3478 UDP/TLS/RTP/SAVPF 63 111 110
c=IN IP4 198.51.100.1
a=mid:0
a=ice-ufrag:routetoken
a=ice-pwd:0123456789abcdefghijkl
a=fingerprint:sha-256 AA:BB
a=setup:active
a=rtcp-mux
a=sendrecv
a=rtpmap:63 red/48000/2
a=fmtp:63 111/111
a=rtpmap:111 opus/48000/2
a=fmtp:111 minptime=10;stereo=0;useinbandfec=1
a=rtpmap:110 telephone-event/48000
a=rtcp-fb:111 transport-cc
a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level
a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid
a=extmap:3/sendonly http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01
a=msid:stream-fedcba9876543210 audio-fedcba9876543210
a=ssrc:12345 cname:fedcba9876543210
a=candidate:1 1 udp 2130706431 198.51.100.1 3478 typ host network-cost 999
a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host network-cost 999
a=end-of-candidates
m=application 3478 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 198.51.100.1
a=mid:1
a=ice-ufrag:routetoken
a=ice-pwd:0123456789abcdefghijkl
a=fingerprint:sha-256 AA:BB
a=setup:active
a=sctp-port:5000
a=max-message-size:262144
";

#[test]
fn chromiums_offer_has_this_answer() {
    let accepted = accept(&crlf(CHROMIUM));
    assert_eq!(accepted.answer, crlf(ANSWER_TO_CHROMIUM));
}

#[test]
fn chromiums_offer_makes_this_setup() {
    let accepted = accept(&crlf(CHROMIUM));
    let expected = Setup {
        local_ufrag: local().ufrag,
        local_password: local().password,
        remote_ufrag: "4ZcD".to_owned(),
        remote_password: Some("2/1muCWoOi3uLifh0NuRHlUj".into()),
        session: local().session,
        fingerprints: vec![Fingerprint { hash: "sha-256".to_owned(), digest: DIGEST.to_vec() }],
        dtls_active: true,
        sped: false,
        uplink: rtc::Uplink::default(),
        audio: Some(AudioSetup {
            mid: Some("0".to_owned()),
            primary: Format::opus(111),
            beside: vec![
                Format { payload_type: 63, codec: Codec::Red, clock_rate: 48_000 },
                Format { payload_type: 110, codec: Codec::TelephoneEvent, clock_rate: 48_000 },
            ],
            nack: false,
            again: vec![],
            other: vec![13, 126],
            audio_level_id: Some(1),
            mid_id: Some(4),
            transport_seq_id: Some(3),
            receive: true,
            send: true,
            ssrc: 12345,
            cname: "fedcba9876543210".to_owned(),
        }),
        sctp: Some(SctpSetup { mid: Some("1".to_owned()), ..SctpSetup::new(5000, 262_144) }),
    };
    assert_eq!(accepted.setup, expected);
}

#[test]
fn nothing_of_chromiums_offer_is_refused() {
    assert_eq!(Offer::parse(CHROMIUM).unwrap().refusals().count(), 0);
}

/// Its fingerprint is at session level, Opus is 109.
#[test]
fn firefoxs_offer_is_taken_whole() {
    let accepted = accept(&crlf(FIREFOX));
    let audio = accepted.setup.audio.unwrap();
    assert_eq!((audio.primary.payload_type, audio.audio_level_id, audio.mid_id), (109, Some(1), Some(3)));
    assert_eq!(audio.beside[0].payload_type, 101);
    assert_eq!(audio.other, []);
    assert_eq!(accepted.setup.fingerprints[0].digest, DIGEST);
    assert_eq!(accepted.setup.remote_ufrag, "9bd0a1c3");
    assert_eq!(accepted.setup.sctp.unwrap().max_message_bytes, 1_073_741_823);
    assert!(accepted.answer.contains("\r\nm=audio 3478 UDP/TLS/RTP/SAVPF 109 101\r\n"));
    assert!(!accepted.answer.contains("extmap-allow-mixed"), "Firefox offers none");
}

#[test]
fn s01_a_bundle_only_line_with_port_0_is_taken() {
    let accepted = accept(FIREFOX_MAX_BUNDLE);
    assert!(accepted.setup.audio.is_some());
    assert!(accepted.setup.sctp.is_some());
    assert!(accepted.answer.contains("\r\nm=application 3478 UDP/DTLS/SCTP webrtc-datachannel\r\n"));
    assert!(accepted.answer.contains("\r\na=group:BUNDLE 0 1\r\n"));
}
