//! ICE credentials, fingerprints, DTLS role, rtcp-mux.

use rtc::{Candidate, LocalDescription, Offer};

use crate::offers::{AUDIO, CHROMIUM, DATA, SIP, accept, line_of, local, media, refuse, section, with, without};

#[test]
fn s07_audio_without_rtcp_mux_alone_refuses_the_offer() {
    let error = refuse(&without(AUDIO, "a=rtcp-mux"));
    assert_eq!((error.line, error.attribute), (Some(9), "a=rtcp-mux"));
    assert_eq!(error.message, "line 9: a=rtcp-mux is required and missing: offer RTP and RTCP on one port (RFC 5761)");
}

#[test]
fn s07_audio_without_rtcp_mux_is_refused_wholly_beside_a_data_channel() {
    let offer = without(CHROMIUM, "a=rtcp-mux");
    let accepted = accept(&offer);
    assert_eq!(media(&accepted.answer)[0], "m=audio 0 UDP/TLS/RTP/SAVPF 111");
    assert_eq!(accepted.setup.audio, None);
    assert!(accepted.setup.sctp.is_some());
    let reasons: Vec<_> = Offer::parse(&offer).unwrap().refusals().map(|reason| reason.attribute).collect();
    assert_eq!(reasons, ["a=rtcp-mux"]);
}

#[test]
fn s08_the_role_written_is_the_role_taken() {
    for (offered, answered, active) in
        [("actpass", "active", true), ("active", "passive", false), ("passive", "active", true)]
    {
        let accepted = accept(&with(CHROMIUM, "a=setup:actpass", &format!("a=setup:{offered}")));
        for index in [0, 1] {
            assert!(section(&accepted.answer, index).contains(&&*format!("a=setup:{answered}")), "{offered}");
        }
        assert_eq!(accepted.setup.dtls_active, active, "{offered}");
    }
}

#[test]
fn s08_without_setup_the_client_is_active() {
    let accepted = accept(&without(AUDIO, "a=setup"));
    assert!(!accepted.setup.dtls_active);
    assert!(accepted.answer.contains("\r\na=setup:passive\r\n"));
}

#[test]
fn s08_an_unknown_role_is_refused() {
    let error = refuse(&with(AUDIO, "actpass", "holdconn"));
    assert_eq!((error.line, error.attribute), (Some(8), "a=setup"));
}

fn hex(bytes: usize) -> String {
    vec!["1F"; bytes].join(":")
}

fn fingerprints(lines: &[(&str, usize)]) -> String {
    let lines: String = lines.iter().map(|(hash, bytes)| format!("a=fingerprint:{hash} {}\n", hex(*bytes))).collect();
    with(&without(AUDIO, "a=fingerprint"), "a=setup", &(lines + "a=setup"))
}

#[test]
fn s09_all_fingerprints_of_safe_hashes_are_kept_in_order() {
    let accepted =
        accept(&fingerprints(&[("sha-1", 20), ("sha-256", 32), ("SHA-384", 48), ("sha-512", 64), ("sha-256", 32)]));
    let kept: Vec<_> =
        accepted.setup.fingerprints.iter().map(|known| (known.hash.as_str(), known.digest.len())).collect();
    assert_eq!(kept, [("sha-256", 32), ("sha-384", 48), ("sha-512", 64), ("sha-256", 32)]);
}

#[test]
fn s09_sha_512_alone_is_enough() {
    let accepted = accept(&fingerprints(&[("sha-512", 64)]));
    assert_eq!(accepted.setup.fingerprints[0].digest, [0x1F; 64]);
}

#[test]
fn s09_digits_in_lower_case_are_read() {
    let lower = AUDIO.replace("8C:71:B3:8D", "8c:71:b3:8d");
    assert_eq!(accept(&lower).setup, accept(AUDIO).setup);
}

#[test]
fn s09_a_digest_of_wrong_length_is_refused() {
    for bytes in [0, 31, 33, 64] {
        let error = refuse(&fingerprints(&[("sha-256", bytes)]));
        assert_eq!((error.line, error.attribute), (Some(7), "a=fingerprint"), "{bytes} bytes");
    }
}

