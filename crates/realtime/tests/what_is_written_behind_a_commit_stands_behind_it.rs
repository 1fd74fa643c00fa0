//! Over WebSocket a commit waits in the call until its audio was heard: what the client sent behind it comes after it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::time::{Duration, Instant};

use realtime::{Command, Dialect, Input, Session, Waited};
use serde_json::{Value, json};
use support::{commands, feed, names, only_error, opened_socket, send};

fn write(session: &mut Session, id: &str, text: &str) -> Vec<Value> {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "id": id, "content": content});
    send(session, &json!({"type": "conversation.item.create", "event_id": id, "item": item}).to_string())
}

/// A session in which a spoken turn began, whose commit waits.
fn waiting() -> Session {
    let mut session = opened_socket();
    feed(&mut session, [Input::SpeechStarted { turn: 1, audio_start_ms: 0 }]);
    send(&mut session, r#"{"type":"input_audio_buffer.commit"}"#);
    feed(&mut session, [Input::RequestWaits]);
    commands(&mut session);
    session
}

fn ids(events: &[Value]) -> Vec<(String, Value, Value)> {
    let added = events.iter().filter(|event| event["type"] == "conversation.item.added");
    added
        .map(|event| {
            let id = event["item"]["id"].as_str().unwrap().to_owned();
            (id, event["previous_item_id"].clone(), event["item"]["type"].clone())
        })
        .collect()
}

#[test]
fn a_message_is_told_and_known_after_the_speech_before_it() {
    let mut session = waiting();
    assert!(write(&mut session, "item_w", "Translate that.").is_empty());
    // Whatever speaks of it waits with it.
    let retrieve = r#"{"type":"conversation.item.retrieve","item_id":"item_w"}"#;
    assert!(send(&mut session, retrieve).is_empty() && commands(&mut session).is_empty());
    let seen = feed(&mut session, [Input::Committed { turn: 1 }, Input::Waited(Waited::Done)]);
    let told = ids(&seen);
    assert_eq!(told.len(), 2, "{seen:?}");
    assert_eq!((&told[1].0, &told[1].1), (&"item_w".to_owned(), &json!(told[0].0)));
    assert_eq!(*names(&seen).last().unwrap(), "conversation.item.retrieved");
    let added: Vec<String> = commands(&mut session)
        .into_iter()
        .filter_map(|command| if let Command::AddItem(item) = command { Some(item.id) } else { None })
        .collect();
    assert_eq!(added, [told[0].0.clone(), "item_w".to_owned()]);
}

#[test]
fn a_place_that_is_named_is_taken_at_once() {
    let mut session = waiting();
    let item = json!({"type": "message", "role": "system", "content": [{"type": "input_text", "text": "x"}]});
    let create = json!({"type": "conversation.item.create", "previous_item_id": "root", "item": item}).to_string();
    assert_eq!(ids(&send(&mut session, &create)).len(), 1);
}

#[test]
fn cleared_is_told_behind_the_commit_and_the_items_id_stays() {
    let mut session = opened_socket();
    let began = feed(&mut session, [Input::SpeechStarted { turn: 1, audio_start_ms: 0 }]);
    send(&mut session, r#"{"type":"input_audio_buffer.commit"}"#);
    feed(&mut session, [Input::RequestWaits]);
    commands(&mut session);
    assert!(send(&mut session, r#"{"type":"input_audio_buffer.clear"}"#).is_empty());
    assert_eq!(commands(&mut session), [Command::ClearInput], "the call knows where it stands");
    let seen = feed(&mut session, [Input::Committed { turn: 1 }, Input::Waited(Waited::Done)]);
    assert_eq!(*names(&seen).first().unwrap(), "input_audio_buffer.committed");
    assert_eq!(seen[0]["item_id"], began[0]["item_id"]);
    assert_eq!(*names(&seen).last().unwrap(), "input_audio_buffer.cleared");
}

#[test]
fn what_is_written_behind_a_response_comes_when_that_began() {
    let mut session = opened_socket();
    send(&mut session, r#"{"type":"response.create"}"#);
    feed(&mut session, [Input::RequestWaits]);
    assert!(write(&mut session, "item_w", "And this?").is_empty());
    assert!(feed(&mut session, [Input::Waited(Waited::Done)]).is_empty());
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert_eq!(names(&seen)[..2], ["response.created", "conversation.item.added"]);
}

#[test]
fn what_waits_is_bounded_and_what_is_beyond_is_refused_by_name() {
    let mut session = waiting();
    let (begin, text) = (Instant::now(), "x".repeat(150 << 10));
    let mut refused = None;
    for n in 0..20 {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let event = json!({"type": "conversation.item.create", "event_id": "e", "item": item}).to_string();
        // At a pace at which each is taken.
        session.handle_client(begin + Duration::from_secs(3 * n), &event);
        if let Some(event) = session.poll_event() {
            refused = Some(serde_json::from_str(&event).unwrap());
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(only_error(&[refused])["code"], "rate_limit_exceeded");
    assert!(session.held_bytes() < (2 << 20) + (64 << 10), "{}", session.held_bytes());
    let seen = feed(&mut session, [Input::Waited(Waited::Done)]);
    assert_eq!(ids(&seen).len(), 13, "13 of 150 KiB are 2 MiB");
    assert_eq!(session.counters().flooded, 0);
}
