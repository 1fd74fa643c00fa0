//! How soon silence follows the user's sound, and the reply the end of it, over many onsets.

#![allow(clippy::print_stdout, reason = "figures are for reading")]

mod scenes;

use std::time::Duration;

use e2e::{Access, Heard, Link, Plan, World, speech};
use scenes::FRAME;

const ACCESS: Duration = Duration::from_millis(10);

/// One sound of the user's over a reply.
struct Onset {
    /// From its arrival at the edge to silence leaving there.
    silence: Duration,
    /// From the arrival of its last frame to the reply leaving again.
    again: Duration,
}

fn plan(seed: u64, link: Duration, reflex: bool) -> Plan {
    let access = Access { delay: ACCESS, ..Access::default() };
    let link = Link { delay: link, ..Link::default() };
    Plan { seed, access, link, edge_reflex: reflex, transceiver_reflex: reflex, ..Plan::default() }
}

/// A reply so long over which the user coughs so often, each time 100 ms, at another place of the pacer's grid.
fn reply(plan: Plan, ms: usize, coughs: u32) -> (World, usize, Vec<Duration>) {
    let grid = plan.seed % 20;
    let mut world = World::new(plan);
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    world.say(client, &speech(ms, 1));
    world.until("the reply begins", Duration::from_secs(12), |world| {
        world.client(client).events_named("output_audio_buffer.started").next().is_some()
    });
    world.run(Duration::from_millis(500 + grid));
    let mut began = Vec::new();
    for cough in 0..coughs {
        began.push(world.elapsed());
        world.say(client, &speech(100, 3 + cough));
        world.run(Duration::from_millis(1100 + 7 * u64::from(cough)));
    }
    world.until("the reply ends", Duration::from_secs(15), |world| {
        world.client(client).events_named("output_audio_buffer.stopped").next().is_some()
    });
    world.run(Duration::from_millis(200));
    (world, client, began)
}

fn payloads(world: &World, client: usize) -> Vec<&[u8]> {
    world.client(client).sound().map(|heard| heard.payload.as_slice()).collect()
}

/// Nothing is lost and nothing jitters on the way to the client, so what it hears left the edge the delay before.
fn onsets(world: &World, client: usize, began: &[Duration]) -> Vec<Onset> {
    let caller = world.client(client);
    let left: Vec<Duration> = caller.sound().map(|heard: &Heard| heard.at - ACCESS).collect();
    let mut onsets = Vec::new();
    for &began in began {
        let mut spoken = caller.spoken.iter().filter(|at| (began..began + Duration::from_millis(200)).contains(*at));
        let (first, last) =
            (*spoken.clone().next().expect("spoken") + ACCESS, *spoken.next_back().expect("spoken") + ACCESS);
        let gap = left.windows(2).find(|pair| pair[0] + FRAME >= first && pair[1] - pair[0] > 2 * FRAME);
        let gap = gap.unwrap_or_else(|| panic!("no pause after {first:?}; {}", world.context()));
        onsets.push(Onset { silence: (gap[0] + FRAME).saturating_sub(first), again: gap[1].saturating_sub(last) });
    }
    onsets
}

fn p95(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[(times.len() * 95).div_ceil(100) - 1]
}

/// Plays so many replies; all onsets, and that each reply was heard whole, once, in order.
fn measured(seeds: std::ops::RangeInclusive<u64>, link: Duration, reflex: bool) -> (Duration, Duration) {
    // Behind the first of them only what would cut the reply holds it, for a minute.
    let (ms, coughs) = (2000, 1);
    let (mut silence, mut again) = (Vec::new(), Vec::new());
    for seed in seeds.clone() {
        let (world, client, began) = reply(plan(seed, link, reflex), ms, coughs);
        let (quiet, listener, _) = reply(plan(seed, link, reflex), ms, 0);
        assert!(payloads(&world, client) == payloads(&quiet, listener), "not the same reply; {}", world.context());
        for onset in onsets(&world, client, &began) {
            silence.push(onset.silence);
            again.push(onset.again);
        }
    }
    let figures = (p95(silence), p95(again));
    println!(
        "link {link:?}, reflex {reflex}, seeds {seeds:?}: silence after {:?}, the reply after {:?} p95",
        figures.0, figures.1
    );
    figures
}

#[test]
fn silence_leaves_60_ms_and_a_link_round_trip_after_the_users_sound() {
    let link = Duration::from_millis(15);
    let (silence, again) = measured(1..=10, link, false);
    assert!(silence <= Duration::from_millis(60) + 2 * link, "{silence:?}");
    assert!(again <= Duration::from_millis(250) + 2 * link, "{again:?}");
}

#[test]
fn the_reflex_leaves_silence_60_ms_after_the_users_sound_however_far_the_transceiver_is() {
    let link = Duration::from_millis(60);
    let (silence, again) = measured(11..=20, link, true);
    assert!(silence <= Duration::from_millis(60), "{silence:?}");
    assert!(again <= Duration::from_millis(250) + 2 * link, "{again:?}");
}

#[test]
fn the_reflex_holds_only_where_edge_and_transceiver_both_want_it_and_once_a_minute() {
    for (edge_reflex, transceiver_reflex) in [(false, false), (true, false), (false, true), (true, true)] {
        let plan = Plan { edge_reflex, transceiver_reflex, ..plan(31, Duration::from_millis(60), false) };
        let (world, client, began) = reply(plan, 7000, 5);
        let held = world.worker(0).stats().reflex_held;
        let context = world.context();
        assert_eq!(held, u64::from(edge_reflex && transceiver_reflex), "{edge_reflex} {transceiver_reflex}; {context}");
        let first = onsets(&world, client, &began[..1]).remove(0).silence;
        assert_eq!(first <= Duration::from_millis(60), held == 1, "{first:?}; {context}");
    }
}

/// 60 ms of hiss: loud, and no speech.
#[test]
fn a_hold_that_the_transceiver_knows_nothing_of_ends_by_itself() {
    let mut world = World::new(plan(21, Duration::from_millis(15), true));
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    world.say(client, &speech(3000, 1));
    world.until("the reply begins", Duration::from_secs(8), |world| {
        world.client(client).events_named("output_audio_buffer.started").next().is_some()
    });
    world.run(Duration::from_millis(500));
    let began = world.elapsed();
    let hiss: Vec<i16> = (0..960).map(|_| i16::try_from(world.garbage().below(8000)).expect("small") - 4000).collect();
    world.say(client, &hiss);
    world.until("the reply ends", Duration::from_secs(8), |world| {
        world.client(client).events_named("output_audio_buffer.stopped").next().is_some()
    });
    let stats = world.worker(0).stats();
    assert_eq!(stats.reflex_held, 1, "{}", world.context());
    let gap = Duration::from_millis(1000) + 4 * FRAME;
    let sound: Vec<Duration> = world.client(client).sound().map(|heard| heard.at).filter(|at| *at > began).collect();
    assert!(sound.windows(2).all(|pair| pair[1] - pair[0] <= gap), "{}", world.context());
    assert_eq!(world.client(client).events_named("response.done").count(), 1, "the reply is not cut");
}
