//! What nobody heard is in no item: transcripts, `conversation.item.truncated` and retrieved items agree.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{CancelReason, Input, Session};
use serde_json::Value;
use support::{feed, names, only_error, opened, send};

fn begun(session: &mut Session) {
    feed(
        session,
        [
            Input::ResponseCreated { response: 1 },
            Input::ResponseAudioStarted { response: 1 },
            Input::PlayoutStarted { response: 1 },
            Input::ResponseText { response: 1, delta: "one two three four five six".to_owned() },
        ],
    );
}

fn truncated(text: &str) -> Input {
    Input::Truncated { response: 1, audio_end_ms: 1480, transcript: Some(text.to_owned()) }
}

fn retrieve(session: &mut Session, item: &str) -> Vec<Value> {
    send(session, &format!(r#"{{"type":"conversation.item.retrieve","item_id":"{item}"}}"#))
}

#[test]
fn t03_the_end_of_a_cut_response_waits_for_the_cut_and_has_its_words() {
    let mut session = opened();
    begun(&mut session);
    let seen = feed(
        &mut session,
        [
            Input::ResponseCancelled { response: 1, reason: CancelReason::TurnDetected },
            Input::PlayoutCleared { response: 1 },
        ],
    );
    assert!(seen.is_empty(), "{seen:?}");
    let seen = feed(&mut session, [truncated("one two three"), Input::ReplyOver { response: 1 }]);
    assert_eq!(seen[0]["transcript"], "one two three");
    assert_eq!(seen[3]["item"]["content"][0]["transcript"], "one two three");
    assert_eq!(seen[5]["response"]["output"][0]["content"][0]["transcript"], "one two three");
    assert_eq!(seen[5]["response"]["output"][0]["status"], "incomplete");
    assert_eq!(names(&seen)[5..], ["response.done", "output_audio_buffer.cleared", "conversation.item.truncated"]);
    let item = seen[7]["item_id"].as_str().unwrap();
    let kept = retrieve(&mut session, item);
    assert_eq!(names(&kept), ["conversation.item.retrieved"]);
    assert_eq!(kept[0]["item"], seen[3]["item"]);
}

#[test]
fn t03_an_item_cut_behind_its_response_is_retrieved_as_it_was_heard() {
    let mut session = opened();
    begun(&mut session);
    let seen = feed(&mut session, [Input::ResponseDone { response: 1 }]);
    assert_eq!(seen[0]["transcript"], "one two three four five six");
    let seen = feed(&mut session, [Input::PlayoutCleared { response: 1 }, truncated("one two")]);
    let item = seen[1]["item_id"].as_str().unwrap();
    let kept = retrieve(&mut session, item);
    assert_eq!(kept[0]["item"]["content"][0]["transcript"], "one two");
    assert_eq!(kept[0]["item"]["status"], "incomplete");
}

#[test]
fn t01_a_response_of_which_nothing_was_sent_has_no_words_and_is_not_truncated() {
    let mut session = opened();
    let text = Input::ResponseText { response: 1, delta: "never heard".to_owned() };
    feed(&mut session, [Input::ResponseCreated { response: 1 }, text]);
    let cancelled = Input::ResponseCancelled { response: 1, reason: CancelReason::TurnDetected };
    let seen = feed(&mut session, [cancelled, Input::ReplyOver { response: 1 }]);
    assert_eq!(names(&seen).last(), Some(&"response.done"));
    assert_eq!(seen[0]["transcript"], "");
    assert!(!names(&seen).contains(&"conversation.item.truncated"));
}

#[test]
fn a_response_whose_cut_is_never_told_ends_before_the_next_begins() {
    let mut session = opened();
    begun(&mut session);
    feed(&mut session, [Input::ResponseCancelled { response: 1, reason: CancelReason::TurnDetected }]);
    let seen = feed(&mut session, [Input::ResponseCreated { response: 2 }]);
    assert_eq!(names(&seen)[5..], ["response.done", "response.created"]);
}

#[test]
fn an_item_that_is_not_known_is_named_as_such() {
    let mut session = opened();
    assert_eq!(only_error(&retrieve(&mut session, "item_x"))["code"], "item_retrieve_invalid_item_id");
    let seen = send(&mut session, r#"{"type":"conversation.item.retrieve"}"#);
    assert_eq!(only_error(&seen)["param"], "item_id");
}
