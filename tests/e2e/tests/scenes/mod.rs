//! Scenes that play on good and on bad networks.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    reason = "each test file uses a part; figures are for reading"
)]

use std::time::Duration;

use e2e::{Access, Link, Plan, World, decode, hum, likeness, speech};

pub const FRAME: Duration = Duration::from_millis(20);

/// What a spoken turn is told with, in order.
pub const TURN: [&str; 17] = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "response.created",
    "conversation.item.added",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio_transcript.done",
    "response.output_audio.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "output_audio_buffer.started",
    "output_audio_buffer.stopped",
];

/// A network, and what it costs.
pub struct Road {
    pub access: Access,
    pub link: Link,
    /// How much later things may be than delays alone make them.
    pub slack: Duration,
    /// How like what was said a reply is at least.
    pub likeness: f64,
}

/// Nothing is lost, and nothing late.
pub fn good() -> Road {
    let Plan { access, link, .. } = Plan::default();
    Road { access, link, slack: Duration::ZERO, likeness: 0.75 }
}

/// 40 ms there and back on either part, 8 ms of jitter, and of everything 2 % lost and 2 % out of order.
pub fn bad() -> Road {
    let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(8));
    Road {
        access: Access { delay, jitter, loss: 0.02, reorder: 0.02 },
        link: Link { delay, jitter, loss: 0.02, reorder: 0.02 },
        // Both jitters both ways, and on either part one packet that was lost or late: 60 ms is a retransmission.
        slack: 4 * jitter + 2 * Duration::from_millis(60),
        likeness: 0.55,
    }
}

impl Road {
    pub fn plan(&self, seed: u64) -> Plan {
        Plan { seed, access: self.access, link: self.link, ..Plan::default() }
    }
}

/// Lets a client say something, and checks that the parrot says it back and that the client is told of it in order.
pub fn a_turn_is_answered(road: &Road, seed: u64) {
    let mut world = World::new(road.plan(seed));
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    says_and_is_answered(&mut world, client, 1, road);
    let names = world.client(client).event_names();
    assert_eq!(names[0], "session.created", "{}", world.context());
    assert_eq!(names[1..], TURN, "{}", world.context());
    let done = &world.client(client).events_named("response.done").next().expect("done").1;
    assert_eq!(done["response"]["status"], "completed", "{}", world.context());
}

/// 1.4 s of speech made of `words`, and the reply to it.
pub fn says_and_is_answered(world: &mut World, client: usize, words: u32, road: &Road) {
    let said = speech(1400, words);
    let began = world.elapsed();
    world.say(client, &said);
    world.run(Duration::from_millis(4200) + road.slack);

    let context = world.context();
    let caller = world.client(client);
    let reply = caller.sound_between(began, world.elapsed());
    let lasts = lasts_like(&reply, Duration::from_millis(1400), road, &context);
    let heard = decode(reply);
    let (own, other) = (likeness(&said, &heard), likeness(&speech(1400, words + 77), &heard));
    assert!(own >= road.likeness && other <= 0.3, "likeness {own}, to others {other}; {context}");

    let first = caller.sound().find(|heard| heard.at > began).expect("a reply").at;
    let waited = first - caller.spoken.last().copied().expect("spoken");
    assert!(waited <= Duration::from_millis(650) + road.slack, "{waited:?} from the end of speech; {context}");
    println!("after {waited:?} a reply of {lasts:?}; likeness {own:.2}, to others {other:.2}");
}

/// Checks that a reply lasts as long as what was said, with the parrot's 40 ms on either side of it, give or take the
/// frames of detector and codec at both ends. On a bad network an onset may use what it is allowed to reach back, 160 ms.
fn lasts_like(reply: &[Option<&[u8]>], said: Duration, road: &Road, context: &str) -> Duration {
    let lasts = FRAME * u32::try_from(reply.len()).expect("a short reply");
    let margins = 2 * Duration::from_millis(40);
    let slack = Duration::from_millis(60);
    let attack = if road.slack.is_zero() { Duration::ZERO } else { Duration::from_millis(160) };
    let expected = said + margins - slack..=said + margins + attack + slack;
    assert!(expected.contains(&lasts), "it lasts {lasts:?}, not {expected:?}; {context}");
    lasts
}

/// A client in the middle of the reply to its first turn, which is [`first_words`].
pub fn replying(world: &mut World) -> usize {
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    world.say(client, &first_words());
    world.until("the reply begins", Duration::from_secs(6), |world| {
        world.client(client).events_named("output_audio_buffer.started").next().is_some()
    });
    world.run(Duration::from_millis(500));
    client
}

/// 2 s.
pub fn first_words() -> Vec<i16> {
    speech(2000, 1)
}

