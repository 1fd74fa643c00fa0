//! The user's words, in sessions for nothing else and beside a conversation.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{Config, Dialect, Input, Intent, Session, TurnDetection};
use serde_json::{Value, json};
use support::{config, configured, events, feed, names, only_error, opened, requested, send};

fn transcribing() -> Session {
    configured(Config { intent: Intent::Transcription, ..config() })
}

fn words(turn: u64, delta: &str) -> Input {
    Input::UserTranscript { turn, delta: delta.to_owned() }
}

fn all(turn: u64, transcript: &str) -> Input {
    Input::UserTranscriptDone { turn, transcript: transcript.to_owned() }
}

fn spoken(turn: u64) -> [Input; 3] {
    [
        Input::SpeechStarted { turn, audio_start_ms: 500 },
        Input::SpeechStopped { turn, audio_end_ms: 2250 },
        Input::Committed { turn },
    ]
}

#[test]
fn a_transcription_session_shows_its_own_object_and_asks_for_no_answers() {
    for mut session in [transcribing(), requested(r#"{"type":"transcription"}"#)] {
        let created = events(&mut session);
        let mut shown = created[0]["session"].clone();
        shown.as_object_mut().unwrap().remove("id");
        let turn =
            json!({"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500});
        let input = json!({"format": {"type": "audio/pcm", "rate": 24000}, "transcription": null,
                           "noise_reduction": null, "turn_detection": turn});
        assert_eq!(
            shown,
            json!({"type": "transcription", "object": "realtime.transcription_session", "expires_at": 1_700_003_600u64,
                   "audio": {"input": input}, "include": null})
        );
        let TurnDetection::Vad(vad) = session.turn_detection() else { panic!("manual") };
        assert!(!vad.create_response && !vad.interrupt_response);
        let seen = send(&mut session, r#"{"type":"response.create","event_id":"e"}"#);
        assert_eq!(only_error(&seen)["code"], "response_create_unsupported");
        let seen = send(&mut session, r#"{"type":"session.update","session":{"type":"realtime"}}"#);
        assert_eq!(only_error(&seen)["param"], "session.type");
        let update = r#"{"type":"session.update","session":{"type":"transcription","audio":{"input":{"transcription":{"model":"t"}}}}}"#;
        assert_eq!(send(&mut session, update)[0]["session"]["audio"]["input"]["transcription"], json!({"model": "t"}));
    }
}

#[test]
fn words_follow_their_item_however_early_they_come() {
    let mut session = transcribing();
    events(&mut session);
    let [started, stopped, committed] = spoken(1);
    let seen = feed(&mut session, [started, words(1, "hello "), words(1, "there"), stopped, all(1, "Hello there.")]);
    assert_eq!(names(&seen), ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"]);
    let seen = feed(&mut session, [committed]);
    assert_eq!(
        names(&seen)[2..],
        [
            "conversation.item.done",
            "conversation.item.input_audio_transcription.delta",
            "conversation.item.input_audio_transcription.completed"
        ]
    );
    assert_eq!((&seen[3]["delta"], &seen[3]["content_index"]), (&json!("hello there"), &json!(0)));
    assert_eq!((&seen[4]["transcript"], &seen[4]["item_id"]), (&json!("Hello there."), &seen[0]["item_id"]));
    assert_eq!(seen[4]["usage"], json!({"type": "duration", "seconds": 1.75}));
}

#[test]
fn words_that_come_late_are_in_the_item_that_is_retrieved() {
    let mut session = opened();
    let on = r#"{"type":"session.update","session":{"audio":{"input":{"transcription":{"model":"t"}}}}}"#;
    send(&mut session, on);
    let item = feed(&mut session, spoken(1))[2]["item_id"].as_str().unwrap().to_owned();
    feed(&mut session, spoken(2));
    let seen = feed(&mut session, [words(1, "yes"), all(1, "Yes.")]);
    assert!(seen.iter().all(|event| event["item_id"] == item.as_str()));
    let retrieve = json!({"type": "conversation.item.retrieve", "item_id": item}).to_string();
    assert_eq!(
        send(&mut session, &retrieve)[0]["item"]["content"][0],
        json!({"type": "input_audio", "transcript": "Yes."})
    );
    assert!(feed(&mut session, [all(1, "again")]).is_empty());
    assert_eq!(session.counters().stale_inputs, 1);
}

#[test]
fn words_of_a_turn_that_the_client_commits_may_come_before_the_commit() {
    let mut session = transcribing();
    events(&mut session);
    assert!(feed(&mut session, [words(1, "yes"), all(1, "Yes.")]).is_empty(), "the client knows no item yet");
    let seen = feed(&mut session, [Input::Committed { turn: 1 }]);
    let told = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
    ];
    assert_eq!(names(&seen), told);
}

#[test]
fn words_nobody_asked_for_are_not_told() {
    let mut session = opened();
    let seen = feed(&mut session, spoken(1).into_iter().chain([words(1, "yes"), all(1, "Yes.")]));
    assert_eq!(names(&seen).last(), Some(&"conversation.item.done"));
}

#[test]
fn a_failed_transcript_has_no_null_in_its_error() {
    let mut session = transcribing();
    events(&mut session);
    feed(&mut session, spoken(1));
    let seen = feed(&mut session, [Input::UserTranscriptFailed { turn: 1, message: "too quiet".to_owned() }]);
    assert_eq!(names(&seen), ["conversation.item.input_audio_transcription.failed"]);
    let error = seen[0]["error"].as_object().unwrap();
    assert_eq!(error["message"], "too quiet");
    assert!(!error.values().any(Value::is_null));
}

#[test]
fn words_of_speech_that_was_cleared_are_forgotten_with_it() {
    let mut session = transcribing();
    events(&mut session);
    feed(&mut session, [Input::SpeechStarted { turn: 1, audio_start_ms: 0 }, words(1, "never mind")]);
    send(&mut session, r#"{"type":"input_audio_buffer.clear"}"#);
    assert!(feed(&mut session, [all(1, "never mind")]).is_empty());
}
