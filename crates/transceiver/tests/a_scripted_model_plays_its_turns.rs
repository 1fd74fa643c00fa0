//! The model `script` over both kinds of calls: its tool calls, failures and words are the API's events.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use serde_json::{Value, json};
use support::socket::Client;
use support::{Bench, speech};

const WEATHER: &str = r#"
turns:
  - when: {speech: true}
    hear: What is the weather?
    reply:
      - say: {text: "Let me look.", audio_ms: 400}
      - call: {tool: get_weather, arguments: {city: Rome}, pieces: 2}
      - usage: {input_audio: 25, output_text: 12, output_audio: 16}
  - when: {tool_result: get_weather, output: sunny}
    reply: [say: {text: "It is sunny.", audio_ms: 600}]
  - when: {text: fail}
    reply: [fail: {code: rate_limit_exceeded, message: Too many tokens.}]
  - when: {text: short}
    reply: [{say: {text: "So", audio_ms: 200}}, {incomplete: max_output_tokens}]
  - reply: [say: {text: one two three four five six seven eight nine ten, audio_ms: 8000}]
"#;

const CREATE: &str = r#"{"type":"response.create"}"#;

fn write(text: &str) -> Value {
    json!({"type": "conversation.item.create",
           "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}})
}

fn result(call_id: &Value) -> Value {
    json!({"type": "conversation.item.create",
           "item": {"type": "function_call_output", "call_id": call_id, "output": "{\"sky\":\"sunny\"}"}})
}

/// Names of events; those in a row are one. Sound leaves at its own pace.
fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["type"].as_str().unwrap());
    let mut names: Vec<_> =
        names.filter(|name| !["response.output_audio.delta", "output_audio_buffer.started"].contains(name)).collect();
    names.dedup();
    names
}

fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|event| event["type"] == name).unwrap_or_else(|| panic!("no {name} in {:?}", names(events)))
}

/// The calls of one turn, whatever carries the audio.
const ITEMS: [&str; 10] = [
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.output_audio_transcript.done",
    "response.output_audio.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
];

