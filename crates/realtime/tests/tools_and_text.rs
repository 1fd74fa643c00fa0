//! Tool calls, text turns, and what else a response can be.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use realtime::{CancelReason, Command, Dialect, IncompleteReason, Input, Modality, RateLimit, Usage};
use serde_json::json;
use support::{commands, feed, names, only_error, opened, opened_socket, send};

fn delta(delta: &str) -> Input {
    let (call_id, name) = ("call_1".to_owned(), "weather".to_owned());
    Input::ToolCallDelta { response: 1, call_id, name, delta: delta.to_owned() }
}

fn done(arguments: &str) -> Input {
    let (call_id, name) = ("call_1".to_owned(), "weather".to_owned());
    Input::ToolCallDone { response: 1, call_id, name, arguments: arguments.to_owned() }
}

#[test]
fn a_tool_call_names_itself_ahead_of_its_arguments_and_is_complete_before_its_response() {
    let mut session = opened();
    let seen = feed(
        &mut session,
        [
            Input::ResponseCreated { response: 1 },
            delta("{\"city\":"),
            delta("\"Rome\"}"),
            done("{\"city\":\"Rome\"}"),
            Input::ResponseDone { response: 1 },
        ],
    );
    assert_eq!(
        names(&seen),
        [
            "response.created",
            "conversation.item.added",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let added = &seen[1]["item"];
    assert_eq!(
        (&added["name"], &added["call_id"], &added["status"]),
        (&json!("weather"), &json!("call_1"), &json!("in_progress"))
    );
    let item = json!({"id": added["id"], "object": "realtime.item", "type": "function_call", "status": "completed",
                      "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Rome\"}"});
    assert_eq!(seen[7]["item"], item);
    assert_eq!(seen[8]["response"]["output"], json!([item]));
    for event in &seen[3..6] {
        assert_eq!(
            (&event["call_id"], &event["output_index"], &event["item_id"]),
            (&json!("call_1"), &json!(0), &added["id"])
        );
    }
    assert_eq!(seen[5]["arguments"], "{\"city\":\"Rome\"}");
}

#[test]
fn speech_and_calls_have_an_index_each_and_the_message_ends_with_the_response() {
    let mut session = opened();
    let text = Input::ResponseText { response: 1, delta: "let me see".to_owned() };
    let seen = feed(
        &mut session,
        [Input::ResponseCreated { response: 1 }, text, done("{}"), Input::ResponseDone { response: 1 }],
    );
    let output = seen.last().unwrap()["response"]["output"].as_array().unwrap();
    let kinds: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call"]);
    let indices: Vec<_> = seen
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["output_index"])
        .collect();
    assert_eq!(indices, [&json!(1), &json!(0)]);
    assert_eq!(seen.last().unwrap()["type"], "response.done");
}

#[test]
fn half_a_call_is_never_told_as_one_to_make() {
    let mut session = opened();
    let reason = CancelReason::TurnDetected;
    let seen = feed(
        &mut session,
        [Input::ResponseCreated { response: 1 }, delta("{\"city"), Input::ResponseCancelled { response: 1, reason }],
    );
    assert!(!names(&seen).contains(&"response.function_call_arguments.done"));
    assert_eq!(names(&seen)[4..], ["conversation.item.done", "response.output_item.done", "response.done"]);
    assert_eq!(seen[5]["item"]["status"], "incomplete");
    assert_eq!(seen[6]["response"]["output"][0]["status"], "incomplete");
}

#[test]
fn arguments_without_end_end_their_call_and_not_the_session() {
    let mut session = opened();
    let piece = "x".repeat(30_000);
    let inputs = [Input::ResponseCreated { response: 1 }, delta(&piece), delta(&piece), delta(&piece), done(&piece)];
    let seen = feed(&mut session, inputs);
    assert_eq!(names(&seen)[5..], ["conversation.item.done", "response.output_item.done"]);
    assert_eq!(seen[6]["item"]["status"], "incomplete");
    let seen = feed(&mut session, [Input::ResponseDone { response: 1 }]);
    assert_eq!(names(&seen), ["response.done"]);
    assert_eq!(session.counters().overflows, 1);
}

#[test]
fn a_text_turn_has_text_events_alone() {
    let mut session = opened();
    let create = r#"{"type":"response.create","response":{"output_modalities":["text"],"instructions":"brief","metadata":null}}"#;
    assert!(send(&mut session, create).is_empty());
    let commands = commands(&mut session);
    let [Command::CreateResponse(request)] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!((request.modality, request.instructions.as_deref()), (Modality::Text, Some("brief")));
    let text = |delta: &str| Input::ResponseText { response: 1, delta: delta.to_owned() };
    let seen = feed(
        &mut session,
        [
            Input::ResponseCreated { response: 1 },
            Input::ResponseAudioStarted { response: 1 },
            text("Hello"),
            text(" there"),
            Input::PlayoutStarted { response: 1 },
            Input::ResponseDone { response: 1 },
        ],
    );
    assert_eq!(
        names(&seen),
        [
            "response.created",
            "conversation.item.added",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    assert_eq!(seen[0]["response"]["output_modalities"], json!(["text"]));
    assert_eq!(seen[3]["part"], json!({"type": "text", "text": ""}));
    assert_eq!(seen[7]["part"], json!({"type": "text", "text": "Hello there"}));
    assert_eq!(seen[9]["item"]["content"], json!([{"type": "output_text", "text": "Hello there"}]));
}

#[test]
fn a_session_of_text_says_so_to_the_model_and_makes_text() {
    let mut session = opened();
    let update = r#"{"type":"session.update","session":{"output_modalities":["text"],"instructions":"hi","max_output_tokens":99}}"#;
    assert_eq!(names(&send(&mut session, update)), ["session.updated"]);
    let commands = commands(&mut session);
    let [Command::UpdateModel(model)] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(
        (model.modality, model.instructions.as_str(), model.max_output_tokens),
        (Modality::Text, "hi", Some(99))
    );
    assert_eq!(session.model_settings(), **model);
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }]);
    assert_eq!(seen[0]["response"]["output_modalities"], json!(["text"]));
    assert_eq!(seen[0]["response"]["max_output_tokens"], 99);
}

