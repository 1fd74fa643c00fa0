//! Clients that go without a word.

mod scenes;

use std::time::Duration;

use e2e::{Held, Plan, World};
use scenes::replying;

/// Consent (RFC 7675).
const CONSENT: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_vanishes_in_mid_reply_leaves_nothing_after_its_timers() {
    let mut world = World::new(Plan { workers: 2, ..Plan::default() });
    assert_eq!(world.held(), Held::default());
    let client = replying(&mut world);
    let held = world.held();
    assert_eq!((held.sessions, held.seats, held.calls, held.utterances), (1, 1, 1, 1), "{}", world.context());
    assert!(held.paths > 0 && held.routes > 0, "{}", world.context());

    world.vanish(client);
    world.run(CONSENT - Duration::from_secs(6));
    assert_eq!(world.held().sessions, 1, "too early: {}", world.context());
    world.run(Duration::from_secs(7));
    assert_eq!(world.held(), Held::default(), "{}", world.context());
    let log = world.log();
    assert!(log.first("transceiver1", "released").is_some() && log.first("transceiver1", "client_closed").is_some());
}

#[test]
fn a_client_that_never_sends_a_check_leaves_nothing_after_the_set_up_timeout() {
    let mut world = World::new(Plan::default());
    let client = world.call("parrot");
    world.vanish(client);
    world.run(Duration::from_secs(29));
    // Its first check was under way when it vanished.
    assert!(world.held().seats == 1, "{}", world.context());
    world.run(Duration::from_secs(4));
    assert_eq!(world.held(), Held::default(), "{}", world.context());
}
