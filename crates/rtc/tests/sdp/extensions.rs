//! Header extensions.

use crate::offers::{AUDIO, accept, section, session, with};

const LEVEL: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
const WIDE: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
const FLAG: &str = "a=extmap-allow-mixed";

fn level(extmap: &str) -> (Option<u8>, String) {
    let accepted = accept(&format!("{AUDIO}a=extmap:{extmap}\n"));
    let line = accepted.answer.lines().find(|line| line.starts_with("a=extmap:")).unwrap_or_default().to_owned();
    (accepted.setup.audio.unwrap().audio_level_id, line)
}

#[test]
fn audio_level_is_agreed_with_or_without_its_parameter() {
    let line = format!("a=extmap:14 {LEVEL}");
    assert_eq!(level(&format!("14 {LEVEL}")), (Some(14), line.clone()));
    assert_eq!(level(&format!("14 {LEVEL} vad=on")), (Some(14), line));
}

#[test]
fn a_one_way_extension_is_answered_the_other_way() {
    assert_eq!(level(&format!("3/sendonly {LEVEL}")), (Some(3), format!("a=extmap:3/recvonly {LEVEL}")));
}

#[test]
fn an_extension_that_the_client_does_not_send_is_left_out() {
    assert_eq!(level(&format!("3/recvonly {LEVEL}")), (None, String::new()));
    assert_eq!(level(&format!("3/inactive {LEVEL}")), (None, String::new()));
}

#[test]
fn ids_that_fit_no_header_are_left_out() {
    for id in ["0", "15", "16", "255", "256", "-1", "", "x"] {
        assert_eq!(level(&format!("{id} {LEVEL}")), (None, String::new()), "{id}");
    }
}

#[test]
fn large_ids_need_two_byte_headers() {
    let offer = format!("{AUDIO}{FLAG}\na=extmap:200 {LEVEL}\n");
    assert_eq!(accept(&offer).setup.audio.unwrap().audio_level_id, Some(200));
    let offer = format!("{AUDIO}{FLAG}\na=extmap:15 {LEVEL}\n");
    assert_eq!(accept(&offer).setup.audio.unwrap().audio_level_id, None);
}

fn transport_cc(extmap: &str, feedback: &str) -> (Option<u8>, Vec<String>) {
    let accepted = accept(&format!("{AUDIO}a=extmap:{extmap} {WIDE}\na=rtcp-fb:{feedback}\n"));
    let lines = accepted.answer.lines().filter(|line| line.contains("transport-")).map(str::to_owned).collect();
    (accepted.setup.audio.unwrap().transport_seq_id, lines)
}

#[test]
fn transport_wide_feedback_is_agreed_for_what_we_send_alone() {
    let answered = vec!["a=rtcp-fb:111 transport-cc".to_owned(), format!("a=extmap:5/sendonly {WIDE}")];
    for (extmap, feedback) in [("5", "111 transport-cc"), ("5/recvonly", "111 transport-cc"), ("5", "* transport-cc")] {
        assert_eq!(transport_cc(extmap, feedback), (Some(5), answered.clone()), "{extmap} {feedback}");
    }
}

#[test]
fn transport_wide_feedback_needs_both_lines_and_an_id_of_one_byte_headers() {
    for (extmap, feedback) in [
        ("5", "63 transport-cc"),
        ("5", "111 nack"),
        ("5", "transport-cc"),
        ("5/sendonly", "111 transport-cc"),
        ("15", "111 transport-cc"),
        ("200", "111 transport-cc"),
    ] {
        assert_eq!(transport_cc(extmap, feedback), (None, vec![]), "{extmap} {feedback}");
    }
}

#[test]
fn a_client_that_takes_no_audio_gets_no_transport_wide_sequence_numbers() {
    let offer = format!("{AUDIO}a=sendonly\na=extmap:5 {WIDE}\na=rtcp-fb:111 transport-cc\n");
    assert_eq!(accept(&offer).setup.audio.unwrap().transport_seq_id, None);
}

#[test]
fn s14_allow_mixed_is_answered_at_the_level_offered() {
    let at_session = with(AUDIO, "t=0 0\n", &format!("t=0 0\n{FLAG}\n"));
    let at_media = format!("{AUDIO}{FLAG}\n");
    let at_both = format!("{at_session}{FLAG}\n");
    for (offer, in_session, in_media) in
        [(AUDIO, false, false), (&at_session, true, false), (&at_media, false, true), (&at_both, true, true)]
    {
        let answer = accept(offer).answer;
        assert_eq!(session(&answer).contains(&FLAG), in_session);
        assert_eq!(section(&answer, 0).contains(&FLAG), in_media);
    }
}
