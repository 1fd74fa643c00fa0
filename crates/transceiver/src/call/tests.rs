//! What a call tells its backend, and what a client tells its call.

mod lanes;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use link::datagram::{Codec, MediaUp};
use link::ids::Slot;
use link::proto::{
    ChannelMessage, ChannelOpened, Close, Closed, EdgeMessage, OpenRequest, TransceiverMessage, edge_message,
    transceiver_message,
};
use realtime::Dialect;
use voice::{BackendInput, BackendOutput, ItemKind, ToolCall};

use super::dialogue::Dialogue;
use super::words::turn_config;
use super::{Call, CallConfig, CallOutput, Mode};
use crate::backend::{Backend, Wanted};

/// A backend that notes what it is told.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<BackendInput>>>);

impl Backend for Spy {
    fn handle(&mut self, input: BackendInput) {
        self.0.lock().unwrap().push(input);
    }

    fn poll(&mut self, _: Instant, _: Wanted) -> Option<BackendOutput> {
        None
    }
}

/// A call whose backend is this one.
fn seated(now: Instant, config: CallConfig, backend: impl Backend + 'static) -> Call {
    let mut call = Call::new(now, config.clone(), &OpenRequest::default(), Slot(1), 1);
    let turn = turn_config(call.api.turn_detection());
    let config = voice::Config { turn, ..config.voice };
    call.mode = Mode::Dialogue(Box::new(Dialogue::new(now, config, Box::new(backend))));
    call
}

fn spied(now: Instant) -> (Call, Spy) {
    let spy = Spy::default();
    (seated(now, CallConfig::default(), spy.clone()), spy)
}

#[test]
fn the_backend_is_told_once_that_the_session_is_over_whoever_ends_it() {
    let now = Instant::now();
    let closed = || EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed::default())) };
    let ends: [fn(&mut Call, Instant, EdgeMessage); 2] =
        [|call, now, closed| call.handle_message(now, closed), |call, _, _| call.close("drain")];
    for end in ends {
        let (mut call, spy) = spied(now);
        end(&mut call, now, closed());
        call.close("again");
        call.handle_message(now, closed());
        assert_eq!(*spy.0.lock().unwrap(), [BackendInput::Close]);
        let ended = std::iter::from_fn(|| call.poll_output()).filter(|output| *output == CallOutput::Ended).count();
        assert_eq!(ended, 1);
    }
}

#[test]
fn a_call_that_ends_because_this_side_stops_may_come_again() {
    let now = Instant::now();
    let (mut call, _) = spied(now);
    call.close("transceiver stopping");
    let close = std::iter::from_fn(|| call.poll_output()).find_map(|output| match output {
        CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::Close(close)) }) => Some(close),
        _ => None,
    });
    assert_eq!(close, Some(Close { code: 1012, reason: "transceiver stopping".to_owned() }));
}

#[test]
fn a_key_of_the_telephone_reaches_the_backend_and_the_client_once() {
    let now = Instant::now();
    let (mut call, spy) = spied(now);
    open_channel(&mut call, now);
    std::iter::from_fn(|| call.poll_output()).for_each(drop);
    let mut told = Vec::new();
    for (seq, payload) in [(1, [5, 10, 1, 64]), (2, [5, 10, 3, 32]), (3, [5, 0x8a, 3, 32]), (4, [5, 0x8a, 3, 32])] {
        let media = MediaUp {
            slot: Slot(1),
            epoch: 0,
            codec: Codec::TelephoneEvent,
            marker: seq == 1,
            seq,
            rtp_timestamp: 9600,
            audio_level: None,
            age_us: 0,
            payload: &payload,
        };
        call.handle_media(now, &media);
        told.extend(std::iter::from_fn(|| call.poll_output()).filter_map(|output| event_of(&output)));
    }
    assert_eq!(*spy.0.lock().unwrap(), [BackendInput::Connected, BackendInput::Key { key: '5', media_time: 0 }]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("input_audio_buffer.dtmf_event_received"), "{told:?}");
}

fn open_channel(call: &mut Call, now: Instant) {
    let opened = ChannelOpened { channel: 1, label: "oai-events".to_owned() };
    call.handle_message(now, EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) });
}

/// The client's text, and the texts that answer it.
fn say(call: &mut Call, now: Instant, text: &str) -> Vec<String> {
    let message = ChannelMessage { channel: 1, binary: false, data: text.into() };
    call.handle_message(now, EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) });
    std::iter::from_fn(|| call.poll_output()).filter_map(|output| event_of(&output)).collect()
}

/// What the client is told.
fn event_of(output: &CallOutput) -> Option<String> {
    match output {
        CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }) => {
            String::from_utf8(message.data.clone()).ok()
        }
        _ => None,
    }
}

