//! What an effective session says is what the session would show.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::time::Instant;

use realtime::{Config, Dialect, Intent, Session, effective_session};
use serde_json::{Value, json};
use support::config;

fn created(config: &Config) -> Value {
    let mut session = Session::new(Instant::now(), config);
    let created: Value = serde_json::from_str(&session.poll_event().unwrap()).unwrap();
    assert_eq!(session.poll_event(), None);
    created["session"].clone()
}

#[test]
fn it_is_what_session_created_shows() {
    for (requested, intent) in [
        ("", Intent::Conversation),
        ("", Intent::Transcription),
        (r#"{"type":"transcription","audio":{"input":{"transcription":{"model":"x"}}}}"#, Intent::Conversation),
        (r#"{"model":"gpt-realtime","instructions":"Be brief.","mine":[1]}"#, Intent::Conversation),
        (r#"{"audio":{"input":{"turn_detection":{"threshold":0.8}},"output":{"voice":"a"}}}"#, Intent::Conversation),
        (r#"{"audio":{"input":{"turn_detection":null,"format":{"type":"audio/pcmu"}}}}"#, Intent::Conversation),
    ] {
        let config = Config { requested: requested.to_owned(), intent, ..config() };
        assert_eq!(effective_session(&config).unwrap(), created(&config), "{requested}");
    }
}

#[test]
fn what_cannot_be_names_the_field() {
    for (requested, param) in [
        (r#"{"audio":{"output":{"speed":9}}}"#, "session.audio.output.speed"),
        (r#"{"output_modalities":["audio","text"]}"#, "session.output_modalities"),
        ("[]", "session"),
    ] {
        let unfit = effective_session(&Config { requested: requested.to_owned(), ..config() }).unwrap_err();
        assert_eq!(json!([unfit.code, unfit.param]), json!(["invalid_value", param]), "{}", unfit.message);
    }
}
