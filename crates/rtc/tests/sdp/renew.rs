//! Offers after the first.

use rtc::{Credentials, Fragment, Offer, OfferError, Renewal, Renewed, Setup};

use crate::offers::{
    AUDIO, CHROMIUM, DATA, FIREFOX, VIDEO, accept, crlf, local, media, section, session, with, without,
};

fn fresh() -> Credentials {
    Credentials { ufrag: "fresh".to_owned(), password: "another-password-of-24-b".into() }
}

fn renew(setup: &Setup, offer: &str) -> Result<Renewed, OfferError> {
    let local = local();
    let (fresh, candidates) = (fresh(), local.candidates);
    let renewal = Renewal { fingerprint: "AA:BB", candidates: &candidates, version: 2, ice_session: 1, fresh: &fresh };
    setup.renew(&Offer::parse(offer).unwrap(), &renewal)
}

fn refusal(first: &str, later: &str) -> OfferError {
    renew(&accept(first).setup, later).unwrap_err()
}

#[test]
fn the_same_offer_again_has_the_same_answer_with_the_next_version() {
    for first in [CHROMIUM, FIREFOX] {
        let accepted = accept(&crlf(first));
        let renewed = renew(&accepted.setup, &crlf(first)).unwrap();
        assert!(!renewed.restarted);
        assert_eq!(renewed.setup, accepted.setup);
        let expected = accepted.answer.replacen(" 1 IN IP4 0.0.0.0", " 2 IN IP4 0.0.0.0", 1);
        assert_eq!(renewed.answer, expected);
    }
}

#[test]
fn other_credentials_restart_ice_and_nothing_else() {
    let accepted = accept(AUDIO);
    for (from, to) in [("ice-ufrag:abcd", "ice-ufrag:efgh"), ("ice-pwd:abcdef", "ice-pwd:ghijkl")] {
        let renewed = renew(&accepted.setup, &with(AUDIO, from, to)).unwrap();
        assert!(renewed.restarted);
        let lines = section(&renewed.answer, 0);
        assert!(lines.contains(&"a=ice-ufrag:fresh") && lines.contains(&"a=ice-pwd:another-password-of-24-b"));
        assert!(lines.contains(&"a=setup:active") && lines.contains(&"a=fingerprint:sha-256 AA:BB"));
        let mut setup = renewed.setup.clone();
        (setup.local_ufrag, setup.local_password) = (local().ufrag, local().password);
        (setup.remote_ufrag, setup.remote_password) =
            (accepted.setup.remote_ufrag.clone(), accepted.setup.remote_password.clone());
        assert_eq!(setup, accepted.setup);
    }
}

/// Without the first offer, the ufrag alone tells.
#[test]
fn a_password_that_was_never_seen_is_no_restart() {
    let setup = Setup { remote_password: None, ..accept(AUDIO).setup };
    assert!(!renew(&setup, AUDIO).unwrap().restarted);
    assert!(renew(&setup, &with(AUDIO, "ice-ufrag:abcd", "ice-ufrag:efgh")).unwrap().restarted);
}

/// RFC 8842 §5.5: an offer of a running call says actpass, whatever was agreed.
#[test]
fn the_dtls_role_stays_what_it_was() {
    let active = accept(&with(AUDIO, "setup:actpass", "setup:active")).setup;
    let renewed = renew(&active, AUDIO).unwrap();
    assert!(section(&renewed.answer, 0).contains(&"a=setup:passive"));
    assert!(!renewed.setup.dtls_active);
    assert_eq!(refusal(AUDIO, &with(AUDIO, "setup:actpass", "setup:active")).attribute, "a=setup");
}

#[test]
fn another_certificate_is_refused() {
    let error = refusal(AUDIO, &with(AUDIO, "8C:71", "8C:72"));
    assert_eq!(error.attribute, "a=fingerprint");
    assert!(error.message.contains("make a new call"), "{error}");
}

#[test]
fn a_line_in_use_cannot_be_taken_away_or_renamed() {
    let bundle = with(AUDIO, "t=0 0\n", "t=0 0\na=group:BUNDLE a d\n");
    let both = format!("{bundle}{DATA}");
    assert_eq!(refusal(&both, &bundle).attribute, "m=application");
    assert_eq!(refusal(&both, &with(&both, "m=audio 9", "m=audio 0")).attribute, "m=audio");
    assert_eq!(refusal(&both, &with(&both, "a=mid:a", "a=mid:b").replace("BUNDLE a", "BUNDLE b")).attribute, "a=mid");
    assert_eq!(refusal(&both, &with(&both, "sctp-port:5000", "sctp-port:5001")).attribute, "a=sctp-port");
    assert_eq!(refusal(&both, &with(&both, "opus/48000/2", "G722/8000")).attribute, "m=audio");
    assert_eq!(refusal(&both, &with(&both, "opus/48000/2", "PCMU/8000")).attribute, "a=rtpmap");
}

