//! Other implementations read our answers.

use std::io::Cursor;
use std::net::SocketAddr;
use std::time::Instant;

use rtc::{Identity, LocalDescription, Offer};
use rtc_sdp::SessionDescription;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind};
use str0m::{Candidate, Rtc};

use crate::offers::{ALL, accept, local};

/// A strict RFC 8866 parser takes all answers, and finds as many m-lines as were offered.
#[test]
fn answers_are_read_by_another_parser() {
    for offer in ALL {
        let answer = accept(offer).answer;
        let parsed = SessionDescription::unmarshal(&mut Cursor::new(answer.as_bytes())).unwrap();
        assert_eq!(parsed.media_descriptions.len(), offer.lines().filter(|line| line.starts_with("m=")).count());
        assert_eq!(parsed.marshal(), answer, "and writes it again as it was");
    }
}

/// Another WebRTC stack offers audio, video and a data channel, and takes the answer.
#[test]
fn another_stack_takes_our_answer_to_its_offer() {
    let mut client = Rtc::builder().build(Instant::now());
    let address = SocketAddr::from(([127, 0, 0, 1], 50000));
    client.add_local_candidate(Candidate::host(address, "udp").unwrap());
    let mut change = client.sdp_api();
    let audio = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
    change.add_media(MediaKind::Video, Direction::SendRecv, None, None, None);
    change.add_channel("oai-events".to_owned());
    let (offer, pending) = change.apply().unwrap();

    let local = LocalDescription { fingerprint: Identity::generate().fingerprint().to_owned(), ..local() };
    let accepted = Offer::parse(&offer.to_sdp_string()).unwrap().accept(&local);
    assert!(accepted.setup.audio.is_some());
    assert!(accepted.setup.sctp.is_some());
    let answer = SdpAnswer::from_sdp_string(&accepted.answer).unwrap();
    client.sdp_api().accept_answer(pending, answer).unwrap();
    assert_eq!(client.media(audio).unwrap().direction(), Direction::SendRecv);
}
