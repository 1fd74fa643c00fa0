//! What a call tells its backend, and what a client tells its call.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use link::ids::Slot;
use link::proto::{
    ChannelMessage, ChannelOpened, Closed, EdgeMessage, OpenRequest, TransceiverMessage, edge_message,
    transceiver_message,
};
use voice::{BackendInput, BackendOutput};

use super::dialogue::Dialogue;
use super::{Call, CallConfig, CallOutput, Mode};
use crate::backend::Backend;

/// A backend that notes what it is told.
#[derive(Clone, Default)]
struct Spy(Arc<Mutex<Vec<BackendInput>>>);

impl Backend for Spy {
    fn handle(&mut self, input: BackendInput) {
        self.0.lock().unwrap().push(input);
    }

    fn poll(&mut self, _: Instant) -> Option<BackendOutput> {
        None
    }
}

fn spied(now: Instant) -> (Call, Spy) {
    let (spy, config) = (Spy::default(), CallConfig::default());
    let mut call = Call::new(now, config.clone(), &OpenRequest::default(), Slot(1), 1);
    let turn = call.api.turn_detection();
    call.mode = Mode::Dialogue(Box::new(Dialogue::new(now, config.voice, turn, Box::new(spy.clone()))));
    (call, spy)
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

/// The client's text, and the texts that answer it.
fn say(call: &mut Call, now: Instant, text: &str) -> Vec<String> {
    let message = ChannelMessage { channel: 1, binary: false, data: text.into() };
    call.handle_message(now, EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) });
    let text = |output| match output {
        CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }) => {
            String::from_utf8(message.data).ok()
        }
        _ => None,
    };
    std::iter::from_fn(|| call.poll_output()).filter_map(text).collect()
}

#[test]
fn a_clients_playout_delay_reaches_its_conversation_and_one_that_is_none_changes_nothing() {
    let now = Instant::now();
    let (mut call, _) = spied(now);
    let opened = ChannelOpened { channel: 1, label: "oai-events".to_owned() };
    call.handle_message(now, EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) });
    let delay = |call: &Call| match &call.mode {
        Mode::Dialogue(dialogue) => dialogue.client_delay_us(),
        Mode::Loopback(_) => None,
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
