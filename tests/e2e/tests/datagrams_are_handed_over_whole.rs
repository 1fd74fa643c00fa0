//! The kernel gives a client's datagrams to a worker that does not own its session.

mod scenes;

use std::time::Duration;

use e2e::{Plan, World};
use edge::worker::Gauges;
use scenes::{good, says_and_is_answered};

#[test]
fn datagrams_that_reach_another_worker_are_handed_over_whole() {
    let mut world = World::new(Plan { workers: 3, ..Plan::default() });
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    assert_eq!(world.handed_over(), 0, "{}", world.context());

    world.arrive_at(client, 2);
    says_and_is_answered(&mut world, client, 1, &good());
    let context = world.context();
    let (owner, other) = (world.worker(0), world.worker(2));
    assert!(world.handed_over() > 200, "{} handed over; {context}", world.handed_over());
    assert_eq!(other.stats().handed_over, world.handed_over(), "{context}");
    assert_eq!(other.gauges(), Gauges::default(), "a worker keeps nothing of what it hands over; {context}");
    assert_eq!((owner.stats().discarded_total(), other.stats().discarded_total()), (0, 0), "{context}");
    // Every frame that had the time to arrive did, whichever way it went.
    let heard = world.node(0).call(world.session(client)).expect("a call").stats().media;
    assert_eq!(heard, owner.stats().media_received, "{context}");
    let connected = world.client(client).connected.expect("connected");
    let sent = (world.elapsed() - connected).as_millis() / 20 + 1;
    assert!(sent - u128::from(heard) <= 2, "{heard} of {sent}; {context}");
}
