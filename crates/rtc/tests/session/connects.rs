//! How fast, in which role and version, and what lost datagrams cost.

use std::time::Duration;

use rtc::{Class, Event, classify};
use sim::{Conditions, Loss};
use str0m::config::DtlsVersion;

use crate::pair::{DELAY, Pair, Plan, Way};

const RTT: Duration = Duration::from_millis(100);

fn connected_at(pair: &Pair) -> Option<(Duration, u16)> {
    pair.server_events.iter().find_map(|(at, event)| match event {
        Event::Connected { version, .. } => Some((*at, *version)),
        _ => None,
    })
}

#[test]
fn in_both_roles_and_versions() {
    for active in [true, false] {
        for (version, wire) in [(DtlsVersion::Dtls12, 0xFEFD), (DtlsVersion::Dtls13, 0xFEFC)] {
            let pair = Pair::open(Plan { active, version, ..Plan::default() });
            let (_, connected) = connected_at(&pair).unwrap();
            assert_eq!(connected, wire, "active: {active}");
            assert_eq!(pair.discards, [], "active: {active}, {wire:x}");
        }
    }
}

/// Check up, response and ClientHello down, server flight up: our keys stand after 1.5 round trips, and with our last
/// flight half a round trip later the client's.
#[test]
fn an_active_server_has_media_after_two_round_trips() {
    let pair = Pair::open(Plan { version: DtlsVersion::Dtls13, ..Plan::default() });
    let first_check = pair.sent.iter().find(|(_, _, datagram)| classify(datagram) == Class::Stun).unwrap().0;
    let (connected, _) = connected_at(&pair).unwrap();
    assert_eq!(connected - first_check, RTT + DELAY);
}

#[test]
fn our_client_hello_is_right_behind_the_first_response() {
    let pair = Pair::open(Plan::default());
    let down: Vec<_> = pair.sent.iter().filter(|(_, way, _)| *way == Way::Down).collect();
    assert_eq!(classify(&down[0].2), Class::Stun);
    assert_eq!(classify(&down[1].2), Class::Dtls);
    assert_eq!(down[0].0, down[1].0);
}

/// Cases D04, D09. Both ends resend here: ours within 190 ms, str0m's after a second. A flight of ours never waits for the
/// client's timer, unless it is our answer to a flight that the client has to repeat.
#[test]
fn a_lost_datagram_of_ours_costs_far_less_than_a_second() {
    for active in [true, false] {
        let mut pair = Pair::open(Plan { active, version: DtlsVersion::Dtls13, ..Plan::default() });
        let plain = pair.sim.elapsed();
        let handshake = pair.sent.iter().filter(|(_, _, datagram)| datagram.first() == Some(&22)).count();
        for lost in 0..handshake {
            pair = Pair::new(Plan { active, version: DtlsVersion::Dtls13, ..Plan::default() });
            let (mut seen, ours) = (0, std::rc::Rc::new(std::cell::Cell::new(false)));
            let was_ours = ours.clone();
            pair.lose = Box::new(move |way, datagram| {
                let counts = datagram.first() == Some(&22);
                seen += usize::from(counts);
                let lose = counts && seen == lost + 1;
                was_ours.set(was_ours.get() || lose && way == Way::Down);
                lose
            });
            pair.until(Duration::from_secs(10), Pair::both_open);
            let cost = pair.sim.elapsed() - plain;
            assert!(!ours.get() || cost < Duration::from_millis(200), "active: {active}, datagram {lost}: {cost:?}");
        }
    }
}

#[test]
fn under_loss_reordering_and_duplication_in_every_role() {
    let wire = Conditions {
        delay: DELAY,
        jitter: Duration::from_millis(20),
        loss: Loss::Uniform(0.1),
        reorder: 0.1,
        reorder_delay: Duration::from_millis(30),
        duplicate: 0.1,
    };
    for seed in 0..30 {
        for active in [true, false] {
            // As the DTLS server we leave INIT to str0m, which repeats it after 3, 9 and 21 s and then gives up.
            let wire = if active { wire } else { Conditions { loss: Loss::Uniform(0.05), ..wire } };
            let mut pair = Pair::new(Plan { active, seed, wire, ..Plan::default() });
            pair.until(Duration::from_secs(60), Pair::both_open);
        }
    }
}

/// Case D01: our last flight is lost twice; the client repeats its own although media flows already.
#[test]
fn a_lost_last_flight_is_repeated_for_the_client() {
    let mut pair = Pair::new(Plan { active: false, version: DtlsVersion::Dtls12, ..Plan::default() });
    let mut flights = 0;
    pair.lose = Box::new(move |way, datagram| {
        // ChangeCipherSpec starts the server's last flight.
        let last = way == Way::Down && datagram.first() == Some(&20);
        flights += u32::from(last);
        last && flights <= 2
    });
    pair.until(Duration::from_secs(10), Pair::both_open);
    assert!(connected_at(&pair).is_some());
}

/// Case R15: media in the same instant as the client's last flight, which is late.
#[test]
fn media_ahead_of_the_keys_is_held_and_delivered_in_order() {
    let mut pair = Pair::new(Plan { active: false, version: DtlsVersion::Dtls13, ..Plan::default() });
    let mut late = Vec::new();
    pair.until(Duration::from_secs(5), |pair| {
        pair.client_events.iter().any(|(_, event)| matches!(event, str0m::Event::Connected))
    });
    // The client is connected; its last flight is under way and overtaken.
    assert!(connected_at(&pair).is_none());
    pair.lose = Box::new(|way, _| way == Way::Up);
    for number in 0..5_u8 {
        let (now, elapsed) = (pair.sim.now(), pair.sim.elapsed());
        let payload = vec![number; 40];
        let media = elapsed + Duration::from_millis(20) * u32::from(number);
        pair.client.writer(pair.mid).unwrap().write(pair.opus, now, media.into(), payload).unwrap();
        pair.client.handle_input(str0m::Input::Timeout(now)).unwrap();
        while let Ok(str0m::Output::Transmit(transmit)) = pair.client.poll_output() {
            if classify(&transmit.contents) == Class::Rtp {
                late.push(transmit.contents.to_vec());
            }
        }
    }
    assert_eq!(late.len(), 5);
    let path = pair.path();
    for packet in &late {
        pair.inject(path, packet).unwrap();
    }
    assert_eq!(pair.heard, []);
    pair.lose = Box::new(|_, _| false);
    pair.until(Duration::from_secs(5), |pair| connected_at(pair).is_some());
    let heard: Vec<u8> = pair.heard.iter().map(|(_, payload)| payload[0]).collect();
    assert_eq!(heard, [0, 1, 2, 3, 4]);
}

#[test]
fn the_client_reports_nothing_but_what_was_agreed() {
    let pair = Pair::open(Plan::default());
    assert_eq!(pair.server_events.iter().filter(|(_, event)| matches!(event, Event::Connected { .. })).count(), 1);
    assert_eq!(pair.server_event(|event| matches!(event, Event::Closed(_))), None);
}
