//! DTLS inside STUN: round trips, loss, ends that disagree about it, hostile attributes.

use std::net::SocketAddr;
use std::time::Duration;

use rtc::{Class, Discard, classify};
use sim::{Conditions, Loss, Random};

use crate::pair::Way;
use crate::request::Request;
use crate::sped_client::{ACK, CHECK_INTERVAL, DATA, Hello, Plan, State, World, attribute};

const RTT: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

fn connected(plan: &Plan) -> World {
    let mut world = World::new(plan);
    world.until(10 * SECOND, World::both_connected);
    world
}

fn stun(world: &World, way: Way) -> Vec<(Duration, Vec<u8>)> {
    let sent = world.sent.iter().filter(|(_, to, datagram)| *to == way && classify(datagram) == Class::Stun);
    sent.map(|(at, _, datagram)| (*at, datagram.clone())).collect()
}

#[test]
fn connects_a_client_in_one_round_trip() {
    let world = connected(&Plan::default());
    assert_eq!(world.client.connected, Some(RTT));
    assert_eq!(world.server_connected(), Some((RTT * 3 / 2, true)));
    assert_eq!(world.discards, []);
}

#[test]
fn carries_our_flight_on_responses_alone() {
    let world = connected(&Plan::default());
    let flights: Vec<_> = world.data(Way::Down).into_iter().filter(|data| !data.is_empty()).collect();
    assert!(!flights.is_empty() && flights.iter().all(|data| *data == flights[0]));
    let first = stun(&world, Way::Down).remove(0).1;
    assert_eq!(attribute(&first, DATA), Some(flights[0].clone()), "the first response has it");
    let at = world.server_connected().unwrap().0;
    let plain = world
        .sent
        .iter()
        .filter(|(sent, way, datagram)| *way == Way::Down && *sent < at && classify(datagram) == Class::Dtls);
    assert_eq!(plain.count(), 0);
}

#[test]
fn acknowledges_in_every_response_until_the_client_has_nothing_left() {
    let mut world = connected(&Plan::default());
    world.run(2 * SECOND);
    assert_eq!(world.client.state, State::Complete);
    let responses = stun(&world, Way::Down);
    let silent = responses.iter().position(|(_, response)| attribute(response, ACK).is_none()).unwrap();
    assert!(responses[silent..].iter().all(|(_, response)| attribute(response, ACK).is_none()));
    let connected = world.client.connected.unwrap();
    assert!(responses[silent].0 > connected, "{:?}", responses[silent].0);
    assert!(responses.len() > silent + 2, "consent goes on without");
}

/// The second fragment is in the second check, or leaves by itself with the first response, as our answer to half a hello
/// tells the client that it may.
#[test]
fn takes_a_client_hello_in_fragments_in_any_order() {
    for hello in [Hello::Fragments, Hello::Reversed] {
        let world = connected(&Plan { hello, ..Plan::default() });
        assert_eq!(world.client.connected, Some(RTT + CHECK_INTERVAL), "{hello:?}");
        assert_eq!(world.discards, [], "{hello:?}");
        let first = stun(&world, Way::Down).remove(0).1;
        assert_eq!(attribute(&first, DATA), Some(vec![]), "{hello:?}: nothing to say yet");
        assert_eq!(attribute(&first, ACK).map(|acks| acks.len()), Some(4), "{hello:?}");
    }
}

/// Without SPED the fragments come by themselves, with checks between them.
#[test]
fn fragments_of_a_client_hello_are_taken_without_it_as_well() {
    for hello in [Hello::Fragments, Hello::Reversed] {
        let world = connected(&Plan { hello, client: false, server: false, ..Plan::default() });
        assert_eq!(world.client.connected, Some(2 * RTT), "{hello:?}");
        assert_eq!(world.discards, [], "{hello:?}");
    }
}

