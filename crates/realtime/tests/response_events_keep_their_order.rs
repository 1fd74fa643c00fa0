//! The order that clients rely on, for whole turns.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{CancelReason, Dialect, Failure, Input};
use serde_json::json;
use support::{feed, names, normalized, only_error, opened};

fn user_turn() -> [Input; 3] {
    [
        Input::SpeechStarted { turn: 1, audio_start_ms: 700 },
        Input::SpeechStopped { turn: 1, audio_end_ms: 2100 },
        Input::Committed { turn: 1 },
    ]
}

fn reply_begins() -> [Input; 4] {
    [
        Input::ResponseCreated { response: 1 },
        Input::ResponseAudioStarted { response: 1 },
        Input::PlayoutStarted { response: 1 },
        Input::ResponseText { response: 1, delta: "hello".to_owned() },
    ]
}

#[test]
fn a_complete_turn_is_told_in_order() {
    let mut session = opened();
    let mut seen = feed(&mut session, user_turn());
    seen.extend(feed(&mut session, reply_begins()));
    let end = [Input::ResponseDone { response: 1 }, Input::PlayoutStopped { response: 1 }];
    seen.extend(feed(&mut session, end));

    let user = json!({"id": "item#1", "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
                      "content": [{"type": "input_audio", "transcript": null}]});
    let begun = json!({"id": "item#4", "object": "realtime.item", "type": "message", "status": "in_progress",
                       "role": "assistant", "content": []});
    let done = json!({"id": "item#4", "object": "realtime.item", "type": "message", "status": "completed",
                      "role": "assistant", "content": [{"type": "output_audio", "transcript": "hello"}]});
    let response = |status: &str, output: serde_json::Value| {
        json!({"object": "realtime.response", "id": "resp#2", "status": status, "status_details": null, "output": output,
               "conversation_id": "conv#3", "output_modalities": ["audio"], "max_output_tokens": "inf",
               "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "default"}},
               "usage": null, "metadata": null})
    };
    let place = json!({"response_id": "resp#2", "item_id": "item#4", "output_index": 0, "content_index": 0});
    let at = |kind: &str, extra: serde_json::Value| {
        let mut event = place.clone();
        event["type"] = kind.into();
        event.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        event
    };
    // `conv#3`: within response objects the conversation is named before the id.
    let mut expected = vec![
        json!({"type": "input_audio_buffer.speech_started", "audio_start_ms": 700, "item_id": "item#1"}),
        json!({"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 2100, "item_id": "item#1"}),
        json!({"type": "input_audio_buffer.committed", "previous_item_id": null, "item_id": "item#1"}),
        json!({"type": "conversation.item.added", "previous_item_id": null, "item": user}),
        json!({"type": "conversation.item.done", "previous_item_id": null, "item": user}),
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "conversation.item.added", "previous_item_id": "item#1", "item": begun}),
        json!({"type": "response.output_item.added", "response_id": "resp#2", "output_index": 0, "item": begun}),
        at("response.content_part.added", json!({"part": {"type": "audio", "transcript": ""}})),
        json!({"type": "output_audio_buffer.started", "response_id": "resp#2"}),
        at("response.output_audio_transcript.delta", json!({"delta": "hello"})),
        at("response.output_audio_transcript.done", json!({"transcript": "hello"})),
        at("response.output_audio.done", json!({})),
        at("response.content_part.done", json!({"part": {"type": "audio", "transcript": "hello"}})),
        json!({"type": "conversation.item.done", "previous_item_id": "item#1", "item": done}),
        json!({"type": "response.output_item.done", "response_id": "resp#2", "output_index": 0, "item": done}),
        json!({"type": "response.done", "response": response("completed", json!([done]))}),
        json!({"type": "output_audio_buffer.stopped", "response_id": "resp#2"}),
    ];
    // Ids are numbered by appearance on both sides, so that only their pattern counts.
    for event in &mut expected {
        let marked = event.to_string().replace("item#", "item_").replace("resp#", "resp_").replace("conv#", "conv_");
        *event = serde_json::from_str(&marked).unwrap();
        event["event_id"] = "event_".into();
    }
    let (seen, expected) = (normalized(&seen), normalized(&expected));
    for (index, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
        assert_eq!(seen, expected, "event {index}");
    }
    assert_eq!(seen.len(), expected.len());
}