#[test]
fn direction_may_change_and_lines_may_be_added() {
    let bundle = with(AUDIO, "t=0 0\n", "t=0 0\na=group:BUNDLE a d v\n");
    let setup = accept(&bundle).setup;
    let held = renew(&setup, &with(&bundle, "a=rtcp-mux", "a=rtcp-mux\na=inactive")).unwrap();
    let audio = held.setup.audio.unwrap();
    assert!(!audio.send && !audio.receive);
    let more = renew(&setup, &format!("{bundle}{DATA}{VIDEO}")).unwrap();
    assert_eq!(more.setup.sctp.unwrap().remote_port, 5000);
    assert_eq!(media(&more.answer).len(), 3);
    assert!(media(&more.answer)[2].starts_with("m=video 0 "));
    assert_eq!(session(&more.answer)[0], "v=0");
}

/// A page that connected its channel first and asks for the microphone later.
#[test]
fn audio_may_be_added() {
    let head: String =
        AUDIO.lines().take_while(|line| !line.starts_with("m=")).map(|line| format!("{line}\n")).collect();
    let head = with(&head, "t=0 0\n", "t=0 0\na=group:BUNDLE d a\n");
    let audio: String =
        AUDIO.lines().skip_while(|line| !line.starts_with("m=")).map(|line| format!("{line}\n")).collect();
    let first = accept(&format!("{head}{DATA}"));
    assert_eq!(first.setup.audio, None);
    let renewed = renew(&first.setup, &format!("{head}{DATA}{audio}")).unwrap();
    let setup = renewed.setup.audio.unwrap();
    assert!(setup.ssrc != 0 && renewed.answer.contains(&format!("a=ssrc:{} ", setup.ssrc)));
}

const RESTART: &str = "a=group:BUNDLE 0 1\r
m=audio 9 UDP/TLS/RTP/SAVPF 111\r
a=mid:0\r
a=ice-ufrag:ysXw\r
a=ice-pwd:vw5LmwG4y/e6dPP/zAP9Gp5k\r
a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw network-id 1\r
a=candidate:3471623853 1 tcp 1518280447 e0f.local 9 typ host tcptype active\r
a=end-of-candidates\r
";

#[test]
fn a_fragment_with_other_credentials_restarts_ice() {
    let setup = accept(&crlf(CHROMIUM)).setup;
    let fragment = Fragment::parse(RESTART).unwrap();
    let (local, fresh) = (local(), fresh());
    let with = Renewal { fingerprint: "", candidates: &local.candidates, version: 2, ice_session: 1, fresh: &fresh };
    let renewed = setup.restart(&fragment, &with).unwrap();
    let expected = "a=ice-lite
a=group:BUNDLE 0 1
m=audio 9 UDP/TLS/RTP/SAVPF 111
a=mid:0
a=ice-ufrag:fresh
a=ice-pwd:another-password-of-24-b
a=candidate:1 1 udp 2130706431 198.51.100.1 3478 typ host network-cost 499
a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host network-cost 499
a=end-of-candidates
";
    assert_eq!(renewed.answer, crlf(expected));
    assert_eq!((renewed.setup.local_ufrag.as_str(), renewed.setup.remote_ufrag.as_str()), ("fresh", "ysXw"));
    assert!(renewed.setup.restart(&fragment, &with).is_none(), "the same again is none");
}

/// What the answer to a fragment says of its line.
fn restarted(setup: &Setup, fragment: &str) -> String {
    let fresh = fresh();
    let with = Renewal { fingerprint: "", candidates: &[], version: 2, ice_session: 1, fresh: &fresh };
    setup.restart(&Fragment::parse(fragment).unwrap(), &with).unwrap().answer
}