#[test]
fn ends_dtls_12_with_our_last_flight_on_a_response() {
    let mut world = connected(&Plan { dtls12: true, ..Plan::default() });
    assert!(world.client.connected <= Some(2 * RTT + CHECK_INTERVAL), "{:?}", world.client.connected);
    world.run(2 * SECOND);
    assert_eq!(world.client.state, State::Complete);
}

#[test]
fn survives_the_loss_of_any_one_datagram_within_three_checks() {
    let all = connected(&Plan::default()).sent.len();
    for lost in 0..all {
        let mut world = World::new(&Plan::default());
        let mut count = 0;
        world.lose = Box::new(move |_, _| {
            count += 1;
            count == lost + 1
        });
        world.until(10 * SECOND, World::both_connected);
        let at = world.client.connected.unwrap();
        assert!(at <= RTT + CHECK_INTERVAL, "datagram {lost}: {at:?}");
        let at = world.server_connected().unwrap().0;
        assert!(at <= RTT * 3 / 2 + 3 * CHECK_INTERVAL, "datagram {lost}: {at:?}");
    }
}

#[test]
fn connects_within_a_second_at_a_fifth_lost_both_ways() {
    let lossy = Conditions { delay: RTT / 2, loss: Loss::Uniform(0.2), ..Conditions::default() };
    let mut worst = Duration::ZERO;
    for seed in 0..60 {
        for hello in [Hello::Whole, Hello::Fragments] {
            let world = connected(&Plan { seed, hello, up: lossy, down: lossy, ..Plan::default() });
            let at = world.client.connected.unwrap().max(world.server_connected().unwrap().0);
            assert!(at < SECOND, "seed {seed}, {hello:?}: {at:?}");
            worst = worst.max(at);
        }
    }
    println!("the slowest of 120: {worst:?}");
}

#[test]
fn survives_reordering_and_duplication() {
    let wire = Conditions {
        delay: RTT / 2,
        jitter: Duration::from_millis(30),
        loss: Loss::Uniform(0.05),
        reorder: 0.2,
        reorder_delay: Duration::from_millis(60),
        duplicate: 0.2,
    };
    for seed in 0..40 {
        for dtls12 in [false, true] {
            let mut world =
                connected(&Plan { seed, dtls12, hello: Hello::Fragments, up: wire, down: wire, ..Plan::default() });
            world.run(3 * SECOND);
            assert_eq!(world.client.state, State::Complete, "seed {seed}, 1.2: {dtls12}");
        }
    }
}

/// The answer lost its ice-options, or the client has SPED off since.
#[test]
fn a_client_that_never_uses_it_connects_as_if_it_had_not_been_agreed() {
    let without = connected(&Plan { client: false, server: false, ..Plan::default() });
    let world = connected(&Plan { client: false, ..Plan::default() });
    assert_eq!(world.client.connected, without.client.connected);
    assert_eq!(world.server_connected(), without.server_connected());
    assert_eq!(world.server_connected().map(|(_, sped)| sped), Some(false));
    assert!(stun(&world, Way::Down).iter().all(|(_, response)| attribute(response, ACK).is_none()));
}

/// The offer lost its ice-options: libwebrtc uses it all the same.
#[test]
fn a_client_that_uses_it_alone_is_answered_in_kind() {
    let world = connected(&Plan { server: false, ..Plan::default() });
    assert_eq!(world.client.connected, Some(RTT));
    assert_eq!(world.server_connected(), Some((RTT * 3 / 2, true)));
}

/// Then the answer made us the DTLS client.
#[test]
fn our_client_hello_rides_on_the_first_response_to_a_client_that_uses_it() {
    for dtls12 in [false, true] {
        let without = connected(&Plan { client: false, server: false, active: true, dtls12, ..Plan::default() });
        let mut world = connected(&Plan { server: false, active: true, dtls12, ..Plan::default() });
        assert_eq!(world.client.connected, without.client.connected, "1.2: {dtls12}");
        let first = stun(&world, Way::Down).remove(0).1;
        assert_eq!(attribute(&first, DATA).map(|data| data[13]), Some(1), "1.2: {dtls12}");
        world.run(2 * SECOND);
        assert_eq!(world.client.state, State::Complete, "1.2: {dtls12}");
    }
}

