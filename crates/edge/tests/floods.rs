//! Strangers and storms against a worker core: established flows come first, and nothing forged is answered.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::hmac;
use common::crowd::{Costs, Crowd};
use edge::worker::Discard;
use edge::worker::budget::Limits;
use rtc::Path;
use rtc::stun::Check;

#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

fn edge() -> SocketAddr {
    common::EDGE.parse().unwrap()
}

/// A datagram that no client of ours sent.
fn forge(crowd: &mut Crowd, from: SocketAddr, datagram: &[u8]) {
    let path = Path::udp(edge(), from);
    let mut datagram = datagram.to_vec();
    crowd.turn(|costs| &mut costs.control, |worker, now, unix| worker.handle_datagram(now, unix, path, &mut datagram));
}

/// A check as the client of a call sends it, and what it says after the header.
fn recorded_check(crowd: &mut Crowd) -> Vec<u8> {
    crowd.call("echo");
    let client = crowd.clients.last_mut().unwrap();
    client.tick(crowd.now);
    client.drain(crowd.now);
    let check = client.outbox.pop_front().unwrap().1;
    assert_eq!(rtc::classify(&check), rtc::Class::Stun);
    crowd.run_for(Duration::from_millis(500));
    check
}

#[test]
fn nothing_forged_is_answered_and_a_running_call_goes_on() {
    let mut crowd = Crowd::new(10);
    let check = recorded_check(&mut crowd);
    let mut token = check.clone();
    token[40] ^= 1;
    let mut integrity = check.clone();
    let at = integrity.len() - 20;
    integrity[at] ^= 1;
    // Both FINGERPRINTs are wrong now; without one the token and the integrity are looked at.
    let (token, integrity) = (without_fingerprint(&token), without_fingerprint(&integrity));
    let hello = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let srtp = [0x80_u8; 100];
    let (stranger, client) = ("203.0.113.5:9".parse().unwrap(), crowd.clients[0].local);
    let sent_before = crowd.transmitted;
    crowd.speak(&[1; 80]);
    let per_frame = crowd.transmitted - sent_before;
    let discarded = crowd.worker.stats().discarded_total();
    crowd.costs = Costs::default();
    for _ in 0..100 {
        let before = crowd.transmitted;
        for cut in [0, 1, 19, 20, 30, check.len() - 1] {
            forge(&mut crowd, stranger, &check[..cut]);
        }
        for datagram in [&token, &integrity, &hello.to_vec(), &srtp.to_vec(), &vec![200; 50]] {
            forge(&mut crowd, stranger, datagram);
        }
        forge(&mut crowd, client, &srtp);
        forge(&mut crowd, client, &[200; 60]);
        assert_eq!(crowd.transmitted, before, "a forged datagram was answered");
        crowd.speak(&[1; 80]);
    }
    assert_eq!(crowd.worker.stats().discarded_total() - discarded, 100 * 13);
    assert!(crowd.transmitted - sent_before >= 100 * per_frame);
    assert!(crowd.clients[0].heard.len() >= 100);
    assert_eq!(crowd.worker.gauges().sessions, 1);
}

#[test]
fn a_source_out_of_budget_disturbs_neither_running_calls_of_its_own_nor_others() {
    let mut crowd = Crowd::with_limits(10, Limits { per_source: 100, per_worker: 10_000 });
    crowd.join("echo");
    let neighbor = SocketAddr::new(crowd.clients[0].local.ip(), 9);
    for _ in 0..1000 {
        forge(&mut crowd, neighbor, &[0x80; 60]);
    }
    let dropped = crowd.worker.stats().discarded(Discard::OverBudget);
    assert!(dropped >= 900, "{dropped}");
    crowd.clients[0].heard.clear();
    for _ in 0..500 {
        crowd.speak(&[1; 80]);
        // Enough to keep its budget at nothing.
        for _ in 0..4 {
            forge(&mut crowd, neighbor, &[0x80; 60]);
        }
    }
    // Consent was renewed as well, over ten seconds.
    assert!(crowd.clients[0].heard.len() >= 499, "{}", crowd.clients[0].heard.len());
    let stranger: SocketAddr = "203.0.113.5:9".parse().unwrap();
    let unchecked = Discard::Rtc(rtc::Discard::UncheckedPath);
    let before = crowd.worker.stats().discarded(unchecked);
    forge(&mut crowd, stranger, &[0x80; 60]);
    assert_eq!(crowd.worker.stats().discarded(unchecked), before + 1, "looked at, as it has a budget of its own");
}

