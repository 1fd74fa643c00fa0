//! Junk from a network is counted and changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use rtc::{Class, Discard, Path, classify};

use crate::pair::{Pair, Plan, SEED, Way, server_address};

#[test]
fn of_every_first_byte_and_the_call_goes_on() {
    let mut pair = Pair::open(Plan::default());
    let path = pair.path();
    let mut random = pair.sim.random(1);
    for first in 0..=255_u8 {
        for length in [1, 2, 12, 20, 60, 1200] {
            let mut datagram: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
            datagram[0] = first;
            let result = pair.inject(path, &datagram);
            // What DTLS 1.3 may have sealed is the engine's to drop, which it does not tell.
            assert!(result.is_err() || (32..64).contains(&first) && length >= 20, "seed {SEED}: {first}, {length}");
        }
    }
    assert_eq!(pair.inject(path, &[]), Err(Discard::UnknownProtocol));
    pair.echo = true;
    pair.talk(10);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.heard_by_client().len(), 10);
}

#[test]
fn from_addresses_that_passed_no_check() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(1);
    pair.run(Duration::from_millis(100));
    let stranger = Path::udp(server_address(), SocketAddr::from(([203, 0, 113, 9], 9)));
    for (_, way, datagram) in pair.sent.clone() {
        if way == Way::Up && classify(&datagram) != Class::Stun {
            assert_eq!(pair.inject(stranger, &datagram), Err(Discard::UncheckedPath));
        }
    }
}

#[test]
fn that_was_received_before() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(1);
    pair.run(Duration::from_millis(100));
    let path = pair.path();
    let audio = pair.sent.iter().find(|(_, way, datagram)| *way == Way::Up && classify(datagram) == Class::Rtp);
    let audio = audio.unwrap().2.clone();
    assert_eq!(pair.inject(path, &audio), Err(Discard::SrtpReplay));
}

/// Case R08: what cannot be opened is told apart from silence.
#[test]
fn that_fails_authentication_is_counted_until_something_opens() {
    let mut pair = Pair::open(Plan::default());
    pair.talk(1);
    pair.run(Duration::from_millis(100));
    let path = pair.path();
    let audio = pair.sent.iter().find(|(_, way, datagram)| *way == Way::Up && classify(datagram) == Class::Rtp);
    let mut forged = audio.unwrap().2.clone();
    *forged.last_mut().unwrap() ^= 1;
    for number in 1..=50 {
        let seq = u16::from_be_bytes([forged[2], forged[3]]).wrapping_add(1);
        forged[2..4].copy_from_slice(&seq.to_be_bytes());
        assert_eq!(pair.inject(path, &forged), Err(Discard::SrtpAuthentication));
        assert_eq!(pair.server.stats().refused_in_a_row, number);
    }
    pair.talk(1);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.server.stats().refused_in_a_row, 0);
}
