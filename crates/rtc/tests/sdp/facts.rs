//! What a page tells of its offer when it writes the answer by itself.

use rtc::sdp::AudioFacts;
use rtc::{ClientFacts, Codec, Offer, SctpInit};

use crate::offers::local;

const INIT: &str = "AQAAHhEiM0QAUAAA/////wAAA+jAAAAEgAgABoLAAAA=";

fn chromium() -> String {
    include_str!("offers/chromium.sdp").to_owned()
}

fn facts(offer: &str, dcid: Option<u16>) -> ClientFacts {
    ClientFacts::of(&Offer::parse(offer).unwrap(), dcid).unwrap()
}

fn with_init(offer: &str) -> String {
    offer.replace("a=sctp-port:5000", &format!("a=sctp-port:5000\na=sctp-init:{INIT}"))
}

#[test]
fn a_browsers_offer_is_told_in_60_characters() {
    let facts = facts(&with_init(&chromium()), Some(0));
    assert_eq!(facts.snap, Some((0x1122_3344, 1000)));
    let audio = facts.audio.unwrap();
    assert_eq!((audio.opus, audio.sends, audio.receives, facts.data), (111, true, true, true));
    let text = facts.write();
    assert_eq!(text.len(), 60);
    assert!(text.bytes().all(|char| char.is_ascii_alphanumeric() || char == b'+' || char == b'/'));
    assert_eq!(ClientFacts::read(&text), Some(facts));
}

#[test]
fn without_snap_50_characters_do() {
    let facts = facts(&chromium(), None);
    assert_eq!((facts.snap, facts.dcid, facts.write().len()), (None, None, 50));
    assert_eq!(ClientFacts::read(&facts.write()), Some(facts));
}

#[test]
fn the_setup_is_the_one_of_the_answer() {
    for offer in [chromium(), include_str!("offers/firefox.sdp").to_owned()] {
        let told = facts(&offer, None).setup(&local(), "client", "oai-events").unwrap();
        let agreed = Offer::parse(&offer).unwrap().accept(&local()).setup;
        let (told_audio, agreed_audio) = (told.audio.unwrap(), agreed.audio.unwrap());
        assert_eq!(told.fingerprints, agreed.fingerprints);
        assert_eq!((told.dtls_active, told.sped), (agreed.dtls_active, agreed.sped));
        assert_eq!(
            (told_audio.primary.payload_type, told_audio.audio_level_id),
            (agreed_audio.primary.payload_type, agreed_audio.audio_level_id)
        );
        assert_eq!(told_audio.transport_seq_id, agreed_audio.transport_seq_id);
        assert!(agreed_audio.beside.iter().all(|format| told_audio.beside.contains(format)), "{told_audio:?}");
        assert_eq!(told_audio.format_of(Codec::Red), agreed_audio.format_of(Codec::Red));
        assert_eq!(told_audio.nack, agreed_audio.nack);
        // One of the two fits: the mid is of no use where there is one audio line.
        assert_eq!(told_audio.mid_id, agreed_audio.mid_id.filter(|_| agreed_audio.transport_seq_id.is_none()));
        assert_eq!(told_audio.ssrc, agreed_audio.ssrc);
        assert_eq!(
            (told_audio.cname, told_audio.send, told_audio.receive),
            (agreed_audio.cname, agreed_audio.send, agreed_audio.receive)
        );
        assert_eq!(told.sctp.is_some(), agreed.sctp.is_some());
    }
}

#[test]
fn red_is_told_where_the_answer_has_it_and_has_one_number() {
    let all = facts(&chromium(), None);
    assert!(all.audio.unwrap().red);
    let without = all.without_red();
    assert_eq!(ClientFacts::read(&without.write()), Some(without));
    assert!(all.fit(&all) && without.fit(&all), "an answer may leave it out");
    assert!(!all.fit(&without), "and has none that was not offered");
    let setup = without.setup(&local(), "client", "oai-events").unwrap();
    assert_eq!(setup.audio.unwrap().format_of(Codec::Red), None);
    let renamed = chromium().replace(" 63 ", " 64 ").replace(":63 ", ":64 ");
    assert!(!facts(&renamed, None).audio.unwrap().red);
}