/// Beneath a millisecond of round trip the pause after the response is all there is between us and our downlink.
#[test]
fn nothing_of_the_downlink_leaves_within_four_milliseconds_of_our_flight() {
    let near = Conditions { delay: Duration::from_micros(200), ..Conditions::default() };
    let world = connected(&Plan { up: near, down: near, ..Plan::default() });
    let flight = stun(&world, Way::Down).remove(0).0;
    let (at, _) = world.server_connected().unwrap();
    assert_eq!(at - flight, Duration::from_millis(4));
    let far = connected(&Plan::default());
    let last_flight = far.client.connected.unwrap() + RTT / 2;
    assert_eq!(far.server_connected().unwrap().0, last_flight, "it is over before the client's last flight is here");
}

/// Where our flight is the last it stays to be carried until the client acknowledges it, so that each recorded check draws it.
#[test]
fn replayed_checks_do_not_hold_the_downlink_up() {
    let plan = Plan { server: false, active: true, ..Plan::default() };
    let undisturbed = connected(&plan).server_connected().unwrap().0;
    let mut world = World::new(&plan);
    let replayed = Request::browser().with(ACK, &[]).sealed();
    world.until(SECOND, |world| world.sim.elapsed() + Duration::from_millis(30) >= undisturbed);
    world.until(SECOND, |world| {
        world.deliver_up(&replayed);
        world.server_connected().is_some()
    });
    let at = world.server_connected().unwrap().0;
    assert!(at <= undisturbed + Duration::from_millis(4), "{at:?} instead of {undisturbed:?}");
}

/// With SNAP a client sends its whole first window right behind its last flight.
#[test]
fn a_first_window_that_comes_in_the_pause_is_kept() {
    let near = Conditions { delay: Duration::from_micros(200), ..Conditions::default() };
    let mut world = World::new(&Plan { up: near, down: near, ..Plan::default() });
    world.until(SECOND, |world| world.client.connected.is_some());
    world.send_data(10);
    world.until(SECOND, World::both_connected);
    assert_eq!(world.discards, []);
}

/// What a plain client's first flight tells of the round trip decides when ours is sent again: after one and a half, by a
/// quarter more or less, within bounds.
#[test]
fn a_flight_is_first_sent_again_by_the_round_trip_measured() {
    for (rtt, earliest, latest) in [(20, 37, 63), (100, 112, 188), (300, 375, 625), (2000, 750, 1250)] {
        let wire = Conditions { delay: Duration::from_millis(rtt) / 2, ..Conditions::default() };
        let plan =
            Plan { client: false, server: false, patience: 30 * SECOND, up: wire, down: wire, ..Plan::default() };
        let mut world = World::new(&plan);
        world.lose = Box::new(|way, datagram| way == Way::Down && classify(datagram) == Class::Dtls);
        world.until(20 * SECOND, |world| world.plain(Way::Down) >= 2);
        let ours =
            world.sent.iter().filter(|(_, way, datagram)| *way == Way::Down && classify(datagram) == Class::Dtls);
        let at: Vec<_> = ours.map(|(at, _, _)| *at).collect();
        let waited = at[1] - at[0];
        let expected = Duration::from_millis(earliest)..=Duration::from_millis(latest);
        assert!(expected.contains(&waited), "{rtt} ms: {waited:?}");
    }
}

/// Nobody without the password makes the engine do anything.
#[test]
fn a_forged_check_reaches_no_dtls() {
    let mut world = World::new(&Plan::default());
    let hello = [&[22, 0xFE, 0xFD][..], &[0; 8], &[0, 12], &[1; 12]].concat();
    let forged = Request::browser().with(ACK, &[]).with(DATA, &hello).integrity("another password").fingerprint();
    world.deliver_up(&forged.bytes());
    assert_eq!(world.discards, [Discard::StunIntegrity]);
    assert!(world.sent.iter().all(|(_, way, _)| *way == Way::Up));
    world.until(SECOND, World::both_connected);
}

