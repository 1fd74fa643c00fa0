//! One call in virtual time: a microphone, an edge that paces behind a link with delay, and a client that reads events.
#![allow(dead_code, reason = "each test file uses a part of the bench")]

pub(crate) mod onnx;
pub(crate) mod socket;
pub(crate) mod speech;

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use link::datagram::{Codec, MediaUp, PlayoutReport};
use link::ids::{Slot, UtteranceId};
use link::proto::playout_effect::Kind as Effect;
use link::proto::{
    ChannelMessage, ChannelOpened, EdgeMessage, OpenRequest, PlayoutEffect, TransceiverMessage, edge_message,
    transceiver_message,
};
use serde_json::Value;
use transceiver::call::{Call, CallConfig, CallOutput};
use transceiver::{Models, Script};
use voice::opus::{Decoder, Encoder, EncoderConfig, MAX_PACKET_BYTES};

const FRAME: Duration = Duration::from_millis(20);
const REPORT: Duration = Duration::from_millis(100);
/// One way.
const LINK: Duration = Duration::from_millis(10);
pub(crate) const CHANNEL: u32 = 1;
pub(crate) const SLOT: Slot = Slot(5);

pub(crate) struct Bench {
    pub(crate) call: Call,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    /// What the client was told, with the time in ms at which it left the call.
    pub(crate) events: Vec<(u64, Value)>,
    /// Every other message, likewise.
    pub(crate) messages: Vec<(u64, transceiver_message::Kind)>,
    /// Packets on the wire to the client.
    pub(crate) wire: Vec<(u64, Vec<u8>)>,
    pub(crate) ended: bool,
    encoder: Encoder,
    microphone: VecDeque<i16>,
    next_packet: Instant,
    seq: u16,
    to_edge: VecDeque<(Instant, CallOutput)>,
    to_call: VecDeque<(Instant, EdgeMessage)>,
    playing: Option<Playing>,
    paused: bool,
    next_frame: Instant,
    next_report: Instant,
    flushed: u32,
}

struct Playing {
    utterance: u32,
    item: String,
    queue: VecDeque<(u32, Vec<u8>)>,
    sent: u64,
    ended: bool,
}

/// The model `demo` plays the script.
pub(crate) fn playing(script: &str) -> CallConfig {
    let script = Script::parse(Path::new("demo.yaml"), script).unwrap();
    CallConfig { models: Models::with_scripts([("demo".to_owned(), script)]), ..CallConfig::default() }
}

pub(crate) fn request(model: &str) -> OpenRequest {
    OpenRequest { session: 77, epoch: 1, model: model.to_owned(), created_at: 1_700_000_000, ..OpenRequest::default() }
}

impl Bench {
    pub(crate) fn new(model: &str) -> Self {
        Self::asked(&request(model))
    }

    pub(crate) fn asked(request: &OpenRequest) -> Self {
        Self::configured(CallConfig::default(), request)
    }

    pub(crate) fn configured(config: CallConfig, request: &OpenRequest) -> Self {
        let now = Instant::now();
        let encoder = EncoderConfig { rate: 16_000, bitrate: 32_000, ..EncoderConfig::default() };
        Self {
            call: Call::new(now, config, request, SLOT, 1),
            start: now,
            now,
            events: Vec::new(),
            messages: Vec::new(),
            wire: Vec::new(),
            ended: false,
            encoder: Encoder::new(encoder).unwrap(),
            microphone: VecDeque::new(),
            next_packet: now,
            seq: 65_520,
            to_edge: VecDeque::new(),
            to_call: VecDeque::new(),
            playing: None,
            paused: false,
            next_frame: now,
            next_report: now,
            flushed: 0,
        }
    }

    /// A call whose client opened its channel and read `session.created`.
    pub(crate) fn opened(model: &str) -> Self {
        Self::new(model).open()
    }

    /// The same, answered by a script.
    pub(crate) fn scripted(script: &str) -> Self {
        Self::configured(playing(script), &request("demo")).open()
    }

