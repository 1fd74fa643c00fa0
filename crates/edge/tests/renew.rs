//! Calls that change while they run: ICE restarts, other addresses, later offers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::time::Duration;

use common::{Rig, UNIX};
use edge::directory::Command;
use edge::keys::{KeySet, PopKeys};
use edge::renew::{Change, Changed, Refusal};
use link::ids::{EdgeId, SessionId};
use rtc::{Fragment, Offer};
use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};

const ELSEWHERE: &str = "203.0.113.9:50000";

/// The worker that owns the session, by its number.
fn ask(rig: &mut Rig, worker: usize, session: SessionId, change: &Change) -> Result<Changed, Refusal> {
    let candidates = rig.shared.candidates.clone();
    let (now, unix) = (rig.now, rig.unix());
    let changed = rig.workers[worker].handle_change(now, unix, session, change, &candidates);
    rig.settle();
    changed
}

fn restart(rig: &mut Rig) -> (Change, SdpPendingOffer) {
    let mut api = rig.client.rtc.sdp_api();
    api.ice_restart(true);
    let (offer, pending) = api.apply().unwrap();
    (Change::Offer(Box::new(Offer::parse(&SdpOffer::to_sdp_string(&offer)).unwrap())), pending)
}

/// A call that no check claimed, changed as signaling does it.
fn ask_unclaimed(rig: &Rig, keys: &PopKeys, session: SessionId, change: &Change) -> Changed {
    let entry = rig.shared.directory.get(session).unwrap();
    let dated = (EdgeId(1), session, rig.unix());
    let changed = rig.shared.directory.change_pending(&entry, keys, dated, change, &rig.shared.candidates);
    changed.expect("nobody claimed it").unwrap()
}

fn accept(rig: &mut Rig, pending: SdpPendingOffer, changed: Changed) {
    let answer = SdpAnswer::from_sdp_string(&changed.answer.unwrap()).unwrap();
    rig.client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
}

fn connects(rig: &mut Rig) {
    rig.run_until("connected, with a channel", Duration::from_secs(5), |rig| {
        rig.client.connected && rig.client.channel.is_some()
    });
    assert_eq!(talk(rig, 20), 20);
    let refused = edge::worker::Discard::Rtc(rtc::Discard::StunIntegrity);
    assert_eq!(rig.workers[0].stats().discarded(refused), 0, "no check was refused");
}

/// Each 20 ms one frame with its number, `count` times; how many the client heard of it.
fn talk(rig: &mut Rig, count: u8) -> usize {
    let before = rig.client.heard.len();
    for tag in 0..count {
        rig.client.speak(rig.now, &[tag, 1, 2]);
        rig.run_for(Duration::from_millis(20));
    }
    rig.run_for(Duration::from_millis(100));
    rig.client.heard.len() - before
}

#[test]
fn an_ice_restart_keeps_the_call_its_keys_and_its_channel() {
    let mut rig = Rig::new(1);
    let id = rig.connect("echo");
    assert_eq!(talk(&mut rig, 20), 20);
    let claimed = rig.workers[0].stats().claimed;
    for number in 2..5 {
        let (change, pending) = restart(&mut rig);
        let changed = ask(&mut rig, 0, id, &change).unwrap();
        assert!(changed.restarted);
        assert_eq!(changed.ice_session, number);
        let answer = SdpAnswer::from_sdp_string(&changed.answer.unwrap()).unwrap();
        rig.client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
        assert_eq!(talk(&mut rig, 50), 50, "not a frame is lost");
        let heard = rig.client.messages.len();
        rig.client.say("still there");
        rig.run_for(Duration::from_millis(100));
        assert_eq!(rig.client.messages.len(), heard + 1);
    }
    assert_eq!(rig.workers[0].stats().claimed, claimed);
    assert_eq!(rig.workers[0].gauges().sessions, 1);
}

