//! Every event that is sent has the fields that clients read, by a table and by another's types.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::collections::BTreeSet;
use std::time::Instant;

use async_openai::types::realtime::RealtimeServerEvent;
use realtime::{
    CancelReason, Config, Dialect, Failure, IncompleteReason, Input, Intent, RateLimit, Session, Transport, Usage,
};
use serde_json::{Value, json};
use support::{config, configured, events, opened, opened_socket};

/// Required fields by event, `event_id` besides. `?`: may be null.
const FIELDS: [(&str, &[&str]); 35] = [
    ("error", &["error/type", "error/code?", "error/message", "error/param?", "error/event_id?"]),
    ("session.created", SESSION),
    ("session.updated", SESSION),
    ("conversation.item.added", ITEM),
    ("conversation.item.done", ITEM),
    ("conversation.item.retrieved", &["item/id", "item/type", "item/status"]),
    ("conversation.item.truncated", &["item_id", "content_index", "audio_end_ms"]),
    ("conversation.item.deleted", &["item_id"]),
    ("conversation.item.input_audio_transcription.delta", &["item_id", "content_index", "delta"]),
    (
        "conversation.item.input_audio_transcription.completed",
        &["item_id", "content_index", "transcript", "usage/type"],
    ),
    (
        "conversation.item.input_audio_transcription.failed",
        &["item_id", "content_index", "error/type", "error/message"],
    ),
    ("input_audio_buffer.committed", &["item_id", "previous_item_id?"]),
    ("input_audio_buffer.cleared", &[]),
    ("input_audio_buffer.speech_started", &["item_id", "audio_start_ms"]),
    ("input_audio_buffer.speech_stopped", &["item_id", "audio_end_ms"]),
    ("input_audio_buffer.timeout_triggered", &["item_id", "audio_start_ms", "audio_end_ms"]),
    ("input_audio_buffer.dtmf_event_received", &["event", "received_at"]),
    ("output_audio_buffer.started", &["response_id"]),
    ("output_audio_buffer.stopped", &["response_id"]),
    ("output_audio_buffer.cleared", &["response_id"]),
    ("response.created", RESPONSE),
    ("response.done", RESPONSE),
    ("response.output_item.added", OUTPUT_ITEM),
    ("response.output_item.done", OUTPUT_ITEM),
    ("response.content_part.added", &["response_id", "item_id", "output_index", "content_index", "part/type"]),
    ("response.content_part.done", &["response_id", "item_id", "output_index", "content_index", "part/type"]),
    ("response.output_text.delta", DELTA),
    ("response.output_text.done", &["response_id", "item_id", "output_index", "content_index", "text"]),
    ("response.output_audio.delta", DELTA),
    ("response.output_audio.done", &["response_id", "item_id", "output_index", "content_index"]),
    ("response.output_audio_transcript.delta", DELTA),
    (
        "response.output_audio_transcript.done",
        &["response_id", "item_id", "output_index", "content_index", "transcript"],
    ),
    ("response.function_call_arguments.delta", &["response_id", "item_id", "output_index", "call_id", "delta"]),
    (
        "response.function_call_arguments.done",
        &["response_id", "item_id", "output_index", "call_id", "name", "arguments"],
    ),
    ("rate_limits.updated", &["rate_limits"]),
];
const SESSION: &[&str] = &[
    "session/type",
    "session/object",
    "session/id",
    "session/expires_at",
    "session/audio/input/format/type",
    "session/audio/input/turn_detection?",
    "session/audio/input/transcription?",
    "session/audio/input/noise_reduction?",
];
const ITEM: &[&str] = &["previous_item_id?", "item/id", "item/object", "item/type", "item/status"];
const OUTPUT_ITEM: &[&str] = &["response_id", "output_index", "item/id", "item/object", "item/type", "item/status"];
const DELTA: &[&str] = &["response_id", "item_id", "output_index", "content_index", "delta"];
const RESPONSE: &[&str] = &[
    "response/object",
    "response/id",
    "response/status",
    "response/status_details?",
    "response/output",
    "response/conversation_id?",
    "response/output_modalities",
    "response/max_output_tokens",
    "response/audio/output/voice",
    "response/usage?",
    "response/metadata?",
];

fn client(session: &mut Session, event: &Value) {
    session.handle_client(Instant::now(), &event.to_string());
}

fn call(session: &mut Session, inputs: impl IntoIterator<Item = Input>) {
    for input in inputs {
        session.handle(input);
    }
}