#[test]
fn a_clients_playout_delay_reaches_its_conversation_and_one_that_is_none_changes_nothing() {
    let now = Instant::now();
    let (mut call, _) = spied(now);
    open_channel(&mut call, now);
    let delay = |call: &Call| match &call.mode {
        Mode::Dialogue(dialogue) => dialogue.client_delay_us(),
        _ => None,
    };
    say(&mut call, now, r#"{"type":"session.update","session":{}}"#);
    assert_eq!(delay(&call), None);
    assert!(say(&mut call, now, r#"{"type":"fronthaul.playout_delay","delay_ms":85}"#).is_empty());
    assert_eq!(delay(&call), Some(85_000));
    let later = now + std::time::Duration::from_secs(1);
    let answers = say(&mut call, later, r#"{"type":"fronthaul.playout_delay","delay_ms":1e9}"#);
    assert!(
        matches!(&answers[..], [error] if error.contains("'delay_ms' is not a number from 0 to 2000.")),
        "{answers:?}"
    );
    assert_eq!(delay(&call), Some(85_000));
}

/// A backend that writes, calls a tool, and goes on when it has the result.
#[derive(Clone, Default)]
struct Clerk {
    told: Arc<Mutex<Vec<BackendInput>>>,
    outputs: Arc<Mutex<VecDeque<BackendOutput>>>,
}

impl Backend for Clerk {
    fn handle(&mut self, input: BackendInput) {
        if let BackendInput::CreateResponse { response, .. } = &input {
            let response = *response;
            let is_result = |told: &BackendInput| matches!(told, BackendInput::Item(item) if matches!(item.kind, ItemKind::ToolResult { .. }));
            let knows = self.told.lock().unwrap().iter().any(is_result);
            let tool = |arguments: &str, is_final| {
                let (call_id, name) = ("call_1".to_owned(), "weather".to_owned());
                BackendOutput::ToolCall {
                    response,
                    call: ToolCall { call_id, name, arguments: arguments.to_owned(), is_final },
                }
            };
            let text = BackendOutput::Text { response, delta: "It rains.".to_owned(), words: Vec::new() };
            let made = if knows { vec![text] } else { vec![tool("{", false), tool("{}", true)] };
            self.outputs.lock().unwrap().extend(made);
            self.outputs.lock().unwrap().push_back(BackendOutput::ResponseDone { response });
        }
        self.told.lock().unwrap().push(input);
    }

    fn poll(&mut self, _: Instant, _: Wanted) -> Option<BackendOutput> {
        self.outputs.lock().unwrap().pop_front()
    }
}

#[test]
fn a_tool_call_goes_to_the_client_and_its_result_to_the_backend_that_answers_in_text() {
    let (now, clerk, config) = (Instant::now(), Clerk::default(), CallConfig::default());
    let mut call = seated(now, config, clerk.clone());
    open_channel(&mut call, now);
    say(
        &mut call,
        now,
        r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Rain?"}]}}"#,
    );
    let create = r#"{"type":"response.create","response":{"output_modalities":["text"]}}"#;
    let called = say(&mut call, now, create).join("\n");
    assert!(called.contains("response.function_call_arguments.done"), "{called}");
    say(
        &mut call,
        now,
        r#"{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"call_1","output":"yes"}}"#,
    );
    let answered = say(&mut call, now, create).join("\n");
    assert!(answered.contains(r#""text":"It rains.""#) && answered.contains("response.output_text.done"), "{answered}");
    let told = clerk.told.lock().unwrap();
    let text_only =
        |told: &BackendInput| matches!(told, BackendInput::CreateResponse { request, .. } if request.text_only);
    assert_eq!(told.iter().filter(|told| text_only(told)).count(), 2);
    let kinds: Vec<_> = told
        .iter()
        .filter_map(|told| if let BackendInput::Item(item) = told { Some(item.kind.clone()) } else { None })
        .collect();
    let (first, second) = (voice::ResponseId(1), voice::ResponseId(2));
    let call_id = "call_1".to_owned();
    assert_eq!(
        kinds,
        [
            ItemKind::Message { role: voice::Role::User, text: "Rain?".to_owned() },
            ItemKind::Output { response: first, call_id: Some(call_id.clone()) },
            ItemKind::ToolResult { call_id, output: "yes".to_owned() },
            ItemKind::Output { response: second, call_id: None },
        ]
    );
}

#[test]
fn a_call_whose_time_is_up_tells_the_client_and_ends() {
    let now = Instant::now();
    let (mut call, _) = spied(now);
    open_channel(&mut call, now);
    std::iter::from_fn(|| call.poll_output()).for_each(drop);
    let due = now + realtime::LIFETIME;
    assert!(call.poll_timeout().is_some_and(|timeout| timeout <= due));
    call.handle_timeout(due);
    let outputs: Vec<_> = std::iter::from_fn(|| call.poll_output()).collect();
    let told: Vec<_> = outputs.iter().filter_map(event_of).collect();
    assert!(told.iter().any(|event| event.contains("session_expired")), "{told:?}");
    assert_eq!(outputs.last(), Some(&CallOutput::Ended));
}
