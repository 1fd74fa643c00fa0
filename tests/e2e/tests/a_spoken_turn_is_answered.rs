//! One turn with the parrot over a perfect network.

use std::time::Duration;

use e2e::{Plan, World, decode, likeness, speech};

/// What a spoken turn is told with, in order.
const TURN: [&str; 17] = [
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

#[test]
fn a_spoken_turn_is_answered_by_the_parrot() {
    let mut world = World::new(Plan::default());
    let client = world.connect("parrot");
    world.run(Duration::from_millis(500));
    let said = speech(1400, 1);
    let began = world.elapsed();
    world.say(client, &said);
    world.run(Duration::from_millis(4500));

    let context = world.context();
    let caller = world.client(client);
    assert_eq!(caller.event_names()[0], "session.created", "{context}");
    assert_eq!(caller.event_names()[1..], TURN, "{context}");
    let done = &caller.events_named("response.done").next().expect("done").1;
    assert_eq!(done["response"]["status"], "completed", "{context}");

    let reply = caller.heard_between(began, world.elapsed());
    let lasts = Duration::from_millis(20) * u32::try_from(reply.len()).expect("a short reply");
    let spoken = Duration::from_millis(1400);
    assert!(lasts.abs_diff(spoken) <= Duration::from_millis(100), "the reply lasts {lasts:?}; {context}");
    let heard = decode(reply);
    let (own, other) = (likeness(&said, &heard), likeness(&speech(1400, 9), &heard));
    assert!(own >= 0.7 && other <= 0.4, "{own} and {other}; {context}");

    let first = caller.heard.iter().find(|heard| heard.at > began).expect("a reply").at;
    let waited = first - caller.spoken.last().copied().expect("spoken");
    assert!(waited < Duration::from_millis(700), "{waited:?} from the end of speech to the reply; {context}");
    // The pacer's slots: one frame each 20 ms, and no hole.
    assert!(caller.heard.windows(2).all(|pair| pair[1].at == pair[0].at + Duration::from_millis(20)), "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1), "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].timestamp == pair[0].timestamp + 960), "{context}");
    println!("the reply came {waited:?} after the end of speech and lasted {lasts:?}; likeness {own:.2}, to others {other:.2}");
}