#[test]
fn a_batch_of_first_checks_claims_one_session_per_turn_and_all_in_the_end() {
    const CALLS: usize = 40;
    let mut crowd = Crowd::new(100);
    let mut batch = Vec::new();
    for _ in 0..CALLS {
        crowd.call("echo");
        let client = crowd.clients.last_mut().unwrap();
        client.tick(crowd.now);
        client.drain(crowd.now);
        batch.extend(client.outbox.drain(..).take(1).map(|(_, datagram)| (client.local, datagram)));
    }
    assert_eq!(batch.len(), CALLS);
    crowd.turn(
        |costs| &mut costs.control,
        |worker, now, unix| {
            for (from, datagram) in &mut batch {
                worker.handle_datagram(now, unix, Path::udp(edge(), *from), datagram);
            }
        },
    );
    assert_eq!(crowd.worker.gauges().sessions, 1);
    for claimed in 2..=CALLS {
        assert!(crowd.worker.poll_timeout().is_some_and(|at| at <= crowd.now), "the next one is due");
        crowd.turn(|costs| &mut costs.timeouts, |worker, now, _| worker.handle_timeout(now));
        assert_eq!(crowd.worker.gauges().sessions, claimed);
    }
    crowd.run_for(Duration::from_secs(3));
    assert!(crowd.clients.iter().all(|client| client.connected && client.channel.is_some()));
    assert_eq!(crowd.worker.stats().discarded(Discard::SetupQueue), 0);
}

/// A session claimed by one check, not connected; where its client is.
fn claimed_only(crowd: &mut Crowd) -> SocketAddr {
    claimed_by_check(crowd).0
}

/// And the check.
fn claimed_by_check(crowd: &mut Crowd) -> (SocketAddr, Vec<u8>) {
    let before = crowd.worker.gauges().sessions;
    let (from, mut check) = first_check(crowd);
    let path = Path::udp(edge(), from);
    crowd.turn(|costs| &mut costs.control, |worker, now, unix| worker.handle_datagram(now, unix, path, &mut check));
    assert_eq!(crowd.worker.gauges().sessions, before + 1);
    (from, check)
}

fn first_check(crowd: &mut Crowd) -> (SocketAddr, Vec<u8>) {
    crowd.call("echo");
    let client = crowd.clients.last_mut().unwrap();
    client.tick(crowd.now);
    client.drain(crowd.now);
    (client.local, client.outbox.drain(..).next().unwrap().1)
}

/// A record that no handshake takes.
const JUNK_DTLS: [u8; 60] = [22; 60];

