//! Payload types, codecs, direction.

use crate::offers::{AUDIO, CHROMIUM, accept, refuse, section, with};

#[test]
fn s06_codec_names_are_read_in_any_case() {
    let audio = accept(&with(AUDIO, "opus/48000", "OpUs/48000")).setup.audio.unwrap();
    assert_eq!(audio.opus, 111);
}

#[test]
fn s12_payload_types_outside_their_range_are_ignored() {
    for bad in ["200", "128", "65536", "-1", "x", "72"] {
        let offer = AUDIO.replace("SAVPF 111", &format!("SAVPF {bad}")).replace("rtpmap:111", &format!("rtpmap:{bad}"));
        let error = refuse(&offer);
        assert_eq!((error.line, error.attribute), (Some(9), "a=rtpmap"), "{bad}");

        let beside = AUDIO
            .replace("SAVPF 111", &format!("SAVPF {bad} 111"))
            .replace("a=rtpmap:111", &format!("a=rtpmap:{bad} opus/48000/2\na=rtpmap:111"));
        assert_eq!(accept(&beside).setup.audio.unwrap().opus, 111, "{bad}");
    }
}

#[test]
fn opus_must_be_named_in_the_m_line() {
    let error = refuse(&with(AUDIO, "SAVPF 111", "SAVPF 0"));
    assert_eq!(error.attribute, "a=rtpmap");
}

#[test]
fn of_two_opus_payload_types_the_preferred_is_taken() {
    let offer = AUDIO.replace("SAVPF 111", "SAVPF 100 111") + "a=rtpmap:100 opus/48000/2\n";
    assert_eq!(accept(&offer).setup.audio.unwrap().opus, 100);
}

#[test]
fn multiopus_is_not_opus() {
    let error = refuse(&with(AUDIO, "opus/48000/2", "multiopus/48000/6"));
    assert_eq!(error.attribute, "a=rtpmap");
}

#[test]
fn only_opus_is_answered() {
    let answer = accept(CHROMIUM).answer;
    for absent in ["red/", "telephone-event", "nack", "transport-cc", "transport-wide", "abs-send-time", "rtcp-fb"] {
        assert!(!answer.contains(absent), "{absent}");
    }
}

#[test]
fn direction_is_mirrored() {
    for (offered, answered, receive, send) in [
        ("sendrecv", "sendrecv", true, true),
        ("sendonly", "recvonly", true, false),
        ("recvonly", "sendonly", false, true),
        ("inactive", "inactive", false, false),
    ] {
        for offer in [
            with(AUDIO, "a=rtcp-mux\n", &format!("a=rtcp-mux\na={offered}\n")),
            with(AUDIO, "t=0 0\n", &format!("t=0 0\na={offered}\n")),
        ] {
            let accepted = accept(&offer);
            let lines = section(&accepted.answer, 0);
            assert!(lines.contains(&&*format!("a={answered}")), "{offered}");
            let audio = accepted.setup.audio.unwrap();
            assert_eq!((audio.receive, audio.send), (receive, send), "{offered}");
            assert_eq!(lines.iter().any(|line| line.starts_with("a=msid:")), send, "{offered}");
            assert_eq!(lines.iter().any(|line| line.starts_with("a=ssrc:")), send, "{offered}");
        }
    }
}

#[test]
fn without_direction_it_is_both_ways() {
    assert!(accept(AUDIO).answer.contains("\r\na=sendrecv\r\n"));
}

/// `msid:-` would attach the track to no stream, and pages stay silent.
#[test]
fn our_audio_names_a_stream_and_a_track() {
    let answer = accept(AUDIO).answer;
    let msid = answer.lines().find_map(|line| line.strip_prefix("a=msid:")).unwrap();
    let (stream, track) = msid.split_once(' ').unwrap();
    assert!(stream.len() > 1 && track.len() > 1 && stream != track, "{msid}");
}
