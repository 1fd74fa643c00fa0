//! Absent keeps, null turns off, values replace; the answer is the whole effective session.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{Command, Dialect, Eagerness, Input, TurnDetection, Vad};
use serde_json::json;
use support::{commands, events, feed, names, only_error, opened, requested, send, session};

const DEFAULT: Vad = Vad {
    threshold: 0.5,
    prefix_padding_ms: 300,
    silence_duration_ms: 500,
    idle_timeout_ms: None,
    eagerness: None,
    create_response: true,
    interrupt_response: true,
};

#[test]
fn the_first_event_is_the_session_with_its_defaults_and_the_real_model() {
    let created = events(&mut requested(r#"{"type":"realtime","model":"gpt-realtime","instructions":"be kind"}"#));
    assert_eq!(names(&created), ["session.created"]);
    let mut shown = created[0]["session"].clone();
    assert!(shown["id"].as_str().unwrap().starts_with("sess_"));
    shown.as_object_mut().unwrap().remove("id");
    assert_eq!(
        shown,
        json!({
            "type": "realtime", "object": "realtime.session", "model": "parrot", "expires_at": 1_700_003_600u64,
            "output_modalities": ["audio"], "instructions": "be kind", "tools": [], "tool_choice": "auto",
            "parallel_tool_calls": true, "max_output_tokens": "inf", "tracing": null, "truncation": "auto",
            "prompt": null, "include": null,
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000}, "transcription": null, "noise_reduction": null,
                    "turn_detection": {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
                        "silence_duration_ms": 500, "idle_timeout_ms": null, "create_response": true,
                        "interrupt_response": true},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "default", "speed": 1.0},
            },
        })
    );
}

#[test]
fn refused_requested_settings_leave_the_defaults_and_one_error() {
    let mut session = requested(r#"{"audio":{"input":{"turn_detection":7}}}"#);
    assert_eq!(names(&events(&mut session)), ["session.created", "error"]);
    assert_eq!(session.turn_detection(), TurnDetection::Vad(DEFAULT));
}

#[test]
fn a_partial_turn_detection_keeps_its_other_members() {
    let mut session = opened();
    let update = r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"threshold":0.75}}}}}"#;
    let updated = send(&mut session, update);
    assert_eq!(names(&updated), ["session.updated"]);
    let turn = &updated[0]["session"]["audio"]["input"]["turn_detection"];
    assert_eq!(turn["type"], "server_vad");
    assert_eq!(turn["threshold"], 0.75);
    assert_eq!(turn["silence_duration_ms"], 500);
    let expected = Vad { threshold: 0.75, ..DEFAULT };
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(expected))]);
}

#[test]
fn null_turns_detection_off_and_a_patch_turns_it_on_from_the_defaults() {
    let mut session = opened();
    let off = r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":null}}}}"#;
    let updated = send(&mut session, off);
    assert!(updated[0]["session"]["audio"]["input"]["turn_detection"].is_null());
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Manual)]);
    let on =
        r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"silence_duration_ms":200}}}}}"#;
    send(&mut session, on);
    let expected = Vad { silence_duration_ms: 200, ..DEFAULT };
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(expected))]);
}

#[test]
fn semantic_vad_without_members_shows_its_defaults() {
    let mut session = opened();
    let update =
        r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"semantic_vad"}}}}}"#;
    let updated = send(&mut session, update);
    assert_eq!(
        updated[0]["session"]["audio"]["input"]["turn_detection"],
        json!({"type": "semantic_vad", "eagerness": "auto", "create_response": true, "interrupt_response": true})
    );
    let expected = Vad { eagerness: Some(Eagerness::Auto), ..DEFAULT };
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(expected))]);
}

#[test]
fn null_inside_turn_detection_asks_for_the_default() {
    let mut session = opened();
    let update = r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"server_vad","threshold":null,"idle_timeout_ms":null}}}}}"#;
    let updated = send(&mut session, update);
    assert_eq!(updated[0]["session"]["audio"]["input"]["turn_detection"]["threshold"], 0.5);
}

