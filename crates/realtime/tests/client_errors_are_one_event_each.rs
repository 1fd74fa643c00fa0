//! Whatever a client sends, it is answered once and the session goes on.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::time::Instant;

use realtime::{Command, CreateRefusal, Dialect, Input, MAX_CLIENT_BYTES, Modality, ResponseRequest, Waited};
use serde_json::{Value, json};
use support::{commands, events, feed, names, only_error, opened, send};

/// The command of a `response.create` of audio.
fn created_with(json: &str) -> Command {
    let json = json.to_owned();
    let request = ResponseRequest { modality: Modality::Audio, out_of_band: false, instructions: None, json };
    Command::CreateResponse(Box::new(request))
}

#[test]
fn an_error_has_the_whole_body() {
    let mut session = opened();
    let seen = send(&mut session, r#"{"event_id":"e7","type":"response.cancel"}"#);
    assert!(seen[0]["event_id"].as_str().unwrap().starts_with("event_"));
    assert_eq!(
        seen[0]["error"],
        json!({"type": "invalid_request_error", "code": "response_cancel_not_active",
               "message": "Cancellation failed: no active response found", "param": null, "event_id": "e7"})
    );
    assert_eq!(seen[0].as_object().unwrap().len(), 3);
}

#[test]
fn texts_that_are_no_event_are_invalid_events() {
    let mut session = opened();
    let deep = "[".repeat(100_000);
    for text in ["", "{", "null", "[]", "\"x\"", "{}", r#"{"type":5}"#, r#"{"type":null}"#, deep.as_str()] {
        let seen = send(&mut session, text);
        assert_eq!(only_error(&seen)["code"], "invalid_event", "{}", &text[..text.len().min(20)]);
    }
    assert_eq!(only_error(&send(&mut session, r#"{"event_id":[],"type":"response.create"}"#))["param"], "event_id");
    session.handle_client_binary(Instant::now());
    assert_eq!(only_error(&events(&mut session))["code"], "invalid_event");
    assert_eq!(commands(&mut session), []);
}

#[test]
fn a_mebibyte_is_refused_and_the_session_goes_on() {
    let mut session = opened();
    let text = format!(r#"{{"type":"session.update","session":{{"instructions":"{}"}}}}"#, "a".repeat(1 << 20));
    assert!(only_error(&send(&mut session, &text))["message"].as_str().unwrap().contains("larger than"));
    let text = format!(r#"{{"type":"session.update","session":{{"instructions":"{}"}}}}"#, "a".repeat(300 * 1024));
    assert!(text.len() < MAX_CLIENT_BYTES);
    assert_eq!(
        only_error(&send(&mut session, &text))["param"],
        "session",
        "the echo would not fit a browser's message"
    );
    let updated = send(&mut session, r#"{"type":"session.update","session":{}}"#);
    assert_eq!(updated[0]["session"]["instructions"], "");
}

#[test]
fn a_text_of_more_values_than_any_session_has_is_refused_unread_and_the_session_goes_on() {
    let mut session = opened();
    for values in [r#"[],"#.repeat(300_000), r#"{"":0},"#.repeat(100_000)] {
        let text = format!(r#"{{"type":"x","a":[{values}0]}}"#);
        assert!(text.len() < MAX_CLIENT_BYTES);
        let seen = send(&mut session, &text);
        assert_eq!(only_error(&seen)["message"], "The event has more than the 20000 JSON values allowed.");
    }
    assert_eq!(send(&mut session, r#"{"type":"session.update","session":{}}"#)[0]["type"], "session.updated");
}

#[test]
fn an_unknown_type_is_named_and_bounded() {
    let mut session = opened();
    let text = json!({"type": "x".repeat(10_000), "event_id": "e"}).to_string();
    let seen = send(&mut session, &text);
    assert_eq!(only_error(&seen)["code"], "unknown_event");
    assert_eq!(only_error(&seen)["event_id"], "e");
    assert!(seen[0].to_string().len() < 1000);
}

#[test]
fn an_item_retrieve_gets_the_code_that_clients_know_as_harmless() {
    let seen =
        send(&mut opened(), r#"{"type":"conversation.item.retrieve","event_id":"rci_item_1","item_id":"item_1"}"#);
    assert_eq!(only_error(&seen)["code"], "item_retrieve_invalid_item_id");
    assert_eq!(only_error(&seen)["event_id"], "rci_item_1");
}

#[test]
fn audio_that_the_call_does_not_take_is_refused_once() {
    let mut session = opened();
    let append = r#"{"type":"input_audio_buffer.append","event_id":"p","audio":"AAAAAA=="}"#;
    for answers in [1, 0] {
        assert!(send(&mut session, append).is_empty());
        let asked = commands(&mut session);
        let refused = asked.iter().map(|_| Input::AppendRefused);
        assert_eq!(feed(&mut session, refused).len(), answers);
    }
}

#[test]
fn a_second_create_is_refused_with_the_words_clients_look_for() {
    let mut session = opened();
    let create = r#"{"type":"response.create","event_id":"c1","response":{"metadata":{"client_event_id":"x"}}}"#;
    assert!(send(&mut session, create).is_empty());
    assert_eq!(commands(&mut session), [created_with(r#"{"metadata":{"client_event_id":"x"}}"#)]);
    let created = feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert_eq!(created[0]["response"]["metadata"], json!({"client_event_id": "x"}));
    let seen = send(&mut session, r#"{"type":"response.create","event_id":"c2"}"#);
    let error = only_error(&seen);
    assert_eq!(error["code"], "conversation_already_has_active_response");
    assert_eq!(error["event_id"], "c2");
    assert!(error["message"].as_str().unwrap().contains("response.create"));
    assert_eq!(commands(&mut session), []);
}

#[test]
fn a_refused_command_names_the_event_that_caused_it() {
    let mut session = opened();
    send(&mut session, r#"{"type":"input_audio_buffer.commit","event_id":"k1"}"#);
    assert_eq!(commands(&mut session), [Command::CommitInput]);
    let seen = feed(&mut session, [Input::CommitRefused]);
    assert_eq!(only_error(&seen)["code"], "input_audio_buffer_commit_empty");
    assert_eq!(only_error(&seen)["event_id"], "k1");
    send(&mut session, r#"{"type":"response.create","event_id":"k2"}"#);
    let seen = feed(&mut session, [Input::CreateRefused(CreateRefusal::Unsupported)]);
    assert_eq!(only_error(&seen)["event_id"], "k2");
    let created = feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert!(created[0]["response"]["metadata"].is_null());
}

#[test]
fn a_refusal_of_what_waited_names_the_event_that_asked_for_it_whatever_came_since() {
    let mut session = opened();
    for id in ["k1", "k2", "k3"] {
        send(&mut session, &format!(r#"{{"type":"input_audio_buffer.commit","event_id":"{id}"}}"#));
        assert_eq!(commands(&mut session), [Command::CommitInput]);
        assert!(feed(&mut session, [Input::RequestWaits]).is_empty());
    }
    send(&mut session, r#"{"type":"response.create","event_id":"k4"}"#);
    feed(&mut session, [Input::RequestWaits]);
    send(&mut session, r#"{"type":"input_audio_buffer.append","event_id":"k5","audio":"AAAA"}"#);
    assert!(feed(&mut session, [Input::Waited(Waited::Done)]).is_empty());
    for (waited, code, id) in [
        (Waited::CommitRefused, "input_audio_buffer_commit_empty", json!("k2")),
        (Waited::CommitRefused, "input_audio_buffer_commit_empty", json!("k3")),
        (Waited::CreateRefused(CreateRefusal::Active), "conversation_already_has_active_response", json!("k4")),
        (Waited::CommitRefused, "input_audio_buffer_commit_empty", Value::Null),
    ] {
        let seen = feed(&mut session, [Input::Waited(waited)]);
        let error = only_error(&seen);
        assert_eq!((&error["code"], &error["event_id"]), (&json!(code), &id));
    }
}

#[test]
fn a_response_that_is_asked_for_behind_audio_keeps_its_terms_for_itself() {
    let mut session = opened();
    send(&mut session, r#"{"type":"response.create","response":{"metadata":{"of":"mine"}}}"#);
    feed(&mut session, [Input::RequestWaits]);
    // A second one is refused and takes nothing away.
    send(&mut session, r#"{"type":"response.create","response":{"metadata":{"of":"another"}}}"#);
    let refused = feed(&mut session, [Input::CreateRefused(CreateRefusal::Active)]);
    assert_eq!(only_error(&refused)["code"], "conversation_already_has_active_response");
    // The audio was a turn, which is answered first.
    let answer = feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert!(answer[0]["response"]["metadata"].is_null(), "{answer:?}");
    feed(&mut session, [Input::ResponseDone { response: 1 }]);
    let asked = feed(&mut session, [Input::Waited(Waited::Done), Input::ResponseCreated { response: 2 }]);
    assert_eq!(asked[0]["response"]["metadata"], json!({"of": "mine"}), "{asked:?}");
}

#[test]
fn buffer_events_become_commands() {
    let mut session = opened();
    let seen = send(&mut session, r#"{"type":"input_audio_buffer.clear"}"#);
    assert_eq!(names(&seen), ["input_audio_buffer.cleared"]);
    assert!(send(&mut session, r#"{"type":"output_audio_buffer.clear"}"#).is_empty());
    feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert!(send(&mut session, r#"{"type":"response.cancel"}"#).is_empty());
    assert_eq!(commands(&mut session), [Command::ClearInput, Command::ClearOutput, Command::Cancel]);
    let other = send(&mut session, r#"{"type":"response.cancel","response_id":"resp_other"}"#);
    assert_eq!(only_error(&other)["code"], "response_cancel_not_active");
}

#[test]
fn a_playout_delay_is_taken_without_a_word_and_one_that_is_none_is_named_and_changes_nothing() {
    let mut session = opened();
    let taken = send(&mut session, r#"{"type":"fronthaul.playout_delay","delay_ms":85.5,"round_trip_ms":40}"#);
    assert!(taken.is_empty(), "{taken:?}");
    assert_eq!(commands(&mut session), [Command::ClientDelay { delay_us: 85_500 }]);
    assert!(send(&mut session, r#"{"type":"fronthaul.playout_delay"}"#).is_empty(), "a sign of life");
    for delay in ["-1", "2001", "1e300", "\"85\"", "null", "[85]"] {
        let text = format!(r#"{{"type":"fronthaul.playout_delay","delay_ms":{delay}}}"#);
        let seen = send(&mut session, &text);
        let error = only_error(&seen);
        assert_eq!(error["param"], "delay_ms");
        assert_eq!(error["message"], "'delay_ms' is not a number from 0 to 2000.");
    }
    assert_eq!(commands(&mut session), []);
}
