//! Items that clients create, retrieve, truncate and delete.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{CancelReason, Command, Config, Input, Item, ItemKind, Role, Session, Transport};
use serde_json::{Value, json};
use support::{commands, config, configured, events, feed, names, only_error, opened, opened_socket, send};

fn create(session: &mut Session, previous: Option<&str>, item: &Value) -> Vec<Value> {
    let mut event = json!({"type": "conversation.item.create", "event_id": "c", "item": item});
    if let Some(previous) = previous {
        event["previous_item_id"] = previous.into();
    }
    send(session, &event.to_string())
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn act(session: &mut Session, kind: &str, item: &str) -> Vec<Value> {
    send(session, &json!({"type": format!("conversation.item.{kind}"), "event_id": "a", "item_id": item}).to_string())
}

fn truncate(session: &mut Session, item: &str, audio_end_ms: i64) -> Vec<Value> {
    let event = json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": audio_end_ms});
    send(session, &event.to_string())
}

#[test]
fn a_created_item_is_added_and_done_and_told_to_the_model() {
    let mut session = opened();
    let seen = create(
        &mut session,
        None,
        &json!({"type": "message", "role": "user", "x_kept": [1],
        "content": [{"type": "input_text", "text": "hello"}, {"type": "input_text", "text": "there"}]}),
    );
    assert_eq!(names(&seen), ["conversation.item.added", "conversation.item.done"]);
    assert!(seen[0]["previous_item_id"].is_null());
    let item = &seen[0]["item"];
    let id = item["id"].as_str().unwrap();
    assert!(id.starts_with("item_"));
    assert_eq!(
        (&item["status"], &item["object"], &item["x_kept"]),
        (&json!("completed"), &json!("realtime.item"), &json!([1]))
    );
    assert_eq!(seen[0]["item"], seen[1]["item"]);
    let commands = commands(&mut session);
    let [Command::AddItem(told)] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(told.kind, ItemKind::Message { role: Role::User, text: "hello\nthere".to_owned() });
    assert_eq!(serde_json::from_str::<Value>(&told.json).unwrap(), *item);
}

#[test]
fn items_stand_behind_the_one_named_or_first_or_last() {
    let mut session = opened();
    create(&mut session, None, &message("a", "1"));
    let second = create(&mut session, None, &message("b", "2"));
    assert_eq!(second[0]["previous_item_id"], "a");
    let between = create(&mut session, Some("a"), &message("c", "3"));
    assert_eq!(between[0]["previous_item_id"], "a");
    let first = create(&mut session, Some("root"), &message("d", "4"));
    assert!(first[0]["previous_item_id"].is_null());
    assert_eq!(names(&act(&mut session, "delete", "b")), ["conversation.item.deleted"]);
    let last = create(&mut session, None, &message("e", "5"));
    assert_eq!(last[0]["previous_item_id"], "c", "the chain is whole without the one deleted");
    let spoken = feed(&mut session, [Input::Committed { turn: 1 }]);
    assert_eq!(spoken[0]["previous_item_id"], "e");
}

#[test]
fn a_tool_result_comes_without_id_and_status_and_a_replayed_call_keeps_its_names() {
    let mut session = opened();
    let seen = create(&mut session, None, &json!({"type": "function_call_output", "call_id": "c1", "output": "{}"}));
    assert_eq!(seen[0]["item"]["status"], "completed");
    let call = json!({"id": "fc", "type": "function_call", "call_id": "c2", "name": "f", "arguments": "{\"a\":1}"});
    create(&mut session, None, &call);
    let kinds: Vec<_> = commands(&mut session)
        .into_iter()
        .map(|command| match command {
            Command::AddItem(item) => item.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    let (call_id, name, arguments) = ("c2".to_owned(), "f".to_owned(), "{\"a\":1}".to_owned());
    assert_eq!(
        kinds,
        [
            ItemKind::ToolResult { call_id: "c1".to_owned(), output: "{}".to_owned() },
            ItemKind::ToolCall { call_id, name, arguments }
        ]
    );
    let kept = act(&mut session, "retrieve", "fc");
    assert_eq!(kept[0]["item"]["arguments"], "{\"a\":1}");
}

#[test]
fn an_image_is_kept_as_it_is_and_one_too_large_to_repeat_reaches_the_model_whole() {
    let mut session = opened_socket();
    let image = |url: &str| {
        json!({"id": url.len().to_string(), "type": "message", "role": "user",
               "content": [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "what is it?"}]})
    };
    let small = create(&mut session, None, &image("data:image/png;base64,AA"));
    assert_eq!(small[0]["item"]["content"][0]["image_url"], "data:image/png;base64,AA");
    let url = format!("data:image/png;base64,{}", "A".repeat(900_000));
    let seen = create(&mut session, None, &image(&url));
    assert_eq!(seen[0]["item"]["content"][0]["image_url"], "data:image/png;base64,", "{seen:?}");
    assert_eq!(seen[0]["item"]["content"][1]["text"], "what is it?");
    let Some(Command::AddItem(told)) = commands(&mut session).pop() else { panic!("no item") };
    assert!(told.json.contains(&url));
    assert!(session.held_bytes() < 10_000);
}

#[test]
fn audio_of_an_item_is_repeated_only_when_asked_for() {
    let mut session = opened();
    let item = json!({"id": "a", "type": "message", "role": "user",
                      "content": [{"type": "input_audio", "audio": "AAAA", "transcript": "hm"}]});
    let seen = create(&mut session, None, &item);
    assert_eq!(seen[0]["item"]["content"], json!([{"type": "input_audio", "transcript": "hm"}]));
    assert_eq!(act(&mut session, "retrieve", "a")[0]["item"]["content"], item["content"]);
}

#[test]
fn what_is_no_item_is_refused_by_field_and_changes_nothing() {
    let mut session = opened();
    create(&mut session, None, &message("a", "1"));
    commands(&mut session);
    let cases = [
        (json!({}), "missing_required_parameter", "item.type"),
        (json!({"type": "thought"}), "invalid_value", "item.type"),
        (json!({"type": "message", "content": []}), "missing_required_parameter", "item.role"),
        (json!({"type": "message", "role": "tool", "content": []}), "invalid_value", "item.role"),
        (json!({"type": "message", "role": "user"}), "invalid_value", "item.content"),
        (json!({"type": "message", "role": "user", "content": ["hi"]}), "invalid_value", "item.content[0]"),
        (
            json!({"type": "message", "role": "system", "content": [{"type": "input_audio"}]}),
            "invalid_value",
            "item.content[0]",
        ),
        (
            json!({"type": "message", "role": "user", "content": [{"type": "input_text"}]}),
            "invalid_value",
            "item.content[0]",
        ),
        (json!({"type": "function_call_output", "output": ""}), "missing_required_parameter", "item.call_id"),
        (json!({"type": "function_call_output", "call_id": "c", "output": {}}), "invalid_value", "item.output"),
        (json!({"type": "function_call", "name": "", "arguments": ""}), "invalid_value", "item.name"),
        (message(&"x".repeat(200), "1"), "invalid_value", "item.id"),
        (message("a", "again"), "item_create_duplicate_item_id", "item.id"),
        (message("b", &"y".repeat(200_000)), "invalid_value", "item"),
    ];
    for (item, code, param) in cases {
        let seen = create(&mut session, None, &item);
        let error = only_error(&seen);
        assert_eq!(
            (&error["code"], &error["param"], &error["event_id"]),
            (&json!(code), &json!(param), &json!("c")),
            "{error}"
        );
    }
    let seen = create(&mut session, Some("nobody"), &message("b", "2"));
    assert_eq!(only_error(&seen)["code"], "item_create_invalid_previous_item_id");
    assert_eq!(commands(&mut session), []);
    for (kind, code) in [("retrieve", "item_retrieve_invalid_item_id"), ("delete", "item_delete_invalid_item_id")] {
        assert_eq!(only_error(&act(&mut session, kind, "b"))["code"], code);
    }
}

/// A response of `ms` of speech over a WebSocket, done; its item.
fn spoken(session: &mut Session, ms: usize, text: &str) -> String {
    let data = vec![0; ms * 48];
    let seen = feed(
        session,
        [
            Input::ResponseCreated { response: 1 },
            Input::ResponseAudio { response: 1, data },
            Input::ResponseText { response: 1, delta: text.to_owned() },
            Input::ResponseDone { response: 1 },
        ],
    );
    seen.last().unwrap()["response"]["output"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn t02_t03_a_truncated_item_ends_where_it_was_heard_and_never_behind_its_end() {
    let mut session = opened_socket();
    let item = spoken(&mut session, 3700, "one two three four five six");
    let seen = truncate(&mut session, &item, 3760);
    assert_eq!(names(&seen), ["conversation.item.truncated"]);
    assert_eq!(
        (&seen[0]["audio_end_ms"], &seen[0]["content_index"], &seen[0]["item_id"]),
        (&json!(3700), &json!(0), &json!(item))
    );
    assert_eq!(
        act(&mut session, "retrieve", &item)[0]["item"]["content"][0]["transcript"],
        "one two three four five six"
    );
    assert_eq!(truncate(&mut session, &item, 1850)[0]["audio_end_ms"], 1850);
    let kept = act(&mut session, "retrieve", &item);
    assert_eq!(kept[0]["item"]["content"][0]["transcript"], "one two three");
    assert_eq!(kept[0]["item"]["status"], "incomplete");
    assert_eq!(truncate(&mut session, &item, 3000)[0]["audio_end_ms"], 1850, "what was cut does not come back");
    assert_eq!(truncate(&mut session, &item, -1)[0]["audio_end_ms"], 0);
    assert_eq!(act(&mut session, "retrieve", &item)[0]["item"]["content"][0]["transcript"], "");
    let told: Vec<_> =
        commands(&mut session).into_iter().filter(|command| matches!(command, Command::TruncateItem { .. })).collect();
    let cut = |audio_end_ms, words: &str| {
        let transcript = Some(words.to_owned());
        Command::TruncateItem { item: item.clone(), audio_end_ms, transcript }
    };
    assert_eq!(
        told,
        [cut(3700, "one two three four five six"), cut(1850, "one two three"), cut(1850, "one two three"), cut(0, ""),]
    );
}

#[test]
fn t01_an_item_without_sound_is_truncated_at_nothing_and_stays_so() {
    let mut session = opened_socket();
    let begun =
        [Input::ResponseCreated { response: 1 }, Input::ResponseText { response: 1, delta: "never heard".to_owned() }];
    let seen = feed(&mut session, begun);
    let item = seen[1]["item"]["id"].as_str().unwrap();
    assert_eq!(truncate(&mut session, item, 0)[0]["audio_end_ms"], 0);
    let reason = CancelReason::ClientCancelled;
    let more = Input::ResponseText { response: 1, delta: " at all".to_owned() };
    let seen = feed(&mut session, [more, Input::ResponseCancelled { response: 1, reason }]);
    assert_eq!(seen.last().unwrap()["response"]["output"][0]["content"][0]["transcript"], "");
}

#[test]
fn strict_truncation_answers_with_the_apis_own_words() {
    let strict = Config { transport: Transport::WebSocket, strict_truncation: true, ..config() };
    let mut session = configured(strict);
    events(&mut session);
    let item = spoken(&mut session, 1000, "one");
    let seen = truncate(&mut session, &item, 1085);
    assert_eq!(only_error(&seen)["message"], "Audio content of 1000ms is already shorter than 1085ms");
    assert_eq!(names(&truncate(&mut session, &item, 1000)), ["conversation.item.truncated"]);
}

#[test]
fn only_speech_of_the_model_can_be_truncated() {
    let mut session = opened_socket();
    create(&mut session, None, &message("a", "1"));
    let seen = truncate(&mut session, "a", 0);
    assert_eq!(only_error(&seen)["code"], "unsupported_content_type");
    assert_eq!(only_error(&truncate(&mut session, "nobody", 0))["code"], "item_truncate_invalid_item_id");
    let item = spoken(&mut session, 100, "hm");
    let event = json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 1, "audio_end_ms": 5});
    assert_eq!(only_error(&send(&mut session, &event.to_string()))["param"], "content_index");
    let event = json!({"type": "conversation.item.truncate", "item_id": item});
    assert_eq!(only_error(&send(&mut session, &event.to_string()))["param"], "audio_end_ms");
}

#[test]
fn an_item_deleted_in_the_making_is_done_and_gone() {
    let mut session = opened_socket();
    let begun = [Input::ResponseCreated { response: 1 }, Input::ResponseText { response: 1, delta: "x".to_owned() }];
    let seen = feed(&mut session, begun);
    let item = seen[1]["item"]["id"].as_str().unwrap().to_owned();
    act(&mut session, "delete", &item);
    let seen = feed(&mut session, [Input::ResponseDone { response: 1 }]);
    assert_eq!(names(&seen)[3..], ["conversation.item.done", "response.output_item.done", "response.done"]);
    assert_eq!(names(&act(&mut session, "retrieve", &item)), ["error"]);
}

#[test]
fn the_call_learns_the_names_of_items_that_it_makes() {
    let mut session = opened_socket();
    send(&mut session, r#"{"type":"response.create","response":{"conversation":"none"}}"#);
    let (call_id, name, arguments) = ("call_1".to_owned(), "weather".to_owned(), "{}".to_owned());
    let text = |response, delta: &str| Input::ResponseText { response, delta: delta.to_owned() };
    let seen = feed(
        &mut session,
        [
            Input::ResponseCreated { response: 1 },
            text(1, "aside"),
            Input::ResponseDone { response: 1 },
            Input::SpeechStarted { turn: 1, audio_start_ms: 0 },
            Input::Committed { turn: 1 },
            Input::ResponseCreated { response: 2 },
            text(2, "look"),
            text(2, "ing"),
            Input::ToolCallDone { response: 2, call_id: call_id.clone(), name, arguments },
        ],
    );
    let added = seen.iter().filter(|event| event["type"] == "conversation.item.added");
    let ids: Vec<_> = added.map(|event| event["item"]["id"].as_str().unwrap().to_owned()).collect();
    let item = |at: usize, kind| {
        let previous = at.checked_sub(1).map(|at| ids[at].clone());
        Command::AddItem(Box::new(Item { id: ids[at].clone(), previous, kind, json: String::new() }))
    };
    let told = commands(&mut session);
    assert!(matches!(told[0], Command::CreateResponse(_)));
    assert_eq!(
        told[1..],
        [
            item(0, ItemKind::Speech { turn: 1 }),
            item(1, ItemKind::Output { response: 2, call_id: None }),
            item(2, ItemKind::Output { response: 2, call_id: Some(call_id) }),
        ]
    );
}