/// Both route tokens lead to the session, whichever worker the kernel gives the datagrams to.
#[test]
fn after_an_ice_restart_a_client_elsewhere_reaches_its_worker() {
    let mut rig = Rig::new(2);
    let id = rig.connect("echo");
    let (change, pending) = restart(&mut rig);
    let changed = ask(&mut rig, 0, id, &change).unwrap();
    let answer = SdpAnswer::from_sdp_string(&changed.answer.unwrap()).unwrap();
    rig.client.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    // Before its next check, so that a check with the new token comes to the other worker from an unknown address.
    rig.arrival = 1;
    rig.client.local = ELSEWHERE.parse().unwrap();
    rig.client.rtc.add_local_candidate(str0m::Candidate::host(rig.client.local, "udp").unwrap());
    rig.run_for(Duration::from_secs(3));
    assert!(rig.handed_over.iter().any(|datagram| datagram[0] == 0), "checks were handed over");
    let heard = talk(&mut rig, 50);
    assert!(heard >= 45, "{heard}");
    let discards = rig.workers[1].stats();
    assert_eq!(discards.discarded(edge::worker::Discard::Rtc(rtc::Discard::StunIntegrity)), 0);
}

#[test]
fn a_fragment_restarts_ice_and_the_former_credentials_stay_for_a_while() {
    let mut rig = Rig::new(1);
    let id = rig.connect("echo");
    let text = "a=ice-ufrag:ysXw\r\na=ice-pwd:vw5LmwG4y/e6dPP/zAP9Gp5k\r\n";
    let change = Change::Fragment(Fragment::parse(text).unwrap(), None);
    assert!(ask(&mut rig, 0, id, &change).unwrap().restarted);
    // The page never heard the answer, and goes on as before.
    assert_eq!(talk(&mut rig, 250), 250);
    // A path lives longer than that without a check: what shows that the former pair stayed is that none was refused.
    rig.run_for(Duration::from_secs(60));
    assert_eq!(talk(&mut rig, 20), 20);
    let refused = edge::worker::Discard::Rtc(rtc::Discard::StunIntegrity);
    assert_eq!((rig.workers[0].gauges().sessions, rig.workers[0].stats().discarded(refused)), (1, 0));
    let stale = Change::Fragment(Fragment::parse("").unwrap(), Some(vec![1]));
    assert_eq!(ask(&mut rig, 0, id, &stale), Err(Refusal::OtherIceSession));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut rig = Rig::new(1);
    let id = rig.connect("echo");
    let foreign = common::Client::new(rig.now, ELSEWHERE.parse().unwrap()).offer();
    let change = Change::Offer(Box::new(Offer::parse(&foreign).unwrap()));
    for _ in 0..100 {
        assert!(matches!(ask(&mut rig, 0, id, &change), Err(Refusal::Offer(_))));
    }
    assert_eq!(talk(&mut rig, 20), 20);
    assert_eq!(ask(&mut rig, 0, SessionId(id.0 + 1), &change), Err(Refusal::NoSuchCall));
}

/// A network switch in the middle of a reply: other address, other port, nothing from the old one.
#[test]
fn a_client_that_changes_its_network_misses_little() {
    let mut rig = Rig::new(2);
    rig.connect("echo");
    assert_eq!(talk(&mut rig, 20), 20);
    rig.client.local = ELSEWHERE.parse().unwrap();
    rig.arrival = 1;
    let heard = talk(&mut rig, 100);
    assert!(heard >= 85, "{heard} of 100 frames: more than 300 ms are gone");
    assert_eq!(rig.workers[0].stats().claimed + rig.workers[1].stats().claimed, 1);
}

#[test]
fn a_call_that_restarts_before_its_first_check_connects_though_the_answers_are_lost() {
    let mut rig = Rig::new(1);
    let id = rig.call("echo");
    let keys = rig.shared.keys.current();
    for number in 2..6 {
        let (change, unanswered) = restart(&mut rig);
        drop(unanswered);
        assert_eq!(ask_unclaimed(&rig, &keys, id, &change).ice_session, number);
    }
    connects(&mut rig);
    // The client still has the very first pair, and may restart once more.
    let (change, pending) = restart(&mut rig);
    let changed = ask(&mut rig, 0, id, &change).unwrap();
    accept(&mut rig, pending, changed);
    connects(&mut rig);
}