#[test]
fn s06_sha_1_alone_is_refused_and_said_so() {
    let error = refuse(&with(SIP, "SHA-256", "sha-1"));
    assert_eq!(error.line, line_of(SIP, "a=fingerprint"));
    assert_eq!(error.attribute, "a=fingerprint");
    assert!(error.message.contains("is of sha-1 only"), "{}", error.message);
    assert!(error.message.contains("send the sha-256 fingerprint"), "{}", error.message);
}

#[test]
fn s10_missing_credentials_are_named() {
    for (prefix, attribute) in
        [("a=ice-ufrag", "a=ice-ufrag"), ("a=ice-pwd", "a=ice-pwd"), ("a=fingerprint", "a=fingerprint")]
    {
        let offer = without(CHROMIUM, prefix);
        let error = refuse(&offer);
        assert_eq!(error.attribute, attribute);
        assert_eq!(error.line, line_of(&offer, "m=audio"));
        assert!(error.message.contains(&format!("{attribute} is missing")), "{}", error.message);
    }
}

#[test]
fn s10_session_level_values_are_inherited() {
    let setup = accept(AUDIO).setup;
    assert_eq!(setup.remote_ufrag, "abcd");
    assert_eq!(setup.fingerprints.len(), 1);
}

#[test]
fn s10_a_lines_own_values_replace_the_sessions() {
    let own = format!("a=rtcp-mux\na=ice-ufrag:mine\na=fingerprint:sha-512 {}\na=setup:active\n", hex(64));
    let setup = accept(&with(AUDIO, "a=rtcp-mux\n", &own)).setup;
    assert_eq!(setup.remote_ufrag, "mine");
    assert_eq!(setup.fingerprints.len(), 1);
    assert_eq!(setup.fingerprints[0].hash, "sha-512");
    assert!(!setup.dtls_active);
}

/// The transport of a group is its tagged line's (RFC 9143 §7.3).
#[test]
fn the_tagged_lines_credentials_count() {
    let offer = with(AUDIO, "t=0 0\n", "t=0 0\na=group:BUNDLE d a\n");
    let offer = format!("{offer}{DATA}a=ice-ufrag:tagged\n");
    assert_eq!(accept(&offer).setup.remote_ufrag, "tagged");
}

#[test]
fn s11_any_ufrag_is_taken() {
    for ufrag in ["M/34".to_owned(), "+dod".to_owned(), "x".repeat(256)] {
        let accepted = accept(&with(AUDIO, "ice-ufrag:abcd", &format!("ice-ufrag:{ufrag}")));
        assert_eq!(accepted.setup.remote_ufrag, ufrag);
    }
}

#[test]
fn s11_a_ufrag_of_257_characters_is_refused() {
    let error = refuse(&with(AUDIO, "ice-ufrag:abcd", &format!("ice-ufrag:{}", "x".repeat(257))));
    assert_eq!((error.line, error.attribute), (Some(5), "a=ice-ufrag"));
}

#[test]
fn two_lite_agents_are_refused() {
    let error = refuse(&with(AUDIO, "a=setup", "a=ice-lite\na=setup"));
    assert_eq!((error.line, error.attribute), (Some(8), "a=ice-lite"));
}

#[test]
fn s06_a_sip_style_offer_is_taken() {
    let accepted = accept(SIP);
    assert_eq!(media(&accepted.answer), ["m=audio 3478 RTP/SAVPF 96 101"]);
    assert!(!accepted.answer.contains("a=mid") && !accepted.answer.contains("a=group"));
    let audio = accepted.setup.audio.unwrap();
    assert_eq!((audio.primary.payload_type, audio.mid, audio.beside.len()), (96, None, 1));
    assert!(!accepted.setup.dtls_active);
}

#[test]
fn unencrypted_rtp_is_refused() {
    let error = refuse(&with(AUDIO, "UDP/TLS/RTP/SAVPF", "RTP/AVP"));
    assert_eq!((error.line, error.attribute), (Some(9), "m=audio"));
    assert!(error.message.contains("DTLS-SRTP"), "{}", error.message);
}

#[test]
fn an_ipv6_default_address_is_written_as_such() {
    let mut local: LocalDescription = local();
    local.candidates.remove(0);
    let answer = Offer::parse(AUDIO).unwrap().accept(&local).answer;
    assert!(answer.contains("\r\nc=IN IP6 2001:db8::1\r\n"));
}

