//! Clients that change their address.

use std::net::SocketAddr;
use std::time::Duration;

use rtc::{Class, Event, OutgoingFrame, Path, classify};

use crate::pair::{Pair, Plan, Way, server_address};

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 5], 6000))
}

/// Case I05: the port changes behind a NAT; a check from the new one, then media: the downlink follows.
#[test]
fn are_followed_with_the_first_media_from_a_checked_address() {
    let mut pair = Pair::open(Plan::default());
    pair.echo = true;
    pair.talk(50);
    pair.source = elsewhere();
    // The next check comes within the client's interval; until then its media is from an unknown address.
    for _ in 0..20 {
        pair.talk(50);
    }
    let path = Path::udp(server_address(), elsewhere());
    let added = pair.server_event(|event| *event == Event::PathAdded(path)).expect("checked");
    let heard = pair.heard.iter().filter(|(at, _)| *at > added).count();
    pair.run(Duration::from_millis(200));
    let before = pair.heard_by_client().len();
    assert!(heard > 100, "{heard}");
    pair.talk(50);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.heard_by_client().len(), before + 50, "the echo arrives at the new address");
}

#[test]
fn are_forgotten_thirty_seconds_after_their_last_check() {
    let mut pair = Pair::open(Plan::default());
    let old = pair.path();
    pair.source = elsewhere();
    pair.run(Duration::from_secs(45));
    assert!(pair.server_event(|event| *event == Event::PathRemoved(old)).is_some());
    assert!(pair.server_event(|event| matches!(event, Event::Closed(_))).is_none());
}

/// A nominating check that was recorded and is sent again from elsewhere takes not one packet.
#[test]
fn are_not_taken_over_by_a_replayed_check() {
    let mut pair = Pair::open(Plan::default());
    let (attacker, check) = attack(&mut pair);
    pair.inject(attacker, &check).unwrap();
    let mut out = Vec::new();
    let frame =
        OutgoingFrame { codec: rtc::Codec::Opus, rtp_timestamp: 0, marker: false, payload: &[1], label: 0, samples: 0 };
    let now = pair.sim.now();
    assert_eq!(pair.server.send_media(now, frame, &mut out), Ok(pair.path()));
}

/// A session keeps eight paths; what others add goes at the expense of others.
#[test]
fn in_use_are_not_displaced_by_checks_from_many_addresses() {
    let mut pair = Pair::open(Plan::default());
    pair.echo = true;
    pair.talk(5);
    let (attacker, check) = attack(&mut pair);
    for port in 1..100 {
        let mut path = attacker;
        path.remote.set_port(port);
        pair.inject(path, &check).unwrap();
    }
    assert!(pair.server_event(|event| *event == Event::PathRemoved(pair.path())).is_none());
    pair.run(Duration::from_millis(200));
    let before = pair.heard_by_client().len();
    pair.talk(10);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.heard_by_client().len(), before + 10);
}

/// A client that only listens still reports what it hears.
#[test]
fn are_followed_with_a_report_from_a_checked_address() {
    let mut pair = Pair::open(Plan::default());
    pair.source = elsewhere();
    let new = pair.path();
    pair.until(Duration::from_secs(30), |pair| {
        let frame = OutgoingFrame {
            codec: rtc::Codec::Opus,
            rtp_timestamp: 0,
            marker: false,
            payload: &[1],
            label: 0,
            samples: 0,
        };
        let now = pair.sim.now();
        pair.server.send_media(now, frame, &mut Vec::new()) == Ok(new)
    });
    let old = Path { remote: crate::pair::client_address(), ..new };
    assert!(pair.server_event(|event| *event == Event::PathRemoved(old)).is_none(), "it did not merely expire");
}

/// A client that neither speaks nor hears is asked: it answers within a round trip of its check.
#[test]
fn are_asked_where_they_are_when_they_say_nothing() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(5);
    pair.run(Duration::from_secs(1));
    pair.source = elsewhere();
    let new = pair.path();
    pair.until(Duration::from_secs(30), |pair| pair.server_event(|event| *event == Event::PathAdded(new)).is_some());
    pair.until(Duration::from_millis(120), |pair| {
        let frame = OutgoingFrame {
            codec: rtc::Codec::Opus,
            rtp_timestamp: 0,
            marker: false,
            payload: &[1],
            label: 0,
            samples: 0,
        };
        let now = pair.sim.now();
        pair.server.send_media(now, frame, &mut Vec::new()) == Ok(new)
    });
}

/// Ten seconds of replays beside a downlink: three bytes for one, all of them counted, and nothing moves.
#[test]
fn are_not_flooded_by_who_replays_their_checks() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(5);
    let (attacker, check) = attack(&mut pair);
    let (client, start) = (pair.path(), pair.sim.now());
    let (mut came, mut went, mut duplicated) = (0, 0, 0);
    let mut out = Vec::new();
    for slot in 0..500_u32 {
        let now = start + Duration::from_millis(20) * slot;
        if slot % 5 == 0 {
            let _ = pair.server.handle_datagram(now, attacker, &mut check.clone());
            came += check.len();
        }
        if pair.server.poll_timeout().is_some_and(|at| at <= now) {
            pair.server.handle_timeout(now);
        }
        let frame = OutgoingFrame {
            codec: rtc::Codec::Opus,
            rtp_timestamp: slot * 960,
            marker: false,
            payload: &[1; 80],
            label: 0,
            samples: 0,
        };
        assert_eq!(pair.server.send_media(now, frame, &mut out), Ok(client));
        if let Some(path) = pair.server.duplicate(now, out.len()) {
            assert_eq!(path, attacker);
            went += out.len();
            duplicated += 1;
        }
        while let Some(transmit) = pair.server.poll_transmit(&mut out) {
            went += if transmit.path == attacker { out.len() } else { 0 };
        }
    }
    assert!(duplicated > 0);
    assert!(went <= 3 * came, "{went} bytes for {came}");
}

/// An address of somebody else's, and a recorded check that nominates.
fn attack(pair: &mut Pair) -> (Path, Vec<u8>) {
    let nominates = |datagram: &[u8]| {
        classify(datagram) == Class::Stun && rtc::stun::Check::parse(datagram).is_ok_and(|check| check.nominates())
    };
    let check = pair.sent.iter().rfind(|(_, way, datagram)| *way == Way::Up && nominates(datagram));
    let check = check.expect("the client nominated").2.clone();
    (Path::udp(server_address(), elsewhere()), check)
}
