//! How sessions end.

use std::time::Duration;

use rtc::{Class, CloseReason, Config, Discard, Event, classify};

use crate::pair::{Pair, Plan, Way};

fn closed(pair: &Pair) -> Option<(Duration, CloseReason)> {
    pair.server_events.iter().find_map(|(at, event)| match event {
        Event::Closed(reason) => Some((*at, *reason)),
        _ => None,
    })
}

/// Case D08.
#[test]
fn on_close_notify_with_ours_sent_back() {
    for active in [true, false] {
        let mut pair = Pair::open(Plan { active, ..Plan::default() });
        let start = pair.sim.elapsed();
        pair.sent.clear();
        pair.client.close().unwrap();
        pair.until(Duration::from_secs(1), |pair| closed(pair).is_some());
        let (at, reason) = closed(&pair).unwrap();
        assert_eq!(reason, CloseReason::PeerClosed);
        assert!(at - start < Duration::from_millis(100));
        let last = pair.sent.iter().rfind(|(_, way, _)| *way == Way::Down).unwrap();
        assert_eq!((last.0, classify(&last.2)), (at, Class::Dtls), "our close_notify");
        assert_eq!(pair.server.poll_timeout(), None);
    }
}

#[test]
fn on_demand_and_tell_the_client() {
    let mut pair = Pair::open(Plan::default());
    pair.server.close(pair.sim.now());
    pair.until(Duration::from_secs(1), |pair| {
        pair.client_events.iter().any(|(_, event)| matches!(event, str0m::Event::Closed))
    });
    assert_eq!(closed(&pair).map(|(_, reason)| reason), Some(CloseReason::LocalClosed));
}

/// Case I10.
#[test]
fn for_good_and_answer_nothing_afterwards() {
    let mut pair = Pair::open(Plan::default());
    let check = pair.sent.iter().find(|(_, way, datagram)| *way == Way::Up && classify(datagram) == Class::Stun);
    let check = check.unwrap().2.clone();
    pair.server.close(pair.sim.now());
    pair.run(Duration::from_millis(10));
    pair.sent.clear();
    let path = pair.path();
    assert_eq!(pair.inject(path, &check), Err(Discard::Closed));
    assert_eq!(pair.sent, []);
    let removed = pair.server_events.iter().filter(|(_, event)| matches!(event, Event::PathRemoved(_))).count();
    assert_eq!(removed, 1);
    assert!(matches!(pair.server_events.last(), Some((_, Event::Closed(_)))));
}

/// Case I15: every second check lost for two minutes.
#[test]
fn not_while_every_second_check_arrives() {
    let mut pair = Pair::open(Plan::default());
    let mut count = 0_u32;
    pair.lose = Box::new(move |way, datagram| {
        let check = way == Way::Up && classify(datagram) == Class::Stun;
        count += u32::from(check);
        check && count.is_multiple_of(2)
    });
    pair.run(Duration::from_secs(120));
    assert_eq!(closed(&pair), None);
}

/// Case I15: 25 s without a check, one, then none. The client's own agent gives up sooner, so its check is repeated for it.
#[test]
fn thirty_seconds_after_the_last_valid_check_and_not_before() {
    let mut pair = Pair::open(Plan::default());
    let check = |way, datagram: &[u8]| way == Way::Up && classify(datagram) == Class::Stun;
    let valid = pair.sent.iter().find(|(_, way, datagram)| check(*way, datagram)).unwrap().2.clone();
    pair.lose = Box::new(check);
    pair.run(Duration::from_secs(5));
    let path = pair.path();
    for _ in 0..2 {
        pair.inject(path, &valid).unwrap();
        pair.run(Duration::from_secs(25));
        assert_eq!(closed(&pair), None);
    }
    let last = pair.sim.elapsed() - Duration::from_secs(25);
    let mut invalid = valid;
    invalid[30] ^= 1;
    assert!(pair.inject(path, &invalid).is_err());
    pair.run(Duration::from_secs(25));
    assert_eq!(closed(&pair), Some((last + Duration::from_secs(30), CloseReason::ConsentExpired)));
}

#[test]
fn when_dtls_does_not_connect_in_time() {
    let mut pair = Pair::new(Plan::default());
    pair.lose = Box::new(|_, datagram| classify(datagram) == Class::Dtls);
    pair.run(Duration::from_secs(31));
    assert_eq!(closed(&pair), Some((Duration::from_secs(30), CloseReason::SetupTimeout)));
}

/// Case I11.
#[test]
fn not_before_the_setup_timeout_although_the_first_check_is_late() {
    let mut pair = Pair::new(Plan::default());
    pair.lose = Box::new(|way, _| way == Way::Up);
    pair.run(Duration::from_secs(8));
    assert_eq!(closed(&pair), None);
    pair.lose = Box::new(|_, _| false);
    pair.until(Duration::from_secs(15), Pair::both_open);
    pair.run(Duration::from_secs(30));
    assert_eq!(closed(&pair), None);
}

#[test]
fn at_the_timeouts_of_the_config() {
    let config = Config { setup_timeout: Duration::from_secs(3), ..Config::default() };
    let mut pair = Pair::new(Plan { config, ..Plan::default() });
    pair.lose = Box::new(|_, datagram| classify(datagram) == Class::Dtls);
    pair.run(Duration::from_secs(4));
    assert_eq!(closed(&pair), Some((Duration::from_secs(3), CloseReason::SetupTimeout)));
}