/// A session's life in which everything happens that can happen.
fn life(session: &mut Session) {
    let update = json!({"transcription": {"model": "t"}, "noise_reduction": {"type": "near_field"}, "turn_detection": {"type": "semantic_vad"}});
    client(
        session,
        &json!({"type": "session.update", "session": {"audio": {"input": update}, "tracing": "auto",
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}}], "max_output_tokens": 500,
        "tool_choice": {"type": "function", "name": "f"}}}),
    );
    client(
        session,
        &json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 6000}}}}}),
    );
    let content =
        json!([{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "data:,", "detail": "auto"}]);
    client(
        session,
        &json!({"type": "conversation.item.create", "item": {"id": "mine", "type": "message", "role": "user", "content": content}}),
    );
    client(
        session,
        &json!({"type": "conversation.item.create", "item": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]}}),
    );
    client(
        session,
        &json!({"type": "conversation.item.create", "item": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}}),
    );
    client(
        session,
        &json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "{}"}}),
    );
    client(session, &json!({"type": "conversation.item.retrieve", "item_id": "mine"}));
    client(session, &json!({"type": "conversation.item.delete", "item_id": "mine"}));
    client(session, &json!({"type": "conversation.item.delete", "item_id": "mine", "event_id": "twice"}));
    client(session, &json!({"type": "input_audio_buffer.clear"}));
    call(
        session,
        [
            Input::KeyPressed { key: '5', audio_ms: 100 },
            Input::IdleTimeout { turn: 1, audio_start_ms: 0, audio_end_ms: 6000 },
            Input::Committed { turn: 1 },
        ],
    );
    call(
        session,
        [
            Input::SpeechStarted { turn: 2, audio_start_ms: 7000 },
            Input::SpeechStopped { turn: 2, audio_end_ms: 9000 },
            Input::Committed { turn: 2 },
            Input::UserTranscript { turn: 2, delta: "hello".to_owned() },
            Input::UserTranscriptDone { turn: 2, transcript: "hello".to_owned() },
            Input::Committed { turn: 3 },
            Input::UserTranscriptFailed { turn: 3, message: "no words".to_owned() },
        ],
    );
    let usage = Usage { input_audio: 10, output_text: 5, ..Usage::default() };
    let limits = |name: &str| RateLimit { name: name.to_owned(), limit: 10, remaining: 9, reset_ms: 500 };
    call(
        session,
        [
            Input::ResponseCreated { response: 1 },
            Input::ResponseAudio { response: 1, data: vec![0; 9600] },
            Input::ResponseText { response: 1, delta: "hello there".to_owned() },
            Input::PlayoutStarted { response: 1 },
            Input::ToolCallDelta {
                response: 1,
                call_id: "call_1".to_owned(),
                name: "f".to_owned(),
                delta: "{".to_owned(),
            },
            Input::ToolCallDone {
                response: 1,
                call_id: "call_1".to_owned(),
                name: "f".to_owned(),
                arguments: "{}".to_owned(),
            },
            Input::ResponseUsage { response: 1, usage },
            Input::RateLimits(vec![limits("requests"), limits("tokens")]),
            Input::ResponseDone { response: 1 },
            Input::PlayoutStopped { response: 1 },
        ],
    );
    client(session, &json!({"type": "response.create", "response": {"metadata": {"client_event_id": "x"}}}));
    call(
        session,
        [
            Input::ResponseCreated { response: 2 },
            Input::ResponseText { response: 2, delta: "again".to_owned() },
            Input::ResponseAudioStarted { response: 2 },
            Input::ResponseCancelled { response: 2, reason: CancelReason::TurnDetected },
            Input::PlayoutCleared { response: 2 },
            Input::Truncated { response: 2, audio_end_ms: 40, transcript: Some("aga".to_owned()) },
        ],
    );
    let item = session.item_id(2).unwrap_or("none").to_owned();
    client(
        session,
        &json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 30}),
    );
    client(session, &json!({"type": "response.create", "response": {"output_modalities": ["text"]}}));
    call(
        session,
        [
            Input::ResponseCreated { response: 3 },
            Input::ResponseText { response: 3, delta: "in writing".to_owned() },
            Input::ResponseIncomplete { response: 3, reason: IncompleteReason::MaxOutputTokens },
            Input::ResponseCreated { response: 4 },
            Input::ResponseFailed { response: 4, failure: failure() },
            Input::ModelFailed(failure()),
        ],
    );
    client(session, &json!({"type": "nonsense"}));
    session.handle_timeout(Instant::now() + realtime::LIFETIME);
}

fn failure() -> Failure {
    let (kind, code) = ("server_error".to_owned(), "overloaded".to_owned());
    Failure { kind, code, message: "it broke".to_owned() }
}

fn lives() -> Vec<Value> {
    let transcribing =
        configured(Config { intent: Intent::Transcription, transport: Transport::WebSocket, ..config() });
    let mut all = Vec::new();
    for mut session in [support::session(), opened(), opened_socket(), transcribing] {
        life(&mut session);
        all.extend(events(&mut session));
    }
    all
}

#[test]
fn every_event_has_its_fields_and_every_kind_of_event_was_seen() {
    let mut seen = BTreeSet::new();
    for event in lives() {
        let kind = event["type"].as_str().unwrap();
        seen.insert(kind.to_owned());
        assert!(event["event_id"].as_str().is_some_and(|id| id.starts_with("event_")), "{event}");
        let (_, fields) =
            FIELDS.iter().find(|(known, _)| *known == kind).unwrap_or_else(|| panic!("{kind} is not in the table"));
        for field in *fields {
            let nullable = field.ends_with('?');
            let value = event.pointer(&format!("/{}", field.trim_end_matches('?')));
            assert!(value.is_some_and(|value| nullable || !value.is_null()), "{kind} lacks {field}: {event}");
        }
    }
    assert_eq!(seen, FIELDS.iter().map(|(kind, _)| (*kind).to_owned()).collect());
}

/// The types of the other crate ask for the audio of every audio part, which the API does not send, and for another shape of noise
/// reduction than it has.
fn adapt(event: &mut Value) {
    match event {
        Value::Object(fields) => {
            if let Some(reduction) = fields.get_mut("noise_reduction") {
                *reduction = Value::Null;
            }
            if fields.get("type").is_some_and(|kind| kind == "input_audio") {
                for needed in ["audio", "transcript"] {
                    let value = fields.entry(needed).or_insert(Value::Null);
                    if value.is_null() {
                        *value = "".into();
                    }
                }
            }
            fields.values_mut().for_each(adapt);
        }
        Value::Array(list) => list.iter_mut().for_each(adapt),
        _ => {}
    }
}

#[test]
fn every_event_is_read_by_types_that_are_not_ours() {
    let mut kinds = BTreeSet::new();
    for mut event in lives() {
        let kind = event["type"].as_str().unwrap().to_owned();
        adapt(&mut event);
        let text = event.to_string();
        let read: RealtimeServerEvent =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{kind}: {error}: {text}"));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["type"], kind.as_str());
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), FIELDS.len());
}