/// Speaks over the reply, and checks that it stops at once, is dropped, and that the interruption is answered itself.
pub fn an_interruption_flushes(road: &Road, seed: u64) {
    let mut world = World::new(road.plan(seed));
    let client = replying(&mut world);
    let second = speech(1200, 2);
    let began = world.elapsed();
    world.say(client, &second);
    world.run(Duration::from_millis(1000));

    let context = world.context();
    let caller = world.client(client);
    let first = *caller.spoken.iter().find(|at| **at >= began).expect("spoken");
    let since = |actor: &str, event: &str| {
        let entries = world.log().entries().iter().filter(|entry| entry.at >= began);
        let mut entries = entries.filter(|entry| entry.actor == actor && entry.event == event);
        let at = entries.next().unwrap_or_else(|| panic!("no {event}; {context}")).at;
        assert!(entries.next().is_none(), "{event} twice; {context}");
        at - first
    };
    let (there, link_round_trip) = (road.access.delay, 2 * road.link.delay);
    let (paused, flushed) = (since("edge0", "pause"), since("edge0", "flush"));
    let limit = there + Duration::from_millis(60) + link_round_trip + road.slack;
    assert!(paused <= limit, "the edge paused {paused:?} after the first voiced frame left; {context}");
    assert!(paused < flushed, "{context}");
    let flush_limit = Duration::from_millis(400) + road.slack;
    assert!((Duration::from_millis(250)..=flush_limit).contains(&flushed), "flushed after {flushed:?}; {context}");
    since("transceiver1", "playout_paused");
    since("transceiver1", "playout_flushed");
    // What was on the wire before the pause is heard, and nothing after it: a packet that was overtaken is 30 ms late.
    let last = caller.sound().last().expect("a reply").at - first;
    let overtaken = if road.slack.is_zero() { Duration::ZERO } else { Duration::from_millis(30) };
    let limit = paused + there + road.access.jitter + overtaken;
    assert!(last <= limit, "heard {last:?} into the interruption; {context}");
    let told = caller.events.iter().filter(|(at, _)| *at >= began);
    let told: Vec<&str> = told.filter_map(|(_, event)| event["type"].as_str()).collect();
    let cut = ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"];
    assert_eq!(told, cut, "{context}");

    world.run(Duration::from_millis(3000) + road.slack);
    let context = world.context();
    let caller = world.client(client);
    let heard = decode(caller.sound_between(began + Duration::from_millis(1000), world.elapsed()));
    let (own, cut) = (likeness(&second, &heard), likeness(&first_words(), &heard));
    assert!(own >= road.likeness && cut <= 0.3, "likeness {own}, to the reply that was cut {cut}; {context}");
    assert_eq!(caller.event_names().last(), Some(&"output_audio_buffer.stopped"), "{context}");
    println!("paused {paused:?}, last heard {last:?}, flushed {flushed:?}; likeness of the next reply {own:.2}");
}

/// Coughs over the reply, and checks that it pauses, goes on and lacks nothing.
pub fn a_cough_pauses_and_resumes(road: &Road, seed: u64) {
    let mut world = World::new(road.plan(seed));
    let client = replying(&mut world);
    let coughs = world.elapsed();
    world.say(client, &speech(100, 3));
    world.run(Duration::from_millis(3500) + road.slack);

    let context = world.context();
    let commands = world.log().entries().iter().filter(|entry| entry.actor == "edge0");
    let commands: Vec<&str> = commands
        .filter(|entry| matches!(entry.event.as_str(), "pause" | "resume" | "flush"))
        .map(|entry| entry.event.as_str())
        .collect();
    assert_eq!(commands, ["pause", "resume"], "{context}");

    let caller = world.client(client);
    assert_eq!(caller.event_names().last(), Some(&"output_audio_buffer.stopped"), "{context}");
    assert_eq!(caller.events_named("input_audio_buffer.speech_started").count(), 1, "{context}");
    assert_eq!(caller.events_named("response.created").count(), 1, "{context}");
    // Silence, and then the very next frame of the reply.
    let sound: Vec<_> = caller.sound().collect();
    let gap = |pair: &[&e2e::Heard]| pair[1].at.saturating_sub(pair[0].at);
    let pauses: Vec<_> = sound.windows(2).filter(|pair| gap(pair) > Duration::from_millis(100)).collect();
    assert_eq!(pauses.len(), 1, "{pauses:?}; {context}");
    let paused = gap(pauses[0]);
    assert!(paused < Duration::from_millis(500) + road.slack, "paused for {paused:?}; {context}");
    assert!(pauses[0][0].at >= coughs, "{context}");
    let reply = caller.sound_between(Duration::ZERO, world.elapsed());
    let lasts = lasts_like(&reply, Duration::from_millis(2000), road, &context);
    let likeness = likeness(&first_words(), &decode(reply));
    assert!(likeness >= road.likeness, "{likeness}; {context}");
    println!("the reply of {lasts:?} paused for {paused:?}; likeness {likeness:.2}");
}

/// Hums over the reply for longer than a word takes, and checks that the reply steps back to a border, says everything in order,
/// and that what it says twice is counted once.
pub fn a_hum_is_resumed_from_a_border(road: &Road, seed: u64) {
    let reply = |hums: bool| {
        let mut world = World::new(road.plan(seed));
        let client = replying(&mut world);
        if hums {
            world.say(client, &hum(450));
        }
        world.run(Duration::from_millis(4000) + road.slack);
        assert_eq!(
            world.client(client).event_names().last(),
            Some(&"output_audio_buffer.stopped"),
            "{}",
            world.context()
        );
        (world, client)
    };
    let (world, client) = reply(true);
    let (quiet, listener) = reply(false);
    let context = world.context();
    let heard: Vec<_> = world.client(client).sound().collect();
    let whole: Vec<_> = quiet.client(listener).sound().map(|heard| &heard.payload).collect();
    let gap = heard.windows(2).position(|pair| pair[1].at - pair[0].at > Duration::from_millis(300));
    let before = gap.unwrap_or_else(|| panic!("no pause of more than 300 ms; {context}")) + 1;
    let twice = heard.len().checked_sub(whole.len()).unwrap_or_else(|| panic!("frames are lost; {context}"));
    assert!((1..=15).contains(&twice), "{twice} frames are played again; {context}");
    let said = heard[..before].iter().chain(&heard[before + twice..]).map(|heard| &heard.payload);
    assert!(said.eq(whole.iter().copied()), "not the same reply; {context}");
    let again = heard[before..before + twice].iter().map(|heard| &heard.payload);
    assert!(again.eq(whole[before - twice..before].iter().copied()), "other frames are played again; {context}");
    println!("{twice} of {} frames are played again", whole.len());
}
