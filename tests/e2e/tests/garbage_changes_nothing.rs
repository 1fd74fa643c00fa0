//! What strangers throw at the port, and what a client's address might throw at its own call.

mod scenes;

use std::net::SocketAddr;
use std::time::Duration;

use e2e::{Plan, World};
use scenes::replying;

/// A reply during which 400 datagrams without meaning arrive, or none; its log, and what was dropped.
fn reply(garbage: bool) -> (World, u64) {
    let mut world = World::new(Plan { workers: 2, ..Plan::default() });
    let client = replying(&mut world);
    let mut thrown = 0;
    for _ in 0..40 {
        for _ in 0..10 {
            if garbage {
                throw(&mut world, client);
                thrown += 1;
            }
        }
        world.run(Duration::from_millis(20));
    }
    world.run(Duration::from_millis(1500));
    (world, thrown)
}

fn throw(world: &mut World, client: usize) {
    let check = world.check(client).to_vec();
    let client = world.address(client);
    let random = world.garbage();
    let mut size = |limit: usize| usize::try_from(random.below(limit as u64)).expect("a size");
    let datagram = match size(4) {
        // A check cut short.
        0 => check[..size(check.len())].to_vec(),
        // A check with a bit turned.
        1 => {
            let mut bent = check.clone();
            let at = size(check.len());
            bent[at] ^= 1 << size(8);
            bent
        }
        // The head of something known, and noise behind it.
        2 => {
            let heads = [0x00, 0x14, 0x16, 0x17, 0x3f, 0x80, 0x90, 0xbf];
            let head = heads[size(heads.len())];
            let rest = size(300);
            [head].into_iter().chain((0..rest).map(|_| u8::try_from(size(256)).expect("a byte"))).collect()
        }
        _ => {
            let length = size(1500);
            (0..length).map(|_| u8::try_from(size(256)).expect("a byte")).collect::<Vec<u8>>()
        }
    };
    let from = if size(2) == 0 { client } else { SocketAddr::from(([203, 0, 113, 9], 9)) };
    let worker = size(2);
    world.inject(worker, from, &datagram);
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let (calm, none) = reply(false);
    let (stormy, thrown) = reply(true);
    let dropped = |world: &World| (0..2).map(|worker| world.worker(worker).stats().discarded_total()).sum::<u64>();
    assert_eq!((none, dropped(&calm)), (0, 0), "{}", calm.context());
    assert!(dropped(&stormy) > thrown * 3 / 4, "{} of {thrown}; {}", dropped(&stormy), stormy.context());
    assert_eq!(stormy.held(), calm.held(), "{}", stormy.context());
    let log =
        |world: &World| world.log().entries().iter().filter(|e| e.event != "hands_over").cloned().collect::<Vec<_>>();
    let (calm_log, stormy_log) = (log(&calm), log(&stormy));
    let differing = calm_log.iter().zip(&stormy_log).find(|(calm, stormy)| calm != stormy);
    assert_eq!(differing, None, "{}", stormy.context());
    assert_eq!(calm_log.len(), stormy_log.len(), "{}", stormy.context());
}
