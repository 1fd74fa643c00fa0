//! What is read of a script, and what is said of one that is wrong.

use std::path::Path;

use super::super::format::{Call, Fail, Incomplete, Say, Step, Turn, When};
use super::super::load::{Script, ScriptError};

fn parse(yaml: &str) -> Result<Script, ScriptError> {
    Script::parse(Path::new("demo.yaml"), yaml)
}

fn said(text: &str, audio_ms: u32, speed: Option<f64>) -> Step {
    Step::Say(Say { text: text.to_owned(), audio_ms, speed })
}

#[test]
fn every_key_is_read_and_what_is_left_out_has_its_default() {
    let script = parse(
        r#"
turns:
  - when: {tool_result: get_weather, output: "21 C", instructions: Brief}
    hear: What is it like?
    repeat: true
    reply:
      - wait_ms: 300
      - say: Let me look.
      - say: {text: "No", audio_ms: 900, speed: 1.5}
      - call: {tool: get_weather, arguments: {city: Rome, days: 2}, call_id: call_x, pieces: 3, piece_ms: 10}
      - call: {tool: stop, arguments: "{ not json"}
      - usage: {input_text: 10, output_audio: 40}
      - fail: {code: overloaded, message: Too much., type: invalid_request_error}
  - reply: [incomplete: content_filter]
  - {when: {start: true}, reply: [hang]}
  - {when: {speech: false, text: ""}}
"#,
    )
    .unwrap();
    let usage = serde_json::from_value(serde_json::json!({"input_text": 10, "output_audio": 40})).unwrap();
    let some = |text: &str| Some(text.to_owned());
    let call = |tool: &str, arguments: &str| Call {
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        call_id: None,
        pieces: 1,
        piece_ms: 0,
    };
    let turns = [
        Turn {
            when: When {
                tool_result: some("get_weather"),
                output: some("21 c"),
                instructions: some("brief"),
                ..When::default()
            },
            hear: some("What is it like?"),
            repeat: true,
            reply: vec![
                Step::WaitMs(300),
                said("Let me look.", 12 * 65, None),
                said("No", 900, Some(1.5)),
                Step::Call(Call {
                    call_id: some("call_x"),
                    pieces: 3,
                    piece_ms: 10,
                    ..call("get_weather", r#"{"city":"Rome","days":2}"#)
                }),
                Step::Call(call("stop", "{ not json")),
                Step::Usage(usage),
                Step::Fail(Fail {
                    code: "overloaded".to_owned(),
                    message: "Too much.".to_owned(),
                    kind: "invalid_request_error".to_owned(),
                }),
            ],
        },
        Turn { reply: vec![Step::Incomplete(Incomplete::ContentFilter)], ..Turn::default() },
        Turn { when: When { start: true, ..When::default() }, reply: vec![Step::Hang], ..Turn::default() },
        Turn { when: When { speech: Some(false), text: some(""), ..When::default() }, ..Turn::default() },
    ];
    assert_eq!(*script.turns, turns);
}

#[test]
fn what_is_wrong_is_said_with_file_line_field_and_what_to_do() {
    let long = "x".repeat(16 * 1024 + 1);
    let step = |step: &str| format!("turns:\n  - reply:\n      - {step}\n");
    let cases = [
        (step("wait_ms: 700000"), 3, "`wait_ms` is 700000: choose a number from 0 to 600000"),
        (step("say: {text: a, audio_ms: 600001}"), 3, "`audio_ms` is 600001: choose a number from 0 to 600000"),
        (step("say: {text: a, speed: 0}"), 3, "`speed` is 0: choose a number from 0.1 to 100"),
        (step("say: {text: a, sped: 1}"), 3, "sped"),
        (step("say: {audio_ms: 1}"), 3, "text"),
        (step("say: [a]"), 3, "a text, or a mapping with `text`, `audio_ms` and `speed`"),
        (step(&format!("say: {long}")), 3, "`say` has 16385 bytes: shorten it to 16384"),
        (step("call: {tool: \"\"}"), 3, "`tool` is empty: give it a name"),
        (step("call: {tool: a, pieces: 0}"), 3, "`pieces` is 0: choose a number from 1 to 64"),
        (step("call: {tool: a, arguments: [1]}"), 3, "`arguments` is neither a mapping nor a text"),
        (step("shout: Hello"), 3, "shout"),
        (step("hang\n      - wait_ms: 1"), 3, "`reply` goes on behind `hang`, which ends it"),
        ("turns: []".to_owned(), 1, "`turns` is empty: write at least one turn"),
        ("turns:\n  - when: {output: a}".to_owned(), 2, "add `tool_result`"),
        ("turns:\n  - when: {start: true, speech: true}".to_owned(), 2, "nothing has come in at the `start`"),
        ("turns:\n  - when: {speach: true}".to_owned(), 2, "speach"),
        ("turns:\n  - [".to_owned(), 2, "unclosed bracket"),
        ("turn: []".to_owned(), 1, "turn"),
        (format!("turns:\n{}", "  - reply: []\n".repeat(257)), 2, "`turns` has 257 entries"),
    ];
    for (yaml, line, reason) in cases {
        let error = parse(&yaml).unwrap_err().to_string();
        assert!(error.starts_with(&format!("demo.yaml, line {line}, column ")), "{yaml}\n{error}");
        assert!(error.contains(reason), "{yaml}\n{error}");
        assert!(!error.contains('\n') && error.matches("column").count() == 1, "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_or_too_large_is_named() {
    let missing = Script::read(Path::new("/nonexistent/demo.yaml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/demo.yaml: it cannot be read: "), "{missing}");
    let file = std::env::temp_dir().join(format!("fronthaul-script-{}.yaml", std::process::id()));
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    let large = Script::read(&file).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(large.ends_with("it is larger than 1048576 bytes: split it"), "{large}");
}

#[test]
fn the_scripts_that_are_shipped_are_sound() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/scripts"));
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        Script::read(&entry.unwrap().path()).unwrap();
        count += 1;
    }
    assert!(count > 0);
}
