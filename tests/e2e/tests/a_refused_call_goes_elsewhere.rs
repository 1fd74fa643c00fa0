//! Transceivers that refuse a call for which the client has its answer already.

mod scenes;

use std::time::Duration;

use e2e::{Held, NodePlan, Plan, World};
use edge::worker::CloseCause;
use scenes::{good, says_and_is_answered};

const FIRST: NodePlan = NodePlan { id: 1, seats: 10, refusing: true };
const SECOND: NodePlan = NodePlan { id: 2, seats: 10, refusing: false };

#[test]
fn a_call_that_the_first_transceiver_refuses_is_answered_by_the_next_one_at_the_next_epoch() {
    let mut world = World::new(Plan { nodes: vec![FIRST, SECOND], ..Plan::default() });
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    let context = world.context();
    let opens: Vec<String> = world
        .log()
        .entries()
        .iter()
        .filter(|entry| matches!(entry.event.as_str(), "open" | "opened" | "refused"))
        .map(|entry| {
            let epoch = entry.ids.split(' ').nth(1).unwrap_or_default();
            format!("{} {} {epoch}", entry.actor, entry.event)
        })
        .collect();
    let expected = [
        "edge0 open epoch=1",
        "transceiver1 refused epoch=1",
        "edge0 refused epoch=1",
        "edge0 open epoch=2",
        "transceiver2 opened epoch=2",
        "edge0 opened epoch=2",
    ];
    assert_eq!(opens, expected, "{context}");
    assert_eq!((world.node(0).calls(), world.node(1).calls()), (0, 1), "{context}");
    assert_eq!(world.client(client).event_names(), ["session.created"], "{context}");
    says_and_is_answered(&mut world, client, 1, &good());
    assert_eq!(world.edge.seats.used(), 1, "{context}");
}

#[test]
fn a_call_that_everybody_refuses_ends_with_an_error_event_and_leaves_nothing() {
    let mut world = World::new(Plan { nodes: vec![FIRST, NodePlan { refusing: true, ..SECOND }], ..Plan::default() });
    let client = world.call("parrot");
    world.until("the client is closed", Duration::from_secs(10), |world| world.client(client).closed);
    let (caller, context) = (world.client(client), world.context());
    assert_eq!(caller.event_names(), ["error"], "{context}");
    assert_eq!(caller.events[0].1["error"]["code"], "no_capacity", "{context}");
    let counted = CloseCause::ALL.iter().position(|cause| *cause == CloseCause::OpenFailed).expect("a cause");
    assert_eq!(world.worker(0).stats().closed[counted], 1, "{context}");
    world.run(Duration::from_secs(1));
    assert_eq!(world.held(), Held::default(), "{}", world.context());
}
