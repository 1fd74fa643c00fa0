//! Payload types, codecs, direction.

use rtc::{Codec, Format, LocalDescription, Offer, Redundancy, Uplink};

use crate::offers::{AUDIO, CHROMIUM, accept, local, refuse, section, with};

#[test]
fn s06_codec_names_are_read_in_any_case() {
    let audio = accept(&with(AUDIO, "opus/48000", "OpUs/48000")).setup.audio.unwrap();
    assert_eq!(audio.primary.payload_type, 111);
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
        assert_eq!(accept(&beside).setup.audio.unwrap().primary.payload_type, 111, "{bad}");
    }
}

#[test]
fn opus_must_be_named_in_the_m_line() {
    let error = refuse(&with(AUDIO, "SAVPF 111", "SAVPF 9"));
    assert_eq!(error.attribute, "a=rtpmap");
}

#[test]
fn of_two_opus_payload_types_the_preferred_is_taken() {
    let offer = AUDIO.replace("SAVPF 111", "SAVPF 100 111") + "a=rtpmap:100 opus/48000/2\n";
    assert_eq!(accept(&offer).setup.audio.unwrap().primary.payload_type, 100);
}

#[test]
fn multiopus_is_not_opus() {
    let error = refuse(&with(AUDIO, "opus/48000/2", "multiopus/48000/6"));
    assert_eq!(error.attribute, "a=rtpmap");
}