#[test]
fn without_candidates_the_discard_port_is_written() {
    let local = LocalDescription { candidates: Vec::new(), ..local() };
    let answer = Offer::parse(AUDIO).unwrap().accept(&local).answer;
    assert_eq!(media(&answer), ["m=audio 9 UDP/TLS/RTP/SAVPF 111"]);
    assert!(answer.contains("\r\nc=IN IP4 0.0.0.0\r\n"));
}

/// Offers as libwebrtc M149-M154 and M155 write them, the draft's name, and all of them.
#[test]
fn sped_is_echoed_by_the_names_offered_and_makes_the_client_active() {
    for (options, echoed) in [
        ("trickle goog-sped-v1", "goog-sped-v1"),
        ("googspedv1 trickle", "googspedv1"),
        ("sped", "sped"),
        ("goog-sped-v1 sped renomination googspedv1", "sped googspedv1 goog-sped-v1"),
    ] {
        let accepted = accept(&with(AUDIO, "a=setup", &format!("a=ice-options:{options}\na=setup")));
        assert!(accepted.setup.sped && !accepted.setup.dtls_active, "{options}");
        let lines = section(&accepted.answer, 0);
        assert!(lines.contains(&"a=setup:passive"), "{options}");
        assert!(lines.contains(&&*format!("a=ice-options:{echoed}")), "{options}");
    }
}

#[test]
fn sped_is_found_at_either_level_and_answered_under_each_line() {
    let offer = with(CHROMIUM, "a=ice-options:trickle", "a=ice-options:trickle googspedv1");
    let accepted = accept(&offer);
    assert!(accepted.setup.sped);
    for index in [0, 1] {
        assert!(section(&accepted.answer, index).contains(&"a=ice-options:googspedv1"));
    }
    let below = with(AUDIO, "a=rtcp-mux", "a=rtcp-mux\na=ice-options:sped");
    assert!(accept(&below).setup.sped);
}

#[test]
fn sped_is_neither_used_nor_answered_unless_offered_by_a_whole_name() {
    for options in ["trickle", "spedx", "xsped", "SPED", "goog-sped-v2", ""] {
        let accepted = accept(&with(AUDIO, "a=setup", &format!("a=ice-options:{options}\na=setup")));
        assert!(!accepted.setup.sped && accepted.setup.dtls_active, "{options}");
        assert!(!accepted.answer.contains("ice-options"), "{options}");
    }
}

/// A client that insists on waiting for our ClientHello has nothing to put into its checks.
#[test]
fn sped_is_left_out_when_the_client_is_passive() {
    let offer = with(AUDIO, "a=setup:actpass", "a=ice-options:sped\na=setup:passive");
    let accepted = accept(&offer);
    assert!(!accepted.setup.sped && accepted.setup.dtls_active);
    assert!(!accepted.answer.contains("ice-options"));
    let offer = with(AUDIO, "a=setup:actpass", "a=ice-options:sped\na=setup:active");
    assert!(accept(&offer).setup.sped);
}

#[test]
fn a_tcp_candidate_is_passive_and_comes_behind_udp() {
    let mut local = local();
    local.candidates = vec![
        Candidate::udp("198.51.100.1:3478".parse().unwrap()),
        Candidate::tcp("198.51.100.1:443".parse().unwrap()),
        Candidate::tcp("[2001:db8::1]:443".parse().unwrap()),
    ];
    let answer = Offer::parse(AUDIO).unwrap().accept(&local).answer;
    let lines: Vec<&str> =
        answer.lines().filter_map(|line| line.strip_prefix("a=candidate:")?.split(" network-cost").next()).collect();
    let expected = [
        "1 1 udp 2130706431 198.51.100.1 3478 typ host",
        "2 1 tcp 1520434943 198.51.100.1 443 typ host tcptype passive",
        "3 1 tcp 1520434687 2001:db8::1 443 typ host tcptype passive",
    ];
    assert_eq!(lines, expected);
    assert_eq!(media(&answer), ["m=audio 3478 UDP/TLS/RTP/SAVPF 111"]);
}
