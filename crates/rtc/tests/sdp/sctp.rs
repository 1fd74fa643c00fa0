//! The data channel line.

use rtc::sdp::SctpSetup;
use rtc::{Negotiated, SctpInit, Snap};

use crate::offers::{AUDIO, DATA, accept, local, media, refuse, section, with};

fn offer(data: &str) -> String {
    with(AUDIO, "t=0 0\n", "t=0 0\na=group:BUNDLE a d\n") + data
}

#[test]
fn port_and_limit_are_read() {
    let accepted = accept(&offer(&format!("{}a=max-message-size:100000\n", DATA.replace("5000", "5001"))));
    assert_eq!(accepted.setup.sctp, Some(SctpSetup { mid: Some("d".to_owned()), ..SctpSetup::new(5001, 100_000) }));
    assert!(section(&accepted.answer, 1).contains(&"a=sctp-port:5000"), "ours, not the client's");
    assert!(section(&accepted.answer, 1).contains(&"a=max-message-size:262144"));
}

#[test]
fn a_client_without_limit_takes_64_kib() {
    assert_eq!(accept(&offer(DATA)).setup.sctp.unwrap().max_message_bytes, 65536);
}

#[test]
fn a_limit_of_0_is_none() {
    assert_eq!(accept(&offer(&format!("{DATA}a=max-message-size:0\n"))).setup.sctp.unwrap().max_message_bytes, 0);
}

#[test]
fn a_missing_port_is_5000() {
    assert_eq!(accept(&offer(&DATA.replace("a=sctp-port:5000\n", ""))).setup.sctp.unwrap().remote_port, 5000);
}

#[test]
fn a_bad_port_refuses_the_line_but_not_the_call() {
    for port in ["0", "65536", "x", ""] {
        let accepted = accept(&offer(&DATA.replace("5000", port)));
        assert_eq!(accepted.setup.sctp, None, "{port:?}");
        assert!(accepted.setup.audio.is_some());
        assert_eq!(media(&accepted.answer)[1], "m=application 0 UDP/DTLS/SCTP webrtc-datachannel");
    }
}

#[test]
fn tcp_in_the_protocol_is_echoed() {
    let accepted = accept(&offer(&DATA.replace("UDP/DTLS", "TCP/DTLS")));
    assert_eq!(media(&accepted.answer)[1], "m=application 3478 TCP/DTLS/SCTP webrtc-datachannel");
}

#[test]
fn the_old_syntax_is_refused_with_the_way_to_mend_it() {
    let old = "m=application 9 DTLS/SCTP 5000\na=mid:d\na=sctpmap:5000 webrtc-datachannel 1024\n";
    let error = refuse(&with(AUDIO, &AUDIO[AUDIO.find("m=audio").unwrap()..], old));
    assert_eq!((error.line, error.attribute), (Some(9), "m=application"));
    assert!(error.message.contains("UDP/DTLS/SCTP webrtc-datachannel"), "{}", error.message);
}

/// 36 bytes as Chromium writes them.
const INIT: &str = "AQAAHhEiM0QAUAAA/////wAAA+jAAAAEgAgABoLAAAA=";

fn init_in(answer: &str) -> Option<String> {
    section(answer, 1).iter().find_map(|line| line.strip_prefix("a=sctp-init:")).map(str::to_owned)
}

#[test]
fn an_init_is_answered_by_another_one() {
    let accepted = accept(&offer(&format!("{DATA}a=sctp-init:{INIT}\n")));
    let ours = init_in(&accepted.answer).expect("an init");
    assert!(accepted.snap == Snap::Answered && ours != INIT);
    assert_eq!(accepted.setup.sctp.unwrap().snap.unwrap().init, ours);
}

#[test]
fn without_an_init_in_the_offer_the_answer_has_none() {
    let accepted = accept(&offer(DATA));
    assert_eq!((init_in(&accepted.answer), accepted.snap), (None, Snap::NotOffered));
    assert_eq!(accepted.setup.sctp.unwrap().snap, None);
}

