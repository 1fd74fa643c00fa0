//! A session with its events as values.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Instant;

use realtime::{Command, Config, Dialect, Input, Session, Transport};
use serde_json::Value;

pub(crate) fn session() -> Session {
    requested("")
}

pub(crate) fn requested(settings: &str) -> Session {
    configured(Config { requested: settings.to_owned(), ..config() })
}

pub(crate) fn configured(config: Config) -> Session {
    Session::new(Instant::now(), &config)
}

pub(crate) fn config() -> Config {
    Config { seed: 1, model: "parrot".to_owned(), created_at: 1_700_000_000, ..Config::default() }
}

/// The same over a WebSocket.
pub(crate) fn opened_socket() -> Session {
    let mut session = configured(Config { transport: Transport::WebSocket, ..config() });
    assert_eq!(names(&events(&mut session)), ["session.created"]);
    session
}

/// A session whose `session.created` was read.
pub(crate) fn opened() -> Session {
    let mut session = session();
    assert_eq!(names(&events(&mut session)), ["session.created"]);
    session
}

pub(crate) fn events(session: &mut Session) -> Vec<Value> {
    std::iter::from_fn(|| session.poll_event()).map(|text| serde_json::from_str(&text).unwrap()).collect()
}

pub(crate) fn commands(session: &mut Session) -> Vec<Command> {
    std::iter::from_fn(|| session.poll_command()).collect()
}

pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Sends one client text and returns what came of it.
pub(crate) fn send(session: &mut Session, text: &str) -> Vec<Value> {
    session.handle_client(Instant::now(), text);
    events(session)
}

/// Feeds inputs and returns what came of all of them.
pub(crate) fn feed(session: &mut Session, inputs: impl IntoIterator<Item = Input>) -> Vec<Value> {
    for input in inputs {
        session.handle(input);
    }
    events(session)
}

/// The one error among these events.
pub(crate) fn only_error(events: &[Value]) -> &Value {
    assert_eq!(names(events), ["error"], "{events:?}");
    &events[0]["error"]
}

/// Ids replaced by `#1`, `#2`... in order of appearance, event ids dropped: sequences compare as wholes.
pub(crate) fn normalized(events: &[Value]) -> Vec<Value> {
    let mut seen: Vec<String> = Vec::new();
    let mut events = events.to_vec();
    for event in &mut events {
        assert!(event["event_id"].as_str().unwrap().starts_with("event_"));
        event.as_object_mut().unwrap().remove("event_id");
        rename(event, &mut seen);
    }
    events
}

fn rename(value: &mut Value, seen: &mut Vec<String>) {
    match value {
        Value::String(text) if ["item_", "resp_", "conv_", "sess_"].iter().any(|prefix| text.starts_with(prefix)) => {
            let index = seen.iter().position(|known| known == text).unwrap_or_else(|| {
                seen.push(text.clone());
                seen.len() - 1
            });
            let prefix = text.split('_').next().unwrap().to_owned();
            *text = format!("{prefix}#{}", index + 1);
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename(value, seen)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, seen)),
        _ => {}
    }
}