/// No check here nominates, and the handshake goes on where the client's next check came from.
#[test]
fn nomination_gates_nothing_and_any_checked_path_will_do() {
    for sped in [false, true] {
        let mut world = World::new(&Plan { client: sped, server: sped, ..Plan::default() });
        world.until(SECOND, |world| !stun(world, Way::Down).is_empty());
        world.source = elsewhere();
        world.until(SECOND, World::both_connected);
        world.run(CHECK_INTERVAL);
        assert!(stun(&world, Way::Up).iter().all(|(_, check)| attribute(check, 0x0025).is_none()));
        let (expected, last) = if sped { (RTT, None) } else { (2 * RTT, Some(elsewhere())) };
        assert_eq!(world.client.connected, Some(expected), "SPED: {sped}");
        assert!(last.is_none_or(|last| world.plain_to == Some(last)), "SPED: {sped}");
        assert_eq!(world.discards, [], "SPED: {sped}");
    }
}

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 5], 53))
}

/// A recorded check, sent again from the address of somebody else's, must not send much there.
#[test]
fn a_replayed_check_draws_at_most_three_times_its_bytes() {
    let mut world = World::new(&Plan::default());
    // The client never hears of our flight, so it stays to be carried.
    world.lose = Box::new(|way, _| way == Way::Down);
    world.run(RTT);
    let small = Request::browser().with(ACK, &[]).sealed();
    world.deliver_up(&small);
    assert!(world.sent.last().unwrap().2.len() > 3 * small.len(), "the client's own path has it");
    let hello = stun(&world, Way::Up).remove(0).1;
    for check in [small, hello] {
        world.deliver_from(elsewhere(), &check);
        let (_, _, response) = world.sent.last().unwrap();
        assert!(
            attribute(response, ACK).is_some() && response.len() <= 3 * check.len(),
            "{} to {}",
            response.len(),
            check.len()
        );
    }
}

/// What the true client may put there by mistake or malice: counted or ignored, answered as a check, and no panic. It may
/// spoil its own handshake; unless it does, it connects afterwards.
#[test]
fn hostile_attributes_are_survived() {
    for seed in 0..120 {
        let mut random = Random::new(seed, 1);
        let mut world = World::new(&Plan { seed, ..Plan::default() });
        let genuine = world_hello(&mut world);
        for _ in 0..random.below(12) {
            let forged = (0..1 + random.below(4)).map(|_| {
                let kind = [ACK, DATA][usize::try_from(random.below(2)).unwrap()];
                (kind, value(&mut random, &genuine))
            });
            world.client.forge = Some(forged.collect());
            let before = stun(&world, Way::Down).len();
            world.until(2 * SECOND, |world| world.closed() || stun(world, Way::Down).len() > before);
        }
        world.client.forge = None;
        world.run(3 * SECOND);
        assert!(world.closed() || world.both_connected(), "seed {seed}: neither over nor connected");
    }
}

fn world_hello(world: &mut World) -> Vec<u8> {
    world.step();
    world.data(Way::Up).remove(0)
}

/// Random bytes, cuts and bent copies of a true datagram.
fn value(random: &mut Random, genuine: &[u8]) -> Vec<u8> {
    let mut bytes = |count: u64| -> Vec<u8> { (0..count).map(|_| u8::try_from(random.below(256)).unwrap()).collect() };
    match bytes(1)[0] % 6 {
        0 => Vec::new(),
        1 => bytes(3),
        2 => bytes(900),
        3 => genuine[..usize::from(bytes(1)[0]).min(genuine.len())].to_vec(),
        4 => {
            let mut bent = genuine.to_vec();
            let (at, with) = (bytes(2), bytes(1)[0]);
            let at = usize::from(u16::from_be_bytes([at[0], at[1]])) % bent.len();
            bent[at] = with;
            bent
        }
        _ => [&[22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 1, 0, 40][..], &bytes(40)].concat(),
    }
}