#[test]
fn an_unusable_init_is_ignored() {
    for value in ["", "x", "AQAA", &INIT.replace("HhEiM0QA", "HgAAAAAA"), &INIT[4..], &"A".repeat(9000)] {
        let accepted = accept(&offer(&format!("{DATA}a=sctp-init:{value}\n")));
        assert_eq!((init_in(&accepted.answer), accepted.snap), (None, Snap::Unusable), "{value:.50}");
        assert_eq!(accepted.setup.sctp.unwrap().snap, None);
    }
}

#[test]
fn a_later_offer_gets_the_first_answers_init_or_none() {
    let answer = |offer: &str, sctp_init| {
        let local = rtc::LocalDescription { sctp_init, ..local() };
        rtc::Offer::parse(offer).unwrap().accept(&local)
    };
    let (with, without) = (offer(&format!("{DATA}a=sctp-init:{INIT}\n")), offer(DATA));
    let first = accept(&with);
    let agreed = || first.setup.sctp.clone().unwrap().snap.map(Box::new);
    let again = answer(&with, SctpInit::Repeated(agreed()));
    assert_eq!(init_in(&again.answer), init_in(&first.answer));
    assert_eq!(again.setup.sctp, first.setup.sctp);
    assert_eq!(init_in(&answer(&without, SctpInit::Repeated(agreed())).answer), None);
    assert_eq!(init_in(&answer(&with, SctpInit::Repeated(None)).answer), None);
}

/// Its association would have the client's new tag at one end and the former one at the other.
#[test]
fn another_init_in_a_later_offer_is_not_answered_by_the_former_one() {
    let of = |init: &str| offer(&format!("{DATA}a=sctp-init:{init}\n"));
    let first = accept(&of(INIT));
    let fresh = rtc::Credentials { ufrag: "fresh".to_owned(), password: "another-password-of-24-b".into() };
    let with = rtc::Renewal { fingerprint: "AA:BB", candidates: &[], version: 2, ice_session: 1, fresh: &fresh };
    let renew = |later: &str| first.setup.renew(&rtc::Offer::parse(later).unwrap(), &with).unwrap();
    for (later, kept) in [
        (of(INIT), true),
        (offer(DATA), true),
        (of(&INIT.replace("HhEiM0QA", "HhEiM0UA")), false),
        (of(&INIT.replace("A+jA", "A+nA")), false),
        (of("x"), false),
    ] {
        let renewed = renew(&later);
        let snap = renewed.setup.sctp.unwrap().snap;
        assert_eq!(snap, if kept { first.setup.sctp.clone().unwrap().snap } else { None }, "{later}");
        assert!(kept || init_in(&renewed.answer).is_none(), "{later}");
    }
}

#[test]
fn negotiated_channels_are_read_and_answered() {
    let maps = "a=dcmap:0 label=\"oai-events\"\na=dcmap:2 subprotocol=\"a;b\";ordered=false;max-retr=3;label=\"%22x\"\na=dcmap:65534\n";
    let accepted = accept(&offer(&format!("{DATA}{maps}")));
    let lossy = Negotiated { unordered: true, max_retransmissions: Some(3), ..Negotiated::reliable(2, "\"x") };
    let expected = [Negotiated::reliable(0, "oai-events"), lossy, Negotiated::reliable(65534, "")];
    assert_eq!(accepted.setup.sctp.unwrap().negotiated, expected);
    for map in maps.lines() {
        assert!(section(&accepted.answer, 1).contains(&map), "{map}");
    }
}

#[test]
fn bad_channel_maps_refuse_the_line_and_name_it() {
    let many: String = (0..17).map(|id| format!("a=dcmap:{id}\n")).collect();
    for maps in [
        "a=dcmap:65535\n",
        "a=dcmap:x label=\"a\"\n",
        "a=dcmap:1 label=\"a\n",
        "a=dcmap:1 label=\"%zz\"\n",
        "a=dcmap:1 max-retr=1;max-time=2\n",
        "a=dcmap:1\na=dcmap:1\n",
        &many,
    ] {
        let offer = rtc::Offer::parse(&offer(&format!("{DATA}{maps}"))).unwrap();
        let refusal = offer.refusals().next().expect(maps);
        assert_eq!(refusal.attribute, "a=dcmap", "{maps}");
        assert_eq!(offer.accept(&local()).setup.sctp, None);
    }
}
