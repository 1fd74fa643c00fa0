//! A client of a WebSocket: its audio travels in events, and so nothing else may be on the link.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use link::proto::{
    ChannelMessage, ChannelOpened, EdgeMessage, OpenRequest, TransceiverMessage, Transport, edge_message,
    transceiver_message,
};
use serde_json::{Value, json};
use transceiver::call::{Call, CallConfig, CallOutput};
use voice::g711::{self, Law};

use super::SLOT;

pub(crate) struct Client {
    pub(crate) call: Call,
    now: Instant,
    pub(crate) events: Vec<Value>,
    pub(crate) law: Option<Law>,
}

impl Client {
    pub(crate) fn connected() -> Self {
        Self::configured(CallConfig::default(), "parrot")
    }

    /// The same, answered by a script.
    pub(crate) fn scripted(script: &str) -> Self {
        Self::configured(super::playing(script), "demo")
    }

    fn configured(config: CallConfig, model: &str) -> Self {
        let now = Instant::now();
        let request = OpenRequest { transport: Transport::Websocket.into(), ..super::request(model) };
        let call = Call::new(now, config, &request, SLOT, 1);
        let mut client = Self { call, now, events: Vec::new(), law: None };
        let opened = ChannelOpened { channel: 0, label: "oai-events".to_owned() };
        client.message(edge_message::Kind::ChannelOpened(opened));
        assert_eq!(client.names(), ["session.created"]);
        client.events.clear();
        client
    }

    fn message(&mut self, kind: edge_message::Kind) {
        self.call.handle_message(self.now, EdgeMessage { kind: Some(kind) });
        self.drain();
    }

    pub(crate) fn send(&mut self, event: &Value) {
        let data = event.to_string().into_bytes();
        self.message(edge_message::Kind::ChannelMessage(ChannelMessage { channel: 0, binary: false, data }));
    }

    pub(crate) fn append(&mut self, pcm: &[i16]) {
        let data: Vec<u8> = match self.law {
            None => pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
            Some(law) => pcm.iter().map(|&sample| g711::encode(law, sample)).collect(),
        };
        self.send(&json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(data)}));
    }

    pub(crate) fn live(&mut self, pcm: &[i16]) {
        for piece in pcm.chunks(if self.law.is_some() { 320 } else { 960 }) {
            self.append(piece);
            self.pass(40);
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while let Some(due) = self.call.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.call.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(output) = self.call.poll_output() {
            let CallOutput::Message(TransceiverMessage {
                kind: Some(transceiver_message::Kind::ChannelMessage(message)),
            }) = output
            else {
                panic!("{output:?}");
            };
            self.events.push(serde_json::from_slice(&message.data).unwrap());
        }
    }

    /// Types of events; deltas in a row are one.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        names.dedup();
        names
    }

    pub(crate) fn said(&self) -> Vec<i16> {
        let mut said = Vec::new();
        for event in self.events.iter().filter(|event| event["type"] == "response.output_audio.delta") {
            let data = STANDARD.decode(event["delta"].as_str().unwrap()).unwrap();
            match self.law {
                None => said.extend(data.as_chunks().0.iter().map(|pair| i16::from_le_bytes(*pair))),
                Some(law) => g711::decode(law, &data, &mut said),
            }
        }
        said
    }
}
