//! S17 and what else may be posted: an error that helps, never a panic.

use rtc::Offer;
use rtc::sdp::{MEDIA_LINES_MAX, OFFER_BYTES_MAX};

use crate::offers::{ALL, AUDIO, CHROMIUM, accept, crlf, local, refuse};

#[test]
fn s17_an_empty_offer_is_refused() {
    for empty in ["", "\n", "\r\n\r\n", "   "] {
        assert_eq!(refuse(empty).message, "the offer is empty: send the SDP of a WebRTC offer", "{empty:?}");
    }
}

#[test]
fn s17_line_ends_may_be_lf_or_crlf_and_the_last_may_be_missing() {
    for offer in ALL {
        let expected = accept(&crlf(offer));
        assert_eq!(accept(offer).answer, expected.answer);
        assert_eq!(accept(offer.trim_end()).answer, expected.answer);
        assert_eq!(accept(crlf(offer).trim_end()).setup, expected.setup);
    }
}

#[test]
fn s17_an_offer_cut_anywhere_is_refused_or_a_shorter_offer() {
    for offer in ALL {
        for end in 0..offer.len() {
            match Offer::parse(&offer[..end]) {
                Ok(shorter) => {
                    let accepted = shorter.accept(&local());
                    assert!(accepted.answer.ends_with("\r\n"));
                    assert!(accepted.setup.audio.is_some() || accepted.setup.sctp.is_some());
                }
                Err(error) => assert!(error.message.contains(": "), "no fix in {}", error.message),
            }
        }
    }
}

#[test]
fn s17_a_line_cut_in_its_name_is_named() {
    let error = refuse(&format!("{AUDIO}a"));
    assert_eq!(error.line, Some(13));
    assert!(error.message.starts_with("line 13: the line is not of the form x=value"), "{}", error.message);
}

#[test]
fn s17_a_mebibyte_is_refused_by_its_size() {
    let error = refuse(&(AUDIO.to_owned() + &"a=x\n".repeat(1 << 18)));
    assert_eq!(error.line, None);
    assert!(error.message.contains("send at most 65536"), "{}", error.message);
}

#[test]
fn an_offer_of_exactly_the_limit_is_read() {
    let mut offer = AUDIO.to_owned() + "a=x:";
    offer.push_str(&"y".repeat(OFFER_BYTES_MAX - offer.len()));
    assert!(Offer::parse(&offer).is_ok());
    offer.push('y');
    assert!(Offer::parse(&offer).is_err());
}

#[test]
fn a_line_too_many_is_named() {
    let dead = "m=video 0 UDP/TLS/RTP/SAVPF 96\n";
    let offer = AUDIO.to_owned() + &dead.repeat(MEDIA_LINES_MAX - 1);
    assert!(Offer::parse(&offer).is_ok());
    let error = refuse(&(offer + dead));
    assert_eq!((error.line, error.attribute), (Some(12 + MEDIA_LINES_MAX), "m="));
}

#[test]
fn json_around_the_sdp_is_told_from_sdp() {
    let error = refuse(r#"{"type":"offer","sdp":"v=0\r\n"}"#);
    assert_eq!(error.line, Some(1));
    assert!(error.message.contains("not JSON"), "{}", error.message);
}

#[test]
fn malformed_m_lines_are_named() {
    for line in [
        "m=",
        "m=audio",
        "m=audio 9",
        "m=audio 9 UDP/TLS/RTP/SAVPF",
        "m=audio x RTP/SAVPF 0",
        "m=audio 70000 RTP/SAVPF 0",
        "m=audio -1 RTP/SAVPF 0",
    ] {
        let error = refuse(&format!("{AUDIO}{line}\n"));
        assert_eq!((error.line, error.attribute), (Some(13), "m="), "{line}");
    }
}

#[test]
fn nothing_of_an_offer_smuggles_lines_into_the_answer() {
    for bad in ["a=mid:a\rm=video 9 x 0", "a=mid:a\u{0}", "a=rtpmap:111 opus/48000/2\u{7}"] {
        let error = refuse(&format!("{AUDIO}{bad}\n"));
        assert!(error.message.contains("control character"), "{}", error.message);
    }
}

/// Each byte of a browser's offer replaced by each of a few that mean something to a parser.
#[test]
fn no_single_changed_byte_panics() {
    let offer = CHROMIUM.as_bytes();
    for at in 0..offer.len() {
        for byte in *b"\n\r =:/-0z\0" {
            let mut broken = offer.to_vec();
            broken[at] = byte;
            if let Ok(parsed) = Offer::parse(std::str::from_utf8(&broken).unwrap()) {
                let answer = parsed.accept(&local()).answer;
                let offered =
                    std::str::from_utf8(&broken).unwrap().lines().filter(|line| line.starts_with("m=")).count();
                assert_eq!(
                    answer.lines().filter(|line| line.starts_with("m=")).count(),
                    offered,
                    "byte {at} as {byte}"
                );
            }
        }
    }
}

#[test]
fn no_line_left_out_doubled_or_moved_to_the_end_panics() {
    for offer in ALL {
        let lines: Vec<_> = offer.lines().collect();
        for at in 0..lines.len() {
            let mut left_out = lines.clone();
            let line = left_out.remove(at);
            let mut moved = left_out.clone();
            moved.push(line);
            let mut doubled = lines.clone();
            doubled.insert(at, line);
            for text in [left_out, moved, doubled] {
                if let Ok(parsed) = Offer::parse(&text.join("\n")) {
                    let _ = parsed.accept(&local());
                }
            }
        }
    }
}

/// Lists in lists, of the largest size that is read. Whoever compares each with each is busy for minutes.
#[test]
fn an_offer_made_to_be_slow_is_not() {
    let lines = (0..MEDIA_LINES_MAX).map(|n| {
        let filler = "a=x\n".repeat(80);
        format!("m=audio 0 UDP/TLS/RTP/SAVPF 111\n{filler}a=bundle-only\na=mid:{n}\n")
    });
    let lines: String = lines.collect();
    let mids: String = (0..MEDIA_LINES_MAX).map(|n| format!(" {n}")).collect();
    let groups = format!("v=0\na=group:BUNDLE{}{mids}\n{lines}", " z".repeat(18_000));

    let formats = " 0".repeat(15_000);
    let maps = |name: &str| format!("a=rtpmap:9 {name}/8000\n").repeat(1_500);
    let codecs = format!("v=0\nm=audio 9 UDP/TLS/RTP/SAVPF{formats}\na=rtcp-mux\n{}", maps("G722"));
    let refused = format!("{AUDIO}m=video 9 UDP/TLS/RTP/SAVPF{formats}\n{}", maps("VP8"));

    for offer in [groups, codecs, refused] {
        assert!(offer.len() <= OFFER_BYTES_MAX, "{} bytes", offer.len());
        let begin = std::time::Instant::now();
        let _ = Offer::parse(&offer);
        assert!(begin.elapsed().as_secs() < 1, "{:?} for {}", begin.elapsed(), &offer[..60]);
    }
}