    fn open(self) -> Self {
        let mut bench = self;
        bench.open_channel(CHANNEL, "oai-events");
        assert_eq!(bench.names(), ["session.created"]);
        bench.events.clear();
        bench
    }

    pub(crate) fn open_channel(&mut self, channel: u32, label: &str) {
        self.message(edge_message::Kind::ChannelOpened(ChannelOpened { channel, label: label.to_owned() }));
    }

    pub(crate) fn client(&mut self, text: &str) {
        let data = text.as_bytes().to_vec();
        self.message(edge_message::Kind::ChannelMessage(ChannelMessage { channel: CHANNEL, binary: false, data }));
    }

    pub(crate) fn message(&mut self, kind: edge_message::Kind) {
        self.call.handle_message(self.now, EdgeMessage { kind: Some(kind) });
        self.drain();
    }

    pub(crate) fn say(&mut self, pcm: &[i16]) {
        self.microphone.extend(pcm);
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect()
    }

    pub(crate) fn event(&self, name: &str) -> Option<(u64, &Value)> {
        self.events.iter().find(|(_, event)| event["type"] == name).map(|(at, event)| (*at, event))
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from((self.now - self.start).as_millis()).unwrap()
    }

    /// What the client hears, at 16 kHz.
    pub(crate) fn heard(&self) -> Vec<i16> {
        let mut decoder = Decoder::new(16_000).unwrap();
        let mut out = [0; 1920];
        self.wire
            .iter()
            .flat_map(|(_, payload)| {
                let length = decoder.decode(payload, &mut out).unwrap();
                out[..length].to_vec()
            })
            .collect()
    }

