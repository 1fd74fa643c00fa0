//! What bit others with real clients, where no other file here has it: one rule, one test.

use rtc::{Candidate, LocalDescription, Offer};

use crate::offers::{AUDIO, CHROMIUM, DATA, FIREFOX, accept, crlf, local};

/// `answer` has this line.
fn has(answer: &str, line: &str) -> bool {
    answer.lines().any(|one| one == line)
}

#[test]
fn an_answer_ends_with_crlf_whatever_the_offer_ends_with() {
    for offer in [CHROMIUM, FIREFOX] {
        for offer in
            [offer.to_owned(), crlf(offer), crlf(offer).trim_end().to_owned(), format!("{}\r\n\r\n", offer.trim_end())]
        {
            let answer = accept(&offer).answer;
            assert!(answer.ends_with("a=max-message-size:262144\r\n"), "{answer}");
            assert!(!answer.replace("\r\n", "").contains(['\r', '\n']), "and so does each of its lines");
        }
    }
}

/// Browsers say so of a track without a stream: our own has one all the same, else pages stay silent.
#[test]
fn a_client_without_a_stream_is_answered_with_one() {
    for line in ["", "a=msid:- track\n", "a=msid:- -\n", "a=msid:-\n"] {
        let answer = accept(&format!("{AUDIO}{line}")).answer;
        let msid: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("a=msid:")).collect();
        assert_eq!(msid, ["stream-fedcba9876543210 audio-fedcba9876543210"], "{line:?}");
    }
}

/// Unmodified clients know no STUN server, send no candidate and trickle none.
#[test]
fn an_offer_without_candidates_gets_all_that_it_takes_to_reach_us() {
    assert!(!CHROMIUM.contains("a=candidate"));
    let address = "198.51.100.1:443".parse().unwrap();
    let candidates = vec![Candidate::udp("198.51.100.1:3478".parse().unwrap()), Candidate::tcp(address)];
    let answer = Offer::parse(CHROMIUM).unwrap().accept(&LocalDescription { candidates, ..local() }).answer;
    let audio = answer.split("m=application").next().unwrap();
    let lines: Vec<&str> = audio.lines().filter(|line| line.starts_with("a=candidate:")).collect();
    assert_eq!(lines.len(), 2, "{answer}");
    assert!(lines[0].contains(" udp ") && lines[0].contains(" 198.51.100.1 3478 typ host"));
    assert!(lines[1].contains(" tcp ") && lines[1].contains(" 198.51.100.1 443 typ host tcptype passive"));
    assert!(has(&answer, "a=ice-lite") && has(audio, "a=end-of-candidates"));
}

/// RFC 8858: browsers do not send it, clients of WHIP must.
#[test]
fn rtcp_mux_only_is_taken_and_may_be_missing() {
    let only = AUDIO.replace("a=rtcp-mux\n", "a=rtcp-mux\na=rtcp-mux-only\n");
    assert_eq!(accept(&only).answer, accept(AUDIO).answer);
    assert!(has(&accept(AUDIO).answer, "a=rtcp-mux"));
}

#[test]
fn the_clients_limit_of_a_message_is_its_own_and_ours_is_256_kib() {
    for (said, limit) in
        [("a=max-message-size:262144\n", 262_144), ("a=max-message-size:1073741823\n", 1_073_741_823), ("", 65_536)]
    {
        let accepted = accept(
            &format!("{AUDIO}{DATA}{said}").replace("a=setup:actpass\n", "a=setup:actpass\na=group:BUNDLE a d\n"),
        );
        assert_eq!(accepted.setup.sctp.unwrap().max_message_bytes, limit);
        assert!(has(&accepted.answer, "a=max-message-size:262144"));
    }
}

/// str0m's later offers repeat a rejected section without its formats (RFC 8866 §5.14 wants one).
#[test]
fn a_rejected_section_needs_no_format() {
    let offer = format!("{AUDIO}m=video 0 UDP/TLS/RTP/SAVPF\na=mid:v\na=inactive\n");
    assert!(has(&accept(&offer).answer, "m=video 0 UDP/TLS/RTP/SAVPF 0"));
    let live = offer.replace("m=video 0", "m=video 9");
    assert!(Offer::parse(&live).unwrap_err().to_string().contains("names no format"));
}
