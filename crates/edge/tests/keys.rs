//! A running edge takes up rotated keys, and running calls keep theirs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::time::{Duration, Instant};

use common::Client;
use common::live::{Caller, StateDir, agent, config, eventually, metric, metrics, start};
use edge::Edge;
use edge::keys::{KeySet, KeySource};

/// First character of the ufrag, and the fingerprint, of a fresh answer.
fn answered(edge: &Edge) -> (String, String) {
    let offer = Client::new(Instant::now(), "127.0.0.1:9".parse().unwrap()).offer();
    let url = format!("http://{}/v1/realtime/calls", edge.http_addr());
    let mut response = agent().post(url).content_type("application/sdp").send(&offer).unwrap();
    let answer = response.body_mut().read_to_string().unwrap();
    let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    (value("a=ice-ufrag:")[..1].to_owned(), value("a=fingerprint:"))
}

#[test]
fn a_rotation_reaches_new_calls_within_seconds_and_running_ones_never() {
    let (edge, state) = start("keys", 2);
    let mut caller = Caller::dial(&edge, "echo");
    caller.connect();
    let before = answered(&edge);
    assert_eq!(before.0, "Q", "key 0");

    let source = KeySource::File(state.0.join("pop.keys"));
    let now = u32::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let rotate = |held: Option<KeySet>| {
        let mut set = held.unwrap();
        set.rotate(now, 0, 3600).unwrap();
        Ok((set.clone(), set))
    };
    let set = source.update(rotate).unwrap();
    eventually("answers of the next key", || answered(&edge).0 == "R");
    let after = answered(&edge);
    assert_ne!(before.1, after.1, "another certificate");
    assert!(after.1.ends_with(&set.keys()[0].fingerprint()), "{after:?}");

    // The call of the former key: its checks are answered, its channel and media work.
    let heard = caller.client.heard.len();
    for _ in 0..150 {
        caller.client.speak(Instant::now(), &[0xfc, 1]);
        let next = Instant::now() + Duration::from_millis(20);
        while Instant::now() < next {
            caller.turn();
        }
    }
    caller.until("the echo of its audio", |client| client.heard.len() > heard + 100);
    caller.client.say("still here");
    caller.until("the echo", |client| client.messages.last().is_some_and(|text| text == "still here"));
    let mut next = Caller::dial(&edge, "echo");
    next.connect();

    // A file that is damaged changes nothing.
    std::fs::write(state.0.join("pop.keys"), "0 what is this").unwrap();
    eventually("the refusal", || metric(&edge, "fronthaul_edge_keys_refused_total") == 1.0);
    assert_eq!(answered(&edge), after);
    assert!(metric(&edge, "fronthaul_edge_key_age_seconds") < 60.0);
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn an_edge_whose_secrets_are_damaged_says_which_file_and_what_mends_it() {
    let state = StateDir::new("damaged");
    let path = state.0.join("pop.keys");
    let refused = || match Edge::start(config(&state, 1), metrics()) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    };
    KeySource::StateDir(state.0.clone()).load(1_800_000_000).unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    for length in [whole.len() / 2, whole.len() - 41, 100] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let told = refused();
        let fix = format!("fronthaul keys new --replace --file {}", path.display());
        assert!(told.contains("keys") && told.contains(&fix), "{length}: {told}");
    }
    std::fs::write(&path, &whole).unwrap();
    std::fs::write(state.0.join("reset.key"), "0123").unwrap();
    let told = refused();
    assert!(told.contains("reset.key") && told.contains("64 hex digits") && told.contains("remove it"), "{told}");
    assert!(!told.contains("may write"), "the directory is fine: {told}");
}