#[test]
fn an_interruption_ends_the_response_then_clears_then_truncates() {
    let mut session = opened();
    feed(&mut session, user_turn());
    feed(&mut session, reply_begins());
    let seen = feed(
        &mut session,
        [
            Input::SpeechStarted { turn: 2, audio_start_ms: 4000 },
            Input::ResponseCancelled { response: 1, reason: CancelReason::TurnDetected },
            Input::PlayoutCleared { response: 1 },
            Input::Truncated { response: 1, audio_end_ms: 1480, transcript: None },
        ],
    );
    assert_eq!(
        names(&seen),
        [
            "input_audio_buffer.speech_started",
            "response.output_audio_transcript.done",
            "response.output_audio.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
            "output_audio_buffer.cleared",
            "conversation.item.truncated",
        ]
    );
    assert_eq!(seen[5]["item"]["status"], "incomplete");
    assert_eq!(seen[6]["response"]["status"], "cancelled");
    assert_eq!(seen[6]["response"]["status_details"], json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(seen[8]["audio_end_ms"], 1480);
    assert_eq!(seen[8]["item_id"], seen[5]["item"]["id"]);
    assert_eq!(seen[8]["content_index"], 0);
}

#[test]
fn an_interruption_of_the_tail_clears_without_a_second_done() {
    let mut session = opened();
    feed(&mut session, reply_begins());
    feed(&mut session, [Input::ResponseDone { response: 1 }]);
    let seen = feed(
        &mut session,
        [
            Input::ResponseCancelled { response: 1, reason: CancelReason::TurnDetected },
            Input::PlayoutCleared { response: 1 },
            Input::Truncated { response: 1, audio_end_ms: 900, transcript: None },
            Input::PlayoutStopped { response: 1 },
        ],
    );
    assert_eq!(names(&seen), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
}

#[test]
fn playout_that_ends_before_the_response_is_told_after_it() {
    let mut session = opened();
    feed(&mut session, reply_begins());
    assert!(feed(&mut session, [Input::PlayoutStopped { response: 1 }]).is_empty());
    let seen = feed(&mut session, [Input::ResponseDone { response: 1 }]);
    assert_eq!(names(&seen)[5..], ["response.done", "output_audio_buffer.stopped"]);
}

#[test]
fn a_response_without_audio_has_no_output() {
    let mut session = opened();
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }, Input::ResponseDone { response: 1 }]);
    assert_eq!(names(&seen), ["response.created", "response.done"]);
    assert_eq!(seen[1]["response"]["output"], json!([]));
}

#[test]
fn a_failure_is_a_status_not_an_error_event() {
    let mut session = opened();
    let failure = Input::ResponseFailed { response: 1, failure: failure("rate_limit_exceeded") };
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }, failure]);
    assert_eq!(names(&seen), ["response.created", "response.done"]);
    let error = json!({"type": "server_error", "code": "rate_limit_exceeded", "message": "too much"});
    assert_eq!(seen[1]["response"]["status"], "failed");
    assert_eq!(seen[1]["response"]["status_details"], json!({"type": "failed", "error": error}));
}

#[test]
fn a_failure_outside_of_responses_is_an_error_event() {
    let mut session = opened();
    let seen = feed(&mut session, [Input::ModelFailed(failure("model_gone"))]);
    let error =
        json!({"type": "server_error", "code": "model_gone", "message": "too much", "param": null, "event_id": null});
    assert_eq!(*only_error(&seen), error);
}

fn failure(code: &str) -> Failure {
    Failure { kind: "server_error".to_owned(), code: code.to_owned(), message: "too much".to_owned() }
}

#[test]
fn inputs_about_unknown_responses_are_counted_and_silent() {
    let mut session = opened();
    let seen = feed(
        &mut session,
        [
            Input::ResponseDone { response: 9 },
            Input::PlayoutCleared { response: 9 },
            Input::Truncated { response: 9, audio_end_ms: 0, transcript: None },
            Input::ResponseText { response: 9, delta: "x".to_owned() },
        ],
    );
    assert!(seen.is_empty());
    assert_eq!(session.counters().stale_inputs, 4);
}

#[test]
fn a_hundred_turns_leave_one_done_each_and_a_chain_of_items() {
    let mut session = opened();
    let mut last = serde_json::Value::Null;
    for n in 1..=100 {
        let seen = feed(
            &mut session,
            [
                Input::SpeechStarted { turn: n, audio_start_ms: n },
                Input::SpeechStopped { turn: n, audio_end_ms: n },
                Input::Committed { turn: n },
                Input::ResponseCreated { response: n },
                Input::ResponseAudioStarted { response: n },
                Input::PlayoutStarted { response: n },
                Input::ResponseDone { response: n },
                Input::PlayoutStopped { response: n },
            ],
        );
        for event in seen.iter().filter(|event| event["type"] == "conversation.item.added") {
            assert_eq!(event["previous_item_id"], last);
            last = event["item"]["id"].clone();
        }
        assert_eq!(seen.iter().filter(|event| event["type"] == "response.done").count(), 1);
    }
}