/// With `dtls` in it, ahead of all else, as somebody sends it who knows this password.
fn carrying(check: &[u8], dtls: &[u8], password: &str) -> Vec<u8> {
    let (header, attributes) = check.split_at(20);
    let length = u8::try_from(dtls.len()).unwrap();
    // Without MESSAGE-INTEGRITY and FINGERPRINT, the last ones.
    let attributes = &attributes[..attributes.len() - 24 - 8];
    let mut check = [header, &[0xC0, 0x70, 0, length], dtls, attributes].concat();
    let stated = u16::try_from(check.len() - 20 + 24).unwrap();
    check[2..4].copy_from_slice(&stated.to_be_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
    let integrity = hmac::sign(&key, &check);
    [&check[..], &[0, 8, 0, 20], integrity.as_ref()].concat()
}

/// The password of the session that a check names.
fn password(crowd: &Crowd, check: &[u8]) -> String {
    let check = Check::parse(check).unwrap();
    crowd.shared.keys.current().route().password(check.local_ufrag()).unwrap()
}

#[test]
fn dtls_that_rides_on_checks_takes_its_turn_as_well() {
    for (dtls, dropped) in [(&JUNK_DTLS[..], 295), (&[], 0)] {
        let mut crowd = Crowd::new(10);
        let (from, check) = claimed_by_check(&mut crowd);
        let path = Path::udp(edge(), from);
        let carrying = carrying(&check, dtls, &password(&crowd, &check));
        crowd.turn(
            |costs| &mut costs.control,
            |worker, now, unix| {
                (0..300).for_each(|_| worker.handle_datagram(now, unix, path, &mut carrying.clone()));
            },
        );
        assert_eq!(crowd.worker.stats().discarded(Discard::SetupQueue), dropped, "{} bytes", dtls.len());
    }
}

/// Whoever read a token on the way knows no password: its checks take no step, no place in the queue and no budget of the
/// client's neighbors'.
#[test]
fn forged_dtls_on_checks_takes_nobodys_turn() {
    let limits = Limits { per_source: 100, per_worker: 10_000 };
    let mut crowd = Crowd::with_limits(10, limits);
    let (from, check) = claimed_by_check(&mut crowd);
    let path = Path::udp(edge(), from);
    let forged = carrying(&check, &JUNK_DTLS, "no password of anybody's");
    let mut genuine = carrying(&check, &JUNK_DTLS, &password(&crowd, &check));
    let before = crowd.transmitted;
    crowd.turn(
        |costs| &mut costs.control,
        |worker, now, unix| {
            (0..300).for_each(|_| worker.handle_datagram(now, unix, path, &mut forged.clone()));
            worker.handle_datagram(now, unix, path, &mut genuine);
        },
    );
    let stats = crowd.worker.stats();
    assert_eq!(stats.discarded(Discard::Rtc(rtc::Discard::StunIntegrity)), 300);
    assert_eq!((stats.discarded(Discard::SetupQueue), stats.discarded(Discard::OverBudget)), (0, 0));
    assert_eq!(crowd.transmitted, before + 1, "the genuine one had the turn's step, and is answered");
}

#[test]
fn one_client_in_set_up_holds_four_places_of_the_queue_whatever_it_sends() {
    // One that goes on displaces its own, and is overtaken.
    for (goes_on, behind) in [(0, 4), (10, 1)] {
        let mut crowd = Crowd::new(10);
        let attacker = Path::udp(edge(), claimed_only(&mut crowd));
        let (from, mut check) = first_check(&mut crowd);
        let path = Path::udp(edge(), from);
        crowd.turn(
            |costs| &mut costs.control,
            |worker, now, unix| {
                (0..300).for_each(|_| worker.handle_datagram(now, unix, attacker, &mut JUNK_DTLS.clone()));
                worker.handle_datagram(now, unix, path, &mut check);
            },
        );
        // The first one took the turn's step, four wait, the others made room for their successors.
        assert_eq!(crowd.worker.stats().discarded(Discard::SetupQueue), 295);
        for turn in 0..=behind {
            assert_eq!(crowd.worker.gauges().sessions, 1, "turn {turn}");
            crowd.turn(
                |costs| &mut costs.timeouts,
                |worker, now, unix| {
                    worker.handle_timeout(now);
                    (0..goes_on).for_each(|_| worker.handle_datagram(now, unix, attacker, &mut JUNK_DTLS.clone()));
                },
            );
        }
        assert_eq!(crowd.worker.gauges().sessions, 2);
    }
}

#[test]
fn dtls_of_a_session_in_set_up_pays_and_that_of_a_connected_one_does_not() {
    let mut crowd = Crowd::with_limits(10, Limits { per_source: 100, per_worker: 10_000 });
    crowd.join("echo");
    let (attacker, check) = claimed_by_check(&mut crowd);
    let forms = [JUNK_DTLS.to_vec(), carrying(&check, &JUNK_DTLS, &password(&crowd, &check))];
    // It goes no further.
    crowd.clients.pop();
    let before = crowd.worker.stats().discarded(Discard::OverBudget);
    for sent in 0..1000 {
        forge(&mut crowd, attacker, &forms[sent % 2]);
    }
    let refused = crowd.worker.stats().discarded(Discard::OverBudget) - before;
    assert!((900..=1000).contains(&refused), "{refused}");
    // From the same address, a bucket that holds nothing.
    crowd.clients[0].say("still there");
    for sent in 0..50 {
        forge(&mut crowd, attacker, &forms[sent % 2]);
        crowd.run_for(Duration::from_millis(1));
    }
    assert_eq!(crowd.clients[0].messages.last().unwrap(), "still there");
}

/// FINGERPRINT is optional and the last attribute, 8 bytes long (RFC 8489 §14.7).
fn without_fingerprint(check: &[u8]) -> Vec<u8> {
    let mut check = check[..check.len() - 8].to_vec();
    let length = u16::try_from(check.len() - 20).unwrap();
    check[2..4].copy_from_slice(&length.to_be_bytes());
    check
}