    /// Lets time pass in steps of 1 ms, or to the call's own deadlines.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        if self.next_packet <= now {
            self.next_packet += FRAME;
            self.packet();
        }
        while let Some((_, output)) = self.to_edge.pop_front_if(|(due, _)| *due <= now) {
            self.edge_takes(output);
        }
        self.play();
        while let Some((_, message)) = self.to_call.pop_front_if(|(due, _)| *due <= now) {
            self.call.handle_message(now, message);
            self.drain();
        }
        for _ in 0..100 {
            if self.call.poll_timeout().is_none_or(|due| due > now) {
                return;
            }
            self.call.handle_timeout(now);
            self.drain();
        }
        panic!("the call is due over and over at {} ms", self.elapsed_ms());
    }

    fn packet(&mut self) {
        let pcm: Vec<i16> = (0..320).map(|_| self.microphone.pop_front().unwrap_or(0)).collect();
        let mut packet = [0; MAX_PACKET_BYTES];
        let length = self.encoder.encode(&pcm, &mut packet).unwrap();
        self.frame(&packet[..length], 1);
    }

    pub(crate) fn frame(&mut self, payload: &[u8], epoch: u8) {
        let media = MediaUp {
            slot: SLOT,
            epoch,
            codec: Codec::Opus,
            marker: false,
            seq: self.seq,
            rtp_timestamp: u32::from(self.seq).wrapping_mul(960),
            audio_level: None,
            age_us: 3000,
            payload,
        };
        self.call.handle_media(self.now, &media);
        self.seq = self.seq.wrapping_add(1);
        self.drain();
    }

    /// A key of the telephone's, as RFC 4733 has it.
    pub(crate) fn key(&mut self, payload: &[u8]) {
        let media = MediaUp {
            slot: SLOT,
            epoch: 1,
            codec: Codec::TelephoneEvent,
            marker: true,
            seq: self.seq,
            rtp_timestamp: u32::from(self.seq).wrapping_mul(960),
            audio_level: None,
            age_us: 0,
            payload,
        };
        self.call.handle_media(self.now, &media);
        self.seq = self.seq.wrapping_add(1);
        self.drain();
    }

    fn drain(&mut self) {
        let at = self.elapsed_ms();
        while let Some(output) = self.call.poll_output() {
            assert!(!self.ended, "something after the end: {output:?}");
            match output {
                CallOutput::Message(TransceiverMessage {
                    kind: Some(transceiver_message::Kind::ChannelMessage(message)),
                }) => {
                    assert!(!message.binary);
                    self.events.push((at, serde_json::from_slice(&message.data).unwrap()));
                }
                CallOutput::Message(TransceiverMessage { kind: Some(kind) }) => {
                    self.messages.push((at, kind.clone()));
                    let message = TransceiverMessage { kind: Some(kind) };
                    self.to_edge.push_back((self.now + LINK, CallOutput::Message(message)));
                }
                CallOutput::Ended => self.ended = true,
                other => self.to_edge.push_back((self.now + LINK, other)),
            }
        }
    }

    fn edge_takes(&mut self, output: CallOutput) {
        let (current, sent) = self.playing.as_ref().map_or((0, 0), |playing| (playing.utterance, playing.sent));
        match output {
            CallOutput::UtteranceStart(header) => {
                assert_eq!((header.slot, header.epoch), (SLOT.0, 1));
                assert!(header.utterance > self.flushed);
                assert!(self.playing.is_none(), "two utterances at once");
                let (utterance, item) = (header.utterance, header.item);
                self.playing = Some(Playing { utterance, item, queue: VecDeque::new(), sent: 0, ended: false });
                self.next_frame = self.now;
                self.next_report = self.now + REPORT;
            }
            CallOutput::UtteranceFrame { utterance, samples, payload } => {
                if let Some(playing) = self.playing.as_mut().filter(|playing| playing.utterance == utterance.0) {
                    playing.queue.push_back((samples, payload));
                    assert!(playing.queue.len() <= 55, "beyond the credit");
                }
            }
            CallOutput::UtteranceEnd { utterance } => {
                if let Some(playing) = self.playing.as_mut().filter(|playing| playing.utterance == utterance.0) {
                    playing.ended = true;
                }
            }
            CallOutput::UtteranceReset { .. } => {}
            CallOutput::Message(TransceiverMessage { kind: Some(kind) }) => match kind {
                transceiver_message::Kind::Pause(_) => {
                    self.paused = true;
                    self.effect(Effect::Paused, current, sent);
                }
                transceiver_message::Kind::Resume(_) => {
                    self.paused = false;
                    self.effect(Effect::Resumed, current, sent);
                }
                transceiver_message::Kind::Flush(flush) => {
                    self.paused = false;
                    self.flushed = flush.up_to;
                    self.playing.take_if(|playing| playing.utterance <= flush.up_to);
                    self.effect(Effect::Flushed, flush.up_to, sent);
                }
                transceiver_message::Kind::Reflex(settings) => assert!(!settings.enabled, "{settings:?}"),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn play(&mut self) {
        let now = self.now;
        let Some(playing) = &mut self.playing else { return };
        let utterance = playing.utterance;
        if self.next_report <= now {
            self.next_report += REPORT;
            let (sent, limit) = (playing.sent, playing.sent + 48_000);
            let report = PlayoutReport {
                slot: SLOT,
                epoch: 1,
                utterance: UtteranceId(utterance),
                sent,
                limit,
                queue_ms: 0,
                underruns: 0,
                client: None,
            };
            self.call.handle_report(now, &report);
            self.drain();
        }
        let Some(playing) = &mut self.playing else { return };
        if self.paused || self.next_frame > now {
            return;
        }
        if let Some((samples, payload)) = playing.queue.pop_front() {
            let first = playing.sent == 0;
            playing.sent += u64::from(samples);
            self.next_frame = now + FRAME;
            let at = u64::try_from((now - self.start).as_millis()).unwrap();
            self.wire.push((at, payload));
            if first {
                self.effect(Effect::Started, utterance, 0);
            }
        }
        if let Some(done) = self.playing.take_if(|playing| playing.ended && playing.queue.is_empty()) {
            self.effect(Effect::Finished, done.utterance, done.sent);
        }
    }

    fn effect(&mut self, kind: Effect, utterance: u32, sent: u64) {
        let effect = PlayoutEffect { kind: kind.into(), utterance, sent, ..PlayoutEffect::default() };
        let message = EdgeMessage { kind: Some(edge_message::Kind::Playout(effect)) };
        self.to_call.push_back((self.now + LINK, message));
    }
}
