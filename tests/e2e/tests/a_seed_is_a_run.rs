//! Everything that happens follows from the seed.

use std::time::Duration;

use e2e::{Access, Link, Plan, World, speech};

/// A conversation with an interruption over a bad network, as text.
fn log(seed: u64) -> String {
    let mut world = World::new(Plan { seed, workers: 2, ..Plan::default() });
    let client = world.connect("parrot");
    let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(8));
    world.set_access(Access { delay, jitter, loss: 0.02, reorder: 0.02 });
    world.set_link(Link { delay, jitter, loss: 0.02, reorder: 0.02 });
    world.arrive_at(client, 1);
    world.run(Duration::from_millis(400));
    world.say(client, &speech(900, 1));
    world.run(Duration::from_millis(2200));
    world.say(client, &speech(700, 2));
    world.run(Duration::from_millis(2800));
    world.log().to_string()
}

#[test]
fn two_runs_with_one_seed_give_the_same_log() {
    for seed in [1, 2] {
        let (first, second) = (log(seed), log(seed));
        let differing = first.lines().zip(second.lines()).enumerate().find(|(_, (first, second))| first != second);
        assert_eq!(differing, None, "seed {seed}: the first line that differs");
        assert_eq!(first.lines().count(), second.lines().count(), "seed {seed}");
        assert!(first.contains("output_audio_buffer.cleared"), "seed {seed}: nobody was interrupted\n{first}");
        assert!(first.contains("hands_over"), "seed {seed}: nothing was handed over");
    }
}

#[test]
fn another_seed_gives_another_log() {
    assert_ne!(log(1), log(2));
}
