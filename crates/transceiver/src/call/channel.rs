//! The data channel that carries the API's events.

use std::collections::VecDeque;

use link::proto::{ChannelMessage, TransceiverMessage, transceiver_message};

use super::CallOutput;

/// The label that clients of the API give it.
const LABEL: &str = "oai-events";

/// Events held before the channel opens: a spoken turn is 18 events, so 14 turns. The first, `session.created`, is never
/// given up, then the oldest go: a client that comes that late wants to know how things stand, not how they began.
const MAX_HELD: usize = 256;

/// And their bytes: 256 KiB is the largest one event (`session.updated`) can be, four of them.
const MAX_HELD_BYTES: usize = 1 << 20;

/// Where events go.
#[derive(Debug, Default)]
pub(super) struct Channel {
    state: State,
    held: VecDeque<String>,
    held_bytes: usize,
    dropped: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    Open(u32),
    Closed,
}

impl Channel {
    /// A channel opened; the first of the right label carries the events, beginning with those held.
    pub(super) fn opened(&mut self, channel: u32, label: &str, outputs: &mut VecDeque<CallOutput>) {
        if label != LABEL || matches!(self.state, State::Open(_)) {
            return;
        }
        self.state = State::Open(channel);
        self.held_bytes = 0;
        outputs.extend(self.held.drain(..).map(|event| message(channel, event)));
    }

    pub(super) fn closed(&mut self, channel: u32) {
        if self.carries_events(channel) {
            self.state = State::Closed;
        }
    }

    pub(super) fn carries_events(&self, channel: u32) -> bool {
        self.state == State::Open(channel)
    }

    /// Sends an event, or holds it until it can be sent. One event is one message: it is not split.
    pub(super) fn send(&mut self, event: String, outputs: &mut VecDeque<CallOutput>) {
        match self.state {
            State::Open(channel) => outputs.push_back(message(channel, event)),
            State::Closed => self.dropped += 1,
            State::Waiting => {
                self.held_bytes += event.len();
                self.held.push_back(event);
                while self.held.len() > MAX_HELD || (self.held_bytes > MAX_HELD_BYTES && self.held.len() > 1) {
                    let given_up = self.held.remove(1);
                    self.held_bytes -= given_up.map_or(0, |event| event.len());
                    self.dropped += 1;
                }
            }
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn message(channel: u32, event: String) -> CallOutput {
    let message = ChannelMessage { channel, binary: false, data: event.into_bytes() };
    CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(outputs: &mut VecDeque<CallOutput>) -> Vec<String> {
        let text = |output| match output {
            CallOutput::Message(TransceiverMessage {
                kind: Some(transceiver_message::Kind::ChannelMessage(message)),
            }) => String::from_utf8(message.data).unwrap(),
            other => panic!("{other:?}"),
        };
        outputs.drain(..).map(text).collect()
    }

    #[test]
    fn events_wait_for_the_channel_and_keep_their_order() {
        let (mut channel, mut outputs) = (Channel::default(), VecDeque::new());
        channel.send("created".to_owned(), &mut outputs);
        channel.send("two".to_owned(), &mut outputs);
        channel.opened(3, "chat", &mut outputs);
        assert!(outputs.is_empty());
        channel.opened(1, "oai-events", &mut outputs);
        channel.send("three".to_owned(), &mut outputs);
        assert_eq!(texts(&mut outputs), ["created", "two", "three"]);
    }

    #[test]
    fn what_is_held_is_bounded_and_the_first_event_stays() {
        let (mut channel, mut outputs) = (Channel::default(), VecDeque::new());
        for n in 0..300 {
            channel.send(n.to_string(), &mut outputs);
        }
        channel.send("x".repeat(MAX_HELD_BYTES - 1), &mut outputs);
        channel.opened(1, "oai-events", &mut outputs);
        let sent = texts(&mut outputs);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0], "0");
        assert_eq!(channel.dropped(), 299);
    }

    #[test]
    fn a_closed_channel_takes_no_events_and_another_may_open() {
        let (mut channel, mut outputs) = (Channel::default(), VecDeque::new());
        channel.opened(1, "oai-events", &mut outputs);
        channel.closed(2);
        assert!(channel.carries_events(1));
        channel.closed(1);
        channel.send("lost".to_owned(), &mut outputs);
        channel.opened(5, "oai-events", &mut outputs);
        channel.send("heard".to_owned(), &mut outputs);
        assert_eq!(texts(&mut outputs), ["heard"]);
        assert_eq!(channel.dropped(), 1);
    }
}
