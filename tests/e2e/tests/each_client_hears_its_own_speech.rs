//! Several callers at once.

use std::time::Duration;

use e2e::{Held, Plan, World, decode, likeness, speech};

const CALLERS: u32 = 6;

#[test]
fn each_of_several_clients_hears_its_own_speech_only() {
    let mut world = World::new(Plan { workers: 2, ..Plan::default() });
    let clients: Vec<usize> = (0..CALLERS).map(|_| world.connect("parrot")).collect();
    for (words, client) in (1..).zip(&clients) {
        world.say(*client, &speech(1000, words));
    }
    world.run(Duration::from_millis(3200));
    let context = world.context();
    assert_eq!((world.held().calls, world.held().seats), (clients.len(), CALLERS), "{context}");
    for (words, client) in (1..).zip(&clients) {
        let heard = decode(world.client(*client).sound_between(Duration::ZERO, world.elapsed()));
        for other in 1..=CALLERS {
            let likeness = likeness(&speech(1000, other), &heard);
            let expected = if other == words { likeness >= 0.75 } else { likeness <= 0.35 };
            assert!(expected, "client {client} hears {other} with {likeness}; {context}");
        }
    }
    for client in clients {
        world.hang_up(client);
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.held(), Held::default(), "{}", world.context());
    assert!((0..6).all(|client| world.client(client).closed), "{}", world.context());
}
