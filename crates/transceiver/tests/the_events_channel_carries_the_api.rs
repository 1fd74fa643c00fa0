//! Which channel, when, and what of the rest.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use link::proto::{ChannelClosed, ChannelMessage, Closed, OversizeFrame, PlayoutEffect, edge_message};
use support::{Bench, speech};

#[test]
fn session_created_waits_for_the_channel_and_names_the_model() {
    let mut bench = Bench::new("parrot");
    bench.run_ms(100);
    bench.open_channel(7, "chat");
    assert!(bench.names().is_empty());
    bench.open_channel(support::CHANNEL, "oai-events");
    assert_eq!(bench.names(), ["session.created"]);
    assert_eq!(bench.events[0].1["session"]["model"], "parrot");
}

#[test]
fn events_of_a_turn_before_the_channel_come_when_it_opens() {
    let mut bench = Bench::new("parrot");
    bench.run_ms(600);
    bench.say(&speech::speech(1000, 1));
    bench.run_ms(3500);
    bench.open_channel(support::CHANNEL, "oai-events");
    let names = bench.names();
    assert_eq!(names[..2], ["session.created", "input_audio_buffer.speech_started"]);
    assert_eq!(names.last(), Some(&"output_audio_buffer.stopped"));
}

#[test]
fn session_update_is_echoed() {
    let mut bench = Bench::opened("parrot");
    bench.client(r#"{"type":"session.update","session":{"type":"realtime","instructions":"hi"}}"#);
    assert_eq!(bench.names(), ["session.updated"]);
    assert_eq!(bench.events[0].1["session"]["instructions"], "hi");
}

#[test]
fn longer_silence_asked_for_is_waited_for() {
    let silence_until_stop = |update: Option<&str>| {
        let mut bench = Bench::opened("parrot");
        if let Some(update) = update {
            bench.client(update);
        }
        bench.run_ms(600);
        bench.say(&speech::speech(1000, 1));
        bench.run_ms(3500);
        bench.event("input_audio_buffer.speech_stopped").unwrap().0
    };
    let default = silence_until_stop(None);
    let longer = silence_until_stop(Some(
        r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"silence_duration_ms":900}}}}}"#,
    ));
    assert!((380..=420).contains(&(longer - default)), "{default} {longer}");
}

#[test]
fn a_manual_turn_is_committed_and_answered_on_request() {
    let mut bench = Bench::opened("parrot");
    bench.client(r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":null}}}}"#);
    bench.run_ms(200);
    bench.say(&speech::speech(1000, 1));
    bench.run_ms(1500);
    assert_eq!(bench.names(), ["session.updated"], "nothing by itself");
    bench.client(r#"{"type":"input_audio_buffer.commit"}"#);
    bench.client(r#"{"type":"response.create","response":{"metadata":{"k":"v"}}}"#);
    bench.run_ms(3000);
    let names = bench.names();
    assert_eq!(
        names[1..5],
        ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done", "response.created"]
    );
    assert_eq!(bench.event("response.created").unwrap().1["response"]["metadata"]["k"], "v");
    assert_eq!(names.last(), Some(&"output_audio_buffer.stopped"));
    let heard = speech::correlation(&speech::speech(1000, 1)[1600..12_000], &bench.heard());
    assert!(heard >= 0.7, "{heard}");
}

#[test]
fn nonsense_is_counted_or_answered_and_the_call_goes_on() {
    let mut bench = Bench::opened("parrot");
    bench.client("{nonsense");
    assert_eq!(bench.names(), ["error"]);
    let data = vec![0xff; 10];
    bench.message(edge_message::Kind::ChannelMessage(ChannelMessage { channel: 9, binary: true, data: data.clone() }));
    bench.message(edge_message::Kind::ChannelMessage(ChannelMessage { channel: support::CHANNEL, binary: true, data }));
    assert_eq!(bench.names(), ["error", "error"]);
    bench.message(edge_message::Kind::Playout(PlayoutEffect {
        kind: 99,
        utterance: 5,
        sent: 1,
        ..PlayoutEffect::default()
    }));
    bench.message(edge_message::Kind::Playout(PlayoutEffect {
        kind: 4,
        utterance: 5,
        sent: u64::MAX,
        arrived: 9,
        lost: u64::MAX,
    }));
    bench.message(edge_message::Kind::OversizeFrame(OversizeFrame { seq: 1 << 20, ..OversizeFrame::default() }));
    bench.frame(&[], 1);
    bench.frame(&[0xff; 1500], 1);
    bench.frame(&[8, 7], 9);
    bench.call.handle_message(bench.now, link::proto::EdgeMessage { kind: None });
    let stats = bench.call.stats();
    assert_eq!((stats.ignored_messages, stats.bad_media, stats.stale), (3, 1, 1));
    bench.client(r#"{"type":"session.update","session":{}}"#);
    assert_eq!(bench.names().last(), Some(&"session.updated"));
}

#[test]
fn after_the_channel_closed_events_are_dropped_and_counted() {
    let mut bench = Bench::opened("parrot");
    bench.message(edge_message::Kind::ChannelClosed(ChannelClosed { channel: support::CHANNEL }));
    bench.run_ms(600);
    bench.say(&speech::speech(1000, 1));
    bench.run_ms(3500);
    assert!(bench.names().is_empty());
    assert!(bench.call.stats().dropped_events >= 15);
    assert!(!bench.wire.is_empty(), "the dialogue itself goes on");
}

#[test]
fn the_end_of_the_client_is_the_end_of_the_call() {
    let mut bench = Bench::opened("parrot");
    bench.message(edge_message::Kind::Closed(Closed { reason: "hangup".to_owned() }));
    assert!(bench.ended);
    bench.frame(&[8, 7], 1);
    bench.client("{}");
    bench.run_ms(100);
    assert_eq!(bench.call.poll_timeout(), None);
}

#[test]
fn loopback_returns_frames_at_once_and_makes_no_responses() {
    let mut bench = Bench::opened("loopback");
    bench.client(r#"{"type":"response.create","event_id":"e1"}"#);
    assert_eq!(bench.events[0].1["error"]["code"], "response_create_unsupported");
    assert_eq!(bench.events[0].1["error"]["event_id"], "e1");
    bench.run_ms(200);
    assert_eq!(bench.wire.len(), 10, "every packet of 200 ms came back");
}