fn assert_called(events: &[Value]) {
    let told = names(events);
    let from = told.iter().position(|name| *name == ITEMS[0]).unwrap();
    assert_eq!(told[from..from + ITEMS.len()], ITEMS);
    let deltas = events.iter().filter(|event| event["type"] == ITEMS[0]);
    let pieces: Vec<_> = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces, [r#"{"city""#, r#":"Rome"}"#]);
    let done = find(events, ITEMS[1]);
    assert_eq!((&done["name"], &done["arguments"]), (&json!("get_weather"), &json!(r#"{"city":"Rome"}"#)));
    let response = &find(events, "response.done")["response"];
    assert_eq!((&response["status"], &response["usage"]["total_tokens"]), (&json!("completed"), &json!(53)));
    assert_eq!(response["output"][0]["content"][0]["transcript"], "Let me look.");
    assert_eq!(response["output"][1]["call_id"], done["call_id"]);
}

impl Drivable for Bench {
    fn tell(&mut self, event: &Value) {
        self.client(&event.to_string());
    }

    fn taken(&mut self) -> Vec<Value> {
        self.run_ms(1200);
        std::mem::take(&mut self.events).into_iter().map(|(_, event)| event).collect()
    }
}

impl Drivable for Client {
    fn tell(&mut self, event: &Value) {
        self.send(event);
    }

    fn taken(&mut self) -> Vec<Value> {
        self.pass(1200);
        std::mem::take(&mut self.events)
    }
}

trait Drivable {
    fn tell(&mut self, event: &Value);
    /// What came of it within a second.
    fn taken(&mut self) -> Vec<Value>;
}

fn asked(call: &mut impl Drivable, text: &str) -> Vec<Value> {
    call.tell(&write(text));
    call.tell(&serde_json::from_str(CREATE).unwrap());
    call.taken()
}

fn assert_answered(call: &mut impl Drivable, call_id: &Value) {
    call.tell(&result(call_id));
    call.tell(&serde_json::from_str(CREATE).unwrap());
    let events = call.taken();
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "It is sunny.");
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

fn assert_ends(call: &mut impl Drivable) {
    let events = asked(call, "fail");
    let error = json!({"type": "server_error", "code": "rate_limit_exceeded", "message": "Too many tokens."});
    let response = &find(&events, "response.done")["response"];
    assert_eq!(response["status_details"], json!({"type": "failed", "error": error}));
    assert!(!names(&events).contains(&"error"), "{:?}", names(&events));
    let events = asked(call, "short");
    let response = &find(&events, "response.done")["response"];
    assert_eq!(response["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["content"][0]["transcript"], "So");
}

#[test]
fn a_spoken_turn_over_webrtc_calls_a_tool_and_its_result_is_spoken() {
    let mut bench = Bench::scripted(WEATHER);
    bench.tell(
        &json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"transcription": {}}}}}),
    );
    bench.say(&[vec![0; 8000], speech::speech(1200, 1)].concat());
    bench.run_ms(2500);
    let events = bench.taken();
    let heard = find(&events, "conversation.item.input_audio_transcription.completed");
    assert_eq!(heard["transcript"], "What is the weather?");
    assert_eq!(heard["item_id"], find(&events, "input_audio_buffer.committed")["item_id"]);
    assert_called(&events);
    bench.wire.clear();
    assert_answered(&mut bench, &find(&events, ITEMS[1])["call_id"]);
    assert!((25..=35).contains(&bench.wire.len()), "600 ms are spoken: {}", bench.wire.len());
    assert_ends(&mut bench);
}

#[test]
fn a_spoken_turn_over_a_websocket_calls_a_tool_and_its_result_is_spoken() {
    let mut client = Client::scripted(WEATHER);
    client.live(&[vec![0; 12_000], voice::babble::speech(24_000, 1400, 1), vec![0; 24_000]].concat());
    let events = client.taken();
    assert_called(&events);
    assert_answered(&mut client, &find(&events, ITEMS[1])["call_id"]);
    assert_ends(&mut client);
}

#[test]
fn a_scripted_answer_that_is_interrupted_ends_where_it_was_heard() {
    let mut bench = Bench::scripted(WEATHER);
    bench.client(CREATE);
    bench.run_ms(3300);
    assert!(bench.event("output_audio_buffer.started").is_some(), "{:?}", bench.names());
    bench.say(&speech::speech(800, 2));
    bench.run_ms(800);
    let cut = bench.event("conversation.item.truncated").unwrap().1.clone();
    let ms = cut["audio_end_ms"].as_u64().unwrap();
    assert!((3200..3700).contains(&ms), "{ms}");
    let retrieve = json!({"type": "conversation.item.retrieve", "item_id": cut["item_id"]});
    bench.client(&retrieve.to_string());
    // 48 letters in 8 s: "four" ends at 3.0 s, "five" at 3.8 s.
    let item = &bench.event("conversation.item.retrieved").unwrap().1["item"];
    assert_eq!(item["content"][0]["transcript"], "one two three four");
}

#[test]
fn a_text_response_is_words_alone_and_one_beside_the_conversation_leaves_none() {
    let mut client = Client::scripted(WEATHER);
    client.send(&write("short"));
    client
        .send(&json!({"type": "response.create", "response": {"output_modalities": ["text"], "conversation": "none"}}));
    let events = client.taken();
    let response = &find(&events, "response.done")["response"];
    assert_eq!(response["output"][0]["content"], json!([{"type": "output_text", "text": "So"}]));
    assert!(response["conversation_id"].is_null());
    let added = events.iter().filter(|event| event["type"] == "conversation.item.added").count();
    assert_eq!(added, 1, "the user's message alone");
}

#[test]
fn a_model_that_speaks_first_does_so_when_the_user_is_there() {
    let script = "turns: [{when: {start: true}, reply: [say: Hello]}]";
    let mut client = Client::scripted(script);
    client.pass(1000);
    assert!(client.events.is_empty(), "{:?}", client.names());
    client.append(&[0; 480]);
    assert_eq!(find(&client.taken(), "response.output_audio_transcript.done")["transcript"], "Hello");
    let mut bench = Bench::scripted(script);
    let events = bench.taken();
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "Hello");
    find(&events, "output_audio_buffer.started");
}

#[test]
fn a_model_that_hangs_is_given_up_with_a_code() {
    let mut client = Client::scripted("turns: [{reply: [hang]}]");
    client.send(&serde_json::from_str(CREATE).unwrap());
    client.pass(11_000);
    let response = &find(&client.events, "response.done")["response"];
    assert_eq!(response["status_details"]["error"]["code"], "backend_timeout");
}
