//! The user speaks over the reply.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use link::proto::transceiver_message::Kind;
use support::{Bench, speech};

/// A bench in the middle of a reply of about two seconds.
fn replying() -> Bench {
    let mut bench = Bench::opened("parrot");
    bench.run_ms(600);
    bench.say(&speech::speech(2000, 1));
    bench.run_ms(3400);
    assert!(bench.event("output_audio_buffer.started").is_some(), "{:?}", bench.names());
    assert!(bench.event("output_audio_buffer.stopped").is_none());
    bench.events.clear();
    bench.messages.clear();
    bench
}

#[test]
fn speech_over_the_reply_pauses_then_flushes_and_is_answered_itself() {
    let mut bench = replying();
    bench.wire.clear();
    let spoken_at = bench.elapsed_ms();
    let second = speech::speech(1200, 2);
    bench.say(&second);
    bench.run_ms(1000);
    let last = bench.wire.last().map_or(spoken_at, |(at, _)| *at);
    assert!(last - spoken_at <= 100, "the last packet left {} ms after the first voiced one", last - spoken_at);
    assert!(matches!(&bench.messages[..], [(_, Kind::Pause(_)), (_, Kind::Flush(flush))] if flush.up_to == 1
        && flush.reason == "turn_detected"));
    let flushed = bench.messages[1].0 - spoken_at;
    assert!((250..=400).contains(&flushed), "{flushed}");
    // The response was complete and playing: it is cut, not cancelled.
    assert_eq!(
        bench.names(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    let played_ms = bench.event("conversation.item.truncated").unwrap().1["audio_end_ms"].as_u64().unwrap();
    assert!((100..2000).contains(&played_ms), "{played_ms}");
    bench.wire.clear();
    bench.run_ms(4000);
    let own = speech::correlation(&second[1600..16_000], &bench.heard());
    assert!(own >= 0.6, "{own}");
}

#[test]
fn a_cough_pauses_and_resumes() {
    let mut bench = replying();
    bench.say(&speech::speech(120, 3));
    bench.run_ms(1500);
    let kinds: Vec<&str> = bench
        .messages
        .iter()
        .map(|(_, kind)| match kind {
            Kind::Pause(_) => "pause",
            Kind::Resume(_) => "resume",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["pause", "resume"]);
    bench.run_ms(2000);
    assert_eq!(bench.names(), ["output_audio_buffer.stopped"]);
}

#[test]
fn the_client_clears_what_plays() {
    let mut bench = replying();
    bench.client(r#"{"type":"output_audio_buffer.clear"}"#);
    bench.run_ms(100);
    assert!(matches!(&bench.messages[..], [(_, Kind::Flush(flush))] if flush.reason == "client_cancelled"));
    assert_eq!(bench.names(), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
    let last = bench.wire.last().unwrap().0;
    bench.run_ms(1000);
    assert_eq!(bench.wire.last().unwrap().0, last);
}

#[test]
fn the_client_clears_a_reply_that_waits_behind_another() {
    let mut bench = replying();
    bench.client(r#"{"type":"response.create"}"#);
    bench.run_ms(100);
    assert!(bench.names().contains(&"response.done"), "{:?}", bench.names());
    bench.events.clear();
    bench.client(r#"{"type":"output_audio_buffer.clear"}"#);
    bench.run_ms(100);
    let cleared = bench.names().iter().filter(|name| **name == "output_audio_buffer.cleared").count();
    assert_eq!(cleared, 2, "{:?}", bench.names());
    let ends: Vec<_> = bench.events.iter().filter_map(|(_, event)| event["audio_end_ms"].as_u64()).collect();
    assert_eq!(ends.iter().filter(|end| **end == 0).count(), 1, "nothing was heard of the second: {ends:?}");
}