#[test]
fn a_text_turn_that_is_cancelled_ends_at_once_with_its_words() {
    let mut session = opened();
    send(&mut session, r#"{"type":"response.create","response":{"output_modalities":["text"]}}"#);
    let text = Input::ResponseText { response: 1, delta: "so far".to_owned() };
    let reason = CancelReason::ClientCancelled;
    let seen = feed(
        &mut session,
        [Input::ResponseCreated { response: 1 }, text, Input::ResponseCancelled { response: 1, reason }],
    );
    let last = &seen.last().unwrap()["response"];
    assert_eq!(last["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    assert_eq!(last["output"][0]["content"][0]["text"], "so far");
}

#[test]
fn usage_and_limits_are_told_with_and_behind_the_end() {
    let mut session = opened_socket();
    let usage = Usage { input_text: 10, input_audio: 20, input_image: 1, cached: 5, output_text: 3, output_audio: 4 };
    let limit = RateLimit { name: "tokens".to_owned(), limit: 100, remaining: 62, reset_ms: 1500 };
    let seen = feed(
        &mut session,
        [
            Input::ResponseCreated { response: 1 },
            Input::ResponseUsage { response: 1, usage },
            Input::RateLimits(vec![limit]),
            Input::ResponseIncomplete { response: 1, reason: IncompleteReason::MaxOutputTokens },
        ],
    );
    assert_eq!(names(&seen), ["response.created", "response.done", "rate_limits.updated"]);
    let response = &seen[1]["response"];
    assert_eq!((&response["usage"]["total_tokens"], &response["usage"]["input_tokens"]), (&json!(38), &json!(31)));
    assert_eq!(response["usage"]["output_token_details"], json!({"text_tokens": 3, "audio_tokens": 4}));
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["status_details"]["reason"], "max_output_tokens");
    assert_eq!(
        seen[2]["rate_limits"],
        json!([{"name": "tokens", "limit": 100, "remaining": 62, "reset_seconds": 1.5}])
    );
}

#[test]
fn a_response_beside_the_conversation_leaves_no_item_in_it() {
    let mut session = opened_socket();
    send(
        &mut session,
        r#"{"type":"response.create","response":{"conversation":"none","output_modalities":["text"],"input":[]}}"#,
    );
    let text = Input::ResponseText { response: 1, delta: "aside".to_owned() };
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }, text, Input::ResponseDone { response: 1 }]);
    assert!(!names(&seen).iter().any(|name| name.starts_with("conversation.")));
    assert!(seen[0]["response"]["conversation_id"].is_null());
    let committed = feed(&mut session, [Input::Committed { turn: 1 }]);
    assert!(committed[0]["previous_item_id"].is_null());
}

#[test]
fn a_response_asked_for_in_words_that_make_no_sense_is_refused_by_field() {
    let mut session = opened();
    let cases = [
        (r#"{"output_modalities":["audio","text"]}"#, "response.output_modalities"),
        (r#"{"conversation":"both"}"#, "response.conversation"),
        (r#"{"metadata":[]}"#, "response.metadata"),
        (r#"{"max_output_tokens":0}"#, "response.max_output_tokens"),
        (r#"{"tool_choice":"some"}"#, "response.tool_choice"),
        (r#"{"instructions":{}}"#, "response.instructions"),
        ("7", "response"),
    ];
    for (response, param) in cases {
        let seen = send(&mut session, &format!(r#"{{"type":"response.create","event_id":"r","response":{response}}}"#));
        let error = only_error(&seen);
        assert_eq!((&error["param"], &error["event_id"]), (&json!(param), &json!("r")));
    }
    assert_eq!(commands(&mut session), []);
}

#[test]
fn a_response_that_begins_within_another_ends_it() {
    let mut session = opened();
    let seen = feed(&mut session, [Input::ResponseCreated { response: 1 }, Input::ResponseCreated { response: 2 }]);
    assert_eq!(names(&seen), ["response.created", "response.done", "response.created"]);
    assert_eq!(seen[1]["response"]["status"], "failed");
}
