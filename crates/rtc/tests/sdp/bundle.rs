//! Which lines share the call's transport, and how the others are refused.

use rtc::Offer;

use crate::offers::{
    AUDIO, CHROMIUM_VIDEO_FIRST, DATA, VIDEO, accept, group, media, refuse, section, session, with, without,
};

fn grouped(mids: &str, text: &str) -> String {
    with(text, "t=0 0\n", &format!("t=0 0\na=group:BUNDLE {mids}\n"))
}

fn reasons(text: &str) -> Vec<String> {
    Offer::parse(text).unwrap().refusals().map(|reason| reason.message.clone()).collect()
}

#[test]
fn s02_a_refused_line_leaves_the_group_and_keeps_its_place() {
    let offer = grouped("a v d", &format!("{AUDIO}{VIDEO}{DATA}"));
    let accepted = accept(&offer);
    assert_eq!(
        media(&accepted.answer),
        [
            "m=audio 3478 UDP/TLS/RTP/SAVPF 111",
            "m=video 0 UDP/TLS/RTP/SAVPF 96",
            "m=application 3478 UDP/DTLS/SCTP webrtc-datachannel",
        ]
    );
    assert_eq!(group(&accepted.answer), Some("a d"));
    assert!(section(&accepted.answer, 1).contains(&"a=mid:v"));
    assert!(accepted.setup.audio.is_some() && accepted.setup.sctp.is_some());
    assert_eq!(reasons(&offer), ["line 14: m= offers video: offer audio and a data channel, nothing else is used"]);
}

#[test]
fn s03_a_refused_line_keeps_an_offered_format() {
    let offer = format!("{AUDIO}m=video 9 UDP/TLS/RTP/SAVPF 0\n");
    assert_eq!(media(&accept(&offer).answer)[1], "m=video 0 UDP/TLS/RTP/SAVPF 0");
    let offer = format!("{AUDIO}m=video 9 UDP/TLS/RTP/SAVPF 96 97\na=rtpmap:97 VP9/90000\n");
    let answer = accept(&offer).answer;
    assert_eq!(media(&answer)[1], "m=video 0 UDP/TLS/RTP/SAVPF 97", "one that is explained");
    assert!(section(&answer, 1).contains(&"a=rtpmap:97 VP9/90000"));
}

#[test]
fn s04a_a_first_line_without_common_codec_is_refused_alone_when_not_bundled() {
    let offer = with(AUDIO, "m=audio", &format!("{VIDEO}m=audio"));
    let accepted = accept(&offer);
    assert_eq!(media(&accepted.answer), ["m=video 0 UDP/TLS/RTP/SAVPF 96", "m=audio 3478 UDP/TLS/RTP/SAVPF 111"]);
    assert_eq!(accepted.setup.audio.unwrap().primary.payload_type, 111);
    assert_eq!(group(&accepted.answer), None);
}

#[test]
fn s04b_a_refused_tagged_line_is_answered_inactive_so_that_audio_can_stay() {
    let accepted = accept(CHROMIUM_VIDEO_FIRST);
    assert_eq!(
        media(&accepted.answer),
        [
            "m=video 3478 UDP/TLS/RTP/SAVPF 96",
            "m=audio 3478 UDP/TLS/RTP/SAVPF 111",
            "m=application 3478 UDP/DTLS/SCTP webrtc-datachannel",
        ]
    );
    assert_eq!(group(&accepted.answer), Some("0 1 2"));
    let video = section(&accepted.answer, 0);
    for line in ["a=inactive", "a=rtpmap:96 VP8/90000", "a=rtcp-mux", "a=ice-ufrag:routetoken", "a=end-of-candidates"] {
        assert!(video.contains(&line), "{line}");
    }
    assert_eq!(accepted.setup.audio.unwrap().mid.as_deref(), Some("1"));
    assert!(accepted.setup.sctp.is_some());
}

#[test]
fn s04b_the_inactive_line_keeps_the_fmtp_that_tells_its_codec_apart() {
    let offer = with(CHROMIUM_VIDEO_FIRST, "SAVPF 96 97 103 104", "SAVPF 103 104");
    let answer = accept(&offer).answer;
    let fmtp = "a=fmtp:103 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42001f";
    assert!(section(&answer, 0).contains(&fmtp));
}

#[test]
fn s05_one_line_without_group_is_taken_without_group() {
    let accepted = accept(AUDIO);
    assert_eq!(media(&accepted.answer), ["m=audio 3478 UDP/TLS/RTP/SAVPF 111"]);
    assert_eq!(group(&accepted.answer), None);
}

#[test]
fn s05_of_two_lines_without_group_the_second_is_refused() {
    let offer = format!("{AUDIO}{DATA}");
    let accepted = accept(&offer);
    assert_eq!(media(&accepted.answer)[1], "m=application 0 UDP/DTLS/SCTP webrtc-datachannel");
    assert_eq!(group(&accepted.answer), None);
    assert!(accepted.setup.audio.is_some());
    assert_eq!(accepted.setup.sctp, None);
    let reason = &reasons(&offer)[0];
    assert!(reason.starts_with("line 13: m=") && reason.contains("a=group:BUNDLE"), "{reason}");
}

