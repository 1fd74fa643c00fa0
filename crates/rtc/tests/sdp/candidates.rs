//! S15, I01, I02: whatever an offer's candidates say, it is skipped.

use crate::offers::{AUDIO, accept};

const LINES: [&str; 9] = [
    "a=candidate:1 1 udp 2122260223 192.0.2.7 51000 typ host generation 0 network-id 1 network-cost 10",
    "a=candidate:2 1 udp 1686052607 203.0.113.7 51001 typ srflx raddr 192.0.2.7 rport 51000 generation 0 x y",
    "a=candidate:3 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active generation 0 network-cost 999",
    "a=candidate:4 1 udp 2122260223 3f0a9b1e-6c2d-4a5f-8e3f-0b1c2d3e4f50.local 51002 typ host",
    "a=candidate:5 1 udp 2122260223 fe80::1%21 51003 typ host",
    "a=candidate:6 1 udp -1 not-an-address 99999 typ",
    "a=candidate:",
    "a=candidate",
    "a=remote-candidates:1 192.0.2.7 51000",
];

#[test]
fn s15_each_candidate_is_skipped_and_changes_nothing() {
    let plain = accept(AUDIO);
    for line in LINES {
        let accepted = accept(&format!("{AUDIO}{line}\na=end-of-candidates\n"));
        assert_eq!((accepted.setup, accepted.answer), (plain.setup.clone(), plain.answer.clone()), "{line}");
    }
}

#[test]
fn s15_many_candidates_and_a_long_name_are_skipped() {
    let name = "h".repeat(200);
    let lines: String =
        (0..300).map(|index| format!("a=candidate:{index} 1 udp 2122260223 {name} 51000 typ host\n")).collect();
    let offer = format!("{AUDIO}{lines}");
    assert!(offer.len() > 60_000 && offer.len() < rtc::sdp::OFFER_BYTES_MAX + 20_000);
    let offer = &offer[..offer.len().min(rtc::sdp::OFFER_BYTES_MAX)];
    assert_eq!(accept(offer).setup, accept(AUDIO).setup);
}