#[test]
fn the_association_is_the_one_of_the_answer() {
    let ours = SctpInit::Given { tag: 7, tsn: 9 };
    let local = rtc::LocalDescription { sctp_init: ours.clone(), ..local() };
    let offer = with_init(&chromium());
    let told = facts(&offer, Some(3)).setup(&local, "client", "oai-events").unwrap().sctp.unwrap();
    let accepted = Offer::parse(&offer).unwrap().accept(&local);
    let agreed = accepted.setup.sctp.unwrap().snap.unwrap();
    assert_eq!((told.snap.unwrap().init, ours.value().as_ref()), (agreed.init.clone(), Some(&agreed.init)));
    assert!(accepted.answer.contains(&format!("a=sctp-init:{}\r\n", agreed.init)));
    assert_eq!(told.negotiated, [rtc::Negotiated::reliable(3, "oai-events")]);
}

#[test]
fn an_offer_that_says_what_facts_cannot_has_none() {
    let sound = chromium();
    let second = "a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF";
    for (from, to) in [
        ("a=setup:actpass", "a=setup:active".to_owned()),
        ("a=setup:actpass", format!("a=setup:actpass\n{second}")),
        ("a=max-message-size:262144", "a=max-message-size:65536".to_owned()),
        ("a=sctp-port:5000", "a=sctp-port:5001".to_owned()),
        ("a=sctp-port:5000", "a=sctp-port:5000\na=dcmap:3 label=\"x\"".to_owned()),
        ("a=sctp-port:5000", "a=sctp-port:5000\na=sctp-init:AQAABA==".to_owned()),
    ] {
        let changed = sound.replace(from, &to);
        assert_ne!(changed, sound);
        let offer = Offer::parse(&changed).unwrap_or_else(|e| panic!("{to}: {e}"));
        assert_eq!(ClientFacts::of(&offer, None), None, "{to}");
    }
    let sped = sound.replace("a=ice-options:trickle", "a=ice-options:trickle sped");
    assert!(facts(&sped, None).sped);
    assert!(facts(&sped.replace("a=setup:actpass", "a=setup:active"), None).sped);
    assert!(facts(&sound.replace("a=setup:actpass", "a=setup:passive"), None).audio.is_some());
}

#[test]
fn what_no_call_can_come_of_is_not_read() {
    let sound = facts(&with_init(&chromium()), Some(0));
    let audio = |change: fn(&mut AudioFacts)| {
        let mut audio = sound.audio.unwrap();
        change(&mut audio);
        ClientFacts { audio: Some(audio), ..sound }
    };
    let unsound = [
        audio(|audio| audio.opus = 64),
        audio(|audio| (audio.opus, audio.red) = (63, true)),
        audio(|audio| (audio.mid_id, audio.transport_seq_id) = (Some(15), None)),
        audio(|audio| audio.transport_seq_id = Some(15)),
        audio(|audio| audio.transport_seq_id = Some(0)),
        ClientFacts { audio: None, data: false, snap: None, dcid: None, ..sound },
        ClientFacts { data: false, ..sound },
        ClientFacts { snap: Some((0, 1)), ..sound },
        ClientFacts { dcid: Some(u16::MAX), ..sound },
    ];
    for facts in unsound {
        assert_eq!(ClientFacts::read(&facts.write()), None, "{facts:?}");
    }
    let text = sound.write();
    for end in 0..text.len() {
        assert_eq!(ClientFacts::read(&text[..end]), None, "{end}");
    }
    for other in [format!("{text}A"), text.replace('A', "="), format!("é{text}"), "é".repeat(30)] {
        assert_eq!(ClientFacts::read(&other), None);
    }
}