#[test]
fn a_call_whose_last_answer_alone_is_lost_connects_by_the_one_before() {
    let mut rig = Rig::new(1);
    let id = rig.call("echo");
    let keys = rig.shared.keys.current();
    for _ in 0..3 {
        let (change, pending) = restart(&mut rig);
        let changed = ask_unclaimed(&rig, &keys, id, &change);
        accept(&mut rig, pending, changed);
    }
    let (change, unanswered) = restart(&mut rig);
    drop(unanswered);
    assert!(ask_unclaimed(&rig, &keys, id, &change).restarted);
    connects(&mut rig);
}

#[test]
fn a_call_that_restarts_before_its_first_check_connects_by_the_new_credentials() {
    let mut rig = Rig::new(1);
    let id = rig.call("echo");
    let keys = rig.shared.keys.current();
    let (change, pending) = restart(&mut rig);
    let changed = ask_unclaimed(&rig, &keys, id, &change);
    accept(&mut rig, pending, changed);
    connects(&mut rig);
}

/// The lines with ufrag and password.
fn credentials(sdp: &str) -> [String; 2] {
    ["a=ice-ufrag:", "a=ice-pwd:"].map(|name| {
        let line = sdp.lines().find(|line| line.starts_with(name)).unwrap();
        format!("{line}\r\n")
    })
}

/// A set of two keys, and what of it signaling uses before and after the second one's time.
fn rotated() -> [PopKeys; 2] {
    let mut set = KeySet::make(UNIX).unwrap();
    set.rotate(UNIX, 60, 3600).unwrap();
    let keys = [UNIX, UNIX + 60].map(|now| PopKeys::new(&set, now).unwrap());
    assert_ne!(keys[0].route().newest(), keys[1].route().newest());
    keys
}

/// The page has the fingerprint of its first answer: a fragment names none.
#[test]
fn a_fragment_after_a_rotation_of_keys_keeps_the_certificate_of_the_call() {
    let [before, after] = rotated();
    let mut rig = Rig::with_keys(1, before);
    let id = rig.call("echo");
    // This stack neither writes nor reads fragments: the credentials of its offer make one, those of the answer go into
    // the first one.
    let mut api = rig.client.rtc.sdp_api();
    api.ice_restart(true);
    let (offer, pending) = api.apply().unwrap();
    let fragment = credentials(&SdpOffer::to_sdp_string(&offer)).concat();
    let change = Change::Fragment(Fragment::parse(&fragment).unwrap(), None);
    let answer = ask_unclaimed(&rig, &after, id, &change).answer.unwrap();
    assert!(!answer.contains("fingerprint"), "{answer}");
    let (former, fresh) = (credentials(&rig.answer), credentials(&answer));
    assert!(fresh[0].starts_with("a=ice-ufrag:R"), "of the newer key: {}", fresh[0]);
    let answer = rig.answer.replace(&former[0], &fresh[0]).replace(&former[1], &fresh[1]);
    rig.client.rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
    rig.workers[0].handle_command(rig.now, Command::Keys(after));
    connects(&mut rig);
}

#[test]
fn an_offer_after_a_rotation_of_keys_keeps_the_certificate_of_the_call() {
    let [before, after] = rotated();
    let mut rig = Rig::with_keys(1, before.clone());
    let id = rig.call("echo");
    let (change, pending) = restart(&mut rig);
    let changed = ask_unclaimed(&rig, &after, id, &change);
    let fingerprint = before.identity("Q").unwrap().fingerprint();
    assert!(changed.answer.as_ref().unwrap().contains(fingerprint));
    rig.workers[0].handle_command(rig.now, Command::Keys(after));
    accept(&mut rig, pending, changed);
    connects(&mut rig);
}