#[test]
fn null_asks_for_the_default_where_nothing_can_be_turned_off() {
    let mut session = opened();
    let before = send(&mut session, r#"{"type":"session.update","session":{}}"#);
    send(
        &mut session,
        r#"{"type":"session.update","session":{"instructions":"hi","tools":[{"type":"function","name":"f"}],
            "max_output_tokens":100,"tool_choice":"none","audio":{"output":{"voice":"alloy","speed":1.2}}}}"#,
    );
    let updated = send(
        &mut session,
        r#"{"type":"session.update","session":{"output_modalities":null,"instructions":null,"tools":null,
            "max_output_tokens":null,"tool_choice":null,"parallel_tool_calls":null,"truncation":null,
            "audio":{"input":{"format":null},"output":{"format":null,"voice":null,"speed":null}}}}"#,
    );
    assert_eq!(updated[0]["session"], before[0]["session"]);
}

#[test]
fn fields_not_known_here_are_kept_and_the_model_is_not_changed() {
    let mut session = opened();
    let update = r#"{"type":"session.update","session":{"type":"realtime","model":"other","tracing":"auto","temperature":0.8,
                     "tools":[{"type":"function","name":"f"}],"audio":{"input":{"transcription":{"model":"m"}}}}}"#;
    let updated = send(&mut session, update);
    let shown = &updated[0]["session"];
    assert_eq!(shown["model"], "parrot");
    assert_eq!(shown["tracing"], "auto");
    assert_eq!(shown["temperature"], 0.8);
    assert_eq!(shown["tools"][0]["name"], "f");
    assert_eq!(shown["audio"]["input"]["transcription"]["model"], "m");
    let updated = send(&mut session, r#"{"type":"session.update","session":{"tools":[],"tracing":null}}"#);
    assert_eq!(updated[0]["session"]["tools"], json!([]));
    assert!(updated[0]["session"]["tracing"].is_null());
    assert_eq!(updated[0]["session"]["temperature"], 0.8);
}

#[test]
fn every_recorded_client_update_shape_is_taken() {
    let updates = [
        r#"{"type":"session.update","session":{"type":"realtime","instructions":"hi","model":"m","output_modalities":["audio"],"audio":{"input":{"format":{"type":"audio/pcm","rate":24000},"noise_reduction":null,"transcription":{"model":"t"},"turn_detection":{"type":"semantic_vad"}},"output":{"format":{"type":"audio/pcm","rate":24000},"speed":1}}}}"#,
        r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"turn_detection":{"type":"server_vad","threshold":0.6}}}}}"#,
        r#"{"type":"session.update","session":{"instructions":"x"}}"#,
        r#"{"type":"session.update","session":{"modalities":["text","audio"],"voice":"alloy","input_audio_format":"pcm16"}}"#,
        r#"{"type":"session.update","session":{"type":"realtime","voice_extra":1,"temperature":0.8}}"#,
    ];
    for update in updates {
        assert_eq!(names(&send(&mut opened(), update)), ["session.updated"], "{update}");
    }
}

