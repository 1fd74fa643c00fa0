//! Clients that change their address.

use std::net::SocketAddr;
use std::time::Duration;

use rtc::{Class, Event, Path, classify};

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
    let path = Path { local: server_address(), remote: elsewhere() };
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

/// A check that was recorded and is sent again from elsewhere takes the downlink for one packet of the client's at most.
#[test]
fn are_not_taken_over_by_a_replayed_check() {
    let mut pair = Pair::open(Plan::default());
    pair.echo = true;
    pair.talk(10);
    let check = pair.sent.iter().rfind(|(_, way, datagram)| *way == Way::Up && classify(datagram) == Class::Stun);
    let check = check.unwrap().2.clone();
    let attacker = Path { local: server_address(), remote: elsewhere() };
    pair.inject(attacker, &check).unwrap();
    pair.run(Duration::from_millis(200));
    let before = pair.heard_by_client().len();
    pair.talk(10);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.heard_by_client().len(), before + 10);
}
