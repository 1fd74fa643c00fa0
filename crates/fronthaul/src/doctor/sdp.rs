//! The offer of a browser that never speaks, and what an answer says of the way to the edge.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng as _;

/// What was offered.
pub(super) struct Offered {
    /// Ours.
    pub(super) ufrag: String,
    password: String,
    fingerprint: String,
    init: String,
}

impl Offered {
    pub(super) fn new() -> Self {
        let mut rng = rand::rng();
        let mut random = |count: usize| {
            let mut bytes = vec![0; count];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
        // RFC 9260 §3.3.2: INIT with a tag, 128 KiB of window, all streams and a first TSN.
        let mut init = vec![1, 0, 0, 20];
        init.extend_from_slice(&random(4));
        init.extend_from_slice(&[0, 2, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        init.extend_from_slice(&random(4));
        Self {
            ufrag: hex(random(4)).concat(),
            password: hex(random(16)).concat(),
            fingerprint: hex(random(32)).join(":").to_uppercase(),
            init: STANDARD.encode(init),
        }
    }

    /// Audio and a data channel, as Chromium offers them.
    pub(super) fn offer(&self) -> String {
        let Self { ufrag, password, fingerprint, init } = self;
        let transport = format!(
            "c=IN IP4 0.0.0.0\na=ice-ufrag:{ufrag}\na=ice-pwd:{password}\na=ice-options:trickle sped\n\
             a=fingerprint:sha-256 {fingerprint}\na=setup:actpass\n"
        );
        let offer = format!(
            "v=0\no=- 1 2 IN IP4 127.0.0.1\ns=-\nt=0 0\na=group:BUNDLE 0 1\na=msid-semantic: WMS\n\
             m=audio 9 UDP/TLS/RTP/SAVPF 111\n{transport}a=mid:0\na=sendrecv\na=rtcp-mux\na=rtpmap:111 opus/48000/2\n\
             a=fmtp:111 minptime=10;useinbandfec=1\n\
             m=application 9 UDP/DTLS/SCTP webrtc-datachannel\n{transport}a=mid:1\na=sctp-port:5000\n\
             a=max-message-size:262144\na=sctp-init:{init}\n"
        );
        offer.replace('\n', "\r\n")
    }
}

/// One address of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) address: SocketAddr,
    pub(super) tcp: bool,
}

/// What was answered. Without `Debug`: the password is a secret.
pub(super) struct Answered {
    pub(super) ufrag: String,
    pub(super) password: String,
    pub(super) candidates: Vec<Candidate>,
    pub(super) sped: bool,
    pub(super) snap: bool,
}

impl Answered {
    /// `None`: it has no credentials.
    pub(super) fn read(answer: &str) -> Option<Self> {
        let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let words = |text: &str| {
            text.split_ascii_whitespace().any(|word| matches!(word, "sped" | "googspedv1" | "goog-sped-v1"))
        };
        Some(Self {
            ufrag: value("a=ice-ufrag:")?.to_owned(),
            password: value("a=ice-pwd:")?.to_owned(),
            candidates: answer.lines().filter_map(|line| candidate(line.strip_prefix("a=candidate:")?)).collect(),
            sped: value("a=ice-options:").is_some_and(words),
            snap: value("a=sctp-init:").is_some(),
        })
    }
}

/// `<foundation> <component> <transport> <priority> <address> <port> typ host ...` (RFC 8839 §5.1).
fn candidate(line: &str) -> Option<Candidate> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let tcp = match words.next()?.to_ascii_lowercase().as_str() {
        "udp" => false,
        "tcp" => true,
        _ => return None,
    };
    let (ip, port) = (words.nth(1)?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Candidate { address: SocketAddr::new(ip, port), tcp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_where_the_edge_is() {
        let answer = "a=ice-ufrag:abc\r\na=ice-pwd:secret\r\na=ice-options:sped\r\n\
             a=candidate:1 1 udp 2130706431 192.0.2.1 3478 typ host\r\n\
             a=candidate:2 1 tcp 1520434943 2001:db8::1 443 typ host tcptype passive\r\n\
             a=candidate:3 1 udp 1 name.local 9 typ host\r\na=candidate:\r\n";
        let answered = Answered::read(answer).unwrap();
        assert_eq!((answered.ufrag.as_str(), answered.password.as_str()), ("abc", "secret"));
        assert!(answered.sped && !answered.snap);
        let expected = [("192.0.2.1:3478", false), ("[2001:db8::1]:443", true)];
        let expected = expected.map(|(address, tcp)| Candidate { address: address.parse().unwrap(), tcp });
        assert_eq!(answered.candidates, expected);
        assert!(Answered::read("v=0\r\n").is_none());
    }
}