#[test]
fn a_wrong_value_names_its_field_and_changes_nothing() {
    let mut session = opened();
    let cases = [
        (
            r#"{"audio":{"input":{"turn_detection":{"threshold":"high"}}}}"#,
            "session.audio.input.turn_detection.threshold",
        ),
        (
            r#"{"audio":{"input":{"turn_detection":{"silence_duration_ms":-1}}}}"#,
            "session.audio.input.turn_detection.silence_duration_ms",
        ),
        (r#"{"audio":{"input":{"turn_detection":{"type":"psychic"}}}}"#, "session.audio.input.turn_detection.type"),
        (r#"{"audio":null}"#, "session.audio"),
        (r#"{"instructions":5}"#, "session.instructions"),
        (r#"{"output_modalities":["audio","text"]}"#, "session.output_modalities"),
        (r#"{"audio":{"output":{"speed":2}}}"#, "session.audio.output.speed"),
        (r#"{"audio":{"input":{"transcription":true}}}"#, "session.audio.input.transcription"),
        (r#"{"tools":[7]}"#, "session.tools"),
        (r#"{"max_output_tokens":5000}"#, "session.max_output_tokens"),
        (r#"{"type":"transcription"}"#, "session.type"),
    ];
    for (patch, param) in cases {
        let seen = send(&mut session, &format!(r#"{{"type":"session.update","event_id":"e1","session":{patch}}}"#));
        let error = only_error(&seen);
        assert_eq!(error["param"], param);
        assert_eq!(error["code"], "invalid_value");
        assert_eq!(error["event_id"], "e1");
    }
    assert_eq!(commands(&mut session), []);
    let updated = send(&mut session, r#"{"type":"session.update","session":{}}"#);
    assert_eq!(updated[0]["session"], events(&mut self::session())[0]["session"]);
}

#[test]
fn the_voice_is_fixed_once_the_assistant_was_heard() {
    let mut session = opened();
    let alloy = r#"{"type":"session.update","session":{"audio":{"output":{"voice":"alloy"}}}}"#;
    assert_eq!(names(&send(&mut session, alloy)), ["session.updated"]);
    feed(&mut session, [Input::ResponseCreated { response: 1 }, Input::ResponseAudioStarted { response: 1 }]);
    assert_eq!(names(&send(&mut session, alloy)), ["session.updated"], "the same voice is no change");
    let other = send(&mut session, r#"{"type":"session.update","session":{"audio":{"output":{"voice":"marin"}}}}"#);
    assert_eq!(only_error(&other)["code"], "cannot_update_voice");
}

fn turn_update(turn: &serde_json::Value) -> String {
    json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": turn}}}}).to_string()
}

#[test]
fn eagerness_is_kept_patched_and_echoed() {
    let mut session = opened();
    for (name, eagerness) in
        [("low", Eagerness::Low), ("medium", Eagerness::Medium), ("high", Eagerness::High), ("auto", Eagerness::Auto)]
    {
        let updated = send(&mut session, &turn_update(&json!({"type": "semantic_vad", "eagerness": name})));
        assert_eq!(updated[0]["session"]["audio"]["input"]["turn_detection"]["eagerness"], name);
        let expected = Vad { eagerness: Some(eagerness), ..DEFAULT };
        assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(expected))]);
    }
    send(&mut session, &turn_update(&json!({"eagerness": "low"})));
    let updated = send(&mut session, &turn_update(&json!({"interrupt_response": false})));
    let shown = &updated[0]["session"]["audio"]["input"]["turn_detection"];
    assert_eq!((&shown["eagerness"], &shown["interrupt_response"]), (&json!("low"), &json!(false)));
}

#[test]
fn a_wrong_eagerness_is_refused_by_name_and_changes_nothing() {
    for eagerness in [json!("eager"), json!(1), json!({})] {
        let mut session = opened();
        let refused = send(&mut session, &turn_update(&json!({"type": "semantic_vad", "eagerness": eagerness})));
        let error = only_error(&refused);
        assert_eq!(error["param"], "session.audio.input.turn_detection.eagerness");
        assert_eq!(session.turn_detection(), TurnDetection::Vad(DEFAULT));
    }
}

#[test]
fn the_idle_timeout_is_a_number_of_the_range_or_null() {
    let mut session = opened();
    let updated = send(&mut session, &turn_update(&json!({"idle_timeout_ms": 6000})));
    assert_eq!(updated[0]["session"]["audio"]["input"]["turn_detection"]["idle_timeout_ms"], 6000);
    let expected = Vad { idle_timeout_ms: Some(6000), ..DEFAULT };
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(expected))]);
    send(&mut session, &turn_update(&json!({"idle_timeout_ms": null})));
    assert_eq!(commands(&mut session), [Command::UpdateTurn(TurnDetection::Vad(DEFAULT))]);
    for wrong in [json!(4999), json!(30_001), json!(-1), json!("6000"), json!(6000.5)] {
        let refused = send(&mut session, &turn_update(&json!({"idle_timeout_ms": wrong})));
        let error = only_error(&refused);
        assert_eq!(error["param"], "session.audio.input.turn_detection.idle_timeout_ms");
    }
}

#[test]
fn an_idle_timeout_is_told_before_its_item() {
    let mut session = opened();
    let told = feed(
        &mut session,
        [Input::IdleTimeout { turn: 1, audio_start_ms: 4000, audio_end_ms: 10_000 }, Input::Committed { turn: 1 }],
    );
    assert_eq!(
        names(&told),
        [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done"
        ]
    );
    assert_eq!((&told[0]["audio_start_ms"], &told[0]["audio_end_ms"]), (&json!(4000), &json!(10_000)));
    assert_eq!(told[0]["item_id"], told[1]["item_id"]);
}
