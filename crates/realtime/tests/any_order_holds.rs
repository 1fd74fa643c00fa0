//! Whatever clients, models and edges say in whatever order: the promises of the dialect hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use realtime::{
    CancelReason, Command, Config, CreateRefusal, Dialect, Failure, IncompleteReason, Input, Intent, MAX_EVENT_BYTES,
    Session, Transport, Waited,
};
use serde_json::{Value, json};
use support::config;

/// xorshift64*: enough to choose among events.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// What was promised, checked event by event.
#[derive(Default)]
struct Witness {
    /// By id: whether it is done.
    responses: BTreeMap<String, bool>,
    /// By id: whether it is done. Of the conversation, and of responses.
    items: BTreeMap<String, bool>,
    outputs: BTreeMap<String, bool>,
    parts: BTreeMap<String, bool>,
    deleted: BTreeSet<String>,
    ids: Vec<String>,
    seen: usize,
}

impl Witness {
    fn see(&mut self, text: &str) {
        assert!(text.len() <= MAX_EVENT_BYTES);
        let event: Value = serde_json::from_str(text).unwrap();
        self.seen += 1;
        assert!(event["event_id"].as_str().unwrap().starts_with("event_"));
        let name = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = name(&event["type"]);
        match kind.as_str() {
            "response.created" => {
                let response = name(&event["response"]["id"]);
                assert!(self.responses.values().all(|done| *done), "two responses at a time");
                assert_eq!(self.responses.insert(response, false), None);
            }
            "response.done" => {
                assert_ne!(event["response"]["status"], "in_progress");
                assert_eq!(self.responses.insert(name(&event["response"]["id"]), true), Some(false));
                for item in event["response"]["output"].as_array().unwrap() {
                    assert!(self.outputs[item["id"].as_str().unwrap()]);
                }
            }
            "conversation.item.added" => {
                let item = name(&event["item"]["id"]);
                if self.deleted.remove(&item) {
                    self.items.remove(&item);
                }
                assert_eq!(self.items.insert(item.clone(), false), None, "{item} again");
                self.ids.push(item);
            }
            "conversation.item.done" => {
                let item = name(&event["item"]["id"]);
                assert_eq!(self.items.insert(item, true), Some(false));
                assert_ne!(event["item"]["status"], "in_progress");
            }
            "response.output_item.added" => {
                assert!(!self.responses[event["response_id"].as_str().unwrap()]);
                assert_eq!(self.outputs.insert(name(&event["item"]["id"]), false), None);
            }
            "response.output_item.done" => {
                assert_eq!(self.outputs.insert(name(&event["item"]["id"]), true), Some(false));
            }
            "response.content_part.added" => {
                assert!(!self.outputs[event["item_id"].as_str().unwrap()]);
                assert_eq!(self.parts.insert(name(&event["item_id"]), false), None);
            }
            "response.content_part.done" => {
                assert_eq!(self.parts.insert(name(&event["item_id"]), true), Some(false));
            }
            "response.output_text.delta" | "response.output_audio.delta" | "response.output_audio_transcript.delta" => {
                assert!(!self.parts[event["item_id"].as_str().unwrap()], "{kind} outside of its part");
            }
            "response.function_call_arguments.delta" | "response.function_call_arguments.done" => {
                assert!(!self.outputs[event["item_id"].as_str().unwrap()], "{kind} outside of its item");
            }
            "conversation.item.deleted" => {
                self.deleted.insert(name(&event["item_id"]));
            }
            "conversation.item.truncated" => assert!(self.items.contains_key(event["item_id"].as_str().unwrap())),
            _ => {}
        }
    }

    fn at_the_end(&self) {
        for (what, all) in
            [("responses", &self.responses), ("items", &self.items), ("outputs", &self.outputs), ("parts", &self.parts)]
        {
            let open: Vec<_> = all.iter().filter(|(_, done)| !**done).collect();
            assert!(open.is_empty(), "{what} never done: {open:?}");
        }
    }
}