#[test]
fn the_answer_to_a_fragment_names_its_line_by_mid() {
    let head: String =
        AUDIO.lines().take_while(|line| !line.starts_with("m=")).map(|line| format!("{line}\n")).collect();
    let data = accept(&format!("{head}{DATA}")).setup;
    let answer = restarted(&data, "a=ice-ufrag:ysXw\r\na=ice-pwd:vw5LmwG4y/e6dPP/zAP9Gp5k\r\n");
    assert!(answer.contains("m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:d\r\n"), "{answer}");

    // A page that connected by a ticket told no mid.
    let chromium = accept(&crlf(CHROMIUM)).setup;
    let audio = rtc::sdp::AudioSetup { mid: None, ..chromium.audio.clone().unwrap() };
    let told = Setup { audio: Some(audio), ..chromium };
    assert!(restarted(&told, RESTART).contains("m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n"));
    let other = RESTART.replace("m=audio 9 UDP/TLS/RTP/SAVPF 111", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel");
    assert!(!restarted(&told, &other).contains("a=mid"), "not by that of another line");
}

/// 16 of one offer, and as many later ones.
#[test]
fn the_streams_that_all_offers_of_a_call_list_are_bounded() {
    let maps = |ids: std::ops::Range<u16>| ids.map(|id| format!("a=dcmap:{id}\n")).collect::<String>();
    let head: String =
        AUDIO.lines().take_while(|line| !line.starts_with("m=")).map(|line| format!("{line}\n")).collect();
    let offer = |ids| format!("{head}{DATA}{}", maps(ids));
    let first = accept(&offer(0..16)).setup;
    let second = renew(&first, &offer(16..32)).unwrap();
    assert_eq!(second.channels.len(), 16);
    let setup = second.setup;
    assert_eq!(setup.sctp.as_ref().unwrap().negotiated.len(), 32);
    let refused = renew(&setup, &offer(31..33)).unwrap_err();
    assert_eq!(refused.attribute, "a=dcmap");
    let again = renew(&setup, &offer(0..16)).unwrap();
    assert_eq!(again.setup, Setup { remote_password: again.setup.remote_password.clone(), ..setup });
}

/// libwebrtc stays on a pair that may be dead for seconds, but leaves it at once for one that costs less.
#[test]
fn each_ice_session_costs_less_than_the_one_before() {
    let mut setup = accept(AUDIO).setup;
    let mut last = 999;
    for ice_session in 1..20 {
        let offer = with(AUDIO, "ice-ufrag:abcd", &format!("ice-ufrag:abcd{ice_session}"));
        let (local, fresh) = (local(), fresh());
        let renewal =
            Renewal { fingerprint: "", candidates: &local.candidates, version: 2, ice_session, fresh: &fresh };
        let renewed = setup.renew(&Offer::parse(&offer).unwrap(), &renewal).unwrap();
        let cost = renewed.answer.lines().find_map(|line| line.split_once(" network-cost ")).unwrap().1;
        let cost: u32 = cost.parse().unwrap();
        assert!(cost < last || cost == 0, "{cost} after {last}");
        last = cost;
        setup = renewed.setup;
    }
}

#[test]
fn fragments_of_candidates_alone_and_of_nothing_are_taken() {
    let setup = accept(AUDIO).setup;
    for text in [
        "",
        "\r\n",
        "a=end-of-candidates\r\n",
        "a=candidate:\r\n",
        "m=audio 9 RTP/AVP 0\na=mid:0\na=candidate:1 1 UDP 2122 fe80::1%eth0 4 typ srflx raddr 0.0.0.0 rport 0\n",
    ] {
        let fragment = Fragment::parse(text).unwrap();
        assert_eq!(fragment.credentials, None);
        let fresh = fresh();
        let with = Renewal { fingerprint: "", candidates: &[], version: 2, ice_session: 1, fresh: &fresh };
        assert!(setup.restart(&fragment, &with).is_none());
    }
}

#[test]
fn fragments_that_cannot_be_read_name_line_and_fix() {
    for (text, attribute) in [
        ("a=candidate:x\r\n", "a=candidate"),
        ("a=candidate:1 0 udp 1 192.0.2.1 1 typ host\r\n", "a=candidate"),
        ("a=candidate:1 1 udp -1 192.0.2.1 1 typ host\r\n", "a=candidate"),
        ("a=candidate:1 1 udp 1 192.0.2.1 65536 typ host\r\n", "a=candidate"),
        ("a=candidate:1 1 udp 1 192.0.2.1 1 host\r\n", "a=candidate"),
        ("a=ice-ufrag:abcd\r\n", "a=ice-pwd"),
        ("a=ice-pwd:abcd\r\n", "a=ice-ufrag"),
        ("a=ice-ufrag:\r\na=ice-pwd:x\r\n", "a=ice-ufrag"),
        ("{\"candidate\":1}", "the line"),
        ("m=audio\r\n", "m="),
    ] {
        assert_eq!(Fragment::parse(text).unwrap_err().attribute, attribute, "{text}");
    }
    let long = format!("a=ice-ufrag:{}\r\na=ice-pwd:x\r\n", "x".repeat(257));
    assert_eq!(Fragment::parse(&long).unwrap_err().attribute, "a=ice-ufrag");
    assert!(Fragment::parse(&"a=x\r\n".repeat(20_000)).is_err(), "100 KB");
}

#[test]
fn an_offer_without_its_certificate_or_password_is_not_read_far_enough_to_renew_anything() {
    for missing in ["a=ice-pwd", "a=ice-ufrag", "a=fingerprint"] {
        assert!(Offer::parse(&without(AUDIO, missing)).is_err(), "{missing}");
    }
}
