//! The data channel line.

use rtc::sdp::SctpSetup;

use crate::offers::{AUDIO, DATA, accept, media, refuse, section, with};

fn offer(data: &str) -> String {
    with(AUDIO, "t=0 0\n", "t=0 0\na=group:BUNDLE a d\n") + data
}

#[test]
fn port_and_limit_are_read() {
    let accepted = accept(&offer(&format!("{}a=max-message-size:100000\n", DATA.replace("5000", "5001"))));
    assert_eq!(accepted.setup.sctp, Some(SctpSetup { remote_port: 5001, max_message_bytes: 100_000 }));
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