/// Sound is what a call is for.
#[test]
fn without_group_audio_is_taken_before_a_data_channel_line_above_it() {
    let accepted = accept(&with(AUDIO, "m=audio", &format!("{DATA}m=audio")));
    assert!(accepted.setup.audio.is_some());
    assert_eq!(accepted.setup.sctp, None);
}

#[test]
fn a_data_channel_line_above_audio_in_one_group_is_tagged() {
    let offer = grouped("d a", &with(AUDIO, "m=audio", &format!("{DATA}m=audio")));
    let accepted = accept(&offer);
    assert_eq!(group(&accepted.answer), Some("d a"));
    assert!(accepted.setup.audio.is_some() && accepted.setup.sctp.is_some());
    assert!(section(&accepted.answer, 0).contains(&"a=end-of-candidates"));
    assert!(!section(&accepted.answer, 1).contains(&"a=end-of-candidates"));
}

#[test]
fn a_second_audio_line_is_refused() {
    let second = with(&AUDIO[AUDIO.find("m=audio").unwrap()..], "mid:a", "mid:b");
    let accepted = accept(&grouped("a b", &format!("{AUDIO}{second}")));
    assert_eq!(media(&accepted.answer)[1], "m=audio 0 UDP/TLS/RTP/SAVPF 111");
    assert_eq!(group(&accepted.answer), Some("a"));
    assert_eq!(accepted.setup.audio.unwrap().mid.as_deref(), Some("a"));
}

#[test]
fn a_line_outside_the_leading_lines_group_is_refused() {
    let offer = grouped("v d", &format!("{AUDIO}{VIDEO}{DATA}"));
    let accepted = accept(&offer);
    assert!(accepted.setup.audio.is_some());
    assert_eq!(accepted.setup.sctp, None);
    assert_eq!(group(&accepted.answer), None, "audio is in none");
}

#[test]
fn a_data_channel_alone_is_a_call() {
    let offer = with(AUDIO, &AUDIO[AUDIO.find("m=audio").unwrap()..], DATA);
    let accepted = accept(&offer);
    assert_eq!(accepted.setup.audio, None);
    assert!(accepted.setup.sctp.is_some());
}

#[test]
fn s06_a_missing_mid_stays_missing() {
    let accepted = accept(&without(AUDIO, "a=mid"));
    assert_eq!(accepted.setup.audio.unwrap().mid, None);
    assert!(!accepted.answer.contains("a=mid"));
}

#[test]
fn s13_a_dead_line_is_copied_back_unread() {
    for dead in ["m=video 0 UDP/TLS/RTP/SAVPF 255", "m=image 0 udptl t38", "m=audio 0 RTP/AVP -1"] {
        let accepted = accept(&format!("{AUDIO}{dead}\na=rtpmap:nonsense\na=mid:x\na=setup:what\n"));
        assert_eq!(media(&accepted.answer)[1], dead);
        assert!(accepted.setup.audio.is_some());
    }
}

#[test]
fn a_dead_line_in_the_group_is_not_the_tagged_one() {
    let dead = VIDEO.replace("video 9", "video 0");
    let accepted = accept(&grouped("v a", &with(AUDIO, "m=audio", &format!("{dead}m=audio"))));
    assert_eq!(media(&accepted.answer)[0], "m=video 0 UDP/TLS/RTP/SAVPF 96");
    assert_eq!(group(&accepted.answer), Some("a"));
}

#[test]
fn bundle_only_without_a_group_is_refused() {
    let offer = format!("{AUDIO}{}a=bundle-only\n", DATA.replace("application 9", "application 0"));
    assert_eq!(accept(&offer).setup.sctp, None);
    assert!(reasons(&offer)[0].contains("a=bundle-only"));
}

#[test]
fn an_offer_of_dead_lines_only_is_refused() {
    let error = refuse(&AUDIO.replace("audio 9", "audio 0"));
    assert_eq!((error.line, error.attribute), (None, "m="));
}

#[test]
fn a_video_only_offer_is_refused() {
    let error = refuse(&AUDIO.replace("m=audio", "m=video"));
    assert_eq!(error.message, "line 9: m= offers video: offer audio and a data channel, nothing else is used");
}

#[test]
fn one_mid_for_two_lines_is_refused() {
    let error = refuse(&format!("{AUDIO}{}", DATA.replace("mid:d", "mid:a")));
    assert_eq!((error.line, error.attribute), (Some(14), "a=mid"));
}

#[test]
fn session_lines_stand_above_the_first_m_line() {
    let answer = accept(AUDIO).answer;
    assert!(session(&answer).contains(&"a=ice-lite"));
    assert!(session(&answer).contains(&"a=msid-semantic:WMS *"));
}