fn client_event(dice: &mut Dice, known: &[String]) -> String {
    let mut ids: Vec<&str> = known.iter().rev().take(5).map(String::as_str).collect();
    ids.extend(["nobody", "root", "mine"]);
    let (one, other) = (*dice.pick(&ids), *dice.pick(&ids));
    let turn = [json!(null), json!({"type": "semantic_vad"}), json!({"threshold": 0.2}), json!(7)];
    let format = [json!({"type": "audio/pcm"}), json!({"type": "audio/pcmu"}), json!(null), json!("pcm16")];
    let modalities = [json!(["text"]), json!(["audio"]), json!([]), json!(null)];
    let audio = *dice.pick(&["", "AAAA", "AAAAAAAA", "=", "AAA"]);
    let event = match dice.below(16) {
        0 => json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": dice.pick(&turn)}}}}),
        1 => json!({"type": "session.update", "session": {"audio": {"output": {"format": dice.pick(&format)}}}}),
        2 => json!({"type": "session.update", "session": {"output_modalities": dice.pick(&modalities), "x": other}}),
        3 => json!({"type": "input_audio_buffer.append", "audio": audio}),
        4 => json!({"type": "input_audio_buffer.commit"}),
        5 => json!({"type": "input_audio_buffer.clear"}),
        6 => json!({"type": "conversation.item.create", "previous_item_id": other,
                    "item": {"id": one, "type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}}),
        7 => {
            json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": ""}})
        }
        8 => json!({"type": "conversation.item.retrieve", "item_id": one}),
        9 | 10 => {
            json!({"type": "conversation.item.truncate", "item_id": one, "content_index": 0, "audio_end_ms": dice.below(3000)})
        }
        11 => json!({"type": "conversation.item.delete", "item_id": one}),
        12 => json!({"type": "response.create", "response": {"output_modalities": dice.pick(&modalities)}}),
        13 => json!({"type": "response.create", "response": {"conversation": dice.pick(&["none", "auto", "both"])}}),
        14 => json!({"type": "response.cancel"}),
        _ => json!({"type": *dice.pick(&["output_audio_buffer.clear", "unheard.of", "fronthaul.playout_delay"])}),
    };
    let mut text = event.to_string();
    if dice.below(20) == 0 {
        text.truncate(usize::try_from(dice.below(text.len() as u64)).unwrap());
    }
    text
}

fn call_input(dice: &mut Dice, turn: u64, response: u64) -> Input {
    let reason = *dice.pick(&[CancelReason::TurnDetected, CancelReason::ClientCancelled]);
    let (call_id, name) = (dice.pick(&["a", "b", "c", ""]).to_string(), "f".to_owned());
    let text = dice.pick(&["", "word ", "{\"a\":1}", "\u{0}"]).to_string();
    let audio_ms = dice.below(100_000);
    match dice.below(26) {
        0 => Input::SpeechStarted { turn, audio_start_ms: audio_ms },
        1 => Input::SpeechStopped { turn, audio_end_ms: audio_ms },
        2 | 3 => Input::Committed { turn },
        4 => Input::IdleTimeout { turn, audio_start_ms: 0, audio_end_ms: audio_ms },
        5 => Input::UserTranscript { turn, delta: text },
        6 => Input::UserTranscriptDone { turn, transcript: text },
        7 => Input::UserTranscriptFailed { turn, message: text },
        8 | 9 => Input::ResponseCreated { response },
        10 => Input::ResponseAudioStarted { response },
        11 => Input::ResponseAudio { response, data: vec![0; usize::try_from(dice.below(3000) * 2).unwrap()] },
        12 | 13 => Input::ResponseText { response, delta: text },
        14 => Input::ToolCallDelta { response, call_id, name, delta: text },
        15 => Input::ToolCallDone { response, call_id, name, arguments: text },
        16 => Input::ResponseDone { response },
        17 => Input::ResponseIncomplete { response, reason: IncompleteReason::ContentFilter },
        18 => Input::ResponseCancelled { response, reason },
        19 => Input::ResponseFailed {
            response,
            failure: Failure { kind: text.clone(), code: text.clone(), message: text },
        },
        20 => Input::PlayoutStarted { response },
        21 => Input::PlayoutStopped { response },
        22 => Input::PlayoutCleared { response },
        23 => Input::Truncated {
            response,
            audio_end_ms: audio_ms,
            transcript: audio_ms.is_multiple_of(2).then_some(text),
        },
        24 => Input::ReplyOver { response },
        _ => Input::RateLimits(Vec::new()),
    }
}

fn drain(session: &mut Session, witness: &mut Witness) {
    while let Some(event) = session.poll_event() {
        witness.see(&event);
    }
}

fn run(seed: u64, transport: Transport, intent: Intent) -> usize {
    let (mut dice, mut witness, mut now) = (Dice(seed), Witness::default(), Instant::now());
    let mut session = Session::new(now, &Config { seed, transport, intent, ..config() });
    let (mut turn, mut response) = (1, 1);
    for _ in 0..400 {
        now += Duration::from_millis(50);
        if dice.below(3) == 0 {
            let text = client_event(&mut dice, &witness.ids);
            session.handle_client(now, &text);
        } else {
            turn += u64::from(dice.below(8) == 0);
            response += u64::from(dice.below(8) == 0);
            let back = dice.below(3).min(turn).min(response);
            session.handle(call_input(&mut dice, turn - back, response - back));
        }
        while let Some(command) = session.poll_command() {
            match (command, dice.below(2)) {
                (Command::CreateResponse(_), 0) => session.handle(Input::CreateRefused(CreateRefusal::Active)),
                (Command::CreateResponse(_), _) => {
                    response += 1;
                    session.handle(Input::ResponseCreated { response });
                }
                (Command::Cancel, 0) => session.handle(Input::CancelRefused),
                (Command::CommitInput, 0) => session.handle(Input::CommitRefused),
                (Command::CommitInput, _) => {
                    session.handle(Input::RequestWaits);
                    let waited = [Waited::Done, Waited::CommitRefused, Waited::CreateRefused(CreateRefusal::Active)];
                    waited
                        .into_iter()
                        .take(usize::try_from(dice.below(4)).unwrap())
                        .for_each(|waited| session.handle(Input::Waited(waited)));
                }
                (Command::AppendInput { .. }, 0) => session.handle(Input::AppendRefused),
                _ => {}
            }
        }
        drain(&mut session, &mut witness);
        assert!(session.held_bytes() < 4 << 20);
    }
    // The call tells how each of them ended.
    for response in 0..=response {
        session.handle(Input::ResponseDone { response });
        session.handle(Input::ReplyOver { response });
    }
    drain(&mut session, &mut witness);
    assert_eq!(session.closing(), None);
    witness.at_the_end();
    witness.seen
}

#[test]
fn promises_hold_in_any_order_of_events() {
    for transport in [Transport::WebRtc, Transport::WebSocket] {
        for intent in [Intent::Conversation, Intent::Transcription] {
            let mut seen = 0;
            for seed in 1..=60 {
                let ran = std::panic::catch_unwind(|| run(seed, transport, intent));
                seen += ran.unwrap_or_else(|_| panic!("seed {seed}, {transport:?}, {intent:?}"));
            }
            assert!(seen > 5_000, "the dice said too little: {seen} events");
        }
    }
}
