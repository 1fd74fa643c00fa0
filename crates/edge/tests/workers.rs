//! Worker cores in virtual time, with a client on a foreign stack.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{CLIENT, EDGE, Rig, UNIX};
use edge::directory::{Command, Directory, HandOver, Letter};
use edge::worker::peers::Forwarded;
use edge::worker::{CloseCause, Discard, Gauges};
use link::ids::EdgeId;
use link::route::forward::Kind;
use rtc::Path;

fn path() -> Path {
    Path::udp(EDGE.parse().unwrap(), CLIENT.parse().unwrap())
}

#[test]
fn echo_returns_messages_and_audio_and_names_the_model_first() {
    let mut rig = Rig::new(1);
    rig.connect("echo");
    assert_eq!(rig.client.messages.len(), 1);
    let created: serde_json::Value = serde_json::from_str(&rig.client.messages[0]).unwrap();
    assert_eq!(created["type"], "session.created");
    assert_eq!(created["session"]["model"], "echo");

    rig.client.say("ping");
    for n in 0..10 {
        rig.client.speak(rig.now, &[0xfc, n, 1, 2]);
        rig.run_for(Duration::from_millis(20));
    }
    rig.run_for(Duration::from_millis(200));
    assert_eq!(rig.client.messages[1..], ["ping"]);
    let tags: Vec<u8> = rig.client.heard.iter().map(|(_, payload)| payload[1]).collect();
    assert_eq!(tags, (0..10).collect::<Vec<_>>());
    assert!(rig.outputs.is_empty(), "echo concerns no transceiver: {:?}", rig.outputs);
}

#[test]
fn the_first_valid_check_claims_and_later_datagrams_at_another_worker_are_handed_over_whole() {
    let mut rig = Rig::new(3);
    rig.arrival = 2;
    rig.connect("echo");
    assert_eq!(rig.workers.iter().map(|w| w.stats().claimed).collect::<Vec<_>>(), [0, 0, 1]);
    assert!(rig.handed_over.is_empty());

    // The client's network switches, and the kernel picks another worker.
    rig.arrival = 0;
    rig.client.say("still there");
    rig.client.speak(rig.now, &[0xfc, 42]);
    rig.run_for(Duration::from_millis(500));
    assert_eq!(rig.client.messages.last().unwrap(), "still there");
    assert_eq!(rig.client.heard.last().unwrap().1, [0xfc, 42]);
    assert_eq!(rig.workers[0].stats().handed_over, u64::try_from(rig.handed_over.len()).unwrap());
    assert!(rig.handed_over.len() >= 3);
    assert_eq!(rig.workers[0].gauges(), Gauges::default(), "a worker keeps nothing of what it hands over");
    assert_eq!(rig.workers[2].stats().discarded_total(), 0);
}

#[test]
fn a_datagram_is_handed_over_once() {
    let mut rig = Rig::new(2);
    rig.connect("echo");
    rig.workers[1].handle_hand_over(rig.now, UNIX, path(), &mut [22, 1, 2, 3]);
    assert!(rig.workers[1].poll_output().is_none());
    assert_eq!(rig.workers[1].stats().discarded(Discard::Misrouted), 1);
}

#[test]
fn datagrams_of_workers_and_of_peers_take_turns_in_a_mailbox() {
    let directory = Directory::new(1);
    let mailbox = directory.mailbox(0).unwrap();
    for _ in 0..100 {
        mailbox.hand_over(HandOver { path: path(), datagram: vec![] });
    }
    for _ in 0..40 {
        mailbox.forward(Forwarded { kind: Kind::Up, from: EdgeId(2), path: path(), datagram: vec![] });
    }
    let turn = || {
        let letters = (0..64).map_while(|number| mailbox.take_datagram(number));
        let (ours, peers): (Vec<_>, Vec<_>) = letters.partition(|letter| matches!(letter, Letter::HandOver(_)));
        (ours.len(), peers.len())
    };
    assert_eq!([turn(), turn(), turn()], [(32, 32), (56, 8), (12, 0)]);
}

#[test]
fn garbage_is_counted_and_never_claims_or_keeps() {
    // A real first check, so that what follows can be made of it.
    let mut rig = Rig::new(1);
    rig.call("echo");
    rig.client.tick(rig.now + Duration::from_millis(100));
    let (_, check) = rig.client.outbox.pop_front().expect("a check");

    let worker = &mut rig.workers[0];
    let now = rig.now;
    let mut sent = 0;
    let mut give = |datagram: &mut [u8]| {
        sent += 1;
        worker.handle_datagram(now, UNIX, path(), datagram);
    };
    give(&mut []);
    give(&mut [255; 40]);
    give(&mut [22; 100]);
    give(&mut [128; 100]);
    for length in 1..check.len() {
        give(&mut check[..length].to_vec());
    }
    // All that MESSAGE-INTEGRITY covers; behind it stands FINGERPRINT alone, 8 bytes.
    for at in 0..check.len() - 8 {
        let mut bent = check.clone();
        bent[at] ^= 0x40;
        give(&mut bent);
    }
    let claimed = worker.stats().claimed;
    assert_eq!(claimed, 0, "a cut or bent check claims nothing");
    assert_eq!(worker.stats().discarded_total(), sent);
    assert_eq!(worker.gauges(), Gauges::default());
    assert!(
        worker.poll_output().is_none() && worker.poll_transmit(&mut Vec::new()).is_none(),
        "garbage gets no answer"
    );
    assert_eq!(rig.shared.directory.pending(), 1);

    worker.handle_datagram(now, UNIX, path(), &mut check.clone());
    assert_eq!(worker.stats().claimed, 1, "the check itself does");
}

