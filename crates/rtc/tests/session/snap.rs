//! SNAP and negotiated channels with a foreign SCTP.

use std::time::Duration;

use rtc::{Event, MessageKind, Snap};

use crate::pair::{DELAY, Pair, Plan};

fn opened(event: &Event) -> bool {
    matches!(event, Event::ChannelOpened { .. })
}

fn connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}

#[test]
fn the_association_stands_when_dtls_does() {
    for active in [true, false] {
        let open_after = |snap| {
            let pair = Pair::open(Plan { active, snap, ..Plan::default() });
            assert_eq!(pair.snap, if snap { Snap::Answered } else { Snap::NotOffered });
            pair.server_event(opened).unwrap() - pair.server_event(connected).unwrap()
        };
        let (with, without) = (open_after(true), open_after(false));
        assert!(with + 2 * DELAY <= without && with <= 2 * DELAY, "{with:?} against {without:?}, active {active}");
    }
}

#[test]
fn an_answer_that_lost_its_half_falls_back_to_the_handshake() {
    let strip = |answer: &str| -> String {
        answer.split_inclusive('\n').filter(|line| !line.starts_with("a=sctp-init:")).collect()
    };
    // As DTLS server this client waits for our INIT, where browsers always send theirs.
    let pair = Pair::open(Plan { active: false, snap: true, strip, ..Plan::default() });
    assert_eq!(pair.snap, Snap::Answered);
    let late = pair.server_event(opened).unwrap() - pair.server_event(connected).unwrap();
    assert!(late <= Duration::from_millis(500), "{late:?}");
}

/// As DTLS server this client waits for an INIT, and it never learnt of ours.
#[test]
fn a_client_that_waits_for_an_init_gets_it_although_snap_was_answered() {
    let strip = |answer: &str| -> String {
        answer.split_inclusive('\n').filter(|line| !line.starts_with("a=sctp-init:")).collect()
    };
    let pair = Pair::open(Plan { active: true, snap: true, strip, ..Plan::default() });
    assert_eq!(pair.snap, Snap::Answered);
    let late = pair.server_event(opened).unwrap() - pair.server_event(connected).unwrap();
    assert!(late <= Duration::from_millis(2100), "{late:?}");
}

#[test]
fn the_server_speaks_first_on_a_negotiated_channel() {
    let mut pair = Pair::new(Plan { snap: true, negotiated: Some(100), ..Plan::default() });
    pair.until(Duration::from_secs(5), |pair| pair.server_event(opened).is_some());
    assert_eq!(pair.server_event(opened), pair.server_event(connected));
    let now = pair.sim.now();
    pair.server.send_message(now, rtc::ChannelId(100), MessageKind::Text, b"session.created").unwrap();
    let (channel, sent) = (pair.channel, pair.sim.elapsed());
    let heard = |pair: &Pair| {
        let data = pair.client_events.iter().find_map(|(at, event)| match event {
            str0m::Event::ChannelData(data) if data.id == channel => Some((*at, data.data.clone())),
            _ => None,
        });
        data.map(|(at, data)| (at, String::from_utf8(data).unwrap()))
    };
    pair.until(Duration::from_secs(5), |pair| heard(pair).is_some());
    assert_eq!(heard(&pair), Some((sent + DELAY, "session.created".to_owned())), "its first message, one way later");
}