#[test]
fn opus_its_copies_and_the_keys_on_its_clock_are_answered() {
    let answer = accept(CHROMIUM).answer;
    assert!(section(&answer, 0)[0].ends_with("SAVPF 63 111 110"), "{answer}");
    assert!(answer.contains("\r\na=rtpmap:110 telephone-event/48000\r\n"));
    for absent in ["PCM", "nack", "abs-send-time"] {
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

/// What an offer of G.711 says: PCMA first, PCMU by its static number alone, keys at 8 kHz.
const TELEPHONE: [(&str, &str); 2] = [
    ("SAVPF 111", "SAVPF 8 0 101"),
    ("a=rtpmap:111 opus/48000/2\n", "a=rtpmap:8 PCMA/8000\na=rtpmap:101 telephone-event/8000\n"),
];

#[test]
fn g711_is_taken_where_there_is_no_opus() {
    let offer = TELEPHONE.iter().fold(AUDIO.to_owned(), |offer, (from, to)| with(&offer, from, to));
    let accepted = accept(&offer);
    let lines = section(&accepted.answer, 0);
    assert!(lines[0].ends_with("SAVPF 8 0 101"), "{lines:?}");
    for line in ["a=rtpmap:8 PCMA/8000", "a=rtpmap:0 PCMU/8000", "a=rtpmap:101 telephone-event/8000"] {
        assert!(lines.contains(&line), "{line} in {lines:?}");
    }
    let audio = accepted.setup.audio.unwrap();
    assert_eq!((audio.primary.codec, audio.primary.clock_rate), (Codec::Pcma, 8000));
    assert_eq!(audio.format(0).map(|format| format.codec), Some(Codec::Pcmu));
    assert_eq!(audio.format(9), None);
}

#[test]
fn g711_beside_opus_is_not_taken() {
    let audio = accept(&with(AUDIO, "SAVPF 111", "SAVPF 0 8 111")).setup.audio.unwrap();
    assert_eq!((audio.primary, audio.beside), (Format::opus(111), vec![]));
}

#[test]
fn the_client_is_asked_for_one_channel_and_copies_and_for_dtx_where_that_is_wanted() {
    assert!(accept(AUDIO).answer.contains("\r\na=fmtp:111 minptime=10;stereo=0;useinbandfec=1\r\n"));
    let local = LocalDescription { uplink: Uplink { dtx: true, ..Uplink::default() }, ..local() };
    let accepted = Offer::parse(AUDIO).unwrap().accept(&local);
    assert!(accepted.answer.contains("stereo=0;useinbandfec=1;usedtx=1\r\n"));
}

#[test]
fn the_uplink_is_capped_when_that_is_asked_for() {
    let uplink = Uplink { max_average_bitrate: 32_000, ..Uplink::default() };
    let local = LocalDescription { uplink, ..local() };
    let accepted = Offer::parse(AUDIO).unwrap().accept(&local);
    assert!(accepted.answer.contains("a=fmtp:111 minptime=10;stereo=0;useinbandfec=1;maxaveragebitrate=32000\r\n"));
    assert_eq!(accepted.setup.uplink, uplink);
}

/// Browsers send what stands first.
#[test]
fn red_is_taken_before_opus_behind_it_or_not_at_all_as_asked_for() {
    for (red, line) in [
        (Redundancy::Prefer, "SAVPF 63 111 110"),
        (Redundancy::Offered, "SAVPF 111 63 110"),
        (Redundancy::Off, "SAVPF 111 110"),
    ] {
        let local = LocalDescription { uplink: Uplink { red, ..Uplink::default() }, ..local() };
        let accepted = Offer::parse(CHROMIUM).unwrap().accept(&local);
        let lines = section(&accepted.answer, 0);
        assert!(lines[0].ends_with(line), "{red:?}: {}", lines[0]);
        assert_eq!(lines.contains(&"a=fmtp:63 111/111"), red != Redundancy::Off);
        let audio = accepted.setup.audio.unwrap();
        assert_eq!(audio.primary, Format::opus(111));
        assert_eq!(audio.format(63).map(|format| format.codec), (red != Redundancy::Off).then_some(Codec::Red));
    }
}

#[test]
fn red_of_anything_but_the_opus_taken_is_not_taken() {
    let offer = with(AUDIO, "SAVPF 111", "SAVPF 63 111") + "a=rtpmap:63 red/48000/2\n";
    for fmtp in ["", "a=fmtp:63 111/0\n", "a=fmtp:63 109/109\n", "a=fmtp:63 x\n", "a=fmtp:63 \n"] {
        assert!(!accept(&format!("{offer}{fmtp}")).answer.contains("red/"), "{fmtp}");
    }
    assert!(accept(&format!("{offer}a=fmtp:63 111/111/111\n")).answer.contains("\r\na=fmtp:63 111/111\r\n"));
}

#[test]
fn what_is_missing_is_asked_for_where_that_is_offered_for_audio() {
    for (feedback, nack) in [
        ("a=rtcp-fb:111 nack\n", true),
        ("a=rtcp-fb:* nack\n", true),
        ("a=rtcp-fb:111 nack pli\n", false),
        ("a=rtcp-fb:96 nack\n", false),
        ("", false),
    ] {
        let accepted = accept(&format!("{AUDIO}{feedback}"));
        assert_eq!(accepted.answer.contains("\r\na=rtcp-fb:111 nack\r\n"), nack, "{feedback}");
        assert_eq!(accepted.setup.audio.unwrap().nack, nack, "{feedback}");
    }
}

#[test]
fn retransmissions_of_a_stream_of_their_own_are_taken_with_nack() {
    let rtx = with(AUDIO, "SAVPF 111", "SAVPF 111 112") + "a=rtpmap:112 rtx/48000\na=fmtp:112 apt=111;rtx-time=200\n";
    assert!(!accept(&rtx).answer.contains("rtx"), "nothing is asked for");
    let accepted = accept(&format!("{rtx}a=rtcp-fb:111 nack\n"));
    assert!(section(&accepted.answer, 0)[0].ends_with("SAVPF 111 112"));
    assert!(accepted.answer.contains("\r\na=rtpmap:112 rtx/48000\r\na=fmtp:112 apt=111\r\n"));
    let audio = accepted.setup.audio.unwrap();
    assert_eq!((audio.repeated_by(112), audio.repeated_by(111)), (Some(111), None));
}