#[test]
fn a_check_for_another_edge_or_after_the_set_up_timeout_is_dropped() {
    let mut rig = Rig::new(1);
    rig.call("echo");
    rig.client.tick(rig.now + Duration::from_millis(100));
    let (_, check) = rig.client.outbox.pop_front().expect("a check");
    rig.workers[0].handle_datagram(rig.now, UNIX + 31, path(), &mut check.clone());
    assert_eq!(rig.workers[0].stats().discarded(Discard::LateClaim), 1);
    assert_eq!(rig.workers[0].stats().claimed, 0);
}

#[test]
fn a_session_that_nobody_claims_expires_and_gives_its_seat_back() {
    let mut rig = Rig::new(1);
    rig.call("echo");
    let directory = &rig.shared.directory;
    assert_eq!((directory.pending(), rig.shared.seats.used()), (1, 1));
    assert_eq!(directory.expire(rig.now + Duration::from_secs(29)), 0);
    assert_eq!(directory.expire(rig.now + Duration::from_secs(30)), 1);
    assert_eq!((directory.pending(), directory.sessions(), rig.shared.seats.used()), (0, 0, 0));
    rig.run_for(Duration::from_secs(1));
    assert!(rig.workers[0].stats().discarded(Discard::UnknownSession) > 0);
    assert_eq!(rig.workers[0].stats().claimed, 0);
}

#[test]
fn a_hang_up_leaves_nothing_behind() {
    let mut rig = Rig::new(1);
    let id = rig.connect("echo");
    assert!(rig.workers[0].gauges().paths > 0);
    assert!(rig.shared.directory.close(id, CloseCause::HangUp));
    assert!(rig.shared.directory.close(id, CloseCause::HangUp), "twice is as good as once");
    let mailbox = rig.shared.directory.mailbox(0).unwrap();
    let mut commands = 0;
    while let Some(command) = mailbox.take_command() {
        assert_eq!(command, Command::Close { session: id, cause: CloseCause::HangUp });
        rig.workers[0].handle_command(rig.now, command);
        commands += 1;
    }
    assert_eq!(commands, 1);
    rig.settle();
    assert_eq!(rig.workers[0].gauges(), Gauges::default());
    let directory = &rig.shared.directory;
    assert_eq!((directory.sessions(), directory.paths(), rig.shared.seats.used()), (0, 0, 0));
    assert!(!directory.close(id, CloseCause::HangUp));
}

/// Whoever can forge source addresses can have a session of its own prove somebody's 4-tuple.
#[test]
fn a_four_tuple_that_another_session_took_comes_back_with_the_next_check() {
    let mut rig = Rig::new(2);
    rig.connect("echo");
    let directory = Arc::clone(&rig.shared.directory);
    directory.add_path(path(), 1);
    let taken = directory.mailbox(0).unwrap().take_command().expect("the former owner is told");
    rig.workers[0].handle_command(rig.now, taken);
    assert_eq!((directory.worker_of(&path()), rig.workers[0].gauges().paths), (Some(1), 0));

    rig.run_until("routed again", Duration::from_secs(15), |rig| rig.workers[0].gauges().paths == 1);
    assert_eq!(directory.worker_of(&path()), Some(0));
    rig.client.speak(rig.now, &[0xfc, 42]);
    rig.run_for(Duration::from_millis(200));
    assert_eq!(rig.client.heard.last().unwrap().1, [0xfc, 42]);
}

#[test]
fn a_client_that_vanishes_is_closed_by_its_consent() {
    let mut rig = Rig::new(1);
    rig.connect("echo");
    let gone = rig.now;
    // Nothing of the client's arrives any more.
    while rig.now < gone + Duration::from_secs(31) {
        rig.client.outbox.clear();
        let Some(next) = rig.workers[0].poll_timeout() else { break };
        rig.now = next.max(rig.now + Duration::from_micros(100));
        rig.workers[0].handle_timeout(rig.now);
        while rig.workers[0].poll_transmit(&mut Vec::new()).is_some() {}
        while rig.workers[0].poll_output().is_some() {}
    }
    assert_eq!(rig.workers[0].gauges(), Gauges::default());
    assert_eq!((rig.shared.directory.paths(), rig.shared.seats.used()), (0, 0));
    let waited = rig.now - gone;
    assert!((Duration::from_secs(25)..Duration::from_secs(32)).contains(&waited), "{waited:?}");
}
