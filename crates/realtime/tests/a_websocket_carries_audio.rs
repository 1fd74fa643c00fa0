//! Over a WebSocket audio lies in events and the client owns playout; over WebRTC neither is so.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{AudioFormat, CancelReason, Command, Dialect, Input};
use serde_json::json;
use support::{commands, feed, names, only_error, opened, opened_socket, send};

fn append(audio: &str) -> String {
    json!({"type": "input_audio_buffer.append", "event_id": "a", "audio": audio}).to_string()
}

fn speak(data: &[u8]) -> [Input; 4] {
    [
        Input::ResponseCreated { response: 1 },
        Input::ResponseAudio { response: 1, data: data.to_vec() },
        Input::ResponseText { response: 1, delta: "hm".to_owned() },
        Input::ResponseDone { response: 1 },
    ]
}

#[test]
fn audio_of_a_response_is_base64_in_its_place() {
    let mut session = opened_socket();
    let seen = feed(&mut session, speak(&[0, 1, 2, 3]));
    assert_eq!(
        names(&seen),
        [
            "response.created",
            "conversation.item.added",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_audio.delta",
            "response.output_audio_transcript.delta",
            "response.output_audio_transcript.done",
            "response.output_audio.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    assert_eq!((&seen[4]["delta"], &seen[4]["output_index"]), (&json!("AAECAw=="), &json!(0)));
}

#[test]
fn long_audio_is_told_in_pieces() {
    let mut session = opened_socket();
    let seen = feed(&mut session, speak(&vec![7; 60_000]));
    let sizes: Vec<_> = seen
        .iter()
        .filter(|event| event["type"] == "response.output_audio.delta")
        .map(|event| event["delta"].as_str().unwrap().len())
        .collect();
    assert_eq!(sizes, [32_000, 32_000, 16_000]);
}

#[test]
fn over_webrtc_there_are_no_audio_deltas() {
    let seen = feed(&mut opened(), speak(&[0, 1, 2, 3]));
    assert!(!names(&seen).contains(&"response.output_audio.delta"));
    assert!(names(&seen).contains(&"response.output_audio.done"));
}

#[test]
fn over_a_websocket_playout_is_the_clients_and_an_interruption_ends_the_response_at_once() {
    let mut session = opened_socket();
    let [created, audio, text, _] = speak(&[0; 4800]);
    feed(&mut session, [created, audio, text]);
    let reason = CancelReason::TurnDetected;
    let seen = feed(
        &mut session,
        [
            Input::PlayoutStarted { response: 1 },
            Input::SpeechStarted { turn: 1, audio_start_ms: 5 },
            Input::ResponseCancelled { response: 1, reason },
            Input::PlayoutCleared { response: 1 },
            Input::Truncated { response: 1, audio_end_ms: 5, transcript: None },
            Input::ReplyOver { response: 1 },
        ],
    );
    assert_eq!(names(&seen)[0], "input_audio_buffer.speech_started");
    assert_eq!(names(&seen).last(), Some(&"response.done"));
    assert!(!names(&seen).iter().any(|name| name.starts_with("output_audio_buffer.") || name.ends_with("truncated")));
}

#[test]
fn appended_audio_is_decoded_in_the_format_of_the_session() {
    let mut session = opened_socket();
    assert!(send(&mut session, &append("AAECAw==")).is_empty());
    let pcmu = r#"{"type":"session.update","session":{"audio":{"input":{"format":{"type":"audio/pcmu"}},"output":{"format":{"type":"audio/pcma"}}}}}"#;
    let updated = send(&mut session, pcmu);
    assert_eq!(
        updated[0]["session"]["audio"]["input"]["format"],
        json!({"type": "audio/pcmu"}),
        "no rate is left behind"
    );
    assert_eq!(session.output_format(), AudioFormat::Pcma);
    assert!(send(&mut session, &append("AAEC")).is_empty());
    assert!(send(&mut session, &append("")).is_empty());
    assert_eq!(
        commands(&mut session),
        [
            Command::AppendInput { format: AudioFormat::Pcm16, data: vec![0, 1, 2, 3] },
            Command::AppendInput { format: AudioFormat::Pcmu, data: vec![0, 1, 2] },
        ]
    );
}

#[test]
fn audio_that_is_none_is_said_to_be_none() {
    let mut session = opened_socket();
    for (audio, reason) in [("AAEC", "3 bytes end inside a sample"), ("?", "not base64"), ("AAE", "")] {
        let seen = send(&mut session, &append(audio));
        if reason.is_empty() {
            assert!(seen.is_empty(), "two bytes, unpadded");
            continue;
        }
        let error = only_error(&seen);
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
        assert!(error["message"].as_str().unwrap().contains("PCM16 at 24kHz"));
        assert_eq!(
            (&error["code"], &error["param"], &error["event_id"]),
            (&json!("invalid_value"), &json!("audio"), &json!("a"))
        );
    }
    let seen = send(&mut session, r#"{"type":"input_audio_buffer.append"}"#);
    assert_eq!(only_error(&seen)["code"], "missing_required_parameter");
    let seen = send(&mut session, r#"{"type":"input_audio_buffer.append","audio":7}"#);
    assert_eq!(only_error(&seen)["param"], "audio");
}

#[test]
fn pcm_has_one_rate_which_need_not_be_said() {
    let mut session = opened_socket();
    let update = |format: &str| {
        format!(r#"{{"type":"session.update","session":{{"audio":{{"output":{{"format":{format}}}}}}}}}"#)
    };
    send(&mut session, &update(r#"{"type":"audio/pcmu"}"#));
    let seen = send(&mut session, &update(r#"{"type":"audio/pcm"}"#));
    assert_eq!(seen[0]["session"]["audio"]["output"]["format"], json!({"type": "audio/pcm", "rate": 24000}));
    for format in [r#"{"type":"audio/pcm","rate":16000}"#, r#"{"type":"audio/opus"}"#, r#""pcm16""#] {
        let seen = send(&mut session, &update(format));
        assert_eq!(only_error(&seen)["param"], "session.audio.output.format", "{format}");
    }
}
