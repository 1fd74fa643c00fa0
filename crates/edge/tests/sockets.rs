//! A whole edge on loopback sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use common::Client;
use common::live::{Caller, StateDir, admin, agent, eventually, metric, metrics, start};
use edge::{Config, Edge};

#[test]
fn a_call_is_echoed_hung_up_and_leaves_nothing() {
    let (edge, _state) = start("echo", 2);
    eventually("ready", || admin(&edge, "/readyz").0 == 200);
    let mut caller = Caller::dial(&edge, "echo");
    caller.connect();
    assert!(caller.client.messages[0].contains("\"session.created\""));
    caller.client.say("hello");
    caller.until("the echo of a message", |client| client.messages.len() > 1);
    assert_eq!(caller.client.messages[1], "hello");
    for n in 0..25 {
        caller.client.speak(Instant::now(), &[0xfc, n]);
        let next = Instant::now() + Duration::from_millis(20);
        while Instant::now() < next {
            caller.turn();
        }
    }
    caller.until("the echo of audio", |client| client.heard.len() >= 20);
    eventually("the session in the metrics", || metric(&edge, "fronthaul_edge_sessions") == 1.0);

    // Bad input in mid-call harms nobody.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in 0..200 {
        stranger.send_to(&vec![u8::try_from(length).unwrap(); length], edge.media_addr()).unwrap();
    }
    let huge = "a".repeat(1 << 20);
    let url = format!("{}/v1/realtime/calls", caller.url);
    assert_eq!(agent().post(&url).content_type("application/sdp").send(&huge).unwrap().status(), 413);
    caller.client.say("still here");
    caller.until("the echo after bad input", |client| client.messages.len() > 2);

    let hang_up = format!("{}{}/hangup", caller.url, caller.location);
    assert_eq!(ureq::post(&hang_up).send_empty().unwrap().status(), 200);
    assert_eq!(ureq::post(&hang_up).send_empty().unwrap().status(), 200);
    for gauge in ["sessions", "pending_sessions", "paths", "seats_used", "session_streams", "utterance_streams"] {
        eventually(gauge, || metric(&edge, &format!("fronthaul_edge_{gauge}")) == 0.0);
    }
    let closed = "fronthaul_edge_sessions_closed_total{reason=\"hang_up\"}";
    eventually("the close counted", || metric(&edge, closed) == 1.0);
    assert!(metric(&edge, "fronthaul_edge_media_sent_total") >= 20.0);

    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn two_source_ports_that_hash_to_different_workers_reach_one_session() {
    let (edge, _state) = start("hash", 2);
    // Which of many ports the kernel gives to which worker shows by the hand-overs.
    let mut found = false;
    for _ in 0..16 {
        let sockets = vec![UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap()];
        let mut caller = Caller::dial_from(&edge, "echo", sockets);
        caller.connect();
        let before = metric(&edge, "fronthaul_edge_handovers_total");
        // Checks from the other port: they name their session, so they reach it wherever they arrive.
        caller.sending = 1;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            caller.turn();
        }
        caller.client.say("from the other port");
        caller.until("the echo of what came from the other port", |client| client.messages.len() > 1);
        std::thread::sleep(Duration::from_millis(300));
        let handed_over = metric(&edge, "fronthaul_edge_handovers_total") - before;
        let hang_up = format!("{}{}", caller.url, caller.location);
        assert_eq!(ureq::delete(&hang_up).call().unwrap().status(), 200);
        if handed_over > 0.0 {
            found = true;
            break;
        }
    }
    assert!(found, "16 pairs of ports all hashed to one worker: chance 1 in 65536");
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn a_stopping_edge_takes_no_call_closes_what_runs_and_ends() {
    let (edge, _state) = start("drain", 1);
    let mut caller = Caller::dial(&edge, "echo");
    caller.connect();
    let began = Instant::now();
    edge.drain();
    eventually("not ready", || admin(&edge, "/readyz").0 == 503);
    let offer = Client::new(Instant::now(), "127.0.0.1:9".parse().unwrap()).offer();
    let refused =
        agent().post(format!("{}/v1/realtime/calls", caller.url)).content_type("application/sdp").send(&offer);
    let refused = refused.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    edge.wait().unwrap();
    let took = began.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[test]
fn a_taken_port_is_one_message_with_key_reason_and_fix() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let state = StateDir::new("taken");
    let config = Config { media_bind: taken.local_addr().unwrap(), state_dir: state.0.clone(), ..Config::default() };
    let error = Edge::start(config, metrics()).unwrap_err().to_string();
    assert!(error.contains("media_bind") && error.contains("address in use"), "{error}");
}
