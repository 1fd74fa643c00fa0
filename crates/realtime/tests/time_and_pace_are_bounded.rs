//! A session ends at its time and at its client's flood, and what it holds is bounded.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::time::{Duration, Instant};

use realtime::{Close, Config, Dialect, Input, LIFETIME, MAX_EVENT_BYTES, Session};
use serde_json::json;
use support::{config, configured, events, feed, names, only_error, opened, opened_socket, send};

#[test]
fn b01_after_sixty_minutes_the_client_is_told_and_the_session_is_over() {
    let start = Instant::now();
    let mut session = Session::new(start, &config());
    events(&mut session);
    assert_eq!(session.poll_timeout(), Some(start + LIFETIME));
    session.handle_timeout(start + LIFETIME - Duration::from_millis(1));
    assert_eq!(session.closing(), None);
    session.handle_timeout(start + LIFETIME);
    let seen = events(&mut session);
    let reason = "Your session hit the maximum duration of 60 minutes.";
    assert_eq!(
        only_error(&seen),
        &json!({"type": "invalid_request_error", "code": "session_expired", "message": reason, "param": null, "event_id": null})
    );
    assert_eq!(session.closing(), Some(&Close { code: 1001, reason: reason.to_owned() }));
    assert_eq!(session.poll_timeout(), None);
    session.handle_client(start + LIFETIME, r#"{"type":"response.create"}"#);
    session.handle(Input::ResponseCreated { response: 1 });
    assert!(events(&mut session).is_empty() && session.poll_command().is_none());
}

#[test]
fn o05_a_shorter_life_is_announced_and_kept() {
    let mut session = configured(Config { lifetime: Duration::from_secs(15), ..config() });
    let created = events(&mut session);
    assert_eq!(created[0]["session"]["expires_at"], 1_700_000_015);
    session.handle_timeout(session.poll_timeout().unwrap());
    let seen = events(&mut session);
    assert_eq!(only_error(&seen)["message"], "Your session hit the maximum duration of 15 seconds.");
}

#[test]
fn a_flood_of_session_updates_is_answered_then_refused_then_ends_the_session() {
    let (start, mut session) = (Instant::now(), opened());
    let update = r#"{"type":"session.update","event_id":"u","session":{}}"#;
    let mut answers = Vec::new();
    for _ in 0..500 {
        session.handle_client(start, update);
        answers.extend(events(&mut session));
    }
    let refused: Vec<_> = answers.iter().filter(|event| event["type"] == "error").collect();
    assert_eq!(refused.len(), 1, "told once");
    assert_eq!(
        (&refused[0]["error"]["code"], &refused[0]["error"]["event_id"]),
        (&json!("rate_limit_exceeded"), &json!("u"))
    );
    assert!(answers.len() >= 200, "a burst is taken: {}", answers.len());
    session.handle_client(start + Duration::from_secs(5), update);
    assert_eq!(names(&events(&mut session)), ["session.updated"], "and the session lives");
    while session.closing().is_none() {
        session.handle_client(start + Duration::from_secs(5), update);
        assert!(session.counters().flooded <= 10_000);
    }
    assert_eq!(session.closing().unwrap().code, 1008);
}

#[test]
fn audio_at_its_own_pace_is_no_flood() {
    let (start, mut session) = (Instant::now(), opened_socket());
    let append = json!({"type": "input_audio_buffer.append", "audio": "A".repeat(1280)}).to_string();
    for n in 0..3000 {
        session.handle_client(start + Duration::from_millis(20) * n, &append);
        assert!(session.poll_command().is_some());
    }
    assert!(events(&mut session).is_empty());
}

#[test]
fn an_unknown_event_is_answered_once_for_its_type() {
    let mut session = opened();
    let unknown = |n: u32| format!(r#"{{"type":"custom.{n}","event_id":"e"}}"#);
    assert_eq!(names(&send(&mut session, &unknown(0))), ["error"]);
    assert!(send(&mut session, &unknown(0)).is_empty());
    let answered = (0..100).filter(|n| !send(&mut session, &unknown(*n)).is_empty()).count();
    assert_eq!(answered, 15, "names are remembered, so not without end");
}

#[test]
fn what_clients_and_models_fill_in_is_bounded() {
    let (start, mut session) = (Instant::now(), opened_socket());
    let text = "\u{1}".repeat(20_000);
    for n in 0..200u32 {
        let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let create = json!({"type": "conversation.item.create", "item": item}).to_string();
        session.handle_client(start + Duration::from_secs(3) * n, &create);
        while session.poll_command().is_some() {}
        let response = u64::from(n);
        session.handle(Input::ResponseCreated { response });
        for call in 0..40 {
            let (call_id, name, delta) = (format!("c{call}"), "f".to_owned(), "\u{1}".repeat(1000));
            session.handle(Input::ToolCallDelta { response, call_id, name, delta });
        }
        for _ in 0..10 {
            session.handle(Input::ResponseText { response, delta: text.clone() });
        }
        while let Some(event) = session.poll_event() {
            assert!(event.len() <= MAX_EVENT_BYTES, "{}", event.len());
        }
        assert!(session.held_bytes() < (2 << 20) + (512 << 10), "{}", session.held_bytes());
        session.handle(Input::ResponseDone { response });
        while let Some(event) = session.poll_event() {
            assert!(event.len() <= MAX_EVENT_BYTES, "{}", event.len());
        }
    }
    assert!(session.counters().overflows > 0);
}

#[test]
fn a_session_of_eighteen_thousand_small_fields_is_refused() {
    let fields: serde_json::Map<_, _> = (0..18_000).map(|n| (n.to_string(), json!(0))).collect();
    let update = json!({"type": "session.update", "session": {"x": fields}}).to_string();
    let mut session = opened();
    assert_eq!(only_error(&send(&mut session, &update))["param"], "session");
    let few: serde_json::Map<_, _> = (0..10_000).map(|n| (n.to_string(), json!(0))).collect();
    let update = json!({"type": "session.update", "session": {"x": few}}).to_string();
    assert_eq!(names(&send(&mut session, &update)), ["session.updated"]);
}

#[test]
fn items_beyond_the_bound_are_forgotten_oldest_first() {
    let mut session = opened();
    let first = feed(&mut session, [Input::Committed { turn: 1 }])[0]["item_id"].as_str().unwrap().to_owned();
    for turn in 2..=1025 {
        feed(&mut session, [Input::Committed { turn }]);
    }
    let retrieve = json!({"type": "conversation.item.retrieve", "item_id": first}).to_string();
    assert_eq!(only_error(&send(&mut session, &retrieve))["code"], "item_retrieve_invalid_item_id");
}
